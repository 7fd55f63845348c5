"""The benches of real products and of users' functions: what they time is checked first, and every row is there."""

import math

import pytest

from tilework.bench.cases import Shape
from tilework.bench.peers import epilogue, real


def test_products_of_real_numbers_are_measured():
    pytest.importorskip("ml_dtypes", reason="bfloat16 arrays come from ml_dtypes")
    result = real.measure(real.Options(shapes=(Shape(5, 24, 33),), rounds=2))
    assert [row["dtype"] for row in result["rows"]] == ["f32", "bf16"]
    assert all(row["us"] > 0 and math.isfinite(row["gflops"]) for row in result["rows"])
    assert result["rows"][1]["over_f32"] > 0
    real.show(result)


def test_a_function_inside_a_product_is_measured_against_the_plain_one():
    result = epilogue.measure(epilogue.Options(depths=(32,), rows=5, columns=40, rounds=2))
    (row,) = result["rows"]
    assert row["cost"] > 0
    assert row["ratios"].keys() == row["peers_us"].keys()
    epilogue.show(result)
