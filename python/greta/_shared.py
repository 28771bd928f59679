"""Tensors in memory that this process and greta's both have mapped."""

from __future__ import annotations

import math
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import _arguments
from ._errors import ArgumentTypeError, OutOfMemoryError, UnsupportedError, UsageError, need

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]

#: How memory is shared with greta on this system; empty: tensors go through the pipe.
SHARING = "memfd" if sys.platform == "linux" and hasattr(os, "memfd_create") else ""

#: From how many bytes on a tensor is put into shared memory to be sent: below, a copy costs less.
MINIMUM = 128 << 10

_F_ADD_SEALS = 1033
_F_SEAL_SHRINK = 2
_F_SEAL_GROW = 4


class SharedMemory:
    """Memory that greta can map: a file without a name, gone when nobody has it open or mapped any more.

    It lives as long as this object, or an array in it, does.
    """

    def __init__(self, nbytes: int) -> None:
        if not SHARING or sys.platform != "linux":
            raise UnsupportedError("memory is shared with greta on Linux only; arrays are copied through the pipe here")
        nbytes = _arguments.whole("nbytes", nbytes, 1, 1 << 200)
        import fcntl

        self.nbytes = nbytes
        self._fd = os.memfd_create("greta-py", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, nbytes)
            fcntl.fcntl(self._fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW)
            self.buffer = mmap.mmap(self._fd, nbytes)
        except BaseException as e:
            os.close(self._fd)
            if isinstance(e, (OSError, OverflowError)):
                raise OutOfMemoryError(f"{nbytes} bytes of shared memory cannot be had: {e}") from e
            raise
        self._finalizer = weakref.finalize(self, os.close, self._fd)
        self.pid = os.getpid()

    @property
    def path(self) -> str:
        """Where greta opens it."""
        if self.pid != os.getpid():
            raise UsageError("this shared memory belongs to the process that this one was forked of")
        return f"/proc/{self.pid}/fd/{self._fd}"


_lock = threading.Lock()
_regions: dict[int, tuple[int, weakref.ref[SharedMemory]]] = {}  # by address: bytes, memory


def empty(shape: int | Sequence[int]) -> Array:
    """An array of float32 in shared memory, zero at first: greta reads it without a copy.

    `torch.from_dlpack(greta.empty(shape))` is a tensor in the same memory. Raises UnsupportedError where memory is not
    shared (elsewhere than on Linux); an ordinary array serves there.
    """
    np = need("numpy", "greta.empty")
    sizes: Any = (shape,) if hasattr(shape, "__index__") else shape
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Iterable):
        raise _arguments.wrong("shape", shape, "a whole number or several")
    dims = tuple(_arguments.whole("shape", d, 0, 1 << 100) for d in sizes)
    count = math.prod(dims)
    memory = SharedMemory(max(4, 4 * count))
    array = np.frombuffer(_Owner(memory).buffer, dtype=np.float32, count=count).reshape(dims)
    address = int(array.__array_interface__["data"][0])
    with _lock:
        for at in [a for a, (_, ref) in _regions.items() if ref() is None]:
            del _regions[at]
        _regions[address] = (memory.nbytes, weakref.ref(memory))
    result: Array = array
    return result


class _Owner:
    """Keeps a SharedMemory alive as long as an array has its buffer."""

    def __init__(self, memory: SharedMemory) -> None:
        import ctypes

        buffer = (ctypes.c_char * memory.nbytes).from_buffer(memory.buffer)
        buffer._greta_memory = memory  # type: ignore[attr-defined]
        self.buffer = buffer


def locate(array: Any) -> tuple[SharedMemory, int] | None:
    """The shared memory in which an array lies, and its first byte there."""
    address = int(array.__array_interface__["data"][0])
    with _lock:
        for at, (nbytes, ref) in _regions.items():
            if at <= address and address + array.nbytes <= at + nbytes:
                memory = ref()
                if memory is not None and memory.pid == os.getpid():
                    return memory, address - at
    return None


def as_array(x: Any) -> Array:
    """x as a C-contiguous array of float32, without a copy where it is one: NumPy's, or of DLPack on the host."""
    np = need("numpy", "a tensor as an argument")
    if not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__"):
        device = x.__dlpack_device__()
        if int(device[0]) not in (1, 3, 11):  # host, pinned host of CUDA and of ROCm
            raise UnsupportedError(
                f"the tensor lies on a device (DLPack's type {int(device[0])}): here greta takes tensors of the host"
            )
        if hasattr(x, "resolve_neg"):
            x = x.resolve_neg()  # PyTorch hands a tensor that is to be negated over as it lies
        try:
            x = np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError, ValueError) as e:
            hint = "give float32 that wants no gradient: PyTorch's x.detach().float(), JAX's x.astype('float32')"
            raise UsageError(f"the tensor cannot be handed over: {str(e).rstrip('.')}; {hint}") from e
    given = x
    try:
        x = np.asarray(x)
    except (TypeError, ValueError) as e:
        raise UsageError(f"the tensor is no array of numbers: {str(e).rstrip('.')}") from e
    if x.dtype.kind not in "fiu":
        what = f"an array of {x.dtype}" if isinstance(given, np.ndarray) else _arguments.shown(given)
        raise ArgumentTypeError(f"the tensor is {what}: an array of numbers is expected, float32 for no copy")
    result: Array = np.ascontiguousarray(x, dtype=np.float32)
    return result


def received(shape: list[int], path: str, offset: int, payload: memoryview) -> Any:
    """The tensor of float32 that greta sent: an array where NumPy is installed, else a memoryview of that shape."""
    count = 1
    for d in shape:
        count *= d
    buffer: Any = bytearray(payload)  # PyTorch takes no memory that may not be written
    if path:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            buffer = mmap.mmap(fd, offset + 4 * count)
        finally:
            os.close(fd)
    try:
        import numpy as np
    except ImportError:
        view = memoryview(buffer)[offset : offset + 4 * count]
        return view.cast("B").cast("f", shape=shape) if count else view
    return np.frombuffer(buffer, dtype=np.float32, count=count, offset=offset).reshape(shape)
