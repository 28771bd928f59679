"""What a benchmark gives: results with names for their figures, and all that greta keeps of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._errors import GretaError, MismatchError, UnsupportedError, UsageError, need

if TYPE_CHECKING:
    import pandas as pd


def median(values: Sequence[float]) -> float:
    """The median; nan of nothing."""
    v, n = sorted(values), len(values)
    if not n:
        return math.nan
    return v[n // 2] if n % 2 else (v[n // 2 - 1] + v[n // 2]) / 2


def _rate(work: float, seconds: float) -> float:
    return work / seconds / 1e9 if work and seconds > 0 else math.nan


@dataclass(frozen=True)
class BenchmarkResult:
    """One figure, checked in the same run. It is true where its verdict is ok; figures that were not taken are nan."""

    benchmark: str  #: platform/stream/triad
    params: dict[str, str]
    exec_time_ms: float  #: median of the samples, of one operation
    bandwidth_gbs: float  #: GB/s, each byte read and written counted once
    gflops: float  #: 10⁹ operations a second
    spread: float  #: (slowest - fastest) / median of the samples
    share_of_roof: float  #: of what the device can do at most by its attributes; nan where that is not known
    verdict: str  #: ok, failed (a wrong result), refused (faster than the device can be), skipped (it is not there)
    reason: str  #: why it is not ok
    n: int  #: samples
    samples: tuple[float, ...] = field(repr=False)  #: seconds
    metrics: dict[str, float]  #: figures of the benchmark's own, such as cycles
    cache: str  #: warm, cold, or empty
    working_set: float  #: bytes that the repetitions go through
    backend: str
    device: str
    started: str  #: when the run began, UTC
    run: str  #: its identity in greta's store
    bundle: dict[str, Any] = field(repr=False, compare=False)  #: the run as `greta export json` writes it

    @property
    def spread_percent(self) -> float:
        """spread as a percentage."""
        return 100 * self.spread

    @property
    def data_size_kb(self) -> float:
        """The working set in KiB."""
        return self.working_set / 1024

    def __bool__(self) -> bool:
        return self.verdict == "ok"

    def raise_for_verdict(self) -> BenchmarkResult:
        """Gives the result where it is ok; else raises MismatchError, UnsupportedError or GretaError."""
        if self:
            return self
        kind = {"failed": MismatchError, "skipped": UnsupportedError}.get(self.verdict, GretaError)
        raise kind(f"{self.benchmark}: {self.verdict}: {self.reason}")

    def row(self) -> dict[str, Any]:
        """The result as a row of a frame: its figures, and its parameters by their names."""
        row = {name: getattr(self, name) for name in COLUMNS}
        for k, v in self.params.items():
            row.setdefault(k if k not in row else f"param_{k}", number(v))
        for k, m in self.metrics.items():
            row.setdefault(k, m)
        row["samples"] = list(self.samples)
        return row


COLUMNS = ["benchmark", "exec_time_ms", "bandwidth_gbs", "gflops", "spread", "share_of_roof", "verdict", "reason"]
COLUMNS += ["n", "cache", "working_set", "backend", "device", "started", "run"]


def number(text: str) -> int | float | str:
    """A parameter as a number, where it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def from_bundle(bundle: dict[str, Any]) -> Results:
    """The results of runs as `greta export json` writes them."""
    found = Results()
    for run in bundle["runs"]:
        env = run["env"]
        one = {**bundle, "runs": [run]}
        for r in run.get("results") or []:
            samples = tuple(r.get("samples") or ())
            ok = r["verdict"] == "ok"
            typical = median(samples) if ok else math.nan
            roofs = r.get("roofs") or {}
            bandwidth, gflops = _rate(r.get("bytes", 0), typical), _rate(r.get("flops", 0), typical)
            shares = [
                rate / roof
                for rate, roof in ((bandwidth, roofs.get("read_gbs", 0)), (gflops, roofs.get("gflops", 0)))
                if roof and not math.isnan(rate)
            ]
            found.append(
                BenchmarkResult(
                    benchmark=r["bench"],
                    params=dict(r.get("params") or {}),
                    exec_time_ms=typical * 1e3,
                    bandwidth_gbs=bandwidth,
                    gflops=gflops,
                    spread=(max(samples) - min(samples)) / typical if ok and typical > 0 else math.nan,
                    share_of_roof=max(shares, default=math.nan),
                    verdict=r["verdict"],
                    reason=r.get("reason", ""),
                    n=len(samples),
                    samples=samples,
                    metrics=dict(r.get("metrics") or {}),
                    cache=r.get("cache", ""),
                    working_set=r.get("working_set", 0.0),
                    backend=env["backend"],
                    device=env["device"],
                    started=run["started"],
                    run=run["id"],
                    bundle=one,
                )
            )
    return found


def from_frame(frame: Any) -> Results:
    """The results that a frame of them shows, as far as it does: parameters are numbers there."""
    missing = [c for c in COLUMNS if c not in frame.columns]
    if missing:
        raise UsageError(f"the frame has no column {missing[0]}: one of Results.frame() or get_results() is expected")
    found = Results()
    for row in frame.to_dict("records"):
        own: dict[str, Any] = {str(k): v for k, v in row.items()}
        known = {c: own.pop(c) for c in COLUMNS}
        samples = own.pop("samples", ())
        own = {k.removeprefix("param_"): v for k, v in own.items() if v is not None and v == v}
        params = {k: f"{v:.0f}" if isinstance(v, float) and v.is_integer() else str(v) for k, v in own.items()}
        metrics = {k: float(v) for k, v in own.items() if isinstance(v, (int, float))}
        samples = tuple(samples) if isinstance(samples, (list, tuple)) else ()
        found.append(BenchmarkResult(**known, params=params, samples=samples, metrics=metrics, bundle={}))
    return found


class Results(list[BenchmarkResult]):
    """Results in the order in which they were measured."""

    def frame(self) -> pd.DataFrame:
        """A frame of pandas', a result a row."""
        DataFrame = need("pandas", "a frame of results").DataFrame
        result: pd.DataFrame = DataFrame([r.row() for r in self]) if self else DataFrame(columns=[*COLUMNS, "samples"])
        return result

    def of(self, benchmark: str) -> Results:
        """Those of a benchmark, or of what stands below it: of("stream") has platform/stream/triad."""
        return Results(r for r in self if matches(r.benchmark, benchmark))

    def ok(self) -> Iterator[BenchmarkResult]:
        """Those that are ok."""
        return (r for r in self if r)


def matches(name: str, benchmark: str) -> bool:
    """Whether a result's name is a benchmark's, or of one below it."""
    return any(name == b or name.startswith(b + "/") for b in (benchmark, f"platform/{benchmark}"))
