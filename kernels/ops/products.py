"""Products by axes: matmul with NumPy's rule for vectors, and Einstein's notation by transposes and products."""

from __future__ import annotations

from typing import Any

from ...primitives import sizes
from ...primitives.errors import ArgumentError, ShapeMismatch
from ...primitives.pipeline import Value
from .gemm import gemm
from .given import Operand, pipeline_of, value_of
from .moving import reshape, squeeze, transpose, unsqueeze
from .moving import slice as cut
from .reductions import reduce

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def einsum(equation: str, *values: Operand) -> Value:
    """The sum over all letters that the result does not have of the product of the operands: "bij,bjk->bik".

    values  f32, f16 or bf16 (products of two: also what gemm takes); a letter for each axis, twice in an operand: its
            diagonal; an ellipsis for axes that are broadcast
    """
    pipe = pipeline_of("einsum", *values)
    operands = [value_of(pipe, v, "einsum", f"operand {n}") for n, v in enumerate(values)]
    terms, result = _parsed(equation.replace(" ", ""), operands)
    extent: dict[str, Any] = {}
    for at, (term, value) in enumerate(zip(terms, operands, strict=True)):
        operands[at], terms[at] = _diagonal(equation, value, term)
    for term, value in zip(terms, operands, strict=True):
        for letter, n in zip(term, value.shape, strict=True):
            if extent.setdefault(letter, n) != n:
                raise ShapeMismatch(f"einsum {equation!r}: {letter} is {extent[letter]} and {n}")
    missing = [letter for letter in result if letter not in extent]
    if missing:
        raise ArgumentError(f"einsum {equation!r}: the result has {', '.join(missing)}, which no operand has")
    found, term = operands[0], terms[0]
    for n in range(1, len(operands)):
        later = set(result).union(*terms[n + 1 :])
        found, term = _product(found, term, operands[n], terms[n], later, extent)
    found, term = _summed(found, term, set(result))
    return transpose(found, [term.index(letter) for letter in result]) if term != result else found


def _diagonal(equation: str, value: Value, term: str) -> tuple[Value, str]:
    """An operand in which each letter is once: of two axes with one letter only equal places are left."""
    while len(set(term)) < len(term):
        letter = next(c for c in term if term.count(c) > 1)
        first = term.index(letter)
        second = term.index(letter, first + 1)
        n = value.shape[first]
        if not isinstance(n, int) or value.shape[second] != n:
            found = sizes.show((n, value.shape[second]))
            raise ShapeMismatch(f"einsum {equation!r}: {letter} is {found}; one known size works")
        others = [d for d in range(len(term)) if d not in (first, second)]
        square = transpose(value, [*others, first, second])
        flat = reshape(square, [*(value.shape[d] for d in others), n * n])
        value = cut(flat, [0], [n * n], [len(others)], [n + 1])
        term = "".join(term[d] for d in others) + letter
    return value, term


def _parsed(equation: str, operands: list[Value]) -> tuple[list[str], str]:
    given, arrow, result = equation.partition("->")
    terms = given.split(",")
    if len(terms) != len(operands):
        raise ArgumentError(f"einsum {equation!r} names {len(terms)} operands; {len(operands)} are given")
    used = set(equation)
    spare = [letter for letter in LETTERS if letter not in used]
    widest = 0
    for n, (term, value) in enumerate(zip(terms, operands, strict=True)):
        more = value.ndim - len(term.replace("...", ""))
        if "..." in term:
            widest = max(widest, more)
        elif more:
            raise ShapeMismatch(f"einsum {equation!r}: operand {n} has shape {sizes.show(value.shape)}")
        terms[n] = term.replace("...", "".join(spare[:more][::-1]))
    dots = "".join(spare[:widest][::-1])
    if not arrow:
        once = sorted(c for c in set("".join(terms)) - set(dots) if "".join(terms).count(c) == 1)
        return terms, dots + "".join(once)
    return terms, result.replace("...", dots)


def _summed(value: Value, term: str, kept: set[str]) -> tuple[Value, str]:
    gone = [d for d, letter in enumerate(term) if letter not in kept]
    if not gone:
        return value, term
    return reduce("sum", value, gone), "".join(letter for letter in term if letter in kept)


def _product(
    a: Value, a_term: str, b: Value, b_term: str, later: set[str], extent: dict[str, Any]
) -> tuple[Value, str]:
    """The product of two operands, summed over what nothing later has: one batched matrix product."""
    a, a_term = _summed(a, a_term, later | set(b_term))
    b, b_term = _summed(b, b_term, later | set(a_term))
    shared = [c for c in a_term if c in b_term]
    batch = [c for c in shared if c in later]
    depth = [c for c in shared if c not in later]
    rows = [c for c in a_term if c not in b_term]
    columns = [c for c in b_term if c not in a_term]

    def arranged(value: Value, term: str, order: list[str], shape: list[Any]) -> Value:
        return reshape(transpose(value, [term.index(c) for c in order]), shape)

    def count(group: list[str]) -> Any:
        product: Any = 1
        for c in group:
            product = extent[c] * product
        return product

    left = arranged(a, a_term, [*batch, *rows, *depth], [count(batch), count(rows), count(depth)])
    right = arranged(b, b_term, [*batch, *depth, *columns], [count(batch), count(depth), count(columns)])
    y = gemm(left, right)
    return reshape(y, [extent[c] for c in (*batch, *rows, *columns)]), "".join([*batch, *rows, *columns])


def matmul(a: Operand, b: Operand, a_zero_point: Operand = None, b_zero_point: Operand = None) -> Value:
    """`gemm` with NumPy's rule for vectors: one on the left is a row, one on the right a column, and both axes go again.

    Operands and zero points are otherwise those of `gemm`.
    """
    pipe = pipeline_of("matmul", a, b)
    a, b = value_of(pipe, a, "matmul", "a"), value_of(pipe, b, "matmul", "b")
    if not a.ndim or not b.ndim:
        raise ShapeMismatch(f"matmul: {a!r} and {b!r}; at least one dimension each works")
    left, right = a.ndim == 1, b.ndim == 1
    a = unsqueeze(a, [0]) if left else a
    b = unsqueeze(b, [1]) if right else b
    y = gemm(a, b, a_zero_point, b_zero_point)
    if left or right:
        y = squeeze(y, ([-2] if left else []) + ([-1] if right else []))
    return y
