"""`tilework bench peers linear` at a size that takes no time: what it checks, and what it prints."""

import numpy as np
import pytest

from tilework.bench.peers import linear, report
from tilework.kernels.linear import CodeFormat
from tilework.primitives.errors import ArgumentError


def test_every_table_has_rows_and_prints(peer, capsys):
    peer("onnxruntime")
    options = linear.Options(
        tables=linear.TABLES, rows=(1, 64), sizes=((128, 64),), groups=(32,), weights=("hot",), rounds=1
    )
    result = linear.measure(options)
    assert {row["table"] for row in result["rows"]} == set(linear.TABLES)
    assert all(row["us"] > 0 and row["ratio"] > 0 for row in result["rows"])
    report.show_linear(result)
    shown = capsys.readouterr().out
    for word in ("g32 asym int8", "ort sym", "g48 int8", "reading at"):
        assert word in shown


def test_a_wrong_result_is_not_timed(monkeypatch):
    case = linear.cases(128, 64, 32)["sym"]
    monkeypatch.setattr(linear.reference, "linear", lambda *_: np.zeros((2, linear.COLUMNS), np.float32))
    with pytest.raises(ArgumentError, match="differs from its reference"):
        linear.ours(case, "int8", np.ones((2, 128), np.float32), 1, None)


def test_unknown_tables_are_named():
    with pytest.raises(ArgumentError, match="there is no table 'int9'"):
        linear.Options(tables=("int9",))
    assert CodeFormat(4, block=(8, 64)).blocks(40, 128) == (5, 2)
