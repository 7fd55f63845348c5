"""plan.export(folder): what is written, and which plans can be."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...kernels import forge
from ...kernels.cpu import isa
from ...kernels.objects import object_code
from ...primitives.errors import ArgumentError, Unsupported
from ..bound import Bound
from ..program import FIRST_EXTERNAL, Program
from .loader import Argument, LevelObject, header, loader
from .words import Words

if TYPE_CHECKING:
    from ..plan import TilingPlan

_CLASH = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long memory "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while".split()
)


@dataclass(frozen=True)
class Export:
    """What was written.

    folder   where
    header   NAME.h      source  NAME.c, the loader
    objects  {level: object file}, the preferred level first
    library  the shared library of all of it, or None where there is no C compiler (CC, cc or gcc) to link it
    """

    folder: Path
    header: Path
    source: Path
    objects: dict[str, Path]
    library: Path | None


def export(
    plan: TilingPlan,
    folder: str | os.PathLike[str],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    name: str | None = None,
    levels: Sequence[str] | None = None,
    link: bool = True,
) -> Export:
    """Write a plan as machine code for C programs: an object for each instruction set, NAME.h, and a loader NAME.c.

    shapes  {input: shape}: the sizes that it is exported for; left out where they are fixed
    name    of the functions and files; by default the pipeline's
    levels  instruction sets, of those that this machine has; by default all of them
    link    whether to link a shared library too, where a C compiler is found

    The code runs on the calling thread and gives the same bytes as the plan. Raises Unsupported for a plan with steps
    that run in Python, with states, or with an output that is an input; ArgumentError for sizes that stay open.
    """
    name = _identifier(name or plan.pipe.name)
    asked = levels if levels is not None else [level.name for level in reversed(isa.available())]
    if not asked:
        raise ArgumentError("levels= names no instruction set")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    arguments: list[Argument] = []
    objects: dict[str, Path] = {}
    found: list[LevelObject] = []
    for level in asked:
        bound = _bound_at(plan, isa.select(level).name, shapes)
        arguments = _arguments(bound)
        program, words = _program(bound, f"{name}_{level}")
        facts = _facts(bound)
        symbol = words.layout(program, facts)
        entries = {n: e for n, e in words.entries.items()}
        code, features = object_code(entries, "\n".join(words.globals) + "\n", [symbol], isa.select(level).features)
        objects[level] = target / f"{name}_{level}.o"
        objects[level].write_bytes(code)
        found.append(LevelObject(level, symbol, features))
    files = [path.name for path in objects.values()]
    result = Export(target, target / f"{name}.h", target / f"{name}.c", objects, None)
    result.header.write_text(header(name, arguments, files), encoding="ascii")
    result.source.write_text(loader(name, arguments, found), encoding="ascii")
    if not link:
        return result
    return Export(target, result.header, result.source, objects, _linked(result, name, files))


def _bound_at(plan: TilingPlan, level: str, shapes: Mapping[str, tuple[int, ...]] | None) -> Bound:
    """The plan, laid out for one thread and an instruction set."""
    mine = plan.executor
    same = type(mine)(
        1, backend=mine.backend, fuse=mine.fuse, chain=mine.chain, isa=level, numerics=mine.numerics, tuned=False
    )
    at_level = same.compile(plan.pipe)
    if plan.pipe.of_kind("state"):
        raise Unsupported(
            f"pipeline {plan.pipe.name!r} has states, {', '.join(plan.pipe.of_kind('state'))}, which an exported plan "
            f"does not keep; make them inputs and outputs"
        )
    if forge.jit_disabled():
        raise Unsupported("NUMBA_DISABLE_JIT is set: there is no machine code to export")
    binding = at_level.prepare(dict(shapes or {}))
    return Bound(at_level, binding)


def _program(bound: Bound, prefix: str) -> tuple[str, Words]:
    python = {item.step.name: item.python for item in bound.binding.laid if item.python}
    if python:
        steps = "; ".join(f"{step}: {why}" for step, why in python.items())
        raise Unsupported(f"these steps run in Python and cannot be exported: {steps}")
    if bound._copies:
        names = ", ".join(name for name, _ in bound._copies)
        raise Unsupported(
            f"output {names} is an input, a constant or another output as it is; export it once, computed"
        )
    constants = [a for a in bound.plan.binder.constants.values() if hasattr(a, "nbytes")]
    words = Words(prefix, constants)
    programs = [part for part in bound.binding.parts if isinstance(part, Program)]
    return words.program(programs[0] if programs else Program(())), words


def _arguments(bound: Bound) -> list[Argument]:
    plan, taken = bound.plan, set()
    found = []
    for label, value in [*plan._wanted.items(), *plan._outputs.items()]:
        where = bound.binding.placed[value.name]
        if value.dtype is None:
            raise Unsupported(f"argument {label!r} is a function, which C cannot give")
        c_name = _identifier(label)
        while c_name in taken or c_name in _CLASH:
            c_name += "_"
        taken.add(c_name)
        found.append(Argument(c_name, value.dtype.name, where.shape, value.kind == "result"))
    return found


def _facts(bound: Bound) -> list[int]:
    """Bases, bytes of the arena and of a thread's own memory, alignment; then the base of each argument."""
    binding, plan = bound.binding, bound.plan
    at = {name: FIRST_EXTERNAL + n for n, name in enumerate(binding.externals)}
    places = [at[value.name] for value in [*plan._wanted.values(), *plan._outputs.values()]]
    return [binding.bases, binding.arena_bytes + 64, binding.local_bytes + 64, max(128, plan.binder.align), *places]


def _identifier(text: str) -> str:
    made = re.sub(r"\W", "_", text, flags=re.ASCII)
    return made if made and not made[0].isdigit() else f"_{made}"


def _linked(made: Export, name: str, files: Sequence[str]) -> Path | None:
    """The shared library, or None without a C compiler. Raises Unsupported where the compiler refuses."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    library = made.folder / f"lib{name}.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", library.name, made.source.name, *files, "-lm"]
    done: Any = subprocess.run(command, cwd=made.folder, capture_output=True, text=True)
    if done.returncode:
        raise Unsupported(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    return library
