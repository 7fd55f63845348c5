"""Mutants that no test can or should tell from what they were made of, and why.

A mutant that survives is explained by the first line below that holds its file, its line's text or its function, and
its rule. A text that is not in its file any more is found by a test, so that reasons do not outlive what they are of.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
REASONS = {
    "search": "chooses among plans that are all right; tests bound how good the choice is, not which it is",
    "pace": "measures or chooses whether threads pay; either choice runs the same program",
    "same": "what it gives is the same for every value that can come there",
    "again": "work that is done twice, or a result that is computed anew instead of kept",
    "text": "the wording or the spacing of what people read, or of a file that is read back the same",
    "words": "a number of the call or a word that what is called does not use here",
    "room": "takes more memory than it needs, and nothing else changes",
    "limit": "a limit against absurd files, of which the order of magnitude counts",
}


@dataclass(frozen=True)
class Alike:
    """Mutants of one place.

    file    in the package
    place   the text of the line, or "def" and the name of a function, all of whose survivors are meant
    reason  one of REASONS
    rules   beginnings of the rules that are meant; all where there are none
    """

    file: str
    place: str
    reason: str
    rules: tuple[str, ...] = ()


ALIKE: tuple[Alike, ...] = (
    # Where buffers of the arena go: an order is tried, and placed without overlap whatever it is
    *(Alike("primitives/arena.py", f"def {name}", "search") for name in ("best", "_fullest", "_rising", "_moved")),
    Alike("primitives/arena.py", "def _descending", "search"),
    Alike("primitives/arena.py", "gaps[gaps < size] = _NEVER", "search", ("Lt is",)),
    Alike(
        "primitives/arena.py",
        "self.aligned_bound = lower_bound((r.size + -r.size % r.align, r.first, r.last) for r in requests)",
        "search",
    ),
    Alike(
        "primitives/dlpack.py",
        "_kept.pop(_ManagedVersioned.from_address(managed).context or 0, None)",
        "same",
        ("0 is",),
    ),
    Alike("primitives/dlpack.py", "_kept.pop(_Managed.from_address(managed).context or 0, None)", "same", ("0 is",)),
    Alike(
        "primitives/dtypes.py",
        'array = array.astype(np.uint8, copy=False) if array.dtype.kind != "i" else array.astype(np.int8).view(np.uint8)',
        "same",
        ("NotEq is",),
    ),
    Alike(
        "primitives/quantization.py",
        "d.name for d in dtypes.DTYPES.values() if (d.is_integer and d.bits <= 32) or (d.is_float and d.bits <= 8)",
        "text",
    ),
    Alike("primitives/storage.py", "archive.writestr(member(GRAPH), json.dumps(graph, indent=1))", "text", ("1 is",)),
    Alike("primitives/layout.py", "low = first + sum(s for s in steps if s < 0)", "same", ("Lt is", "0 is")),
    Alike("primitives/conversion.py", "def _memory_order", "same", ("USub",)),
    # How often each axis is cut, and which steps run beside each other
    *(Alike("executors/cutting.py", f"def {name}", "search") for name in ("_counts", "_traffic", "cost_of")),
    Alike("executors/cutting.py", "if threads <= 1 or cost < SMALL:", "search"),
    Alike("executors/binding.py", "def _joins", "search"),
    Alike("executors/binding.py", "found.append(range(start, end))", "search"),
    Alike("executors/binding.py", "laid.cost += how.cost", "search"),
    Alike("executors/lowering.py", "if chain is not None and len(chain) > 1:", "same", ("Gt is",)),
    Alike(
        "executors/verify.py", "if len(edges) > 1 and not (edges[1:, 0] >= edges[:-1, 1]).all():", "same", ("Gt is",)
    ),
    Alike("executors/program.py", "step = r.ranges.strides[0] if len(r.ranges) > 1 else 0", "same", ("Gt is",)),
    # Whether threads pay, and what is kept from run to run
    Alike("executors/bound.py", "if self.pace is None or not self.pace.undecided:", "pace"),
    Alike("executors/bound.py", "self.pace.took(parallel, time.perf_counter() - start)", "pace"),
    Alike("executors/bound.py", "return self._timed(call, False)", "pace", ("False is",)),
    Alike("executors/bound.py", "return self._timed(together, True)", "pace", ("True is",)),
    Alike(
        "executors/bound.py",
        "if not self.wants_threads():  # also where this was bound before a fork and is called in the child",
        "pace",
    ),
    Alike("executors/bound.py", "self.pace = Pace() if binding.parallel and self.cost < SHORT else None", "pace"),
    Alike(
        "executors/bound.py",
        "if self.pace is not None and self.pace.undecided and len(self.binding.parts) == 1:",
        "pace",
    ),
    Alike(
        "executors/bound.py",
        "return self._parallel() and (self.pace is None or self.pace.parallel())",
        "pace",
        ("Or is", "Is is"),
    ),
    Alike("executors/program.py", "helpers.hire(workers - 1)", "pace"),
    Alike("executors/plan.py", "start = time.perf_counter() if bound.pace is not None else 0.0", "pace"),
    Alike(
        "executors/states.py",
        "single = {name: kinds[0] for name, kinds in found.items() if len(kinds) == 1 and name not in pipe.updates}",
        "same",
        ("And is",),
    ),
    Alike(
        "executors/bound.py",
        "if len(programs) == 1 and not copies and not (parallel and threads.exclusive()) and usable():",
        "again",
        ("And is",),
    ),
    Alike("executors/intervals.py", "for i in range(len(chain) - 1, -1, -1):", "again", ("1 is",)),
    Alike("executors/plan.py", "if type(given) is not dict:", "again", ("IsNot",)),
    Alike("executors/plan.py", "a.shape if contiguous or a.flags.c_contiguous else (a.shape, a.strides)", "again"),
    Alike("executors/program.py", "def team_address", "words"),
    Alike(
        "executors/program.py",
        "self.team[:TEAM] = workers, worker_address(), self.bases_address, self.bases.strides[0], 0, 0, int(wake)",
        "words",
        ("0 is",),
    ),
    Alike("executors/binding.py", "self.next = 0", "room"),
    Alike("executors/binding.py", "local.take(0)", "room", ("0 is",)),
    Alike("executors/bound.py", "if len(pool) < CONTEXTS:", "room"),
    Alike("primitives/svg.py", "WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 210, 44, 30, 60, 20", "text"),
    Alike("primitives/quantization.py", "if block > 0 and array.shape[i] > 1:", "same", ("And is",)),
    Alike("executors/program.py", "pitch = -(-bases // 8) * 8", "room", ("FloorDiv", "8 is")),
    Alike(
        "executors/states.py",
        "return bool(flags.c_contiguous and flags.writeable and flags.aligned and address_of(array) % max(align, 1) == 0)",
        "again",
        ("1 is", "Mod is"),
    ),
    Alike("executors/plan.py", "self.kept = 0", "again"),
    Alike("primitives/sizes.py", 'sign = "-" if coefficient < 0 else ""', "same", ("Lt is",)),
    Alike(
        "executors/program.py",
        "return forge.entry(forge.Native(dispatch.SERIAL, raw=True), 1, ()).address",
        "words",
        ("1 is",),
    ),
    Alike(
        "executors/lowering.py",
        'if not inputs or any(v.kind != "constant" or v.dtype is None for v in inputs) or not _pure(step):',
        "again",
        ("Is is",),
    ),
    Alike(
        "executors/binding.py",
        "parallel=self.threads > 1 and any(stage.tiles > 1 for item in laid for stage in item.stages),",
        "pace",
    ),
    Alike(
        "executors/states.py",
        "if 0 <= start and start + count <= array.shape[rows.axis]:  # else the step refuses, and writes nothing",
        "again",
        ("And is",),
    ),
    Alike("executors/states.py", "continue", "again"),
    Alike("primitives/memory.py", "before = -sum(s for s in steps if s < 0)", "same", ("Lt is", "0 is")),
    Alike("primitives/archives.py", "left = max(self._length - self.tell(), 0)", "same", ("0 is",)),
    Alike(
        "primitives/storage.py",
        "LARGEST_GRAPH = 64 * 2**20  # bytes of JSON; larger is refused before it is read",
        "limit",
    ),
    Alike(
        "primitives/memory.py",
        'self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, readonly)}',
        "words",
        ("3 is",),
    ),
)


@cache
def _lines(file: str) -> tuple[tuple[str, ...], dict[str, list[range]]]:
    """The stripped lines of a file, and where its functions are, each with those inside of it."""
    text = (PACKAGE / file).read_text(encoding="utf-8")
    found: dict[str, list[range]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.setdefault(node.name, []).append(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return tuple(line.strip() for line in text.splitlines()), found


def why(file: str, line: int, rule: str) -> str | None:
    """The reason why a mutant that survives is one that may; None where there is none."""
    lines, functions = _lines(file)
    for alike in ALIKE:
        if alike.file != file or (alike.rules and not rule.startswith(alike.rules)):
            continue
        name = alike.place.removeprefix("def ")
        if name != alike.place:
            if any(line in where for where in functions.get(name, ())):
                return alike.reason
        elif lines[line - 1] == alike.place:
            return alike.reason
    return None


def gone() -> list[str]:
    """Places that are not in their files, and reasons that there are not."""
    found = []
    for alike in ALIKE:
        lines, functions = _lines(alike.file)
        name = alike.place.removeprefix("def ")
        if alike.place not in lines and (name == alike.place or name not in functions):
            found.append(f"{alike.file}: {alike.place}")
        if alike.reason not in REASONS:
            found.append(f"{alike.file}: no reason {alike.reason!r}")
    return found
