"""greta and PyTorch: modules become model files, models become operators, products of 8-bit floats with scales.

docs/pytorch.md goes through it. It needs PyTorch 2.6 or later.
"""

from .export import Export, ExportError, Problem, export
from .op import Operator, empty, op
from .scaled import Prepacked, prepack, scaled_mm

__all__ = ["Export", "ExportError", "Operator", "Prepacked", "Problem", "empty", "export", "op", "prepack", "scaled_mm"]
