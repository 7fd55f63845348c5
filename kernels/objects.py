"""Compiled entries as an object file: machine code that needs neither Python nor Numba."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

from ..primitives.errors import Unsupported
from . import forge
from .entry import RAISED

# What an object may call: the C library and its mathematics, each of which is exact or is what the running code calls.
_MATH = "fma rint roundeven floor ceil trunc sqrt fmod fabs copysign nearbyint round ldexp frexp".split()
C_LIBRARY = frozenset(["memcpy", "memset", "memmove", *_MATH, *(f"{name}f" for name in _MATH)])

# Views are released like what was allocated, if only to find that there is nothing to release. Whatever does allocate
# also calls what allocates, and is refused.
_NEVER = """
define internal void @NRT_MemInfo_call_dtor(ptr %nothing) {
  ret void
}
"""

_WRAPPER = """
define i32 @{name}(ptr %bases, ptr %block, ptr %ranges) {{
  %result = alloca i32
  %raised = alloca ptr
  store i32 0, ptr %result
  store ptr null, ptr %raised
  %status = call i32 @"{native}"(ptr %result, ptr %raised, ptr %bases, ptr %block, ptr %ranges)
  %fine = icmp eq i32 %status, 0
  %value = load i32, ptr %result
  %code = select i1 %fine, i32 %value, i32 {raised}
  ret i32 %code
}}
"""


def object_code(
    entries: Mapping[str, forge.Entry], data: str, exported: Sequence[str], features: Sequence[str]
) -> tuple[bytes, tuple[str, ...]]:
    """One object with these entries under these names, and more data. Returns it and the features that it needs.

    data       LLVM text that defines globals; it may name the entries
    exported   names of globals of it that others may see
    features   LLVM feature names that code may use, beyond the architecture's least

    Raises Unsupported where an entry calls what no C program has.
    """
    modules = []
    needed = list(features)
    for name, made in entries.items():
        text, native = forge.llvm_ir(made)
        needed += [f for f in _named_features(text) if f not in needed]
        released = re.compile(r"^declare void @NRT_MemInfo_call_dtor\(ptr\).*$", re.MULTILINE)
        text = released.sub(lambda _: _NEVER, text)
        modules.append((name, text + _WRAPPER.format(name=name, native=native, raised=RAISED)))
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.get_process_triple()
    target = llvm.Target.from_triple(triple)
    base = "x86-64" if triple.startswith("x86_64") else "generic"
    machine = target.create_target_machine(
        cpu=base, features=",".join(f"+{f}" for f in needed), opt=3, reloc="pic", codemodel="default"
    )
    declared = "".join(f"declare i32 @{name}(ptr, ptr, ptr)\n" for name in entries)
    whole = _parsed(declared + data, triple, machine)
    whole.name = "tilework"
    for name, text in modules:
        part = _parsed(text, triple, machine)
        _keep_only(part, {name}, machine)
        whole.link_in(part)
    _keep_only(whole, set(exported), machine)
    foreign = [f.name for f in whole.functions if f.is_declaration and not f.name.startswith("llvm.")]
    foreign += [g.name for g in whole.global_variables if g.is_declaration]
    unknown = sorted(set(foreign) - C_LIBRARY)
    if unknown:
        raise Unsupported(
            f"what runs calls {', '.join(unknown)}, which only a Python process has; a step of your own that raises, "
            f"allocates or calls into Python cannot be exported"
        )
    return machine.emit_object(whole), tuple(needed)


def _parsed(text: str, triple: str, machine: Any) -> Any:
    text = re.sub(r'^target (datalayout|triple) = ".*"$', "", text, flags=re.MULTILINE)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = triple, str(machine.target_data)
    return module


def _keep_only(module: Any, names: set[str], machine: Any) -> None:
    """Make everything but these internal, and drop what nobody reaches then."""
    for thing in [*module.functions, *module.global_variables]:
        if not thing.is_declaration and thing.name not in names and not thing.name.startswith("llvm."):
            thing.linkage = "internal"
    passes = llvm.create_new_module_pass_manager()
    for _ in range(2):
        passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_dead_prototype_pass()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(0))
    passes.run(module, builder)


def _named_features(text: str) -> list[str]:
    """Features that a text asks for by an intrinsic of its own, beyond those of every level that has it."""
    return ["avx512bf16"] if "llvm.x86.avx512bf16" in text else []
