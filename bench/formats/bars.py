"""`tilework bench formats`: GGUF's block types against the package gguf, and products of K-quants against int4.

The same bytes for both, and the same results, compared before anything is timed. gguf's decoder returns a new array;
ours fills one that is there. Both run warm, in paired blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import tilework as tw
from tilework.primitives.errors import ArgumentError, KernelFailed

from .. import timing
from ..progress import track
from ..schemes.bars import copied

ROWS, COLUMNS = 256, 4096
PRODUCTS = ("q4_k", "q6_k", "q5_k", "q3_k", "q2_k", "iq4_xs", "q4_0", "q8_0")
N = K = 4096


def types() -> tuple[str, ...]:
    """GGUF's names of the types that are schemes."""
    from tilework.frontends.gguf.layout import TYPES

    known = set(tw.schemes.names())
    own = {"MXFP4": "mxfp4_gguf", "NVFP4": "nvfp4_gguf"}
    return tuple(name for name in TYPES if own.get(name, name.lower()) in known and TYPES[name].plain is None)


def rates(names: Sequence[str] = (), threads: int = 1, rounds: int = 7) -> list[dict[str, Any]]:
    """Decode and, where both can, encode of 256 x 4096 numbers. Ratios are gguf's time over ours.

    `most` is the ratio that would be left of ours if it did nothing but move the bytes, as fast as a compiled copy of the
    numbers moves its own on the same threads.
    """
    gguf = _gguf()
    executor = tw.TilingExecutor(threads=threads)
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((ROWS, COLUMNS)) * 0.02).astype(np.float32)
    out = np.empty_like(x)
    pipe = tw.Pipeline("copy")
    pipe.output("y", tw.ops.map(copied, pipe.input("x", "f32", ("N", "K")), dtype="f32"))
    copy = executor.compile(pipe).bind({"x": x}, {"y": out})
    rows = []
    for name in track([n.upper() for n in names] or types(), "timing", str):
        kind = gguf.GGMLQuantizationType[name]
        scheme = tw.gguf.scheme_of(name)
        calls: dict[str, Callable[[], object]] = {"copy": copy}
        if scheme.encodes:
            raw = gguf.quants.quantize(x, kind)
            _same(scheme.quantize(x, executor=executor).codes, raw, f"{name}: encoded")
            calls["encode"] = partial(scheme.quantize, x, executor=executor)
            calls["gguf encode"] = partial(gguf.quants.quantize, x, kind)
        else:
            raw = rng.integers(0, 100, (ROWS, scheme.row_bytes(COLUMNS)), dtype=np.uint8)
        q = tw.gguf.quantized(raw, name, executor=executor)
        _same(q.dequantize(out).view(np.uint32), gguf.quants.dequantize(raw, kind).view(np.uint32), f"{name}: decoded")
        calls["decode"] = partial(q.dequantize, out)
        calls["gguf decode"] = partial(gguf.quants.dequantize, raw, kind)
        with np.errstate(all="ignore"):
            times = timing.paired(calls, rounds=rounds, block=0.01)
        row: dict[str, Any] = {"type": name, "threads": threads}
        least = (x.nbytes + raw.nbytes) / (2 * x.nbytes) * times.median("copy")
        for what in ("encode", "decode"):
            if what in calls:
                row[f"{what}_most"] = times.median(f"gguf {what}") / least
                row[f"{what}_ns"] = 1e9 * times.median(what) / x.size
                row[f"{what}_ratio"] = times.ratio(what, f"gguf {what}").median
        rows.append(row)
    return rows


def check(names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Bytes of every kind through every type: how many differ from the package's."""
    gguf = _gguf()
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((64, 1024)) * 0.02 * np.exp(rng.standard_normal((64, 1)) * 6)).astype(np.float32)
    x[1] = np.round(x[1] * 400) / 8
    x[2:5] = np.array([[0], [1], [-1]], np.float32)
    rows = []
    for name in track([n.upper() for n in names] or types(), "checking", str):
        kind, scheme = gguf.GGMLQuantizationType[name], tw.gguf.scheme_of(name)
        raw = rng.integers(0, 256, (64, scheme.row_bytes(1024)), dtype=np.uint8)
        with np.errstate(all="ignore"):
            wanted, found = gguf.quants.dequantize(raw, kind), tw.gguf.dequantize(raw, name)
        nan = np.isnan(wanted) & np.isnan(found)
        row = {"type": name, "decoded": int(((wanted.view(np.uint32) != found.view(np.uint32)) & ~nan).sum())}
        if scheme.encodes:
            with np.errstate(all="ignore"):
                row["encoded"] = int((gguf.quants.quantize(x, kind) != tw.gguf.quantize(x, name)).sum())
        rows.append(row)
    return rows


def products(
    names: Sequence[str] = PRODUCTS, rows_of_x: Sequence[int] = (1, 64, 256), threads: int = 1
) -> list[dict[str, Any]]:
    """x @ w.T of 4096 x 4096 weights in each type over int4_g32's time, int8 compute: 1 is as fast as int4."""
    executor = tw.TilingExecutor(threads=threads)
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((N, K)) * 0.02).astype(np.float32)
    tensors = {"int4_g32": tw.schemes.get("int4_g32").quantize(w, executor=executor)}
    for name in names:
        scheme = tw.schemes.get(name)
        if scheme.encodes:
            raw = scheme.quantize(w, executor=executor).codes
        else:
            raw = rng.integers(0, 100, (N, scheme.row_bytes(K)), dtype=np.uint8)
        tensors[name] = tw.schemes.from_parts(scheme, raw, {}, (N, K), executor)
    found = []
    for m in track(list(rows_of_x), "multiplying, rows", str):
        x = rng.standard_normal((m, K)).astype(np.float32)
        calls = {name: partial(q.matmul, x, "int8") for name, q in tensors.items()}
        times = timing.paired(calls, rounds=5, block=0.02)
        for name in tensors:
            ms, base = 1e3 * times.median(name), times.median("int4_g32")
            found.append({"M": m, "type": name, "threads": threads, "ms": ms, "over_int4_g32": ms / 1e3 / base})
    return found


def _same(found: Any, wanted: Any, what: str) -> None:
    if not np.array_equal(found, wanted):
        raise KernelFailed(f"{what} bytes differ from the package gguf's in {int((found != wanted).sum())} places")


def _gguf() -> Any:
    try:
        import gguf
    except ImportError as error:
        raise ArgumentError(f"this needs the package gguf: pip install 'tilework[gguf]' ({error})") from None
    return gguf


def show(result: dict[str, Any]) -> None:
    """Print what was measured."""
    if "check" in result:
        for row in result["check"]:
            encoded = f", {row['encoded']} encoded bytes" if "encoded" in row else ""
            print(f"{row['type']:8} {row['decoded']} decoded numbers{encoded} differ from gguf's")
        return
    print(f"{ROWS} x {COLUMNS} numbers: nanoseconds each, gguf's time over ours, and over that of moving the bytes")
    for row in result["rates"]:
        shown = {
            w: f"{row[f'{w}_ns']:7.3f} ns {row[f'{w}_ratio']:6.1f} x of {row[f'{w}_most']:5.0f}"
            if f"{w}_ns" in row
            else ""
            for w in ("encode", "decode")
        }
        threads = f"{row['threads']} thread{'s' if row['threads'] > 1 else ''}"
        print(f"{row['type']:8} {threads:9}  encode {shown['encode']:29} decode {shown['decode']}")
    if result["products"]:
        print(f"\nx @ w.T, w {N} x {K}, int8 compute: time over that of int4_g32")
    for row in result["products"]:
        print(
            f"M = {row['M']:4} {row['type']:10} {row['threads']} threads {row['ms']:9.3f} ms {row['over_int4_g32']:6.2f}"
        )
