"""What the command line is pointed at: a script that fails says where in one line."""

import pytest

from tilework.bench import targets
from tilework.primitives.errors import ArgumentError


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import tilework\n\nx = 1 / 0\n", r"bad.py, line 3: ZeroDivisionError: division by zero"),
        ("x = (1\n", r"bad.py, line 1: SyntaxError: '\(' was never closed"),
        ("def x():\n    raise KeyError('lost')\n", r"bad.py, line 2: KeyError: 'lost'"),
        ("import sys\nsys.exit(3)\n", r"bad.py, line 2: SystemExit: 3"),
    ],
)
def test_a_script_that_fails_says_where(tmp_path, text, says):
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(ArgumentError, match=says):
        targets.load(f"{path}:x")


def test_a_size_that_no_value_has_is_refused(tmp_path):
    path = tmp_path / "good.py"
    path.write_text(
        "import tilework as tw\npipe = tw.Pipeline('p')\npipe.output('y', tw.ops.relu(pipe.input('x', 'f32', ('M', 4))))\n"
    )
    pipe = targets.load(f"{path}:pipe")
    with pytest.raises(ArgumentError, match="--size Q: there is no such size; there is M"):
        targets.learn_sizes(pipe, {}, {"M": "2", "Q": "3"})
    assert targets.learn_sizes(pipe, {}, {"M": "2"}) == {"M": 2}
