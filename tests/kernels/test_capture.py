"""Capture of user functions: what is compiled equals what Python computes, and what cannot be compiled is named."""

import importlib.util
import math
import time

import numpy as np
import pytest
from numba import njit

from tilework.kernels.capture import capture
from tilework.kernels.capture.names import helper_of
from tilework.kernels.sequence import SEQUENCES
from tilework.kernels.vectormath import fma, gelu, sigmoid, silu
from tilework.primitives.errors import CaptureError

LEVELS = np.array([-1.0, -0.5, -0.25, -0.1, 0.0, 0.1, 0.3, 0.5], np.float32)
GRID = np.arange(12, dtype=np.float64).reshape(3, 4) / 7
SLOPE = 0.1
LOOKUP = {"a": 1}


def leaky(v, scale):
    r = np.rint(np.float32(v) * scale)
    return r if r > 0 else r * 0.125


def quick_gelu(x):
    return x * sigmoid(1.702 * x)


def swish(x):
    return x / (1.0 + math.exp(-x))


def nearest_level(x, absmax):
    y = x / absmax
    c = 0
    for i in range(7):
        if y > LEVELS[i]:
            c += 1
    return c


def level(q, scale):
    return LEVELS[q & 7] * scale


def e2m1(x, scale):
    y = abs(x) / scale
    c = 0
    if y > 0.25:
        c = 1
    if y >= 0.75:
        c = 2
    if y > 1.25:
        c = 3
    return c | 8 if x < 0.0 else c


def scaled(a, by=2.0):
    return a * by if a < by else by - a


def calls_another(x, bias=3):
    third = 1.0 / 3.0
    return scaled(x, by=SLOPE) * third + x**3 - x**-2 + bias


def code_arithmetic(q, z):
    a = np.uint8(q) - 8
    return ((a // 3) % 5 + (a << 2) - (z >> 1)) ^ 3


def table2d(i, j):
    return GRID[i % 3, j & 3] + 1


def bounded(x):
    return np.clip(np.where(x > 0, x, 0.25 * x), -1.0, max(min(x * 3, 6.0), 0.5)) - int(x) % 4


def contracts(a, b, c):
    return a * b + c


def fused(a, b, c):
    return fma(a, b, c) - gelu(a)


def newton(x):
    y = 1.0
    n = 0
    while n < 6:
        y = 0.5 * (y + abs(x) / y)
        n += 1
    return y


def buffered(x):
    window = np.zeros(4, np.float32)
    for i in range(4):
        window[i] = x * i
    total = 0.0
    for v in window:
        total += v
    return total


def split(x):
    m, e = math.frexp(x)
    return m * 2, e - 1


CASES = [
    (leaky, ("s32", "f32")),
    (quick_gelu, ("f32",)),
    (swish, ("f32",)),
    (nearest_level, ("f32", "f32")),
    (level, ("u8", "f32")),
    (e2m1, ("f32", "f32")),
    (calls_another, ("f32",)),
    (code_arithmetic, ("s32", "s32")),
    (table2d, ("s32", "s32")),
    (bounded, ("f32",)),
    (contracts, ("f32", "f32", "f32")),
    (fused, ("f32", "f32", "f32")),
    (newton, ("f32",)),
    (buffered, ("f32",)),
    (lambda x, s: x * s + 0.1, ("f32", "f32")),
]
DTYPE = {"f": np.float32, "i": np.int32, "b": np.bool_}


def compiled_loop(cap, tmp_path):
    """A native loop over arrays that calls the captured function, and its assembly."""
    names = [f"a{n}" for n in range(len(cap.arg_kinds))]
    text = cap.prelude + cap.emit("user") + "\n\n@njit(error_model='numpy')\n"
    text += f"def run({', '.join(names)}, y):\n    for i in range(y.size):\n"
    text += f"        y[i] = user({', '.join(f'{n}[i]' for n in names)})\n"
    path = tmp_path / f"made_{cap.digest}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run


def samples(kinds, size, seed=0):
    rng = np.random.default_rng(seed)
    columns = []
    for kind in kinds:
        if kind == "i":
            columns.append(rng.integers(-300, 300, size).astype(np.int32))
        else:
            x = (rng.standard_normal(size) * 4).astype(np.float32)
            x[: size // 8] = rng.integers(0, 1 << 32, size // 8, dtype=np.uint64).astype(np.uint32).view(np.float32)
            x[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42]
            columns.append(x)
    return columns


def assert_same_bits(got, wanted):
    got, wanted = np.asarray(got), np.asarray(wanted, dtype=np.asarray(got).dtype)
    if got.dtype == np.float32:
        nan = np.isnan(got) & np.isnan(wanted)
        got, wanted = np.where(nan, 0, got).view(np.int32), np.where(nan, 0, wanted).view(np.int32)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("fn", "kinds"), CASES, ids=[fn.__name__ for fn, _ in CASES])
def test_compiled_and_interpreted_give_the_same_bits_at_every_tail(fn, kinds, tmp_path):
    cap = capture(fn, kinds)
    columns = samples(cap.arg_kinds, 403)
    interpreted = np.array([cap.interpreted(*row) for row in zip(*columns, strict=True)], DTYPE[cap.returns])
    run = compiled_loop(cap, tmp_path)
    for size in (1, 15, 17, 31, 403):
        y = np.empty(size, DTYPE[cap.returns])
        run(*(c[:size] for c in columns), y)
        assert_same_bits(y, interpreted[:size])


@pytest.mark.parametrize("fn", [e2m1, contracts, nearest_level, newton], ids=lambda fn: fn.__name__)
def test_the_original_called_with_float32_gives_the_same_bits(fn):
    cap = capture(fn, "f" * fn.__code__.co_argcount)
    columns = samples(cap.arg_kinds, 300, seed=1)
    with np.errstate(all="ignore"):
        for row in zip(*columns, strict=True):
            assert_same_bits(DTYPE[cap.returns](cap.interpreted(*row)), DTYPE[cap.returns](fn(*row)))


@pytest.mark.parametrize("fn", [quick_gelu, swish, e2m1, leaky, bounded, nearest_level], ids=lambda fn: fn.__name__)
def test_loops_vectorise_without_scalar_float_arithmetic_or_library_calls(fn, tmp_path):
    kinds = dict(CASES)[fn]
    cap = capture(fn, kinds)
    run = compiled_loop(cap, tmp_path)
    columns = samples(cap.arg_kinds, 64)
    run(*columns, np.empty(64, DTYPE[cap.returns]))
    text = "\n".join(run.inspect_asm().values())
    for library in ("expf", "rintf", "fmaf", "floorf"):
        assert f"{library}@" not in text
        assert f"${library}," not in text
    if "x86" in run.inspect_llvm(run.signatures[0]).split("target triple")[1].splitlines()[0]:
        assert any(vector in text for vector in ("mulps", "addps", "divps"))


def test_products_and_sums_are_not_contracted(tmp_path):
    run = compiled_loop(capture(contracts, "fff"), tmp_path)
    a = np.full(64, 1 + 2.0**-12, np.float32)
    y = np.empty_like(a)
    run(a, a, -(a * a), y)
    assert not y.any()
    assert "vfmadd" not in "\n".join(run.inspect_asm().values())


def test_local_arrays_are_not_allocated(tmp_path):
    run = compiled_loop(capture(buffered, "f"), tmp_path)
    run(np.ones(64, np.float32), np.empty(64, np.float32))
    text = "\n".join(run.inspect_asm().values())
    assert "NRT_MemInfo_alloc" not in text
    assert "NRT_Allocate" not in text


def test_an_array_that_is_returned_outlives_its_function():
    def learned(x):
        table, count = np.zeros(4, np.float32), np.zeros(4, np.int32)
        for i in range(4):
            table[i] = x * i
            count[i] += i
        first = table
        return (first, table[1])

    def summed(x):
        table, low = learned(x)
        return table[3] + low

    text = capture(summed, "f").emit("made")
    assert "np.zeros(4, np.float32)" in text
    assert "zeros_f32" not in text


def test_a_local_array_in_a_loop_begins_with_zeros_each_time(tmp_path):
    def restarted(x):
        total = 0.0
        for n in range(3):
            window = np.zeros(5, np.float32)
            counts = np.zeros(3, np.int32)
            for i in range(5):
                window[(int(x) + i) % 5] += x * i + n
                counts[i % 3] += 1
            total += window[n] * counts[n]
        return total

    captured = capture(restarted, "f")
    run = compiled_loop(captured, tmp_path)
    (x,) = samples("f", 103)
    y = np.empty_like(x)
    run(x, y)
    assert_same_bits(y, np.array([captured.interpreted(v) for v in x], np.float32))


def test_tuples_are_returned():
    assert capture(split, "f").interpreted(6.0) == (1.5, 2)
    assert capture(split, "f").returns == ("f", "i")


def test_a_python_constant_is_computed_in_python_before_it_is_rounded():
    text = capture(calls_another, "f").emit("f")
    assert "f32(0.3333333333333333)" in text
    assert "f32(0.1)" in text


def test_integers_wrap_and_saturate_as_documented():
    def wraps(q):
        return q * q * 65536 + 1

    def truncates(x):
        return int(x)

    assert capture(wraps, "i").interpreted(65535) == np.int32(65536 + 1)
    saturated = capture(truncates, "f").interpreted
    assert [saturated(v) for v in (2.9, -2.9, 1e20, -1e20, np.nan)] == [2, -2, 2**31 - 1, -(2**31), 0]


def test_an_index_is_held_inside_its_table():
    def look(i):
        return LEVELS[i]

    read = capture(look, "i").interpreted
    assert [read(i) for i in (-1, 99, -99)] == [LEVELS[-1], LEVELS[-1], LEVELS[0]]


def test_min_and_max_treat_nan_as_python_does():
    def smaller(a, b):
        return min(a, b)

    def smallest(a, b):
        return np.minimum(a, b)

    nan, one = np.float32(np.nan), np.float32(1)
    python, numpy = capture(smaller, "ff").interpreted, capture(smallest, "ff").interpreted
    assert np.isnan(python(nan, one))
    assert python(one, nan) == 1
    assert np.isnan(numpy(nan, one))
    assert np.isnan(numpy(one, nan))


def test_the_digest_follows_code_and_captured_values():
    def make(k):
        def f(x):
            return x * k

        return f

    one, same, other = (capture(make(k), "f") for k in (1.5, 1.5, 2.5))
    assert one.digest == same.digest != other.digest


def test_arguments_by_name_and_defaults():
    cap = capture(calls_another, {"x": "f32", "bias": "s32"})
    assert cap.parameters == ("x", "bias")
    assert capture(calls_another, {"x": "f32"}).interpreted(1.0) == cap.interpreted(1.0, 3)


def test_the_result_is_converted_to_what_is_asked():
    assert capture(leaky, ("s32", "f32"), returns="s8").returns == "i"
    assert capture(leaky, ("s32", "f32"), returns="s8").interpreted(5, 0.5) == 2


def test_lint_names_the_line_and_what_was_done():
    notes = [str(n) for n in capture(leaky, ("s32", "f32")).lint]
    assert any("0.125" in n and "float32" in n for n in notes)
    assert any("np.rint" in n and "written sequence" in n for n in notes)
    line = leaky.__code__.co_firstlineno
    assert {n.line - line for n in capture(leaky, ("s32", "f32")).lint} == {1, 2}


def test_float_arithmetic_can_be_written_as_calls():
    text = capture(contracts, "fff").emit("f", arithmetic="calls")
    assert "return add(mul(a, b), c)" in text
    assert "i32(q" in capture(code_arithmetic, "ii").emit("f", arithmetic="calls")


def uses_dict(x):
    return x * LOOKUP["a"]


def uses_gamma(x):
    return math.gamma(x)


def uses_string(x):
    return x if x > 0 else "no"


def uses_star(*x):
    return x[0]


def falls_off(x):
    if x > 0:
        return x


def recurses(x):
    return recurses(x - 1) if x > 0 else x


def yields(x):
    yield x


def float_modulo(x):
    return x % 3.0


def reads_late(x):
    y = z + x  # noqa: F821
    z = y
    return z


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (uses_dict, "'LOOKUP', a dict"),
        (uses_gamma, "'math.gamma'.*supported are.*np.exp"),
        (uses_string, "'no', a str"),
        (uses_star, r"takes \*x"),
        (falls_off, "without a return"),
        (recurses, "calls itself"),
        (yields, "Expr|yield|not used"),
        (float_modulo, r"np.floor"),
        (reads_late, "'z' is read before"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_what_cannot_be_compiled_is_named_with_its_function_and_line(fn, says):
    with pytest.raises(CaptureError, match=says) as caught:
        capture(fn, "f" if fn is not uses_star else ())
    assert fn.__name__ in str(caught.value)
    assert "line" in str(caught.value)


def test_a_function_without_source_is_refused():
    scope = {}
    exec("def f(x):\n    return x", scope)
    with pytest.raises(CaptureError, match="no source of f"):
        capture(scope["f"], "f")
    with pytest.raises(CaptureError, match="plain Python function"):
        capture(print, "f")


def huge(x):
    return 1e30


def no_number(x):
    return math.nan


def grows(x):
    return x * 1e30


@pytest.mark.parametrize(("fn", "wanted"), [(huge, 2**31 - 1), (no_number, 0), (grows, 2**31 - 1)])
def test_a_float_that_becomes_an_integer_is_held_at_its_ends_and_nan_is_0(fn, wanted, tmp_path):
    cap = capture(fn, "f", returns="i")
    y = np.empty(3, np.int32)
    x = np.array([1.0, 2.0, 3.0], np.float32)
    compiled_loop(cap, tmp_path)(x, y)
    assert y.tolist() == [wanted] * 3 == [cap.interpreted(v) for v in x]


@pytest.mark.parametrize(("fn", "count"), [(silu, 1), (np.tanh, 1), (math.exp, 1), (fma, 3)])
def test_a_written_sequence_and_what_it_stands_for_are_captured_themselves(fn, count):
    cap = capture(fn, "f" * count)
    x = np.float32([0.5, -1.25, 3.0])[:count]
    assert_same_bits(cap.interpreted(*x), SEQUENCES[helper_of(fn)](*x))


def test_an_edited_file_is_noticed(tmp_path):
    path = tmp_path / "edited.py"
    path.write_text("def f(x):\n    return x * 2.0\n")
    spec = importlib.util.spec_from_file_location("edited", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before = capture(module.f, "f").digest
    path.write_text("def f(x):\n    return x * 3.0  # edited\n")
    with pytest.raises(CaptureError, match="reload"):
        capture(module.f, "f")
    spec.loader.exec_module(module)
    assert capture(module.f, "f").digest != before


def test_a_jitted_function_is_captured_through_its_python_function():
    assert capture(njit(contracts), "fff").interpreted(2, 3, 4) == 10


def test_a_names_clash_with_helpers_is_resolved():
    def clash(exp, select):
        f32 = exp + select
        return f32 * np.exp(exp)

    assert capture(clash, "ff").interpreted(0.0, 2.0) == 2.0


def test_editing_a_function_and_seeing_a_result_is_quick(tmp_path):
    compiled_loop(capture(swish, "f"), tmp_path)(np.zeros(8, np.float32), np.zeros(8, np.float32))
    start = time.perf_counter()
    run = compiled_loop(capture(quick_gelu, "f"), tmp_path)
    run(np.zeros(8, np.float32), np.zeros(8, np.float32))
    assert time.perf_counter() - start < 1.2


@pytest.mark.parametrize(
    ("fn", "kinds", "wanted"),
    [
        (lambda x: np.where(x > 0, x, 0.25), "f", [0.25, 0.25, 4.75]),
        (lambda x: np.where(x > 0, 0, x), "f", [-2.5, 0.0, 0.0]),
        (lambda x: np.where(x, x, 7), "f", [-2.5, 7.0, 4.75]),
        (lambda i: np.where(i > 0, i, -i), "i", [3, 0, 200]),
        (lambda i: np.where(i, 5, i), "i", [5, 0, 5]),
        (lambda x: np.where(x > 0, x > 1, x < -1), "f", [True, False, True]),
    ],
)
def test_where_keeps_the_kind_of_what_it_chooses_from(fn, kinds, wanted):
    cap = capture(fn, kinds)
    given = {"f": (-2.5, 0.0, 4.75), "i": (-3, 0, 200)}[kinds]
    assert [cap.interpreted(x) for x in given] == wanted


def filled(x, codes):
    a, b = np.zeros(3, np.float32), np.zeros(2, np.int32)
    a[0], b[1] = 1.5, 2
    for i in range(len(codes)):
        codes[i] = int(x[i] * a[0]) + b[1]


def test_a_function_may_fill_arrays_of_the_caller():
    made = capture(filled, ("f[]", "i[]"), writes=("codes",))
    codes = np.zeros(3, np.int32)
    made.interpreted(np.array([1, 2, 4], np.float32), codes)
    np.testing.assert_array_equal(codes, [3, 5, 8])
    with pytest.raises(CaptureError, match="'codes', which belongs to the caller"):
        capture(filled_and_counted, ("f[]", "i[]"))
    with pytest.raises(CaptureError, match="returns a value; it fills codes and returns nothing"):
        capture(filled_and_counted, ("f[]", "i[]"), writes=("codes",))


def filled_and_counted(x, codes):
    codes[0] = 1
    return len(x)
