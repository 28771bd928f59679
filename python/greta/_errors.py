"""What can go wrong, a class each."""

from __future__ import annotations

from typing import Any


class GretaError(Exception):
    """Something failed in greta. `code` is its class as the process names it."""

    code = "failed"


class UsageError(GretaError, ValueError):
    """A wrong argument, option or file. The message says which, and what to do."""

    code = "usage"


class ArgumentTypeError(UsageError, TypeError):
    """An argument of a wrong type. It is a UsageError, and Python's TypeError too."""


class DeviceError(GretaError):
    """There is no such device, or its driver is missing."""

    code = "device"


class MismatchError(GretaError):
    """A result differs from the reference by more than it may."""

    code = "mismatch"


class GateError(GretaError):
    """A performance gate found a regression."""

    code = "gate"


class OutOfMemoryError(GretaError, MemoryError):
    """The device or the host has too little memory."""

    code = "memory"


class NoisyError(GretaError):
    """A measurement was too noisy to tell."""

    code = "noisy"


class UnsupportedError(GretaError):
    """This greta, model or device cannot do that."""

    code = "unsupported"


class BusyError(GretaError):
    """Too many requests are under way."""

    code = "busy"


class CanceledError(GretaError):
    """The request was cancelled, or its model closed."""

    code = "canceled"


class InternalError(GretaError):
    """A mistake of greta's own."""

    code = "internal"


class ProtocolError(GretaError):
    """The two sides do not understand each other: versions differ, or what runs is no greta."""

    code = "protocol"


class VersionError(ProtocolError):
    """The package and the greta that it found speak different versions of the protocol."""

    code = "version"


class ProcessDied(GretaError):
    """greta's process ended. `returncode` is its exit code, negative for a signal; `stderr` its last lines."""

    code = "died"

    def __init__(self, message: str, returncode: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.returncode = returncode
        self.stderr = stderr


class BinaryNotFoundError(GretaError, FileNotFoundError):
    """There is no greta program: neither in the package, nor in GRETA_BINARY, nor on the PATH."""

    code = "binary"

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class MissingPackageError(GretaError, ImportError):
    """An optional package is not installed."""

    code = "package"


_by_code: dict[str, type[GretaError]] = {
    c.code: c
    for c in (
        UsageError,
        DeviceError,
        MismatchError,
        GateError,
        OutOfMemoryError,
        NoisyError,
        UnsupportedError,
        BusyError,
        CanceledError,
        InternalError,
        ProtocolError,
        VersionError,
    )
}


def from_wire(error: dict[str, Any]) -> GretaError:
    """The exception of an error that the process sent."""
    code = str(error.get("code", "failed"))
    e = _by_code.get(code, GretaError)(str(error.get("message", code)))
    e.code = code
    return e


def need(package: str, what: str) -> Any:
    """Imports an optional package, or says what it is needed for."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as e:
        raise MissingPackageError(
            f"{what} needs the package {package.split('.')[0]}: pip install {package.split('.')[0]}"
        ) from e
