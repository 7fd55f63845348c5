"""The native entry: addressing, axes, types, statuses; and that one tile is never taken for another."""

import ctypes
import gc
from dataclasses import replace

import numpy as np
import pytest
from numba import njit
from numba.core import config
from numpy.testing import assert_array_equal

import tilework
from tilework.executors import tiles
from tilework.kernels import forge
from tilework.kernels.entry import RAISED, OperandType, bits_view, describe
from tilework.primitives import dtypes
from tilework.primitives.conversion import convert
from tilework.primitives.errors import KernelFailed
from tilework.primitives.layout import LayoutSpec

CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


def native(source, **scope):
    return forge.Native(f"import numpy as np\nfrom numba import njit\n\n\n{source}", scope=tuple(scope.items()))


def run(tile, ranges, *arrays, params=(), bases=None, layouts=None):
    """Call the native entry on these arrays; `bases`: how far below each array its base lies."""
    layouts = layouts or ["A"] * len(arrays)
    arrays = [bits_view(a) for a in arrays]
    types = tuple(
        OperandType(dtypes.get(a.dtype).name, a.ndim, layout) for a, layout in zip(arrays, layouts, strict=True)
    )
    entry = CALL(forge.entry(tile, len(ranges), types, len(params)).address)
    table, words = [0], []
    for n, a in enumerate(arrays):
        address = a.__array_interface__["data"][0]
        if bases is None:
            words += [0, address, *a.shape, *a.strides]
        else:
            table.append(address - bases[n])
            words += [n + 1, bases[n], *a.shape, *a.strides]
    table, block = np.array(table, np.int64), np.array([*words, *params, 0], np.int64)
    limits = np.array([bound for pair in ranges for bound in pair] + [0], np.int64)
    return entry(table.ctypes.data, block.ctypes.data, limits.ctypes.data)


DOUBLE = """@njit(nogil=True, error_model="numpy")
def tile(n0, n1, x, y):
    for n in range(n0, n1):
        y[n] = x[n] * 2
"""


def test_operands_are_found_at_a_base_and_an_offset():
    x, y = np.arange(9, dtype=np.int32), np.full(9, -1, np.int32)
    assert run(native(DOUBLE), [(2, 7)], x, y, bases=(40, -16)) == 0
    assert_array_equal(y, [-1, -1, 4, 6, 8, 10, 12, -1, -1])


def test_a_joined_tile_is_its_entry():
    joined = replace(native(DOUBLE), joined=True)
    x, y = np.arange(9, dtype=np.int32), np.full(9, -1, np.int32)
    assert run(joined, [(2, 7)], x, y, bases=(40, -16)) == 0
    assert_array_equal(y, [-1, -1, 4, 6, 8, 10, 12, -1, -1])
    made = forge.entry(joined, 1, (OperandType("s32", 1),) * 2)
    assert ("def tile" in made.source) == bool(config.BOUNDSCHECK)  # then it is called, so that exceptions come out
    forge.python_tile(joined)(7, 9, x, y)
    assert_array_equal(y[7:], [14, 16])


@pytest.mark.parametrize("count", [26, 27, 40])
def test_a_tile_that_may_raise_takes_any_number_of_arguments(count):
    """Python calls with more than thirty arguments by other instructions."""
    names = ", ".join(f"p{n}" for n in range(count))
    text = "@njit(nogil=True, error_model='numpy')\ndef tile(n0, n1, x, y, {}):\n    z = np.zeros(2, np.int32)\n"
    text = text.format(names) + f"    for n in range(n0, n1):\n        y[n] = x[n] + z[1] + p{count - 1}\n"
    assert forge.allocates(text)
    x, y = np.arange(9, dtype=np.int32), np.zeros(9, np.int32)
    assert run(native(text), [(0, 9)], x, y, params=tuple(range(count))) == 0
    assert_array_equal(y, x + count - 1)


def test_strides_may_be_anything_and_negative():
    x, y = np.arange(20, dtype=np.int32)[::-2], np.zeros((10, 3), np.int32)[:, 1]
    run(native(DOUBLE), [(0, 10)], x, y)
    assert_array_equal(y, x * 2)


THREE = """@njit(nogil=True, error_model="numpy")
def tile(b0, b1, m0, m1, n0, n1, a, packed, y, step):
    for b in range(b0, b1):
        for m in range(m0, m1):
            for n in range(n0, n1):
                total = np.int32(0)
                for k0 in range(0, a.shape[2], step):
                    for k in range(k0, min(k0 + step, a.shape[2])):
                        w = packed[k // packed.shape[3], n // packed.shape[2], n % packed.shape[2], k % packed.shape[3]]
                        total += np.int32(a[b, m, k]) * np.int32(w)
                y[b, m, n] = total
"""


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_three_axes_and_a_packed_operand_are_served(cut):
    rng = np.random.default_rng(0)
    a, w = rng.integers(-128, 128, (2, 5, 12), np.int8), rng.integers(-128, 128, (12, 8), np.int8)
    spec = LayoutSpec((12, 8), axes="KN", blocks=(("N", 4), ("K", 4)))
    packed = convert(w, LayoutSpec((12, 8), axes="KN"), spec)
    assert_array_equal(packed, w.reshape(3, 4, 2, 4).transpose(0, 2, 3, 1))  # (K/4, N/4, 4 of N, 4 of K)
    y = np.full((2, 5, 8), 99, np.int32)
    for b in range(2):
        for m in range(0, 5, cut):
            for n in range(0, 8, cut):
                ranges = [(b, b + 1), (m, min(m + cut, 5)), (n, min(n + cut, 8))]
                assert run(native(THREE), ranges, a, packed, y, params=(5,)) == 0
    assert_array_equal(y, a.astype(np.int32) @ w.astype(np.int32), strict=True)


STATUS = """@njit(nogil=True, error_model="numpy")
def tile(n0, n1, x):
    for n in range(n0, n1):
        if x[n] == 0:
            return np.int32(7)
    return np.int32(0)
"""


def test_a_tile_returns_a_status_and_nothing_is_zero():
    assert run(native(STATUS), [(0, 3)], np.array([1, 2, 3])) == 0
    assert run(native(STATUS), [(0, 3)], np.array([1, 0, 3])) == 7
    assert run(native(DOUBLE), [(0, 0)], np.zeros(0, np.int32), np.zeros(0, np.int32)) == 0


COPY = """@njit(nogil=True, error_model="numpy")
def tile(n0, n1, x, y):
    for n in range(n0, n1):
        y[n] = x[n]
"""


@pytest.mark.parametrize(
    "dtype", ["bool", "u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64", "f8e4m3fn"]
)
def test_every_type_passes_with_its_bits(dtype):
    numpy = dtypes.get(dtype).numpy
    bits = np.arange(7 * numpy.itemsize, dtype=np.uint8) % (2 if dtype == "bool" else 251)
    x, y = bits.view(numpy), np.zeros(7, numpy)
    run(native(COPY), [(1, 7)], x, y)
    assert y[1:].tobytes() == x[1:].tobytes()
    assert not y[:1].view(np.uint8).any()


SCALAR = """@njit(nogil=True, error_model="numpy")
def tile(n0, n1, x, scale, y):
    for n in range(n0, n1):
        y[n] = x[n] * scale[()]
"""


@pytest.mark.parametrize("layout", ["A", "R", "C"])
def test_scalars_are_arrays_without_dimensions_and_layouts_may_be_fixed(layout):
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    run(native(SCALAR), [(0, 5)], x, np.float32(0.5) * np.ones(()).astype(np.float32), y, layouts=[layout, "A", layout])
    assert_array_equal(y, x * np.float32(0.5), strict=True)


ROWS = """@njit(nogil=True, error_model="numpy")
def tile(m0, m1, x, y):
    for m in range(m0, m1):
        for n in range(x.shape[1]):
            y[m, n] = x[m, n] + 1
"""


def test_rows_may_lie_apart_where_only_they_are_contiguous():
    x, y = np.arange(24, dtype=np.int16).reshape(4, 6)[::2, 1:5], np.zeros((2, 9), np.int16)[:, 2:6]
    run(native(ROWS), [(0, 2)], x, y, layouts=["R", "R"])
    assert_array_equal(y, x + 1)


def closure(k):
    @njit(nogil=True, error_model="numpy")
    def tile(n0, n1, x, y):
        for n in range(n0, n1):
            y[n] = x[n] + k

    return tile


def test_tiles_of_the_same_text_over_other_objects_are_other_tiles():
    x, y = np.arange(3), np.zeros(3, np.int64)
    for k in range(6):  # each goes away before the next is made, so that a new one may have its address
        run(closure(k), [(0, 3)], x, y)
        assert_array_equal(y, x + k)
        gc.collect()


def adder(k):
    @njit
    def add(v):
        return v + k

    return add


USES = """@njit(nogil=True, error_model="numpy")
def tile(n0, n1, x, y):
    for n in range(n0, n1):
        y[n] = helper(x[n])
"""


def test_texts_over_other_objects_are_not_equal():
    x, y = np.arange(3), np.zeros(3, np.int64)
    made = [native(USES, helper=adder(k)) for k in range(3)]
    assert len(set(made)) == 3
    assert native(DOUBLE) == native(DOUBLE)
    for k, tile in enumerate(made):
        assert tiles.run_whole(tile, (x, y), [3], ()) == 0
        assert_array_equal(y, x + k)
        assert_array_equal(forge.python_tile(tile)(0, 3, x, y) or y, x + k)


def test_other_sizes_and_strides_compile_nothing():
    run(native(DOUBLE), [(0, 1)], np.zeros(1, np.int32), np.zeros(1, np.int32))
    before = forge.Counts.compiled, forge.Counts.loaded
    for n in (2, 17, 100):
        run(native(DOUBLE), [(0, n)], np.zeros(2 * n, np.int32)[::2], np.zeros(n, np.int32))
    assert (forge.Counts.compiled, forge.Counts.loaded) == before


def test_the_same_tile_is_the_same_entry():
    types = (OperandType("s32", 1), OperandType("s32", 1))
    assert forge.entry(native(DOUBLE), 1, types) is forge.entry(native(DOUBLE), 1, types)
    assert describe(types) == "s32[1]A, s32[1]A"
    other = forge.entry(native(DOUBLE), 1, (OperandType("s32", 1, "C"),) * 2)
    assert other.key != forge.entry(native(DOUBLE), 1, types).key


def test_division_by_zero_follows_numpy_and_raises_nothing():
    tile = native(
        """@njit(nogil=True, error_model="numpy")
def tile(n0, n1, x, y):
    for n in range(n0, n1):
        y[n] = np.float32(1) / x[n]
"""
    )
    y = np.zeros(2, np.float32)
    assert run(tile, [(0, 2)], np.array([0, -0.0], np.float32), y) == 0
    assert_array_equal(y, [np.inf, -np.inf])


def test_a_tile_that_cannot_be_compiled_raises_and_the_forge_stays_usable():
    with pytest.raises(Exception, match="no_such_name"):
        run(native(USES.replace("helper", "no_such_name")), [(0, 1)], np.zeros(1), np.zeros(1))
    x, y = np.arange(3, dtype=np.int32), np.zeros(3, np.int32)
    run(native(DOUBLE), [(0, 3)], x, y)
    assert_array_equal(y, x * 2)


def test_a_tile_that_raises_says_so_and_the_forge_stays_usable():
    @njit(nogil=True)
    def tile(n0, n1, x, y):
        for n in range(n0, n1):
            if x[n] < 0:
                raise ValueError("below zero")
            y[n] = x[n]

    x, y = np.arange(5, dtype=np.int32), np.full(5, -1, np.int32)
    assert run(tile, [(0, 5)], x - 2, y) == RAISED
    assert run(tile, [(0, 5)], x, y) == 0
    assert_array_equal(y, x)


@pytest.mark.parametrize(
    "executor", [tilework.SingleThreadExecutor(), tilework.TilingExecutor(1), tilework.TilingExecutor(2)], ids=repr
)
def test_a_step_whose_tile_raises_is_named_and_its_plan_stays_usable(executor):
    class Checked:
        name = "checked_in_test"

        def signature(self):
            return (
                tilework.ArgSpec("x", "s32", shape=("N",), follows=("n",)),
                tilework.ArgSpec("y", "s32", "write", shape=("N",), follows=("n",)),
            )

        def index_space(self):
            return tilework.IndexSpace((tilework.Axis("n", "N"),))

        def execute(self, ctx):
            ctx.sweep(self, ctx.read("x"), ctx.write("y"))

    @njit(nogil=True)
    def tile(n0, n1, x, y):
        for n in range(n0, n1):
            if x[n] < 0:
                raise ValueError("below zero")
            y[n] = x[n]

    tilework.factory.register("checked_in_test", backend="cpu")(lambda: tile)
    try:
        pipe = tilework.Pipeline()
        pipe.output("y", pipe.add(Checked(), x=pipe.input("x", "s32", ("N",))))
        plan, x = executor.compile(pipe), np.arange(9, dtype=np.int32)
        with pytest.raises(KernelFailed, match=r"'checked_in_test'.*raised"):
            plan.run({"x": x - 4})
        assert_array_equal(plan.run({"x": x})["y"], x)
    finally:
        tilework.factory.unregister("checked_in_test", "cpu")
