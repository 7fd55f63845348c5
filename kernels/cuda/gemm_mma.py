"""gemm of 8-bit codes on CUDA's tensor cores: B packed once, a pipeline of asynchronous copies, mma, a finish.

A block computes bm x bn sums over steps of 64 along K. Its warps each hold a part of them in registers. While one step
is multiplied the next ones are on their way to shared memory, in as many stages as fit. There, 16-byte chunk c of row r
lies at chunk c ^ ((r >> 1) & 3), so that the eight rows that ldmatrix reads at once lie in different banks.

Packed B is (N, K) with K padded by zeros to whole steps; beside it lie the sums of B's columns, and of A's rows where B
has a zero point, which correct the raw sum:  sum (a - za)(b - zb) = sum ab - za sum b - zb (sum a - K za).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...primitives.errors import ArgumentError
from ..gemm import Gemm
from ..tileparams import TileParam, Work
from .finish import Finish
from .launch import At, Launch, Launches, Temp, address, ceildiv, element_strides, pointee
from .text import Parameters, indented, made

STEP = 64  # along K
PACK_THREADS = 128


@dataclass(frozen=True)
class Tile:
    """bm x bn sums of a block, divided among wm x wn warps; stages of the pipeline."""

    bm: int = 128
    bn: int = 128
    wm: int = 2
    wn: int = 4
    stages: int = 3

    @property
    def threads(self) -> int:
        return 32 * self.wm * self.wn

    @property
    def shared_bytes(self) -> int:
        return (self.bm + self.bn) * STEP * self.stages


LARGE, SMALL = Tile(), Tile(64, 64, 2, 2)
SHARED = 48 * 1024  # bytes that a block may have without asking
TILES = {
    "bm": TileParam(values=(32, 64, 128), compiled=True, doc="rows of a block"),
    "bn": TileParam(values=(32, 64, 128), compiled=True, doc="columns of a block"),
    "wm": TileParam(values=(1, 2, 4), compiled=True, doc="warps along the rows"),
    "wn": TileParam(values=(1, 2, 4), compiled=True, doc="warps along the columns"),
    "stages": TileParam(values=(2, 3), compiled=True, doc="steps of K on their way at once"),
}


def tile_of(m: int, n: int, given: Mapping[str, int] | None = None) -> Tile:
    """The tile for a result of these sizes, with what is given. Raises ArgumentError for one that no block can have."""
    tile = replace(LARGE if m > 64 and n > 64 else SMALL, **(given or {}))
    if tile.bm % (16 * tile.wm) or tile.bn % (16 * tile.wn):
        raise ArgumentError(
            f"tile {tile.bm} x {tile.bn} on {tile.wm} x {tile.wn} warps: a warp takes multiples of 16 rows and 16 columns"
        )
    if tile.threads > 1024 or (tile.bm * 4) % tile.threads or (tile.bn * 4) % tile.threads:
        raise ArgumentError(
            f"tile {tile.bm} x {tile.bn} has {tile.threads} threads; at most 1024, and a divisor of {tile.bm * 4} and of "
            f"{tile.bn * 4}, copy whole rows"
        )
    if tile.stages not in (2, 3) or tile.shared_bytes > SHARED:
        raise ArgumentError(
            f"tile {tile.bm} x {tile.bn} in {tile.stages} stages needs {tile.shared_bytes} bytes of shared memory; two or "
            f"three stages, and up to {SHARED} bytes, work"
        )
    return tile


def work(sizes: Mapping[str, int], tile: Mapping[str, int]) -> Work:
    """What a tile comes to, and the operations of whole blocks, those on padding included."""
    M, K, N = (int(sizes[name]) for name in ("M", "K", "N"))
    found = tile_of(M, N, tile)
    padded = ceildiv(M, found.bm) * found.bm * ceildiv(N, found.bn) * found.bn
    return Work(asdict(found), 2.0 * padded * ceildiv(max(K, 1), STEP) * STEP)


_KERNEL = """\
import numpy as np
from {package} import ptx
from {package}.scalar import *
from {package}.seam import cuda, device
{prelude}

@device
def copy_rows(shared, base, source, first, limit, pitch, k0, k_size, thread, rounds):
    \"\"\"Start copying rows of 64 bytes from byte k0 on; what lies outside becomes zeros.\"\"\"
    for j in range(rounds):
        chunk = thread + {threads} * j
        r = chunk >> 2
        c = chunk & 3
        k = k0 + c * 16
        count = np.int32(0)
        at = 0
        if first + r < limit and k < k_size:
            count = np.int32(min(16, k_size - k))
            at = (first + r) * pitch + k
        ptx.cp_async16(shared, base + r * 64 + (c ^ ((r >> 1) & 3)) * 16, source, at, count)


def gemm_mma({parameters}):
    shared = cuda.shared.array({shared}, np.int8)
    sums = cuda.local.array({sums}, np.int32)
    left = cuda.local.array({left}, np.int32)
    right = cuda.local.array({right}, np.int32)
    thread = cuda.threadIdx.x
    lane = thread & 31
    warp = thread >> 5
    row0 = (warp // {wn}) * {warp_rows}
    column0 = (warp % {wn}) * {warp_columns}
    m0 = cuda.blockIdx.y * {bm}
    n0 = cuda.blockIdx.x * {bn}
    for i in range({sums}):
        sums[i] = 0
    steps = (k_size + 63) >> 6
    for s in range({ahead}):
        if s < steps:
            copy_rows(shared, s * {stage}, a, m0, m_size, a_m, s * 64, k_size, thread, {a_rounds})
            copy_rows(shared, s * {stage} + {a_bytes}, packed_b, n0, n_size, k_packed, s * 64, k_packed, thread, {b_rounds})
        ptx.cp_async_commit()
    here = 0  # the stage that is multiplied
    there = {ahead}  # the stage that is filled meanwhile
    for s in range(steps):
        ptx.cp_async_wait{keep}()
        cuda.syncthreads()  # the copies of all threads have arrived, and all have left the stage that is filled next
        if s + {ahead} < steps:
            k0 = (s + {ahead}) * 64
            copy_rows(shared, there * {stage}, a, m0, m_size, a_m, k0, k_size, thread, {a_rounds})
            copy_rows(shared, there * {stage} + {a_bytes}, packed_b, n0, n_size, k_packed, k0, k_packed, thread, {b_rounds})
        ptx.cp_async_commit()
        a_base = here * {stage}
        b_base = a_base + {a_bytes}
        for half in range(2):
            for i in range({m_tiles}):
                r = row0 + i * 16 + (lane & 15)
                c = half * 2 + (lane >> 4)
                found = ptx.ldmatrix_x4(shared, a_base + r * 64 + (c ^ ((r >> 1) & 3)) * 16)
                left[i * 4] = found[0]
                left[i * 4 + 1] = found[1]
                left[i * 4 + 2] = found[2]
                left[i * 4 + 3] = found[3]
            for j in range({n_pairs}):
                r = column0 + j * 16 + (lane & 7) + ((lane >> 4) << 3)
                c = half * 2 + ((lane >> 3) & 1)
                found = ptx.ldmatrix_x4(shared, b_base + r * 64 + (c ^ ((r >> 1) & 3)) * 16)
                right[j * 4] = found[0]
                right[j * 4 + 1] = found[1]
                right[j * 4 + 2] = found[2]
                right[j * 4 + 3] = found[3]
            for i in range({m_tiles}):
                for j in range({n_tiles}):
                    q = (i * {n_tiles} + j) * 4
                    made = ptx.mma_m16n8k32_{types}(
                        left[i * 4], left[i * 4 + 1], left[i * 4 + 2], left[i * 4 + 3],
                        right[j * 2], right[j * 2 + 1],
                        sums[q], sums[q + 1], sums[q + 2], sums[q + 3],
                    )
                    sums[q] = made[0]
                    sums[q + 1] = made[1]
                    sums[q + 2] = made[2]
                    sums[q + 3] = made[3]
        here = here + 1 if here < {last} else 0
        there = there + 1 if there < {last} else 0
    for i in range({m_tiles}):
        for half in range(2):
            m = m0 + row0 + i * 16 + (lane >> 2) + half * 8
            if m < m_size:
{row}                for j in range({n_tiles}):
                    for e in range(2):
                        n = n0 + column0 + j * 8 + (lane & 3) * 2 + e
                        if n < n_size:
                            value = sums[(i * {n_tiles} + j) * 4 + half * 2 + e]
{finish}
"""

_PACK_B = """\
import numpy as np
from {package} import ptx
from {package}.seam import cuda


def pack_b(b, packed_b, column_sums, n_size, k_size, k_packed, b_k, b_n):
    n = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if n < n_size:
        total = 0
        for k in range(k_size):
            code = b[k * b_k + n * b_n]
            packed_b[n * k_packed + k] = code
            total += code
        for k in range(k_size, k_packed):
            packed_b[n * k_packed + k] = 0
        column_sums[n] = np.int32(total)
"""

_PACK_A = """\
import numpy as np
from {package} import ptx
from {package}.seam import cuda


def pack_a(a, packed_a, row_sums, m_size, k_size, k_packed, a_m, a_k):
    m = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    total = np.int32(0)
    if m < m_size:
        for k in range(cuda.threadIdx.x, k_packed, 32):
            code = 0
            if k < k_size:
                code = np.int64(a[m * a_m + k * a_k])
            packed_a[m * k_packed + k] = code
            total = np.int32(total + code)
    for step in range(5):
        total = np.int32(total + ptx.shfl_xor(total, np.int32(16 >> step)))
    if m < m_size and cuda.threadIdx.x == 0:
        row_sums[m] = total
"""


def refuses(kernel: Gemm) -> str | None:
    """Why tensor cores cannot serve this gemm, or None."""
    if kernel.a_dtype not in ("u8", "s8"):
        return f"gemm of {kernel.a_dtype} is not one of 8-bit codes"
    if kernel.batch:
        return "leading dimensions"
    return None


def reads_a_in_place(a: Any) -> bool:
    """Whether rows of A can be copied 16 bytes at a time as they lie."""
    m_stride, k_stride = a.strides[-2:]
    rows = a.shape[0] == 1 or (m_stride % 16 == 0 and m_stride > 0)
    return (k_stride == 1 or a.shape[1] == 1) and rows and address(a) % 16 == 0


def plan(
    kernel: Gemm, operands: tuple[Any, ...], finish: Finish, given_tile: Mapping[str, int] | None = None
) -> Launches:
    a, b = operands[:2]
    slots = [s for s in ("a_zero_point", "b_zero_point") if getattr(kernel, s) is not None]
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if 0 in (m, n):
        return Launches(())
    tile = tile_of(m, n, given_tile)
    k_packed = ceildiv(max(k, 1), STEP) * STEP
    # Temporary memory: packed B, sums of its columns, packed A, sums of its rows.
    temporaries = [n * k_packed, 4 * n]
    launches = [pack_b(b, n, k, k_packed)]
    copied = "b_zero_point" in slots or not reads_a_in_place(a)
    if copied:
        temporaries += [m * k_packed, 4 * m]
        launches.append(pack_a(a, m, k, k_packed))
    given = Parameters()
    a_type, b_type = pointee(a.dtype), pointee(b.dtype)
    given.pointer("a", a_type, Temp(2, a_type) if copied else At(0))
    given.pointer("packed_b", b_type, Temp(0, b_type))
    for name, value in (("m_size", m), ("n_size", n), ("k_size", k_packed if copied else k), ("k_packed", k_packed)):
        given.number(name, value)
    given.number("a_m", k_packed if copied else element_strides(a)[-2])
    row, correction = corrections(kernel, operands, slots, given, k)
    written = [*correction, *finish.parameters(given, operands)]
    copies = {"a_rounds": tile.bm * 4 // tile.threads, "b_rounds": tile.bn * 4 // tile.threads}
    warp_rows, warp_columns = tile.bm // tile.wm, tile.bn // tile.wn
    m_tiles, n_tiles = warp_rows // 16, warp_columns // 8
    text = _KERNEL.format(
        package=__package__,
        prelude=finish.prelude,
        parameters=", ".join(given.names),
        types=f"{kernel.a_dtype}{kernel.b_dtype}",
        threads=tile.threads,
        bm=tile.bm,
        bn=tile.bn,
        wn=tile.wn,
        stage=(tile.bm + tile.bn) * STEP,
        shared=tile.shared_bytes,
        a_bytes=tile.bm * STEP,
        sums=m_tiles * n_tiles * 4,
        left=m_tiles * 4,
        right=n_tiles * 2,
        m_tiles=m_tiles,
        n_tiles=n_tiles,
        n_pairs=n_tiles // 2,
        warp_rows=warp_rows,
        warp_columns=warp_columns,
        ahead=tile.stages - 1,
        keep=tile.stages - 2,
        last=tile.stages - 1,
        row=indented(row, 4),
        finish=indented(written, 7).rstrip("\n"),
        **copies,
    )
    grid = (ceildiv(n, tile.bn), ceildiv(m, tile.bm))
    launches.append(given.launch(made(text, "gemm_mma"), grid, (tile.threads,)))
    return Launches(tuple(launches), tuple(temporaries))


def corrections(
    kernel: Gemm, operands: tuple[Any, ...], slots: list[str], given: Parameters, k: int
) -> tuple[list[str], list[str]]:
    """Lines for a row, and lines for a sum, that take the zero points into account."""
    where: dict[str, str] = {}
    for position, slot in enumerate(slots, 2):
        array = operands[position]
        given.pointer(slot, pointee(array.dtype), At(position))
        terms = []
        for d, (at, stride) in enumerate(zip(getattr(kernel, slot), element_strides(array), strict=True)):
            if at is not None and stride:
                given.number(f"{slot}_s{d}", stride)
                terms.append(f"{'mn'[at[0]]} * {slot}_s{d}")
        where[slot] = f"np.int64({slot}[{' + '.join(terms) or '0'}])"
    row, lines = [], []
    if "a_zero_point" in slots:
        given.pointer("column_sums", "s32", Temp(1, "s32"))
        row.append(f"za = {where['a_zero_point']}")
        lines.append("value = np.int32(value - za * column_sums[n])")
    if "b_zero_point" in slots:
        given.pointer("row_sums", "s32", Temp(3, "s32"))
        given.number("depth", k)
        row.append("a_total = np.int64(row_sums[m])" + (" - depth * za" if "a_zero_point" in slots else ""))
        lines.append(f"value = np.int32(value - {where['b_zero_point']} * a_total)")
    return row, lines


def pack_b(b: Any, n: int, k: int, k_packed: int) -> Launch:
    """B (K, N) of any strides to (N, K padded), and the sums of its columns."""
    dtype = pointee(b.dtype)
    given = Parameters()
    given.pointer("b", dtype, At(1))
    given.pointer("packed_b", dtype, Temp(0, dtype), written=True)
    given.pointer("column_sums", "s32", Temp(1, "s32"), written=True)
    strides = element_strides(b)
    for name, value in zip(
        ("n_size", "k_size", "k_packed", "b_k", "b_n"), (n, k, k_packed, strides[-2], strides[-1]), strict=True
    ):
        given.number(name, value)
    kernel = made(_PACK_B.format(package=__package__), "pack_b")
    return given.launch(kernel, (ceildiv(n, PACK_THREADS),), (PACK_THREADS,))


def pack_a(a: Any, m: int, k: int, k_packed: int) -> Launch:
    """A (M, K) of any strides to (M, K padded), and the sums of its rows."""
    dtype = pointee(a.dtype)
    given = Parameters()
    given.pointer("a", dtype, At(0))
    given.pointer("packed_a", dtype, Temp(2, dtype), written=True)
    given.pointer("row_sums", "s32", Temp(3, "s32"), written=True)
    strides = element_strides(a)
    for name, value in zip(
        ("m_size", "k_size", "k_packed", "a_m", "a_k"), (m, k, k_packed, strides[-2], strides[-1]), strict=True
    ):
        given.number(name, value)
    return given.launch(made(_PACK_A.format(package=__package__), "pack_a"), (ceildiv(m, 4),), (32, 4))
