"""Pictures, comparison, passport and accuracy of schemes from the command line."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from tilework.bench.cli import app
from tilework.bench.formats import accuracy
from tilework.bench.schemes import passport
from tilework.primitives.errors import ArgumentError, Unsupported

SCHEME = """
import numpy as np
from tilework import Scheme


def fit(x):
    m = np.float32(0)
    for v in x:
        m = max(m, abs(v))
    return (m / 7.0 if m > 0.0 else np.float32(1),)


def encode(x, scale):
    return min(max(np.rint(x / scale), -7.0), 7.0)


def decode(q, scale):
    return q * scale


mine = Scheme("mine<4>", 4, 32, {"scale": "f16"}, fit, encode, decode, signed=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib (extra plot)")
    folder = tmp_path_factory.mktemp("scheme_pages")
    (folder / "mine.py").write_text(SCHEME, encoding="utf-8")
    rng = np.random.default_rng(0)
    np.savez(folder / "w.npz", first=rng.standard_normal((8, 64)), second=rng.standard_normal((4, 64)))
    return folder


def test_a_passport_has_everything_on_one_page(folder, monkeypatch):
    monkeypatch.setattr(passport, "NEIGHBOURS", ("int4_g32",))
    found = passport.write(f"{folder}/mine.py:mine", str(folder / "mine.html"), str(folder / "w.npz"), proof=False)
    assert found["agrees"]
    text = (folder / "mine.html").read_text(encoding="utf-8")
    assert "mine&lt;4&gt;" in text
    assert "np.rint(x / scale)" in text
    assert "w.npz: first" in text
    assert "differ from plain Python" in text
    assert not re.findall(r"(?:src|href)=[\"'](?!data:|#)", text), "nothing is fetched"
    assert text.count("<svg") == text.count("</svg>") == 5
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)
    ids = re.findall(r'id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    passport.write(f"{folder}/mine.py:mine", str(folder / "mine.md"), proof=False)
    page = (folder / "mine.md").read_text(encoding="utf-8")
    assert page.startswith("# Scheme mine<4>")
    assert page.count("data:image/svg+xml;base64,") == 5
    with pytest.raises(ArgumentError, match=r"\.html or \.md"):
        passport.write("int4_g32", str(folder / "a.pdf"))
    with pytest.raises(Unsupported, match=r"q4_k only decodes"):
        passport.write("q4_k", str(folder / "a.html"))


def test_a_comparison_has_a_picture(folder):
    picture = folder / "out.svg"
    words = ["scheme", "compare", "int4_g32", f"{folder}/mine.py:mine", "--weights", f"{folder}/w.npz"]
    done = CliRunner().invoke(app, [*words, "--picture", str(picture)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "int4_g32" in done.output
    assert "<svg" in picture.read_text(encoding="utf-8")


def test_digits_are_judged_float_first():
    found = accuracy.measure(["digits"], ["int4_g32", "int4_g32+feedback"])["digits"]
    assert [r["scheme"] for r in found] == ["float", "int4_g32", "int4_g32+feedback"]
    assert found[0]["right"] == 436
    assert found[2]["sqnr_db"] > found[1]["sqnr_db"] + 3
    assert found[1]["bits"] == found[2]["bits"]
    with pytest.raises(ArgumentError, match=r"no task letters; there is digits, sentences"):
        accuracy.measure(["letters"])
