"""Benchmarks from Python.

A class a benchmark of the platform (`GPUCacheBenchmark().run(256, 256, 5)`), greta's store (`BenchmarkDB`), pictures.
The module itself can be called: `greta.bench("op", "linear", m=[1, 8])` is `greta bench op linear --m 1,8` as a frame.
"""

from __future__ import annotations

import sys
import types
from typing import Any

from ._classes import (
    CLASSES,
    GPUCacheBenchmark,
    IncoreBenchmark,
    L2CacheBenchmark,
    L2StreamBenchmark,
    LatencyBenchmark,
    LaunchBenchmark,
    LibraryBenchmark,
    ManagedStreamBenchmark,
    MemcpyBenchmark,
    PeerBenchmark,
    PlatformBenchmark,
    RooflineBenchmark,
    SmallKernelsBenchmark,
    StreamBenchmark,
    StridesBenchmark,
    VecAddBenchmark,
    devices,
)
from ._db import BenchmarkDB, default_store
from ._plot import plot_bandwidth, plot_comparison, plot_latency, plot_roofline
from ._result import BenchmarkResult, Results
from ._run import bench, rows

__all__ = [
    "CLASSES",
    "BenchmarkDB",
    "BenchmarkResult",
    "GPUCacheBenchmark",
    "IncoreBenchmark",
    "L2CacheBenchmark",
    "L2StreamBenchmark",
    "LatencyBenchmark",
    "LaunchBenchmark",
    "LibraryBenchmark",
    "ManagedStreamBenchmark",
    "MemcpyBenchmark",
    "PeerBenchmark",
    "PlatformBenchmark",
    "Results",
    "RooflineBenchmark",
    "SmallKernelsBenchmark",
    "StreamBenchmark",
    "StridesBenchmark",
    "VecAddBenchmark",
    "bench",
    "default_store",
    "devices",
    "plot_bandwidth",
    "plot_comparison",
    "plot_latency",
    "plot_roofline",
    "rows",
]


class _Callable(types.ModuleType):
    def __call__(self, kind: str, *names: str, **options: Any) -> Any:
        return bench(kind, *names, **options)


_Callable.__call__.__doc__ = bench.__doc__
sys.modules[__name__].__class__ = _Callable
