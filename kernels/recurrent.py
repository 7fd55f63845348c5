"""A recurrence over a sequence as one pipeline step: RNN, LSTM and GRU, one direction, in float32 or on codes.

kernels/reference/recurrent.py says what it computes; kernels/recurrent_gates.py what its gates are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..primitives.errors import ArgumentError, ShapeMismatch, Unsupported
from ..primitives.kernel import ArgSpec, Axis, IndexSpace
from ..primitives.storage import stored_as
from . import checks
from .recurrent_gates import ACTIVATIONS, GATES, NEEDED

LANES = 16
SHARED = 30_000  # what a step has to cost, in about bytes moved, for threads to wait for each other after it
WIDEST = 65536  # units: the sum of so many codes is exact in float32


class Group(NamedTuple):
    """Gates whose sums are taken together, and how their weights lie.

    first, gates   which of the cell's gates
    blocks         of 16 units that stand side by side in a panel: it is gates * blocks vectors wide
    """

    first: int
    gates: int
    blocks: int


def padded_units(hidden: int) -> int:
    """Units rounded up to whole vectors."""
    return -(-hidden // LANES) * LANES


@stored_as("recurrence")
@dataclass(frozen=True)
class Recurrence:
    """y[t], h, c: the states of a cell for every step of a sequence, and the last ones.

    Slot `like` is the layer's input, which is only measured: given has a row for each step and batch.

    cell         rnn, gru or lstm
    hidden       units of the state
    activations  names (recurrent_gates.py); numbers: alpha and beta of each, one after the other
    clip         what is activated lies within -clip .. clip; 0: anywhere
    reverse      the sequence is read from its end
    peepholes    (lstm) the gates see the cell
    input_forget (lstm) the forget gate is 1 - the input gate
    linear       (gru) the reset gate multiplies the product with h, not h
    lengths      each batch has its own number of steps
    codes        the state is quantized to u8 before each product, with one scale for all batches; weights are s8 codes
    zero_points  (codes) the weights have zero points
    shared       (internal) several threads each compute some of the units, step after step
    """

    cell: str = "lstm"
    hidden: int = 1
    activations: tuple[str, ...] = ("sigmoid", "tanh", "tanh")
    numbers: tuple[float, ...] = (0.0,) * 6
    clip: float = 0.0
    reverse: bool = False
    peepholes: bool = False
    input_forget: bool = False
    linear: bool = False
    lengths: bool = False
    codes: bool = False
    zero_points: bool = False
    shared: bool = False

    def __post_init__(self) -> None:
        checks.one_of("recurrence", "cell", self.cell, tuple(GATES))
        if not 1 <= self.hidden <= WIDEST:
            raise Unsupported(f"recurrence of {self.hidden} units; 1 to {WIDEST} work")
        if len(self.activations) != NEEDED[self.cell] or len(self.numbers) != 2 * len(self.activations):
            raise ArgumentError(
                f"recurrence: {len(self.activations)} activations with {len(self.numbers)} numbers; {self.cell} takes "
                f"{NEEDED[self.cell]}, with alpha and beta of each"
            )
        for name in self.activations:
            if name not in ACTIVATIONS:
                raise ArgumentError(f"recurrence: there is no activation {name!r}; there is {', '.join(ACTIVATIONS)}")
        if not 0 <= self.clip < np.inf:
            raise ArgumentError(f"recurrence: clip {self.clip}; a positive number works, and 0 for none")

    @property
    def name(self) -> str:
        return f"recurrence_{self.cell}_{'s8' if self.codes else 'f32'}"

    @property
    def gates(self) -> int:
        return GATES[self.cell]

    @property
    def units(self) -> int:
        """Columns that a gate takes in packed weights."""
        return padded_units(self.hidden)

    @property
    def groups(self) -> tuple[Group, ...]:
        wide = self.units % (4 * LANES) == 0  # four vectors of sums hide the latency of a product
        if self.cell == "gru" and not self.linear:
            return (Group(0, 2, 2 if wide else 1), Group(2, 1, 4 if wide else 1))
        if self.cell == "rnn":
            return (Group(0, 1, 4 if wide else 1),)
        return (Group(0, self.gates, 1),)

    @property
    def depth(self) -> int:
        """Rows of packed weights; of codes four to a row."""
        return -(-self.hidden // 4) if self.codes else self.hidden

    def panels(self, group: Group) -> tuple[int, ...]:
        """The shape of a group's packed weights."""
        width = group.gates * group.blocks * LANES
        shape = (self.units // (group.blocks * LANES), self.depth, width)
        return (*shape, 4) if self.codes else shape

    def signature(self) -> tuple[ArgSpec, ...]:
        batch = ("b", "u" if self.shared else None)
        specs = [
            ArgSpec("like", "f32", shape=("T", "B", "I")),
            ArgSpec("given", "f32", shape=("R", self.gates * self.hidden), strides="contiguous"),
            ArgSpec("h0", "f32", shape=("B", self.hidden), follows=("b", None)),
        ]
        if self.cell == "lstm":
            specs.append(ArgSpec("c0", "f32", shape=("B", self.hidden), follows=("b", None)))
        kind = "s8" if self.codes else "f32"
        specs += [
            ArgSpec(f"r{n}", kind, shape=self.panels(group), strides="contiguous")
            for n, group in enumerate(self.groups)
        ]
        columns = (self.gates * self.units,)
        if self.codes:
            specs += [ArgSpec("sums", "s32", shape=columns, strides="contiguous")]
            specs += [ArgSpec("scale", "f32", shape=columns, strides="contiguous")]
        if self.codes and self.zero_points:
            specs += [ArgSpec("zeros", "s32", shape=columns, strides="contiguous")]
        if self.linear:
            specs.append(ArgSpec("bias", "f32", shape=(self.hidden,), strides="contiguous"))
        if self.peepholes:
            specs.append(ArgSpec("peepholes", "f32", shape=(3, self.hidden), strides="contiguous"))
        if self.lengths:
            specs.append(ArgSpec("lengths", "s32", shape=("B",), follows=("b",)))
        y = ArgSpec("y", "f32", "write", shape=("T", "B", self.hidden), strides="rows", follows=(None, *batch))
        specs += [y, ArgSpec("h", "f32", "write", shape=("B", self.hidden), follows=batch)]
        if self.cell == "lstm":
            specs.append(ArgSpec("c", "f32", "write", shape=("B", self.hidden), follows=batch))
        return tuple(specs)

    def index_space(self) -> IndexSpace:
        if self.shared:
            units = Axis("u", self.hidden, multiple=LANES * self.groups[0].blocks)
            return IndexSpace((Axis("b", "B", split=False), Axis("t", "T", split=False, in_turn=True), units))
        # the scale of a state's codes is that of all batches, so they stay together
        return IndexSpace((Axis("b", "B", split=not self.codes, multiple=4),))

    def shares(self, length: int, batch: int) -> bool:
        """Whether threads are to share the units, where they cannot share batches."""
        one_product = not self.lengths and (self.cell != "gru" or self.linear)
        few = self.codes or batch < 8
        return one_product and few and length > 1 and self._step_cost(batch) >= SHARED

    def execute(self, ctx: Any) -> None:
        slots = self.signature()
        length, batch = (int(n) for n in ctx.read("like").shape[:2])
        given = ctx.read("given")
        if given.shape[0] != length * batch:
            raise ShapeMismatch(f"recurrence: given has {given.shape[0]} rows; {length} steps of {batch} batches work")
        operands = [ctx.write(s.slot) if s.access == "write" else ctx.read(s.slot) for s in slots[2:]]
        scratch = ctx.scratch(self.scratch_bytes(batch))
        kernel = replace(self, shared=self.shares(length, batch))
        ctx.sweep(kernel, given.reshape((length, batch, given.shape[1])), *operands, scratch)

    @property
    def operands(self) -> tuple[str, ...]:
        """What the step sweeps over, in this order; scratch comes last."""
        return tuple(s.slot for s in self.signature()[1:])

    def cost(self, extents: Any, given: Any, *_: Any) -> float:
        """About the bytes that could have been moved meanwhile."""
        return given.shape[0] * self._step_cost(max(extents["b"], 1))

    def _step_cost(self, batch: int) -> float:
        return batch * self.gates * self.hidden * (self.hidden + 32) / (8 if self.codes else 2)

    def scratch_bytes(self, batch: int) -> int:
        """State before and after, cell, two gates and codes of every batch; sums of a panel of at most 64 columns."""
        return (batch + 4) * 4 * (self.units * 6 + 4 * LANES) + 1024
