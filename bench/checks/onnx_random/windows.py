"""Convolutions, pools, and what reads an image at places."""

from __future__ import annotations

from typing import Any

import numpy as np

from .drawing import F32, Draw, Rng, codes, draws, kind, maybe, pick, plain, shape, whole, words


def window(rng: Rng, rank: int, dilated: bool = True, pool: bool = False) -> dict[str, Any]:
    """Attributes of a window; a pool's paddings are smaller than its window."""
    kernel = whole(rng, 1, 4, rank)
    found: dict[str, Any] = {"kernel_shape": kernel}
    if rng.random() < 0.6:
        found["strides"] = whole(rng, 1, 3, rank)
    apart = [1] * rank
    if dilated and rng.random() < 0.4:
        apart = found["dilations"] = whole(rng, 1, 3, rank)
    how = rng.random()
    if how < 0.5:
        most = [n if pool else (n - 1) * d + 1 for n, d in zip(kernel, apart, strict=True)]
        found["pads"] = [int(rng.integers(0, n)) for n in most * 2]
    elif how < 0.75:
        found["auto_pad"] = pick(rng, "SAME_UPPER", "SAME_LOWER", "VALID")
    return found


def image(rng: Rng, rank: int, channels: int, least: int = 6, most: int = 10) -> list[int]:
    return [int(rng.integers(1, 3)), channels, *whole(rng, least, most, rank)]


@draws("Conv")
def conv(rng: Rng, opset: int) -> Draw:
    rank = int(rng.integers(1, 4))
    attributes, groups = window(rng, rank), pick(rng, 1, 1, 2, 3)
    each, outputs = int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    w = plain(rng, [outputs, each, *attributes["kernel_shape"]])
    if rng.random() < 0.3:
        del attributes["kernel_shape"]
    operands = [plain(rng, image(rng, rank, groups * each)), w, maybe(rng, plain(rng, [outputs]))]
    return Draw(operands, {**attributes, "group": groups})


@draws("ConvInteger", "QLinearConv")
def conv_of_codes(rng: Rng, opset: int, op: str) -> Draw:
    rank, of = int(rng.integers(1, 3)), pick(rng, np.uint8, np.int8)
    attributes, groups = window(rng, rank), pick(rng, 1, 1, 2)
    each, outputs = int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    x = codes(rng, image(rng, rank, groups * each), np.uint8)
    w = codes(rng, [outputs, each, *attributes["kernel_shape"]], of)
    attributes["group"] = groups
    if op == "ConvInteger":
        return Draw([x, w, maybe(rng, codes(rng, [], np.uint8)), maybe(rng, codes(rng, [], of), 0.4)], attributes)
    many = rng.random() < 0.5
    scales = np.asarray(rng.uniform(0.01, 0.1, [outputs] if many else []), F32)
    operands = [
        *(x, np.asarray(rng.uniform(0.01, 0.1), F32), codes(rng, [], np.uint8)),
        *(w, scales, np.zeros(outputs, of) if many else codes(rng, [], of)),
        *(np.asarray(rng.uniform(0.1, 3), F32), codes(rng, [], np.uint8)),
        maybe(rng, rng.integers(-999, 999, outputs).astype(np.int32)),
    ]
    return Draw(operands, attributes, constants=(1, 2, 3, 4, 5, 6, 7, 8))


@draws("ConvTranspose")
def conv_transpose(rng: Rng, opset: int) -> Draw:
    rank = int(rng.integers(1, 4))
    attributes, groups = window(rng, rank), pick(rng, 1, 1, 2)
    inputs, each = groups * int(rng.integers(1, 3)), int(rng.integers(1, 4))
    if attributes.get("auto_pad", "").startswith("SAME") and "strides" in attributes:
        # Where the window is shorter than the stride, each reference has an answer of its own.
        apart = attributes.get("dilations", [1] * rank)
        reach = [(n - 1) * d + 1 for n, d in zip(attributes["kernel_shape"], apart, strict=True)]
        attributes["strides"] = [min(n, r) for n, r in zip(attributes["strides"], reach, strict=True)]
    if "strides" in attributes and rng.random() < 0.4:
        attributes["output_padding"] = [int(rng.integers(0, n)) for n in attributes["strides"]]
    if attributes.get("auto_pad") == "VALID":
        del attributes["auto_pad"]
    x, w = plain(rng, image(rng, rank, inputs, 3, 6)), plain(rng, [inputs, each, *attributes["kernel_shape"]])
    return Draw([x, w, maybe(rng, plain(rng, [each * groups]), 0.5)], {**attributes, "group": groups})


@draws("MaxPool")
def max_pool(rng: Rng, opset: int) -> Draw:
    rank, of = int(rng.integers(1, 4)), kind(rng, "MaxPool", opset)
    attributes = window(rng, rank, pool=True)
    if rng.random() < 0.3:
        attributes["ceil_mode"] = 1
    x = plain(rng, image(rng, rank, int(rng.integers(1, 4))), of, 3.0)
    return Draw([x], attributes, 2 if of is F32 and rng.random() < 0.3 else 1)


@draws("AveragePool", "LpPool")
def mean_pool(rng: Rng, opset: int, op: str) -> Draw:
    rank = int(rng.integers(1, 4))
    attributes = window(rng, rank, opset >= (19 if op == "AveragePool" else 18), pool=True)
    if op == "LpPool":
        attributes["p"] = int(rng.integers(1, 4))
        if attributes.get("auto_pad", "").startswith("SAME"):
            attributes.pop("dilations", None)  # both references pad as if there were none, short of the shape they say
    else:
        attributes |= {name: 1 for name in ("ceil_mode", "count_include_pad") if rng.random() < 0.35}
    return Draw([plain(rng, image(rng, rank, int(rng.integers(1, 4))), F32, 3.0)], attributes)


@draws("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def whole_pool(rng: Rng, opset: int, op: str) -> Draw:
    attributes = {"p": int(rng.integers(1, 4))} if op == "GlobalLpPool" else {}
    return Draw([plain(rng, shape(rng, 3, 5, 5, 0), F32, 3.0)], attributes)


@draws("Resize")
def resize(rng: Rng, opset: int) -> Draw:
    rank = int(rng.integers(1, 3))
    sizes = [1, int(rng.integers(1, 3)), *whole(rng, 2, 7, rank)]
    mode = pick(rng, "nearest", "linear", *(["cubic"] if rank == 2 and opset >= 11 else []))
    x = plain(rng, sizes, F32, 3.0)
    scales = np.array([1, 1, *(pick(rng, 0.5, 0.6, 1.0, 1.5, 2.0, 2.5, 3.0) for _ in range(rank))], F32)
    if opset < 11:
        return Draw([x, scales], {"mode": mode}, constants=(1,))
    places = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    places += ["half_pixel_symmetric"] if opset >= 19 else []
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": pick(rng, *places)}
    if mode == "nearest":
        attributes["nearest_mode"] = pick(rng, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": pick(rng, -0.75, -0.5), "exclude_outside": int(rng.integers(2))}
    if opset >= 18 and mode != "nearest" and rng.random() < 0.3:
        attributes["antialias"] = 1
    nothing = np.zeros(0, F32) if opset < 13 else None
    if rng.random() < 0.5:
        return Draw([x, nothing, scales], attributes, constants=(1, 2))
    return Draw([x, nothing, nothing, words(1, sizes[1], *whole(rng, 1, 11, rank))], attributes, constants=(1, 2, 3))


@draws("GridSample")
def grid_sample(rng: Rng, opset: int) -> Draw:
    rank, batch = 2 if opset < 20 else int(rng.integers(2, 4)), int(rng.integers(1, 3))
    modes = ["bilinear", "nearest", "bicubic"] if opset < 20 else ["linear", "nearest", *(["cubic"] * (rank == 2))]
    attributes = {"mode": pick(rng, *modes), "padding_mode": pick(rng, "zeros", "border", "reflection")}
    grid = rng.uniform(-1.5, 1.5, [batch, *whole(rng, 1, 5, rank), rank]).astype(F32)
    x = plain(rng, [batch, 2, *whole(rng, 1, 5, rank)], F32, 3.0)
    return Draw([x, grid], {**attributes, "align_corners": int(rng.integers(2))})


@draws("RoiAlign")
def roi_align(rng: Rng, opset: int) -> Draw:
    corner = rng.uniform(0, 8, (3, 2))
    attributes: dict[str, Any] = {"output_height": 2, "output_width": 3, "spatial_scale": 0.5}
    attributes["sampling_ratio"] = int(rng.integers(0, 3))
    if opset >= 16:
        attributes["coordinate_transformation_mode"] = pick(rng, "half_pixel", "output_half_pixel")
    boxes = np.concatenate([corner, corner + rng.uniform(1, 6, (3, 2))], 1).astype(F32)
    return Draw([plain(rng, [2, 2, 6, 7], F32, 3.0), boxes, rng.integers(0, 2, 3).astype(np.int64)], attributes)


@draws("MaxRoiPool")
def roi_pool(rng: Rng, opset: int) -> Draw:
    corner = rng.integers(0, 6, (3, 2))
    boxes = np.concatenate([rng.integers(0, 2, (3, 1)), corner, corner + rng.integers(0, 6, (3, 2))], 1)
    attributes = {"pooled_shape": [2, 3], "spatial_scale": pick(rng, 1.0, 0.5)}
    return Draw([plain(rng, [2, 2, 8, 9], F32, 3.0), boxes.astype(F32)], attributes)


@draws("NonMaxSuppression")
def suppression(rng: Rng, opset: int) -> Draw:
    corner = rng.uniform(0, 5, (2, 8, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0.5, 4, (2, 8, 2))], 2).astype(F32)
    overlap, least = np.array([rng.uniform(0, 1)], F32), np.array([rng.uniform(0, 0.6)], F32)
    operands = [boxes, rng.random((2, 2, 8)).astype(F32), words(int(rng.integers(0, 6))), overlap, maybe(rng, least)]
    return Draw(operands, {"center_point_box": int(rng.integers(2))})


@draws("Col2Im")
def col2im(rng: Rng, opset: int) -> Draw:
    kernel, sizes = whole(rng, 1, 4, 2), whole(rng, 5, 8, 2)
    strides, pads, apart = whole(rng, 1, 3, 2), whole(rng, 0, 2, 4), whole(rng, 1, 3, 2)
    steps = [(sizes[n] + pads[n] + pads[n + 2] - apart[n] * (kernel[n] - 1) - 1) // strides[n] + 1 for n in range(2)]
    x = plain(rng, [2, 3 * kernel[0] * kernel[1], steps[0] * steps[1]], F32, 3.0)
    attributes = {"strides": strides, "pads": pads, "dilations": apart}
    return Draw([x, words(*sizes), words(*kernel)], attributes, constants=(1, 2))
