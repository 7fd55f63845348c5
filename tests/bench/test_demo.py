"""The demo: what it claims about the digits network is compared, not printed."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from tilework.bench import cli, demo


@pytest.fixture(scope="module")
def result():
    invoked = CliRunner().invoke(cli.app, ["demo", "--json"])
    assert invoked.exit_code == 0, invoked.output
    return json.loads(invoked.stdout)


def test_every_executor_gave_the_same_bytes(result):
    assert result["same_bytes"]
    exact = [row for row in result["rows"] if row["scheme"] != "float32"]
    assert {row["executor"] for row in exact} == set(demo.executors())
    assert all(row["same_bytes"] for row in exact)


def test_few_bits_cost_little_accuracy(result):
    assert result["float_accuracy"] == pytest.approx(0.9689, abs=0.0025)  # another BLAS may move one image
    for row in result["rows"]:
        most = 0.01 if row["weight_bits"] >= 8 else 0.02 if row["weight_bits"] >= 4 else 0.1
        assert abs(row["accuracy"] - result["float_accuracy"]) <= most, row["scheme"]
        assert row["us_per_image"] > 0


def test_bits_a_weight_count_the_scales(result):
    weights = 64 * 96 + 96 * 48 + 48 * 10
    bits = {row["scheme"]: row["weight_bits"] for row in result["rows"]}
    assert bits["int8 per tensor"] == round(8 + 32 * 3 / weights, 3)
    assert bits["int8 per channel"] == round(8 + 32 * (96 + 48 + 10) / weights, 3)


def test_a_scale_a_channel_is_closer_to_float_than_one_a_tensor(result):
    difference = {row["scheme"]: row["largest_difference"] for row in result["rows"]}
    assert difference["int8 per channel"] < difference["int8 per tensor"]


def test_other_bytes_are_found_and_fail(monkeypatch):
    def off_by_one_bit(digits, more=()):
        def prepare():
            def classify(images):
                logits = digits.activations(images)[-1]
                logits[-1, -1] = np.nextafter(logits[-1, -1], np.float32(np.inf))
                return logits

            return classify

        return [
            demo.Contender("float32", "numpy", 32.0, lambda: lambda images: digits.activations(images)[-1]),
            demo.Contender("float32", "broken", 32.0, prepare),
        ]

    monkeypatch.setattr(demo, "contenders", off_by_one_bit)
    invoked = CliRunner().invoke(cli.app, ["demo"])
    assert invoked.exit_code == 1
    assert "NO" in invoked.output


def test_the_table_names_every_row(result, capsys):
    demo.show_table(result)
    table = capsys.readouterr().out
    assert [row["scheme"] for row in result["rows"] if row["scheme"] not in table] == []
    assert "same bytes" in table


def test_an_image_is_drawn_with_its_scores():
    invoked = CliRunner().invoke(cli.app, ["demo", "--image", "0"])
    assert invoked.exit_code == 0, invoked.output
    assert "█" in invoked.output
    assert "int8 per channel" in invoked.output


def test_an_image_that_does_not_exist_says_which_do(capsys):
    with pytest.raises(SystemExit):
        cli.main(["demo", "--image", "450"])
    assert capsys.readouterr().err == "error: there is no test image 450; there are 0 to 449\n"


def test_the_shipped_split_is_a_partition():
    digits = demo.Digits.load()
    assert sorted([*digits.train, *digits.test]) == list(range(1797))
    assert digits.images.shape == (1797, 64)
    assert digits.images.max() == 16


def test_the_training_script_learns_from_the_shipped_images():
    import runpy
    from pathlib import Path

    script = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "train_digits.py"))
    digits = demo.Digits.load()
    train, test = script["split"](digits.labels)
    np.testing.assert_array_equal(train, digits.train)
    np.testing.assert_array_equal(test, digits.test)
    x = digits.images.astype(np.float32) / np.float32(16)
    layers = script["train"](x[train], digits.labels[train], epochs=8)
    assert (script["forward"](x[test], layers)[-1].argmax(1) == digits.labels[test]).mean() > 0.85
