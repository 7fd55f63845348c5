"""The self-test: it draws what can be run, finds what is wrong, and shrinks it to a script."""

import json

import numpy as np
import pytest

from tilework.bench.prove import Proof, again, planted, run, table
from tilework.bench.prove import __main__ as command
from tilework.bench.prove.draw import LAYOUTS, Draw
from tilework.executors import SingleThreadExecutor

CELLS = list(run.OF)


@pytest.mark.parametrize("part", range(4))
def test_every_cell_can_be_drawn_and_has_a_meaning(part):
    for n, cell in enumerate(CELLS[part::16]):  # every sixteenth of a quarter
        draw = Draw((7, n), LAYOUTS[n % len(LAYOUTS)], 17)
        found = run.OF[cell].draw(draw, cell)
        for k, value in enumerate(found if isinstance(found, tuple) else (found,)):
            draw.pipe.output(f"y{k}", value)
        results = SingleThreadExecutor("reference").run(draw.pipe, draw.inputs)
        assert {name: y.ndim for name, y in results.items()} == {n: v.ndim for n, v in draw.pipe.outputs.items()}, cell


def test_what_is_right_is_counted():
    proof = Proof().run(12, steps="lookup")
    assert proof.count >= 12
    assert not proof.failures
    assert {cell[0] for cell in proof.covered} == {"lookup"}
    whole = table.as_json(proof)
    assert whole["cells tried"] > 0
    assert json.loads(json.dumps(whole))["configurations"] == proof.count


class Wrong:
    """An executor that gets one element wrong where an axis is longer than 7."""

    def compile(self, pipe):
        plan = SingleThreadExecutor("reference").compile(pipe)

        class Plan:
            def run(self, inputs, out):
                found = plan.run(inputs, out=out)
                if max(found["y0"].shape, default=0) > 7:
                    found["y0"].reshape(-1).view(np.uint8)[-1:] ^= 1
                return found

        return Plan()


def test_a_fault_is_found_and_shrunk_to_a_script(monkeypatch, capsys):
    monkeypatch.setattr(run, "executors", lambda: {"wrong": lambda pipe: Wrong()})
    proof = Proof().run(8, seed=2, steps="lookup")
    assert proof.failures
    failure = min(proof.failures, key=lambda f: f.limit)
    assert failure.limit == 8
    assert "1 of" in failure.text
    scope = {}
    exec(failure.script().replace("print(", "text = ("), scope)  # the script that is printed makes it again
    assert "1 of" in scope["text"]
    table.show(proof)
    assert "from tilework.bench.prove import again" in capsys.readouterr().out


def test_the_bits_of_zero_count_and_those_of_nan_do_not():
    zero, nan = np.zeros(3, np.float32), np.full(3, np.nan, np.float32)
    assert not run.same(zero, -zero)
    assert run.same(nan, -nan)
    assert not run.same(zero, zero.astype(np.float64))


def test_the_command_says_what_was_tried(capsys):
    assert command.main(["--count", "5", "--steps", "lookup"]) == 0
    assert "lookup" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main(["--steps", "no such step"])
    assert "no step has" in capsys.readouterr().err


def test_one_configuration_can_be_made_again():
    assert again("lookup", "u8", "-", "transposed", "single thread", seed=(3, 1), limit=9).endswith("nothing")


def test_planted_faults_have_a_place():
    """`python -m tilework.bench.prove.planted` takes half an hour; that its texts are where it looks is checked here."""
    assert len(planted.FAULTS) >= 30
    assert planted.misplaced() == []
