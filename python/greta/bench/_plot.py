"""Pictures of results by matplotlib: each function draws on axes and gives them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._arguments import real, shown, wrong
from .._errors import ArgumentTypeError, UsageError, need
from ._result import BenchmarkResult, from_frame, number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        if not hasattr(ax, "errorbar"):
            raise wrong("ax", ax, "axes of matplotlib")
        return ax
    axes: Axes = need("matplotlib.pyplot", "a picture").subplots(figsize=(8, 5), layout="constrained")[1]
    return axes


def _groups(results: BenchmarkResult | Iterable[BenchmarkResult] | pd.DataFrame) -> dict[str, list[BenchmarkResult]]:
    """Results that are ok, by device and what tells lines of one device apart."""
    groups: dict[str, list[BenchmarkResult]] = {}
    if isinstance(results, BenchmarkResult):
        results = [results]
    if hasattr(results, "to_dict") and hasattr(results, "columns"):
        results = from_frame(results)
    if isinstance(results, str) or not isinstance(results, Iterable):
        raise wrong("results", results, "a list of BenchmarkResult, or a frame of them")
    given = list(results)
    for r in given:
        if not isinstance(r, BenchmarkResult):
            raise ArgumentTypeError(
                f"results has {shown(r)} in it: BenchmarkResults are expected, such as BenchmarkDB.results() gives"
            )
    good = [r for r in given if r]
    if not good:
        raise UsageError("there is no result that is ok to draw")
    several = len({r.benchmark for r in good}) > 1
    apart = ("type", "stores", "block", "streams")
    for r in good:
        words = [r.device, r.backend] + ([r.benchmark.removeprefix("platform/")] if several else [])
        words += [f"{k} {r.params[k]}" for k in apart if k in r.params]
        groups.setdefault(", ".join(words), []).append(r)
    return groups


def size_of(r: BenchmarkResult) -> float:
    """The bytes that a result's repetitions go through: its working set, else its parameter bytes."""
    size = r.working_set or number(r.params.get("bytes", "0"))
    return float(size) if isinstance(size, (int, float)) else 0.0


def _bytes_axis(ax: Axes) -> None:
    def text(x: float, _: object) -> str:
        for unit in ("B", "KiB", "MiB", "GiB"):
            if x < 1024 or unit == "GiB":
                return f"{x:g} {unit}"
            x /= 1024
        return ""

    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(need("matplotlib.ticker", "a picture").FuncFormatter(text))
    ax.grid(True, which="both", alpha=0.25)


def plot_bandwidth(results: BenchmarkResult | Iterable[BenchmarkResult] | pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Bandwidth over the size of the working set, a line a device; bars from the slowest sample to the fastest."""
    ax = _axes(ax)
    drawn = False
    for label, group in _groups(results).items():
        points = (
            sorted(
                (size_of(r), r.bandwidth_gbs, r) for r in group if size_of(r) > 0 and not math.isnan(r.bandwidth_gbs)
            )
            if len({size_of(r) for r in group}) == len(group)
            else _best(group)
        )
        if not points:
            continue
        x, y = [p[0] for p in points], [p[1] for p in points]
        low = [b - b * p[2].exec_time_ms / 1e3 / max(p[2].samples) for b, p in zip(y, points)]
        high = [b * p[2].exec_time_ms / 1e3 / min(p[2].samples) - b for b, p in zip(y, points)]
        ax.errorbar(x, y, yerr=[low, high], marker="o", markersize=4, capsize=2, label=label)
        drawn = True
    if not drawn:
        raise UsageError("no result has a size and a bandwidth to draw")
    _bytes_axis(ax)
    ax.set(xlabel="working set", ylabel="GB/s")
    ax.set_ylim(bottom=0)
    ax.legend()
    return ax


def _best(group: list[BenchmarkResult]) -> list[tuple[float, float, BenchmarkResult]]:
    """Of several results of one size the fastest."""
    best: dict[float, BenchmarkResult] = {}
    for r in group:
        size = size_of(r)
        if size > 0 and not math.isnan(r.bandwidth_gbs):
            if size not in best or r.bandwidth_gbs > best[size].bandwidth_gbs:
                best[size] = r
    return [(size, best[size].bandwidth_gbs, best[size]) for size in sorted(best)]


def plot_latency(results: BenchmarkResult | Iterable[BenchmarkResult] | pd.DataFrame, ax: Axes | None = None, *, cycles: bool = False) -> Axes:
    """Latency of a load over the size of the buffer, as steps: a step a level of memory. cycles: in cycles, not ns."""
    ax = _axes(ax)
    drawn = False
    for label, group in _groups(results).items():
        points = sorted(
            (size_of(r), r.metrics.get("cycles", math.nan) if cycles else r.exec_time_ms * 1e6)
            for r in group
            if size_of(r) > 0
        )
        points = [p for p in points if not math.isnan(p[1])]
        if points:
            ax.step([p[0] for p in points], [p[1] for p in points], where="mid", marker="o", markersize=4, label=label)
            drawn = True
    if not drawn:
        raise UsageError("no result has a size and a latency to draw")
    _bytes_axis(ax)
    ax.set(xlabel="buffer", ylabel="cycles" if cycles else "ns")
    ax.set_ylim(bottom=0)
    ax.legend()
    return ax


def plot_roofline(
    results: BenchmarkResult | Iterable[BenchmarkResult] | pd.DataFrame,
    ax: Axes | None = None,
    *,
    peak_gflops: float | None = None,
    peak_gbs: float | None = None,
) -> Axes:
    """GFLOP/s over operations a byte, both logarithmic, under the device's two roofs.

    Where no roofs are named they are the best arithmetic and bandwidth among the results.
    """
    ax = _axes(ax)
    points: dict[str, list[tuple[float, float]]] = {}
    flops, bandwidths = [], []
    for label, group in _groups(results).items():
        for r in group:
            flops.append(r.gflops)
            bandwidths.append(r.bandwidth_gbs)
            if r.gflops > 0 and r.bandwidth_gbs > 0:
                points.setdefault(label, []).append((r.gflops / r.bandwidth_gbs, r.gflops))
    if not points:
        raise UsageError("no result has both operations and bytes to draw")
    for name, peak in (("peak_gflops", peak_gflops), ("peak_gbs", peak_gbs)):
        if peak is not None and real(name, peak) <= 0:
            raise UsageError(f"{name} is {peak}, it must be above 0")
    peak_gflops = peak_gflops or max(f for f in flops if not math.isnan(f))
    peak_gbs = peak_gbs or max(b for b in bandwidths if not math.isnan(b))
    for label, pairs in points.items():
        ax.plot(*zip(*sorted(pairs)), "o", markersize=5, label=label)
    knee = peak_gflops / peak_gbs
    xs = [x for pairs in points.values() for x, _ in pairs]
    left, right = min([*xs, knee]) / 2, max([*xs, knee]) * 2
    roof = f"{peak_gbs:.4g} GB/s, {peak_gflops:.4g} GFLOP/s"
    ax.plot([left, knee, right], [left * peak_gbs, peak_gflops, peak_gflops], "k-", linewidth=1, label=roof)
    ax.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="GFLOP/s")
    ax.grid(True, which="both", alpha=0.25)
    ax.legend()
    return ax


def plot_comparison(results: BenchmarkResult | Iterable[BenchmarkResult] | pd.DataFrame, ax: Axes | None = None, *, figure: str = "") -> Axes:
    """The best figure of each device as a bar. figure: bandwidth_gbs, gflops or exec_time_ms (the least)."""
    ax = _axes(ax)
    good = [r for group in _groups(results).values() for r in group]
    if not figure:
        figure = "bandwidth_gbs" if any(not math.isnan(r.bandwidth_gbs) for r in good) else "exec_time_ms"
    if figure not in ("bandwidth_gbs", "gflops", "exec_time_ms"):
        raise UsageError(f"figure {figure}: there are bandwidth_gbs, gflops and exec_time_ms")
    best: dict[str, float] = {}
    for r in good:
        value: Any = getattr(r, figure)
        name = f"{r.device}, {r.backend}"
        if not math.isnan(value):
            better = min if figure == "exec_time_ms" else max
            best[name] = better(best.get(name, value), value)
    if not best:
        raise UsageError(f"no result has the figure {figure}")
    bars = ax.bar(list(best), list(best.values()))
    ax.bar_label(bars, fmt="%.4g")
    ax.set_ylabel({"bandwidth_gbs": "GB/s", "gflops": "GFLOP/s", "exec_time_ms": "ms"}[figure])
    ax.tick_params(axis="x", rotation=15)
    return ax
