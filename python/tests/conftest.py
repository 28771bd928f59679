"""What tests share. The program is the installed wheel's, or GRETA_BINARY; the models are the repository's."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import greta

ROOT = Path(__file__).resolve().parents[2]

# Tests must not depend on what the user has configured, nor leave anything with the user.
_home = tempfile.mkdtemp(prefix="greta-py")
for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "GRETA_LOCKS"):
    os.environ[name] = _home

# A shell starts what runs in its background with SIGINT ignored, and so would be what the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tolstoy() -> Path:
    """A Llama of 2.7 million weights."""
    return ROOT / "testdata" / "tolstoy-2.7m"


@pytest.fixture(scope="session")
def process() -> Iterator[greta.Process]:
    with greta.Process() as p:
        yield p


@pytest.fixture(scope="session")
def model(tolstoy: Path, process: greta.Process) -> Iterator[greta.Model]:
    with greta.load(tolstoy, context=256, process=process) as m:
        yield m


@pytest.fixture(scope="session")
def block(process: greta.Process) -> Iterator[greta.Model]:
    """One small block on synthetic weights; rows of 64."""
    with greta.load("mlp_block", set={"D": 64, "F": 128}, kv="f32", context=4096, process=process) as m:
        yield m
