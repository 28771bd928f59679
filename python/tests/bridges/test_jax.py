"""A block of greta's within a function of JAX's."""

from __future__ import annotations

from conftest import needed

jax = needed("jax")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

import greta  # noqa: E402
import greta.jax  # noqa: E402


def test_jit_vmap_and_values(block):
    x = np.random.default_rng(1).standard_normal((3, 5, 64)).astype(np.float32)
    want = np.stack([block(r) for r in x])

    @jax.jit
    def f(x):
        return greta.jax.call(block, x) * 2

    assert np.allclose(f(x), 2 * want, rtol=1e-6)
    assert np.allclose(jax.vmap(lambda r: greta.jax.call(block, r))(x), want, rtol=1e-6)
    assert np.array_equal(greta.jax.call(block, x[0]), want[0])
    assert greta.jax.call(block, x.astype("bfloat16")).dtype == "bfloat16"


def test_path_is_loaded_once():
    x = np.ones((2, 32), np.float32)
    options = {"set": {"D": 32, "F": 48}, "kv": "f32", "context": 8}
    assert np.array_equal(greta.jax.call("mlp_block", x, **options), greta.jax.call("mlp_block", x, **options))
    assert len(greta.jax._loaded) == 1


def test_tokens(model):
    y = jax.jit(lambda t: greta.jax.call(model, t))(np.array([[1, 2, 3], [1, 2, 4]], np.int32))
    assert y.shape == (2, 3, 2048) and np.array_equal(y[0, :2], y[1, :2])


def test_refusals(block):
    with pytest.raises(greta.UsageError, match="takes"):
        greta.jax.call(block, np.ones((2, 3), np.float32))
    with pytest.raises(greta.UsageError, match="activations"):
        greta.jax.call(block, np.ones((2, 64), np.int32))
    with pytest.raises(greta.UsageError, match="is loaded"):
        greta.jax.call(block, np.ones((2, 64), np.float32), context=4)
    with pytest.raises(ValueError, match="JVP"):
        jax.grad(lambda x: greta.jax.call(block, x).sum())(np.ones((2, 64), np.float32))
