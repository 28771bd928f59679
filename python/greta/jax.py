"""greta and JAX: a block or model of greta's within a function of JAX's."""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import greta

from ._errors import UnsupportedError, UsageError

_loaded: dict[tuple[Any, ...], greta.Model] = {}


def call(model: str | os.PathLike[str] | greta.Model, x: Any, **options: Any) -> Any:
    """What a block or model of greta's computes of ``x``, also under ``jit`` and ``vmap`` (``jax.pure_callback``).

    ``model`` is what ``greta.load`` gave, or a path, loaded once with ``options`` of ``greta.load``. Of a block ``x``
    is ``[..., S, D]`` and the result ``[..., S, E]`` of the type of ``x``; of a model ``x`` are token ids ``[...,
    S]`` and the result is logits ``[..., S, V]`` of float32. Each sequence begins at position 0. It has no gradient.
    On a GPU JAX copies ``x`` to the host and the result back.

    Raises UsageError for other shapes and types.
    """
    if isinstance(model, greta.Model):
        if options:
            raise UsageError("options are for loading a model; this one is loaded")
        loaded = model
    else:
        key = (os.fspath(model), *sorted((k, repr(v)) for k, v in options.items()))
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
    if jnp.iscomplexobj(x):
        raise UnsupportedError("complex numbers")
    shape = (*x.shape[:-1], loaded.info.output) if block else (*x.shape, loaded.info.vocabulary)
    result = jax.ShapeDtypeStruct(shape, x.dtype if block else jnp.float32)

    def host(x: Any) -> Any:
        a = np.asarray(x)
        if not block:
            rows = [np.asarray(loaded.logits(r.tolist())) for r in a.reshape(-1, a.shape[-1])]
        else:
            rows = [np.asarray(loaded(np.ascontiguousarray(r, np.float32))) for r in a.reshape(-1, *a.shape[-2:])]
        y = rows[0] if len(rows) == 1 else np.stack(rows) if rows else np.empty(shape)
        return y.reshape(*a.shape[: a.ndim - (2 if block else 1)], *y.shape[-2:]).astype(result.dtype, copy=False)

    return jax.pure_callback(host, result, x, vmap_method="expand_dims")
