"""`tilework bench peers llm` on a layer so small that nothing of it is a figure."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tilework.bench import cli
from tilework.bench.peers import ggml, llm
from tilework.primitives.errors import ArgumentError


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(llm.CLASSES, "tiny", (256, 256, 4, 2, 64))
    monkeypatch.setattr(llm.gemm, "l3_bytes", lambda: 1 << 14)


def test_a_layer_is_timed_against_bandwidth_and_peak(tiny, monkeypatch):
    monkeypatch.setattr(ggml, "products", lambda *_: None)
    arguments = [
        "bench",
        "peers",
        "llm",
        "--class",
        "tiny",
        "--format",
        "q4_k",
        "--tokens",
        "1,16",
        "--blocks",
        "1",
        "--json",
    ]
    rows = json.loads(CliRunner().invoke(cli.app, arguments).stdout)["rows"]
    assert [(row["tokens"], row["what"]) for row in rows] == [(n, w) for n in (1, 16) for w in ("layer", "products")]
    for row in rows:
        assert row["share"] > 0 < row["ms"]
        assert row["format"] == "Q4_K"
        assert (row["file_share"] is not None) == (row["tokens"] == 1)
    assert rows[0]["file_share"] / rows[0]["share"] == pytest.approx(
        4.5 / 4.625, rel=1e-6
    )  # scales and offsets as bytes


def test_unknown_names_are_said():
    for wrong in ({"classes": ("2b",)}, {"formats": ("Q9",)}, {"tokens": (0,)}):
        with pytest.raises(ArgumentError):
            llm.Options(**wrong)


@pytest.mark.parametrize("qtype", ["Q4_0", "Q8_0"])
def test_ggml_multiplies_the_same_blocks(qtype):
    pytest.importorskip("ggml", reason="ggml-python is compiled where it is installed, so no extra brings it")
    raw = llm.blocks("w", qtype, (64, 512), 0)
    x = np.random.default_rng(1).standard_normal((5, 512), np.float32)
    call = ggml.products([raw], {"x512": x}, 1)
    right = {"w": x @ raw.quantized().dequantize().T}
    llm._compare(call(), right, qtype)
    with pytest.raises(ArgumentError, match="differ by"):
        llm._compare(call(), {"w": right["w"] + 1}, qtype)
