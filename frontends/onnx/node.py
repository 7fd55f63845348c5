"""One node as its translator sees it: operands by position, attributes by name, all checked.

An operand is one of four things. What is known while the file is read is a plain array; sizes of inputs that only a
run knows travel as `Sizes`, arrays of size expressions, so that shape arithmetic disappears; `Coded` is what a
DequantizeLinear promises without having done it; anything else is a value of the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...primitives.errors import FileFormatError, Unsupported
from ...primitives.pipeline import Value
from ...primitives.sizes import Size

if TYPE_CHECKING:
    from .scope import Scope

Array = np.ndarray[Any, Any]
_REQUIRED = object()


@dataclass(frozen=True)
class Sizes:
    """An integer tensor of rank 0 or more whose elements are ints or expressions of run-time sizes."""

    array: Array  # dtype object

    @staticmethod
    def of(elements: Any) -> Array | Sizes:
        """The elements as a plain array where no run-time name is left among them."""
        array = np.asarray(elements, object)
        if any(isinstance(x, Size) for x in array.flat):
            return Sizes(array)
        return array.astype(np.int64)


@dataclass(frozen=True)
class Coded:
    """Codes with their scale and zero point: real numbers that nobody has computed yet.

    codes, scale, zero_point   arrays or pipeline values; zero_point None is 0
    axis, block                as in ONNX: scales go along axis; block elements of it share one
    dtype                      the type of the real numbers
    """

    codes: Any
    scale: Any
    zero_point: Any
    axis: int
    block: int
    dtype: str = "f32"

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(self.codes.shape)

    @property
    def per_tensor(self) -> bool:
        return int(np.prod([1, *self.scale.shape])) == 1 if all(isinstance(n, int) for n in self.scale.shape) else False


@dataclass(frozen=True)
class Tabled:
    """A function of 8-bit codes that nobody has applied yet: numbers[code & 255] for each element.

    codes     the pipeline value of type u8 or s8
    numbers   (256,), a real number for each code, those of negative codes at the end
    make      adds the steps that compute the real numbers, for a reader that needs them
    """

    codes: Value
    numbers: Array
    make: Callable[[], Value]

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.codes.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.numbers.dtype


Operand = Any  # ndarray, Sizes, Coded, Value, or None where an optional operand is left out


class NeedsValues(Exception):
    """What a translator asks for is known only at run time: the values of inputs decide the pipeline's structure."""

    def __init__(self, where: str, inputs: tuple[str, ...]) -> None:
        super().__init__(f"{where} is known only at run time; a constant works")
        self.inputs = inputs


class NeedsSizes(Unsupported):
    """What a translator asks for follows from sizes that only a run knows, in a way that no expression says."""


class Node:
    """A node with its operands; what a translator asks of it, and how it refuses."""

    def __init__(self, scope: Scope, proto: Any, version: int, label: str) -> None:
        self.scope, self.proto, self.version, self.label = scope, proto, version, label
        self.domain = "" if proto.domain == "ai.onnx" else proto.domain
        self.op = proto.op_type
        self._attributes = {a.name: a for a in proto.attribute}

        self._given: list[Any] | None = None

    def on(self, scope: Scope, operands: list[Any], version: int | None = None) -> Node:
        """The same node in another scope, with other operands, or read by the rules of another operator set."""
        node = Node(scope, self.proto, self.version if version is None else version, self.label)
        node._given = operands
        return node

    def on_scope(self, scope: Scope) -> Node:
        """The same node in another scope, which finds its operands there."""
        return Node(scope, self.proto, self.version, self.label)

    def __len__(self) -> int:
        return len(self.proto.input)

    @property
    def outputs(self) -> int:
        return len(self.proto.output)

    def wants(self, n: int) -> bool:
        """Whether output n has a name, so that somebody may read it."""
        return n < self.outputs and bool(self.proto.output[n])

    # Operands ----------------------------------------------------------------------------------------------------

    def operand(self, n: int) -> Operand:
        """Operand n as it travels; None where it is left out."""
        if self._given is not None:
            return self._given[n] if n < len(self._given) else None
        if n >= len(self.proto.input) or not self.proto.input[n]:
            return None
        return self.scope.find(self.proto.input[n])

    def has(self, n: int) -> bool:
        return n < len(self.proto.input) and bool(self.proto.input[n])

    def value(self, n: int) -> Value:
        """Operand n as a pipeline value; a constant is made of a known one. It must be there."""
        found = self.operand(n)
        if found is None:
            raise self.malformed(f"operand {n} is missing")
        return self.scope.value(found)

    def optional(self, n: int) -> Value | None:
        return self.value(n) if self.has(n) else None

    def values(self) -> list[Value]:
        return [self.value(n) for n in range(len(self.proto.input))]

    def known(self, n: int, default: Any = _REQUIRED) -> Any:
        """Operand n as an array; Unsupported where only a run knows it."""
        found = self.operand(n)
        if found is None:
            if default is _REQUIRED:
                raise self.malformed(f"operand {n} is missing")
            return default
        found = self.scope.settle(found)
        if isinstance(found, np.ndarray):
            return found
        computed = self.scope.computed(found)
        if computed is not None:
            return computed
        where = f"{self.label}: operand {n} ({self.proto.input[n]!r})"
        if self.scope.only_sizes(found):
            raise NeedsSizes(f"{where} follows from sizes known only at run time; load with shapes= that fix them")
        raise NeedsValues(where, self.scope.inputs_of(found))

    def is_known(self, n: int) -> bool:
        return isinstance(self.scope.settle(self.operand(n)), np.ndarray)

    def sizes(self, n: int) -> list[int | Size]:
        """Operand n as a list of sizes, each an int or an expression of run-time names."""
        found = self.scope.settle(self.operand(n))
        if isinstance(found, Sizes):
            return list(found.array.reshape(-1))
        return [int(x) for x in np.asarray(self.known(n)).reshape(-1)]

    # Attributes --------------------------------------------------------------------------------------------------

    def attr(self, name: str, default: Any = _REQUIRED) -> Any:
        """An attribute: int, float, str, list of them, an array, or a GraphProto."""
        found = self._attributes.get(name)
        if found is None:
            if default is _REQUIRED:
                raise self.malformed(f"attribute {name!r} is missing")
            return default
        return self.scope.attribute(found, self.label)

    @property
    def has_graphs(self) -> bool:
        return any(a.HasField("g") or a.graphs for a in self.proto.attribute)

    def attribute_names(self) -> list[str]:
        return list(self._attributes)

    def ints(self, name: str, n: int, default: Any = None) -> list[int] | None:
        """A list of ints that newer operator sets take as operand n and older ones as an attribute."""
        if self.has(n):
            return [int(x) for x in np.asarray(self.known(n)).reshape(-1)]
        found = self.attr(name, default)
        return found if found is None else [int(x) for x in found]

    # Refusals ----------------------------------------------------------------------------------------------------

    def malformed(self, reason: str) -> FileFormatError:
        return FileFormatError(f"{self.label}: {reason}")

    def unsupported(self, reason: str) -> Unsupported:
        return Unsupported(f"{self.label}: {reason}")


def axes_of(axes: Sequence[int], rank: int, node: Node) -> list[int]:
    """Axes counted from the front; an error names one that does not exist."""
    found = []
    for axis in axes:
        if not -rank <= axis < rank:
            raise node.malformed(f"axis {axis} of a tensor with {rank} dimensions")
        found.append(axis % rank)
    return found
