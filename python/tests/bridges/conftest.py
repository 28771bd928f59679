"""Tests of PyTorch, JAX and notebooks are skipped without those; GRETA_REQUIRE_BRIDGES names what must be there."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def needed(name: str) -> Any:
    """Imports a package, or skips the file's tests."""
    if name in os.environ.get("GRETA_REQUIRE_BRIDGES", "").split(","):
        return importlib.import_module(name)
    return pytest.importorskip(name)
