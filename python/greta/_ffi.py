"""What a program that JAX compiled for a GPU calls: a handler of XLA's foreign function interface, in ctypes.

The structures are those of xla/ffi/api/c_api.h, major version 0. By its rules a minor version appends fields only, and
each structure says its size: what is read here is checked against that, so that another layout is an error of the call.
XLA asks a handler for its version when it is registered, and refuses one that it cannot call.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

from ._errors import UnsupportedError

_EXECUTE = 3  # of XLA_FFI_ExecutionStage
_F32 = 11  # of XLA_FFI_DataType
_INTERNAL, _METADATA, _BUFFER, _SCALAR = 13, 1, 1, 3  # an error's code; kinds of extension, argument, attribute


class _Extension(ctypes.Structure):
    pass


_Extension._fields_ = [
    ("size", ctypes.c_size_t),
    ("type", ctypes.c_int),
    ("next", ctypes.POINTER(_Extension)),
]
_HEAD: list[Any] = [("size", ctypes.c_size_t), ("extension", ctypes.POINTER(_Extension))]


class _Version(ctypes.Structure):
    _fields_ = [*_HEAD, ("major", ctypes.c_int), ("minor", ctypes.c_int)]


class _Metadata(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("version", _Version), ("traits", ctypes.c_uint32)]


class _MetadataExtension(ctypes.Structure):
    _fields_ = [("base", _Extension), ("metadata", ctypes.POINTER(_Metadata))]


class _Buffer(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("type", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    ]


class _Scalar(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("value", ctypes.POINTER(ctypes.c_int64))]


class _Values(ctypes.Structure):  # arguments, and results
    _fields_ = [
        *_HEAD,
        ("count", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("values", ctypes.POINTER(ctypes.POINTER(_Buffer))),
    ]


class _Attributes(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("count", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("names", ctypes.c_void_p),
        ("values", ctypes.POINTER(ctypes.POINTER(_Scalar))),
    ]


class _StreamGet(ctypes.Structure):
    _fields_ = [*_HEAD, ("context", ctypes.c_void_p), ("stream", ctypes.c_void_p)]


class _ErrorCreate(ctypes.Structure):
    _fields_ = [*_HEAD, ("message", ctypes.c_char_p), ("code", ctypes.c_int)]


class _Api(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("version", _Version),
        ("internal", ctypes.c_void_p),
        ("error_create", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_ErrorCreate))),
        ("error_message", ctypes.c_void_p),
        ("error_destroy", ctypes.c_void_p),
        ("register", ctypes.c_void_p),
        ("stream_get", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_StreamGet))),
    ]


class _Frame(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("api", ctypes.POINTER(_Api)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", _Values),
        ("results", _Values),
        ("attributes", _Attributes),
    ]


class Place:
    """A dense buffer of XLA's, of float32: its address and sizes."""

    def __init__(self, b: _Buffer) -> None:
        _whole(b, "a buffer")
        if b.type != _F32:
            raise UnsupportedError(f"XLA gives a buffer of its type {b.type}: float32 is expected")
        self.address = int(b.data or 0)
        self.shape = [int(b.dims[i]) for i in range(b.rank)]


#: What is called, by the number that the compiled program has: with the kind of the GPU, the stream's handle, the argument
#: and the place of the result.
Target = Callable[[str, int, Place, Place], None]
_targets: dict[int, Target] = {}
_lock = threading.Lock()


def add(target: Target) -> int:
    """Keeps what is to be called, and gives its number."""
    with _lock:
        number = len(_targets)
        _targets[number] = target
        return number


def _whole(s: Any, what: str) -> None:
    if s.size < ctypes.sizeof(type(s)) - ctypes.alignment(type(s)) + 1:  # theirs leave the padding at the end out
        raise UnsupportedError(f"XLA's interface has another layout than this version of greta knows ({what})")


def _call(frame: _Frame, kind: str) -> None:
    _whole(frame, "a call")
    for part in (frame.arguments, frame.results, frame.attributes):
        _whole(part, "a call's parts")
        if part.count != 1:
            raise UnsupportedError("one argument, one result and one attribute are expected")
    if (frame.arguments.types[0], frame.results.types[0], frame.attributes.types[0]) != (_BUFFER, _BUFFER, _SCALAR):
        raise UnsupportedError("buffers and a number are expected")
    api = frame.api.contents
    _whole(api, "its functions")
    get = _StreamGet(ctypes.sizeof(_StreamGet), None, frame.context, None)
    if api.stream_get(ctypes.byref(get)):
        raise UnsupportedError("XLA gives no stream")
    target = _targets[frame.attributes.values[0].contents.value[0]]
    target(kind, int(get.stream or 0), Place(frame.arguments.values[0].contents), Place(frame.results.values[0].contents))


def _handle(kind: str, at: Any) -> int | None:
    try:
        frame = at.contents
        if frame.extension and frame.extension.contents.type == _METADATA:
            asked = ctypes.cast(frame.extension, ctypes.POINTER(_MetadataExtension)).contents.metadata.contents
            known = frame.api.contents.version if frame.api else None
            asked.version.major, asked.version.minor = 0, known.minor if known and known.major == 0 else 1
            asked.traits = 0
        elif frame.stage == _EXECUTE:
            _call(frame, kind)
        return None
    except BaseException as e:  # it must not leave through XLA
        said = _ErrorCreate(ctypes.sizeof(_ErrorCreate), None, f"{type(e).__name__}: {e}".encode(), _INTERNAL)
        made: int | None = at.contents.api.contents.error_create(ctypes.byref(said))
        return made


_Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Frame))
#: By XLA's name of a platform. On the host there is none: a Ctrl-C is raised in whatever Python runs in the main thread, there at
#: the handler's first instruction too, and no error could be given. XLA may call them until the process ends: they stay.
handlers = {
    platform: _Handler(functools.partial(_handle, kind)) for platform, kind in {"CUDA": "cuda", "ROCM": "hip"}.items()
}
for _h in handlers.values():
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_h))
