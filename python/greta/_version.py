"""The package's version, which is that of greta's sources."""

__version__ = "0.1.0"
