"""Rewrites one function, for given kinds of its arguments, so that every step is float32, int32 or bool.

An expression of Python numbers alone is computed while capturing, in Python's own arithmetic, and enters as one
float32: `x * (1.0 / 3.0)` means x * float32(1/3), which is what NumPy does with it too. A variable has one kind, the
widest that is ever assigned to it. Integers meeting floats become float32; integer / integer is a float32 division.
"""

from __future__ import annotations

import ast

from .calls import Calls
from .kinds import ORDER, Expr, Kind, as_load, call, constant, name, returns, spell


class Rewriter(Calls):
    """The function as a whole, and its statements."""

    def rewrite(self, called: str) -> tuple[ast.FunctionDef, Kind]:
        """The rewritten function under the name `called`, and the kind of its result."""
        tree = self.definition.tree
        body = [ast.Return(tree.body)] if isinstance(tree, ast.Lambda) else tree.body
        if self.writes:
            body = [*body, ast.Return(None)]
        elif not isinstance(tree, ast.Lambda) and not returns(body):
            self.refuse("can end without a return", tree)
        for _ in range(16):  # kinds only widen, so this ends
            self.changed = False
            self.notes.clear()
            self.known = {k: constant(v) for k, v in self.known_arguments.items()}
            self.kinds.update({k: self.known[k].kind for k in self.known if k not in self.kinds})
            lines = self.block(body)
            if not self.changed:
                break
        prologue: list[ast.stmt] = [
            ast.Assign([name(self.local(k), True)], self.known[k].tree)
            for k in self.known_arguments
            if self.assigned.get(k, 0) > 0
        ]
        parameters = [ast.arg(self.local(k)) for k in self.arguments]
        made = ast.FunctionDef(
            called, ast.arguments([], parameters, None, [], [], None, []), [*prologue, *lines], [], None, None
        )
        if "type_params" in ast.FunctionDef._fields:
            made.type_params = []
        self.program.notes.extend(self.notes.values())
        return ast.fix_missing_locations(made), self.returned

    # Statements ----------------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        lines: list[ast.stmt] = []
        for node in body:
            self.line = node.lineno if hasattr(node, "lineno") else self.line
            method = getattr(self, f"stmt_{type(node).__name__}", None)
            if method is None:
                self.refuse(f"a {type(node).__name__.lower()} statement cannot be compiled", node)
            made = method(node)
            lines.extend(made if isinstance(made, list) else [made])
        return lines or [ast.Pass()]

    def stmt_Pass(self, node: ast.Pass) -> ast.stmt:
        return ast.Pass()

    def stmt_Break(self, node: ast.Break) -> ast.stmt:
        return ast.Break()

    def stmt_Continue(self, node: ast.Continue) -> ast.stmt:
        return ast.Continue()

    def stmt_Assert(self, node: ast.Assert) -> ast.stmt:
        self.note(node, "assert", "left out")
        return ast.Pass()

    def stmt_Expr(self, node: ast.Expr) -> ast.stmt:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return ast.Pass()
        self.refuse("an expression whose value is not used; captured functions have no side effects", node)

    def stmt_Return(self, node: ast.Return) -> ast.stmt:
        if self.writes:
            if node.value is not None:
                self.refuse(f"returns a value; it fills {', '.join(self.writes)} and returns nothing", node)
            return ast.Return(ast.Constant(0))
        if node.value is None:
            self.refuse("returns nothing", node)
        e = self.expr(node.value)
        if e.kind in ("f[]", "i[]"):
            if not self.program.returns_lone(e.kind):
                self.refuse("returns an array; return numbers or a tuple of them", node)
            e = Expr(ast.Tuple([e.tree], ast.Load()), (e.kind,), parts=(e,))
        wanted = self.join(self.returned, e.kind, node, "the result")
        wanted = self.program.result_kind(self, wanted, node)
        self.changed |= wanted != self.returned
        self.returned = wanted
        return ast.Return(self.convert(e, wanted, node).tree)

    def stmt_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        e = self.expr(node.value)
        lines: list[ast.stmt] = []
        for target in node.targets:
            lines.extend(self.store(target, e, node))
        return lines

    def stmt_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        if node.value is None:
            return [ast.Pass()]
        return self.store(node.target, self.expr(node.value), node)

    def stmt_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        load = ast.copy_location(ast.fix_missing_locations(as_load(node.target)), node)
        return self.store(node.target, self.binary(node.op, self.scalar(load), self.scalar(node.value), node), node)

    def store(self, target: ast.expr, e: Expr, node: ast.AST) -> list[ast.stmt]:
        if isinstance(target, (ast.Tuple, ast.List)):
            if not isinstance(e.kind, tuple) or len(e.kind) != len(target.elts):
                self.refuse(f"{len(target.elts)} names cannot take {spell(e.kind)}", node)
            fresh = [p.known or (p.kind in ("f[]", "i[]") and isinstance(p.tree, ast.Call)) for p in e.parts]
            if e.parts and all(fresh):  # numbers and new arrays, which no other target can change
                return [
                    line for part, p in zip(target.elts, e.parts, strict=True) for line in self.store(part, p, node)
                ]
            kinds = []
            for part, kind in zip(target.elts, e.kind, strict=True):
                if not isinstance(part, ast.Name):
                    self.refuse("only names can be unpacked into", node)
                kinds.append(self.widen(part.id, kind, node))
            places: list[ast.expr] = [name(self.local(p.id), True) for p in target.elts if isinstance(p, ast.Name)]
            return [ast.Assign([ast.Tuple(places, ast.Store())], self.convert(e, tuple(kinds), node).tree)]
        if isinstance(target, ast.Subscript):
            array = self.expr(target.value)
            if array.kind not in ("f[]", "i[]") or not isinstance(target.value, ast.Name):
                self.refuse("only a local array can be stored into by index", node)
            if target.value.id not in self.sizes and target.value.id not in self.writes:
                self.refuse(f"writes into {target.value.id!r}, which belongs to the caller", node)
            place = ast.Subscript(array.tree, self.index(target.slice, array, node), ast.Store())
            return [ast.Assign([place], self.convert(e, array.kind[0], node).tree)]
        if not isinstance(target, ast.Name):
            self.refuse("assigns to something that is neither a name nor an element", node)
        kind = self.widen(target.id, e.kind, node)
        if e.kind in ("f[]", "i[]"):
            if e.size is not None and isinstance(e.tree, ast.Call):
                self.sizes[target.id] = e.size
            elif self.assigned.get(target.id, 0) > 1:
                self.refuse(f"{target.id!r} is an array that is assigned twice", node)
        made = self.convert(e, kind, node)
        if self.assigned.get(target.id, 0) == 1 and e.known and kind in ORDER:
            self.known[target.id] = e
        return [ast.Assign([name(self.local(target.id), True)], made.tree)]

    def widen(self, identifier: str, kind: Kind, node: ast.AST) -> Kind:
        wanted = self.join(self.kinds.get(identifier), kind, node, f"{identifier!r}")
        if identifier in self.arguments and wanted != self.arguments[identifier]:
            # the argument keeps its kind where it comes in; a wider local would change it
            self.refuse(
                f"{identifier!r} comes in as {spell(self.arguments[identifier])} and is assigned "
                f"{spell(kind)}; give the result another name",
                node,
            )
        if wanted != self.kinds.get(identifier):
            self.changed |= identifier in self.kinds
            self.kinds[identifier] = wanted
        return wanted

    def stmt_If(self, node: ast.If) -> ast.stmt:
        test = self.truth(node.test)
        return ast.If(test.tree, self.block(node.body), self.block(node.orelse) if node.orelse else [])

    def stmt_While(self, node: ast.While) -> ast.stmt:
        if node.orelse:
            self.refuse("while .. else cannot be compiled", node)
        return ast.While(self.truth(node.test).tree, self.block(node.body), [])

    def stmt_For(self, node: ast.For) -> ast.stmt:
        if node.orelse or not isinstance(node.target, ast.Name):
            self.refuse("a loop has one plain name and no else", node)
        target = node.target.id
        over = node.iter
        if isinstance(over, ast.Call) and self.resolve(over.func) is range:
            bounds = [self.convert_index(a) for a in over.args]
            if over.keywords or not 1 <= len(bounds) <= 3:
                self.refuse("range takes one to three numbers", node)
            kind, source, item = "i", call("range", *bounds), "i32"
        else:
            array = self.expr(over)
            if array.kind not in ("f[]", "i[]"):
                self.refuse(f"loops over {spell(array.kind)}; a range or an array can be looped over", node)
            kind, source, item = array.kind[0], array.tree, "f32" if array.kind == "f[]" else "i32"
        widened = self.widen(target, kind, node)
        place = self.local(target)
        value = self.convert(Expr(call(item, name(place + "_item")), kind), widened, node)
        first: ast.stmt = ast.Assign([name(place, True)], value.tree)
        return ast.For(name(place + "_item", True), source, [first, *self.block(node.body)], [], None)

    def convert_index(self, node: ast.expr) -> ast.expr:
        e = self.scalar(node)
        if e.kind == "f":
            self.refuse("range of a float; use int(..)", node)
        return e.tree
