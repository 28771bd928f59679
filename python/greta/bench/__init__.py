"""Benchmarks from Python. The module itself can be called: `greta.bench("op", "linear", m=[1, 8])` gives a frame."""

from __future__ import annotations

import sys
import types
from typing import Any

from ._run import bench, rows

__all__ = ["bench", "rows"]


class _Callable(types.ModuleType):
    def __call__(self, kind: str, *names: str, **options: Any) -> Any:
        return bench(kind, *names, **options)


_Callable.__call__.__doc__ = bench.__doc__
sys.modules[__name__].__class__ = _Callable
