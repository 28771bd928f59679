"""A graph of greta's as an operator of PyTorch."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch

import greta

from .._arguments import wrong
from .._errors import UnsupportedError, UsageError

_numbers = itertools.count(1)


def empty(*shape: int | Sequence[int]) -> torch.Tensor:
    """A tensor of float32 on the CPU in memory that greta reads where it lies, zero at first.

    ``empty(2, 3)`` or ``empty((2, 3))``. What is written into it reaches greta without a copy. Raises UnsupportedError
    elsewhere than on Linux.
    """
    sizes: Any = shape[0] if len(shape) == 1 else shape
    return torch.from_dlpack(greta.empty(sizes))


class Operator(Protocol):
    """What ``op`` gives: a ``torch.library.CustomOpDef`` of one tensor."""

    model: greta.Model

    def __call__(self, x: torch.Tensor, /) -> torch.Tensor: ...


def op(model: "str | os.PathLike[str] | greta.Model", *, name: str | None = None, **options: Any) -> Operator:
    """An operator of PyTorch (``torch.library.custom_op``) that computes a block or model of greta's.

    ``model`` is a model file, weights, or what ``greta.load`` gave; ``options`` are those of ``greta.load``, such as
    ``weights`` or ``context``. Of a block the operator takes activations ``[..., S, D]`` and gives ``[..., S, E]``;
    of a model it takes token ids ``[..., S]`` and gives logits ``[..., S, V]`` of float32. Each sequence begins at
    position 0; S is at most the context. The result has the type of the activations, greta computes in float32.

    It has a fake kernel, so that ``torch.compile`` and ``torch.export`` take it. On the CPU tensors of ``empty`` go in
    without a copy, results of 128 KiB and more come without one. Activations in memory of the GPU that a block runs on
    (``backend="hip"``) stay there, and so does the result. Tensors of other devices raise UnsupportedError, a gradient
    RuntimeError. ``name`` is the operator's in ``torch.ops.greta``; ``.model`` of the result is the model.
    """
    loaded = model if isinstance(model, greta.Model) else greta.load(model, **options)
    if isinstance(model, greta.Model) and options:
        raise UsageError("options are for loading a model; this one is loaded")
    block = loaded.info.kind == "block"
    width = loaded.info.output if block else loaded.info.vocabulary
    if name is None:
        name = f"{re.sub(r'[^0-9a-zA-Z_]', '_', loaded.info.name)}_{next(_numbers)}"
    if not isinstance(name, str) or not name.isidentifier():
        raise UsageError(f"name={name!r}: letters, digits and _ make an operator's name")
    if hasattr(torch.ops.greta, name):
        raise UsageError(f"torch.ops.greta.{name} is there already: give the operator another name")

    def compute(x: torch.Tensor) -> torch.Tensor:
        refuse(loaded, block, x)
        if not x.numel():
            return x.new_empty(shape_of(x), dtype=dtype_of(x))
        inner = x.shape[:-2] if block else x.shape[:-1]
        flat = x.detach().reshape(-1, *x.shape[len(inner) :])
        if x.device.type != "cpu":
            return on_device(x, flat)
        if block:
            results = [tensor(loaded(s.to(torch.float32).contiguous().numpy())) for s in flat]
        else:
            results = [tensor(loaded.logits(s.tolist())) for s in flat]
        y = results[0] if len(results) == 1 else torch.stack(results)
        return y.reshape(*inner, *results[0].shape).to(dtype_of(x))

    def on_device(x: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
        if not block or loaded.info.backend != "hip":
            what = "token ids" if not block else f"{loaded.info.name} on the backend {loaded.info.backend}"
            raise UnsupportedError(
                f"the tensor lies on {x.device}: on a GPU greta takes a block's activations, with backend=\"hip\" on "
                f"that card, not {what}: call it with x.cpu()"
            )
        y = torch.empty((len(flat), flat.shape[1], width), device=x.device, dtype=torch.float32)
        for rows, out in zip(flat.to(torch.float32).contiguous(), y):
            loaded(rows, out=out)
        return y.reshape(shape_of(x)).to(dtype_of(x))

    def dtype_of(x: torch.Tensor) -> torch.dtype:
        return x.dtype if block else torch.float32

    def shape_of(x: torch.Tensor) -> tuple[Any, ...]:
        return (*x.shape[:-1], width) if block else (*x.shape, width)

    made = torch.library.custom_op(f"greta::{name}", compute, mutates_args=(), schema="(Tensor x) -> Tensor")

    @made.register_fake
    def fake(x: torch.Tensor) -> torch.Tensor:
        refuse(loaded, block, x)
        return x.new_empty(shape_of(x), dtype=dtype_of(x))

    def backward(*_: Any) -> Any:
        raise RuntimeError(f"torch.ops.greta.{name} has no gradient: greta computes forward only")

    made.register_autograd(backward)
    made.model = loaded
    return cast(Operator, made)


def tensor(array: Any) -> torch.Tensor:
    """A tensor of an array's memory; a small result, which came through the pipe, is copied out of its message."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def refuse(model: "greta.Model", block: bool, x: torch.Tensor) -> None:
    """Raises UsageError for what the model cannot take."""
    if not isinstance(x, torch.Tensor):
        raise wrong("x", x, "a tensor of PyTorch")
    least = 2 if block else 1
    if x.dim() < least or block and x.shape[-1] != model.info.width:
        want = f"[..., S, {model.info.width}]" if block else "[..., S]"
        raise UsageError(f"a tensor of shape {list(x.shape)}: {model.info.name} takes {want}")
    if block != x.is_floating_point() or x.dtype == torch.bool or x.is_complex():
        raise UsageError(
            f"a tensor of {x.dtype}: {model.info.name} takes {'activations, floats' if block else 'token ids'}"
        )
