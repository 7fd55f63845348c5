"""The compiled functions of linear, by address: modules that hold micro-kernels and write down where they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from ... import forge


@dataclass(frozen=True)
class Functions:
    """What one module holds. Each is what `emit` of its home makes a function of."""

    home: str
    names: tuple[str, ...]
    functions: tuple[Any, ...]

    def source(self) -> str:
        """Text of the generated module; its entry writes the addresses, in order."""
        lines = [
            f"from {self.home} import {', '.join((*self.names, 'emit'))}",
            "from tilework.kernels.cpu.gemm.microkernel import table",
            "from tilework.kernels.cpu.simd import put_s64",
            "",
            "functions = table((",
            *(f"    {function!r}," for function in self.functions),
            "), emit)",
            "",
            "",
            "def entry(bases, block, ranges):",
            f"    for n in range({len(self.functions)}):",
            "        put_s64(bases[0], n, functions(n))",
            "    return 0",
            "",
        ]
        return "\n".join(lines)


@cache
def addresses(functions: Functions) -> tuple[Any, Any]:
    """An int64 array of the functions' addresses, and what keeps them alive."""
    made = forge.table(functions.source(), len(functions.functions))
    return made.words, made
