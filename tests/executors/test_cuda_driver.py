"""Plans on a CUDA device, with a driver that stands for one: what is sent, launched, updated, waited for and given back."""

import gc
import importlib
import threading
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest

import tilework as tw
from tilework.executors.cuda.arrays import DeviceArray
from tilework.executors.cuda.graph import SHARED
from tilework.primitives import dlpack
from tilework.primitives.errors import (
    ArgumentError,
    BufferAccessError,
    DeviceLost,
    DTypeMismatch,
    KernelFailed,
    LayoutError,
    OutOfDeviceMemory,
    QuantizationError,
    ShapeMismatch,
    TileworkError,
    Unsupported,
)


def network(n=16):
    """x quantized and multiplied twice side by side: one product through relu, of the other the largest."""
    rng = np.random.default_rng(0)
    pipe = tw.Pipeline("network")
    x = pipe.input("x", "f32", ("M", 32))
    q = tw.ops.quantize(x, scale=pipe.argument("s", "f32"), zero_point=128, dtype="u8")
    one, two = (
        tw.ops.gemm(q, pipe.constant(f"w{k}", rng.integers(-128, 128, (32, n)).astype(np.int8)), a_zero_point=128)
        for k in range(2)
    )
    pipe.output("y", tw.ops.relu(tw.ops.dequantize(one, scale=np.float32(0.01))))
    pipe.output("k", tw.ops.argmax(two))
    return pipe


def inputs(m, seed=0):
    return {"x": np.random.default_rng(seed).standard_normal((m, 32)).astype(np.float32), "s": np.float32(0.02)}


def expected(pipe, given):
    return tw.SingleThreadExecutor("reference").run(pipe, given)


def same(found, right):
    assert found.keys() == right.keys()
    for name, array in right.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes(), name


@pytest.fixture
def cuda(fake_cuda):
    with tw.CudaExecutor("cuda:0") as executor:
        yield executor
    gc.collect()


def test_a_plan_gives_the_cpus_bytes_and_builds_one_graph(fake_cuda, cuda):
    pipe = network()
    plan = cuda.compile(pipe)
    for seed in range(3):
        same(plan.run(inputs(5, seed)), expected(pipe, inputs(5, seed)))
    assert fake_cuda.calls["cuGraphInstantiate"] == 2  # what constants alone make, and the rest
    assert fake_cuda.calls["cuGraphLaunch"] == 1 + 3
    assert fake_cuda.calls["cuGraphExecKernelNodeSetParams"] == 0


def test_nothing_is_left_when_an_executor_is_closed(fake_cuda):
    with tw.CudaExecutor("cuda:0") as executor:
        plan = executor.compile(network())
        plan.run(inputs(3))
        assert fake_cuda.in_use() > 0
    left = (fake_cuda.memory, fake_cuda.pinned, fake_cuda.graphs, fake_cuda.executables, fake_cuda.modules)
    assert [len(x) for x in left] == [0] * 5
    assert (sorted(fake_cuda.streams), fake_cuda.events) == ([1, 2], {})
    with pytest.raises(ArgumentError, match="closed"):
        plan.run(inputs(3))
    with pytest.raises(ArgumentError, match="closed"):
        executor.compile(network())
    del plan, executor
    gc.collect()
    assert fake_cuda.retained == 0


# Arrays of the device ------------------------------------------------------------------------------------------------


@pytest.fixture
def tensor(fake_cuda, fake_module):
    """tensor(array, stream=None, device=0, **interface): another library's array on the device."""
    return lambda array, **options: fake_module.DeviceTensor(fake_cuda, array, **options)


class Speaking:
    """A tensor that speaks DLPack alone, as torch's do in the types that interfaces have no names for."""

    def __init__(self, tensor, dtype, kind=2, number=0, versioned=True):
        self.tensor, self.dtype, self.device = tensor, tw.dtypes.get(dtype), (kind, number)
        self.versioned, self.asked = versioned, []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked.append(stream)
        return dlpack.write(
            self.tensor.address, self.device, self.dtype, self.tensor.shape, False, self.tensor, self.versioned
        )


def test_arrays_of_the_device_are_used_where_they_are(fake_cuda, cuda, tensor):
    pipe = network()
    plan = cuda.compile(pipe)
    plan.run(inputs(5))
    built, sent = fake_cuda.calls["cuGraphInstantiate"], fake_cuda.calls["cuMemcpyHtoDAsync"]
    fetched, taken = fake_cuda.calls["cuMemcpyDtoHAsync"], fake_cuda.calls["cuMemAlloc"]
    for seed in (1, 2):
        given = inputs(5, seed)
        out = {"y": tensor(np.zeros((5, 16), np.float32)), "k": tensor(np.zeros(5, np.int64))}
        found = plan.run({"x": tensor(given["x"]), "s": tensor(np.asarray(given["s"]))}, out)
        assert found["y"] is out["y"]
        same({name: t.host() for name, t in out.items()}, expected(pipe, given))
    assert fake_cuda.calls["cuGraphInstantiate"] == built
    assert fake_cuda.calls["cuMemcpyHtoDAsync"] == sent
    assert fake_cuda.calls["cuMemcpyDtoHAsync"] == fetched + 2  # what the scale's step may complain of
    assert fake_cuda.calls["cuMemAlloc"] == taken
    assert 0 < fake_cuda.calls["cuGraphExecKernelNodeSetParams"] <= 8


def test_only_nodes_that_touch_other_memory_are_updated(fake_cuda, cuda, tensor):
    pipe = network()
    plan = cuda.compile(pipe)
    plan.run(inputs(5))
    x = tensor(inputs(5)["x"])
    for times in (1, 1):  # the second run has the same memory
        plan.run({**inputs(5), "x": x})
        assert fake_cuda.calls["cuGraphExecKernelNodeSetParams"] == times
    same(plan.run({**inputs(5, 3), "s": np.float32(0.05)}), expected(pipe, {**inputs(5, 3), "s": np.float32(0.05)}))
    assert fake_cuda.calls["cuGraphInstantiate"] == 2


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize(("name", "dtype"), [("bf16", ml_dtypes.bfloat16), ("f16", np.float16), ("u8", np.uint8)])
def test_dlpack_brings_every_type(cuda, tensor, name, dtype, versioned):
    pipe = tw.Pipeline()
    pipe.output("y", tw.ops.transpose(pipe.input("x", name, ("M", 8))))
    x = np.arange(24).astype(dtype).reshape(3, 8)
    bits = f"u{x.itemsize}"
    lent, out = tensor(x.view(bits)), tensor(np.zeros((8, 3), bits))
    given = Speaking(lent, name, 13, versioned=versioned)
    cuda.compile(pipe).run({"x": given}, {"y": Speaking(out, name)})
    assert out.host().tobytes() == x.T.tobytes()
    assert given.asked == [cuda.runner.stream]
    capsule = Speaking(lent, name, versioned=versioned).__dlpack__()
    assert cuda.run(pipe, {"x": capsule})["y"].tobytes() == x.T.tobytes()


def test_an_interface_without_a_name_for_the_type_is_taken_by_size(cuda, tensor):
    pipe = tw.Pipeline()
    pipe.output("y", tw.ops.transpose(pipe.input("x", "bf16", (2, 8))))
    x = np.arange(16).astype(ml_dtypes.bfloat16).reshape(2, 8)
    given = tensor(x.view(np.uint16), typestr="<V2", version=2)
    assert cuda.run(pipe, {"x": given})["y"].tobytes() == x.T.tobytes()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"device": 1}, ArgumentError, "input 'x' lies on cuda:1, but this executor runs on cuda:0"),
        ({"strides": (256, 4)}, LayoutError, r"strides \(256, 4\) bytes for shape \(5, 32\).*contiguous"),
        ({"stream": 0}, ArgumentError, "stream of its __cuda_array_interface__ is 0"),
        ({"stream": "s"}, ArgumentError, "stream of its __cuda_array_interface__ is 's'"),
        ({"mask": object()}, ArgumentError, "mask"),
        ({"typestr": "<i4"}, DTypeMismatch, "input 'x' is f32, but s32 was given"),
        ({"shape": (5, 31)}, ShapeMismatch, "31"),
        ({"data": (4096, False)}, ArgumentError, "no memory of a CUDA device"),
    ],
)
def test_what_cannot_be_taken_is_named(cuda, tensor, change, error, message):
    with pytest.raises(error, match=message):
        cuda.run(network(), {**inputs(5), "x": tensor(inputs(5)["x"], **change)})


def test_memory_that_kernels_cannot_reach_is_named(cuda, tensor):
    x = tensor(np.zeros((6, 32), np.float32))
    x.__cuda_array_interface__ |= {"shape": (5, 32), "data": (x.address + 4, False)}
    with pytest.raises(BufferAccessError, match="multiple of 16 bytes"):
        cuda.run(network(), {**inputs(5), "x": x})


def test_outputs_that_cannot_be_written_are_named(cuda, tensor):
    pipe = network()
    y = np.zeros((5, 16), np.float32)
    x = tensor(np.zeros((5, 32), np.float32))
    wrong = {
        "read-only": tensor(y, data=(tensor(y).address, True)),
        "has shape": tensor(y[:4]),
        "but s32 was given": tensor(y.astype(np.int32)),
        "overlaps input 'x'": tensor(y, data=(x.address, False)),
    }
    for message, out in wrong.items():
        with pytest.raises(TileworkError, match=message):
            cuda.run(pipe, {**inputs(5), "x": x}, {"y": out})
    with pytest.raises(ArgumentError, match="'here'; an array is needed, or 'device'"):
        cuda.run(pipe, inputs(5), {"y": "here"})
    with pytest.raises(ArgumentError, match="no output 'z'"):
        cuda.run(pipe, inputs(5), {"z": "device"})


def test_an_elementwise_step_may_take_over_its_input(cuda, tensor):
    pipe = tw.Pipeline()
    pipe.output("y", tw.ops.relu(pipe.input("x", "f32", (64,))))
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    lent = tensor(x)
    cuda.run(pipe, {"x": lent}, {"y": lent})
    assert lent.host().tolist() == np.maximum(x, 0).tolist()


@pytest.mark.parametrize("device", ["interpreter", "cpu"])
def test_the_host_names_what_it_cannot_reach(fake_module, device):
    executor = tw.SingleThreadExecutor() if device == "cpu" else tw.CudaExecutor(device)
    x = fake_module.DeviceTensor(fake_module.Fake(), inputs(2)["x"])
    with pytest.raises(BufferAccessError, match="no view on the host"):
        executor.run(network(), {**inputs(2), "x": x})


def test_the_interpreter_has_neither_arrays_of_a_device_nor_streams():
    plan = tw.CudaExecutor("interpreter").compile(network())
    with pytest.raises(ArgumentError, match="runs on the host"):
        plan.run(inputs(2), "device")
    with pytest.raises(ArgumentError, match="only a device has streams"):
        plan.run(inputs(2), stream=1)


# Outputs that stay ---------------------------------------------------------------------------------------------------


def test_outputs_stay_on_the_device_until_nobody_holds_them(fake_cuda, cuda):
    pipe = network()
    plan = cuda.compile(pipe)
    found = plan.run(inputs(5), "device")
    right = expected(pipe, inputs(5))
    same({name: array.numpy() for name, array in found.items()}, right)
    assert found["y"].__cuda_array_interface__ == {
        "version": 3, "shape": (5, 16), "typestr": "<f4", "data": (found["y"].address, False), "strides": None,
        "stream": None,
    }  # fmt: skip
    assert (found["y"].device, found["y"].__dlpack_device__()) == ("cuda:0", (2, 0))
    both = plan.run({**inputs(5), "x": inputs(5)["x"]}, {"y": "device"})
    assert isinstance(both["k"], np.ndarray)
    capsule = both["y"].__dlpack__(max_version=(1, 0))
    address = both.pop("y").address
    gc.collect()
    assert address in fake_cuda.memory
    assert dlpack.read_capsule(capsule).address == address
    del capsule
    gc.collect()
    assert address not in fake_cuda.memory


def test_arrays_outlive_the_executor(fake_cuda):
    executor = tw.CudaExecutor("cuda:0")
    y = executor.run(network(), inputs(5), "device")["y"]
    executor.close()
    del executor
    gc.collect()
    assert fake_cuda.retained == 1
    assert y.numpy().tobytes() == expected(network(), inputs(5))["y"].tobytes()
    del y
    gc.collect()
    assert (fake_cuda.retained, fake_cuda.memory) == (0, {})


def test_one_runs_output_is_anothers_input(cuda):
    first, second = tw.Pipeline(), tw.Pipeline()
    first.output("y", tw.ops.quantize(first.input("x", "f32", ("M", 8)), np.float32(0.1), 0, "u8"))
    second.output("z", tw.ops.dequantize(second.input("y", "u8", ("M", 8)), np.float32(0.1), 0))
    x = np.linspace(0, 2, 24, dtype=np.float32).reshape(3, 8)
    right = tw.SingleThreadExecutor()
    same(cuda.run(second, cuda.run(first, {"x": x}, "device")), right.run(second, right.run(first, {"x": x})))


def test_packed_codes_are_bytes_to_others(cuda):
    z = DeviceArray(cuda.runner.context, "z", tw.dtypes.get("u4"), (3, 7))
    told = dlpack.read_capsule(z.__dlpack__())
    assert (z.dtype, z.shape, told.dtype, told.shape, told.strides) == ("u4", (3, 7), "u8", (3, 4), (4, 1))
    assert (z.__cuda_array_interface__["shape"], z.numpy().shape, z.nbytes) == ((3, 4), (3, 4), 12)


def test_an_output_that_is_an_input_or_has_two_names_is_copied(cuda, tensor):
    pipe = tw.Pipeline()
    x = pipe.input("x", "f32", (6,))
    y = tw.ops.neg(x)
    for name, value in {"a": y, "b": y, "c": x, "d": y}.items():
        pipe.output(name, value)
    given = np.arange(6, dtype=np.float32)
    out = {name: tensor(np.zeros(6, np.float32)) for name in "abc"}
    found = cuda.run(pipe, {"x": given}, out)
    assert [out[name].host().tolist() for name in "abc"] == [(-given).tolist(), (-given).tolist(), given.tolist()]
    assert found["d"].tolist() == (-given).tolist()


def test_capsules_say_what_they_hold(fake_cuda, cuda):
    pipe = tw.Pipeline()
    x = pipe.input("x", "f32", (4,))
    pipe.output("h", tw.ops.cast(x, "bf16"))
    pipe.output("m", tw.ops.greater(x, x))
    found = cuda.run(pipe, {"x": np.arange(4, dtype=np.float32)}, "device")
    for name, dtype in (("h", "bf16"), ("m", "bool")):
        for version in (None, (1, 0)):
            told = dlpack.read_capsule(found[name].__dlpack__(max_version=version))
            assert (told.dtype, told.shape, told.strides, told.readonly) == (dtype, (4,), (1,), False)
    with pytest.raises(BufferError, match="lies on cuda:0"):
        found["h"].__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="no copy"):
        found["h"].__dlpack__(copy=True)


# Streams, threads ----------------------------------------------------------------------------------------------------


class TorchStream:
    def __init__(self, handle):
        self.cuda_stream = handle


class CupyStream:
    def __init__(self, handle):
        self.ptr = handle


class CoreStream:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


@pytest.mark.parametrize("kind", [int, TorchStream, CupyStream, CoreStream])
def test_a_run_on_a_given_stream_does_not_wait(fake_cuda, cuda, kind):
    handle = new_stream(fake_cuda)
    plan = cuda.compile(network())
    plan.run(inputs(5))
    done = len(fake_cuda.log)
    waits = sum(n for name, n in fake_cuda.calls.items() if "Synchronize" in name)
    found = plan.run(inputs(5, 1), "device", stream=kind(handle))
    assert len(fake_cuda.log) == done, "something waited"
    assert sum(n for name, n in fake_cuda.calls.items() if "Synchronize" in name) == waits
    assert found["y"].__cuda_array_interface__["stream"] == handle
    same({name: array.numpy() for name, array in found.items()}, expected(network(), inputs(5, 1)))
    plan.synchronize()


@pytest.mark.parametrize("handle", ["5", 1.0, True, -3, object()])
def test_what_is_no_stream_is_named(cuda, handle):
    with pytest.raises(ArgumentError, match="is no CUDA stream"):
        cuda.run(network(), inputs(3), stream=handle)


def test_null_is_the_legacy_default_stream(fake_cuda, cuda):
    y = cuda.run(network(), inputs(3), "device", stream=TorchStream(0))["y"]
    assert y.__cuda_array_interface__["stream"] == 1


def new_stream(fake):
    """A stream of another library's."""
    fake.cuCtxPushCurrent(77)
    handle = fake.cuStreamCreate(1)[1]
    fake.cuCtxPopCurrent()
    return handle


class Later:
    """Work of another library on a stream of its own: it writes an array when the stream is waited for."""

    def __init__(self, fake, tensor, array):
        fake.cuCtxPushCurrent(77)
        self.handle = fake.cuStreamCreate(1)[1]
        self.source = np.ascontiguousarray(array)
        fake.cuMemcpyHtoDAsync(tensor.address, self.source.ctypes.data, array.nbytes, self.handle)
        fake.cuCtxPopCurrent()


@pytest.mark.parametrize("own", [True, False])
def test_a_run_waits_for_the_stream_that_makes_its_input(fake_cuda, cuda, tensor, own):
    given = inputs(5)
    x, y = tensor(np.zeros_like(given["x"])), tensor(np.zeros((5, 16), np.float32))
    later = Later(fake_cuda, x, given["x"])
    x.__cuda_array_interface__["stream"] = later.handle
    plan = cuda.compile(network())
    plan.run({**given, "x": x}, {"y": y, "k": "device"}, stream=None if own else 1)
    plan.synchronize()
    assert y.host().tobytes() == expected(network(), given)["y"].tobytes()


def test_a_consumer_on_another_stream_waits_for_the_run(fake_cuda, cuda):
    fake_cuda.cuCtxPushCurrent(77)
    consumer = fake_cuda.cuStreamCreate(1)[1]
    y = cuda.run(network(), inputs(5), "device", stream=2)["y"]
    capsule = y.__dlpack__(stream=consumer)
    found = np.zeros((5, 16), np.float32)
    fake_cuda.cuMemcpyDtoHAsync(found.ctypes.data, dlpack.read_capsule(capsule).address, found.nbytes, consumer)
    fake_cuda.cuStreamSynchronize(consumer)
    assert found.tobytes() == expected(network(), inputs(5))["y"].tobytes()
    fake_cuda.cuCtxPopCurrent()


def test_runs_that_nobody_waits_for_have_memory_of_their_own(fake_cuda, cuda):
    plan = cuda.compile(network())
    found = [plan.run(inputs(5, seed), "device", stream=1)["y"] for seed in range(6)]
    for seed, y in enumerate(found):
        assert y.numpy().tobytes() == expected(network(), inputs(5, seed))["y"].tobytes()
    assert fake_cuda.calls["cuGraphInstantiate"] == 1 + 2


def test_what_a_step_complains_of_is_raised_when_the_run_is_waited_for(cuda):
    plan = cuda.compile(network())
    plan.run({**inputs(3), "s": np.float32(0)}, "device", stream=1)
    with pytest.raises(QuantizationError, match=r"a scale given at run time.* \(in an earlier run of this plan"):
        plan.synchronize()
    plan.synchronize()
    plan.run({**inputs(3), "s": np.float32(0)}, "device", stream=1)
    plan.run(inputs(3), "device", stream=1)
    with pytest.raises(QuantizationError, match="earlier run"):
        plan.run(inputs(3), "device", stream=1)
    same(plan.run(inputs(3)), expected(network(), inputs(3)))


def test_threads_share_a_plan_and_its_weights(fake_cuda, cuda):
    pipe, others = network(), network(24)
    plans = {16: cuda.compile(pipe), 24: cuda.compile(others)}
    right = {(n, seed): expected(p, inputs(3, seed)) for n, p in ((16, pipe), (24, others)) for seed in range(3)}
    meet, errors = threading.Barrier(6), []

    def work(n, seed):
        meet.wait()
        for _ in range(2):
            found = plans[n].run(inputs(3, seed))
            if any(found[name].tobytes() != a.tobytes() for name, a in right[n, seed].items()):
                errors.append((n, seed))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, [16, 24] * 3, [0, 0, 1, 1, 2, 2]))
    assert errors == []
    assert fake_cuda.calls["cuGraphLaunch"] == 2 + 12
    assert fake_cuda.calls["cuGraphInstantiate"] <= 2 + 6
    assert len(fake_cuda.modules) == 5  # one for each kernel, whoever asked first


def test_other_sizes_share_the_weights(fake_cuda, cuda):
    plan = cuda.compile(network())
    for m in (3, 40, 0, 1):
        same(plan.run(inputs(m)), expected(network(), inputs(m)))
    weights = [block for block in fake_cuda.memory.values() if block.size == 512]
    assert len(weights) == 2


# Steps of the host, nothing to do --------------------------------------------------------------------------------------


def test_a_step_of_the_host_reads_and_writes_the_devices_memory(fake_cuda, cuda, tensor, unary):
    pipe = tw.Pipeline()
    x = tw.ops.neg(pipe.input("x", "f32", (16,)))
    y = pipe.add(unary("plus_one", lambda v: v + np.float32(1)), x=x)
    pipe.output("y", tw.ops.relu(y))
    pipe.output("h", y)
    given = np.linspace(-2, 2, 16, dtype=np.float32)
    out = {"h": tensor(np.zeros(16, np.float32))}
    plan = cuda.compile(pipe)
    for lent in (given, tensor(given)):
        found = plan.run({"x": lent}, out)
        assert found["y"].tolist() == np.maximum(1 - given, 0).tolist()
        assert out["h"].host().tolist() == (1 - given).tolist()
    assert fake_cuda.calls["cuGraphInstantiate"] == 2
    assert "on the host, for want of a CUDA kernel: plus_one" in plan.explain()


def test_a_plan_without_steps_launches_nothing(fake_cuda, cuda, tensor):
    pipe = tw.Pipeline()
    pipe.output("y", pipe.input("x", "f32", ("N",)))
    x = np.arange(5, dtype=np.float32)
    assert cuda.run(pipe, {"x": x})["y"].tolist() == x.tolist()
    assert cuda.run(pipe, {"x": tensor(x)}, "device")["y"].numpy().tolist() == x.tolist()
    assert fake_cuda.calls["cuGraphLaunch"] == 0


def test_outputs_of_no_elements(cuda, tensor):
    given = inputs(0)
    right = expected(network(), given)
    same(cuda.run(network(), given), right)
    x = tensor(given["x"], data=(0, False))
    found = cuda.run(network(), {**given, "x": x}, "device", stream=1)
    same({name: array.numpy() for name, array in found.items()}, right)


def test_states_live_from_run_to_run(cuda):
    pipe = tw.Pipeline()
    total = pipe.state("total", "f32", (4,))
    new = tw.ops.add(total, pipe.input("x", "f32", (4,)))
    pipe.update(total, new)
    pipe.output("y", new)
    plan = cuda.compile(pipe)
    for n in range(1, 4):
        assert plan.run({"x": np.ones(4, np.float32)}, "device", stream=1)["y"].numpy().tolist() == [n] * 4
    assert plan.state["total"].tolist() == [3] * 4


# Errors --------------------------------------------------------------------------------------------------------------


def test_a_buffer_without_room_is_named_and_the_others_given_back(fake_cuda, cuda):
    plan = cuda.compile(network())
    plan.run(inputs(2))
    before = fake_cuda.in_use()
    fake_cuda.total = before + 20000
    with pytest.raises(OutOfDeviceMemory, match=r"buffer '\w+' asks for \d+ bytes on cuda:0, where \d+ of \d+ bytes"):
        plan.run(inputs(400))
    gc.collect()
    assert fake_cuda.in_use() == before + plan.graph({"x": (400, 32), "s": ()}).buffers[SHARED].nbytes
    same(plan.run(inputs(2)), expected(network(), inputs(2)))


def test_no_room_for_weights_leaves_none_behind(fake_cuda, cuda):
    plan = cuda.compile(network())
    fake_cuda.total = 600
    with pytest.raises(OutOfDeviceMemory, match=r"buffer 'w1' asks for 512 bytes on cuda:0, where \d\d of 600 bytes"):
        plan.run(inputs(2))
    assert fake_cuda.in_use() == 0
    fake_cuda.total = 1 << 20
    same(plan.run(inputs(2)), expected(network(), inputs(2)))
    fake_cuda.fail("cuMemAllocHost", 2)
    with pytest.raises(OutOfDeviceMemory, match="pinned host memory"):
        plan.run(inputs(7))


@pytest.mark.parametrize("code", [700, 719])
def test_a_lost_device_names_steps_and_stays_lost(fake_cuda, cuda, code):
    plan = cuda.compile(network())
    out = {"y": np.full((3, 16), 7, np.float32), "k": np.full(3, 7, np.int64)}
    plan.run(inputs(3))
    fake_cuda.fail("cuStreamSynchronize", code)
    with pytest.raises(
        DeviceLost, match=r"cuda:0 was lost when this process had to finish steps '.*nothing was returned"
    ):
        plan.run(inputs(3), out)
    assert all((array == 7).all() for array in out.values())
    for again in (lambda: plan.run(inputs(3)), lambda: cuda.compile(network()), plan.synchronize):
        with pytest.raises(DeviceLost, match="start another"):
            again()


def test_debug_finds_the_step_that_loses_the_device(fake_cuda):
    with tw.CudaExecutor("cuda:0", debug=True) as executor:
        plan = executor.compile(network())
        same(plan.run(inputs(3)), expected(network(), inputs(3)))
        assert [s.step for s in plan.profile(inputs(3), repeat=1).steps] == [step.name for step in plan.order]
        fake_cuda.fail("cuStreamSynchronize", 700, after=1)
        with pytest.raises(DeviceLost, match=r"had to finish step '[^']*': an illegal memory access"):
            plan.run(inputs(3))


def test_a_call_that_fails_leaves_the_plan_usable(fake_cuda, cuda):
    plan = cuda.compile(network())
    right = expected(network(), inputs(3))
    for name in ("cuGraphLaunch", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuGraphInstantiate"):
        fake_cuda.fail(name, 1)
        with pytest.raises(KernelFailed, match=r"CUDA cannot .*CUDA_ERROR_INVALID_VALUE"):
            plan.run(inputs(3 if name != "cuGraphInstantiate" else 9))
        same(plan.run(inputs(3)), right)


def test_memory_that_goes_too_early_loses_the_device(fake_cuda, cuda, tensor):
    """The stand-in itself: a kernel over memory that was freed is an illegal access."""
    x = tensor(inputs(3)["x"])
    plan = cuda.compile(network())
    plan.run({**inputs(3), "x": x}, "device", stream=1)
    fake_cuda.memory.pop(x.address)
    with pytest.raises(DeviceLost, match="illegal memory access"):
        plan.synchronize()


def test_a_child_of_a_fork_is_told(fake_cuda, cuda, monkeypatch):
    plan = cuda.compile(network())
    plan.run(inputs(3))
    monkeypatch.setattr(cuda.runner.context, "pid", -1)
    with pytest.raises(Unsupported, match="does not outlive a fork"):
        plan.run(inputs(3))
    monkeypatch.undo()


def test_a_device_that_is_not_there_is_named(fake_cuda):
    with pytest.raises(Unsupported, match="cuda:2 is not there; this machine has 2"):
        tw.CudaExecutor("cuda:2")


def test_the_stand_in_takes_what_the_driver_takes(absent, fake_module):
    """Names and numbers of parameters, and of attributes, as cuda.bindings.driver has them."""
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        absent(f"cuda.bindings cannot be imported ({error})", "TILEWORK_REQUIRE_PTX")
    for name, act in vars(fake_module.Fake).items():
        if name.startswith("cu") and callable(act):
            taken = getattr(driver, name).__doc__.split("\n")[0].partition("(")[2].rpartition(")")[0]
            depth = [taken[:k].count("[") - taken[:k].count("]") for k in range(len(taken))]
            count = sum(c == "," and not d for c, d in zip(taken, depth, strict=True)) + bool(taken)
            assert count == act.__code__.co_argcount - 1, (name, taken)
    for name in ("CUresult", "CUdevice_attribute", "CUpointer_attribute"):
        for member in getattr(fake_module, name):
            assert int(getattr(getattr(driver, name), member.name)) == int(member), member
    assert vars(fake_module.CUDA_KERNEL_NODE_PARAMS()).keys() <= set(dir(driver.CUDA_KERNEL_NODE_PARAMS))
