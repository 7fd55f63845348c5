"""The command line: every command has help and JSON, and errors are one line."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from tilework import __version__
from tilework.bench import cli, targets
from tilework.executors import registry
from tilework.primitives.errors import ShapeMismatch

COMMANDS = sorted(command.name or command.callback.__name__ for command in cli.app.registered_commands)


def invoke(*args):
    return CliRunner().invoke(cli.app, args)


def test_help_lists_every_command():
    result = invoke("--help")
    assert result.exit_code == 0
    assert [name for name in COMMANDS if name not in result.output] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(command):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert "--json" in result.output


def test_the_module_is_the_console_script():
    done = subprocess.run([sys.executable, "-m", "tilework", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"tilework {__version__}\n")


def test_an_error_of_the_library_is_one_line(monkeypatch, capsys):
    def fail(*args, **kwargs):
        raise ShapeMismatch("a is (2, 3) but b is (4, 5): a's columns must equal b's rows")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as exit:
        cli.main([])
    assert exit.value.code == 2
    assert capsys.readouterr().err == "error: a is (2, 3) but b is (4, 5): a's columns must equal b's rows\n"


def test_an_unknown_command_is_named():
    result = invoke("dmeo")
    assert result.exit_code == 2
    assert "dmeo" in result.output


def test_doctor_says_what_the_machine_has():
    facts = json.loads(invoke("doctor", "--json").stdout)
    assert facts["versions"]["tilework"] == __version__
    assert all(facts["versions"].values())
    assert facts["cpu"]["usable_cores"] >= 1
    assert facts["threads"]["available"]
    assert {"onnx", "gguf", "cuda12", "cuda13", "plot", "dask", "peers"} <= {e["extra"] for e in facts["extras"]}
    assert all({"path", "writable"} <= set(cache) for cache in facts["caches"])


def test_doctor_says_how_to_get_what_is_missing(monkeypatch):
    from tilework.bench.machine import doctor

    monkeypatch.setattr(doctor, "version_of", lambda name: None)
    output = " ".join(invoke("doctor").output.split())
    assert "pip install 'tilework[dask]'" in output


def test_doctor_says_where_a_cache_cannot_be_written(monkeypatch, tmp_path):
    from tilework.bench.machine import doctor

    (tmp_path / "file").touch()
    assert doctor.writable(tmp_path / "a" / "b")
    assert not doctor.writable(tmp_path / "file" / "b")


PIPELINES = """
import numpy as np
import tilework as tw

def make():
    pipe = tw.Pipeline("layer")
    x = pipe.input("x", "u8", ("M", 16))
    pipe.output("y", tw.ops.gemm(x, pipe.constant("w", np.eye(16, 4, dtype=np.int8))))
    return pipe

made = make()
scaled = tw.Pipeline("scaled")
scaled.output("y", tw.ops.dequantize(scaled.input("x", "u8", (4,)), scale=scaled.argument("s", "f32")))
print("what a script prints is no part of the output")
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "pipelines.py").write_text(PIPELINES)
    return str(tmp_path / "pipelines.py")


@pytest.fixture
def saved(script, tmp_path):
    targets.load(f"{script}:made").save(tmp_path / "layer.tilework")
    return str(tmp_path / "layer.tilework")


def test_explain_shows_steps_and_edges(script):
    result = invoke("explain", f"{script}:made")
    assert result.exit_code == 0, result.output
    assert "gemm_u8s8s32" in result.output
    assert "pipeline.x -> gemm_u8s8s32.a" in result.output
    for executor in registry.OWN:
        at_size = invoke("explain", f"{script}:made", "--size", "M=5", "--executor", executor)
        assert "M = 5" in at_size.output
    assert invoke("explain", f"{script}:made", "--mermaid").stdout.startswith("flowchart")


def test_explain_draws_the_cuda_graph_without_a_gpu(script):
    asked = ("explain", f"{script}:made", "--device", "interpreter")
    assert "grid 1 x 1 x 1" in invoke(*asked, "--size", "M=5").output
    assert "gemm_skinny grid 1 x 1 x 1" in invoke(*asked, "--size", "M=5", "--mermaid").output
    assert invoke(*asked, "--size", "M=5", "--svg").output.startswith("<svg")
    missing = invoke(*asked, "--mermaid")
    assert "give --size M=..." in str(missing.exception)


def test_explain_says_the_same_of_a_saved_pipeline(script, saved):
    facts = json.loads(invoke("explain", saved, "--json").stdout)
    assert facts == json.loads(invoke("explain", f"{script}:make", "--json").stdout)
    assert facts["inputs"] == [{"name": "x", "dtype": "u8", "shape": ["M", 16], "axes": None}]
    assert [step["kernel"] for step in facts["steps"]] == ["gemm_u8s8s32"]


def test_run_gives_the_same_bytes_on_each_executor(script, tmp_path):
    x = np.arange(48, dtype=np.uint8).reshape(3, 16)
    np.save(tmp_path / "x.npy", x)
    command = ["run", f"{script}:made", "--input", f"x={tmp_path / 'x.npy'}", "--json"]
    outputs = [json.loads(invoke(*command, "--executor", e).stdout)["outputs"] for e in registry.OWN]
    assert [found for found in outputs if found != outputs[0]] == []
    assert outputs[0]["y"]["shape"] == [3, 4]

    assert invoke(*command, "--save", str(tmp_path / "out")).exit_code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy"), x[:, :4].astype(np.int32), strict=True)


def test_run_draws_what_is_not_given(saved):
    facts = json.loads(invoke("run", saved, "--size", "M=5", "--profile", "--json").stdout)
    assert facts["inputs"]["x"]["random"]
    assert facts["outputs"]["y"]["shape"] == [5, 4]
    assert facts["profile"]["steps"]
    text = invoke("run", saved, "--size", "M=5", "--profile").output
    assert "random" in text
    assert "outside kernels" in text


def test_run_takes_a_number_for_an_argument(script):
    facts = json.loads(invoke("run", f"{script}:scaled", "--input", "s=0.5", "--json").stdout)
    assert facts["outputs"]["y"]["max"] == facts["inputs"]["x"]["max"] / 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["explain", "nowhere.tilework"],
            "there is no file 'nowhere.tilework'; name a saved pipeline, or file.py:name",
        ),
        (["explain", "SCRIPT"], "which pipeline of SCRIPT? write SCRIPT:name"),
        (["explain", "SCRIPT:absent"], "'absent' in SCRIPT does not exist; a Pipeline or a function that makes one"),
        (["explain", "SCRIPT:np"], "'np' in SCRIPT is module; a Pipeline or a function that makes one is needed"),
        (["run", "SCRIPT:made"], "give --size M=..., or the inputs that say it"),
        (["run", "SCRIPT:made", "--size", "M"], "--size 'M' is not name=value"),
        (["run", "SCRIPT:made", "--size", "M=-1"], "--size M=-1 is not a whole number"),
        (["run", "SCRIPT:made", "--executor", "gpu"], "there is no executor 'gpu'; there is reference, single, tiled"),
        (["run", "SCRIPT:made", "--input", "x=SCRIPT"], "is no .npy file of plain numbers"),
        (["run", "SCRIPT:made", "--input", "x=nowhere.npy"], "nowhere.npy"),
        (["run", "SCRIPT:made", "--input", "z=1"], "there is no input 'z'; there is x"),
        (["run", "SCRIPT:scaled"], "argument 's' (f32) needs a value: --input s=NUMBER or =FILE.npy"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_would_work(script, args, message, capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main([arg.replace("SCRIPT", script) for arg in args])
    assert exit.value.code == 2
    error = capsys.readouterr().err.removeprefix("what a script prints is no part of the output\n")
    assert message.replace("SCRIPT", script) in error
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_a_damaged_file_is_one_line(tmp_path):
    (tmp_path / "damaged").write_bytes(b"PK not a pipeline")
    result = invoke("explain", str(tmp_path / "damaged"))
    assert "not a saved pipeline" in str(result.exception)
