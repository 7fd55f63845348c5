"""Quantized checkpoints: which tensors belong to a layer, and the layout that they have.

A layer is recognised by the names of its tensors; the configuration beside the file, or in `quantization_config`, adds
what names do not tell (bits, the version of GPTQ's zero points). executors/schemes/layouts does the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from ...executors.schemes import QuantizedTensor, from_parts, get, layouts
from ...primitives.errors import FileFormatError, ShapeMismatch, TileworkError, Unsupported

Array = np.ndarray[Any, Any]
STATE = ".weight.quant_state.bitsandbytes__"
SCALES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32))
AWQ_VERSIONS = ("gemm",)
LARGEST_BLOCK = 1 << 16  # scales that share a scale: more is a damaged file


def quantized(tensors: Mapping[str, Array], config: Mapping[str, Any] | None = None) -> dict[str, QuantizedTensor]:
    """The weights of every layer that is kept as codes, by the layer's name (what precedes .weight or .qweight).

    tensors   of a checkpoint: `tw.safetensors.load(..)`, or arrays by name
    config    its configuration; left out: what lay beside the file. GPTQ, AWQ, compressed-tensors and bitsandbytes

    Raises FileFormatError where tensors of a layer are missing or do not fit each other, Unsupported for a layout that
    is not read.
    """
    given = getattr(tensors, "config", {}) if config is None else config
    facts = given.get("quantization_config", given) if isinstance(given, Mapping) else {}
    if not isinstance(facts, Mapping):
        raise FileFormatError("quantization_config is no object")
    found = {}
    for name in tensors:
        for suffix, make in _MAKERS.items():
            if name.endswith(suffix) or (suffix == STATE and STATE in name):
                layer = name[: name.rindex(suffix)]
                if suffix == ".weight_scale" and f"{layer}.weight_packed" in tensors:
                    continue  # the packed words are read with their scales
                found[layer] = _made(layer, make, tensors, facts)
    return found


def _made(
    layer: str, make: Callable[..., QuantizedTensor], tensors: Mapping[str, Array], facts: Any
) -> QuantizedTensor:
    try:
        return make(_Layer(layer, tensors), facts)
    except (Unsupported, FileFormatError):
        raise
    except (TileworkError, ValueError, IndexError) as error:
        raise FileFormatError(f"the tensors of layer {layer!r} do not fit each other: {error}") from error


class _Layer:
    """The tensors of one layer, checked when they are asked for."""

    def __init__(self, name: str, tensors: Mapping[str, Array]) -> None:
        self.name, self.tensors = name, tensors

    def __contains__(self, part: str) -> bool:
        return f"{self.name}.{part}" in self.tensors

    def get(self, part: str, *types: Any, ndim: int | None = 2) -> Array:
        full = f"{self.name}.{part}"
        if full not in self.tensors:
            raise FileFormatError(f"layer {self.name!r} has no tensor {full!r}, which its layout needs")
        array = np.asarray(self.tensors[full])
        if (
            array.dtype not in [np.dtype(t) for t in types]
            or (ndim is not None and array.ndim != ndim)
            or not array.size
        ):
            wanted = " or ".join(np.dtype(t).name for t in types)
            rank = "" if ndim is None else f" with {ndim} dimensions"
            raise FileFormatError(f"tensor {full!r} is {array.dtype.name} {array.shape}; {wanted}{rank} is needed")
        return array

    def scale(self, part: str, ndim: int | None = 2) -> Array:
        return self.get(part, *SCALES, ndim=ndim)


def _whole(facts: Mapping[str, Any], keys: tuple[str, ...], default: int, what: str) -> int:
    found = next((facts[key] for key in keys if facts.get(key) is not None), default)
    if type(found) is not int or not 1 <= found <= 8:
        raise Unsupported(f"{what}: {keys[0]} is {found!r}; 1 to 8 work")
    return found


def _gptq_or_awq(layer: _Layer, facts: Mapping[str, Any]) -> QuantizedTensor:
    words, scales = layer.get("qweight", np.int32), layer.scale("scales")
    zeros = layer.get("qzeros", np.int32)
    if words.shape[1] * 8 == scales.shape[1]:
        version = str(facts.get("version", "gemm")).lower()
        if version not in AWQ_VERSIONS:
            raise Unsupported(f"layer {layer.name!r}: AWQ of version {version!r}; {', '.join(AWQ_VERSIONS)} works")
        return layouts.from_awq(words, zeros, scales)
    if words.shape[1] != scales.shape[1]:
        raise ShapeMismatch(f"qweight {words.shape} and scales {scales.shape}: neither GPTQ's nor AWQ's")
    index = layer.get("g_idx", np.int32, np.int64, ndim=1) if "g_idx" in layer else None
    rows = 0 if index is None else len(index)
    told = 32 * len(words) // rows if rows and 32 * len(words) % rows == 0 else 4
    bits = _whole(facts, ("bits", "w_bit"), told, f"layer {layer.name!r}")
    form = str(facts.get("checkpoint_format", "gptq"))
    return layouts.from_gptq(words, zeros, scales, index, bits=bits, checkpoint_format=form)


def _packed(layer: _Layer, facts: Mapping[str, Any]) -> QuantizedTensor:
    """compressed-tensors, format pack-quantized."""
    if np.asarray(layer.tensors[f"{layer.name}.weight_packed"]).dtype == np.uint8:
        raise Unsupported(f"layer {layer.name!r} has packed floats; pack-quantized integers (words of int32) work")
    words, scale = layer.get("weight_packed", np.int32), layer.scale("weight_scale")
    shape = layer.get("weight_shape", np.int32, np.int64, ndim=1)
    zero = layer.get("weight_zero_point", np.int32) if "weight_zero_point" in layer else None
    if len(shape) != 2 or shape[0] != len(words) or not 0 < shape[1] <= 32 * words.shape[1]:
        raise ShapeMismatch(f"weight_shape is {shape.tolist()} for words of shape {words.shape}")
    told = _group_bits(facts)
    fitting = [b for b in (4, 8, 2, 3, 5, 6, 7, 1) if -(-int(shape[1]) * b // 32) == words.shape[1]]
    bits = told if told is not None else (fitting or [4])[0]
    return layouts.from_compressed_tensors(words, scale, shape, zero, bits=bits)


def _group_bits(facts: Mapping[str, Any]) -> int | None:
    """Bits of weights where all groups of layers of compressed-tensors agree."""
    groups = facts.get("config_groups")
    weights = (
        [g.get("weights") for g in groups.values() if isinstance(g, Mapping)] if isinstance(groups, Mapping) else []
    )
    bits = {w["num_bits"] for w in weights if isinstance(w, Mapping) and isinstance(w.get("num_bits"), int)}
    return bits.pop() if len(bits) == 1 else None


def _scaled(layer: _Layer, facts: Mapping[str, Any]) -> QuantizedTensor:
    """compressed-tensors, formats int-quantized and float-quantized: a code a byte, and a scale for each row."""
    w = layer.get("weight", np.int8, ml_dtypes.float8_e4m3fn)
    scale = np.asarray(layer.scale("weight_scale", ndim=None), np.float32).reshape(-1, 1)
    if "weight_zero_point" in layer and np.any(np.asarray(layer.tensors[f"{layer.name}.weight_zero_point"]) != 0):
        raise Unsupported(f"layer {layer.name!r} has zero points beside bytes; symmetric weights work")
    if len(scale) not in (1, len(w)):
        raise Unsupported(f"layer {layer.name!r} has {len(scale)} scales for {len(w)} rows; one, or one a row, works")
    scheme = get("int8_channel" if w.dtype == np.int8 else "fp8_e4m3_channel")
    params = {"scale": np.ascontiguousarray(np.broadcast_to(scale, (len(w), 1)))}
    return from_parts(scheme, np.ascontiguousarray(w).view(np.uint8), params, w.shape)


def _bitsandbytes_int8(layer: _Layer, facts: Mapping[str, Any]) -> QuantizedTensor:
    w, largest = layer.get("weight", np.int8), layer.scale("SCB", ndim=1)
    scheme = get("int8_vectorwise")
    params = {scheme.stored[0].name: np.ascontiguousarray(largest, np.float32).reshape(-1, 1)}
    return from_parts(scheme, np.ascontiguousarray(w).view(np.uint8), params, w.shape)


def _bitsandbytes(layer: _Layer, facts: Mapping[str, Any]) -> QuantizedTensor:
    part = next(n for n in layer.tensors if n.startswith(f"{layer.name}{STATE}"))[len(layer.name) + 1 :]
    try:
        state = json.loads(layer.get(part, np.uint8, ndim=1).tobytes())
        shape = tuple(int(n) for n in state["shape"])
        kind, block = str(state["quant_type"]), int(state["blocksize"])
        nested = int(state.get("nested_blocksize", 256)), float(state.get("nested_offset", 0.0))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(
            f"layer {layer.name!r}: the quantization state is no JSON that says all: {error}"
        ) from error
    if len(shape) != 2 or min(shape) < 1 or block < 1 or not 1 <= nested[0] <= LARGEST_BLOCK:
        raise FileFormatError(f"layer {layer.name!r} has shape {shape} and blocks of {block}; a matrix is needed")
    more: dict[str, Any] = {}
    if "weight.nested_absmax" in layer:
        more = {
            "nested_absmax": layer.get("weight.nested_absmax", np.float32, ndim=1),
            "nested_quant_map": layer.get("weight.nested_quant_map", np.float32, ndim=1),
            "nested_block": nested[0],
            "nested_offset": nested[1],
        }
    absmax = layer.get("weight.absmax", np.uint8 if more else np.float32, ndim=1)
    packed = layer.get("weight", np.uint8, ndim=None)
    return layouts.from_bitsandbytes(packed, absmax, shape, quant_type=kind, block=block, **more)


_MAKERS: dict[str, Callable[[_Layer, Mapping[str, Any]], QuantizedTensor]] = {
    ".qweight": _gptq_or_awq,
    ".weight_packed": _packed,
    ".weight_scale": _scaled,
    ".SCB": _bitsandbytes_int8,
    STATE: _bitsandbytes,
}
