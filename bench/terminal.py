"""Where tables are printed."""

from __future__ import annotations

from rich.console import Console


def wide_console() -> Console:
    """The terminal; where there is none, a page that no column of a table is cut on."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=160)
