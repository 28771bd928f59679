"""greta bench from Python: rows of results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .._arguments import path, text, wrong
from .._errors import GretaError, UsageError, need
from .._process import Process, default_process, here

if TYPE_CHECKING:
    import pandas as pd


READ = {"dataset", "kernel", "kernels", "model", "profile", "tuned", "weights"}  # files, or names
WRITTEN = {"html", "out", "store"}
KINDS = ("op", "model", "platform", "serve")


def flags(options: Mapping[str, Any]) -> list[str]:
    """Options as flags: m=[1, 8] is --m=1,8; set={"a.b": 1} is --set=a.b=1; True is --name."""
    args: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            args.append(f"{flag}={'true' if value else 'false'}")
        elif isinstance(value, Mapping):
            args += [f"{flag}={k}={_text(f'{name}[{k!r}]', v)}" for k, v in value.items()]
        else:
            args.append(f"{flag}={_text(name, value)}")
    return args


def _text(name: str, value: Any) -> str:
    if hasattr(value, "tolist") and not isinstance(value, type):  # NumPy's
        value = value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
        return ",".join(_text(f"{name}[{i}]", v) for i, v in enumerate(value))
    if isinstance(value, (str, int, float, os.PathLike)):
        return str(value)
    raise wrong(name, value, "a text, a number, True or False, or a list of such")


def rows(kind: str, *names: str, process: Process | None = None, **options: Any) -> list[dict[str, Any]]:
    """Runs `greta bench KIND NAME... --options` and gives its results, a dict each, as -o json writes them.

    kind: op, model, platform, serve (a row a load, as its --json has them). An option's name is the flag's with _ for -; lists are joined by commas, a dict is
    a flag repeated. Raises MismatchError where a result is wrong, GretaError where none is OK; the exception's `rows`
    are the results all the same. An interrupt ends the run; what was measured by then is in greta's store.
    """
    for i, name in enumerate(names):
        text(f"names[{i}]", name)
    if kind not in KINDS:
        raise UsageError(f"bench: {kind!r} is no kind of bench: {', '.join(KINDS[:-1])} and {KINDS[-1]} are")
    for name in ("output", "json", "o"):
        if name in options and (kind != "serve" or name != "output"):
            raise UsageError(f"bench: the option {name} is taken: results come as rows")
    p = process or default_process()
    given = names if kind in ("op", "platform") else [str(here(n, p)) for n in names]
    for name in READ & options.keys():
        options[name] = here(options[name], p)
    folder = {"cache"} if kind == "model" and options.get("cache") != "off" else set()  # of an op it is warm or cold
    for name in (WRITTEN | folder) & options.keys():
        if options[name]:
            options[name] = os.path.abspath(path(name, options[name]))
    args = [kind, *given, *flags(options)]
    try:
        answer, _ = p.call("bench", {"args": args})
    except GretaError as e:
        parts = getattr(e, "parts", [])
        e.rows = parts[0]["rows"] if parts else []  # type: ignore[attr-defined]
        raise
    result: list[dict[str, Any]] = answer["rows"]
    return result


def bench(kind: str, *names: str, process: Process | None = None, **options: Any) -> pd.DataFrame:
    """Runs `greta bench` and gives its results as a frame of pandas, a result a row; options as `rows` has them."""
    frame: pd.DataFrame = need("pandas", "greta.bench (greta.bench.rows gives a list of dicts without it)").DataFrame(
        [_flat(r) for r in rows(kind, *names, process=process, **options)]
        if kind == "serve"
        else rows(kind, *names, process=process, **options)
    )
    return frame


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose figures at percentiles are columns of their own: ttft_ms_p50."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat.update({f"{name}_{k}": v for k, v in value.items()})
        else:
            flat[name] = value
    return flat


class Bench:
    """What the module greta.bench is for type checkers, to which a module cannot be called."""

    rows = staticmethod(rows)

    def __call__(self, kind: str, *names: str, process: Process | None = None, **options: Any) -> pd.DataFrame:
        return bench(kind, *names, process=process, **options)
