"""Recurrent cells, step by step in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import recurrent_gates as gates
from ..factory import Whole, register
from ..recurrent import LANES, Group, Recurrence
from .attention import chain
from .quantize import quantize
from .reduce.dynamic import parameters


def unpacked(kernel: Recurrence, group: Group, panels: ArrayLike) -> NDArray:
    """The weights (hidden, gates, units) of a group, from panels of whole vectors."""
    given = np.asarray(panels)
    count, depth = given.shape[:2]
    split = given.reshape(count, depth, group.gates, group.blocks * LANES, -1)  # panel, row, gate, unit, byte
    rows = split.transpose(1, 4, 2, 0, 3).reshape(-1, group.gates, kernel.units)
    return rows[: kernel.hidden]


def columns(kernel: Recurrence, group: Group, given: ArrayLike) -> NDArray:
    """Of a parameter of every column of every panel, a group's (1, gates * units), gate by gate."""
    first, width = group.first * kernel.units, group.blocks * LANES
    own = np.asarray(given)[first : first + group.gates * kernel.units]
    return own.reshape(-1, group.gates, width).transpose(1, 0, 2).reshape(1, -1)


def state_codes(state: NDArray, counted: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """u8 codes of a state, their one scale and zero point, as DynamicQuantizeLinear of the batches that count."""
    rows = state[counted]
    scale, zero = parameters(rows.min(initial=0), rows.max(initial=0), "u8", False)
    return quantize(state, scale, zero, lo=0, hi=255, dtype=np.dtype(np.uint8)), scale, zero


def recurrence(kernel: Recurrence, operands: dict[str, Any]) -> None:
    """Fill y, h and c.

    given    float32 (T, B, gates * hidden): what the input of each step adds to each gate, with every bias but a
             linear gru's of the hidden gate
    h0, c0   float32 (B, hidden)
    r0, r1   weights of the state as panels (Recurrence.panels), float32 or s8 codes
    sums     (codes) int32 (gates * units,): for each column of each panel, in their order, the sum over the hidden
             units of code - zero point
    scale    (codes) float32, of each column;  zeros: int32 zero points
    lengths  int32 (B,), cut to 0 .. T: behind a batch's last step y is 0 and the state stays. Backwards each batch
             begins at its own last step, all of them at once

        float32  sum = one chain of fused multiply-adds over ascending units, from 0
        codes    sum = float32(h_codes r - zero_h * sums - zeros * sum(h_codes)) * (scale_h * scale), the bracket exact;
                 a batch that has ended no longer counts for the scale of h, from one step behind its last on

    and the gates of recurrent_gates.py, in float32.
    """
    x, h = operands["given"], np.array(operands["h0"], np.float32)
    lstm = kernel.cell == "lstm"
    c = np.array(operands["c0"], np.float32) if lstm else h
    hidden, batch = kernel.hidden, h.shape[0]
    weights = [unpacked(kernel, group, operands[f"r{n}"]) for n, group in enumerate(kernel.groups)]
    common = (kernel.activations, kernel.numbers, kernel.clip)

    def products(n: int, state: NDArray, counted: NDArray) -> list[NDArray]:
        """The sums of each gate of a group, (B, hidden)."""
        group = kernel.groups[n]
        flat = weights[n].reshape(hidden, -1)
        if kernel.codes:
            codes, step, zero = state_codes(state, counted)
            total = (codes.astype(np.int64) @ flat.astype(np.int64)).astype(np.int32)
            sums, scale = (columns(kernel, group, operands[k]) for k in ("sums", "scale"))
            at = np.full((1, 1), zero, np.float32)
            if kernel.zero_points:
                row = codes.sum(1, dtype=np.int64).astype(np.float32)[:, None]
                found = gates.real_sums_shifted(
                    total, sums, scale, columns(kernel, group, operands["zeros"]), at, step, row
                )
            else:
                found = gates.real_sums(total, sums, scale, at, step)
        else:
            found = chain(state, flat, np.zeros((batch, flat.shape[1]), np.float32))
        return list(found.reshape(batch, group.gates, kernel.units)[..., :hidden].transpose(1, 0, 2))

    def step(given: list[NDArray], alive: NDArray, counted: NDArray) -> tuple[NDArray, NDArray]:
        sums = products(0, h, counted)
        if kernel.cell == "rnn":
            return gates.rnn(*common)(*sums, *given), c
        if lstm:
            holes = [p[None] for p in operands["peepholes"]] if kernel.peepholes else []
            new, out = gates.lstm(*common, kernel.peepholes, kernel.input_forget)(*sums, *given, c, *holes)
            return out, new
        if kernel.linear:
            return gates.gru_linear(*common)(*sums, *given, operands["bias"][None], h), c
        z, reset = gates.gru_reset(*common)(*sums, *given[:2], h)
        return gates.gru_new(*common)(*products(1, reset, alive), given[2], z, h), c

    steps, rows = x.shape[0], np.arange(batch)
    length = np.clip(operands["lengths"], 0, steps) if kernel.lengths else np.full(batch, steps)
    with np.errstate(all="ignore"):
        for s in range(steps):
            alive = s < length
            t = np.where(alive, length - 1 - s, s) if kernel.reverse else np.full(batch, s)
            given = [x[t, rows, g * hidden : (g + 1) * hidden] for g in range(kernel.gates)]
            out, cell = step(given, alive, s <= length)
            operands["y"][t, rows] = np.where(alive[:, None], out, np.float32(0))
            h, c = np.where(alive[:, None], out, h), np.where(alive[:, None], cell, c)
    operands["h"][...] = h
    if lstm:
        operands["c"][...] = c


@register("recurrence", backend="reference")
def recurrence_step(kernel: Recurrence) -> Whole:
    def fn(*operands: Any) -> None:
        recurrence(kernel, dict(zip(kernel.operands, operands[:-1], strict=True)))

    return Whole(fn)
