"""Machine code as the cache keeps it, and how it is linked into a process without the compiler that made it.

Numba would first load every module that it can compile with, which takes longer than most programs run. All that
machine code needs are the addresses of the symbols that it names; they are looked up before anything is linked,
because a linker that misses one ends the process.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import llvmlite.binding as llvm

_SYMTAB, _UNDEFINED = 2, 0  # ELF: type of the section with the symbols; section of a symbol that is elsewhere


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


def undefined_symbols(file: bytes) -> tuple[str, ...] | None:
    """The symbols that an object file needs; None unless it is 64-bit little-endian ELF (System V ABI, chapter 4)."""
    if file[:6] != b"\x7fELF\x02\x01":
        return None
    (at,) = struct.unpack_from("<Q", file, 0x28)
    size, count = struct.unpack_from("<HH", file, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", file, at + size * n) for n in range(count)]
    found = set()
    for _, kind, _, _, start, length, names, _, _, item in sections:
        if kind != _SYMTAB:
            continue
        text = sections[names][4]
        for where in range(start + item, start + length, item):  # the first one is nobody
            name, _, _, section = struct.unpack_from("<IBBH", file, where)
            if section == _UNDEFINED and name:
                found.add(file[text + name : file.index(b"\0", text + name)].decode())
    return tuple(sorted(found))
