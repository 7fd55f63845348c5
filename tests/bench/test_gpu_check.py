"""The check of a GPU, with the interpreter in the GPU's place: everything that it would run does run."""

import json
import types

import numpy as np
import pytest

import tilework as tw
from tilework.bench import gpu_check
from tilework.bench.gpu import clock, peers
from tilework.bench.gpu.cases import Bench, Sizes
from tilework.bench.gpu.peers import Peer
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


@pytest.fixture
def tiny(monkeypatch):
    """The check of a GPU with few instructions, steps and small sizes."""
    steps = gpu_check.step_cases()
    monkeypatch.setattr(gpu_check, "WARPS", 1)
    monkeypatch.setattr(gpu_check, "MODELLED", ("dp4a_u8s8", "rint"))
    monkeypatch.setattr(gpu_check, "step_cases", lambda: {"argmax": steps["argmax"]})
    monkeypatch.setattr(clock, "ROUNDS", 1)
    monkeypatch.setattr(peers, "torch_on_gpu", lambda: (None, "torch finds no GPU"))
    sizes = Sizes(((64, 64, 16),), (3, 8), (64, 32), (1,), 3, 256, 1, 1)
    monkeypatch.setattr(gpu_check, "QUICK", sizes)


def test_the_whole_check_with_a_driver_that_stands_for_a_gpu(fake_cuda, tiny, capsys):
    assert gpu_check.main(["--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["wrong"] == {}
    rows = {row["case"]: row for row in found["speed"]["rows"]}
    assert list(rows) == ["64 x 64 x 16", "int4 64 x 32, M = 1", "quantize", "dequantize", "3 kernels"]
    assert rows["quantize"]["bytes_moved"] == 3 * 8 * 5
    assert all(row["hot_s"] > 0 and row["cold_s"] > 0 for row in rows.values())
    assert rows["3 kernels"]["peers"].keys() == {"3 empty kernels"}
    assert found["speed"]["missing"].keys() == {"cuBLAS", "Triton", "torch"}
    assert (fake_cuda.memory, fake_cuda.executables) == ({}, {}), "something was not given back"


def test_the_table_says_what_is_met_missing_and_left_out(fake_cuda, tiny, monkeypatch, capsys):
    assert sum(gpu_check.BUDGETS.values()) + sum(gpu_check.SECONDS.values()) < 8 * 60
    for part in ("gemm", "weights", "replay"):
        monkeypatch.setitem(gpu_check.BUDGETS, part, 0.0)
    monkeypatch.setitem(gpu_check.SECONDS, "instructions", 0.0)
    assert gpu_check.main(["--quick"]) == 0
    text = capsys.readouterr().out
    for part in (
        "no time was left for gemm: 64 x 64 x 16",
        "no time was left for ptx.rint",
        "torch is left out: ",
        "85 %",
    ):
        assert part.replace("85 %", "85%") in text
    assert sum(gpu_check.BUDGETS.values()) + sum(gpu_check.SECONDS.values()) < 8 * 60


def test_a_peer_that_differs_is_left_out(fake_cuda):
    with tw.CudaExecutor("cuda:0") as executor:
        bench = Bench(executor.runner, Sizes(copied=256), lambda text: None, {})
        tensor = types.SimpleNamespace(cpu=lambda: types.SimpleNamespace(numpy=lambda: np.zeros(3, np.int32)))
        others = [Peer(name, lambda: tensor, 1) for name in ("right", "wrong")]
        assert bench._peers(others[:1], np.zeros(3, np.int32)).keys() == {"right"}
        assert bench._peers(others[1:], np.ones(3, np.int32)) == {}
        assert bench.missing == {"wrong": "its result differs"}


def test_the_whole_check_on_a_gpu(gpu, capsys):
    assert gpu_check.main(["--quick"]) == 0, capsys.readouterr().out
