"""Linears whose weights are in a scheme: codes for inference, straight-through fake quantization for training."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from ...executors.schemes import QuantizedTensor, Scheme, get
from ...executors.schemes.files import flatten, gather
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


def _buffer(name: str) -> str:
    return f"packed_{name.replace('.', '_')}"


class QuantizedLinear(nn.Module):
    """y = x @ w.T + bias on packed weights: for inference, on the CPU.

    q        QuantizedTensor (N, K)
    compute  as in QuantizedTensor.matmul

    Codes and parameters are buffers of bytes, `packed_codes` and so on, so that state_dict(), copies and pickles hold
    them and half() leaves them alone. What state_dict() says of the scheme is compared when it is loaded. A pickle finds
    a scheme that is not shipped by its functions' names, and runs on the executor that tensors have by themselves.
    """

    def __init__(self, q: QuantizedTensor, bias: Any = None, compute: str = "f32") -> None:
        super().__init__()
        self.scheme, self.compute = q.scheme, compute
        self.out_features, self.in_features = q.shape
        self.bias = bias if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)
        arrays: dict[str, Any] = {}
        flatten(q.scheme, q._encoded, "", arrays)
        for name, array in arrays.items():
            kept = array if array.flags.writeable else array.copy()
            self.register_buffer(_buffer(name), torch.from_numpy(kept.view(np.uint8)))
        self._names = tuple(arrays)
        self._made = (self._state(), q)

    def _state(self) -> tuple[Any, ...]:
        """What changes when somebody writes to the buffers or replaces them."""
        buffers = [self.get_buffer(_buffer(name)) for name in self._names]
        return tuple((b.data_ptr(), b._version, b.device) for b in buffers)

    @property
    def q(self) -> QuantizedTensor:
        """The weights, on the memory of the buffers."""
        state = self._state()
        if self._made is None or self._made[0] != state:
            arrays = {n: self.get_buffer(_buffer(n)).detach().cpu().numpy() for n in self._names}
            shape = (self.out_features, self.in_features)
            encoded = gather(self.scheme, "", self.in_features, shape, arrays)
            self._made = (state, QuantizedTensor(self.scheme, encoded, shape))
        return self._made[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> QuantizedLinear:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(
            {k: v if k == "scheme" else copy.deepcopy(v, memo) for k, v in self.__getstate__().items()}
        )
        return made

    def get_extra_state(self) -> Any:
        """The scheme's name and digest, and the shape, as bytes of JSON: a tensor, which every format of files holds."""
        told = {
            "scheme": self.scheme.name,
            "digest": self.scheme.digest,
            "shape": [self.out_features, self.in_features],
        }
        return torch.frombuffer(bytearray(json.dumps(told).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Any) -> None:
        """Raises ArgumentError where the state is of another scheme, other functions of the same name, or another shape."""
        found = json.loads(bytes(state.cpu().numpy()).decode())
        wanted = json.loads(bytes(self.get_extra_state().numpy()).decode())
        if found != wanted:
            raise ArgumentError(
                f"the state is of weights {found['shape']} in {found['scheme']!r} ({found['digest']}), this linear has "
                f"{wanted['shape']} in {wanted['scheme']!r} ({wanted['digest']}); quantize_ the model in the same scheme"
            )

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
        return (
            f"{self.in_features}, {self.out_features}, {self.scheme.name}, {self.q.bits_per_weight:.3f} bits a weight"
        )


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
