"""What an RMSNorm adds under its root where the module names no number: that of the type which it computes in."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@functools.lru_cache(None)
def of_type(dtype: torch.dtype) -> float:
    """The number for activations of a type, as this PyTorch has it: of 16-bit ones either theirs or float32's."""
    x = torch.full((2,), 2.0**-30 if dtype == torch.float64 else 2.0**-14, dtype=dtype)
    y = torch.nn.functional.rms_norm(x, (2,))
    seen = float(x[0] / y[0]) ** 2 - float(x[0]) ** 2
    both = torch.finfo(dtype).eps, torch.finfo(torch.float32).eps
    return min(both, key=lambda e: abs(math.log(e / max(seen, 1e-30))))


class AsTraced(TorchFunctionMode):
    """Runs a module whose copy has another type with the numbers that the traced one has, norm by norm."""

    def __init__(self, program: Any):
        super().__init__()
        graphs = [m.graph for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
        calls = [n for g in graphs for n in g.nodes if n.target == torch.ops.aten.rms_norm.default]
        types = [n.args[0].meta["val"].dtype for n in calls if (n.args[3] if len(n.args) > 3 else None) is None]
        self.eps = [of_type(t) for t in types]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        norms = (torch.rms_norm, torch.nn.functional.rms_norm)
        if func in norms and self.eps and (args[3] if len(args) > 3 else kwargs.get("eps")) is None:
            eps = self.eps.pop(0) if len(self.eps) > 1 else self.eps[0]
            args, kwargs = args[:3], {**kwargs, "eps": eps}
        return func(*args, **kwargs)
