"""Which implementation runs: names and families, priorities, refusals, and what a miss says."""

import importlib
import pkgutil
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tilework.kernels import factory
from tilework.primitives.errors import KernelNotFound, PipelineError

BACKEND = "test_factory"


@pytest.fixture
def register():
    """factory.register on a backend of its own, which is gone after the test."""

    def add(name, **more):
        return factory.register(name, backend=BACKEND, **more)

    yield add
    for name, backend in list(factory._variants):
        if backend == BACKEND:
            factory.unregister(name, backend)


def test_a_kernel_is_found_by_its_name_and_by_its_family(register):
    register("gemm")(lambda: "any gemm")
    register("gemm_u8s8s32")(lambda: "this gemm")
    assert factory.get("gemm_u8s8s32", BACKEND) == "this gemm"
    assert factory.get("gemm_u8s8s32_relu", BACKEND) == "this gemm"
    assert factory.get("gemm_f32", BACKEND) == "any gemm"
    assert factory.get("gemm", BACKEND) == "any gemm"
    with pytest.raises(KernelNotFound):
        factory.get("gemmy", BACKEND)


def test_the_highest_priority_whose_requirements_hold_is_taken(register):
    register("k", variant="plain")(lambda: "plain")
    register("k", variant="fast", priority=10, requires=lambda isa: isa == "avx512")(lambda: "fast")
    register("k", variant="middle", priority=5, requires=[lambda ranks: max(ranks) < 3])(lambda: "middle")
    assert factory.get("k", BACKEND, isa="avx512", ranks=(2,)) == "fast"
    assert factory.get("k", BACKEND, isa="sse2", ranks=(2,)) == "middle"
    assert factory.get("k", BACKEND, isa="sse2", ranks=(3,)) == "plain"
    assert [v.variant for v in factory.variants("k", BACKEND)] == ["fast", "middle", "plain"]
    assert factory.get("k", BACKEND, "plain", isa="avx512", ranks=(2,)) == "plain"


def test_the_exact_name_comes_before_a_family_of_higher_priority(register):
    register("k", priority=99)(lambda: "family")
    register("k_u8")(lambda: "exact")
    assert factory.get("k_u8", BACKEND) == "exact"


def test_registering_a_variant_again_replaces_it(register):
    register("k")(lambda: 1)
    register("k")(lambda: 2)
    assert factory.get("k", BACKEND) == 2
    assert len(factory.variants("k", BACKEND)) == 1
    factory.unregister("k", BACKEND, "generic")
    assert factory.variants("k", BACKEND) == []
    assert BACKEND not in factory.backends("k")


def test_every_refusal_gives_its_reason(register):
    def avx512(isa):
        return isa == "avx512"

    register("k", variant="fast", priority=9, requires=avx512)(lambda: None)
    register("k", variant="small", requires=lambda ranks: f"takes 2 dimensions, not {ranks[0]}")(lambda: None)
    with pytest.raises(KernelNotFound) as found:
        factory.get("k_u8", BACKEND, isa="sse2", ranks=(4,))
    assert str(found.value) == (
        f"no kernel 'k_u8' on backend {BACKEND!r}: k/fast: avx512 does not hold; k/small: takes 2 dimensions, not 4"
    )
    with pytest.raises(KernelNotFound, match="k/small: not the variant 'fast' that was asked for"):
        factory.get("k", BACKEND, "fast", isa="sse2", ranks=(4,))


def test_a_miss_says_what_exists_where(register):
    register("other")(lambda: None)
    with pytest.raises(KernelNotFound) as found:
        factory.get("gemm_u8s8s32", BACKEND)
    assert re.fullmatch(
        rf"no kernel 'gemm_u8s8s32' on backend '{BACKEND}': {BACKEND} has other; "
        r"'gemm_u8s8s32' exists on cpu, (cuda, )?reference",
        str(found.value),
    )
    with pytest.raises(KernelNotFound, match=r"backend 'nowhere': nowhere has none; 'nothing' exists on no backend"):
        factory.get("nothing", "nowhere")
    with pytest.raises(LookupError):  # the built-in error that a caller would expect
        factory.get("nothing", "nowhere")


@dataclass(frozen=True)
class Facts:
    name: str = "k_u8"


def test_a_builder_gets_the_facts_that_it_names(register):
    register("k")(lambda kernel, dtypes, name: (kernel, dtypes, name))
    kernel = Facts()
    assert factory.get("k_u8", BACKEND, kernel=kernel, dtypes=("u8",), ranks=(2,)) == (kernel, ("u8",), "k_u8")
    register("k")(lambda **facts: sorted(facts))
    assert factory.get("k_u8", BACKEND, kernel=kernel, dtypes=()) == ["dtypes", "kernel", "name"]
    register("k")(lambda colour="blue": colour)
    assert factory.get("k_u8", BACKEND) == "blue"
    register("k")(lambda colour: colour)
    with pytest.raises(PipelineError, match="asks for 'colour'; a builder may ask for kernel, name"):
        factory.get("k_u8", BACKEND, kernel=kernel)


def test_the_backends_of_a_kernel_are_listed(register):
    register("gemm_u8s8s32")(lambda: None)
    factory.variants("gemm", "cpu"), factory.variants("gemm", "reference")
    assert {BACKEND, "cpu", "reference"} <= set(factory.backends("gemm_u8s8s32"))
    assert BACKEND in factory.backends()


@pytest.mark.parametrize("name", ["../cpu", "cpu.gemm", "os", "errors", ""])
def test_a_backend_is_only_a_name(name):
    assert factory.variants("gemm", name) == []


def test_every_step_of_the_package_exists_on_both_backends():
    names, on_cpu = factory.names("reference"), factory.names("cpu")
    missing = {n for n in names if not any(part in on_cpu for part in factory._family(n))}
    assert names
    assert not {n for n in missing if not n.startswith("expand.")}, missing


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_homes_say_what_each_module_registers(backend):
    package = importlib.import_module(f"tilework.kernels.{backend}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
    found = {}
    for (name, on), known in factory._variants.items():
        for module in {v.build.__module__ for v in known if on == backend}:
            if module.startswith(f"{package.__name__}."):
                found.setdefault(module.removeprefix(f"{package.__name__}."), set()).add(name)
    assert found == {module: set(names) for module, names in package.HOMES.items()}


def test_a_step_loads_no_other_step():
    code = (
        "import sys; from tilework.kernels import factory; factory.find('requantize', 'cpu', kernel=None, isa='generic');"
        "print([m for m in sys.modules if m.startswith('tilework.kernels.cpu.') and m.endswith(('conv', 'reduce.steps'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


AT_ONCE = """
import sys
import threading

from tilework.kernels import factory

sys.setswitchinterval(1e-5)
ready, missed = threading.Barrier(6), []


def ask(name):
    ready.wait()
    try:
        factory.find(name, "reference")
    except Exception as error:
        missed.append(f"{name}: {error}")


threads = [threading.Thread(target=ask, args=(name,)) for name in ["softmax_f32", "gemm_f32", "conv_f32"] * 2]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not missed, missed
"""


def test_threads_that_ask_first_at_once_find_everything():
    done = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_replaces_a_shipped_implementation_stays_whichever_is_asked_for_first():
    code = (
        "from tilework.kernels import factory\n"
        "@factory.register('requantize', backend='cpu')\n"
        "def mine(): ...\n"
        "print(factory.variants('requantize', 'cpu')[0].build.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "mine"
