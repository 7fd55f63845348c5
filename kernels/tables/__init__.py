"""Steps over rows of tables: rows chosen, keys found, groups summed, orders and windows. Columns are one-dimensional."""

from .group import GroupAggregate, GroupResult
from .keys import KeyCodes, KeyFind, KeyTable
from .rows import Compact, RowCount, SortOrder
from .sketch import Sketch, SketchQuantile
from .window import Rolling

__all__ = [
    "Compact",
    "GroupAggregate",
    "GroupResult",
    "KeyCodes",
    "KeyFind",
    "KeyTable",
    "Rolling",
    "RowCount",
    "Sketch",
    "SketchQuantile",
    "SortOrder",
]
