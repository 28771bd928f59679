"""Magics for IPython and Jupyter: ``%load_ext greta.notebook``.

``%greta VERB ...`` runs a verb of greta's and shows what it prints; tables of ``%greta bench`` are shown as tables, with
a line while it runs that says what is measured; ``%greta report`` shows the interactive page in the cell.
``%%greta`` takes a model file from the cell, checks it and runs it. docs/pytorch.md shows them.
"""

from __future__ import annotations

import html
import re
import shlex
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import HTML, Markdown, display

import greta

from ._arguments import positive

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
LIVE = {"op", "model", "platform"}  # benches that say what is measured
QUICK = {"prefill": "32", "gen": "8", "repeat": "3"}  # of a cell's measured run


class Page:
    """A page of greta's that stands in a cell: in a frame of its own, with all that it needs."""

    def __init__(self, text: str, height: int = 720):
        self.text, self.height = text, height

    def _repr_html_(self) -> str:
        return (
            '<iframe sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: {self.height}px; border: 0" srcdoc="{html.escape(self.text)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<greta.notebook.Page of {len(self.text)} characters>"


def report(*, height: int = 720, **filters: object) -> Page:
    """The interactive page of stored results, to be shown in a cell ``height`` pixels high.

    ``filters`` are the flags of ``greta report``, such as device="H200", since="7d", store="results.sqlite". Raises
    greta.UsageError for others and where no result is stored.
    """
    positive("height", height)
    return Page(_report([f"--{k.replace('_', '-')}={v}" for k, v in filters.items()]), height)


def _report(words: list[str]) -> str:
    command = [greta.find_binary(), "report", *words, "--output=-"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise greta.UsageError(done.stderr.strip() or f"greta report ended with exit code {done.returncode}")
    return done.stdout


class Progress:
    """A line in a cell that is written anew: what a running bench measures."""

    _now = re.compile(r"greta: (\d+) of (\d+): (.*)")

    def __init__(self) -> None:
        self._handle: Any = None

    def take(self, line: str) -> bool:
        """Shows a line of standard error that says what is measured; false: it is another."""
        found = self._now.fullmatch(line)
        if found is None:
            return False
        at, most, name = int(found[1]), int(found[2]), found[3]
        self._show(f"<progress value='{at - 1}' max='{most}'></progress> {at} of {most}: {html.escape(name)}")
        return True

    def end(self) -> None:
        """Takes the line away."""
        if self._handle is not None:
            self._show("")

    def _show(self, text: str) -> None:
        if self._handle is None:
            self._handle = display(HTML(text), display_id=True)
        else:
            self._handle.update(HTML(text))


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
        try:
            words = shlex.split(line)
        except ValueError as e:
            raise UsageError(f"%greta {line}: {e}") from None
        if cell is None:
            if not words:
                raise UsageError("%greta VERB ARGUMENTS: such as %greta bench op linear --m 1,8")
            asked = any(w == "--open" or re.match(r"-o|--output", w) for w in words)
            if words[0] == "report" and not asked and not {"-h", "--help"} & set(words):
                try:
                    page = Page(_report(words[1:]))
                except greta.UsageError as e:
                    raise UsageError(str(e)) from None
                display(page)
            else:
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
        try:
            path.write_text(cell, "utf-8")
        except OSError as e:
            raise UsageError(f"--save {path}: {e.strerror}") from None
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
        progress = Progress() if table else None
        command = [greta.find_binary(), *words]
        if table and len(words) > 1 and words[1] in LIVE and not any(w.startswith("--progress") for w in words):
            command.append("--progress")
        pipe = subprocess.PIPE
        said: list[str] = []
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, encoding="utf-8", errors="replace"
        ) as p:
            assert p.stdout is not None and p.stderr is not None
            parts: list[str] = []
            reader = threading.Thread(target=lambda: parts.append(p.stdout.read()), daemon=True)  # type: ignore[union-attr]
            reader.start()
            while True:
                try:
                    for text in p.stderr:
                        if progress is None or not progress.take(text.rstrip("\n")):
                            said.append(text)
                    reader.join()
                    p.wait()
                    break
                except KeyboardInterrupt:
                    p.send_signal(signal.SIGINT)
        if progress is not None:
            progress.end()
        out, err = "".join(parts), "".join(said)
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
