"""Sizes: one canonical form, evaluation, and learning names from shapes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework.primitives.errors import ShapeMismatch, SizeError
from tilework.primitives.sizes import (
    Size,
    ceildiv,
    evaluate,
    evaluate_shape,
    floordiv,
    linear,
    maximum,
    names,
    show,
    size,
    solve,
    substitute,
)

SAME = [
    ("2*M + 1", "1 + M + M"),
    ("(M + 1)*(M - 1)", "M**2 - 1"),
    ("M - M + 4", "4"),
    ("(4*M + 8)//4", "M + 2"),
    ("(M + 4)//4", "1 + M//4"),
    ("(H + 2 - 3)//2 + 1", "(H + 1)//2"),
    ("ceildiv(M + 32, 32)", "ceildiv(M, 32) + 1"),
    ("(32*M + 31)//32", "M"),
    ("ceildiv(32*M + 31, 32)", "M + 1"),
    ("max(M, 3, N, M)", "max(N, max(5 - 2, M))"),
    ("M*N - N*M", "0"),
    ("floordiv(M, 2)", "M//2"),
    ("-(-M)", "M"),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_two_ways_of_writing_a_size_are_equal(left, right):
    assert size(left) == size(right)
    assert hash(size(left)) == hash(size(right))


@pytest.mark.parametrize(("left", "right"), [("M", "N"), ("M + 1", "M"), ("M//2", "ceildiv(M, 2)"), ("2*M", "M**2")])
def test_different_sizes_are_not_equal(left, right):
    assert size(left) != size(right)


def test_what_has_no_name_left_is_a_plain_int():
    for text, right in [("7//2", 3), ("ceildiv(7, 2)", 4), ("max(3, 9)", 9), ("-7//2", -4), ("2**8", 256)]:
        found = size(text)
        assert type(found) is int
        assert found == right
    assert size(np.int64(5)) == 5
    assert type(size(np.int64(5))) is int


EXPRESSIONS = st.recursive(
    st.sampled_from(["M", "N", "K"]) | st.integers(0, 40).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, st.integers(1, 9)).map(lambda t: f"({t[0]})//{t[1]}"),
        st.tuples(inner, st.integers(1, 9)).map(lambda t: f"ceildiv({t[0]}, {t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"max({t[0]}, {t[1]})"),
    ),
    max_leaves=8,
)
PYTHON = {"ceildiv": lambda a, b: -(-a // b), "max": max}


@given(EXPRESSIONS, st.tuples(*[st.integers(0, 50)] * 3))
def test_a_size_evaluates_as_python_does_and_survives_its_own_text(text, values):
    env = dict(zip("MNK", values, strict=True))
    right = eval(text, {**PYTHON, **env})
    found = size(text)
    assert evaluate(found, env) == right
    again = size(str(found))
    assert again == found
    assert str(again) == str(found)
    assert evaluate(substitute(found, {"M": values[0]}), env) == right
    assert substitute(found, env) == right
    assert names(found) <= {"M", "N", "K"}


def test_arithmetic_on_sizes_is_the_same_as_in_text():
    m = size("M")
    assert m + 1 == size("M + 1") == 1 + m
    assert 3 - m == size("3 - M")
    assert m * m * 2 == size("2*M**2")
    assert m // 4 == size("M//4") == floordiv("M", 4)
    assert ceildiv(m, 4) == size("ceildiv(M, 4)")
    assert maximum(m, 4, "N") == size("max(N, M, 4)")
    assert maximum(m, m) == m
    assert show((m + 1, 3)) == "(M + 1, 3)"
    assert show((m,)) == "(M,)"
    assert show(()) == "()"


@pytest.mark.parametrize(
    "text",
    [
        *("", "M +", "M / 2", "2.5", "M.x", "__import__('os').system('x')", "f(M)", "max()", "M if N else K", "[M]"),
        *("True", "M; N", "lambda: 1", "M**M", "M**99", "a\0b", "(" * 500 + "M", "+".join(["M"] * 600)),
    ],
)
def test_text_that_is_no_size_says_what_can_be_written(text):
    with pytest.raises(SizeError, match=r"cannot be read: write names|at most 1000"):
        size(text)


@pytest.mark.parametrize("text", ["M//0", "ceildiv(M, 0 - 3)", "4//(1 - 1)"])
def test_a_divisor_is_positive(text):
    with pytest.raises(SizeError, match="divisor must be positive"):
        size(text)
    with pytest.raises(SizeError, match="the divisor is 0"):
        evaluate(size("M//N"), {"M": 3, "N": 0})


@pytest.mark.parametrize("given", [1.5, None, True, (1,)])
def test_only_ints_and_text_are_sizes(given):
    with pytest.raises(SizeError, match="a size is an int, a name or an expression"):
        size(given)


def test_a_product_does_not_explode():
    with pytest.raises(SizeError, match="terms"):
        size("(((a+b+c+d+e+f)**8)**8)**8")


def test_an_unknown_name_is_named():
    with pytest.raises(SizeError, match=r"size 'N' is not known here: known are M"):
        evaluate(size("M + N"), {"M": 1})
    with pytest.raises(SizeError, match=r"known only at run time"):
        range(size("M"))


def test_a_shape_is_checked_when_it_is_evaluated():
    assert evaluate_shape((size("2*M"), 3), {"M": 4}) == (8, 3)
    with pytest.raises(SizeError, match=r"input 'x': size M - 5 is -1 with M = 4"):
        evaluate_shape((size("M - 5"),), {"M": 4}, "input 'x'")
    with pytest.raises(SizeError, match=r"2\*\*63"):
        evaluate_shape((size("M**4"),), {"M": 2**20})


def test_names_are_learnt_from_shapes():
    env = {}
    solve((size("2*M + 1"), size("M"), 5), (9, 4, 5), env, "x")
    assert env == {"M": 4}
    env = {"N": 3}
    solve((size("N*M + N"),), (15,), env, "x")
    assert env == {"N": 3, "M": 4}
    env = {}
    solve((size("M + N"), size("N")), (7, 3), env, "x")  # the first waits for the second
    solve((size("M + N"), size("N")), (7, 3), env, "x")
    assert env == {"M": 4, "N": 3}


@pytest.mark.parametrize(
    ("shape", "actual", "says"),
    [
        (("M", "M"), (3, 4), r"axis 1 is 4, but M is asked for, which is 3 with M = 3"),
        (("2*M",), (7,), r"axis 0 is 7, but 2\*M is asked for, and no size 'M' gives that"),
        (("M + 5",), (3,), r"no size 'M' gives that"),
        (("M", 8), (3, 9), r"axis 1 is 9, but 8 is asked for$"),
        (("M",), (3, 9), r"rank 2, shape \(3, 9\); 1 sizes \(\(M,\)\)"),
        (("M", "ceildiv(M, 4)"), (9, 2), r"axis 1 is 2, but ceildiv\(M, 4\) is asked for, which is 3 with M = 9"),
    ],
)
def test_a_shape_that_does_not_fit_says_which_axis(shape, actual, says):
    with pytest.raises(ShapeMismatch, match=says):
        solve(tuple(size(x) for x in shape), actual, {}, "input 'x'")


def test_a_line_is_told_from_what_is_none():
    assert linear(size("3*M + N"), "M", {"N": 4}) == (3, 4)
    assert linear(size("N*M"), "M", {"N": size("P")}) == (size("P"), 0)
    assert linear(size("M**2"), "M", {}) is None
    assert linear(size("M//2"), "M", {}) is None


def test_substitution_takes_sizes_for_names_all_at_once():
    assert substitute(size("M + 2*N"), {"M": "N", "N": "M"}) == size("N + 2*M")
    assert substitute(size("ceildiv(M, 4)"), {"M": "4*P"}) == size("P")
    assert isinstance(substitute(size("M"), {}), Size)


def test_a_number_less_a_size_and_small_powers():
    assert evaluate(7 - size("N"), {"N": 3}) == 4
    assert evaluate(7 + size("N") * 2, {"N": 3}) == 13
    for power in range(9):
        assert evaluate(size(f"(N+1)**{power}"), {"N": 2}) == 3**power
    for wrong in ("N**9", "N**-1", "N**M"):
        with pytest.raises(SizeError):
            size(wrong)


def test_a_size_is_divided_by_another_where_every_term_has_it():
    n, m = size("N"), size("M")
    assert (n * m * 6 + n * 4) // (n * 2) == m * 3 + 2
    assert ceildiv(n * m, n) == m
    assert evaluate((n * m + 1) // n, {"N": 3, "M": 5}) == 5
    assert evaluate((n * m * 3) // (n * 2), {"N": 3, "M": 5}) == 7
    assert evaluate((n * m) // (n + m), {"N": 3, "M": 5}) == 1
    assert evaluate(ceildiv(n * m, n + m), {"N": 3, "M": 5}) == 2


def test_only_a_maximum_itself_is_opened():
    largest = size("max(A, B)")
    known = {"A": 3, "B": 4, "C": 9}
    assert evaluate(maximum(largest, "C"), known) == 9
    assert str(maximum(largest, "C")) == str(maximum("A", "B", "C"))
    for made, right in ((largest * 2, 8), (largest + 1, 5), (largest * largest, 16), (largest * "C", 36)):
        assert evaluate(maximum(made, 1), known) == right
    assert evaluate(maximum(largest + "C", 1), known) == 13
