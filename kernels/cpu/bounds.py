"""Takes out of captured text what is proven never to act: holding an index inside an array, a shift inside 31 bits.

Both stop LLVM from vectorising, because it does not see through the widening of the loop's counter. The proof is
interval arithmetic over counters of loops with known ends; whatever is not proven stays as it is.

Inner loops with a known end are given one that is hidden: LLVM unrolls short loops before it looks for vectors in them,
and then finds few. Where such a loop is as short as one vector, the loops around it are written out: left to LLVM, it is
given vectors that are longer than it, and runs one element after another (IQ4_XS: 0.10 ns a weight, and 1.5 ns before).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence

Interval = tuple[int, int]
WIDEST = (1 << 31) - 1
ONE_VECTOR = 16  # turns of a loop that one vector takes
SHORTEST = 8  # loops of fewer turns are better unrolled


def proven(text: str, function: str, sizes: Sequence[int]) -> str:
    """Captured text in which `function` knows the sizes of the arrays that it takes, in its order of arguments."""
    tree = ast.parse(text)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            names = [a.arg for a in node.args.args]
            node.body = _Loops(node, dict(zip(names, sizes, strict=True))).block(node.body, {})
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Loops:
    def __init__(self, function: ast.FunctionDef, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.outer: list[dict[str, Interval]] = []  # counters of loops that are written out
        counters = [n for n in ast.walk(function) if isinstance(n, ast.For)]
        own = {id(n.body[0]) for n in counters if n.body}
        self.unsure = {
            t.id
            for n in ast.walk(function)
            if isinstance(n, (ast.Assign, ast.AugAssign)) and id(n) not in own
            for target in (n.targets if isinstance(n, ast.Assign) else [n.target])
            for t in ast.walk(target)
            if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)
        }

    def block(self, body: list[ast.stmt], known: Mapping[str, Interval]) -> list[ast.stmt]:
        return [made for node in body for made in self.written_out(node, known)]

    def written_out(self, node: ast.stmt, known: Mapping[str, Interval]) -> list[ast.stmt]:
        turns = self.turns(node) if isinstance(node, ast.For) else 0
        inner = [self.turns(n) for n in getattr(node, "body", []) if isinstance(n, ast.For)]
        if not isinstance(node, ast.For) or not turns <= ONE_VECTOR or not inner or max(inner) > ONE_VECTOR:
            return [self.statement(node, known)]
        if not turns or not min(inner) or not isinstance(node.target, ast.Name):
            return [self.statement(node, known)]
        made = []
        for turn in range(turns):
            body = [_Constant(node.target.id, turn).visit(copy.deepcopy(line)) for line in node.body]
            first = body[0]
            here: dict[str, Interval] = {}
            if isinstance(first, ast.Assign) and isinstance(first.targets[0], ast.Name):
                name = first.targets[0].id
                if name not in self.unsure:
                    here[name] = (turn, turn)
            self.outer.append(here)
            made += self.block(body, {**known, **here})
            self.outer.pop()
        return made

    def turns(self, node: ast.For) -> int:
        """How many turns a loop takes that counts from 0 to a number; 0: not known."""
        over = node.iter
        if not (isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range"):
            return 0
        ends = [interval(a, {}, self.sizes) for a in over.args]
        return ends[0][1] if len(ends) == 1 and ends[0] and ends[0][0] == ends[0][1] else 0

    def statement(self, node: ast.stmt, known: Mapping[str, Interval]) -> ast.stmt:
        if isinstance(node, ast.For):
            inner = {**known, **self.counter(node, known)}
            node.iter = _Simpler(self.sizes, known).visit(node.iter)
            node.body = self.block(node.body, inner)
            if not any(isinstance(n, ast.For) for b in node.body for n in ast.walk(b)):
                self.hide_end(node.iter, "at_most" if len(known) > sum(map(len, self.outer)) else "at_most_whole")
        elif isinstance(node, (ast.If, ast.While)):
            node.test = _Simpler(self.sizes, known).visit(node.test)
            node.body, node.orelse = self.block(node.body, known), self.block(node.orelse, known)
        else:
            node = _Simpler(self.sizes, known).visit(node)
        return node

    def hide_end(self, over: ast.expr, by: str) -> None:
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range":
            ends = [interval(a, {}, self.sizes) for a in over.args]
            if len(ends) == 1 and ends[0] and ends[0][0] >= SHORTEST:
                over.args = [ast.Call(ast.Name(by, ast.Load()), [ast.Constant(ends[0][0])], [])]

    def counter(self, node: ast.For, known: Mapping[str, Interval]) -> dict[str, Interval]:
        """The intervals of a loop's counter and of the name that the body gives it."""
        over, first = node.iter, node.body[0] if node.body else None
        if not (isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range"):
            return {}
        ends = [interval(a, known, self.sizes) for a in over.args]
        if any(e is None for e in ends) or len(ends) > 2 or not isinstance(node.target, ast.Name):
            return {}
        low = ends[0][0] if len(ends) == 2 and ends[0] else 0
        high = ends[-1][1] - 1 if ends[-1] else 0
        found = {node.target.id: (low, max(low, high))}
        if isinstance(first, ast.Assign) and isinstance(first.targets[0], ast.Name):
            name = first.targets[0].id
            if name not in self.unsure:
                found[name] = found[node.target.id]
        return found


class _Constant(ast.NodeTransformer):
    def __init__(self, name: str, value: int) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self.value) if node.id == self.name and isinstance(node.ctx, ast.Load) else node


class _Simpler(ast.NodeTransformer):
    def __init__(self, sizes: Mapping[str, int], known: Mapping[str, Interval]) -> None:
        self.sizes, self.known = sizes, known

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "at":
            index, size = (interval(a, self.known, self.sizes) for a in node.args)
            if index and size and 0 <= index[0] and index[1] < size[0]:
                return node.args[0]
        if name in ("shift_right", "shift_left"):
            count = interval(node.args[1], self.known, self.sizes)
            if count and 0 <= count[0] and count[1] <= 31:
                shift = ast.RShift() if name == "shift_right" else ast.LShift()
                return ast.Call(ast.Name("i32", ast.Load()), [ast.BinOp(node.args[0], shift, node.args[1])], [])
        return node


def interval(node: ast.expr, known: Mapping[str, Interval], sizes: Mapping[str, int]) -> Interval | None:
    """The least and the largest value that an integer expression can have; None: not known, or it may wrap."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value, node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = interval(node.operand, known, sizes)
        return None if inner is None else (-inner[1], -inner[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
        if name == "len" and isinstance(node.args[0], ast.Name) and node.args[0].id in sizes:
            return sizes[node.args[0].id], sizes[node.args[0].id]
        if name == "i32":
            return interval(node.args[0], known, sizes)
        if name in ("shift_right", "shift_left"):
            return _shifted(name == "shift_right", *(interval(a, known, sizes) for a in node.args))
        return None
    if isinstance(node, ast.BinOp):
        a, b = interval(node.left, known, sizes), interval(node.right, known, sizes)
        if isinstance(node.op, ast.BitAnd):
            masks = [m[1] for m in (a, b) if m and m[0] >= 0]
            return (0, min(masks)) if masks else None
        if a is None or b is None:
            return None
        if isinstance(node.op, (ast.RShift, ast.LShift)):
            return _shifted(isinstance(node.op, ast.RShift), a, b)
        return _held(_combined(node.op, a, b))
    return None


def _combined(op: ast.operator, a: Interval, b: Interval) -> Interval | None:
    if isinstance(op, ast.Add):
        return a[0] + b[0], a[1] + b[1]
    if isinstance(op, ast.Sub):
        return a[0] - b[1], a[1] - b[0]
    if isinstance(op, ast.Mult):
        ends = [x * y for x in a for y in b]
        return min(ends), max(ends)
    return None


def _shifted(right: bool, a: Interval | None, count: Interval | None) -> Interval | None:
    if a is None or count is None or a[0] < 0 or count[0] < 0 or count[1] > 31:
        return None
    return _held((a[0] >> count[1], a[1] >> count[0]) if right else (a[0] << count[0], a[1] << count[1]))


def _held(found: Interval | None) -> Interval | None:
    """None for what may pass int32, where it would wrap."""
    return None if found is None or found[0] < -WIDEST or found[1] > WIDEST else found
