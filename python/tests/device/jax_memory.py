"""JAX's arrays on a card are used where they lie. device_memory.py runs this once for each of JAX's allocators:

    python3 jax_memory.py lent|copied ROUNDS

says what is expected of the arrays' memory, and prints one line with what was measured.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import greta
import greta.jax
from greta import _device

SIZES: dict[str, object] = {"D": 256, "F": 512}
expected, rounds = sys.argv[1], int(sys.argv[2])
said: list[str] = []

model = greta.load("mlp_block", backend="hip", set=SIZES, context=8192)
x = jax.random.normal(jax.random.key(0), (16, 256))
assert next(iter(x.devices())).platform != "cpu", "JAX sees no card"
want = model(np.asarray(x))
places: list[_device.DeviceTensor] = []
sent: list[int] = []
sizes: list[int] = []  # of allocations, in bytes

share, lend = _device.DeviceTensor._share, model._process.lend


def watched(self: _device.DeviceTensor, *args: Any) -> None:
    share(self, *args)
    places.append(self)


def counted(fd: int) -> int:
    sent.append(lend(fd))
    return sent[-1]


model._process.lend = counted  # type: ignore[method-assign]


def eventually(what: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + 10
    while not what():
        assert time.monotonic() < end, why
        time.sleep(0.02)


def free_on_card() -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver = _device._driver("cuda")
    with driver.on(0):
        driver._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def median(call: Callable[[], Any], count: int = 300) -> float:
    took = []
    for i in range(count + 20):
        a = time.perf_counter()
        call()
        if i >= 20:
            took.append(time.perf_counter() - a)
    took.sort()
    return took[count // 2] * 1e6


def where() -> None:
    """Addresses are those of JAX's arrays, and what greta opens is that memory or a copy, as is expected."""
    _device.DeviceTensor._share = watched  # type: ignore[method-assign]
    try:
        y = model(x)
        got = jax.numpy.from_dlpack(y)
        assert places[0].address == x.unsafe_buffer_pointer() and got.unsafe_buffer_pointer() == y.address
        assert np.array_equal(np.asarray(got), want)
        f = jax.jit(lambda a: greta.jax.call(model, a))
        del places[:]
        got = f(x)
        assert np.array_equal(np.asarray(got), want)
        assert len(places) == 2, "jit went by the host"
        assert [p.address for p in places] == [x.unsafe_buffer_pointer(), got.unsafe_buffer_pointer()]
        copied = [p.copied for p in places]
        assert copied == [expected == "copied"] * 2, f"copied: {copied}"
        if expected == "lent":
            for p in places:
                device = p.wire["device"]
                assert "fd" in device and "handle" not in device, device
                assert p.wire["offset"] + p.nbytes <= device["bytes"], p.wire
        sizes.extend(p.wire["device"]["bytes"] for p in places)
        said.append(f"x and the result are {expected}, their allocations have {[n >> 20 for n in sizes]} MiB")
    finally:
        _device.DeviceTensor._share = share  # type: ignore[method-assign]
        del places[:]
    batch = jax.jit(jax.vmap(lambda a: jax.numpy.tanh(greta.jax.call(model, a * 2)) + 1))
    both = np.asarray(batch(jax.numpy.stack([x, 3 * x])))
    far = np.tanh(model(np.asarray(6 * x))) + 1
    assert np.allclose(both[1], far, atol=1e-6), np.abs(both[1] - far).max()
    try:
        jax.block_until_ready(f(jax.numpy.ones((9000, 256))))
    except Exception as e:
        assert "fit the context" in str(e), e
    else:
        raise AssertionError("more rows than the context has were taken")


def times() -> None:
    f = jax.jit(lambda a: greta.jax.call(model, a))
    host = np.asarray(x)
    before = len(sent)
    warm = median(lambda: model(x))
    jitted = median(lambda: jax.block_until_ready(f(x)))
    sends = len(sent) - before
    near = median(lambda: model(host))
    said.append(f"a call {warm:.0f} µs, under jit {jitted:.0f} µs, of the host's memory {near:.0f} µs")
    said.append(f"{sends} descriptors for 640 calls")
    if expected == "lent":
        cold = []
        for _ in range(5):
            eventually(lambda: not model._lender._pools, "what is idle stays open")
            a = time.perf_counter()
            model(x)
            cold.append((time.perf_counter() - a) * 1e6)
        if min(sizes) > 4 << 20:  # pools, which are kept open
            assert sends <= 4, f"{sends} descriptors for 640 calls"
        said.append(f"the first behind {_device.IDLE} s and more {sorted(cold)[2]:.0f} µs")


def identity() -> None:
    """Other memory at the same address is other memory: what greta computes is of what lies there now."""
    f = jax.jit(lambda a: greta.jax.call(model, a))
    for i in range(40):
        a = jax.device_put(np.full((16 << (i % 3), 256), i + 1, np.float32))
        near = model(np.asarray(a))
        assert np.array_equal(np.asarray(f(a)), near), i
        assert np.array_equal(np.asarray(jax.numpy.from_dlpack(model(a))), near), i
        a.delete()
        del a
        gc.collect()


def given_back() -> None:
    """What JAX frees behind a call is free on the card, though greta has had it open."""
    if os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR") != "platform":
        return  # the others keep what arrays were in
    before = free_on_card()
    a = jax.numpy.ones((1 << 20, 256), np.float32)  # 1 GiB
    jax.block_until_ready(a)
    assert before - free_on_card() > 1 << 29, "the array takes no memory of the card"
    view = _device.DeviceTensor(a, "a", model._lender)
    model.session()._held(_part(view, 16), _device.DeviceTensor(_device.DeviceArray(view, (16, 256)), "out"), {})
    del view
    a.delete()
    del a
    gc.collect()
    start = time.monotonic()
    eventually(lambda: before - free_on_card() < 1 << 29, "greta keeps memory that JAX has freed")
    said.append(f"1 GiB that was freed is free {time.monotonic() - start:.2f} s later")


def _part(t: _device.DeviceTensor, rows: int) -> _device.DeviceTensor:
    """The first rows of a tensor."""
    t.shape = [rows, t.shape[1]]
    t.wire["shape"] = t.shape
    return t


def leaks() -> None:
    f = jax.jit(lambda a: greta.jax.call(model, a))
    pid = model._process.pid

    def used() -> tuple[int, int, int, int]:
        gc.collect()
        if expected == "lent":
            eventually(lambda: not model._lender._pools, "what is idle stays open")
            model._process.call("ping", {})
        with open(f"/proc/{pid}/status") as s:
            resident = next(int(line.split()[1]) for line in s if line.startswith("VmRSS"))
        return free_on_card(), resident, len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir("/proc/self/fd"))

    for _ in range(100):
        jax.block_until_ready(f(x))
        model(x)
    before = used()
    for i in range(rounds):
        jax.block_until_ready(f(x)) if i % 2 else model(x)
    after = used()
    lost = before[0] - after[0]
    assert lost <= 4 << 20, f"{lost} bytes of the card are gone"
    assert after[1] - before[1] < 64 << 10, f"greta has grown by {after[1] - before[1]} KiB"
    assert after[2] <= before[2] + 2 and after[3] <= before[3] + 2, f"open files: {before[2:]}, then {after[2:]}"
    assert not _device._exported and not model._lender._opening
    said.append(f"{rounds} calls: the card {lost:+d} bytes, greta {after[1] - before[1]:+d} KiB")


for work in (where, times, identity, given_back, leaks):
    work()
print("; ".join(said))
