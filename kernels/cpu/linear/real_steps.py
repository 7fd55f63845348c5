"""What a linear over real numbers becomes when a plan is made: rows of x, times packed weights decoded on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from ...factory import WithParams, register
from ...forge import Native, entry
from .. import isa
from ..epilogues.real_finish import RealFinish
from ..epilogues.user_finish import UserFinish
from ..gemm import driver as gemm
from ..gemm import plan as gemm_plan
from ..gemm.microkernel import Tile
from . import functions, real_driver
from .decode import Decode, Round
from .layout import VECTORS, Layout
from .panels import FEW, Panels
from .real_tiles import FewRows

VERY_FEW = 3  # rows up to which two panels are read side by side
CHUNK = 256  # values of K that are decoded together
ROWS = 1024  # rows of x that one decoded chunk serves: their sums stay in L2
# Rows of a tile of two vectors.
_ROWS = {32: 8, 16: 4}


@dataclass(frozen=True)
class RealEngine:
    """Everything about a real linear that is fixed when the plan is made, but the number of rows.

    dot     instruction (dot.DOTS)
    round   what rounds decoded weights; None leaves them as they are
    user    text of the module that decodes by a user's function; "" if there is none
    x_item, x_pitch  bytes of an element and of a row of x
    """

    layout: Layout
    decode: Decode
    dot: str
    round: Round | None
    user: str
    x_item: int
    x_pitch: int
    finish: RealFinish | UserFinish
    mc: int | None = None

    @property
    def level(self) -> str:
        return self.decode.level

    @property
    def mr(self) -> int:
        return _ROWS[isa.LEVELS[self.level].registers]

    @property
    def group(self) -> int:
        return 2 if self.dot == "vdpbf16ps" else 1

    @property
    def chunk(self) -> int:
        """Values of K: whole blocks where several fit, else a part of one; an even number unless it is the last."""
        depth, K = self.layout.depth, self.layout.K
        if depth > CHUNK and (depth % 2 == 0 or depth >= K):
            return CHUNK
        blocks = max(1, CHUNK // depth)
        if blocks * depth % 2:
            blocks = blocks - 1 or 2
        return blocks * depth

    def rows(self, M: int) -> int:
        """Rows of a pass, in whole tiles of nearly equal number."""
        mr = self.mr
        limit = max(mr, (self.mc or ROWS) // mr * mr)
        passes = max(1, -(-M // limit))
        return max(mr, -(-M // passes // mr) * mr)

    @property
    def decoded(self) -> int:
        """Bytes of a decoded chunk: units run past its end."""
        return 4 * self.layout.nr * (self.chunk + self.layout.unit)

    def scratch_bytes(self, M: int) -> int:
        return gemm.WORK + 8 * self.layout.nr * self.rows(M) + 3 * self.decoded + 64

    def tiles(self, M: int) -> functions.Functions:
        made = tuple(
            Tile(self.level, self.dot, n, VECTORS, "f32", resume=True) for n in range(1, min(self.mr, max(M, 1)) + 1)
        )
        return functions.Functions("tilework.kernels.cpu.gemm.microkernel", ("Tile",), made)

    def helper(self, what: Decode | Round) -> int:
        home = functions.Functions("tilework.kernels.cpu.linear.decode", (type(what).__name__,), (what,))
        return int(functions.addresses(home)[0][0])

    def few(self, M: int) -> bool:
        """Whether one tile takes all rows and decodes in registers: few rows, and blocks of whole units."""
        layout = self.layout
        whole = layout.K % layout.unit == 0 and (layout.depth % layout.unit == 0 or layout.depth >= layout.K)
        return 0 < M <= FEW and whole and not self.user and layout.K > 0

    def few_tiles(self, M: int) -> functions.Functions:
        """Tiles for as many panels as keep the pipeline full, and for one."""
        counts = (2, 1) if M <= VERY_FEW else (1,)
        made = tuple(FewRows(self.decode, M, n, self.x_item, self.round) for n in counts)
        return functions.Functions("tilework.kernels.cpu.linear.real_tiles", ("Decode", "FewRows", "Round"), made)

    def parameters(self, M: int, plane: int) -> list[int]:
        """The words that follow the operands in the driver's block (real_driver.NAMES)."""
        layout, few = self.layout, self.few(M)
        made = functions.addresses(self.few_tiles(M) if few else self.tiles(M))[0]
        words = {
            "tiles": made.ctypes.data,
            "decode": int(made[0]) if few else self.helper(self.decode),
            "finish": gemm_plan.finisher(self.finish).address,
            "mr": len(made) if few else self.mr,
            "nr": layout.nr,
            "panel": layout.panel,
            "record": layout.record,
            "depth": layout.depth,
            "chunk": self.chunk,
            "unit": layout.unit,
            "header": layout.header,
            "round": int(made[-1]) if few else self.helper(self.round) if self.round is not None else 0,
            "plane": plane,
            "mc": self.rows(M),
            "K": layout.K,
            "x_item": self.x_item,
            "group": self.group,
            "user": entry(Native(self.user, raw=True), 2, ()).address if self.user else 0,
            "decoded": self.decoded,
            "few": int(few),
        }
        return [words[name] for name in real_driver.NAMES] + [0] * real_driver.FILL

    def detail(self, M: int) -> str:
        """Instruction, decoding and tiles at this number of rows."""
        decode = {
            "number": "codes as numbers",
            "shuffle": "a register shuffle of codes",
            "table": "a table of codes",
            "code": "a user's function of codes",
        }[self.decode.form]
        if self.few(M):
            return (
                f"{self.dot} on {self.level}, {decode} of {self.decode.bits} bits in blocks of {self.layout.depth}, "
                f"in registers"
            )
        return (
            f"{self.dot} on {self.level}, {decode} of {self.decode.bits} bits in blocks of {self.layout.depth}, decoded "
            f"{self.chunk} at a time, mr x nr {self.mr} x {self.layout.nr}, mc {self.rows(M)}"
        )


class RealPanels(Panels):
    """out[.., m, n] = epilogue(x[.., m, :] times decoded columns n)."""

    name: ClassVar[str] = "linear_decoded"
    least_rows: ClassVar[int] = 512  # decoding a weight takes as long as multiplying it by 5 to 14 rows

    def cost(self, extents: Mapping[str, int], *_: Any) -> float:
        """About the bytes that could have been moved meanwhile: 2 products in the time of a byte, or the decoding."""
        m, n = extents["m"], extents["n"]
        return max(m, 4) * n * self.engine.layout.K / 2.0


@lru_cache(maxsize=1)
def _driver() -> Native:
    return Native("from tilework.kernels.cpu.linear.real_driver import linear_entry as entry\n", raw=True)


@register("linear_decoded", backend="cpu", variant="microkernel")
def build(kernel: RealPanels) -> WithParams:
    engine = kernel.engine
    return WithParams(
        _driver(), lambda rows, *_: engine.parameters(rows.shape[0], kernel.plane), trailing=len(kernel.extra)
    )
