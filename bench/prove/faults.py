"""Mistakes that may be made in kernels, packers and the planner, for planted.py to put into a copy of the package."""

from __future__ import annotations

from dataclasses import dataclass

USUAL = ("single thread", "tiled on 3, not fused")  # one serial, one cut: they share what is compiled
CUT = ("tiled on 3, not fused", "tiled on 2, least tiles")
FUSED = ("tiled on 1",)  # one step is the epilogue of another
AVX2 = "tiled, avx2"
GENERIC = ("tiled, generic",)  # without the instructions that do it at once


@dataclass(frozen=True)
class Fault:
    """A text of a file, what takes its place, and where it may show.

    steps      part of "step, type, granularity"
    executors  those that may show it
    """

    file: str
    old: str
    new: str
    steps: str
    executors: tuple[str, ...] = USUAL


FAULTS = (
    # The packers of B: constants of convolutions, and of products
    Fault(
        "kernels/cpu/gemm/packing.py",
        "total = total - 128 * b.shape[0]",
        "total = total - 127 * b.shape[0]",
        "conv, u8 u8",
    ),
    Fault(
        "kernels/cpu/gemm/packing.py",
        "for p in range(whole * group, layout.K):",
        "for p in range(whole * group, layout.K - 1):",
        "gemm, u8 s8",
    ),
    Fault(
        "kernels/cpu/gemm/packing.py",
        "piece = b[:, first : first + width]",
        "piece = b[:, first : first + min(width, 48)]",
        "gemm, u8 s8",
    ),
    Fault(
        "kernels/cpu/gemm/packing.py",
        'return -128 if dtype == "u8" and',
        'return 0 if dtype == "u8" and',
        "conv, u8 u8",
    ),
    Fault(
        "kernels/cpu/gemm/packing.py",
        "(start - za * sums.astype(np.int64))",
        "(start + za * sums.astype(np.int64))",
        "conv, u8 s8, of the tensor",
    ),
    Fault(
        "kernels/cpu/gemm/packing.py",
        "255 * int(low) < -32768",
        "255 * int(low) < -65536",
        "gemm, u8 s8, no zero",
        (AVX2,),
    ),
    Fault("kernels/cpu/gemm/pack_b.py", "value -= flip", "value -= flip + 1", "gemm, u8 u8, of the tensor"),
    Fault(
        "kernels/cpu/gemm/pack_b.py",
        "if fast < width or depth % group or depth == 0:",
        "if fast < width or depth == 0:",
        "gemm, u8 s8",
    ),
    Fault(
        "kernels/cpu/gemm/pack_b.py",
        "put_s32(columns + 2 * plane, n, total)",
        "put_s32(columns + 2 * plane, n, total + 1)",
        "gemm, u8 s8, of rows",
    ),
    Fault("kernels/cpu/gemm/pack_b.py", "zb = block[34]", "zb = 0", "gemm, u8 u8, of the tensor"),
    # What follows a product
    Fault(
        "kernels/cpu/epilogues/finish.py",
        "b.shl(one, b.sub(t, one))",
        "b.shl(one, b.sub(b.sub(t, one), one))",
        "gemm requantized fixed, u8 s8",
        FUSED,
    ),
    Fault(
        "kernels/cpu/epilogues/finish.py",
        "vectors = (width + lanes - 1) // lanes",
        "vectors = width // lanes",
        "gemm requantized fixed, u8 s8",
        FUSED,
    ),
    Fault(
        "kernels/cpu/epilogues/finish.py",
        "for m in range(ranges[2], ranges[3]):",
        "for m in range(ranges[2], max(ranges[2] + 1, ranges[3] - 1)):",
        "gemm requantized fixed, u8 s8",
        FUSED,
    ),
    # Rounding, saturation, special values
    Fault(
        "kernels/cpu/scalar.py",
        "def half_even(r, seed, index):\n    return rint32(r)",
        "def half_even(r, seed, index):\n    return floor32(r + _HALF)",
        "quantize to u16, f32, tensor",
    ),
    Fault(
        "kernels/cpu/reduce/code_runs.py",
        "found = (from_bits(word - 4), above,",
        "found = (from_bits(word + 4), above,",
        "quantize to u8, f32, tensor",
    ),
    Fault(
        "kernels/cpu/reduce/code_runs.py", "f32(0.5 - 2.0**-13)", "f32(0.5 + 2.0**-13)", "quantize to s8, f16, tensor"
    ),
    Fault("kernels/cpu/scalar.py", "if rest < np.uint32(0x400):", "if rest < np.uint32(0x200):", "cast to f32, f16"),
    Fault(
        "kernels/cpu/quantize.py",
        'wide = "np.int64" if kernel.source == "s32" else "np.int32"',
        'wide = "np.int32" if kernel.source == "s32" else "np.int8"',
        "dequantize",
    ),
    Fault(
        "kernels/cpu/reduce/quantizer.py",
        'FOLDS["farthest"][2](fabs(least), fabs(most))',
        'FOLDS["farthest"][2](fabs(most), fabs(most))',
        "dynamic",
    ),
    Fault(
        "kernels/cpu/reduce/quantizer.py",
        "select(scale < INF, scale, f32(1.0))",
        "scale",
        "dynamic",
    ),
    Fault(
        "kernels/cpu/cast.py",
        "(largest, largest | sign) if inside else",
        "(largest, largest | sign) if saturate else",
        "cast to f16",
        GENERIC,
    ),
    Fault("kernels/cpu/cast.py", "bias = one >> fraction", "bias = (one >> fraction) + 1", "cast to f8e5m2"),
    # Loops over views
    Fault(
        "kernels/cpu/nest.py",
        'tests.append(f"{row}.strides[{n - 1}] == {row}.strides[{n}] * {row}.shape[{n}]")',
        'tests.append("True")',
        "abs",
    ),
    Fault(
        "kernels/cpu/nest.py",
        'self.emit(f"length = {last}1 - {last}0")',
        'self.emit(f"length = max(1, {last}1 - {last}0 - ({last}1 - {last}0 == 33))")',
        "neg",
    ),
    Fault(
        "kernels/cpu/lookup.py",
        "end = b.and_(length, e.i64(-group))",
        "end = b.and_(b.add(length, e.i64(1)), e.i64(-group))",
        "lookup",
    ),
    Fault(
        "kernels/cpu/lookup.py",
        'b.icmp_signed("<", codes, e.constant(kind, 0)), high, low',
        'b.icmp_signed("<=", codes, e.constant(kind, 0)), high, low',
        "lookup",
    ),
    # Windows
    Fault(
        "kernels/cpu/conv/band.py",
        "z % block[w.UD] == 0 and z // block[w.UD] < depth",
        "z % block[w.UD] == 0 and z // block[w.UD] <= depth",
        "conv",
    ),
    Fault(
        "kernels/cpu/conv/band.py",
        "fill(pixel + have * channels * size, padding, (reach - before - have) * channels)",
        "fill(pixel + have * channels * size, 0, (reach - before - have) * channels)",
        "conv",
    ),
    Fault("kernels/cpu/conv/band.py", "y = first + r - block[w.PH]", "y = first + r - block[w.PW]", "conv"),
    Fault(
        "kernels/cpu/pool_rows.py",
        "steps(b.sub(b.add(n, after), at), step)",
        "steps(b.sub(b.add(n, before), at), step)",
        "average_pool",
    ),
    Fault(
        "kernels/cpu/pool.py",
        "-(zn * yn * qn) * np.int64(x_zero[()])",
        "-(zc * yc * qc) * np.int64(x_zero[()])",
        "average_pool",
    ),
    Fault(
        "kernels/cpu/pool_rows.py",
        'builder.or_(builder.fcmp_ordered(">", new, old), builder.fcmp_unordered("!=", new, new))',
        'builder.fcmp_ordered(">", new, old)',
        "max_pool, f32",
    ),
    # Moving data
    Fault(
        "kernels/cpu/moving/gather.py",
        'f"{pad}    {place} += {extent}",',
        'f"{pad}    {place} += {extent} - 1",',
        "gather",
    ),
    Fault(
        "kernels/cpu/moving/order.py",
        "if v > values[mid] or (v != v and values[mid] == values[mid]):",
        "if v >= values[mid] or (v != v and values[mid] == values[mid]):",
        "topk",
    ),
    Fault("kernels/cpu/moving/order.py", "{'' if kernel.upper else ' + 1'}", "{' + 1'}", "trilu"),
    Fault("kernels/cpu/moving/order.py", "or place + {kernel.depth} ==", "or place + {kernel.depth} + 1 ==", "one_hot"),
    Fault(
        "kernels/cpu/moving/resample.py",
        "result += y.dtype.type(w) * x[min(max(z, 0), n - 1)]",
        "result += y.dtype.type(w) * x[min(max(z, 0), n - 2)]",
        "resize",
    ),
    Fault(
        "kernels/moving/copy.py",
        "if all(step == 0 for step in from_):",
        "if any(step == 0 for step in from_):",
        "concat",
    ),
    # The planner
    Fault(
        "executors/cutting.py",
        "bounds = [min(units * i // c * axis.multiple, n) for i in range(c)] + [n]",
        "bounds = [min(units * i // c * axis.multiple, n) for i in range(c)] + [n - n % axis.multiple]",
        "gemm requantized, u8 s8",
        CUT,
    ),
    Fault(
        "executors/cutting.py",
        "bounds = [min(i * tile[axis.name], n) for i in range(c + 1)]",
        "bounds = [min(i * tile[axis.name], n) for i in range(c)]",
        "softmax",
        CUT,
    ),
    Fault("executors/bound.py", "np.copyto(results[name], self._array(value, memory, external))", "pass", "reshape"),
    Fault(
        "executors/binding.py",
        "for value in [*step.inputs.values(), *step.outputs.values()]:\n                last[value.name] = n",
        "for value in step.outputs.values():\n                last[value.name] = n",
        "network",
    ),
)
