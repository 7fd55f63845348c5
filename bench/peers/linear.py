"""`tilework bench peers linear`: weights of 4 bits against ONNX Runtime's MatMulNBits, on the same codes and scales.

Tables:
    int8    integer compute against accuracy_level 4 (which quantizes x to 8 bits block by block too)
    float   float32 and bfloat16 compute against accuracy_level 0
    blocks  blocks that no power of two divides, against blocks of 32
    offset  a float scale and offset for each 32 codes, as two-level formats decode to: bytes moved against reading them

Every result is compared before anything is timed: tilework with its reference to the bit on some columns (bfloat16
within its bound), the peer with tilework.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...executors.tiling import TilingExecutor
from ...kernels.cpu.linear.real_steps import VERY_FEW
from ...kernels.linear import CodeFormat, Linear
from ...kernels.reference import linear as reference
from ...primitives.errors import ArgumentError
from ...primitives.pipeline import Pipeline
from .. import peers, timing
from ..machine import doctor, peak
from . import gemm

Array = np.ndarray[Any, Any]
TABLES = ("int8", "float", "blocks", "offset")
LONG_BLOCK = 0.04  # seconds
COLUMNS = 40  # of the result that are compared with the reference
NF4 = (
    "-1 -.6961928 -.52507305 -.39491749 -.28444138 -.18477343 -.09105004 0 "
    ".0795803 .1609302 .2461123 .33791524 .44070983 .562617 .72295684 1"
)
MXFP4 = "0 .5 1 1.5 2 3 4 6 -0 -.5 -1 -1.5 -2 -3 -4 -6"


@dataclass(frozen=True)
class Options:
    """rows: values of M. weights: "hot", or "rotated" through more copies than the last cache holds."""

    tables: tuple[str, ...] = ("int8", "float", "blocks")
    rows: tuple[int, ...] = (1, 8, 64, 256, 1024)
    sizes: tuple[tuple[int, int], ...] = ((4096, 4096),)  # (K, N)
    groups: tuple[int, ...] = (32, 128)
    threads: tuple[int, ...] = (1,)
    weights: tuple[str, ...] = ("hot",)
    rounds: int = 9
    isa: str | None = None

    def __post_init__(self) -> None:
        for what, given, known in (("table", self.tables, TABLES), ("weights", self.weights, ("hot", "rotated"))):
            for name in given:
                if name not in known:
                    raise ArgumentError(f"there is no {what} {name!r}; there is {', '.join(known)}")


@dataclass(frozen=True)
class Case:
    """A format and its arrays, by slot."""

    name: str
    format: CodeFormat
    arrays: Mapping[str, Array]
    K: int

    @property
    def N(self) -> int:
        return len(self.arrays["codes"])


@dataclass
class Row:
    """A contender at one shape. ratio: of `against`'s time to its own, and what is wanted of it."""

    table: str
    what: str
    shape: str
    weights: str
    threads: int
    us: float
    gops: float
    gb_per_s: float
    against: str
    other_us: float
    ratio: float
    low: float
    high: float
    wanted: float | None


def cases(K: int, N: int, group: int, seed: int = 0) -> dict[str, Case]:
    """Codes and scales in each format, from one seed."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (N, K // 2), dtype=np.uint8)
    blocks = (N, -(-K // group))
    scale = (rng.random(blocks, dtype=np.float32) * np.float32(0.01) + np.float32(0.001)).astype(np.float32)
    zero = rng.integers(0, 16, blocks).astype(np.int32)
    plain = CodeFormat(4, block=(1, group), zero_point=True)
    table = CodeFormat(4, block=(1, group), kind="table")

    def levels(text: str) -> Array:
        return np.array(text.split(), np.float32)

    made = {
        "sym": (plain, {"scale": scale, "zero_point": np.full_like(zero, 8)}),
        "asym": (plain, {"scale": scale, "zero_point": zero}),
        "nf4": (table, {"scale": scale, "table": levels(NF4)}),
        "mxfp4": (table, {"scale": scale, "table": levels(MXFP4)}),
        "offset": (
            CodeFormat(4, block=(1, group), kind="offset"),
            {"scale": scale, "offset": -scale * np.float32(7.3)},
        ),
    }
    return {name: Case(name, fmt, {"codes": codes, **arrays}, K) for name, (fmt, arrays) in made.items()}


def odd_blocks(K: int, N: int) -> dict[str, Case]:
    """Symmetric codes in blocks of several shapes."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (N, -(-K // 2)), dtype=np.uint8)
    found = {}
    for name, block in {"g32": (1, 32), "g48": (1, 48), "g100": (1, 100), "(8, 64)": (8, 64)}.items():
        fmt = CodeFormat(4, signed=True, block=block)
        scale = (rng.random(fmt.blocks(N, K), dtype=np.float32) * np.float32(0.01)).astype(np.float32)
        found[name] = Case(name, fmt, {"codes": codes, "scale": scale}, K)
    return found


# Contenders ----------------------------------------------------------------------------------------------------------


def ours(case: Case, compute: str, x: Array, threads: int, isa: str | None) -> Callable[[], Any]:
    """A call of tilework, its result checked."""
    kernel = Linear(case.format, case.K, compute)
    pipe = Pipeline("linear")
    operands: dict[str, Any] = {"x": pipe.input("x", "f32", ("M", case.K)), **case.arrays}
    pipe.output("y", pipe.add(kernel, **operands))
    y = np.full((len(x), case.N), np.nan, np.float32)
    call = TilingExecutor(threads=threads, isa=isa).compile(pipe).bind({"x": x}, out={"y": y})
    call()
    first = {
        s: a if s == "table" else a[: len(a) if case.format.block[0] != 1 else COLUMNS] for s, a in case.arrays.items()
    }
    first["codes"] = case.arrays["codes"][:COLUMNS]
    first |= {s: a[: case.format.blocks(COLUMNS, case.K)[0]] for s, a in first.items() if s not in ("codes", "table")}
    rows = x[:8]
    wanted = reference.linear(kernel, rows, *first.values())
    found = y[: len(rows), :COLUMNS]
    if compute == "bf16":
        bound = reference.linear_bf16_bound(rows, _decoded(case, first))
        right = bool((np.abs(found - wanted) <= 2 * bound).all())
    else:
        right = bool(np.array_equal(found, wanted))
    if not right:
        raise ArgumentError(
            f"tilework {case.name} {compute} differs from its reference: no figure of it means anything"
        )
    call.y = y  # type: ignore[attr-defined]
    return call


def _decoded(case: Case, arrays: Mapping[str, Array]) -> Array:
    codes, *parameters = arrays.values()
    return reference.decode(codes, case.format, case.K, *parameters)


def onnxruntime(case: Case, level: int, x: Array, threads: int) -> Callable[[], Any]:
    """A call of MatMulNBits on the same codes, scales and zero points."""
    from onnx import TensorProto, helper

    codes, scale = case.arrays["codes"], case.arrays["scale"]
    group, (N, blocks) = case.format.block[1], scale.shape
    assert group is not None
    names = ["x", "codes", "scale"]
    constants = [
        helper.make_tensor("codes", TensorProto.UINT8, [N, blocks, group // 2], codes.tobytes(), raw=True),
        helper.make_tensor("scale", TensorProto.FLOAT, [N * blocks], scale.tobytes(), raw=True),
    ]
    if case.name == "asym":
        zero = case.arrays["zero_point"].astype(np.uint8)
        zero = np.pad(zero, ((0, 0), (0, blocks % 2)))
        packed = zero[:, 0::2] | zero[:, 1::2] << 4
        constants.append(helper.make_tensor("zero", TensorProto.UINT8, [packed.size], packed.tobytes(), raw=True))
        names.append("zero")
    node = helper.make_node(
        "MatMulNBits",
        names,
        ["y"],
        domain="com.microsoft",
        K=case.K,
        N=N,
        bits=4,
        block_size=group,
        accuracy_level=level,
    )
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x.shape))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(x), N])]
    y = np.zeros((len(x), N), np.float32)
    call = peers.bind(
        peers.session(helper.make_graph([node], "linear", inputs, outputs, constants), threads), {"x": x}, {"y": y}
    )
    call()
    call.y = y  # type: ignore[attr-defined]
    return call


# Measuring -----------------------------------------------------------------------------------------------------------


def measure(options: Options) -> dict[str, Any]:
    """Everything that the options ask for, as one JSON-ready dictionary."""
    absent = peers.missing()
    before = doctor.load()
    work = [
        (table, K, N, group, M, weights, threads)
        for threads in options.threads
        for table in options.tables
        for K, N in options.sizes
        for group in (options.groups if table in ("int8", "float") else (32,))
        for weights in options.weights
        for M in options.rows
    ]
    rows: list[Row] = []
    with gemm.progress(len(work)) as step:
        for table, K, N, group, M, weights, threads in work:
            step(f"{table} {M} x {K} x {N} g{group} {weights} {threads} thread{'s' * (threads > 1)}")
            rows += _time(table, K, N, group, M, weights, threads, options, "onnxruntime" not in absent)
    return {
        "machine": gemm.machine(options, before),  # type: ignore[arg-type]
        "peers": peers.versions(),
        "missing": absent,
        "rows": [asdict(row) for row in rows],
    }


def _time(
    table: str, K: int, N: int, group: int, M: int, weights: str, threads: int, options: Options, peer: bool
) -> list[Row]:
    """Rows of one table at one shape."""
    x = np.random.default_rng(1).standard_normal((M, K)).astype(np.float32)
    copies = 1 if weights == "hot" else 2 + 2 * gemm.l3_bytes() // (K * N // 2)
    sets = [odd_blocks(K, N) if table == "blocks" else cases(K, N, group, seed) for seed in range(copies)]
    few = weights == "rotated" or M <= 8
    plan = {
        "int8": [("sym", "int8"), ("asym", "int8"), *([] if few else [("nf4", "int8"), ("mxfp4", "int8")])],
        "float": [("sym", "f32"), ("sym", "bf16"), *([] if few else [("nf4", "f32"), ("nf4", "bf16")])],
        "blocks": [(name, "int8") for name in sets[0]],
        "offset": [("sym", "int8"), ("offset", "int8")],
    }[table]
    level = 0 if table == "float" else 4
    contenders: dict[str, list[Callable[[], Any]]] = {}
    for found in sets:
        for name, compute in plan:
            mine = contenders.setdefault(f"{name} {compute}", [])
            mine.append(ours(found[name], compute, x, threads, options.isa))
        if peer and table in ("int8", "float"):
            for name in ("sym", "asym") if table == "int8" else ("sym",):
                call = onnxruntime(found[name], level, x, threads)
                y = contenders[f"{name} {'int8' if table == 'int8' else 'f32'}"][-1].y  # type: ignore[attr-defined]
                if np.abs(call.y - y).max() > 1e-3 * np.abs(y).max():  # type: ignore[attr-defined]
                    raise ArgumentError(f"MatMulNBits {name} differs from tilework by more than rounding")
                contenders.setdefault(f"ort {name}", []).append(call)
    probe = {}
    if table == "offset":
        moved = K * N // 2 + 8 * N * (K // group)
        probe = {"read": peak.read(moved * copies, threads)}
    calls = {name: timing.rotate(turn) for name, turn in contenders.items()}
    # after a pause, threads take a while to be woken and to find processors of their own
    block = timing.BLOCK if threads == 1 else LONG_BLOCK
    ready = {**calls, **{n: p.call for n, p in probe.items()}}
    times = timing.paired(ready, options.rounds, block, pause=threads > 1)
    rows = []
    for name, compute in plan:
        me = f"{name} {compute}"
        seconds = times.median(me)
        nbytes = K * N // 2 + 4 * N * -(-K // group) * (2 if name == "offset" else 1)
        compared: list[tuple[str, float, timing.Ratio, float | None]] = [
            (other, times.median(other), times.ratio(me, other), wanted)
            for other, wanted in _against(table, name, compute, group, M, set(calls))
        ]
        if name == "offset":
            rate = probe["read"].work / times.median("read")
            share = timing.Ratio.of(nbytes / times.rounds[me] / rate)
            compared.append((f"reading at {rate / 1e9:.0f} GB/s", nbytes / rate, share, 0.8 if M == 1 else None))
        for other, other_s, ratio, bar in compared:
            rows.append(
                Row(
                    table=table,
                    what=me if table == "blocks" else f"g{group} {me}",
                    shape=f"{M} x {K} x {N}",
                    weights=weights,
                    threads=threads,
                    us=seconds * 1e6,
                    gops=2 * M * N * K / seconds / 1e9,
                    gb_per_s=nbytes / seconds / 1e9,
                    against=other,
                    other_us=other_s * 1e6,
                    ratio=ratio.median,
                    low=ratio.low,
                    high=ratio.high,
                    wanted=bar,
                )
            )
    return rows


def _against(
    table: str, name: str, compute: str, group: int, M: int, present: set[str]
) -> list[tuple[str, float | None]]:
    """What a contender is compared with, and the ratio that is wanted."""
    if table == "blocks":
        return [("g32 int8", 0.8)] if name != "g32" and M >= 64 else [("g32 int8", None)] if name != "g32" else []
    if table == "offset":
        return [("sym int8", None)] if name == "offset" else []
    found: list[tuple[str, float | None]] = []
    if table == "float":
        if "ort sym" in present:
            fast = "bf16" if M > VERY_FEW else "f32"  # the faster of the two modes
            wanted = 1.5 if compute == fast else 1.0 if compute == "f32" else None
            found.append(("ort sym", wanted if name == "sym" else None))
        return found
    few = {1: 1.1, 8: 1.3}.get(M) if group == 32 else 1.0
    bar = (2.3 if group == 32 else 1.7) if M >= 64 else few
    if name in ("sym", "asym") and f"ort {name}" in present:
        found.append((f"ort {name}", bar))
    if name == "asym":
        found.append(("sym int8", 0.93))
    elif name != "sym":
        found.append(("sym int8", 0.8))
    return found
