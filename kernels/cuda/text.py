"""Text of kernels that is generated: parameters with their arguments, and places in strided operands."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Sequence
from typing import Any

from .launch import Argument, Launch


class Parameters:
    """The parameters of a kernel as they are added, each with its type and what is passed."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.types: list[str] = []
        self.args: list[Argument] = []
        self.writes: list[int] = []

    def pointer(self, name: str, dtype: str, arg: Argument, *, written: bool = False) -> None:
        if written:
            self.writes.append(len(self.names))
        self._add(name, f"{dtype}*", arg)

    def number(self, name: str, value: int) -> None:
        self._add(name, "s64", int(value))

    def _add(self, name: str, dtype: str, arg: Argument) -> None:
        self.names.append(name)
        self.types.append(dtype)
        self.args.append(arg)

    def launch(self, kernel: Any, grid: Sequence[int], block: Sequence[int]) -> Launch:
        return Launch(kernel, tuple(self.types), _three(grid), _three(block), tuple(self.args), tuple(self.writes))


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def coordinates(flat: str, sizes: Sequence[str], names: Sequence[str], wide: bool = False) -> list[str]:
    """Lines that take a flat index apart, innermost axis last. wide: it may be 2**31 or more."""
    lines, rest = [], flat
    for name, size in list(zip(names, sizes, strict=True))[:0:-1]:
        if wide:
            lines += [f"{name} = {rest} % {size}", f"rest_{name} = {rest} // {size}"]
        else:
            words = f"np.int32({rest}), np.int32({size})"
            lines += [f"{name} = ptx.rem_u32({words})", f"rest_{name} = ptx.div_u32({words})"]
        rest = f"rest_{name}"
    return [*lines, f"{names[0]} = {rest}"] if names else []


WIDE = 2**31  # indices from here on need 64 bits


_made: dict[str, Any] = {}


def made(text: str, name: str) -> Any:
    """The kernel that a text defines; the same object for the same text."""
    found = _made.get(text)
    if found is None:
        filename = f"<tilework {name} {hashlib.sha256(text.encode()).hexdigest()[:12]}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        scope: dict[str, Any] = {"__name__": "tilework_cuda_generated"}
        exec(compile(text, filename, "exec"), scope)
        found = _made[text] = scope[name]
    return found


def indented(lines: Sequence[str], depth: int) -> str:
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)
