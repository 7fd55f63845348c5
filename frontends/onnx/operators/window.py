"""Windows that slide over an image: their attributes, and where the largest elements of each were."""

from __future__ import annotations

from typing import Any

from ....kernels.ops.arrays import apply_array
from ....primitives.pipeline import Value
from ..node import Node

AUTO = {"SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower", "VALID": 0}


def window(node: Node, spatial: int) -> dict[str, Any]:
    """Strides, paddings, dilations and groups, as the ops take them."""
    auto = node.attr("auto_pad", "NOTSET")
    pads = node.attr("pads", [0] * (2 * spatial)) if auto in ("NOTSET", "") else AUTO.get(auto)
    if pads is None:
        raise node.malformed(f"auto_pad {auto!r}")
    return {
        "strides": list(node.attr("strides", [1] * spatial)),
        "pads": list(pads) if isinstance(pads, list) else pads,
        "dilations": list(node.attr("dilations", [1] * spatial)),
        "groups": int(node.attr("group", 1)),
    }


def largest_places(node: Node, pooled: Value, x: Value) -> Value:
    """The second result of MaxPool: where the largest elements were."""
    kernel = [int(n) for n in node.attr("kernel_shape")]
    rank = len(kernel)
    rules = window(node, rank)
    sizes = (*x.shape[2:], *pooled.shape[2:])
    if not all(isinstance(n, int) for n in sizes):
        raise node.unsupported("Indices of sizes known only at run time; load with shapes= that fix them")
    out = [int(n) for n in pooled.shape[2:]]
    pads = rules["pads"]
    if pads == 0:
        pads = [0] * (2 * rank)
    elif isinstance(pads, str):
        short = [
            max(
                0,
                (out[d] - 1) * rules["strides"][d] + (kernel[d] - 1) * rules["dilations"][d] + 1 - int(x.shape[2 + d]),
            )
            for d in range(rank)
        ]
        before = [n // 2 if pads == "same_upper" else n - n // 2 for n in short]
        pads = [*before, *(n - b for n, b in zip(short, before, strict=True))]
    return apply_array(
        "largest_places",
        x,
        results=["s64"],
        kernel=kernel,
        strides=rules["strides"],
        pads=pads,
        dilations=rules["dilations"],
        out=out,
        columns_first=int(node.attr("storage_order", 0)),
    )[0]
