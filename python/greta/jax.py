"""greta and JAX: a block or model of greta's within a function of JAX's."""

from __future__ import annotations

import _thread
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import greta

from . import _arguments, _ffi
from ._device import DeviceTensor
from ._errors import UnsupportedError, UsageError

_loaded: dict[tuple[Any, ...], greta.Model] = {}


def call(model: str | os.PathLike[str] | greta.Model, x: Any, **options: Any) -> Any:
    """What a block or model of greta's computes of ``x``, also under ``jit`` and ``vmap``.

    ``model`` is what ``greta.load`` gave, or a path, loaded once with ``options`` of ``greta.load``. Of a block ``x``
    is ``[..., S, D]`` and the result ``[..., S, E]`` of the type of ``x``; of a model ``x`` are token ids ``[...,
    S]`` and the result is logits ``[..., S, V]`` of float32. Each sequence begins at position 0. It has no gradient:
    ``jax.lax.stop_gradient(x)`` makes the result a constant. On a GPU a block of ``backend="hip"`` stays there;
    otherwise JAX copies ``x`` to the host and the result back.

    Raises UsageError for other shapes and types, UnsupportedError where it is to be differentiated by ``x``.
    """
    if isinstance(model, greta.Model):
        if options:
            raise UsageError("options are for loading a model; this one is loaded")
        loaded = model
    else:
        key = (_arguments.path("model", model, "a model, or a path,"), *sorted((k, repr(v)) for k, v in options.items()))
        loaded = _loaded.get(key) or _loaded.setdefault(key, greta.load(model, **options))
    x = jnp.asarray(x)
    block = loaded.info.kind == "block"
    floats = jnp.issubdtype(x.dtype, jnp.floating)
    if block != bool(floats):
        raise UsageError(
            f"an array of {x.dtype}: {loaded.info.name} takes {'activations, floats' if block else 'token ids'}"
        )
    if x.ndim < (2 if block else 1) or block and x.shape[-1] != loaded.info.width:
        want = f"[..., S, {loaded.info.width}]" if block else "[..., S]"
        raise UsageError(f"an array of shape {list(x.shape)}: {loaded.info.name} takes {want}")
    if x.shape[-2 if block else -1] > loaded.info.context:
        raise UsageError(
            f"an array of shape {list(x.shape)}: {loaded.info.name} has a context of {loaded.info.context}; load it with "
            "a larger one"
        )
    if jnp.iscomplexobj(x):
        raise UnsupportedError("complex numbers")
    shape = (*x.shape[:-1], loaded.info.output) if block else (*x.shape, loaded.info.vocabulary)
    if not x.size or not all(shape):
        return jnp.zeros(shape, x.dtype if block else jnp.float32)
    if block:
        given = x.astype(jnp.float32)
    else:  # what is no id stays none
        info = jnp.iinfo(x.dtype)
        given = jnp.clip(x, max(-1, info.min), min(2**31 - 1, info.max)).astype(jnp.int32)
    y = _called(loaded, given, jax.ShapeDtypeStruct(shape, jnp.float32))
    return y.astype(x.dtype) if block else y


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 2))
def _called(model: greta.Model, x: Any, result: jax.ShapeDtypeStruct) -> Any:
    def foreign(x: Any) -> Any:
        call = jax.ffi.ffi_call(_NAME, result, vmap_method="expand_dims")
        return call(x, model=np.int64(_number(model)))

    def callback(x: Any) -> Any:
        def host(a: Any) -> Any:
            # vmap has put sizes in front, of the result as of the argument
            y = np.empty((*np.shape(a)[: np.ndim(a) - x.ndim], *result.shape), np.float32)
            _on_host(model, np.asarray(a), y)
            return y

        return jax.pure_callback(host, result, x, vmap_method="expand_dims")

    on_card = model.info.kind == "block" and model.info.backend == "hip"
    ways = dict.fromkeys(_registered(), foreign) if on_card else {}
    return jax.lax.platform_dependent(x, **ways, default=callback) if ways else callback(x)


@_called.defjvp
def _no_gradient(model: greta.Model, result: Any, primals: Any, tangents: Any) -> Any:
    raise UnsupportedError(
        f"greta.jax.call of {model.info.name} cannot be differentiated by x: greta computes its values alone, forwards. "
        "jax.lax.stop_gradient(x) as its argument makes the result a constant"
    )


_NAME = "greta"
_PLATFORMS = {"cuda": "CUDA", "rocm": "ROCM"}  # as JAX's functions and XLA's registry call them
_numbers: dict[greta.Model, int] = {}  # what a compiled program has of a model


@functools.cache
def _registered() -> frozenset[str]:
    """The GPUs whose compiled programs call greta by XLA's foreign function interface; elsewhere JAX calls back."""
    if not hasattr(jax, "ffi"):
        return frozenset()
    done = set()
    for name, theirs in _PLATFORMS.items():
        try:
            jax.ffi.register_ffi_target(_NAME, jax.ffi.pycapsule(_ffi.handlers[theirs]), platform=theirs)
            done.add(name)
        except Exception:  # it cannot call what has this version
            pass
    return frozenset(done)


def _number(model: greta.Model) -> int:
    if model not in _numbers:
        _numbers[model] = _ffi.add(functools.partial(_run, model))
    return _numbers[model]


def _run(model: greta.Model, kind: str, stream: int, x: _ffi.Place, y: _ffi.Place) -> None:
    """What a compiled program calls: _ffi.Target."""
    failed: list[BaseException] = []
    ended = threading.Event()

    def work() -> None:
        rows, sequences = x.shape[-2], 1
        for n in x.shape[:-2]:
            sequences *= n
        try:
            for i in range(sequences):
                tensors: list[DeviceTensor] = []
                for p in (x, y):
                    at = p.address + 4 * i * rows * p.shape[-1]
                    shape = [rows, p.shape[-1]]
                    tensors.append(DeviceTensor.at(kind, at, shape, stream, model._lender, *tensors))
                model._fresh()._held(tensors[0], tensors[1], {"reset": True})
        except BaseException as e:
            failed.append(e)
        finally:
            ended.set()

    # In a thread that no interrupt reaches: behind this the buffers are XLA's again, and greta must not use them.
    begun = False
    while not ended.is_set():
        try:
            if not begun:
                begun = True
                _thread.start_new_thread(work, ())
            ended.wait()
        except KeyboardInterrupt as e:
            failed.append(e)
    if failed:
        raise failed[-1]


def _on_host(model: greta.Model, x: Any, y: Any) -> None:
    """Computes y of x, both in the host's memory."""
    compute: Callable[[Any], Any]
    if model.info.kind == "block":
        x = x.reshape(-1, *x.shape[-2:])
        compute = lambda rows: model(np.ascontiguousarray(rows))  # noqa: E731
    else:
        x = x.reshape(-1, x.shape[-1])
        compute = lambda ids: model.logits(ids.tolist())  # noqa: E731
    for sequence, out in zip(x, y.reshape(-1, *y.shape[-2:])):
        out[...] = compute(sequence)
