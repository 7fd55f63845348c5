"""Plans as machine code: an object for each instruction set, a C header and a loader, and nothing of Python."""

from .writing import Export, export

__all__ = ["Export", "export"]
