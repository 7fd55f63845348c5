"""ggml through ggml-python: the products of a layer on the same blocks, in its own packed form where it has one.

Weights lie where llama.cpp would put them: in the buffer type that repacks them for this processor, if its device says
that it multiplies this type from there, else as they are in the file. One graph holds all products and is computed
with so many threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...frontends.gguf import RawTensor
from . import _present

Array = np.ndarray[Any, Any]


def version() -> str:
    """Which one, and what it was compiled for; empty where it is not installed."""
    if not _present("ggml"):
        return ""
    import ggml

    has = [n for n in ("avx2", "avx512", "avx512_vnni") if getattr(ggml, f"ggml_cpu_has_{n}")()]
    return f"ggml-python {ggml.__version__} ({', '.join(has) or 'no vector instructions that are asked for'})"


def products(
    raws: Sequence[RawTensor], inputs: Mapping[str, Array], threads: int
) -> Callable[[], dict[str, Array]] | None:
    """A call that computes x @ w.T for every matrix, x being inputs["xK"]; None where ggml is not installed.

    Its result is {name of the matrix: f32 (M, N)}, arrays that live as long as the call.
    """
    if not _present("ggml"):
        return None
    return _Graph(raws, inputs, threads)


class _Graph:
    def __init__(self, raws: Sequence[RawTensor], inputs: Mapping[str, Array], threads: int) -> None:
        import ggml

        self.g = g = ggml
        count = 4 * len(raws) + len(inputs)
        size = count * g.ggml_tensor_overhead() + g.ggml_graph_overhead()
        self.contexts = [g.ggml_init(g.ggml_init_params(size, None, True)) for _ in range(3)]
        own, packed, plain = self.contexts
        self.backend = g.ggml_backend_cpu_init()
        g.ggml_backend_cpu_set_n_threads(self.backend, threads)
        xs = {name: g.ggml_new_tensor_2d(own, g.GGML_TYPE_F32, x.shape[1], x.shape[0]) for name, x in inputs.items()}
        buft = _repacking(g)
        weights, results = [], {}
        for raw in raws:
            kind, (n, k) = raw.type.code, raw.shape
            repacked = buft is not None and _multiplies(g, buft, kind, k, n)
            w = g.ggml_new_tensor_2d(packed if repacked else plain, kind, k, n)
            weights.append(w)
            results[raw.name] = g.ggml_mul_mat(own, w, xs[f"x{k}"])
        usual = g.ggml_backend_dev_buffer_type(g.ggml_backend_dev_by_type(0))
        self.buffers = [
            g.ggml_backend_alloc_ctx_tensors_from_buft(context, kind)
            for context, kind in ((own, usual), (packed, buft or usual), (plain, usual))
        ]
        for w, raw in zip(weights, raws, strict=True):
            data = np.ascontiguousarray(raw.data)
            g.ggml_backend_tensor_set(w, data.ctypes.data_as(ctypes.c_void_p), 0, data.nbytes)
        for name, x in inputs.items():
            given = np.ascontiguousarray(x, np.float32)
            g.ggml_backend_tensor_set(xs[name], given.ctypes.data_as(ctypes.c_void_p), 0, given.nbytes)
        self.graph = g.ggml_new_graph_custom(own, 2 * count, False)
        for result in results.values():
            g.ggml_build_forward_expand(self.graph, result)
        self.results = {name: self._view(result) for name, result in results.items()}

    def _view(self, tensor: Any) -> Array:
        n, m = tensor.contents.ne[0], tensor.contents.ne[1]
        address = ctypes.cast(tensor.contents.data, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(address, (m, n))

    def __call__(self) -> dict[str, Array]:
        self.g.ggml_backend_graph_compute(self.backend, self.graph)
        return self.results

    def __del__(self) -> None:
        for buffer in getattr(self, "buffers", ()):
            if buffer:
                self.g.ggml_backend_buffer_free(buffer)
        for context in getattr(self, "contexts", ()):
            self.g.ggml_free(context)


@lru_cache(maxsize=1)
def _repacking(g: Any) -> Any:
    """The buffer type that repacks weights for the processor, or None."""
    device = g.ggml_backend_dev_by_type(0)
    registry = g.ggml_backend_dev_backend_reg(device)
    found = g.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    if not found:
        return None
    ask = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(_address(found))
    kinds = ask(_address(device))
    n = 0
    while kinds and kinds[n]:
        if b"REPACK" in g.ggml_backend_buft_name(kinds[n]):
            return kinds[n]
        n += 1
    return None


def _address(pointer: Any) -> int:
    return int(pointer if isinstance(pointer, int) else ctypes.cast(pointer, ctypes.c_void_p).value or 0)


@lru_cache(maxsize=64)
def _multiplies(g: Any, buft: Any, kind: int, k: int, n: int) -> bool:
    """Whether the device multiplies with such weights from the buffer type: how llama.cpp asks."""
    context = g.ggml_init(g.ggml_init_params(4 * g.ggml_tensor_overhead(), None, True))
    buffer = g.ggml_backend_buft_alloc_buffer(buft, 0)
    try:
        w = g.ggml_new_tensor_2d(context, kind, k, n)
        product = g.ggml_mul_mat(context, w, g.ggml_new_tensor_2d(context, g.GGML_TYPE_F32, k, 256))
        w.contents.buffer = buffer
        return bool(g.ggml_backend_dev_supports_op(g.ggml_backend_dev_by_type(0), product))
    finally:
        g.ggml_backend_buffer_free(buffer)
        g.ggml_free(context)
