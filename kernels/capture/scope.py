"""What every part of a rewriting shares: the names and kinds of one function, conversions, notes and refusals."""

from __future__ import annotations

import ast
from typing import Any, NoReturn

from ...primitives.errors import CaptureError
from .kinds import ORDER, PREFIX, RESERVED, Expr, Kind, Note, assignments, call, constant, saturated, spell
from .source import Definition


class Scope:
    """One definition being rewritten. `program` keeps what several functions share: tables, other functions, notes."""

    def __init__(
        self,
        program: Any,
        definition: Definition,
        kinds: dict[str, Kind],
        known: dict[str, Any],
        writes: tuple[str, ...] = (),
    ) -> None:
        self.program, self.definition, self.known_arguments = program, definition, known
        self.writes = writes  # arguments that are filled
        self.arguments = kinds
        self.kinds: dict[str, Kind] = dict(kinds)
        self.returned: Kind = None
        self.changed = False
        self.line = definition.tree.lineno
        self.known: dict[str, Expr] = {}
        self.sizes: dict[str, ast.expr] = {}
        self.notes: dict[tuple[int, str], Note] = {}
        self.assigned = assignments(definition.tree)
        taken = {n.id for n in ast.walk(definition.tree) if isinstance(n, ast.Name)} | set(kinds)
        if any(n.startswith(PREFIX) for n in taken):
            self.refuse(f"names may not begin with {PREFIX}")
        self.renamed = {n: self._free(n, taken) for n in taken if n in RESERVED}

    def _free(self, identifier: str, taken: set[str]) -> str:
        while identifier in taken or identifier in RESERVED:
            identifier += "_"
        return identifier

    def refuse(self, why: str, node: ast.AST | None = None) -> NoReturn:
        raise CaptureError(f"{self.definition.where(getattr(node, 'lineno', None) or self.line)}: {why}")

    def note(self, node: ast.AST, found: str, done: str) -> None:
        line = getattr(node, "lineno", self.line)
        self.notes.setdefault((line, found), Note(line, self.definition.name, found, done))

    def local(self, identifier: str) -> str:
        return self.renamed.get(identifier, identifier)

    def expr(self, node: ast.expr) -> Expr:
        """The rewritten expression."""
        raise NotImplementedError

    # Kinds ---------------------------------------------------------------------------------------------------------

    def join(self, a: Kind, b: Kind, node: ast.AST, what: str) -> Kind:
        if a is None or a == b:
            return b
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            return tuple(self.join(x, y, node, what) for x, y in zip(a, b, strict=True))
        if a in ORDER and b in ORDER:
            return a if ORDER[a] >= ORDER[b] else b
        self.refuse(f"{what} is {spell(a)} in one place and {spell(b)} in another", node)

    def convert(self, e: Expr, kind: Kind, node: ast.AST) -> Expr:
        """The expression as another kind, as Python's arithmetic would widen it; never narrower but to bool."""
        if isinstance(kind, tuple):
            if not isinstance(e.kind, tuple) or len(e.kind) != len(kind):
                self.refuse(f"{spell(e.kind)} where {spell(kind)} is needed", node)
            parts = e.parts or tuple(
                Expr(ast.Subscript(e.tree, ast.Constant(n), ast.Load()), k) for n, k in enumerate(e.kind)
            )
            made = tuple(self.convert(p, k, node) for p, k in zip(parts, kind, strict=True))
            return Expr(ast.Tuple([p.tree for p in made], ast.Load()), kind, parts=made)
        if e.kind == kind:
            return e
        if e.kind not in ORDER or kind not in ORDER:
            self.refuse(f"{spell(e.kind)} where {spell(kind)} is needed", node)
        if e.known:
            return constant({"f": float, "i": saturated, "b": bool}[kind](e.value))
        if kind == "b":
            zero = constant(0.0 if e.kind == "f" else 0)
            return Expr(ast.Compare(e.tree, [ast.NotEq()], [zero.tree]), "b")
        if kind == "f":
            tree = call("i32", e.tree) if e.kind == "b" else e.tree
            return Expr(call("f32", tree), "f")
        if e.kind == "b":
            return Expr(call("i32", e.tree), "i")
        return Expr(call("to_int", e.tree), "i")

    def truth(self, node: ast.expr) -> Expr:
        return self.convert(self.expr(node), "b", node)

    def scalar(self, node: ast.expr) -> Expr:
        e = self.expr(node)
        if e.kind not in ORDER:
            self.refuse(f"{spell(e.kind)} where a number is needed", node)
        return e
