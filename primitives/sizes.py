"""Sizes: integers, names known only at run time, and expressions of both.

A `Size` is kept in one canonical form, a polynomial with integer coefficients over *atoms* (names, floor and ceil
quotients, maxima), so two ways of writing the same sum compare equal. Whatever has no name left is a plain int.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Union

import numpy as np

from .errors import ShapeMismatch, SizeError

SizeLike = Union[int, str, "Size"]
Shape = tuple[Union[int, "Size"], ...]

_Monomial = tuple[tuple["_Atom", int], ...]  # ((atom, power), ...), sorted by the atom's text
LARGEST = 2**63 - 1
LONGEST = 1000  # characters of an expression, and terms of a polynomial: more comes from no network


class _Atom:
    """A name, or an operation that a polynomial cannot express."""

    __slots__ = ("args", "op", "text")

    def __init__(self, op: str, args: tuple[Any, ...]) -> None:
        self.op = op
        self.args = args
        if op == "name":
            self.text = str(args[0])
        elif op == "max":
            self.text = f"max({', '.join(str(a) for a in args)})"
        else:
            self.text = f"{op}({args[0]}, {args[1]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Atom) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def value(self, env: Mapping[str, int]) -> int:
        if self.op == "name":
            if self.args[0] not in env:
                raise SizeError(f"size {self.args[0]!r} is not known here: known are {', '.join(env) or 'none'}")
            return env[self.args[0]]
        values = [evaluate(a, env) for a in self.args]
        if self.op == "max":
            return max(values)
        if values[1] <= 0:
            raise SizeError(f"{self.text}: the divisor is {values[1]}; it must be positive")
        return values[0] // values[1] if self.op == "floordiv" else -(-values[0] // values[1])

    def names(self) -> set[str]:
        if self.op == "name":
            return {self.args[0]}
        return set().union(*(names(a) for a in self.args))

    def substitute(self, env: Mapping[str, SizeLike]) -> int | Size:
        if self.op == "name":
            return size(env.get(self.args[0], self))
        args = [substitute(a, env) for a in self.args]
        if self.op == "max":
            return maximum(*args)
        return floordiv(args[0], args[1]) if self.op == "floordiv" else ceildiv(args[0], args[1])


class Size:
    """An expression of run-time sizes. Made by `size("2*M + 1")` and by arithmetic; immutable and hashable."""

    __slots__ = ("_terms",)

    def __init__(self, terms: Mapping[_Monomial, int]) -> None:
        self._terms = tuple(sorted(((m, c) for m, c in terms.items() if c), key=_order))

    def __add__(self, other: SizeLike) -> int | Size:
        terms = dict(self._terms)
        for monomial, coefficient in _terms(size(other)).items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _simplest(terms)

    def __mul__(self, other: SizeLike) -> int | Size:
        terms: dict[_Monomial, int] = {}
        for m1, c1 in self._terms:
            for m2, c2 in _terms(size(other)).items():
                powers = dict(m1)
                for atom, power in m2:
                    powers[atom] = powers.get(atom, 0) + power
                monomial = tuple(sorted(powers.items(), key=lambda item: item[0].text))
                terms[monomial] = terms.get(monomial, 0) + c1 * c2
            if len(terms) > LONGEST:
                raise SizeError(f"a product of sizes has more than {LONGEST} terms; give it a name of its own")
        return _simplest(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> int | Size:
        return self * -1

    def __sub__(self, other: SizeLike) -> int | Size:
        return self + size(other) * -1

    def __rsub__(self, other: SizeLike) -> int | Size:
        return -self + size(other)

    def __floordiv__(self, other: SizeLike) -> int | Size:
        return floordiv(self, other)

    def __rfloordiv__(self, other: SizeLike) -> int | Size:
        return floordiv(other, self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str(self) == other
        return isinstance(other, Size) and self._terms == other._terms

    def __hash__(self) -> int:
        return hash(self._terms)

    def __index__(self) -> int:
        raise SizeError(f"size {self} is known only at run time; bind it with evaluate(size, {{'name': value}}) first")

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in self._terms:
            factors = [a.text if p == 1 else f"{a.text}**{p}" for a, p in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else ""
            text += (f" {sign or '+'} " if text else sign) + "*".join(factors)
        return text

    def __repr__(self) -> str:
        return f"Size({str(self)!r})"

    def names(self) -> set[str]:
        return set().union(*(a.names() for m, _ in self._terms for a, _ in m))

    def _only(self, op: str) -> _Atom | None:
        """The operation that this size is, and nothing besides."""
        if len(self._terms) == 1 and self._terms[0][1] == 1 and len(self._terms[0][0]) == 1:
            atom, power = self._terms[0][0][0]
            return atom if atom.op == op and power == 1 else None
        return None


def _order(item: tuple[_Monomial, int]) -> tuple[int, str]:
    """Names first and the constant last, as people write it."""
    return (-sum(p for _, p in item[0]), "*".join(a.text for a, _ in item[0]))


def _terms(x: int | Size) -> dict[_Monomial, int]:
    return dict(x._terms) if isinstance(x, Size) else {(): x}


def _simplest(terms: Mapping[_Monomial, int]) -> int | Size:
    left = {m: c for m, c in terms.items() if c}
    if not left or set(left) == {()}:
        return left.get((), 0)
    return Size(left)


def size(x: SizeLike | _Atom) -> int | Size:
    """An int stays an int; a string is parsed: names, + - * //, `max(a, b)`, `ceildiv(a, b)` and parentheses."""
    if isinstance(x, Size):
        return x
    if isinstance(x, _Atom):
        return Size({((x, 1),): 1})
    if isinstance(x, bool) or not isinstance(x, (int, np.integer, str)):
        raise SizeError(f"a size is an int, a name or an expression of them, not {x!r} ({type(x).__name__})")
    if not isinstance(x, str):
        return int(x)
    return _read(x)


@lru_cache(maxsize=4096)
def _read(x: str) -> int | Size:
    """What a string says. A plan asks for the same few thousands of times."""
    if len(x) > LONGEST:
        raise SizeError(f"size {x[:40]!r}... has {len(x)} characters; at most {LONGEST} are read")
    try:
        return _parse(ast.parse(x.strip(), mode="eval").body)
    except SizeError as error:
        if "cannot be read" not in str(error):
            raise
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: too deep for Python's parser
        pass  # the error below says what can be read
    raise SizeError(
        f"size {x!r} cannot be read: write names, integers, + - * //, max(a, b), ceildiv(a, b), as in '2*M + 1'"
    )


def _parse(node: ast.expr) -> int | Size:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return size(_Atom("name", (node.id,)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_parse(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = _parse(node.left), _parse(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.FloorDiv):
            return floordiv(left, right)
        if isinstance(node.op, ast.Pow) and type(right) is int and 0 <= right <= 8:
            result: int | Size = 1
            for _ in range(right):
                result = result * left
            return result
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        args = [_parse(a) for a in node.args]
        if node.func.id == "max" and args:
            return maximum(*args)
        if node.func.id in ("ceildiv", "floordiv") and len(args) == 2:
            return (ceildiv if node.func.id == "ceildiv" else floordiv)(args[0], args[1])
    raise SizeError("cannot be read")


def floordiv(a: SizeLike, b: SizeLike) -> int | Size:
    """Quotient rounded down. Terms that divide leave it, and whole multiples of the divisor."""
    return _quotient("floordiv", size(a), size(b))


def ceildiv(a: SizeLike, b: SizeLike) -> int | Size:
    """Quotient rounded up. Terms that divide leave it, and whole multiples of the divisor."""
    return _quotient("ceildiv", size(a), size(b))


def _quotient(op: str, a: int | Size, b: int | Size) -> int | Size:
    if isinstance(b, int) and b <= 0:
        raise SizeError(f"{op}({a}, {b}): the divisor must be positive")
    if isinstance(a, int) and isinstance(b, int):
        return a // b if op == "floordiv" else -(-a // b)
    if isinstance(b, int) and isinstance(a, Size):
        # (b * q + r) // b is q + r // b: what divides leaves the quotient, so that (M + 4) // 4 is M // 4 + 1
        whole = {m: c // b for m, c in a._terms if m == () or c % b == 0}
        left = {m: c % b if m == () else c for m, c in a._terms if m == () or c % b}
        rest = _simplest(left)
        if isinstance(rest, int):
            return _simplest(whole) + (rest // b if op == "floordiv" else -(-rest // b))
        return size(_Atom(op, (rest, b))) + _simplest(whole)
    exact = _divided(a, b) if isinstance(a, Size) and isinstance(b, Size) else None
    return exact if exact is not None else size(_Atom(op, (a, b)))


def _divided(a: Size, b: Size) -> int | Size | None:
    """a / b where b is one product that every term of a has as a factor; None where it is not."""
    if len(b._terms) != 1:
        return None
    ((divisor, coefficient),) = b._terms
    found: dict[_Monomial, int] = {}
    for monomial, c in a._terms:
        powers = dict(monomial)
        for atom, power in divisor:
            powers[atom] = powers.get(atom, 0) - power
        if c % coefficient or any(p < 0 for p in powers.values()):
            return None
        found[tuple((atom, p) for atom, p in powers.items() if p)] = c // coefficient
    return _simplest(found)


def maximum(*args: SizeLike) -> int | Size:
    """The largest of several sizes; integers among them are folded and equal ones said once."""
    known: list[int | Size] = []
    for a in map(size, args):
        inner = a._only("max") if isinstance(a, Size) else None
        known += inner.args if inner is not None else [a]
    numbers = [a for a in known if isinstance(a, int)]
    rest: list[int | Size] = sorted({a for a in known if isinstance(a, Size)}, key=str)
    if not rest:
        return max(numbers)
    everything = rest + ([max(numbers)] if numbers else [])
    return everything[0] if len(everything) == 1 else size(_Atom("max", tuple(everything)))


def names(x: int | Size) -> set[str]:
    """The run-time names that an expression needs."""
    return x.names() if isinstance(x, Size) else set()


def evaluate(x: int | Size, env: Mapping[str, int]) -> int:
    """The number that `x` is when every name in it has the value of `env`. Raises SizeError for an unknown name."""
    if isinstance(x, int):
        return x
    total = 0
    for monomial, coefficient in x._terms:
        product = coefficient
        for atom, power in monomial:
            product *= atom.value(env) ** power
        total += product
    return total


def evaluate_shape(shape: Iterable[int | Size], env: Mapping[str, int], what: str = "shape") -> tuple[int, ...]:
    """Every size of a shape as a number. A negative or absurd size is a SizeError that names `what`."""
    result = []
    for x in shape:
        n = evaluate(x, env)
        if not 0 <= n <= LARGEST:
            raise SizeError(f"{what}: size {x} is {n}{_known(x, env)}; sizes are 0 to 2**63 - 1")
        result.append(n)
    return tuple(result)


def substitute(x: int | Size, env: Mapping[str, SizeLike]) -> int | Size:
    """`x` with names replaced by sizes; names that `env` lacks stay."""
    if isinstance(x, int):
        return x
    total: int | Size = 0
    for monomial, coefficient in x._terms:
        product: int | Size = coefficient
        for atom, power in monomial:
            for _ in range(power):
                product = product * atom.substitute(env)
        total = total + product
    return total


def solve(shape: Sequence[int | Size], actual: Sequence[int], env: dict[str, int], what: str) -> None:
    """Learn names from an array's shape and check everything that is known; extends `env` in place.

    A size that is linear in one unknown name defines that name. The rest is checked with the names known by then,
    and left for a later call where a name is still missing.
    """
    if len(shape) != len(actual):
        raise ShapeMismatch(
            f"{what} has rank {len(actual)}, shape {tuple(actual)}; {len(shape)} sizes ({show(shape)}) are asked for"
        )
    for axis, (x, n) in enumerate(zip(shape, actual, strict=False)):
        unknown = names(x) - env.keys()
        if len(unknown) == 1:
            (name,) = unknown
            line = linear(x, name, env)
            if line is not None and line[0] != 0:
                slope, rest = (evaluate(part, env) for part in line)
                learned, left = divmod(n - rest, slope)
                if left or learned < 0:
                    raise ShapeMismatch(
                        f"{what} has shape {tuple(actual)}: axis {axis} is {n}, but {x} is asked for"
                        f"{_known(x, env)}, and no size {name!r} gives that"
                    )
                env[name] = learned
                unknown = set()
        if not unknown and evaluate(x, env) != n:
            value = f", which is {evaluate(x, env)}{_known(x, env)}" if names(x) else ""
            raise ShapeMismatch(f"{what} has shape {tuple(actual)}: axis {axis} is {n}, but {x} is asked for{value}")


def linear(x: int | Size, name: str, env: Mapping[str, SizeLike]) -> tuple[int | Size, int | Size] | None:
    """(slope, rest) where x is slope * name + rest, every other name replaced by `env`; None: x is no such line."""
    slope: int | Size = 0
    rest: int | Size = 0
    for monomial, coefficient in _terms(x).items():
        product: int | Size = coefficient
        power_of_name = 0
        for atom, power in monomial:
            if atom.op == "name" and atom.args[0] == name:
                power_of_name += power
            elif name in atom.names():
                return None
            else:
                for _ in range(power):
                    product = product * atom.substitute(env)
        if power_of_name > 1:
            return None
        if power_of_name:
            slope = slope + product
        else:
            rest = rest + product
    return slope, rest


def _known(x: int | Size, env: Mapping[str, int]) -> str:
    known = ", ".join(f"{k} = {env[k]}" for k in sorted(names(x) & env.keys()))
    return f" with {known}" if known else ""


def show(shape: Iterable[int | Size]) -> str:
    """A shape as people write it: (M, 768)."""
    inside = ", ".join(str(x) for x in shape)
    return f"({inside},)" if inside and "," not in inside else f"({inside})"
