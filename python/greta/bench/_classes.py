"""A class a benchmark of the platform, as `greta bench platform` has them. docs/platform.md says what each measures."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from typing import Any

from .._arguments import path, positive, text, whole, wrong
from .._errors import DeviceError, GretaError, UsageError
from .._process import Process, default_process
from ._result import BenchmarkResult, Results, from_bundle
from ._run import flags


def devices(process: Process | None = None) -> list[dict[str, Any]]:
    """The devices that greta sees, as `greta devices --json` writes them."""
    p = process or default_process()
    found: list[dict[str, Any]] = json.loads(p.call("command", {"args": ["devices", "--json"]})[0]["text"])
    return found


class PlatformBenchmark:
    """A benchmark of the platform on one device. Subclasses have `run`, with the parameters of one figure."""

    name = ""  #: as greta bench platform calls it
    gpu_only = True  #: the processor has none

    def __init__(
        self,
        backend: str | None = None,
        device: str | int | None = None,
        *,
        store: str | os.PathLike[str] | None = None,
        min_time: str = "0s",
        process: Process | None = None,
    ) -> None:
        """backend: cpu, vulkan, hip; None: what GRETA_BACKEND says, else the best GPU. device: which of its devices.

        store: a file where runs are kept as they are measured; None: BenchmarkDB.save_result keeps what should be.
        min_time: how long a figure is sampled for at least. Raises DeviceError where there is no GPU.
        """
        self._process = process
        if backend is not None:
            text("backend", backend)
        self.device = device if device is None or isinstance(device, str) else str(whole("device", device, 0))
        self._store = None if store is None else os.path.abspath(path("store", store))
        self._min_time = text("min_time", min_time, "a time such as 500ms")
        self.backend = backend or os.environ.get("GRETA_BACKEND") or self._gpu()

    def _gpu(self) -> str:
        found = devices(self._process)
        for backend in ("hip", "vulkan"):
            if any(d["backend"] == backend and d.get("name") and d.get("kind") != "software" for d in found):
                return backend
        me = type(self).__name__
        cpu = "" if self.gpu_only else f'; {me}(backend="cpu") measures the processor'
        raise DeviceError(f"{me}: greta sees no GPU (greta doctor says what is missing){cpu}")

    def measure(self, iterations: int = 10, **params: object) -> Results:
        """Measures every figure at these parameters, sizes or lists of them as --set takes them; gives all results."""
        iterations = positive("iterations", iterations)
        p = self._process or default_process()
        sets = {f"{self.name}.{k}": v for k, v in params.items() if v is not None}
        with tempfile.TemporaryDirectory(prefix="greta-bench") as folder:
            store = self._store or os.path.join(folder, "bench.sqlite")
            options: dict[str, Any] = {
                "backend": self.backend,
                "device": self.device,
                "set": sets,
                "repetitions": iterations,
                "min_time": self._min_time,
                "store": store,
            }
            args = ["platform", self.name, *flags(options)]
            failed: GretaError | None = None
            rows: list[dict[str, Any]] = []
            try:
                rows = p.call("bench", {"args": args})[0]["rows"]
            except GretaError as e:
                # A run with results that are not ok ends with an error: the results say it themselves.
                parts = getattr(e, "parts", [])
                rows, failed = (parts[0]["rows"] if parts else []), e
            if not rows:
                raise failed or GretaError(f"{self.name} gave no result")
            text, _ = p.call("command", {"args": ["export", "json", f"--store={store}", f"--run={rows[0]['run']}"]})
            return from_bundle(json.loads(text["text"]))

    def sweep(self, iterations: int = 10, **params: object) -> Results:
        """Measures all sizes that greta bench platform has where nothing is named."""
        return self.measure(iterations, **params).of(self.name)

    def _one(self, results: Results, kind: str = "", **params: str) -> BenchmarkResult:
        found = [
            r
            for r in results.of(self.name)
            if (not kind or r.benchmark == f"platform/{self.name}/{kind}")
            and all(r.params.get(k, v) == v for k, v in params.items())
        ]
        if found:
            return found[0]
        skipped = [r for r in results.of(self.name) if r.verdict == "skipped"]
        if skipped:
            return skipped[0]
        there = sorted({r.benchmark.removeprefix(f"platform/{self.name}/") for r in results.of(self.name)})
        raise UsageError(
            f"{self.name} has no figure {kind} {params or ''} on {self.backend}; there are {', '.join(there)}"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.backend}{f' {self.device}' if self.device else ''}>"


#: The N that a sweep of the caches goes through: 1 to 16384.
SWEEP = tuple(1 << k for k in range(15))


class GPUCacheBenchmark(PlatformBenchmark):
    """One block on every multiprocessor (on the processor one core) reads one buffer again and again."""

    name, gpu_only = "cache", False

    def run(self, N: int = 256, block_size: int = 256, iterations: int = 15) -> BenchmarkResult:
        """Reads two arrays of N elements of 16 bytes, 32·N bytes in all, by blocks of block_size threads.

        On a GPU the size is rounded to whole rounds of a block, 16·block_size bytes: `data_size_kb` says it. On the
        processor, which has no blocks, block_size means nothing.
        """
        block = None if self.backend == "cpu" else positive("block_size", block_size)
        return self._one(self.measure(iterations, bytes=32 * positive("N", N), block=block))

    def run_sweep(self, N: Iterable[int] = SWEEP, block_size: int = 256, iterations: int = 15) -> Results:
        """run over several N."""
        if isinstance(N, (str, bytes)) or not isinstance(N, Iterable):
            raise wrong("N", N, "a list of whole numbers")
        sizes = [32 * positive("N", n) for n in N]
        block = None if self.backend == "cpu" else positive("block_size", block_size)
        return self.measure(iterations, bytes=sizes, block=block).of(self.name)


class LatencyBenchmark(PlatformBenchmark):
    """A pointer chase along one random cycle: exec_time_ms is one load's, metrics["cycles"] its cycles."""

    name, gpu_only = "latency", False

    def run(self, bytes: int = 1 << 20, iterations: int = 10) -> BenchmarkResult:
        """A chase through a buffer of so many bytes."""
        return self._one(self.measure(iterations, bytes=positive("bytes", bytes)))


class L2CacheBenchmark(PlatformBenchmark):
    """Many blocks, block b reads chunk b mod R of half a megabyte."""

    name = "l2-cache"

    def run(self, chunks: int = 16, iterations: int = 10) -> BenchmarkResult:
        """R chunks."""
        return self._one(self.measure(iterations, chunks=positive("chunks", chunks)))


class L2StreamBenchmark(PlatformBenchmark):
    """STREAM's kernels over an index modulo the length: each level's rate with stores."""

    name = "l2-stream"

    def run(
        self, n: int = 1 << 20, threads: int | None = None, iterations: int = 10, kernel: str = "triad"
    ) -> BenchmarkResult:
        """Arrays of n elements of 8 bytes, so many threads of a launch."""
        return self._one(self.measure(iterations, n=positive("n", n), threads=threads), kernel)


class StreamBenchmark(PlatformBenchmark):
    """Bandwidth of memory: read, scale, triad and others (GPU); STREAM's four and a read (processor)."""

    name, gpu_only = "stream", False

    def run(
        self,
        n: int = 1 << 25,
        block_size: int | None = None,
        iterations: int = 10,
        kernel: str = "triad",
        threads: int | None = None,
    ) -> BenchmarkResult:
        """Arrays of n elements of 8 bytes; block_size: threads of a block (GPU); threads: of the processor."""
        return self._one(
            self.measure(
                iterations, n=positive("n", n), block=None if self.backend == "cpu" else block_size, threads=threads
            ),
            kernel,
        )


class MemcpyBenchmark(PlatformBenchmark):
    """Copies between the host's memory and the device's."""

    name = "memcpy"

    def run(self, bytes: int = 8 << 20, iterations: int = 10, kind: str = "") -> BenchmarkResult:
        """A copy of so many bytes; kind: which of the figures, the first where none is named."""
        return self._one(self.measure(iterations, bytes=positive("bytes", bytes)), kind)


class RooflineBenchmark(PlatformBenchmark):
    """Two chains of N multiply-adds for each element: from memory's roof to arithmetic's."""

    name, gpu_only = "roofline", False

    def run(self, steps: int = 64, n: int | None = None, iterations: int = 10) -> BenchmarkResult:
        """Chains of so many multiply-adds over n elements."""
        return self._one(self.measure(iterations, steps=positive("steps", steps, 0), n=n), steps=str(steps))


class IncoreBenchmark(PlatformBenchmark):
    """Dependent multiply-adds, divisions and roots: metrics["cycles_per_op"]."""

    name, gpu_only = "incore", False

    def run(
        self, chains: int = 1, warps: int | None = None, iterations: int = 10, operation: str = "fma", type: str = "f32"
    ) -> BenchmarkResult:
        """Independent chains of a thread (1, 2, 4 or 8), warps of the block (GPU); operation: fma, div, sqrt."""
        return self._one(
            self.measure(
                iterations, chains=positive("chains", chains), warps=None if self.backend == "cpu" else warps
            ),
            operation,
            type=type,
        )


class LaunchBenchmark(PlatformBenchmark):
    """What starting an empty kernel takes (on the processor: a region of the pool)."""

    name, gpu_only = "launch", False

    def run(self, iterations: int = 10, kind: str = "") -> BenchmarkResult:
        """kind: stream, round_trip, event_pair, captured (GPU); region, region_parked (processor); else the first."""
        return self._one(self.measure(iterations), kind)


class SmallKernelsBenchmark(PlatformBenchmark):
    """Scaling between two buffers, from few elements to many."""

    name, gpu_only = "small-kernels", False

    def run(self, n: int = 4096, iterations: int = 10, kind: str = "") -> BenchmarkResult:
        """n elements of 8 bytes; kind: how the kernel is started, the first way where none is named."""
        return self._one(self.measure(iterations, n=positive("n", n)), kind)


class StridesBenchmark(PlatformBenchmark):
    """Strided and blocked loads from shared memory: metrics["cycles"] a load of a warp."""

    name = "strides"

    def run(self, stride: int = 1, rounds: int | None = None, iterations: int = 10, kind: str = "") -> BenchmarkResult:
        """Words of 4 bytes between neighbouring threads, rounds of eight loads."""
        return self._one(self.measure(iterations, stride=positive("stride", stride, 0), rounds=rounds), kind)


class ManagedStreamBenchmark(PlatformBenchmark):
    """Triad over managed memory that lies on the device (HIP)."""

    name = "um-stream"

    def run(self, mib: int = 1024, iterations: int = 10) -> BenchmarkResult:
        """Four arrays of so many MiB together."""
        return self._one(self.measure(iterations, mib=positive("mib", mib)))


class VecAddBenchmark(PlatformBenchmark):
    """c = a + b in float32."""

    name, gpu_only = "vec_add", False

    def run(self, n: int = 1 << 20, iterations: int = 10) -> BenchmarkResult:
        """Vectors of n numbers."""
        return self._one(self.measure(iterations, n=positive("n", n)))


class LibraryBenchmark(PlatformBenchmark):
    """The vendor's own matrix product (HIP)."""

    name = "library"

    def run(self, n: int = 4096, iterations: int = 10, type: str = "f16", kind: str = "") -> BenchmarkResult:
        """Square matrices of n, a multiple of 32; type: f32, f16, bf16, f8e4m3."""
        return self._one(self.measure(iterations, n=positive("n", n)), kind, type=type)


class PeerBenchmark(PlatformBenchmark):
    """Copies between devices: one device alone is skipped, with the reason."""

    name = "peer"

    def run(self, iterations: int = 10, kind: str = "") -> BenchmarkResult:
        """kind: which of the figures, the first where none is named; `measure` gives those of all pairs."""
        return self._one(self.measure(iterations), kind)


#: Every class, by the name that greta bench platform has for its benchmark.
CLASSES: dict[str, type[PlatformBenchmark]] = {
    c.name: c
    for c in (
        GPUCacheBenchmark,
        LatencyBenchmark,
        L2CacheBenchmark,
        L2StreamBenchmark,
        StreamBenchmark,
        MemcpyBenchmark,
        RooflineBenchmark,
        IncoreBenchmark,
        LaunchBenchmark,
        SmallKernelsBenchmark,
        StridesBenchmark,
        ManagedStreamBenchmark,
        VecAddBenchmark,
        LibraryBenchmark,
        PeerBenchmark,
    )
}
