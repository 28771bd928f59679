"""What callers give: looked at here, so that what is wrong is named where it was given."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._errors import ArgumentTypeError, UsageError

#: What whole numbers of greta's are at most.
MOST = (1 << 63) - 1


def shown(value: object) -> str:
    """A value in a few words."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:  # it is a caller's
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 and "\n" not in text else f"{text.splitlines()[0][:40]}… ({type(value).__name__})"


def wrong(name: str, value: object, expected: str) -> ArgumentTypeError:
    """The error of an argument that has a wrong type."""
    return ArgumentTypeError(f"{name} is {shown(value)}: {expected} is expected")


def text(name: str, value: object, expected: str = "a text") -> str:
    """A text."""
    if not isinstance(value, str):
        raise wrong(name, value, expected)
    return value


def texts(name: str, value: object) -> list[str]:
    """A list of texts, of anything that has an order; one text is none."""
    if isinstance(value, (str, bytes, Mapping, Set)) or not isinstance(value, Iterable):
        raise wrong(name, value, "a list of texts")
    return [text(f"{name}[{i}]", v) for i, v in enumerate(value)]


def flag(name: str, value: object) -> bool:
    """True or False, NumPy's too."""
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
        raise wrong(name, value, "True or False")
    return bool(value)


def whole(name: str, value: Any, least: int = -MOST - 1, most: int = MOST) -> int:
    """A whole number, NumPy's too."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise wrong(name, value, "a whole number")
    try:
        number = int(value.__index__())
    except TypeError:  # an array that is none
        raise wrong(name, value, "a whole number") from None
    if number < least:
        raise UsageError(f"{name} is {shown(number)}, it must be {least} or more")
    if number > most:
        raise UsageError(f"{name} is {shown(number)}: at most {most} is expected")
    return number


def positive(name: str, value: Any, least: int = 1) -> int:
    """A whole number from 1, or least, on."""
    return whole(name, value, least)


def real(name: str, value: Any) -> float:
    """A number that is finite, NumPy's too."""
    if isinstance(value, (str, bytes, bool)):
        raise wrong(name, value, "a number")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise wrong(name, value, "a number") from None
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UsageError(f"{name} is {shown(value)}: a finite number is expected")
    return number


def path(name: str, value: object, expected: str = "a path") -> str:
    """A path as a text."""
    if isinstance(value, (str, os.PathLike)):
        found = os.fspath(value)
        if isinstance(found, str):
            return found
    raise wrong(name, value, expected)


@contextmanager
def writing(name: str, value: object) -> Iterator[Path]:
    """A file that is written meanwhile: what is in the way of it is a UsageError that says what."""
    file = Path(path(name, value))
    try:
        yield file
    except OSError as e:
        why = e.strerror or str(e)
        if not file.parent.is_dir():
            why = f"there is no folder {file.parent}" + (", but a file" if file.parent.exists() else "")
        elif file.is_dir():
            why = "it is a folder"
        raise UsageError(f"{name} is {str(file)!r}, which cannot be written: {why}") from e


def mapping(name: str, value: object, expected: str) -> Mapping[Any, Any]:
    """A dict or what is like one."""
    if not isinstance(value, Mapping):
        raise wrong(name, value, expected)
    return value


def ids(name: str, tokens: Any) -> list[int]:
    """Token ids as a list, of a list, array or tensor."""
    expected = "a list of token ids"
    if hasattr(tokens, "tolist"):
        tokens = tokens.tolist()
    if isinstance(tokens, (str, bytes, Mapping, Set)) or not isinstance(tokens, Iterable):
        raise wrong(name, tokens, expected)
    return [
        int(t) if type(t) is int and -1 << 31 <= t < 1 << 31 else _id(f"{name}[{i}]", t) for i, t in enumerate(tokens)
    ]


def _id(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise wrong(name, value, "a token id, a whole number,")
    number = int(value.__index__())
    if not -1 << 31 <= number < 1 << 31:
        raise UsageError(f"{name} is {shown(number)}: no vocabulary has such a token")
    return number


def plain(name: str, value: object) -> object:
    """An option's value as JSON has it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(k): plain(f"{name}[{k!r}]", v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(f"{name}[{i}]", v) for i, v in enumerate(value)]
    if hasattr(value, "tolist") and not isinstance(value, type):  # NumPy's
        value = value.tolist()
        return value if isinstance(value, (str, bool, int, float)) else plain(name, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{name} is {value}: a finite number is expected")
    if isinstance(value, (str, bool, int, float)):
        return value
    raise wrong(name, value, "a text, a number, True or False, or a list or dict of such")
