"""greta and PyTorch: modules become model files."""

from .export import Export, ExportError, Problem, export

__all__ = ["Export", "ExportError", "Problem", "export"]
