"""The command line: every command has help and JSON, and errors are one line."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tilework import __version__
from tilework.bench import cli
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
    from tilework.bench import doctor

    monkeypatch.setattr(doctor, "version_of", lambda name: None)
    output = " ".join(invoke("doctor").output.split())
    assert "pip install 'tilework[dask]'" in output


def test_doctor_says_where_a_cache_cannot_be_written(monkeypatch, tmp_path):
    from tilework.bench import doctor

    (tmp_path / "file").touch()
    assert doctor.writable(tmp_path / "a" / "b")
    assert not doctor.writable(tmp_path / "file" / "b")
