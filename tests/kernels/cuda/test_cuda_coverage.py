"""Which steps of the CPU have a CUDA kernel, and which have none yet."""

from tilework.kernels import factory

COVERED = {
    "add", "add_quantized", "argmax", "cast", "clip", "conv", "copy", "cumsum", "dequantize", "dynamic_quantize",
    "elementwise", "elementwise_quantized", "extremes", "fill", "gather", "gather_elements", "gather_nd", "gemm",
    "linear", "logsoftmax", "lookup", "map", "normalize", "one_hot", "quantization_parameters", "quantize", "range",
    "reduce", "relu", "requantize", "scatter_elements", "scatter_nd", "softmax", "topk", "transposed", "trilu",
}  # fmt: skip


def test_what_has_a_cuda_kernel_keeps_it(report):
    meant, cpu, cuda = (factory.names(backend) for backend in ("reference", "cpu", "cuda"))
    expanded = {name.removeprefix("expand.") for name in cpu}
    missing = sorted(meant & (cpu | expanded) - cuda)
    report("steps of the CPU without a CUDA kernel", ", ".join(missing) or "none")
    assert COVERED <= cuda
    assert cuda - {"fused_gemm", "expand.fused_gemm"} <= meant, (
        "a CUDA kernel of a step that the reference does not define"
    )


def test_a_missing_kernel_says_what_cuda_has(monkeypatch):
    error = factory._miss("no_such_step", "cuda", [])
    assert "no kernel 'no_such_step' on backend 'cuda': cuda has" in error
