"""What an operator does for types that its own steps have not: float64, and integers in products, by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....kernels import ops
from ....kernels.ops.arrays import apply_array
from ....primitives.pipeline import Value
from ..node import Node, axes_of
from ..scope import WIDE
from . import reduce

ELEMENTWISE: dict[str, Callable[[str], str]] = {
    "exp log sqrt reciprocal sin cos tan sinh cosh tanh sigmoid softplus softsign abs neg sign floor ceil round relu "
    "erf add sub mul div pow": lambda name: name.title(),
    "arcsin arccos arctan": lambda name: name.replace("arc", "A"),
    "arcsinh arccosh arctanh": lambda name: name.replace("arc", "A"),
    "maximum minimum": lambda name: name[:3].title(),
}


def _entered(names: str) -> Callable[[Callable[[Node], Any]], Callable[[Node], Any]]:
    def enter(translate: Callable[[Node], Any]) -> Callable[[Node], Any]:
        for name in names.split():
            WIDE[name] = translate
        return translate

    return enter


def _elementwise(op: str, kind: str) -> None:
    @_entered(op)
    def translate(node: Node) -> Any:
        found = node.values()
        return _folded(kind, found)


def _folded(kind: str, values: list[Value]) -> Any:
    if len(values) == 1 and kind in ("maximum", "minimum", "add"):
        return values[0]
    if len(values) <= 2:
        return apply_array("elementwise_doubles", *values, kind=kind)
    total: Any = values[0]
    for value in values[1:]:
        total = apply_array("elementwise_doubles", total, value, kind=kind)[0]
    return total


for _names, _titled in ELEMENTWISE.items():
    for _name in _names.split():
        _elementwise(_titled(_name), _name)
_elementwise("Sum", "add")


@_entered("Mod")
def mod(node: Node) -> Any:
    return apply_array("elementwise_doubles", *node.values(), kind="fmod" if node.attr("fmod", 0) else "mod")


@_entered("MatMul")
def matmul(node: Node) -> Any:
    return apply_array("matmul", node.value(0), node.value(1))


@_entered("Gemm")
def gemm(node: Node) -> Any:
    a, b = node.value(0), node.value(1)
    a = ops.transpose(a, [1, 0]) if node.attr("transA", 0) else a
    b = ops.transpose(b, [1, 0]) if node.attr("transB", 0) else b
    kind = a.dtype.numpy.type  # type: ignore[union-attr]
    found = _times(apply_array("matmul", a, b)[0], kind(node.attr("alpha", 1.0)))
    if not node.has(2):
        return found
    return apply_array("elementwise_doubles", found, _times(node.value(2), kind(node.attr("beta", 1.0))), kind="add")


def _times(x: Value, factor: Any) -> Value:
    return x if factor == 1 else apply_array("elementwise_doubles", x, factor, kind="mul")[0]


@_entered("Einsum")
def einsum(node: Node) -> Any:
    values = node.values()
    equation = node.attr("equation").replace(" ", "")
    extent = {}
    given, _, result = equation.partition("->")
    dots: tuple[Any, ...] = ()
    for term, value in zip(given.split(","), values, strict=True):
        front, _, back = term.partition("...")
        more = value.ndim - len(front) - len(back)
        shape = value.shape
        if "..." in term and more >= len(dots):
            dots = tuple(shape[len(front) : len(front) + more])
        letters = zip((*front, *back), (*shape[: len(front)], *shape[len(shape) - len(back) :]), strict=True)
        extent.update(dict(letters))
    if "->" not in equation:
        plain = given.replace(",", "").replace("...", "")
        result = "..." * ("..." in given) + "".join(sorted(c for c in set(plain) if plain.count(c) == 1))
    front, spread, back = result.partition("...")
    out = [*(extent[c] for c in front), *(dots if spread else ()), *(extent[c] for c in back)]
    if not all(isinstance(n, int) for n in out):
        raise node.unsupported("sizes known only at run time; load with shapes= that fix them")
    return apply_array("einsum", *values, equation=f"{given}->{result}", shape=out)


def _reduction(name: str, kind: str) -> None:
    @_entered(name)
    def translate(node: Node) -> Any:
        x = node.value(0)
        axes = node.ints("axes", 1)
        if not axes and node.attr("noop_with_empty_axes", 0):
            return x
        found = axes_of(axes, x.ndim, node) if axes else list(range(x.ndim))
        return apply_array("reduce_doubles", x, kind=kind, axes=found, keepdims=int(node.attr("keepdims", 1)))


for _name, _kind in reduce.REDUCTIONS.items():
    _reduction(_name, _kind)
