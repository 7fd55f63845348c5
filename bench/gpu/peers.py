"""Other libraries on the same GPU: cuBLAS (torch._int_mm), torch step by step, and Triton where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Peer:
    """name; call: launches on `stream` and returns the tensor that it fills."""

    name: str
    call: Callable[[], Any]
    stream: int


def torch_on_gpu() -> tuple[Any, str]:
    """(torch, "") where it reaches a GPU; else (None, why not)."""
    try:
        import torch
    except ImportError as error:
        return None, f"torch cannot be imported ({error})"
    return (torch, "") if torch.cuda.is_available() else (None, f"torch {torch.__version__} finds no GPU")


def of_gemm(a: Array, b: Array, number: int, missing: dict[str, str]) -> list[Peer]:
    """Who multiplies int8 matrices; `missing` takes who does not, and why."""
    torch, why = torch_on_gpu()
    if torch is None:
        missing["cuBLAS"] = missing["Triton"] = why
        return []
    with torch.cuda.device(number):
        x, y = (torch.from_numpy(array).cuda() for array in (a, b))
        columns = y.t().contiguous().t()  # as cuBLAS is fastest: both read along K
        stream = int(torch.cuda.current_stream().cuda_stream)
        found = [Peer("cuBLAS", lambda: torch._int_mm(x, columns), stream)]
        try:
            from .triton_matmul import matmul

            filled = torch.empty((a.shape[0], b.shape[1]), dtype=torch.int32, device=x.device)
            matmul(x, y, filled)
            found.append(Peer("Triton", lambda: matmul(x, y, filled), stream))
        except Exception as error:  # its compiler raises errors of many types
            missing["Triton"] = f"{type(error).__name__}: {str(error)[:200]}"
    return found


def of_quantize(x: Array, scale: float, zero_point: int, number: int, missing: dict[str, str]) -> list[Peer]:
    """torch, one operation after another."""
    torch, why = torch_on_gpu()
    if torch is None:
        missing["torch"] = why
        return []
    with torch.cuda.device(number):
        given = torch.from_numpy(x).cuda()
        stream = int(torch.cuda.current_stream().cuda_stream)

        def call() -> Any:
            return torch.clamp(torch.round(given / scale) + zero_point, 0, 255).to(torch.uint8)

    return [Peer("torch", call, stream)]


def of_dequantize(q: Array, scale: float, zero_point: int, number: int, missing: dict[str, str]) -> list[Peer]:
    """torch, one operation after another."""
    torch, why = torch_on_gpu()
    if torch is None:
        missing["torch"] = why
        return []
    with torch.cuda.device(number):
        given = torch.from_numpy(q).cuda()
        stream = int(torch.cuda.current_stream().cuda_stream)

        def call() -> Any:
            return (given.to(torch.float32) - zero_point) * scale

    return [Peer("torch", call, stream)]


def of_linear(x: Array, weights: Array, number: int, missing: dict[str, str]) -> list[Peer]:
    """torch's product of half floats, which reads four times the bytes."""
    torch, why = torch_on_gpu()
    if torch is None:
        missing["torch"] = why
        return []
    with torch.cuda.device(number):
        given, w = (torch.from_numpy(array).cuda().half() for array in (x, weights))
        stream = int(torch.cuda.current_stream().cuda_stream)
    return [Peer("torch f16", lambda: given @ w.t(), stream)]
