"""The check of a GPU, with the interpreter in the GPU's place: everything that it would run does run."""

import pytest

from tilework.bench import gpu_check
from tilework.executors.cuda.host import Interpreter
from tilework.kernels.cuda import ptx
from tilework.primitives.errors import Unsupported

TRIED = [name for name in ptx.INSTRUCTIONS if name.startswith(gpu_check.MODELLED)]


@pytest.mark.parametrize("name", TRIED)
def test_every_instruction_is_tried(monkeypatch, name):
    monkeypatch.setattr(gpu_check, "WARPS", 4)
    assert gpu_check.check_instruction(Interpreter(), ptx.INSTRUCTIONS[name]) is None


def test_an_instruction_that_differs_is_found(monkeypatch):
    real = gpu_check.interpret
    monkeypatch.setattr(gpu_check, "WARPS", 1)

    def wrong(kernel, grid, block, args):
        real(kernel, grid, block, args)
        args[1][5] += 1

    monkeypatch.setattr(gpu_check, "interpret", wrong)
    assert "result 0 of thread 5" in gpu_check.check_instruction(Interpreter(), ptx.INSTRUCTIONS["dp4a_u8s8"])


def test_every_step_case_gives_the_references_bytes():
    cases = gpu_check.step_cases()
    small = {name: case for name, case in cases.items() if "1024" not in name and "1000" not in name}
    for name, (build, arrays) in small.items():
        assert gpu_check.check_step("interpreter", build, arrays) is None, name


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    def absent(number):
        raise Unsupported("no CUDA driver answers")

    monkeypatch.setattr(gpu_check, "Driver", absent)
    assert gpu_check.main([]) == 2
    assert "no GPU was checked: no CUDA driver answers" in capsys.readouterr().out


def test_the_whole_check_on_a_gpu(gpu, capsys):
    assert gpu_check.main(["--quick"]) == 0, capsys.readouterr().out
