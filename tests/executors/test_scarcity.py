"""Too little memory, a full disk: a clear error or a line in the log, and the process goes on."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of a process as Linux has them")

SETUP = """
import os, resource, signal
import numpy as np
import tilework as tw

rng = np.random.default_rng(0)
"""


def script(body, **env):
    """Run Python code after SETUP; returns what it wrote, and fails with it where it does not end well."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SETUP + textwrap.dedent(body)],
        env=os.environ | env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


def test_a_run_that_needs_more_memory_than_there_is_raises_memory_error_and_the_plan_goes_on():
    script("""
        pipe = tw.Pipeline("wide")
        x = pipe.input("x", "u8", ("M", 64))
        acc = tw.ops.gemm(x, rng.integers(-127, 128, (64, 512), dtype=np.int8), a_zero_point=128)
        h = tw.ops.requantize(acc, multiplier=1e-3, zero_point=10, dtype="u8")
        pipe.output("acc", acc)
        pipe.output("y", tw.ops.gemm(h, rng.integers(-127, 128, (512, 64), dtype=np.int8), a_zero_point=10))
        small = {"x": rng.integers(0, 256, (5, 64), np.uint8)}
        large = {"x": np.broadcast_to(small["x"][:1], (400_000, 64))}
        for executor in (tw.SingleThreadExecutor("reference"), tw.SingleThreadExecutor(), tw.TilingExecutor(2)):
            plan = executor.compile(pipe)
            right = plan.run(small)["y"]
            with open("/proc/self/statm") as file:
                now = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (now + (200 << 20), resource.RLIM_INFINITY))
            for _ in range(2):
                try:
                    plan.run(large)
                    raise SystemExit("no error")
                except MemoryError as error:
                    assert "Unable to allocate" in str(error), error
                assert (plan.run(small)["y"] == right).all()
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            del plan
    """)


def test_memory_that_a_tile_itself_does_not_get_is_a_memory_error():
    """What a compiled function raises is printed and forgotten by C; the output would be what it was before."""
    script("""
        from tilework.executors.schemes import from_parts

        K = 1 << 25
        for name in ("int4_g32", "mxfp4"):
            scheme = tw.schemes.get(name)
            codes = np.zeros((1, K * scheme.bits // 8), np.uint8)
            params = {p.name: np.ones((1, K // scheme.block), p.numpy) for p in scheme.stored}
            small = scheme.quantize(np.ones((1, 64), np.float32))
            large, out = from_parts(scheme, codes, params, (1, K)), np.full((1, K), 7, np.float32)
            right = small.dequantize()
            with open("/proc/self/statm") as file:
                now = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (now + (8 << 20), resource.RLIM_INFINITY))
            try:
                large.dequantize(out=out)
                raise SystemExit("no error")
            except MemoryError as error:
                assert "found no memory" in str(error), error
            assert (small.dequantize() == right).all()
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert not large.dequantize(out=out).any()
    """)


def test_files_that_do_not_fit_into_memory_are_a_memory_error_and_no_damaged_file(tmp_path):
    script(
        """
        from pathlib import Path

        folder = Path(os.environ["FOLDER"])
        w = rng.integers(0, 255, (64, 1 << 20), np.uint8)  # 64 MiB
        pipe = tw.Pipeline("large")
        pipe.output("y", tw.ops.relu(pipe.constant("w", w), zero_point=np.uint8(3)))
        q = tw.schemes.get("int8_channel").quantize(np.ones((64, 1 << 20), np.float32))
        pipe.save(folder / "p.tw")
        q.save(folder / "t.npz")
        del q, pipe
        ways = [lambda: tw.Pipeline.load(folder / "p.tw"), lambda: tw.QuantizedTensor.load(folder / "t.npz")]
        for load in ways:
            load()
            with open("/proc/self/statm") as file:
                now = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (now + (16 << 20), resource.RLIM_INFINITY))
            try:
                load()
                raise SystemExit("no error")
            except MemoryError:
                pass
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            load()
        """,
        FOLDER=str(tmp_path),
    )


def test_on_a_full_disk_kernels_are_compiled_and_files_stay_what_they_were(tmp_path):
    said = script(
        """
        import logging
        from pathlib import Path
        from tilework.executors.schemes import files

        logging.basicConfig()
        folder = Path(os.environ["FOLDER"])
        pipe = tw.Pipeline("table")
        x = pipe.input("x", "u8", ("M", 64))
        pipe.output("y", tw.ops.lookup(x, rng.integers(0, 256, 256).astype(np.uint8)))
        tensor = tw.schemes.get("int4_g32").quantize(rng.standard_normal((8, 64), np.float32))
        arrays = {"w": rng.standard_normal((64, 64), np.float32)}
        ways = {
            "p.tw": pipe.save,
            "t.npz": lambda path: files.save(path, {"w": tensor}),
            "a.gguf": lambda path: tw.gguf.save(path, arrays, {}),
            "a.safetensors": lambda path: tw.safetensors.save(path, arrays),
        }
        for name, save in ways.items():
            save(folder / name)
        before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        kept = sorted((folder / "cache").iterdir())
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))  # as of a disk that is full by then
        data = {"x": rng.integers(0, 256, (300, 64), np.uint8)}
        assert (tw.TilingExecutor(2).run(pipe, data)["y"] == tw.SingleThreadExecutor("reference").run(pipe, data)["y"]).all()
        for name, save in ways.items():
            try:
                save(folder / name)
                raise SystemExit(f"no error for {name}")
            except OSError as error:
                assert error.errno, error
        assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
        assert sorted((folder / "cache").iterdir()) == kept
        """,
        FOLDER=str(tmp_path),
        TILEWORK_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert said.count("cannot be written") == 1, said
