"""Random convolutions with what may follow them, and their comparison with the reference, bit for bit.

A case is made from its seed alone. bench/soak_convolutions.py runs as many as one likes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tilework as tw
from tilework.kernels.window import SPATIAL

NUMPY = {"u8": np.uint8, "s8": np.int8, "f32": np.float32, "f16": np.float16, "s16": np.int16}
PAIRS = [("u8", "s8"), ("u8", "s8"), ("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("f32", "f32"), ("f16", "f32")]


@dataclass
class Case:
    seed: int
    pipe: Any
    inputs: dict[str, Any]
    text: str


def leaky(v, scale):
    r = np.rint(np.float32(v) * scale)
    return r if r > 0 else r * 0.125


def codes(rng, dtype, shape):
    if dtype in ("f32", "f16"):
        return rng.normal(size=shape).astype(NUMPY[dtype])
    info = np.iinfo(NUMPY[dtype])
    if rng.random() < 0.2:
        return rng.choice(np.array([info.min, info.max], NUMPY[dtype]), shape)
    return rng.integers(info.min, info.max + 1, shape).astype(NUMPY[dtype])


def make(seed: int) -> Case:
    rng = np.random.default_rng(seed)

    def pick(*given):
        return given[int(rng.integers(len(given)))]

    spatial = pick(1, 2, 2, 2, 2, 3)
    x_dtype, w_dtype = pick(*PAIRS)
    real = x_dtype in ("f32", "f16")
    groups = pick(1, 1, 1, 1, 2, 3, "depthwise")
    if groups == "depthwise":
        groups = pick(1, 3, 16, 20, 64, 70, 144)
        inside, each = 1, pick(1, 1, 1, 2)
    else:
        inside, each = pick(1, 2, 3, 4, 5, 8, 16, 17), pick(1, 2, 5, 8, 16, 17, 40, 64, 70)
    if real:
        groups, inside, each = min(groups, 20), min(inside, 8), min(each, 20)
    transposed = rng.random() < 0.15
    most = {1: 9, 2: 5, 3: 3}[spatial]
    kernel = [int(rng.integers(1, most + 1)) if rng.random() < 0.5 else min(3, most) for _ in range(spatial)]
    strides = [pick(1, 1, 1, 2, 3) for _ in range(spatial)]
    dilations = [pick(1, 1, 1, 2) for _ in range(spatial)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    least = {1: 40, 2: 12, 3: 6}[spatial]
    image = [int(rng.integers(1, least)) for _ in range(spatial)]
    pads = [int(rng.integers(0, r)) for r in (*reach, *reach)] if rng.random() < 0.7 else [0] * (2 * spatial)
    if transposed:
        pads = [0] * (2 * spatial) if rng.random() < 0.4 else [min(p, 1) for p in pads]
        image = [max(n, 2) for n in image]
    else:
        image = [max(n, r - a - b) for n, r, a, b in zip(image, reach, pads[:spatial], pads[spatial:], strict=True)]
    if rng.random() < 0.03:
        pads, image = [(r // 2) for r in (*reach, *reach)], [0, *image[1:]]
        transposed = False
    batch = pick(1, 1, 1, 2, 3, 0)
    inner = SPATIAL[spatial]
    first, last = f"NC{inner}", f"N{inner}C"
    layout, out_layout = pick((first, first), (last, last), (last, last), (first, last), (last, first))
    w_layout = pick(f"OI{inner}", f"{inner}IO", f"O{inner}I", f"IO{inner}")
    sizes = dict(zip(inner, image, strict=True)) | {"N": batch, "C": groups * inside}
    taken = dict(zip(inner, kernel, strict=True)) | {"O": groups * each, "I": inside}
    if transposed:
        taken |= {"I": groups * inside, "O": each}
    shape, outputs = tuple(sizes[a] for a in layout), groups * each
    x, w = codes(rng, x_dtype, shape), codes(rng, w_dtype, tuple(taken[a] for a in w_layout))
    pipe = tw.Pipeline("random")
    inputs: dict[str, Any] = {"x": x}
    dynamic = rng.random() < 0.3
    declared = tuple(f"n{d}" if dynamic and a != "C" else n for d, (a, n) in enumerate(zip(layout, shape, strict=True)))
    xv: Any = pipe.input("x", x_dtype, declared)
    wv: Any = w
    if rng.random() < 0.1:
        wv, inputs["w"] = pipe.input("w", w_dtype, w.shape), w
    more: dict[str, Any] = {}
    if not real:
        for slot, dtype, many in (("a_zero_point", x_dtype, 1), ("b_zero_point", w_dtype, outputs)):
            info = np.iinfo(NUMPY[dtype])
            if rng.random() < (0.7 if slot[0] == "a" else 0.25):
                each_one = slot[0] == "b" and rng.random() < 0.5
                zero = rng.integers(info.min, info.max + 1, (many,) if each_one else ()).astype(NUMPY[dtype])
                if rng.random() < 0.15:
                    more[slot], inputs[slot] = pipe.input(slot, dtype, zero.shape), zero
                else:
                    more[slot] = zero
    op = tw.ops.conv_transpose if transposed else tw.ops.conv
    if transposed and rng.random() < 0.3:
        more["out_pads"] = [int(rng.integers(0, s)) for s in strides]
    bias = None
    if rng.random() < 0.6:
        bias = rng.normal(size=outputs).astype(np.float32) if real else rng.integers(-5000, 5000, outputs, np.int32)
    y = op(
        xv, wv, bias, strides=strides, pads=pads, dilations=dilations, groups=groups, layout=layout,
        out_layout=out_layout, w_layout=w_layout, **more,
    )  # fmt: skip
    channel = out_layout.index("C")
    follow = pick("", "requantize", "requantize", "relu", "fixed", "user", "residual", "table")
    y = _followed(rng, pipe, inputs, y, follow, real, channel, outputs, op, (sizes, kernel, strides, pads, dilations))
    pipe.output("y", y)
    text = (
        f"{x_dtype}{w_dtype} {'transposed ' * transposed}{layout}{shape} {w_layout}{w.shape} to {out_layout} "
        f"strides {strides} pads {pads} dilations {dilations} groups {groups} {sorted(more)} then {follow}"
    )
    return Case(seed, pipe, inputs, text)


def _followed(rng, pipe, inputs, y, follow, real, channel, outputs, op, geometry):
    if real:
        if follow in ("requantize", "fixed"):
            return tw.ops.quantize(tw.ops.relu(y), 0.05, 7, "u8")
        return tw.ops.map(leaky, y, scale=1.5) if follow == "user" else tw.ops.relu(y) if follow == "relu" else y
    scale = (rng.random(outputs) * 3e-3 + 1e-6).astype(np.float32)
    if follow in ("", "user"):
        along = scale.reshape([-1 if d == channel else 1 for d in range(len(y.shape))])
        return tw.ops.map(leaky, y, scale=along, dtype="f32") if follow else y
    if follow == "fixed":
        return tw.ops.requantize(y, scale, 5, "s8", arithmetic="fixed", axis=channel)
    y = tw.ops.requantize(y, scale, 9, "u8", axis=channel)
    if follow == "relu":
        return tw.ops.relu(y, 9)
    if follow == "table":
        return tw.ops.lookup(y, np.arange(255, -1, -1).astype(np.uint8))
    if follow == "residual":
        shape = tuple(n if isinstance(n, int) else None for n in y.shape)
        if None in shape:
            return y
        inputs["r"] = rng.integers(0, 256, shape).astype(np.uint8)
        r = pipe.input("r", "u8", shape)
        return tw.ops.add(
            y, r, a_scale=0.1, a_zero_point=9, b_scale=0.07, b_zero_point=3, scale=0.13, zero_point=20, dtype="u8"
        )
    return y


def compare(case: Case, ways: list[dict[str, Any]]) -> list[str]:
    """What differs from the reference in each way to run (options of TilingExecutor)."""
    expected = tw.SingleThreadExecutor("reference").run(case.pipe, case.inputs)["y"]
    wrong = []
    for way in ways:
        out = np.full(expected.shape, 99, expected.dtype)
        tw.TilingExecutor(**way).compile(case.pipe).run(case.inputs, out={"y": out})
        same = out.tobytes() == expected.tobytes() or (
            out.dtype.kind == "f" and np.array_equal(np.isnan(out), np.isnan(expected))
            and (out[~np.isnan(out)] == expected[~np.isnan(expected)]).all()
        )  # fmt: skip
        if not same:
            wrong.append(f"seed {case.seed} {way}: {int((out != expected).sum())} of {out.size}; {case.text}")
    return wrong
