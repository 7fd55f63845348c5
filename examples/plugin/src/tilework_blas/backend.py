"""The backend "blas": integer products by the float64 routines of BLAS, exact below 2**53; the rest in NumPy."""

import numpy as np

import tilework as tw

AS_THE_REFERENCE = ("abs", "add", "clip", "dequantize", "linear", "lookup", "map", "quantize", "relu", "requantize")


@tw.factory.register("gemm", backend="blas")
def gemm(kernel):
    if kernel.real or kernel.a_zero_point is not None or kernel.b_zero_point is not None:
        return tw.factory.get(
            "gemm", "reference", kernel=kernel
        )  # a float32 sum has an order, which BLAS does not keep

    def multiply(a, b, acc):
        exact = a.astype(np.float64) @ b.astype(np.float64)
        acc[...] = exact.astype(np.int64).astype(np.int32)  # modulo 2**32, as the sum is defined

    return tw.factory.Whole(multiply)


def as_the_reference_does(name, **facts):
    return tw.factory.get(name, "reference", **facts)


for step in AS_THE_REFERENCE:
    tw.factory.register(step, backend="blas")(as_the_reference_does)


class BlasExecutor(tw.SingleThreadExecutor):
    """One step after another, with BLAS where integers are multiplied."""

    backend = "blas"
