"""Benchmarks: classes, store, comparisons, gate, pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import greta
from greta.bench import (
    CLASSES,
    BenchmarkDB,
    BenchmarkResult,
    GPUCacheBenchmark,
    IncoreBenchmark,
    L2CacheBenchmark,
    LatencyBenchmark,
    LaunchBenchmark,
    Results,
    RooflineBenchmark,
    SmallKernelsBenchmark,
    StreamBenchmark,
    VecAddBenchmark,
    plot_bandwidth,
    plot_comparison,
    plot_latency,
    plot_roofline,
)


@pytest.fixture(scope="module")
def cache(process: greta.Process) -> BenchmarkResult:
    return GPUCacheBenchmark(backend="cpu", process=process).run(256, 256, 5)


def test_cache(cache: BenchmarkResult) -> None:
    assert cache and cache.verdict == "ok" and cache.raise_for_verdict() is cache
    assert cache.benchmark == "platform/cache" and cache.params["bytes"] == "8192" and cache.data_size_kb == 8
    assert cache.exec_time_ms > 0 and cache.bandwidth_gbs > 0.1 and cache.n >= 5 and cache.spread >= 0
    assert cache.spread_percent == 100 * cache.spread
    assert math.isnan(cache.share_of_roof) or 0 < cache.share_of_roof < 1.05
    assert cache.backend == "cpu" and cache.device


def test_numpy(process: greta.Process) -> None:
    """Sizes may be NumPy's: single ones, and arrays as sweeps have them."""
    np = pytest.importorskip("numpy")
    bench = GPUCacheBenchmark(backend="cpu", process=process)
    assert bench.run(np.int64(256), np.int32(256), np.int64(2)).data_size_kb == 8
    sizes = [r.data_size_kb for r in bench.run_sweep(2 ** np.arange(6, 8), iterations=np.int64(2))]
    assert sizes == [2, 4]
    rows = greta.bench.rows(
        "op", "silu", m=np.array([1, 2]), n=64, cache="warm", min_time="1ms", no_store=True, process=process
    )
    assert len(rows) == 2


def test_another_folder(process: greta.Process, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Files of a bench are those of Python's folder, also where it was changed behind the start of greta's process."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(
        "block: mine\nin:\n  x: float[S, 64]\nweights:\n  w: {shape: [64, 64]}\nbody:\n  y: linear(x, w)\nout: y\n"
    )
    quick: dict[str, Any] = {"min_time": "1ms", "repetitions": 2, "backend": "cpu", "process": process}
    rows = greta.bench.rows("op", model="mine.yaml", store="ops.sqlite", **quick)
    assert {r["bench"] for r in rows} == {"op/linear"} and Path("ops.sqlite").exists()
    assert greta.bench.rows("model", "mine.yaml", prompt=4, gen=2, no_store=True, **quick)
    with pytest.raises(greta.UsageError, match="no-model.yaml"):
        greta.bench.rows("op", model="no-model.yaml", no_store=True, **quick)
    db = BenchmarkDB("mine.sqlite", process=process)
    assert db.save_result(GPUCacheBenchmark(backend="cpu", process=process, store="own.sqlite").run(256, 256, 2)) > 0
    assert Path("mine.sqlite").exists() and Path("own.sqlite").exists()


def test_each(process: greta.Process) -> None:
    """Every class measures on the processor, or says why there is nothing to measure."""
    cpu: dict[str, Any] = {"backend": "cpu", "process": process}
    for r in (
        LatencyBenchmark(**cpu).run(16384, 2),
        StreamBenchmark(**cpu).run(4096, iterations=2, kernel="copy"),
        RooflineBenchmark(**cpu).run(4, n=65536, iterations=2),
        IncoreBenchmark(**cpu).run(2, iterations=2, operation="div"),
        LaunchBenchmark(**cpu).run(2),
        SmallKernelsBenchmark(**cpu).run(1024, 2),
        VecAddBenchmark(**cpu).run(1024, 2),
    ):
        assert r, (r.benchmark, r.verdict, r.reason)
        assert r.exec_time_ms > 0
    there = {c.name for c in CLASSES.values() if not c.gpu_only}
    assert len(CLASSES) == 15 and there == {
        "cache", "latency", "stream", "roofline", "incore", "launch", "small-kernels", "vec_add"
    }  # fmt: skip
    listed = process.call("command", {"args": ["bench", "platform", "--list", "--output=json"]})[0]["text"]
    assert set(CLASSES) == {b["benchmark"] for b in json.loads(listed)}
    r = L2CacheBenchmark(**cpu).run()
    assert not r and r.verdict == "skipped" and "second level" in r.reason and math.isnan(r.exec_time_ms)
    with pytest.raises(greta.UnsupportedError, match="second level"):
        r.raise_for_verdict()


def test_wrong(process: greta.Process, monkeypatch: pytest.MonkeyPatch) -> None:
    b = GPUCacheBenchmark(backend="cpu", process=process)
    for words, args in [("N is 0", (0,)), ("N is 'a'", ("a",)), ("iterations is 0", (1, 1, 0))]:
        with pytest.raises(greta.UsageError, match=words):
            b.run(*args)  # type: ignore[arg-type]
    with pytest.raises(greta.UsageError, match="'nope' is no kind of bench"):
        greta.bench.rows("nope")
    with pytest.raises(greta.UsageError, match="no parameter"):
        b.measure(1, elephants=3)
    with pytest.raises(greta.UsageError, match="there are"):
        StreamBenchmark(backend="cpu", process=process).run(1024, iterations=1, kernel="fly")
    monkeypatch.delenv("GRETA_BACKEND", raising=False)
    monkeypatch.setattr("greta.bench._classes.devices", lambda _: [])
    with pytest.raises(greta.DeviceError, match='GPUCacheBenchmark.backend="cpu"'):
        GPUCacheBenchmark(process=process)
    monkeypatch.setenv("GRETA_BACKEND", "cpu")
    assert GPUCacheBenchmark(process=process).backend == "cpu"


def test_store(cache: BenchmarkResult, process: greta.Process, tmp_path: Path) -> None:
    db = BenchmarkDB(tmp_path / "results.sqlite", process=process)
    file = tmp_path / "results.sqlite"
    for read in (
        db.stats,
        db.results,
        db.get_results,
        db.gate,
        lambda: db.compare("last~1", "last"),
        lambda: db.export_csv(tmp_path / "a.csv"),
        lambda: db.export_json(tmp_path / "a.json"),
    ):  # what does not exist is no store without results
        with pytest.raises(greta.UsageError, match=f"there is no store {file}: save_result makes it"):
            read()
    assert not list(tmp_path.iterdir())
    assert db.save_result("cache", cache) == 1
    assert db.save_result(cache) == 0  # it is there
    again = GPUCacheBenchmark(backend="cpu", process=process).run(64, iterations=3)
    assert db.save_result(Results([again])) == 1
    with pytest.raises(greta.UsageError, match="platform/cache, not of stream"):
        db.save_result("stream", cache)
    with pytest.raises(greta.UsageError, match="BenchmarkResult is expected"):
        db.save_result([1])  # type: ignore[list-item]
    kept = db.results(benchmark="cache")
    assert [r.run for r in kept] == [cache.run, again.run] and repr(kept[0]) == repr(cache)  # nan is not nan
    frame = db.get_results(gpu=cache.device[:5].lower(), benchmark="cache")
    assert list(frame["bytes"]) == [8192, 2048] and list(frame["verdict"]) == ["ok", "ok"]
    assert frame["bandwidth_gbs"].iloc[0] == cache.bandwidth_gbs
    none = db.get_results(gpu="MI325X", benchmark="cache")
    assert len(none) == 0 and set(none.columns) >= {"benchmark", "bandwidth_gbs", "verdict", "samples"}
    assert len(db.results(benchmark="stream")) == 0 and len(db.results(backend="hip")) == 0
    assert len(db.results(until="2020-01-01")) == 0 and len(db.results(since="1d")) == 2
    with pytest.raises(greta.UsageError):
        db.results(since="the day before")
    with pytest.raises(greta.UsageError, match="verdict is 'good': ok, failed, refused, skipped or None"):
        db.results(verdict="good")
    with pytest.raises(greta.ArgumentTypeError, match="gpu is 5"):
        db.results(gpu=5)  # type: ignore[arg-type]
    (tmp_path / "text").write_text("no store")
    with pytest.raises(greta.UsageError, match="no store of greta's"):
        BenchmarkDB(tmp_path / "text", process=process).stats()
    s = db.stats()
    assert (s["runs"], s["results"], s["benchmarks"]) == (2, 2, ["platform/cache"])

    assert db.export_csv(tmp_path / "a.csv", benchmark="cache") == 2
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert len(lines) == 3 and "bandwidth_gbs" in lines[0]
    assert db.export_json(tmp_path / "a.json") == 2
    for export in (db.export_csv, db.export_json):
        with pytest.raises(greta.UsageError, match="path is '.*a', which cannot be written: there is no folder .*gone"):
            export(tmp_path / "gone" / "a")
        with pytest.raises(greta.UsageError, match="cannot be written: it is a folder"):
            export(tmp_path)
        with pytest.raises(greta.UsageError, match=r"there is no folder .*a\.csv, but a file"):
            export(tmp_path / "a.csv" / "b")
    other = BenchmarkDB(tmp_path / "other.sqlite", process=process)
    process.call("command", {"args": ["import", str(tmp_path / "a.json"), f"--store={other.path}"]})
    assert [r.run for r in other.results()] == [cache.run, again.run]


def made(cache: BenchmarkResult, run: str, times: float, commit: str, day: int, device: str = "") -> BenchmarkResult:
    """A result like one that was measured, but slower by a factor, and of another run."""
    bundle = json.loads(json.dumps(cache.bundle))
    one = bundle["runs"][0]
    one["id"] = one["id"][:-8] + run
    one["started"] = f"2026-01-{day:02}T00:00:00Z"
    one["ended"] = f"2026-01-{day:02}T00:01:00Z"
    one["env"]["commit"], one["env"]["kernels"] = commit, commit
    if device:
        one["env"]["device"] = device
    for r in one["results"]:
        r["samples"] = [1e-3 * times * (1 + 0.001 * i) for i in range(20)]
        r["bytes"] = 1e6
        r.pop("host", None)
        r["metrics"] = {}
    (result,) = greta.bench._result.from_bundle(bundle)  # type: ignore[attr-defined]
    assert isinstance(result, BenchmarkResult)
    return result


def test_gate_and_comparison(cache: BenchmarkResult, process: greta.Process, tmp_path: Path) -> None:
    db = BenchmarkDB(tmp_path / "results.sqlite", process=process)
    runs = [made(cache, f"0000000{i}", 1 + 0.002 * i, "aaaa", i + 1) for i in range(3)]
    runs.append(made(cache, "00000007", 1.001, "bbbb", 7))
    assert db.save_result(runs) == 4
    assert len(db.gate(benchmark="cache")) == 1
    db.save_result(made(cache, "00000008", 2.0, "cccc", 8))
    with pytest.raises(greta.GateError, match="slower") as failed:
        db.gate()
    (row,) = failed.value.rows  # type: ignore[attr-defined]
    assert row["outcome"] == "slower" and 1.9 < row["ratio"] < 2.1
    frame = db.compare("last~1", "last")
    assert len(frame) == 1 and 1.9 < frame["ratio"].iloc[0] < 2.1 and frame["outcome"].iloc[0] == "slower"
    with pytest.raises(greta.UsageError, match="A .* has no benchmark that matches --bench platform/stream"):
        db.compare("last~1", "last", benchmark="stream")
    db.save_result(made(cache, "00000009", 0.5, "cccc", 9, device="MI325X"))
    cards = db.results(gpu="MI325X", benchmark="cache")
    assert len(cards) == 1 and cards[0].device == "MI325X"
    ax = plot_comparison(db.results())
    assert len(ax.patches) == 2
    heights = [p.get_height() for p in ax.patches]  # type: ignore[attr-defined]
    assert max(heights) == pytest.approx(cards[0].bandwidth_gbs)


def test_serve(process: greta.Process) -> None:
    """A load of a server is a row."""
    model = str(Path(__file__).resolve().parents[2] / "testdata" / "tolstoy-2.7m")
    given: dict[str, Any] = {"users": [1, 2], "requests": 4, "input": 16, "output": 8, "process": process}
    frame = greta.bench("serve", model, **given)
    assert list(frame["users"]) == [1, 2] and list(frame["output_tokens"]) == [32, 32] and all(frame["ttft_ms_p50"] > 0)
    assert greta.bench.rows("serve", model, **given)[0]["ttft_ms"]["n"] == 4
    with pytest.raises(greta.UsageError, match="--output long: a whole number"):
        greta.bench.rows("serve", model, output="long", process=process)


def drawn(ax: Any) -> Any:
    """What an axes shows."""
    return [line.get_xydata().tolist() for line in ax.lines], ax.get_legend_handles_labels()[1]


def test_pictures(cache: BenchmarkResult, process: greta.Process, tmp_path: Path) -> None:
    import matplotlib
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    matplotlib.use("Agg")
    b = GPUCacheBenchmark(backend="cpu", process=process)
    sweep = b.run_sweep((16, 64, 256), iterations=3)
    assert [r.params["bytes"] for r in sweep] == ["512", "2048", "8192"] and all(sweep)
    ax = plot_bandwidth(sweep)
    x = ax.lines[0].get_xdata()
    assert list(x) == [512, 2048, 8192]  # type: ignore[arg-type]
    latency = LatencyBenchmark(backend="cpu", process=process).measure(2, bytes=[16384, 65536])
    latency = latency.of("latency")
    plot_latency(latency, cycles=True)
    roofline = RooflineBenchmark(backend="cpu", process=process).measure(2, steps=[1, 8], n=65536)
    ax = plot_roofline(roofline)
    assert ax.get_xscale() == "log" and len(ax.lines) >= 2
    assert isinstance(ax.figure, Figure)
    ax.figure.savefig(tmp_path / "roofline.png")
    assert (tmp_path / "roofline.png").stat().st_size > 5000
    for draw in (plot_bandwidth, plot_latency, plot_roofline, plot_comparison):
        with pytest.raises(greta.UsageError, match="no result"):
            draw(Results())
        bad: Any
        for bad, words in [(None, "results is None"), (["a"], "results has 'a' in it: BenchmarkResults")]:
            with pytest.raises(greta.ArgumentTypeError, match=words):
                draw(bad)
        with pytest.raises(greta.UsageError, match="the frame has no column verdict"):
            draw(sweep.frame().drop(columns="verdict"))
    plt.close("all")
    for draw, results in [(plot_bandwidth, sweep), (plot_latency, latency), (plot_comparison, sweep)]:  # frames too
        assert drawn(draw(results)) == drawn(draw(results.frame()))
    assert plot_latency(latency.frame(), cycles=True).lines
    one = plot_bandwidth(sweep[0])
    assert len(one.lines[0].get_xdata()) == 1  # type: ignore[arg-type]
    with pytest.raises(greta.UsageError, match="peak_gbs is -1"):
        plot_roofline(roofline, peak_gbs=-1)
