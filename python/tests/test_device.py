"""Tensors in memory of a GPU, as far as that goes without one: a driver in Python, whose memory is the host's."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import greta
from greta import _device
from greta._errors import DeviceError


class Driver:
    """What is allocated, by address; memory of `tensors` is allocated too."""

    kind = "cuda"

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.current: list[int] = []
        self.log: list[str] = []
        self.hidden: set[int] = set()  # allocations without a handle
        self.mapped: dict[int, int] = {}  # handles of such that are handed over by a descriptor
        self.retained: list[int] = []

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:
        self.current.append(device)
        yield
        self.current.pop()

    def location(self, device: int) -> str:
        return f"0000:0{device}:00.0"

    def share(self, at: int) -> tuple[bytes, int, int]:
        assert self.current
        for base, data in self.memory.items():
            if base <= at < base + len(data):
                if base in self.hidden:
                    raise DeviceError("cuIpcGetMemHandle failed with 1")
                return base.to_bytes(64, "little"), base, len(data)
        raise AssertionError("no such memory")

    def allocation(self, at: int, nbytes: int) -> tuple[int, int, int]:
        assert self.current
        for base, handle in self.mapped.items():
            if base <= at < base + len(self.memory[base]):
                self.retained.append(handle)
                return handle, base, len(self.memory[base])
        raise DeviceError("cuMemRetainAllocationHandle failed with 1")

    def release(self, handle: int) -> None:
        self.retained.remove(handle)

    def export(self, handle: int) -> int:
        fd = os.memfd_create("sent", os.MFD_CLOEXEC)  # which is none of a driver's
        os.write(fd, handle.to_bytes(8, "little"))
        return fd

    def finish(self, stream: int | None = None) -> None:
        self.log.append("finish" if stream is None else f"finish {stream}")

    def device_of(self, at: int) -> int:
        return 1

    def copy(self, to: int, at: int, nbytes: int) -> None:
        assert self.current
        self.log.append(f"copy {nbytes}")
        ctypes.memmove(to, at, nbytes)

    def allocate(self, nbytes: int) -> int:
        data = ctypes.create_string_buffer(nbytes)
        self.memory[ctypes.addressof(data)] = data
        return ctypes.addressof(data)

    def free(self, at: int) -> None:
        del self.memory[at]


class Tensor:
    """A tensor of another package's on the device: NumPy's memory under another name."""

    def __init__(self, driver: Driver, array: Any) -> None:
        self.array, self.driver = array, driver
        base = array.base if array.base is not None else array
        at = base.__array_interface__["data"][0]
        driver.memory[at] = (ctypes.c_char * base.nbytes).from_address(at)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 1)

    def __dlpack__(self, *, stream: int) -> Any:
        self.driver.log.append(f"stream {stream}")
        return self.array.__dlpack__()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(_device, "_drivers", {"cuda": made})
    return made


def test_sent(driver: Driver) -> None:
    """What is sent says where the tensor lies in its allocation; the producer's stream is waited for."""
    x = np.zeros((6, 4), np.float32)
    t = _device.DeviceTensor(Tensor(driver, x[2:5]), "x")
    assert driver.log == ["stream 1", "finish"] and not driver.current
    at = x.__array_interface__["data"][0]
    assert t.wire == {
        "type": "f32",
        "shape": [3, 4],
        "offset": 32,
        "device": {
            "kind": "cuda",
            "location": "0000:01:00.0",
            "handle": base64.b64encode(at.to_bytes(64, "little")).decode(),
            "bytes": 96,
        },
    }
    one = _device.DeviceTensor(Tensor(driver, x[:1, :3]), "x")  # one row: its stride means nothing
    assert one.wire["shape"] == [1, 3]


def test_without_a_handle(driver: Driver) -> None:
    """Memory that cannot be handed over is copied on the card, there and back; what is beside it stays."""
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    at = x.__array_interface__["data"][0]
    tensor = Tensor(driver, x[2:5])
    driver.hidden.add(at)
    t = _device.DeviceTensor(tensor, "x")
    assert t.copied and t.wire["shape"] == [3, 4] and t.wire["offset"] == 0
    handle = int.from_bytes(base64.b64decode(t.wire["device"]["handle"]), "little")
    assert handle != at and bytes(driver.memory[handle][:48]) == x[2:5].tobytes()
    ctypes.memset(handle, 0, 48)  # what greta writes
    t.written()
    assert not x[2:5].any() and list(x[5]) == [20, 21, 22, 23] and list(x[1]) == [4, 5, 6, 7]
    del t
    gc.collect()
    assert handle not in driver.memory
    driver.hidden.clear()
    t = _device.DeviceTensor(tensor, "x")
    del driver.log[:]
    t.written()
    assert not t.copied and driver.log == []  # it lies where it belongs
    placed = _device.DeviceTensor.at("cuda", at + 16, [2, 4], 77)
    assert placed.wire["offset"] == 16 and placed.wire["shape"] == [2, 4] and driver.log == ["finish 77"]
    assert placed.device == 1 and not driver.current


def test_refusals(driver: Driver, block: greta.Model) -> None:
    x = np.zeros((6, 4), np.float32)
    for array, words in (
        (x.astype(np.float16), "x is a tensor of float16"),
        (x.astype(np.int32), "x is a tensor of int32"),
        (x.T, "not contiguous"),
        (x[:, :2], "not contiguous"),
        (x[:0], "is empty"),
    ):
        with pytest.raises(greta.UsageError, match=words):
            _device.DeviceTensor(Tensor(driver, array), "x")
    managed = Tensor(driver, x)
    managed.__dlpack_device__ = lambda: (13, 0)  # type: ignore[method-assign]
    with pytest.raises(greta.UnsupportedError, match="DLPack's type 13"):
        _device.DeviceTensor(managed, "x")
    rows = Tensor(driver, np.zeros((2, 64), np.float32))
    with pytest.raises(greta.UnsupportedError, match="runs on the backend cpu"):
        block(rows)
    with block.session() as s, pytest.raises(greta.UnsupportedError, match="runs on the backend cpu"):
        s.block(rows, out=rows)
    with pytest.raises(greta.UsageError, match="out is for rows in memory of a GPU"):
        block(np.zeros((2, 64), np.float32), out=rows)
    # greta itself refuses it too, whatever the client has looked at.
    wire = _device.DeviceTensor(rows, "x").wire
    with block.session() as s:
        with pytest.raises(greta.UnsupportedError, match="opens no memory of a GPU"):
            s._run({"x": wire, "out": wire})
        with pytest.raises(greta.UsageError, match="out says where"):
            s._run({"x": wire})
        assert s.block(np.zeros((2, 64), np.float32)).shape == (2, 64)


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(_device, "_drivers", {})
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(greta.DeviceError, match="driver of the tensor's device is not found: libcuda"):
        _device.DeviceTensor(Tensor(Driver(), np.zeros((1, 4), np.float32)), "x")


def consume(capsule: Any) -> Any:
    """Takes a tensor over, as a consumer does."""
    m = _device._pointer(capsule)
    rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
    rename(capsule, b"used_dltensor")
    return m


def delete(m: Any) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(m.contents.deleter)(ctypes.addressof(m.contents))


def test_results(driver: Driver) -> None:
    """A result's memory lives as long as it, or one of its consumers, and is then freed."""
    like = _device.DeviceTensor(Tensor(driver, np.zeros((1, 4), np.float32)), "x")
    others = set(driver.memory)

    def made() -> set[int]:
        gc.collect()
        return set(driver.memory) - others

    y = _device.DeviceArray(like, (3, 5))
    assert made() == {y.address} and len(driver.memory[y.address]) == 2 << 20
    assert y.__dlpack_device__() == (2, 1) and "[3, 5]" in repr(y)
    first, second = y.__dlpack__(stream=7, max_version=(1, 0)), y.__dlpack__()
    m = consume(first)
    t = m.contents.tensor
    assert (t.data, t.ndim, t.code, t.bits, t.lanes) == (y.address, 2, 2, 32, 1)
    assert (list(t.shape[:2]), list(t.strides[:2])) == ([3, 5], [5, 1])
    del y
    assert len(made()) == 1
    del second  # nobody has consumed it
    assert len(made()) == 1
    del first, t  # the consumer has the tensor, not the capsule
    assert len(made()) == 1
    delete(m)
    assert made() == set() and not _device._exported
    y = _device.DeviceArray(like, (1 << 20,))
    assert len(driver.memory[y.address]) == 4 << 20
    with pytest.raises(BufferError):
        y.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        y.__dlpack__(dl_device=(1, 0))

    def gone(at: int) -> None:
        raise DeviceError("the context is destroyed")

    driver.free = gone  # type: ignore[method-assign]
    del y
    assert len(made()) == 1  # and no exception from the finalizer


def test_capsules_do_not_leak(driver: Driver) -> None:
    like = _device.DeviceTensor(Tensor(driver, np.zeros((1, 4), np.float32)), "x")
    before = len(driver.memory)
    for i in range(10_000):
        capsule = _device.DeviceArray(like, (2, 2)).__dlpack__()
        if i % 2:
            delete(consume(capsule))
        del capsule
    gc.collect()
    assert len(driver.memory) == before and not _device._exported


linux = pytest.mark.skipif(sys.platform != "linux", reason="descriptors are sent on Linux only")


class Greta:
    """greta's process as a lender sees it: what was sent and is open there."""

    def __init__(self) -> None:
        self.sent: dict[int, int] = {}  # a handle by its descriptor's number
        self.told: list[tuple[str, dict[str, int]]] = []
        self._owner, self.full = os.getpid(), False

    def lend(self, fd: int) -> int:
        if self.full:
            raise DeviceError("greta takes no descriptor")
        number = 100 + len(self.sent)
        self.sent[number] = int.from_bytes(os.pread(fd, 8, 0), "little")
        return number

    def later(self, op: str, args: dict[str, int]) -> None:
        self.told.append((op, args))


def open_files(pid: int | str = "self") -> int:
    """How many descriptors that tests have sent are open in a process."""
    count = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += "memfd:sent" in os.readlink(fd)
        except OSError:
            pass
    return count


def eventually(what: Any) -> bool:
    end = time.monotonic() + 20
    while time.monotonic() < end and not what():
        time.sleep(0.01)
    return bool(what())


def lent(driver: Driver, nbytes: int, handle: int) -> tuple[Any, int]:
    """An array that begins an allocation without a handle, which is handed over by a descriptor."""
    data = np.zeros(nbytes // 4, np.float32)
    at = data.__array_interface__["data"][0]
    driver.memory[at] = (ctypes.c_char * nbytes).from_address(at)
    driver.hidden.add(at)
    driver.mapped[at] = handle
    return data, at


@linux
def test_lent(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fills its allocation is lent for a request, a pool's part until it was idle; both sides then let it go."""
    monkeypatch.setattr(_device, "IDLE", 0.2)
    there = Greta()
    lender = _device.Lender(there, 5)  # type: ignore[arg-type]
    whole, at = lent(driver, 4 << 20, 70)

    def tensor(address: int, beside: Any = None) -> Any:
        return _device.DeviceTensor.at("cuda", address, [8, 4], 0, lender, beside)

    x = tensor(at + 64)
    y = tensor(at + 1024, x)
    assert x.wire["device"] == {"kind": "cuda", "location": "0000:01:00.0", "fd": 100, "bytes": 4 << 20}
    assert (x.wire["offset"], y.wire["offset"], y.wire["device"]["fd"]) == (64, 1024, 100)
    assert not x.copied and there.sent == {100: 70} and not driver.retained and not open_files()
    x.named(), y.named()
    del x, y
    assert not there.told  # a request that has ended has closed it
    x = tensor(at)
    del x  # no request named it
    assert there.told == [("forget", {"target": 101, "model": 5})]

    pool, base = lent(driver, 8 << 20, 71)
    x = tensor(base + 64)
    y = tensor(base + 1024, x)
    early = tensor(base)  # of another thread's, before greta has it
    assert x.wire["device"]["keep"] is True and y.wire["device"]["fd"] == 102 and early.wire["device"]["fd"] == 103
    assert "keep" not in early.wire["device"]
    x.named(), y.named(), early.named()
    del x, y, early
    for _ in range(100):
        x = tensor(base + 4096)
        assert x.wire["device"]["fd"] == 102
        x.named()
    assert len(there.sent) == 4 and driver.retained == [71]
    driver.mapped[base] = 72  # the owner has freed it, and has other memory at the same address
    y = tensor(base)
    assert y.wire["device"]["fd"] == 104 and there.sent[104] == 72
    y.named()
    time.sleep(0.5)
    assert sorted(driver.retained) == [71, 72]  # both are in use
    del x
    assert eventually(lambda: driver.retained == [72])
    del y
    assert eventually(lambda: not driver.retained and not lender._pools and lender._timer is None)
    assert [a["target"] for _, a in there.told] == [101, 102, 104]

    x = tensor(base)
    x.named()
    lender.close()
    assert not driver.retained and there.told[-1] == ("forget", {"target": 105, "model": 5})
    del x
    y = tensor(base)
    assert "keep" not in y.wire["device"] and not driver.retained
    del y
    before = len(there.sent)
    there.full = True
    x = tensor(base)
    assert x.copied and "handle" in x.wire["device"] and not driver.retained
    assert len(there.sent) == before and not lender._opening and not open_files()
    del whole, pool


@linux
def test_pools_are_few(driver: Driver) -> None:
    lender = _device.Lender(Greta(), 5)  # type: ignore[arg-type]
    held = [lent(driver, 8 << 20, 100 + i) for i in range(_device._most_pools + 3)]
    tensors = [_device.DeviceTensor.at("cuda", at, [4], 0, lender) for _, at in held]
    assert sum("keep" in t.wire["device"] for t in tensors) == _device._most_pools
    del tensors
    assert not driver.retained and not lender._opening


@linux
def test_descriptors(driver: Driver, block: greta.Model) -> None:
    """The socket to greta: what is sent is closed there, whatever becomes of the request; nothing blocks."""
    process, session = block._process, block.session()
    data, at = lent(driver, 4 << 20, 70)
    for keep in (False, True):
        x = _device.DeviceTensor.at("cuda", at, [2, 64], 0, block._lender)
        wire = {**x.wire, "device": {**x.wire["device"], "keep": keep}}
        with pytest.raises(greta.UnsupportedError, match="opens no memory of a GPU"):
            session._run({"x": wire, "out": wire})
        with pytest.raises(greta.UsageError, match=f"no descriptor {wire['device']['fd']}"):
            session._run({"x": wire, "out": wire})
    del x
    for _ in range(100):  # nobody names these
        _device.DeviceTensor.at("cuda", at, [2, 64], 0, block._lender)
    assert eventually(lambda: open_files(process.pid) == 0) and not driver.retained and open_files() == 0

    def work() -> None:
        for _ in range(50):
            with driver.on(0):
                t = _device.DeviceTensor.at("cuda", at, [2, 64], 0, block._lender)
            with pytest.raises(greta.UnsupportedError, match="opens no memory"):
                block.session()._run({"x": t.wire, "out": t.wire})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert eventually(lambda: open_files(process.pid) == 0) and not driver.retained
    assert np.array_equal(block(np.zeros((2, 64), np.float32)), np.zeros((2, 64), np.float32))
    del data


@linux
def test_no_socket(driver: Driver) -> None:
    """A greta that stands still, was killed, or takes no descriptors: an error at once, and memory is copied."""
    fd = driver.export(1)
    with greta.Process() as p:
        os.kill(p.pid, 19)  # SIGSTOP: it takes nothing
        with pytest.raises(DeviceError, match="takes no descriptor"):
            for _ in range(100_000):
                p.lend(fd)
        os.kill(p.pid, 18)
        p.call("ping", {})
        os.kill(p.pid, 9)
        assert eventually(lambda: not p.alive)
        with pytest.raises(DeviceError):
            p.lend(fd)
    with greta.Process() as p:
        p._close_socket()
        p.call("ping", {})
        with pytest.raises(DeviceError, match="takes no descriptors here"):
            p.lend(fd)
    os.close(fd)
    assert open_files() == 0
