"""What `tilework doctor` says of CUDA."""

from tilework.bench.machine import doctor
from tilework.kernels.cuda import compile as cuda_compile


def test_doctor_says_what_is_missing_and_which_extra_brings_it(monkeypatch, capsys):
    monkeypatch.setattr(
        cuda_compile, "missing", lambda: "ptxas is not installed; pip install 'tilework[cuda-check]' brings it"
    )
    facts = doctor.examine()
    assert "cuda-check" in facts["gpu"]["kernels_missing"]
    doctor.show(facts)
    assert "ptxas is not installed" in capsys.readouterr().out
    monkeypatch.setattr(cuda_compile, "missing", lambda: None)
    doctor.show(doctor.examine())
    assert "can be compiled and assembled" in capsys.readouterr().out
