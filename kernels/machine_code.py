"""Machine code as the cache keeps it, and how it is linked into a process without the compiler that made it.

Numba would first load every module that it can compile with, which takes longer than most programs run. All that
machine code needs are the addresses of the symbols that it names; they are looked up before anything is linked,
because a linker that misses one ends the process.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import llvmlite.binding as llvm

_SYMTAB, _GLOBAL = 2, 1  # ELF: type of the section with the symbols; binding of one that is strong and seen by all
_UNDEFINED, _COMMON = 0, 0xFFF2  # section of a symbol that is elsewhere; of zeros that are shared


@dataclass(frozen=True)
class MachineCode:
    """An object file, the function in it that is called, and the symbols it needs from elsewhere (None: not known)."""

    object: bytes
    function: str
    needs: tuple[str, ...] | None

    def dumps(self) -> bytes:
        """As bytes; `loads` reads them."""
        head = json.dumps({"function": self.function, "needs": self.needs}).encode()
        return struct.pack("<Q", len(head)) + head + self.object

    @staticmethod
    def loads(content: bytes) -> MachineCode:
        """Raises ValueError, KeyError, TypeError or struct.error for bytes that `dumps` did not make."""
        (length,) = struct.unpack_from("<Q", content)
        head = json.loads(content[8 : 8 + length])
        needs = head["needs"]
        return MachineCode(
            content[8 + length :], str(head["function"]), needs if needs is None else tuple(map(str, needs))
        )

    def missing(self) -> list[str] | None:
        """Which of the needed symbols this process does not have yet; None where the needs are not known."""
        return None if self.needs is None else [name for name in self.needs if not llvm.address_of_symbol(name)]

    def link(self) -> int:
        """The function's address, which stays valid as long as the process lives. Nothing may be missing.

        Linked code is never taken out again: plans and tables hold bare addresses, and helping threads sleep in it.
        """
        # An engine takes its target machine along when it goes, so each has one of its own.
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(self.object))
        engine.finalize_object()
        address = engine.get_function_address(self.function)
        if not address:
            raise ValueError(f"there is no function {self.function}")
        engine.detach()
        return int(address)


def link_all(codes: Sequence[MachineCode]) -> list[int]:
    """The addresses of several functions that one engine links at once; they stay valid as `MachineCode.link`'s do.

    Nothing may be missing, and no two objects may define a name for different things (`own_symbols`).
    """
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    for code in codes:
        engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code.object))
    engine.finalize_object()
    addresses = [engine.get_function_address(code.function) for code in codes]
    for code, address in zip(codes, addresses, strict=True):
        if not address:
            raise ValueError(f"there is no function {code.function}")
    engine.detach()
    return list(map(int, addresses))


def own_symbols(file: bytes) -> frozenset[str] | None:
    """The names that an object file defines for all of its engine to see; None where that is not known.

    Left out are zeros that whoever comes first reserves (common symbols), and what is the same in every object (weak ones).
    """
    found = _symbols(file)
    if found is None:
        return None
    return frozenset(
        name for name, binding, section in found if section not in (_UNDEFINED, _COMMON) and binding == _GLOBAL
    )


def undefined_symbols(file: bytes) -> tuple[str, ...] | None:
    """The symbols that an object file needs; None unless it is 64-bit little-endian ELF (System V ABI, chapter 4)."""
    found = _symbols(file)
    return None if found is None else tuple(sorted({name for name, _, section in found if section == _UNDEFINED}))


def _symbols(file: bytes) -> list[tuple[str, int, int]] | None:
    """(name, binding, section) of each symbol that has a name."""
    if file[:6] != b"\x7fELF\x02\x01":
        return None
    (at,) = struct.unpack_from("<Q", file, 0x28)
    size, count = struct.unpack_from("<HH", file, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", file, at + size * n) for n in range(count)]
    found = []
    for _, kind, _, _, start, length, names, _, _, item in sections:
        if kind != _SYMTAB:
            continue
        text = sections[names][4]
        for where in range(start + item, start + length, item):  # the first one is nobody
            name, info, _, section = struct.unpack_from("<IBBH", file, where)
            if name:
                found.append((file[text + name : file.index(b"\0", text + name)].decode(), info >> 4, section))
    return found
