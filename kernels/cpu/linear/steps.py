"""What an integer linear becomes when a plan is made: x is quantized, then multiplied with packed weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from ...factory import WithParams, register
from ...forge import Native
from .. import isa
from ..epilogues.real_finish import RealFinish
from ..epilogues.user_finish import UserFinish
from ..gemm import driver as gemm
from ..gemm import plan as gemm_plan
from . import driver, functions
from .codes import Codes
from .layout import VECTORS, Layout
from .panels import FEW, Panels
from .tiles import GroupTile, Unpack

SHORT = 32767 // 127  # values whose sum fits int16
L1_FOR_B = 8 * 1024  # bytes of an unpacked panel that a pass takes: x and sums want their share of L1
L2_FOR_X = 512 * 1024  # bytes of quantized x that one pass over the panels keeps in L2
WIDE = 8
# Rows of a tile that keeps integer and float32 sums in registers.
_ROWS = {32: 6, 16: 3}


@dataclass(frozen=True)
class Engine:
    """Everything about an integer linear that is fixed when the plan is made, but the number of rows.

    x_block, x_pitch   bytes of a block and of a row of quantized x
    mc                 rows of a pass instead of those that fit
    """

    codes: Codes
    layout: Layout
    zeros: bool
    x_block: int
    x_pitch: int
    finish: RealFinish | UserFinish
    mc: int | None = None

    @property
    def mr(self) -> int:
        return _ROWS[isa.LEVELS[self.codes.level].registers]

    def packed(self, M: int) -> bool:
        """Whether tiles read packed panels: for few rows, and where unpacking would change nothing."""
        return M <= FEW or (self.codes.bits == 8 and self.codes.form == "plain" and self.codes.bytewise)

    @property
    def unpacked(self) -> int:
        """Bytes of a record as unpacked."""
        layout, codes = self.layout, self.codes
        header = (4 * layout.parameters + self.zeros) * layout.nr
        return header + layout.units * codes.places * codes.parts * 4 * layout.nr

    def per(self, M: int) -> int:
        if self.packed(M):
            return self.layout.blocks
        passes = -(-self.layout.blocks * self.unpacked // L1_FOR_B)
        per = max(1, -(-self.layout.blocks // passes))
        shared = max(1, self.layout.shared)
        return -(-per // shared) * shared  # passes begin where factors do

    def rows(self, M: int) -> int:
        """Rows of a pass: what L2 holds, in whole tiles of nearly equal number."""
        if M <= FEW and self.mc is None:
            return max(1, M)
        mr = self.tallest(M)
        limit = max(mr, (self.mc or L2_FOR_X // self.x_pitch) // mr * mr)
        passes = max(1, -(-M // limit))
        return max(mr, -(-M // passes // mr) * mr)

    def tallest(self, M: int) -> int:
        return min(max(1, M), self.mr)

    def heights(self, M: int) -> range:
        """Heights of the tiles: every one; the one or two that M takes where it is never cut, below FEW."""
        if M > FEW or self.mc is not None:
            return range(1, self.mr + 1)
        count = -(-max(1, M) // self.mr)
        return range(max(1, M) // count, -(-max(1, M) // count) + 1)

    def scratch_bytes(self, M: int) -> int:
        unpacked = 0 if self.packed(M) else self.per(M) * self.unpacked
        return gemm.WORK + 4 * self.layout.nr * self.wide(M) * self.rows(M) + unpacked + 64

    def wide(self, M: int) -> int:
        """Panels whose sums leave together: with few rows, finishing each panel by itself would hold up the stream."""
        return WIDE if M <= FEW and self.packed(M) else 1

    def tiles(self, M: int) -> functions.Functions:
        short, packed = self.layout.depth <= SHORT, self.packed(M)
        form = (self.layout.form, self.layout.shared) if packed else ()
        made = tuple(
            GroupTile(self.codes, n, VECTORS, packed, self.zeros, self.layout.parameters == 2, short, *form)
            for n in self.heights(M)
        )
        return functions.Functions("tilework.kernels.cpu.linear.tiles", ("Codes", "GroupTile"), made)

    def unpacker(self) -> functions.Functions:
        layout = self.layout
        made = (Unpack(self.codes, VECTORS, self.zeros, layout.parameters == 2, layout.form, layout.shared),)
        return functions.Functions("tilework.kernels.cpu.linear.tiles", ("Codes", "Unpack"), made)

    def parameters(self, M: int, plane: int) -> list[int]:
        """The words that follow the operands in the driver's block (driver.NAMES)."""
        layout = self.layout
        unpack = 0 if self.packed(M) else int(functions.addresses(self.unpacker())[0][0])
        tiles = self.tiles(M)
        first = tiles.functions[0].rows
        words = {
            "tiles": functions.addresses(tiles)[0].ctypes.data - 8 * (first - 1),
            "unpack": unpack,
            "finish": gemm_plan.finisher(self.finish).address,
            "mr": self.tallest(M),
            "nr": layout.nr,
            "panel": layout.panel,
            "record": layout.record,
            "blocks": layout.blocks,
            "per": self.per(M),
            "shared": layout.shared,
            "factors": layout.factors,
            "wide": self.wide(M),
            "unpacked": self.unpacked,
            "units": layout.units,
            "x_block": self.x_block,
            "plane": plane,
            "mc": self.rows(M),
        }
        return [words[name] for name in driver.NAMES] + [0] * driver.FILL

    def detail(self, M: int) -> str:
        """Instruction, weights and tiles at this number of rows."""
        codes, layout = self.codes, self.layout
        form = {"plain": "codes", "shifts": "codes less zero points", "table": "a byte shuffle of codes"}[codes.form]
        how = "unpacked in registers" if self.packed(M) else "unpacked panel by panel"
        return (
            f"{codes.dot.name} on {codes.level}, {form} of {codes.bits} bits in blocks of {layout.depth}, {how}, "
            f"mr x nr {self.tallest(M)} x {layout.nr}, mc {self.rows(M)}"
        )


class LinearPanels(Panels):
    """out[.., m, n] = epilogue(quantized x[.., m, :] times packed columns n)."""

    name: ClassVar[str] = "linear_panels"

    def cost(self, extents: Mapping[str, int], *_: Any) -> float:
        """About the bytes that could have been moved meanwhile: 8 products in the time of a byte, or the weights."""
        layout = self.engine.layout
        m, n = extents["m"], extents["n"]
        return max(m * n * layout.K / 8, layout.panel / layout.nr * n, 4.0 * m * n)


@lru_cache(maxsize=1)
def _driver() -> Native:
    return Native("from tilework.kernels.cpu.linear.driver import linear_entry as entry\n", raw=True)


@register("linear_panels", backend="cpu", variant="microkernel")
def build(kernel: LinearPanels) -> WithParams:
    engine = kernel.engine
    return WithParams(
        _driver(), lambda rows, *_: engine.parameters(rows.shape[0], kernel.plane), trailing=len(kernel.extra)
    )
