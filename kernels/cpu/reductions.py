"""Loops that look for the largest or smallest of a block, or for a NaN, as vector instructions, to the same bits.

    for v in x: m = max(m, abs(v))        or        if abs(v) > m: m = abs(v)        or        if v != v: bad = 1

takes the first of equal elements and passes NaN over. Of the elements themselves and of their magnitudes extremes.py
finds the largest and smallest; what is left is the sign of a zero: where the result is one, the first zero is looked
for. Of what else is computed from an element the keys, integers that order like the floats, have a maximum in any order.
"""

from __future__ import annotations

import ast
import copy

EXTREMES = {"py_max": "largest", "py_min": "smallest"}
KEYS = {"py_max": ("largest_key", "py_max", ast.Gt), "py_min": ("smallest_key", "py_min", ast.Lt)}


def lanes(text: str) -> str:
    """Captured text with such loops of its functions rewritten; everything else stays as it is."""
    tree = ast.parse(text)
    changed = False
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            rewriter = _Loops({a.arg for a in node.args.args})
            node.body = [part for line in node.body for part in rewriter.rewritten(line)]
            changed |= rewriter.changed
    if not changed:
        return text
    names = (
        f"from {__package__}.extremes import any_nan, extent, first_zero, largest, largest_magnitude\n"
        f"from {__package__}.extremes import smallest, smallest_magnitude\n"
        f"from {__package__}.local_arrays import hidden\n"
        f"from {__package__}.vectormath import key_value, largest_key, py_max, py_min, smallest_key\n"
    )
    return names + ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Loops:
    def __init__(self, arrays: set[str]) -> None:
        self.arrays = arrays
        self.changed = False

    def rewritten(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, (ast.If, ast.While, ast.For)):
            node.body = [part for line in node.body for part in self.rewritten(line)]
            node.orelse = [part for line in node.orelse for part in self.rewritten(line)]
        if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Name) or node.iter.id not in self.arrays:
            return [node]
        if any(isinstance(n, (ast.Return, ast.Break)) for n in ast.walk(node)):
            self.changed = True
            return [self.search(node)]
        first, *rest = node.body
        simple = self.simple(node, first, rest)
        if simple:
            self.changed = True
            return simple
        found = [_extremum(line) for line in rest]
        if not found or not all(found) or not isinstance(first, ast.Assign):
            return [node]
        names = [f[0] for f in found if f]
        if len(set(names)) != len(names) or any(set(names) & _names(f[2]) for f in found if f):
            return [node]
        self.changed = True
        before, body, after = [], [first], []
        for name, helper, element in (f for f in found if f):
            key_of, best, _ = KEYS[helper]
            key = f"{name}_key"
            before += _lines(f"{key} = {key_of}({name})")
            body += _lines(f"{key} = {best}({key}, {key_of}({ast.unparse(element)}))")
            after += _lines(
                f"if {name} == {name} and {name} != key_value({key}):\n"
                f"    {name} = key_value({key})\n"
                f"    if {name} == f32(0.0):\n"
                f"        for {ast.unparse(node.target)} in {node.iter.id}:\n"
                f"            {ast.unparse(first)}\n"
                f"            if {ast.unparse(element)} == f32(0.0):\n"
                f"                {name} = {ast.unparse(element)}\n"
                f"                break\n"
            )
        # an array's iterator keeps its place in memory, which stops vectorisation
        loop = copy.copy(node)
        loop.iter = ast.parse(f"range({node.iter.id}.size)", mode="eval").body
        place = ast.parse(f"{ast.unparse(node.iter)}[{ast.unparse(node.target)}]", mode="eval").body
        loop.body = [_Replace(ast.unparse(node.target), place).visit(copy.deepcopy(line)) for line in body]
        return [*before, loop, *after]

    def search(self, node: ast.For) -> ast.For:
        """A loop that ends early, over a count that is hidden: unrolled, all that it may read is read before it begins."""
        loop = copy.copy(node)
        over, item = ast.unparse(node.iter), ast.unparse(node.target)
        loop.iter = ast.parse(f"range(hidden({over}.size))", mode="eval").body
        place = ast.parse(f"{over}[{item}]", mode="eval").body
        loop.body = [_Replace(item, place).visit(copy.deepcopy(node.body[0])), *node.body[1:]]
        return loop

    def simple(self, node: ast.For, first: ast.stmt, rest: list[ast.stmt]) -> list[ast.stmt]:
        """What a loop becomes that looks only for extremes of elements or magnitudes, or for NaN; nothing for others."""
        if not isinstance(first, ast.Assign) or not isinstance(first.targets[0], ast.Name) or not rest:
            return []
        v, x = first.targets[0].id, ast.unparse(node.iter)
        if ast.unparse(first.value) not in (f"f32({ast.unparse(node.target)})", ast.unparse(node.target)):
            return []
        made: list[ast.stmt] = []
        names: list[str] = []
        both = {f[1] for line in rest if (f := _extremum(line)) and ast.unparse(f[2]) == v} == set(EXTREMES)
        if both:
            made += _lines(f"{v}_ends = extent({x})\n")
        for line in rest:
            nan, found = _nan_found(line, v), _extremum(line)
            element = ast.unparse(found[2]) if found else ""
            if nan:
                names.append(nan)
                made += _lines(f"if any_nan({x}):\n    {ast.unparse(line.body[0])}")  # type: ignore[attr-defined]
            elif found and element == f"absolute({v})":
                names.append(found[0])
                made += _lines(f"{found[0]} = {found[1]}({found[0]}, {EXTREMES[found[1]]}_magnitude({x}))")
            elif found and element == v:
                name, beyond = found[0], ">" if found[1] == "py_max" else "<"
                names.append(name)
                best = f"{v}_ends[{int(found[1] == 'py_max')}]" if both else f"{EXTREMES[found[1]]}({x})"
                made += _lines(
                    f"{name}_best = {best}\n"
                    f"if {name}_best {beyond} {name}:\n"
                    f"    {name} = {name}_best\n"
                    f"    if {name} == f32(0.0):\n"
                    f"        {name} = first_zero({x})\n"
                )
            else:
                return []
        return made if len(set(names)) == len(names) and v not in names else []


class _Replace(ast.NodeTransformer):
    def __init__(self, name: str, by: ast.expr) -> None:
        self.name, self.by = name, by

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.by) if node.id == self.name and isinstance(node.ctx, ast.Load) else node


def _nan_found(node: ast.stmt, v: str) -> str:
    """The name that `if v != v: name = constant` sets; empty for other statements."""
    if not isinstance(node, ast.If) or node.orelse or len(node.body) != 1 or ast.unparse(node.test) != f"{v} != {v}":
        return ""
    inner = node.body[0]
    if not isinstance(inner, ast.Assign) or not isinstance(inner.targets[0], ast.Name):
        return ""
    value = inner.value
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("i32", "f32") and len(value.args) == 1:
        value = value.args[0]
    return inner.targets[0].id if isinstance(value, ast.Constant) else ""


def _lines(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _extremum(node: ast.stmt) -> tuple[str, str, ast.expr] | None:
    """(name, py_max or py_min, element) of `m = py_max(m, element)` or `if element > m: m = element`."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
        target, call = node.targets[0], node.value
        helper = call.func.id if isinstance(call.func, ast.Name) else ""
        if isinstance(target, ast.Name) and helper in KEYS and len(call.args) == 2:
            kept, element = call.args
            if isinstance(kept, ast.Name) and kept.id == target.id:
                return target.id, helper, element
    if isinstance(node, ast.If) and not node.orelse and len(node.body) == 1 and isinstance(node.test, ast.Compare):
        inner, test = node.body[0], node.test
        if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name) and len(test.ops) == 1:
            name, left, right = inner.targets[0].id, test.left, test.comparators[0]
            for helper, (_, _, above) in KEYS.items():
                below = ast.Lt if above is ast.Gt else ast.Gt
                for element, kept, op in ((left, right, above), (right, left, below)):
                    same = ast.dump(element) == ast.dump(inner.value)
                    if same and isinstance(kept, ast.Name) and kept.id == name and isinstance(test.ops[0], op):
                        return name, helper, element
    return None
