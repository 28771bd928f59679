"""greta's store of results from Python: reading, adding, exporting, comparing, and the performance gate."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _arguments as arguments
from .._errors import GateError, GretaError, UsageError, need
from .._process import Process, default_process
from ._result import BenchmarkResult, Results, from_bundle

if TYPE_CHECKING:
    import pandas as pd


def default_store() -> Path:
    """greta's own store: what GRETA_STORE names, else greta/bench.sqlite in the user's data folder."""
    import sys

    named = os.environ.get("GRETA_STORE")
    if named:
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME")
    if data:
        return Path(data) / "greta" / "bench.sqlite"
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "greta" / "bench.sqlite"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "greta" / "bench.sqlite"
    return home / ".local" / "share" / "greta" / "bench.sqlite"


VERDICTS = ("ok", "failed", "refused", "skipped")  # as BenchmarkResult.verdict has them


class BenchmarkDB:
    """A file of results: the one of `greta bench`, which only grows, or another."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, process: Process | None = None) -> None:
        """path: the file; None: greta's own. save_result makes it; reading where there is none is a UsageError."""
        self.path = Path(arguments.path("path", path)).absolute() if path is not None else default_store()
        self._process = process

    def _command(self, *args: str) -> str:
        p = self._process or default_process()
        return str(p.call("command", {"args": [*args, f"--store={self.path}"]})[0]["text"])

    def save_result(
        self,
        benchmark: str | BenchmarkResult | Iterable[BenchmarkResult],
        result: BenchmarkResult | Iterable[BenchmarkResult] | None = None,
    ) -> int:
        """Keeps the run that a result, or each of several, belongs to, with all samples and its environment.

        save_result(result), or save_result("cache", result), which says so where it is another benchmark's. Gives how
        many results are new: a run that is there already is not added again.
        """
        name = benchmark if isinstance(benchmark, str) else ""
        given = result if isinstance(benchmark, str) else benchmark
        if given is None:
            raise UsageError("save_result: a result is expected")
        if not isinstance(given, Iterable):
            given = [given]
        results = list(given)
        for r in results:
            if not isinstance(r, BenchmarkResult):
                raise arguments.wrong("save_result's result", r, "a BenchmarkResult")
            if name and not Results([r]).of(name):
                raise UsageError(f"save_result: the result is of {r.benchmark}, not of {name}")
        runs = {r.run: r.bundle["runs"][0] for r in results}
        if not runs:
            return 0
        with tempfile.TemporaryDirectory(prefix="greta-bench") as folder:
            file = Path(folder) / "runs.json"
            file.write_text(json.dumps({**results[0].bundle, "runs": list(runs.values())}), "utf-8")
            return int(json.loads(self._command("import", str(file), "--json"))["results"])

    def results(
        self,
        *,
        gpu: str | None = None,
        benchmark: str | None = None,
        backend: str | None = None,
        host: str | None = None,
        commit: str | None = None,
        label: str | None = None,
        since: str | None = None,
        until: str | None = None,
        verdict: str | None = "ok",
    ) -> Results:
        """The results that match, the oldest first.

        gpu: part of the device's name; benchmark: "cache", "stream/triad", "op/linear" with all below it; label: *
        stands for anything; since and until: 2026-03-01, or 12h, 7d, 4w ago; verdict: None for all.
        """
        if verdict is not None and verdict not in VERDICTS:
            raise UsageError(f"verdict is {arguments.shown(verdict)}: {', '.join(VERDICTS)} or None is expected")
        self._there()
        filters = {"host": host, "commit": commit, "label": label, "since": since, "until": until}
        for name, value in {"gpu": gpu, **filters, "benchmark": benchmark, "backend": backend}.items():
            if value is not None:
                arguments.text(name, value)
        args = [f"--{k}={v}" for k, v in {"device": gpu, **filters}.items() if v is not None]
        found = from_bundle(json.loads(self._command("export", "json", *args)))
        if benchmark is not None:
            found = found.of(benchmark)
        return Results(
            r for r in found if (verdict is None or r.verdict == verdict) and (backend is None or r.backend == backend)
        )

    def get_results(self, **filters: Any) -> pd.DataFrame:
        """`results` as a frame of pandas', a result a row: figures, parameters, device, samples."""
        return self.results(**filters).frame()

    def export_csv(self, path: str | os.PathLike[str], **filters: Any) -> int:
        """Writes the results that match as CSV, samples divided by spaces; gives how many."""
        frame = self.get_results(**filters)
        if len(frame):
            frame["samples"] = [" ".join(map(repr, s)) for s in frame["samples"]]
        with arguments.writing("path", path) as file:
            frame.to_csv(file, index=False)
        return len(frame)

    def export_json(self, path: str | os.PathLike[str], **filters: Any) -> int:
        """Writes the runs of the results that match as JSON, which greta import reads; gives how many results match."""
        found = self.results(**filters)
        runs = {r.run: r.bundle for r in found}
        whole: dict[str, Any] = dict(found[0].bundle) if found else {}
        whole["runs"] = [b["runs"][0] for b in runs.values()]
        with arguments.writing("path", path) as file:
            file.write_text(json.dumps(whole, indent=1), "utf-8")
        return len(found)

    def compare(self, a: str, b: str, *, benchmark: str | None = None) -> pd.DataFrame:
        """Holds what was measured in b against a, a benchmark a row: `ratio` of typical runs (above 1: b is slower), `p`
        adjusted by Holm's method, `band` of noise, `outcome` (noisy: it cannot be told; three runs of a code are needed).

        a and b: runs, last, last~1, commit:…, label:…, device:H200 for cards.
        """
        self._there()
        args = ["compare", arguments.text("a", a), arguments.text("b", b), "--json"]
        if benchmark is not None:
            args.append(f"--bench={_glob(benchmark)}")
        rows = json.loads(self._command(*args))["rows"]
        result: pd.DataFrame = need("pandas", "BenchmarkDB.compare").DataFrame(rows)
        return result

    def gate(self, run: str | None = None, *, benchmark: str | None = None) -> pd.DataFrame:
        """Holds a run (the last) against the best code on the same device, as `greta gate` does: a benchmark a row.

        Raises GateError where a result is slower than the noise between runs explains, or is no longer ok; the
        exception's `rows` say which.
        """
        self._there()
        args = ["gate", *([arguments.text("run", run)] if run else []), "--json"]
        if benchmark is not None:
            args.append(f"--bench={_glob(benchmark)}")
        try:
            rows = json.loads(self._command(*args))["rows"]
        except GretaError as e:
            parts = getattr(e, "parts", [])
            text = parts[0].get("text", "") if parts else ""
            if isinstance(e, GateError) and text:
                e.rows = json.loads(text)["rows"]  # type: ignore[attr-defined]
            raise
        result: pd.DataFrame = need("pandas", "BenchmarkDB.gate").DataFrame(rows)
        return result

    def stats(self) -> dict[str, Any]:
        """How many runs and results there are, of which benchmarks and devices, from when to when."""
        self._there()
        try:
            return self._counted()
        except sqlite3.Error as e:
            raise UsageError(f"{self.path} is no store of greta's: {e}") from e

    def _there(self) -> None:
        if not self.path.exists():
            raise UsageError(f"there is no store {self.path}: save_result makes it, or greta bench with --store")

    def _counted(self) -> dict[str, Any]:
        with closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            (runs, first, last), (results,) = (
                db.execute("SELECT count(*), min(started), max(started) FROM runs").fetchone(),
                db.execute("SELECT count(*) FROM results").fetchone(),
            )
            benchmarks = [b for (b,) in db.execute("SELECT DISTINCT bench FROM results ORDER BY bench")]
            devices = [d for (d,) in db.execute("SELECT DISTINCT device FROM runs ORDER BY device")]
        return {
            "runs": runs,
            "results": results,
            "benchmarks": benchmarks,
            "devices": devices,
            "first": first,
            "last": last,
        }


def _glob(benchmark: str) -> str:
    if "*" in benchmark:
        return benchmark
    first = benchmark.partition("/")[0]
    return (benchmark if first in ("op", "model", "platform") else f"platform/{benchmark}") + "*"
