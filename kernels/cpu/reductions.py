"""Loops that look for the largest or smallest of a block, written so that LLVM vectorises them, to the same bits.

    for v in x: m = max(m, abs(v))        or        if abs(v) > m: m = abs(v)

takes the first of equal elements and passes NaN over, which a vector maximum of floats does not promise. The keys of
floats, integers that order like them, have a maximum in any order; what is left is the sign of a zero: where the result
is one, the first zero is looked for.
"""

from __future__ import annotations

import ast
import copy

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
    names = f"from {__package__}.vectormath import key_value, largest_key, py_max, py_min, smallest_key\n"
    return names + ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Loops:
    def __init__(self, arrays: set[str]) -> None:
        self.arrays = arrays
        self.changed = False

    def rewritten(self, node: ast.stmt) -> list[ast.stmt]:
        if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Name) or node.iter.id not in self.arrays:
            return [node]
        first, *rest = node.body
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


class _Replace(ast.NodeTransformer):
    def __init__(self, name: str, by: ast.expr) -> None:
        self.name, self.by = name, by

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.by) if node.id == self.name and isinstance(node.ctx, ast.Load) else node


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
