"""greta from Python: models, checks and benchmarks of a process of greta's, over a pipe.

    import greta

    with greta.load("model.gguf") as model:
        for piece in model.generate("Once upon a time", max_new_tokens=64):
            print(piece, end="", flush=True)

docs/python.md goes through it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._binary import find_binary
from ._device import DeviceArray
from ._errors import (
    ArgumentTypeError,
    BinaryNotFoundError,
    BusyError,
    CanceledError,
    DeviceError,
    GateError,
    GretaError,
    InternalError,
    MismatchError,
    MissingPackageError,
    NoisyError,
    OutOfMemoryError,
    ProcessDied,
    ProtocolError,
    UnsupportedError,
    UsageError,
    VersionError,
)
from ._generation import Answer, AsyncGeneration, Generation, Piece
from ._model import CheckReport, Model, ModelInfo, Prompt, Session, Tokenizer, load
from ._process import Process, default_process
from ._shared import SharedMemory, empty
from ._version import __version__

if TYPE_CHECKING:
    from .bench._run import Bench

    bench = Bench()  # the module greta.bench, which can be called
else:
    from . import bench

__all__ = [
    "Answer",
    "ArgumentTypeError",
    "AsyncGeneration",
    "BinaryNotFoundError",
    "BusyError",
    "CanceledError",
    "CheckReport",
    "DeviceArray",
    "DeviceError",
    "GateError",
    "Generation",
    "GretaError",
    "InternalError",
    "MismatchError",
    "MissingPackageError",
    "Model",
    "ModelInfo",
    "NoisyError",
    "OutOfMemoryError",
    "Piece",
    "Process",
    "ProcessDied",
    "Prompt",
    "ProtocolError",
    "Session",
    "SharedMemory",
    "Tokenizer",
    "UnsupportedError",
    "UsageError",
    "VersionError",
    "__version__",
    "bench",
    "default_process",
    "empty",
    "find_binary",
    "load",
]
