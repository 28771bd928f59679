"""A block of greta's within a function of JAX's."""

from __future__ import annotations

import _thread
import ctypes
import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor

from conftest import needed

jax = needed("jax")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

import greta  # noqa: E402
import greta.jax  # noqa: E402
from greta import _ffi  # noqa: E402


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


def test_on_a_card_but_the_program_is_not(block, monkeypatch):
    """A program for the host calls back, whatever device the block is on."""
    monkeypatch.setattr(block, "info", dataclasses.replace(block.info, backend="hip"))
    test_jit_vmap_and_values(block)


def test_odd_inputs(block, model):
    assert greta.jax.call(block, np.ones((2, 0, 64), np.float32)).shape == (2, 0, 64)
    assert greta.jax.call(block, np.ones((0, 2, 64), np.float16)).dtype == "float16"
    assert greta.jax.call(model, np.ones((0,), np.int32)).shape == (0, 2048)
    x = np.random.default_rng(3).standard_normal((64, 5)).astype(np.float32)
    assert np.array_equal(greta.jax.call(block, x.T), block(np.ascontiguousarray(x.T)))
    for ids, word in (([1, 5000], "5000"), (np.array([2**32 - 1], np.uint32), "2147483647"), ([-7], "-1")):
        with pytest.raises(Exception, match=word):
            jax.block_until_ready(greta.jax.call(model, np.asarray(ids)))
    with pytest.raises(Exception, match="has a context of"):
        jax.block_until_ready(jax.jit(lambda x: greta.jax.call(block, x))(np.ones((5000, 64), np.float32)))
    assert np.array_equal(greta.jax.call(block, x.T), block(np.ascontiguousarray(x.T)))  # it goes on


def test_threads(block):
    """Compiled functions run in several threads at once."""
    f = jax.jit(lambda x: greta.jax.call(block, x) + 1)
    x = [np.full((3, 64), i, np.float32) for i in range(8)]
    want = [block(a) + 1 for a in x]
    with ThreadPoolExecutor(4) as pool:
        for got, w in zip(pool.map(f, x * 5), want * 5):
            assert np.allclose(got, w, rtol=1e-6)


def test_on_a_card(block, monkeypatch):
    """On a GPU each sequence goes to greta at its address, behind what is on XLA's stream."""
    sent = []
    told = []

    class Tensor:
        @staticmethod
        def at(kind, address, shape, stream, lender, *lent):
            assert lender is Model._lender
            assert all(other in told for other in lent)
            told.append((kind, address, shape, stream))
            return told[-1]

    class Session:
        def _held(self, rows, place, args):
            sent.append((rows, place, args))

    class Place:
        def __init__(self, address, shape):
            self.address, self.shape = address, shape

    class Model:
        info = block.info
        _fresh = Session
        _lender = object()

    monkeypatch.setattr(greta.jax, "DeviceTensor", Tensor)
    greta.jax._run(Model(), "cuda", 9, Place(1000, [2, 3, 4]), Place(5000, [2, 3, 8]))
    assert sent == [
        (("cuda", 1000, [3, 4], 9), ("cuda", 5000, [3, 8], 9), {"reset": True}),
        (("cuda", 1048, [3, 4], 9), ("cuda", 5096, [3, 8], 9), {"reset": True}),
    ]

    # The buffers are XLA's again behind the call: an interrupt is told when greta has ended.
    del sent[:]
    held = Session._held

    def slow(self, rows, place, args):
        _thread.interrupt_main()
        time.sleep(0.2)
        held(self, rows, place, args)

    Session._held = slow
    with pytest.raises(KeyboardInterrupt):
        greta.jax._run(Model(), "cuda", 9, Place(1000, [3, 4]), Place(5000, [3, 8]))
    assert len(sent) == 1

    def fails(self, rows, place, args):
        raise greta.UsageError("no room")

    Session._held = fails
    with pytest.raises(greta.UsageError, match="no room"):
        greta.jax._run(Model(), "cuda", 9, Place(1000, [3, 4]), Place(5000, [3, 8]))


class Frame:
    """A call as XLA makes it, of two buffers and the number of what is called."""

    def __init__(self, number=0, minor=5, major=0):
        self.errors = []

        def create(args):
            self.errors.append(args.contents.message.decode())
            return 4711

        def stream(args):
            args.contents.stream = 77
            return None

        self.x, self.y = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
        self.api = _ffi._Api(ctypes.sizeof(_ffi._Api))
        self.api.version.major, self.api.version.minor = major, minor
        self.api.error_create = type(self.api.error_create)(create)
        self.api.stream_get = type(self.api.stream_get)(stream)
        self.dims = (ctypes.c_int64 * 2)(2, 3)
        self.value = ctypes.c_int64(number)
        self.buffers = [_ffi._Buffer(48, None, 11, a.ctypes.data, 2, self.dims) for a in (self.x, self.y)]
        self.scalar = _ffi._Scalar(5, ctypes.pointer(self.value))
        frame = _ffi._Frame(ctypes.sizeof(_ffi._Frame) + 8, None, ctypes.pointer(self.api), None, 3)
        for part, held in ((frame.arguments, self.buffers[0]), (frame.results, self.buffers[1])):
            part.size, part.count = 40, 1
            part.types = ctypes.pointer(ctypes.c_int(1))
            part.values = ctypes.pointer(ctypes.pointer(held))
        frame.attributes.size, frame.attributes.count = 48, 1
        frame.attributes.types = ctypes.pointer(ctypes.c_int(3))
        frame.attributes.values = ctypes.pointer(ctypes.pointer(self.scalar))
        self.frame = frame

    def call(self):
        return _ffi.handlers["CUDA"](ctypes.pointer(self.frame))


def test_frames():
    """What XLA gives is checked before it is used; what is wrong is an error of the call."""

    def double(kind, stream, x, y):
        assert (kind, stream, x.shape, y.shape) == ("cuda", 77, [2, 3], [2, 3])
        ctypes.memmove(y.address, x.address, 24)

    number = _ffi.add(double)
    f = Frame(number)
    assert f.call() is None and np.array_equal(f.y, f.x)

    def failed(words, change):
        f = Frame(number)
        change(f)
        assert f.call() == 4711 and words in f.errors[0] and not f.y.any(), f.errors

    failed("another layout", lambda f: setattr(f.frame, "size", 100))
    failed("another layout", lambda f: setattr(f.frame.arguments, "size", 8))
    failed("another layout", lambda f: setattr(f.buffers[1], "size", 16))
    failed("one argument", lambda f: setattr(f.frame.results, "count", 2))
    failed("of its type 12", lambda f: setattr(f.buffers[0], "type", 12))
    failed("another layout", lambda f: setattr(f.api, "size", 8))
    failed("KeyError", lambda f: setattr(f.value, "value", 1 << 40))
    f = Frame(number)
    f.frame.stage = 1  # prepare: nothing to do
    assert f.call() is None and not f.y.any()


def test_versions():
    """A minor version that appends fields is one that greta can be called by; another major version is not claimed."""
    for major, minor, want in ((0, 1, (0, 1)), (0, 9, (0, 9)), (1, 0, (0, 1))):
        f = Frame(major=major, minor=minor)
        metadata = _ffi._Metadata(ctypes.sizeof(_ffi._Metadata))
        asked = _ffi._MetadataExtension(_ffi._Extension(24, 1), ctypes.pointer(metadata))
        f.frame.extension = ctypes.cast(ctypes.pointer(asked), ctypes.POINTER(_ffi._Extension))
        assert f.call() is None and (metadata.version.major, metadata.version.minor) == want


def test_refusals(block):
    with pytest.raises(greta.UsageError, match="takes"):
        greta.jax.call(block, np.ones((2, 3), np.float32))
    with pytest.raises(greta.UsageError, match="activations"):
        greta.jax.call(block, np.ones((2, 64), np.int32))
    with pytest.raises(greta.UsageError, match=f"context of {block.info.context}; load it with a larger"):
        jax.jit(lambda x: greta.jax.call(block, x))(np.ones((block.info.context + 1, 64), np.float32))
    with pytest.raises(greta.ArgumentTypeError, match="model is 5: a model, or a path, is expected"):
        greta.jax.call(5, np.ones((2, 64), np.float32))
    with pytest.raises(greta.UsageError, match="is loaded"):
        greta.jax.call(block, np.ones((2, 64), np.float32), context=4)


def test_no_gradient(block, model):
    """What is not differentiable is said by its name, under jit too; the result as a constant has its use."""
    x = np.ones((2, 64), np.float32)
    total = lambda x: greta.jax.call(block, x).sum()  # noqa: E731
    several = lambda x: jax.vmap(total)(x[None])[0]  # noqa: E731
    words = f"call of {block.info.name} cannot be differentiated by x.*stop_grad"
    for f in (jax.grad(total), jax.grad(jax.jit(total)), jax.grad(several), lambda x: jax.jvp(total, (x,), (x,))):
        with pytest.raises(greta.UnsupportedError, match=words):
            f(x)
    y = np.asarray(greta.jax.call(block, x))
    assert np.allclose(jax.grad(lambda x: (greta.jax.call(block, jax.lax.stop_gradient(x)) * x).sum())(x), y, rtol=1e-5)
    assert np.isclose(jax.grad(lambda w: w * greta.jax.call(block, x).sum())(2.0), y.sum(), rtol=1e-4)
    ids = np.array([1, 2, 3], np.int32)
    logits = np.asarray(greta.jax.call(model, ids))
    scaled = lambda w, i: w * greta.jax.call(model, i).sum()  # noqa: E731
    assert np.isclose(jax.jit(jax.grad(scaled))(2.0, ids), logits.sum(), rtol=1e-3)
