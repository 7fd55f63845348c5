"""A plan written as machine code gives the same bytes from a C program as from Python."""

import re
import shutil
import subprocess
import threading

import numpy as np
import pytest

import tilework as tw
from tilework.bench import demo
from tilework.kernels.cpu import isa
from tilework.primitives.errors import ArgumentError, Unsupported

PROGRAM = """
#include <stdio.h>
#include <string.h>
#include "digits.h"

static uint8_t images[{images}];
static float logits[{logits}];

int main(int argc, char **argv) {{
    FILE *in = fopen("images.bin", "rb"), *out = fopen(argv[1], "wb");
    if (!in || !out || fread(images, 1, sizeof images, in) != sizeof images) return 10;
    if (digits_use(argv[1]) || strcmp(digits_level(), argv[1])) return 11;
    if (argc > 2 && digits_use("none such") == 0) return 12;
    int status = digits_run(images, logits, NULL);
    if (status) return status;
    fwrite(logits, sizeof(float), {logits}, out);
    return fclose(out);
}}
"""


@pytest.fixture
def compiler():
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return found or pytest.skip("no C compiler (cc, gcc or clang) is on the path")


def test_the_demo_gives_the_same_bytes_from_a_c_program(tmp_path, compiler):
    digits = demo.Digits.load()
    pipe, _ = demo.int8_network(digits, per_channel=True)
    images = np.ascontiguousarray(digits.images[digits.test][:33])
    plan = tw.TilingExecutor(threads=2).compile(pipe)
    logits = plan.run({"x": images})["logits"]
    levels = [isa.available()[-1].name, "generic"]
    made = plan.export(tmp_path, {"x": images.shape}, name="digits", levels=levels, link=False)
    assert made.library is None
    assert list(made.objects) == levels
    images.tofile(tmp_path / "images.bin")
    (tmp_path / "main.c").write_text(PROGRAM.format(images=images.size, logits=logits.size))
    objects = [path.name for path in made.objects.values()]
    build = [compiler, "-O1", "-Wall", "-Werror", "-o", "main", "main.c", made.source.name, *objects, "-lm"]
    subprocess.run(build, cwd=tmp_path, check=True)
    for level in levels:
        assert subprocess.run(["./main", level, "more"], cwd=tmp_path).returncode == 0
        assert (tmp_path / level).read_bytes() == logits.tobytes()
    assert "logits" in made.header.read_text()
    assert "u8 (33, 64)" in made.header.read_text()


def test_a_shared_library_serves_several_threads(tmp_path, compiler):
    import ctypes

    def act(v, s):
        return np.tanh(np.float32(v) * s)

    rng = np.random.default_rng(0)
    pipe = tw.Pipeline("two words")
    x = pipe.input("int", "f32", (5, 40))  # a word of C's own, and a step that scales in stages
    h = tw.ops.map(act, tw.ops.gemm(x, rng.standard_normal((40, 24)).astype(np.float32)), s=0.5)
    pipe.output("y", tw.ops.softmax(h))
    plan = tw.TilingExecutor(threads=1).compile(pipe)
    made = plan.export(tmp_path, levels=[isa.available()[-1].name])
    library = ctypes.CDLL(str(made.library))
    run, memory = library.two_words_run, library.two_words_memory
    run.argtypes, memory.restype = [ctypes.c_void_p] * 3, ctypes.c_size_t
    inputs = [rng.standard_normal((5, 40)).astype(np.float32) for _ in range(4)]
    outputs = [np.full((5, 24), np.nan, np.float32) for _ in inputs]

    def work(a, y):
        own = np.empty(memory(), np.uint8)
        for _ in range(50):
            assert run(a.ctypes.data, y.ctypes.data, own.ctypes.data) == 0

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, outputs, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, y in zip(inputs, outputs, strict=True):
        assert y.tobytes() == plan.run({"int": a})["y"].tobytes()


class Doubled:
    name = "doubled"

    def signature(self):
        return (tw.ArgSpec("x", "f32", shape=("N",)), tw.ArgSpec("y", "f32", "write", shape=("N",)))

    def execute(self, ctx):
        ctx.write("y")[...] = 2 * ctx.read("x")


def test_what_cannot_be_exported_is_named(tmp_path):
    def plan_of(build):
        pipe = tw.Pipeline("p")
        pipe.output("y", build(pipe, pipe.input("x", "f32", ("N",))))
        return tw.TilingExecutor(threads=1).compile(pipe)

    with pytest.raises(Unsupported, match="doubled: a Python kernel"):
        plan_of(lambda pipe, x: pipe.add(Doubled(), x=x)).export(tmp_path, {"x": (3,)})
    with pytest.raises(Unsupported, match="output y is an input, a constant or another output"):
        plan_of(lambda pipe, x: x).export(tmp_path, {"x": (3,)})
    with pytest.raises(Unsupported, match="has states, total"):
        plan_of(lambda pipe, x: tw.ops.add(x, pipe.state("total", "f32", (3,)))).export(tmp_path, {"x": (3,)})
    relu = plan_of(lambda pipe, x: tw.ops.relu(x))
    with pytest.raises(ArgumentError, match="whose size is not fixed"):
        relu.export(tmp_path)
    with pytest.raises(ArgumentError, match="instruction set 'sse9' is unknown"):
        relu.export(tmp_path, {"x": (3,)}, levels=["sse9"])


def test_the_objects_need_nothing_of_python(tmp_path):
    nm = shutil.which("nm") or pytest.skip("no nm is on the path")
    pipe = tw.Pipeline("p")
    pipe.output("y", tw.ops.relu(pipe.input("x", "f32", (300,))))
    made = tw.TilingExecutor(threads=1).compile(pipe).export(tmp_path, levels=["generic"], link=False)
    done = subprocess.run([nm, "-u", str(made.objects["generic"])], capture_output=True, text=True, check=True)
    assert set(re.findall(r" U (\w+)", done.stdout)) <= {"memcpy", "memset", "memmove"}
