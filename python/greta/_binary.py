"""Where the program greta lies."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from ._errors import BinaryNotFoundError


def find_binary() -> str:
    """The path of the program: that of the wheel, else what GRETA_BINARY names, else the PATH's.

    Raises BinaryNotFoundError where there is none.
    """
    name = "greta.exe" if sys.platform == "win32" else "greta"
    own = Path(__file__).parent / "bin" / name
    if own.is_file():
        return str(own)
    named = os.environ.get("GRETA_BINARY")
    if named:
        found = shutil.which(named)
        if found is None:
            raise BinaryNotFoundError(f"GRETA_BINARY={named}: {_why(named)}")
        return found
    found = shutil.which(name)
    if found is None:
        raise BinaryNotFoundError(
            "there is no program greta: install a wheel of this platform, which has it, or set GRETA_BINARY to it, "
            "or put it on the PATH (go install github.com/greta-project/greta/cmd/greta@latest)"
        )
    return found


def _why(named: str) -> str:
    """Why a program that was named is none."""
    path = Path(named)
    if path.is_dir():
        return "this is a folder, a program is expected"
    if path.is_file() and os.access(path, os.X_OK):
        return f"there is no such program on the PATH; the file in this folder is ./{named}"
    if path.is_file():
        return f"this file may not be executed: chmod +x {named}"
    if path.name == named:
        return "there is no such program on the PATH"
    return "there is no such program"


def main() -> None:
    """The command greta that the wheel installs: the program itself."""
    import subprocess

    try:
        binary = find_binary()
    except BinaryNotFoundError as e:
        sys.exit(f"greta: {e}")
    if sys.platform == "win32":
        sys.exit(subprocess.call([binary, *sys.argv[1:]]))
    os.execv(binary, [binary, *sys.argv[1:]])
