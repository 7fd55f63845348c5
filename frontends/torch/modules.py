"""Linears whose weights are in a scheme: codes for inference, straight-through fake quantization for training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from ...executors.schemes import QuantizedTensor, Scheme, get
from ...primitives.errors import ArgumentError, Unsupported

Which = Callable[[str, Any], bool]


def _array(t: Any) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(t.detach().to(device="cpu", dtype=torch.float32).numpy())


def _like(array: np.ndarray[Any, Any], t: Any) -> Any:
    return torch.from_numpy(array).to(device=t.device, dtype=t.dtype)


class _StraightThrough(torch.autograd.Function):
    """Quantize and dequantize; the gradient passes as if nothing had happened, but for what was clipped."""

    @staticmethod
    def forward(ctx: Any, x: Any, scheme: Scheme, clip: bool) -> Any:
        array = _array(x)
        kept = scheme.fake_quantize(array)
        if clip:
            rows = array.reshape(-1, array.shape[-1])
            made = kept.reshape(rows.shape)
            low, high = made.min(axis=1, keepdims=True), made.max(axis=1, keepdims=True)
            ctx.inside = torch.from_numpy(((rows >= low) & (rows <= high)).reshape(array.shape)).to(x.device)
        ctx.clip = clip
        return _like(kept, x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return (grad * ctx.inside if ctx.clip else grad), None, None


def fake_quantize(x: Any, scheme: Scheme | str, clip: bool = False) -> Any:
    """What is left of a tensor after quantizing it, with straight-through gradients.

    scheme  a Scheme or the name of a shipped one
    clip    no gradient for values outside of what came out of their row (Learned clipping needs this)

    Works for tensors of any device and float type: the scheme runs on the CPU in float32.
    """
    return _StraightThrough.apply(x, _scheme(scheme), clip)


def _scheme(given: Scheme | str) -> Scheme:
    return get(given) if isinstance(given, str) else given


class QuantizedLinear(nn.Module):
    """y = x @ w.T + bias on packed weights: for inference, on the CPU.

    q        QuantizedTensor (N, K); a buffer of the module's state is the codes' scheme by name, codes and parameters
    compute  as in QuantizedTensor.matmul
    """

    def __init__(self, q: QuantizedTensor, bias: Any = None, compute: str = "f32") -> None:
        super().__init__()
        self.q, self.compute = q, compute
        self.out_features, self.in_features = q.shape
        self.bias = bias if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)

    def forward(self, x: Any) -> Any:
        if torch.is_grad_enabled() and x.requires_grad:
            raise Unsupported(
                "QuantizedLinear has no gradients; quantize_(model, scheme, train=True) makes linears that have"
            )
        y = _like(self.q.matmul(_array(x), self.compute), x)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    @property
    def weight(self) -> Any:
        """The decoded weights, float32: for code that looks at them."""
        return torch.from_numpy(self.q.dequantize())

    def extra_repr(self) -> str:
        scheme = self.q.scheme.name
        return f"{self.in_features}, {self.out_features}, {scheme}, {self.q.bits_per_weight:.3f} bits a weight"


class FakeQuantizedLinear(nn.Linear):
    """A linear that trains: its float weights go through a scheme at every call, gradients straight through.

    activations  a scheme for x too, or None
    """

    scheme: Scheme
    activations: Scheme | None

    @classmethod
    def of(cls, linear: Any, scheme: Scheme, activations: Scheme | None = None) -> FakeQuantizedLinear:
        """The same linear, its very parameters, in a scheme."""
        made = cls.__new__(cls)
        made.__dict__.update(linear.__dict__)
        made.scheme, made.activations = scheme, activations
        return made

    def forward(self, x: Any) -> Any:
        if self.activations is not None:
            x = fake_quantize(x, self.activations)
        return nn.functional.linear(x, fake_quantize(self.weight, self.scheme), self.bias)

    def packed(self, compute: str = "f32") -> QuantizedLinear:
        """The linear for inference, with the weights as they are now."""
        return QuantizedLinear(self.scheme.quantize(_array(self.weight)), self.bias, compute)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scheme={self.scheme.name}"


def quantize_(
    model: Any,
    scheme: Scheme | str | Mapping[str, Scheme | str],
    *,
    which: Which | None = None,
    train: bool = False,
    activations: Scheme | str | None = None,
    compute: str = "f32",
) -> Any:
    """Swap the nn.Linear modules of a model for ones in a scheme, in place; returns the model.

    scheme       a Scheme, the name of a shipped one, or {name of a linear: scheme}; linears it lacks stay as they are
    which        which(name, module): whether to swap a linear; left out: all
    train        whether weights stay float and go through the scheme at every call, with gradients
    activations  with train, a scheme for the inputs of the linears
    compute      without train, as in QuantizedTensor.matmul

    Raises ArgumentError where nothing was swapped.
    """
    if activations is not None and not train:
        raise ArgumentError("quantize_: activations= goes with train=True; compute='int8' quantizes them for inference")
    swapped = 0
    for name, module in list(model.named_modules()):
        if isinstance(module, FakeQuantizedLinear) and not train:
            pass  # trained, now packed
        elif not isinstance(module, nn.Linear) or isinstance(module, FakeQuantizedLinear):
            continue
        if which is not None and not which(name, module):
            continue
        chosen = scheme.get(name) if isinstance(scheme, Mapping) else scheme
        if chosen is None:
            continue
        if train:
            acts = None if activations is None else _scheme(activations)
            made: Any = FakeQuantizedLinear.of(module, _scheme(chosen), acts)
        else:
            made = QuantizedLinear(_scheme(chosen).quantize(_array(module.weight)), module.bias, compute)
        swapped += 1
        if not name:
            return made
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, made)
    if not swapped:
        raise ArgumentError("quantize_: the model has no nn.Linear that was asked for; nothing was swapped")
    return model
