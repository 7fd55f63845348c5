"""The tile parameters of a GEMM, and what a tile makes it do: gemm.py's loops, counted instead of run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....primitives.errors import ArgumentError
from ...chain import Chain
from ...tileparams import TileParam, Work
from .. import caches
from .. import isa as levels
from . import plan as gemm_plan
from .dot import DOTS
from .steps import MOST_COLUMNS

MOST_ROWS = 20
LATENCY = 5  # cycles until the same sum can be added to again
TILE_ENDS = 50  # cycles that a tile costs beside its steps: storing it, and starting the next
LOADS = 1.5  # loads a cycle
POINTERS = 8  # rows of A whose addresses stay in registers: each further one is loaded, and stored, in each step
SPILL = 8  # cycles of a step that a vector costs that is kept in memory


def _registers(isa: str | None) -> tuple[int, ...]:
    return (2, 4, 6, 8, 12, 14, 16) if levels.select(isa).registers >= 32 else (1, 2, 4, 6)


def _widths(isa: str | None) -> tuple[int, ...]:
    lanes = levels.select(isa).lanes
    return tuple(lanes * n for n in (1, 2, 4) if MOST_COLUMNS % (lanes * n) == 0)


def _depths(sizes: Mapping[str, int]) -> tuple[int, ...]:
    K = sizes.get("K", 0)
    return tuple(n for n in (256, 512, 1024, 2048, 4096) if n < K) + ((K,) if K else ())


def row_blocks(sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Rows of a pass worth trying, up to all of them."""
    M = sizes.get("M", 0)
    return tuple(n for n in (24, 48, 96, 192, 384, 768) if n < M) + ((M,) if M else ())


TILES: dict[str, TileParam] = {
    "mr": TileParam(values=_registers, compiled=True, doc="rows of the register tile"),
    "nr": TileParam(values=_widths, compiled=True, doc="columns of the register tile"),
    "mc": TileParam(values=row_blocks, doc="rows of A in a pass over B"),
    "kc": TileParam(values=_depths, doc="depth of a pass"),
}


def given_tile(level: levels.Level, tile: Mapping[str, int]) -> dict[str, Any]:
    """The fields of an Engine for tile=; raises ArgumentError for tiles that no micro-kernel has."""
    found: dict[str, Any] = {}
    for name in ("mr", "mc", "kc"):
        if name in tile and tile[name] < 1:
            raise ArgumentError(f"tile {name}={tile[name]}: a positive integer is needed")
    if "mr" in tile or "nr" in tile:
        rows, columns = tile.get("mr", 4), tile.get("nr", level.lanes * 2)
        if columns % level.lanes or not 1 <= columns // level.lanes <= 4 or MOST_COLUMNS % columns:
            raise ArgumentError(
                f"tile nr={columns}: on {level.name} one of {', '.join(map(str, _widths(level.name)))} works"
            )
        if not 1 <= rows <= MOST_ROWS or rows * (columns // level.lanes) > level.registers:
            raise ArgumentError(
                f"tile {rows} x {columns} needs {rows * (columns // level.lanes)} registers for sums; "
                f"{level.name} has {level.registers}"
            )
        found["tile"] = (rows, columns // level.lanes)
    return found | {name: tile[name] for name in ("mc", "kc") if name in tile}


def work(kernel: Any, sizes: Mapping[str, int], tile: Mapping[str, int], isa: str | None = None) -> Work:
    """What a GEMM of these sizes does with this tile. Raises ArgumentError for a tile that no micro-kernel has."""
    base = kernel.base if isinstance(kernel, Chain) else kernel
    level = levels.select(isa)
    given = given_tile(level, tile)
    M, K, N = (int(sizes[name]) for name in ("M", "K", "N"))
    store = "f32" if base.real else "s32"
    plan = gemm_plan.plan(K, N, base.a_dtype, base.b_dtype, store, level=level, **given)
    batch = 1
    for axis in base.axes[:-2]:
        batch *= int(sizes[axis.upper()])
    return count(plan, M, batch)


def count(plan: gemm_plan.Plan, M: int, batch: int = 1) -> Work:
    """Cycles of arithmetic, and bytes from each level, of the loops in gemm.py."""
    layout, mr, steps = plan.layout, plan.family.rows, plan.layout.steps
    mc, kc = plan.mc(M), plan.kc
    dot, lanes = DOTS[plan.family.dot], layout.lanes
    cache = caches.sizes()
    panels = [layout.nr] * layout.full + ([layout.rest_vectors * lanes] if layout.rest_vectors else [])
    passes = [min(mc, M - row) for row in range(0, M, mc)]
    vectors, registers = layout.nr // lanes, levels.LEVELS[plan.family.level].registers
    needed = mr * vectors + vectors + 1  # sums, a row of B, a value of A
    spills = max(0, needed - registers + (2 if registers >= 32 else 0))
    cycles, from_l2, from_l3 = 0.0, 0.0, 0.0
    depth_passes = -(-steps // kc)
    for width in set(panels):
        across, times = width // lanes, panels.count(width)
        panel = 4 * min(kc, steps) * width
        for rows in set(passes):
            again = passes.count(rows) * times
            tiles = -(-rows // mr)
            short, tall = divmod(rows, tiles)
            for height, n in ((short + 1, tall), (short, tiles - tall)):
                loads = across + height + 2 * max(0, height - POINTERS)
                a_step = max(height * across, LATENCY, loads / LOADS) + SPILL * spills
                cycles += again * n * (steps * a_step + depth_passes * (TILE_ENDS + height * across))
            stays = panel + 4 * min(kc, steps) * mr <= 0.8 * cache["l1"]
            from_l2 += again * depth_passes * panel * (1 if stays else tiles)
            block = 4 * steps * rows
            if block > cache["l2"] * 0.7:
                from_l3 += again * block
            elif block > cache["l1"] / 2:
                from_l2 += again * block
            if depth_passes > 1:
                from_l2 += again * 8.0 * rows * width * (depth_passes - 1)
    whole = 4.0 * steps * sum(panels)
    moved = {"l2": from_l2, "l3": from_l3}
    home = "l2" if whole <= cache["l2"] / 2 else "l3" if whole <= cache["l3"] * 0.8 else "memory"
    moved[home] = moved.get(home, 0.0) + whole * len(passes)
    unit = "fma" if dot.real else "dot"
    deep = 1 if dot.real else DOTS[levels.LEVELS[plan.family.level].dot].group
    each = 2 * deep * lanes  # operations of that ceiling in a cycle
    tile = {"mr": mr, "nr": layout.nr, "mc": mc, "kc": min(kc, steps) * layout.group}
    hopeless = f"{mr} x {layout.nr} needs {needed} registers of {registers}" if needed > registers else ""
    group = {"mr": mr, "nr": layout.nr, "splits K": int(plan.family.split_k)}
    moved = {level: batch * n for level, n in moved.items()}
    return Work(tile, batch * cycles * each, unit, moved, group, hopeless)
