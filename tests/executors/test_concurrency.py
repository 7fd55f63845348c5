"""Plans under many threads, forks, pools and interrupts. What may crash or hang runs in a process of its own."""

import importlib.util
import multiprocessing
import os
import subprocess
import sys
import textwrap

import pytest

LAYERS = ["own", "omp", "workqueue", *(["tbb"] if importlib.util.find_spec("tbb") else [])]  # own: no layer of Numba's

SETUP = """
import os, signal, sys, threading, time
import numpy as np
import tilework as tw
from tilework.executors import cutting

cutting.SMALL = 0  # every step is cut for all threads
rng = np.random.default_rng(0)


def mlp(width=64, hidden=96, layers=3, act=False, state=False):
    pipe = tw.Pipeline("mlp")
    h = pipe.input("x", "u8", ("M", width))
    for n in range(layers):
        w = rng.integers(-127, 128, (width, hidden), dtype=np.int8)
        v = rng.integers(-127, 128, (hidden, width), dtype=np.int8)
        up = tw.ops.gemm(h, w, a_zero_point=128)
        h = tw.ops.relu(tw.ops.requantize(up, multiplier=1e-3, zero_point=10, dtype="u8"), zero_point=np.uint8(10))
        down = tw.ops.gemm(h, v, a_zero_point=10)
        h = tw.ops.requantize(down, multiplier=1e-3, zero_point=128, dtype="u8")
    if state:
        acc = tw.ops.gemm(h, w, a_zero_point=128)
        kept = pipe.state("kept", "s32", ("M", hidden))
        total = tw.ops.add(acc, kept)
        pipe.update(kept, total)
        pipe.output("total", total)
    pipe.output("y", h)
    return pipe


def sized(m, width=64):
    return rng.integers(0, 256, (m, width), dtype=np.uint8)
"""


def script(body, timeout=300, layer=None, **env):
    """Run Python code after SETUP; returns its output, and fails with it where it does not end well."""
    environment = os.environ | {"NUMBA_NUM_THREADS": "3"} | env
    if layer not in (None, "own"):
        environment |= {"NUMBA_THREADING_LAYER": layer, "TILEWORK_THREADING": "numba"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SETUP + textwrap.dedent(body)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


MANY = """
    seconds = float(os.environ.get("TILEWORK_SOAK_SECONDS", "2"))
    pipe = mlp()
    plan = tw.TilingExecutor(3).compile(pipe)
    cases = [{"x": sized(m)} for m in (1, 7, 64, 130)]
    expected = [plan.run(case)["y"] for case in cases]
    single = tw.TilingExecutor(1).compile(pipe)
    for case, y in zip(cases, expected):
        assert (single.run(case)["y"] == y).all()
    wrong, counts, end = [], [0] * 16, time.monotonic() + seconds

    def work(n):
        out = {"y": np.empty((64, 64), np.uint8)}
        call = plan.bind(cases[2], out)
        local = np.random.default_rng(n)
        try:
            while not counts[n] or time.monotonic() < end:
                i = int(local.integers(len(cases)))
                if not (plan.run(cases[i])["y"] == expected[i]).all():
                    wrong.append((n, i))
                out["y"][:] = 0
                call()
                if not (out["y"] == expected[2]).all():
                    wrong.append((n, "bound"))
                counts[n] += 1
        except BaseException as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for t in threads:
        t.start()
    time.sleep(seconds / 2)
    call = plan.bind(cases[3])
    child = os.fork()
    if child == 0:  # other threads hold whatever they held: the child answers all the same
        signal.alarm(120)
        good = all((plan.run(case)["y"] == y).all() for case, y in zip(cases, expected))
        good = good and (call()["y"] == expected[3]).all()
        good = good and (tw.TilingExecutor(2).run(pipe, cases[2])["y"] == expected[2]).all()
        os._exit(0 if good else 3)
    status = os.waitpid(child, 0)[1]
    for t in threads:
        t.join()
    from tilework.executors import threads as layers
    print("layer", "own" if layers.own_threads() else layers.layer(), "runs", sum(counts), "child", status)
    assert not wrong, wrong[:5]
    assert all(counts), counts
    assert status == 0, status
"""


@pytest.mark.parametrize("layer", LAYERS)
def test_sixteen_threads_share_a_plan_and_a_forked_child_answers(layer):
    said = script(MANY, layer=layer)
    assert f"layer {layer}" in said
    assert said.count("this process was forked") == 1  # one line, by the child


def test_a_fork_while_a_stateful_plan_runs_does_not_hang_the_child():
    script("""
        pipe = mlp(state=True)
        plan = tw.TilingExecutor(2).compile(pipe)
        x = {"x": sized(700)}
        y = plan.run(x)["y"]
        stop = False

        def work():
            while not stop:
                plan.run(x)

        t = threading.Thread(target=work)
        t.start()
        for _ in range(5):
            time.sleep(0.02)
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                good = (plan.run(x)["y"] == y).all() and (plan.run({"x": x["x"][:9]}, state={})["y"] == y[:9]).all()
                os._exit(0 if good else 3)
            status = os.waitpid(child, 0)[1]
            if status:
                break
        stop = True
        t.join()
        assert status == 0, status
    """)


def test_pools_and_callers_thread_settings():
    script("""
        import numba
        from concurrent.futures import ThreadPoolExecutor

        pipe = mlp()
        plan, one = tw.TilingExecutor(3).compile(pipe), tw.TilingExecutor(threads=1).compile(pipe)
        cases = [{"x": sized(m)} for m in (5, 64, 200)] * 20
        numba.set_num_threads(2)
        expected = [plan.run(case)["y"] for case in cases]
        assert numba.get_num_threads() == 2

        def work(case):
            numba.set_num_threads(1)
            found = plan.run(case)["y"], one.run(case)["y"]
            assert numba.get_num_threads() == 1
            return found

        with ThreadPoolExecutor(8) as pool:
            for (a, b), y in zip(pool.map(work, cases), expected):
                assert (a == y).all() and (b == y).all()
        assert numba.get_num_threads() == 2
    """)


@pytest.mark.parametrize("method", [m for m in ("spawn", "forkserver") if m in multiprocessing.get_all_start_methods()])
def test_a_pool_of_new_processes_answers(tmp_path, method):
    path = tmp_path / "spawned.py"
    body = """
    def work(m):
        pipe = mlp()
        x = {"x": sized(m)}
        return bool((tw.TilingExecutor(2).run(pipe, x)["y"] == tw.SingleThreadExecutor().run(pipe, x)["y"]).all())

    if __name__ == "__main__":
        import multiprocessing

        with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
            assert pool.map(work, [3, 64, 130, 7]) == [True] * 4
    """
    path.write_text(SETUP + textwrap.dedent(body))
    done = subprocess.run([sys.executable, str(path), method], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_a_long_run_soon_and_the_plan_goes_on(threads):
    script(f"""
        pipe = mlp(width=512, hidden=1024, layers=5)
        plan = tw.TilingExecutor({threads}).compile(pipe)
        x, other = {{"x": sized(8192, 512)}}, {{"x": sized(300, 512)}}
        whole, y = plan.run(x)["y"], plan.run(other)["y"]
        out = {{"y": np.empty_like(whole)}}
        bound = plan.bind(x, out)
        ways = {{
            "run": lambda: plan.run(x, state={{}}),
            "again": lambda: plan.run(x),
            "bound": bound,
        }}
        for name, call in ways.items():
            plan.run(x)
            sent = []

            def interrupt():
                sent.append(time.perf_counter())
                os.kill(os.getpid(), signal.SIGINT)

            timer = threading.Timer(0.08, interrupt)
            timer.start()
            try:
                while True:
                    call()
            except KeyboardInterrupt:
                late = time.perf_counter() - sent[0]
            print(name, f"{{late * 1e3:.0f}} ms")
            assert late < 0.5, late
            assert (plan.run(other)["y"] == y).all()
            assert (plan.run(x)["y"] == whole).all()
            assert (plan.run(x, state={{}})["y"] == whole).all()
            out["y"][:] = 0
            bound()
            assert (out["y"] == whole).all()
    """)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_status_names_its_step_and_the_next_run_is_right(threads):
    script(f"""
        pipe = tw.Pipeline("scaled")
        x = pipe.input("x", "f32", ("M", 64))
        scale = pipe.argument("scale", "f32")
        q = tw.ops.quantize(tw.ops.relu(x), scale, dtype="u8")
        pipe.output("y", tw.ops.dequantize(q, np.float32(0.5)))
        kept = pipe.state("kept", "f32", ("M", 64))
        pipe.update(kept, tw.ops.add(kept, pipe.outputs["y"]))
        data = rng.normal(0, 3, (500, 64)).astype(np.float32)
        good = {{"x": data, "scale": np.float32(0.1)}}
        plan = tw.TilingExecutor({threads}).compile(pipe)
        reference = tw.SingleThreadExecutor("reference").compile(pipe)
        for _ in range(3):
            assert (plan.run(good)["y"] == reference.run(good)["y"]).all()
            before = plan.state["kept"].copy()
            for bad in (0.0, np.nan, -1.0, np.inf):
                try:
                    plan.run({{"x": data, "scale": np.float32(bad)}})
                    raise SystemExit("no error for " + repr(bad))
                except tw.errors.QuantizationError as error:
                    assert "'quantize" in str(error), error
                assert (plan.state["kept"] == before).all()
            bound = plan.bind({{"x": data, "scale": np.zeros((), np.float32)}})
            try:
                bound()
                raise SystemExit("no error from a bound run")
            except tw.errors.QuantizationError:
                pass
            assert (plan.run(good)["y"] == reference.run(good)["y"]).all()
    """)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_exception_in_a_python_step_names_it_and_memory_goes_back(threads):
    script(f"""
        from tilework.primitives.kernel import ArgSpec

        class Picky:
            name = "picky"
            fail = False

            def signature(self):
                return ArgSpec("x", "s32", shape=("M", "N")), ArgSpec("y", "s32", "write", shape=("M", "N"))

            def execute(self, ctx):
                x, y = ctx.read("x"), ctx.write("y")
                if int(x[0, 0]) == 7:
                    raise ZeroDivisionError("seven")
                y[...] = x + 1

        pipe = tw.Pipeline("python")
        x = pipe.input("x", "s32", ("M", 64))
        y = pipe.add(Picky(), x=tw.ops.relu(x))
        pipe.output("y", tw.ops.relu(y))
        plan = tw.TilingExecutor({threads}).compile(pipe)
        good, bad = np.full((90, 64), 3, np.int32), np.full((90, 64), 7, np.int32)
        assert "python" in plan.explain().lower()
        for _ in range(40):
            assert (plan.run({{"x": good}})["y"] == 4).all()
            out = np.zeros((90, 64), np.int32)
            try:
                plan.run({{"x": bad}}, out={{"y": out}})
                raise SystemExit("no error")
            except tw.errors.KernelFailed as error:
                assert "'picky'" in str(error) and "seven" in str(error)
                assert isinstance(error.__cause__, ZeroDivisionError)
            assert (out == 0).all()
        bound, = plan._bindings.values()
        assert len(bound._pool) == 1, len(bound._pool)
    """)


def test_a_plan_inside_a_parallel_loop_of_numba():
    script("""
        import numba

        pipe = mlp(layers=1)
        plan = tw.TilingExecutor(3).compile(pipe)
        cases = [{"x": sized(m)} for m in (3, 64, 130)]
        expected = [plan.run(case)["y"] for case in cases]

        @numba.njit(parallel=True)
        def parallel(out):
            for i in numba.prange(6):
                with numba.objmode():
                    found = plan.run(cases[i % 3])["y"]
                    out[i] = (found == expected[i % 3]).all()

        found = np.zeros(6, np.bool_)
        parallel(found)
        assert found.all(), found
    """)
