"""Magics for IPython and Jupyter: ``%load_ext greta.notebook``.

``%greta VERB ...`` runs a verb of greta's and shows what it prints; tables of ``%greta bench`` are shown as tables.
``%%greta`` takes a model file from the cell, checks it and runs it. docs/pytorch.md shows them.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import Markdown, display

import greta

# What both greta check and greta run take, and greta.load by the same names.
SHARED = {
    "weights",
    "backend",
    "device",
    "threads",
    "context",
    "chunk",
    "dtype",
    "kv",
    "set",
    "weight-seed",
    "cache",
    "fp16",
    "kernels",
    "lora",
    "tuned",
    "config",
    "exact",
    "no-fuse",
    "fp8",
}
SWITCHES = {"exact", "no-fuse", "fp8", "no-capture", "profile", "no-limits", "strict", "verbose"}
QUICK = {"prefill": "32", "gen": "8", "repeat": "3"}  # of a cell's measured run


class Failed(Exception):
    """greta ended with an error, which was shown; ``code`` is its exit code."""

    def __init__(self, verb: str, code: int):
        self.code = code
        super().__init__(f"greta {verb} ended with exit code {code}")

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def flags_of(words: list[str]) -> tuple[list[str], list[tuple[str, str | None]]]:
    """Arguments, and flags with their values, of a line's words."""
    rest: list[str] = []
    flags: list[tuple[str, str | None]] = []
    at = iter(words)
    for w in at:
        if not w.startswith("--"):
            rest.append(w)
            continue
        name, equal, value = w[2:].partition("=")
        if equal or name in SWITCHES:
            flags.append((name, value if equal else None))
            continue
        try:
            flags.append((name, next(at)))
        except StopIteration:
            raise UsageError(f"--{name} wants a value") from None
    return rest, flags


def words_of(flags: list[tuple[str, str | None]]) -> list[str]:
    return [f"--{n}" if v is None else f"--{n}={v}" for n, v in flags]


@magics_class
class GretaMagics(Magics):
    """The magic greta, of a line and of a cell."""

    def __init__(self, shell: Any):
        super().__init__(shell)
        self.folder = tempfile.TemporaryDirectory(prefix="greta-cell")

    @line_cell_magic
    def greta(self, line: str, cell: str | None = None) -> None:
        """%greta VERB ARGUMENTS, or %%greta [--save FILE] [--as NAME] [FLAGS] over a model file.

        Of a cell, greta check and a short measured run follow with the flags of both; --save keeps the file, --as gives
        the loaded model this name in the notebook.
        """
        words = shlex.split(line)
        if cell is None:
            if not words:
                raise UsageError("%greta VERB ARGUMENTS: such as %greta bench op linear --m 1,8")
            self.run(words, table=words[0] == "bench")
            return
        rest, flags = flags_of(words)
        if rest:
            raise UsageError(f"%%greta takes flags, not {rest[0]!r}: the cell is the model file")
        own = dict(f for f in flags if f[0] in ("save", "as"))
        flags = [f for f in flags if f[0] not in own]
        name = own.get("as")
        if name is not None and not name.isidentifier():
            raise UsageError(f"--as {name}: a name of Python is expected")
        found = re.search(r"^(?:block|model):\s*(\w+)", cell, re.M)
        path = Path(own.get("save") or Path(self.folder.name) / f"{found.group(1) if found else 'cell'}.yaml")
        path.write_text(cell)
        shared = [f for f in flags if f[0] in SHARED]
        self.run(["check", str(path), *words_of(shared)], hide=str(path))
        given = {n for n, _ in flags}
        quick = [f"--{n}={v}" for n, v in QUICK.items() if n not in given]
        self.run(["run", str(path), *words_of(flags), *quick], hide=str(path))
        if name is not None:
            options: dict[str, Any] = {}
            for n, v in shared:
                key, value = n.replace("-", "_"), True if v is None else v
                if key in ("set", "lora", "config"):
                    k, _, part = str(value).partition("=")
                    options.setdefault(key, {} if key == "set" else [])
                    options[key] = {**options[key], k: part} if key == "set" else [*options[key], value]
                else:
                    options[key] = value
            self.shell.user_ns[name] = greta.load(path, **options)

    def run(self, words: list[str], table: bool = False, hide: str = "") -> None:
        """Runs greta and shows what it says; an interrupt goes to it, too."""
        command = [greta.find_binary(), *words]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as p:
            try:
                out, err = p.communicate()
            except KeyboardInterrupt:
                p.send_signal(2)
                out, err = p.communicate()
        out, err = (t.replace(hide, Path(hide).name).strip() if hide else t.strip() for t in (out, err))
        if table and p.returncode == 0 and out.startswith("|"):
            display(Markdown(out))
        elif out:
            print(out)
        if err:
            print(err)
        if p.returncode:
            raise Failed(words[0], p.returncode)


def load_ipython_extension(shell: Any) -> None:
    shell.register_magics(GretaMagics(shell))
