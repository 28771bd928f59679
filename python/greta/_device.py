"""Tensors in memory of a GPU: whose they are, and by what greta's process opens them: a handle of CUDA's or HIP's IPC, or a
descriptor of what their virtual memory management has allocated.

The memory is always this process's. greta has it open for one request, or a pool's a little longer (`Lender`); its results
go to memory that is allocated here.
"""

from __future__ import annotations

import atexit
import base64
import ctypes
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._errors import DeviceError, OutOfMemoryError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from ._process import Process

#: DLPack's numbers of devices.
_HOST = (1, 3, 11)  # host, pinned host of CUDA and of ROCm
_KINDS = {2: "cuda", 10: "hip"}
_HANDLE = 64  # bytes


class _Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * _HANDLE)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_codes = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class _Driver:
    """The functions of a driver that are used; every call is checked."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._lock = threading.Lock()
        names = {"cuda": ["libcuda.so.1"], "hip": [*_mapped("libamdhip64"), "libamdhip64.so"]}[kind]
        for name in names:
            try:
                self._lib = ctypes.CDLL(name)
                break
            except OSError as e:
                failed = e
        else:
            raise DeviceError(f"the driver of the tensor's device is not found: {failed}")
        self._call("cuInit" if kind == "cuda" else "hipInit", 0)

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._lib, name)(*args)
        if code == 0:
            return
        text = f"{name} failed with {code}"
        if self.kind == "cuda":
            out = ctypes.c_char_p()
            if self._lib.cuGetErrorName(code, ctypes.byref(out)) == 0 and out.value:
                text += f" ({out.value.decode()})"
        raise (OutOfMemoryError if code == 2 else DeviceError)(text)

    def _name(self, cuda: str, hip: str) -> str:
        return cuda if self.kind == "cuda" else hip

    def on(self, device: int) -> _Current:
        """Makes a device this thread's current one, for a `with`."""
        if self.kind == "hip":
            return _Current(self, device, None)
        with self._lock:
            context = self._contexts.get(device)
            if context is None:
                number, context = ctypes.c_int(), ctypes.c_void_p()
                self._call("cuDeviceGet", ctypes.byref(number), device)
                # The primary one, which PyTorch and JAX use. It is kept: a device has one for all.
                self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
                self._contexts[device] = context
        return _Current(self, device, context)

    def location(self, device: int) -> str:
        """The PCI address of a device, as greta names it."""
        text = ctypes.create_string_buffer(64)
        number = ctypes.c_int(device)
        if self.kind == "cuda":
            self._call("cuDeviceGet", ctypes.byref(number), device)
        self._call(self._name("cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId"), text, 64, number)
        return text.value.decode().lower()

    def share(self, at: int) -> tuple[bytes, int, int]:
        """The handle of the allocation in which an address lies, its first address and its size.

        Raises DeviceError for memory without one: what is not of cudaMalloc or hipMalloc, such as JAX's, PyTorch's
        expandable segments, cudaMallocAsync's and managed memory.
        """
        base, size = self._range(at)
        handle = _Handle()
        self._call(self._name("cuIpcGetMemHandle", "hipIpcGetMemHandle"), ctypes.byref(handle), ctypes.c_uint64(base))
        return bytes(handle.bytes), base, size

    def _range(self, at: int) -> tuple[int, int]:
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        name = self._name("cuMemGetAddressRange_v2", "hipMemGetAddressRange")
        self._call(name, ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(at))
        return int(base.value), int(size.value)

    def allocation(self, at: int, nbytes: int) -> tuple[int, int, int]:
        """The mapped allocation in which all of nbytes at an address lie: its handle in this process, which the caller
        releases, its first address and its size. As long as the handle is not released, no other allocation has it.

        Raises DeviceError for memory that is not mapped so, or lies in several allocations. On AMD it is untried.
        """
        if self.kind == "hip":  # earlier ones take descriptors in another way
            version = ctypes.c_int()
            self._call("hipDriverGetVersion", ctypes.byref(version))
            if version.value < 70200000:
                raise DeviceError(f"HIP {version.value} hands over no descriptors: 7.2 does")
        base, size = self._range(at)
        handle = self._retain(at)
        try:
            if at + nbytes > base + size:
                raise DeviceError("the tensor lies in several allocations")
            for there in (base, at + nbytes - 1, base + size - 1):
                other = self._retain(there)
                self.release(other)
                if other != handle:
                    raise DeviceError("the tensor's range of addresses has several allocations")
        except DeviceError:
            self.release(handle)
            raise
        return handle, base, size

    def _retain(self, at: int) -> int:
        handle = ctypes.c_uint64()
        name = self._name("cuMemRetainAllocationHandle", "hipMemRetainAllocationHandle")
        self._call(name, ctypes.byref(handle), ctypes.c_uint64(at))
        return int(handle.value)

    def release(self, handle: int) -> None:
        self._call(self._name("cuMemRelease", "hipMemRelease"), ctypes.c_uint64(handle))

    def export(self, handle: int) -> int:
        """A file's descriptor of an allocation, which the caller closes."""
        fd = ctypes.c_int(-1)
        name = self._name("cuMemExportToShareableHandle", "hipMemExportToShareableHandle")
        self._call(name, ctypes.byref(fd), ctypes.c_uint64(handle), 1, ctypes.c_uint64(0))  # …_POSIX_FILE_DESCRIPTOR
        return fd.value

    def device_of(self, at: int) -> int:
        """The number of the device on which an address lies."""
        number = ctypes.c_int()
        name = self._name("cuPointerGetAttribute", "hipPointerGetAttribute")
        self._call(name, ctypes.byref(number), 9, ctypes.c_uint64(at))  # …_ATTRIBUTE_DEVICE_ORDINAL
        return number.value

    def copy(self, to: int, at: int, nbytes: int) -> None:
        """Copies on the card, and waits for it."""
        name = self._name("cuMemcpyDtoD_v2", "hipMemcpyDtoD")
        self._call(name, ctypes.c_uint64(to), ctypes.c_uint64(at), ctypes.c_size_t(nbytes))
        self.finish()

    def finish(self, stream: int | None = None) -> None:
        """Waits for what is on a stream, by its handle; None: on the default one."""
        self._call(self._name("cuStreamSynchronize", "hipStreamSynchronize"), ctypes.c_void_p(stream))

    def allocate(self, nbytes: int) -> int:
        at = ctypes.c_uint64()
        self._call(self._name("cuMemAlloc_v2", "hipMalloc"), ctypes.byref(at), ctypes.c_size_t(nbytes))
        return int(at.value)

    def free(self, at: int) -> None:
        self._call(self._name("cuMemFree_v2", "hipFree"), ctypes.c_uint64(at))


class _Current:
    def __init__(self, driver: _Driver, device: int, context: ctypes.c_void_p | None) -> None:
        self._driver, self._device, self._context = driver, device, context
        self._before = ctypes.c_int()

    def __enter__(self) -> None:
        if self._context is not None:
            self._driver._call("cuCtxPushCurrent_v2", self._context)
        else:
            self._driver._call("hipGetDevice", ctypes.byref(self._before))
            self._driver._call("hipSetDevice", self._device)

    def __exit__(self, *_: object) -> None:
        if self._context is not None:
            self._driver._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        else:
            self._driver._call("hipSetDevice", self._before)


def _mapped(name: str) -> list[str]:
    """Libraries of a name that this process has loaded: PyTorch brings its own of ROCm."""
    try:
        with open("/proc/self/maps") as f:
            return sorted({line.split()[-1] for line in f if f"/{name}" in line})
    except OSError:
        return []


_drivers: dict[str, _Driver] = {}
_starting = threading.Lock()


def _driver(kind: str) -> _Driver:
    with _starting:
        if kind not in _drivers:
            _drivers[kind] = _Driver(kind)
        return _drivers[kind]


def device_of(x: Any) -> tuple[int, int] | None:
    """DLPack's type and number of the device that a tensor lies on; None: the host."""
    if not hasattr(x, "__dlpack_device__"):
        return None
    try:
        kind, number = x.__dlpack_device__()
    except (BufferError, RuntimeError, TypeError, ValueError) as e:
        raise UsageError(f"the tensor has no memory that DLPack knows: {e}") from e
    return None if int(kind) in _HOST else (int(kind), int(number))


#: How long, in seconds, greta may have a pool's memory open that no request uses.
IDLE = 0.5
#: How many pools greta has open for a model.
_most_pools = 32
_lenders: weakref.WeakSet[Lender] = weakref.WeakSet()


class _Allocation:
    """One that greta knows by a descriptor's number."""

    def __init__(self, number: int, key: tuple[int, int, int], keep: bool, drop: Callable[[], None]) -> None:
        self.number, self.key, self.keep = number, key, keep  # key: the handle here, the first address, the size
        self.drop = drop  # ends it on both sides
        self.known = False  # to greta: a request has named it
        self.users: set[object] = set()
        self.last = 0.0

    def leave(self, user: object) -> None:
        """A request has ended, or was not begun. It runs in finalizers, which take no lock."""
        self.last = time.monotonic()
        self.users.discard(user)
        if not self.known and not self.users:
            self.drop()


class Lender:
    """Lends memory without a handle to greta's process, for one model: by descriptors.

    A tensor that fills its allocation is lent for its request alone, for it may be freed with it, and greta's mapping
    would hold the card's memory. What is a small part of an allocation lies in a pool, which lives long and may be dear to
    map: greta keeps that open until no request has used it for IDLE to twice that. As long its handle is retained here,
    so that an address with the same handle lies in the same memory, whatever the owner has freed and allocated since.
    """

    def __init__(self, process: Process, model: int) -> None:
        self._process, self._model = process, model
        self._pools: dict[tuple[int, int, int], _Allocation] = {}
        self._opening: set[tuple[int, int, int]] = set()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._closed = False
        _lenders.add(self)

    def lend(
        self, driver: _Driver, at: int, nbytes: int, beside: _Allocation | None = None
    ) -> tuple[_Allocation, object]:
        """The allocation in which a tensor lies, and what its `leave` gets. The tensor's device is current. beside is
        the one of another tensor of the request.

        Raises DeviceError for memory that cannot be lent.
        """
        handle, _, size = key = driver.allocation(at, nbytes)
        user = object()
        with self._lock:
            found = beside if beside is not None and beside.key == key else self._pools.get(key)
            if found is not None:
                found.users.add(user)
            keep = (
                size > 2 * _whole(nbytes)
                and not self._closed
                and key not in self._opening
                and len(self._pools) + len(self._opening) < _most_pools
            )
            if keep and found is None:
                self._opening.add(key)
        if found is not None:
            driver.release(handle)  # its tensor keeps it, or it is retained already
            return found, user
        try:
            fd = driver.export(handle)
            try:
                number = self._process.lend(fd)
            finally:
                os.close(fd)
        except BaseException:
            self._end(driver, key, True, 0)
            raise
        if not keep:
            driver.release(handle)
        made = _Allocation(number, key, keep, functools.partial(self._end, driver, key, keep, number))
        made.users.add(user)
        return made, user

    def named(self, a: _Allocation) -> None:
        """A request that named it has succeeded: what is to be kept, greta has open."""
        if a.known:
            return
        a.known = True
        if not a.keep:
            return
        with self._lock:
            self._opening.discard(a.key)
            self._pools[a.key] = a
            kept = not self._closed and self._tick()
        if not kept:
            self.close()

    def _tick(self) -> bool:
        """Looks again later; self._lock is held. False: no thread can be started any more."""
        if self._timer is None:
            self._timer = threading.Timer(IDLE, self._sweep)
            self._timer.daemon = True
            try:
                self._timer.start()
            except RuntimeError:
                self._timer = None
                return False
        return True

    def _sweep(self) -> None:
        now = time.monotonic()
        with self._lock:
            idle = [key for key, a in self._pools.items() if not a.users and now - a.last >= IDLE]
            dropped = [self._pools.pop(key) for key in idle]
            self._timer = None
            if self._pools and not self._closed:
                self._tick()
        for a in dropped:
            a.drop()

    def _end(self, driver: _Driver, key: tuple[int, int, int], retained: bool, number: int) -> None:
        """Ends an allocation's use on both sides. It runs in finalizers too, which take no lock."""
        if number:
            self._process.later("forget", {"target": number, "model": self._model})
        if retained:
            self._opening.discard(key)
            try:
                driver.release(key[0])
            except DeviceError:
                pass  # the driver is at its end, and the memory with it

    def close(self) -> None:
        """Has greta close all that no request uses, and keep nothing from now on."""
        if self._process._owner != os.getpid():
            return  # a fork has no part in it
        with self._lock:
            self._closed = True
            timer, self._timer = self._timer, None
            dropped, self._pools = list(self._pools.values()), {}
        if timer is not None and timer is not threading.current_thread():
            timer.cancel()
            timer.join()
        for a in dropped:
            a.drop()


@atexit.register
def _close_lenders() -> None:
    for lender in list(_lenders):
        lender.close()


def _whole(nbytes: int) -> int:
    """The size of an allocation for nbytes: pieces of 2 MiB."""
    return max(1, -(-nbytes // (2 << 20))) * (2 << 20)


class DeviceTensor:
    """A tensor in memory of a GPU, as it is sent. The memory stays its owner's, and lives as long as this does.

    Memory that can be handed over neither by a handle nor by a lender is copied on the card, to some that can, and
    `written` copies back.
    """

    def __init__(self, x: Any, what: str, lender: Lender | None = None, beside: DeviceTensor | None = None) -> None:
        """x is a tensor with __dlpack__: dense, of float32. What was started on it is waited for. lender is of the
        model that it is for, beside another tensor of the same request.

        Raises UsageError for other types and layouts, UnsupportedError for a device that is none of CUDA's or ROCm's.
        """
        kind, self.device = device_of(x) or (0, 0)
        if kind not in _KINDS:
            raise UnsupportedError(
                f"{what} lies on a device of DLPack's type {kind}: greta takes tensors of the host, of CUDA (2) "
                "and of ROCm (10)"
            )
        self.kind = _KINDS[kind]
        driver = _driver(self.kind)
        if hasattr(x, "resolve_neg") and x.resolve_neg() is not x:
            raise UsageError(f"{what} is to be negated yet: give x.resolve_neg()")
        if getattr(x, "requires_grad", False):
            raise UsageError(f"{what} wants a gradient, which greta does not compute: give x.detach()")
        with driver.on(self.device):
            # The default stream waits for the producer's, and we for that.
            self._capsule = x.__dlpack__(stream=1 if self.kind == "cuda" else 0)
            driver.finish()
            t = _pointer(self._capsule).contents.tensor
            self.shape = [int(t.shape[i]) for i in range(t.ndim)]
            if (t.code, t.bits, t.lanes) != (2, 32, 1):
                name = f"{_codes.get(t.code, 'type ' + str(t.code))}{t.bits}"
                raise UsageError(f"{what} is a tensor of {name}: memory of a GPU is used as it lies, in float32")
            step = 1
            for n, stride in reversed([(self.shape[i], int(t.strides[i]) if t.strides else -1) for i in range(t.ndim)]):
                if n > 1 and stride not in (-1, step):
                    raise UsageError(f"{what} is not contiguous: memory of a GPU is used as it lies")
                step *= n
            if step == 0:
                raise UsageError(f"{what} is empty: a tensor of shape {self.shape}")
            self.address = int(t.data or 0) + int(t.byte_offset)
        self._share(lender, beside)

    @classmethod
    def at(
        cls,
        kind: str,
        address: int,
        shape: Sequence[int],
        stream: int,
        lender: Lender | None = None,
        beside: DeviceTensor | None = None,
    ) -> DeviceTensor:
        """The dense float32 at an address, which its owner keeps. What is on the stream is waited for."""
        self = cls.__new__(cls)
        driver = _driver(kind)
        self.kind, self.device, self.address, self.shape = kind, driver.device_of(address), address, list(shape)
        with driver.on(self.device):
            driver.finish(stream)
        self._share(lender, beside)
        return self

    def _share(self, lender: Lender | None, beside: DeviceTensor | None) -> None:
        driver = _driver(self.kind)
        self.nbytes = 4
        for n in self.shape:
            self.nbytes *= n
        self._copy: DeviceArray | None = None
        self._lender = lender
        self._lent: _Allocation | None = None
        device: dict[str, Any] = {"kind": self.kind}
        with driver.on(self.device):
            at = self.address
            try:
                handle, base, size = driver.share(at)
            except DeviceError:
                handle, (base, size) = b"", self._lend(driver, beside, device)
            if not size:
                self._copy = DeviceArray(self, self.shape)
                at = self._copy.address
                driver.copy(at, self.address, self.nbytes)
                handle, base, size = driver.share(at)
            if handle:
                device["handle"] = base64.b64encode(handle).decode()
            device.update(location=driver.location(self.device), bytes=size)
        self.wire: dict[str, Any] = {"type": "f32", "shape": self.shape, "offset": at - base, "device": device}

    def _lend(self, driver: _Driver, beside: DeviceTensor | None, device: dict[str, Any]) -> tuple[int, int]:
        """Hands the memory over by a descriptor; gives the allocation's first address and its size, 0 where it cannot."""
        try:
            if self._lender is None:
                return 0, 0
            a, user = self._lender.lend(driver, self.address, self.nbytes, beside._lent if beside else None)
        except DeviceError:
            return 0, 0
        self._lent = a
        weakref.finalize(self, a.leave, user).atexit = False
        device["fd"] = a.number
        if a.keep:
            device["keep"] = True
        return a.key[1:]

    @property
    def copied(self) -> bool:
        """Whether greta has a copy, since the memory cannot be handed over."""
        return self._copy is not None

    def named(self) -> None:
        """A request that named it has succeeded."""
        if self._lender is not None and self._lent is not None:
            self._lender.named(self._lent)

    def written(self) -> None:
        """Of a result: it is where it belongs behind this."""
        if self._copy is not None:
            driver = _driver(self.kind)
            with driver.on(self.device):
                driver.copy(self.address, self._copy.address, self.nbytes)


class DeviceArray:
    """A tensor of float32 in memory of a GPU, which other packages take by DLPack: `torch.from_dlpack(y)`,
    `jax.numpy.from_dlpack(y)`. The memory is freed with the last of those who have it.
    """

    def __init__(self, like: DeviceTensor, shape: Sequence[int]) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.kind, self.device = like.kind, like.device
        self.nbytes = 4
        for n in self.shape:
            self.nbytes *= n
        driver = _driver(self.kind)
        with driver.on(self.device):
            # In pieces of 2 MiB: smaller ones share a block, which would be handed over whole.
            self.address = driver.allocate(_whole(self.nbytes))
        weakref.finalize(self, _free, driver, self.device, self.address).atexit = False  # the process's end frees it

    def __dlpack_device__(self) -> tuple[int, int]:
        return ({"cuda": 2, "hip": 10}[self.kind], self.device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of DLPack, of the version without a version. What is in the memory is whole: no stream waits."""
        if copy or dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError("greta hands its memory over where it lies, and makes no copies")
        return _capsule(self)

    def __repr__(self) -> str:
        return f"<greta.DeviceArray {list(self.shape)} of float32 on {self.kind}:{self.device}>"


def _free(driver: _Driver, device: int, at: int) -> None:
    try:
        with driver.on(device):
            driver.free(at)  # it waits for what uses it
    except DeviceError:
        pass  # the context is gone, and the memory with it


# Capsules of DLPack, made without a compiled extension. What a capsule needs lies in _exported, by its address.
_exported: dict[int, tuple[Any, ...]] = {}
_api = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_get_raw = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_name = b"dltensor"


def _pointer(capsule: Any) -> Any:
    return ctypes.cast(_get(capsule, _name), ctypes.POINTER(_DLManagedTensor))


def _deleted(at: int) -> None:
    """What a consumer calls when it needs the tensor no more, from any thread."""
    _exported.pop(at, None)


def _dropped(capsule: int) -> None:
    """Of a capsule that nobody has consumed: a consumer renames it."""
    if _is_valid(capsule, _name):
        _exported.pop(_get_raw(capsule, _name) or 0, None)


_callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_delete, _drop = _callback(_deleted), _callback(_dropped)
# Consumers may call them until the process ends: they stay.
_immortal: Callable[[Any], None] = lambda f: _api.Py_IncRef(ctypes.py_object(f))  # noqa: E731
for _f in (_delete, _drop):
    _immortal(_f)


def _capsule(array: DeviceArray) -> Any:
    n = len(array.shape)
    shape, strides = (ctypes.c_int64 * n)(*array.shape), (ctypes.c_int64 * n)()
    step = 1
    for i in reversed(range(n)):
        strides[i] = step
        step *= array.shape[i]
    m = _DLManagedTensor()
    t = m.tensor
    t.data, t.ndim = array.address, n
    t.device_type, t.device_id = array.__dlpack_device__()
    t.code, t.bits, t.lanes = 2, 32, 1
    t.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    t.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    m.deleter = ctypes.cast(_delete, ctypes.c_void_p)
    at = ctypes.addressof(m)
    _exported[at] = (m, shape, strides, array)
    return _new_capsule(at, _name, ctypes.cast(_drop, ctypes.c_void_p))
