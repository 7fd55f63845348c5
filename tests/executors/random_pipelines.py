"""Random pipelines, and how they are run in every way there is: what the property test and the soak compare.

`make(seed)` builds a pipeline, inputs for it and nothing else; the same seed gives the same pipeline. `compare(case)`
runs it on the reference and on a choice of executors, twice each because of states, and lists what differs.

Most of the time goes into compiling: every new chain of steps behind a product is new code. `pool` bounds that: which
kinds of steps may follow each other, with which types, kinds of parameters and widths, is then drawn from a generator
seeded by the pool and the steps before, and so comes from a finite set that thousands of pipelines share. Structure,
sizes and all numbers stay random.
"""

import contextlib
import functools
import itertools
import math
import zlib
from dataclasses import dataclass, field

import numpy as np

import tilework as tw
from tilework.executors import chaining, cutting
from tilework.primitives.kernel import index_space

WIDTHS = (1, 3, 8, 16, 17, 32, 33, 48, 64, 65)
ROWS = (1, 2, 3, 7, 16, 33, 64, 100)
INFO = {"u8": (0, 255), "s8": (-128, 127), "u16": (0, 65535), "s16": (-32768, 32767), "s32": (-(2**31), 2**31 - 1)}
NUMPY = {"u8": np.uint8, "s8": np.int8, "u16": np.uint16, "s16": np.int16, "s32": np.int32, "f32": np.float32}


# User functions ------------------------------------------------------------------------------------------------------
# One argument, two arguments, and scalars by name; each is compiled once for each set of types that it meets.


def leaky(v, slope):
    r = np.float32(v)
    return r if r > 0 else r * slope


def square(v):
    r = np.float32(v) * np.float32(0.125)
    return r * r


def hard_sigmoid(v):
    r = np.float32(v) * np.float32(0.1) + np.float32(0.5)
    return min(max(r, np.float32(0.0)), np.float32(1.0))


def rounded(v, scale):
    return np.rint(np.float32(v) * scale)


def absolute(v):
    return abs(np.float32(v))


def steps(v):
    r = np.float32(v)
    if r < -1.0:
        return np.float32(-1.0)
    if r > 1.0:
        return np.float32(1.0)
    return np.floor(r)


def smooth(v):
    r = np.float32(v)
    return r / (np.float32(1.0) + abs(r))


def root(v):
    return np.sqrt(abs(np.float32(v)))


def tanh_like(v):
    return np.tanh(np.float32(v) * np.float32(0.25))


def blend(a, b):
    return np.float32(a) * np.float32(0.75) + np.float32(b) * np.float32(0.25)


def larger(a, b):
    x, y = np.float32(a), np.float32(b)
    return x if x > y else y


def gated(a, b, slope):
    return np.float32(a) * slope if np.float32(b) > 0 else np.float32(b)


ONE = (square, hard_sigmoid, absolute, steps, smooth, root, tanh_like)
ONE_SCALED = ((leaky, "slope"), (rounded, "scale"))
TWO = (blend, larger)


# Which steps go on from a type; named more than once, they are taken more often.
STEPS = {
    "u8": ("gemm", "gemm", "gemm", "relu", "clip", "dequantize", "add", "add", "map"),
    "s8": ("gemm", "gemm", "gemm", "relu", "clip", "dequantize", "add", "add", "map"),
    "u16": ("relu", "clip", "dequantize", "add"),
    "s16": ("gemm", "relu", "clip", "dequantize", "add"),
    "s32": ("requantize", "requantize", "requantize", "add", "relu", "clip", "dequantize", "map", "state"),
    "f32": ("gemm", "quantize", "quantize", "add", "relu", "clip", "map", "map", "state", "argmax"),
    "s64": (),
}


# Of a pool: kinds of steps after each chain, of products after each type, and steps of a chain.
BRANCHES, PRODUCTS, LONGEST = 2, 4, 4


# Making one ----------------------------------------------------------------------------------------------------------


@dataclass
class Case:
    """A pipeline, and inputs for each of its runs."""

    seed: int
    pipe: tw.Pipeline
    runs: list
    makers: dict = field(default_factory=dict)


class _Maker:
    def __init__(self, seed, depth=20, wide=False, pool=None):
        self.values = np.random.default_rng(seed)  # structure, sizes and numbers
        self.rng = rng = self.values  # what decides on code; of the pool while a step is made
        self.of_pool = pool
        self.words = {}  # value -> the steps before it, back to the last product
        self.held = []  # values that end a chain
        self.wide = wide  # more types, ranks and functions, each of which is compiled
        self.pipe = tw.Pipeline(f"random_{seed}")
        self.lead = self.pick((("B",), (2,), ("B", "C"), (2, "B"))) if wide else ("B",)
        if self.chance(0.5 if wide else 0.85 if pool is None else 0.97):
            self.lead = ()
        self.rows = "M" if rng.random() < 0.8 else int(rng.choice(ROWS))
        self.specials = rng.random() < 0.05
        self.inputs = {}  # name -> (dtype, shape, how)
        self.pool = []
        self.states = []
        self.depth = int(rng.integers(1, depth + 1))

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    # What comes in

    def input(self, dtype, width=None, shape=None):
        name = f"x{len(self.inputs)}"
        if shape is None:
            lead = self.lead if self.chance(0.8) or not self.wide else ()
            shape = (*lead, self.rows, width or int(self.pick(WIDTHS)))
        value = self.pipe.input(name, dtype, shape)
        self.inputs[name] = (dtype, shape, "data")
        self.pool.append(value)
        return value

    def argument(self, dtype, shape, how):
        name = f"p{len(self.inputs)}"
        self.inputs[name] = (dtype, shape, how)
        return self.pipe.argument(name, dtype, shape)

    def constant(self, dtype, shape):
        if dtype == "f32":
            return self.values.normal(0, 1, shape).astype(np.float32)
        low, high = INFO[dtype]
        if dtype == "s32":
            low, high = -5000, 5000
        return self.values.integers(low, high + 1, shape).astype(NUMPY[dtype])

    def zero_point(self, dtype):
        low, high = INFO[dtype]
        if dtype == "s32":
            low, high = -1000, 1000
        return int(self.values.integers(low, high + 1)) if self.chance(0.7) else 0

    def real(self, shape, low=1e-4, high=1e-1):
        return np.exp(self.values.uniform(math.log(low), math.log(high), shape)).astype(np.float32)

    def parameter(self, dtype, value, how, make):
        """A parameter: one constant, one for each column, or known only at run time."""
        width = value.shape[-1]
        kind = self.rng.random()
        if kind < 0.5:
            return make(())
        if kind < 0.8 and isinstance(width, int) and (self.wide or len(value.shape) == 2):
            return make((width,))
        return self.argument(dtype, (), how)

    # Steps: each takes a value, and returns a new one or None where it doesn't apply

    def of(self, dtypes, but=None):
        found = [v for v in self.pool if v.dtype.name in dtypes and v is not but]
        return self.pick(found) if found else None

    def partner(self, value):
        """Another value that adds to this one, of its type."""
        same = [v for v in self.pool if v.dtype == value.dtype and v.shape == value.shape and v is not value]
        if same and self.chance(0.8):
            return same[int(self.values.integers(len(same)))]
        return None

    def gemm(self, x):
        k = x.shape[-1]
        if not isinstance(k, int) or len(x.shape) < 2 or k > 200:
            return None
        n = int(self.pick(WIDTHS))
        if x.dtype == "f32":
            if self.chance(0.8):
                return tw.ops.gemm(x, self.constant("f32", (k, n)) * np.float32(0.2))
            return tw.ops.gemm(x, self.input("f32", shape=(k, n)))
        if x.dtype == "s16":
            if x.quant is not None and x.quant.zero_point.any():
                return None  # products of s16 have no zero points
            b = self.values.integers(-8, 8, (k, n)).astype(np.int16)
            return tw.ops.gemm(x, b) if k <= 16 else None
        b_dtype = self.pick(("u8", "s8"))
        zero_points = {}
        if self.chance(0.5):
            zero_points["a_zero_point"] = self.constant(x.dtype.name, ())
        elif self.wide and self.chance(0.1) and isinstance(x.shape[-2], int):
            zero_points["a_zero_point"] = self.constant(x.dtype.name, (x.shape[-2],))
        elif self.chance(0.1):
            zero_points["a_zero_point"] = self.argument(x.dtype.name, (), "data")
        if self.chance(0.3):
            zero_points["b_zero_point"] = self.constant(b_dtype, (n,) if self.wide and self.chance(0.5) else ())
        if self.chance(0.8):
            b = self.constant(b_dtype, (k, n))
        else:
            lead = x.shape[:-2] if self.wide and self.chance(0.3) else ()
            b = self.input(b_dtype, shape=(*lead, k, n))
        return tw.ops.gemm(x, b, **zero_points)

    def requantize(self, acc):
        dtype = self.pick(("u8", "s8", "s16", "u16", "s32") if self.wide else ("u8", "s8"))
        bounds = {}
        if self.chance(0.3):
            low, high = INFO[dtype]
            lo, hi = sorted(self.values.integers(low, high + 1, 2).tolist())
            bounds = {"lo": int(lo), "hi": int(hi)}
        zero_point = self.zero_point(dtype)
        if self.wide and self.chance(0.25):
            width = acc.shape[-1] if isinstance(acc.shape[-1], int) else 1
            ratio = self.real((width,) if self.chance(0.5) else (), 1e-4, 1e-1)
            return tw.ops.requantize(
                acc, multiplier=ratio, zero_point=zero_point, dtype=dtype, arithmetic="fixed", **bounds
            )
        multiplier = self.parameter("f32", acc, "scale", lambda shape: self.real(shape, 1e-4, 1e-1))
        return tw.ops.requantize(acc, multiplier=multiplier, zero_point=zero_point, dtype=dtype, **bounds)

    def dequantize(self, q):
        scale = self.parameter("f32", q, "scale", self.real)
        return tw.ops.dequantize(q, scale, zero_point=self.zero_point(q.dtype.name))

    def quantize(self, x):
        dtype = self.pick(("u8", "s8", "s16", "s32") if self.wide else ("u8", "s8"))
        scale = self.parameter("f32", x, "scale", self.real)
        rounding = "half_even"
        if self.chance(0.1):
            rounding = self.pick(("half_away", "floor", "toward_zero", "half_up")) if self.wide else "stochastic"
        return tw.ops.quantize(x, scale, zero_point=self.zero_point(dtype), dtype=dtype, rounding=rounding, seed=7)

    def add(self, x):
        name = x.dtype.name
        other = self.partner(x)
        if name in ("f32", "s32"):
            if other is None:
                other = self.constant(name, (x.shape[-1],)) if isinstance(x.shape[-1], int) else None
            if other is None:
                return None
            return tw.ops.add(x, other) if self.chance(0.7) else tw.ops.add(other, x)
        if name not in ("u8", "s8", "u16", "s16"):
            return None
        if other is None:
            others = [v for v in self.pool if v.dtype.name in ("u8", "s8", "s16") and v.shape == x.shape]
            other = self.pick(others) if others and self.wide else x
        to = self.pick(("u8", "s8")) if self.wide else name
        scales = {"a_scale": self.real(()), "b_scale": self.real(()), "scale": self.real(())}
        points = {"a_zero_point": self.zero_point(name), "b_zero_point": self.zero_point(other.dtype.name)}
        if self.chance(0.2):
            scales["scale"] = self.argument("f32", (), "scale")
        return tw.ops.add(x, other, **scales, **points, zero_point=self.zero_point(to), dtype=to)

    def relu(self, x):
        if x.dtype == "f32":
            return tw.ops.relu(x)
        return tw.ops.relu(x, zero_point=NUMPY[x.dtype.name](self.zero_point(x.dtype.name)))

    def clip(self, x):
        name = x.dtype.name
        shape = (x.shape[-1],) if isinstance(x.shape[-1], int) and self.wide and self.chance(0.3) else ()
        a, b = self.constant(name, shape), self.constant(name, shape)
        lo, hi = np.minimum(a, b), np.maximum(a, b)
        if self.wide and self.chance(0.2):
            return tw.ops.clip(x, lo=lo)
        return tw.ops.clip(x, lo=lo, hi=hi)

    def map(self, x):
        name = x.dtype.name
        if name not in (("f32", "s32", "u8", "s8") if self.wide else ("f32",)):
            return None
        to = "s8" if self.wide and self.chance(0.2) else "f32"
        other = self.partner(x)
        kind = self.rng.random()
        if other is not None and kind < 0.4:
            if kind < 0.1:
                return tw.ops.map(gated, x, other, slope=self.argument("f32", (), "scale"), dtype="f32")
            return tw.ops.map(self.pick(TWO), x, other, dtype="f32")
        if kind < 0.6:
            fn, scalar = self.pick(ONE_SCALED)
            scale = self.parameter("f32", x, "scale", self.real)
            return tw.ops.map(fn, x, dtype="f32", **{scalar: scale})
        return tw.ops.map(self.pick(ONE), x, dtype=to)

    def state(self, x):
        """A state of this value's type and shape: what goes on is the two together, which is also what is kept."""
        if x.dtype.name not in ("f32", "s32") or len(self.states) > 1:
            return None
        kept = self.pipe.state(f"state{len(self.states)}", x.dtype.name, x.shape, 0)
        y = tw.ops.add(x, kept)
        if x.dtype == "f32":
            y = tw.ops.clip(y, lo=np.float32(-1e6), hi=np.float32(1e6))
        self.pipe.update(kept, y)
        self.states.append(kept)
        self.pool.append(kept)
        return y

    def argmax(self, x):
        if not isinstance(x.shape[-1], int) or x.dtype.name == "u16" or len(x.shape) < 2:
            return None
        return tw.ops.argmax(x, axis=-1, dtype=self.pick(("s32", "s64")), keepdims=True)

    def build(self):
        for _ in range(int(self.rng.integers(1, 4))):
            self.input(self.pick(("u8", "s8", "u8", "f32", "s16", "s32") if self.wide else ("u8", "s8", "f32")))
        made = tries = 0
        while made < self.depth and tries < 10 * self.depth:
            tries += 1
            x = self.pool[-1] if self.chance(0.65) else self.pick(self.pool)
            y = self.step(x)
            if y is None:
                continue
            made += 1
            self.pool.append(y)
        results = [v for v in self.pool if v.kind == "result"]
        last = results[-1:] or self.pool[-1:]
        more = [v for v in self.pool if v is not last[0] and self.chance(0.1)]
        held = [v for v in self.held if v is not last[0] and v not in more]
        for n, value in enumerate([*more, *held, *last]):
            self.pipe.output(f"y{n}", value)
        return self

    def step(self, x):
        """A step that takes x: its result, or None where what was drawn doesn't apply."""
        options = STEPS[x.dtype.name]
        if not options:
            return None
        if self.of_pool is None:
            return getattr(self, self.pick(options))(x)
        before = self.words.get(x, (x.dtype.name,))
        word = (*before, int(self.values.integers(BRANCHES)))
        self.rng = self.drawn(word)
        op = self.pick(options)
        if op == "gemm":
            word = (f"gemm {x.dtype.name}", int(self.values.integers(PRODUCTS)))
            self.rng = self.drawn(word)
        y = getattr(self, op)(x)
        self.rng = self.values
        if y is not None and y.kind == "result":
            self.words[y] = word
            if len(word) > LONGEST:
                self.held.append(y)  # an output ends a chain
                self.words[y] = (y.dtype.name,)
        return y

    def drawn(self, word):
        """The generator of what follows these steps, the same for all pipelines of the pool."""
        return np.random.default_rng([self.of_pool, zlib.crc32(repr(word).encode())])

    def arrays(self, env):
        found = {}
        for name, (dtype, shape, how) in self.inputs.items():
            sizes = [x if isinstance(x, int) else env[str(x)] for x in shape]
            if how == "scale":
                found[name] = self.real(sizes)
            elif dtype == "f32":
                data = self.rng.normal(0, 2, sizes).astype(np.float32)
                if self.specials and data.size:
                    data.flat[::7] = self.rng.choice(np.array([np.inf, -np.inf, -0.0, 1e30], np.float32))
                found[name] = data
            else:
                low, high = (-(10**6), 10**6) if dtype == "s32" else INFO[dtype]
                found[name] = self.rng.integers(low, high + 1, sizes).astype(NUMPY[dtype])
                if self.chance(0.1):
                    found[name] = self.rng.choice(np.array([low, high], NUMPY[dtype]), sizes)
        return found


def make(seed, depth=20, wide=False, pool=None):
    """A case: the same arguments give the same. Sizes that are known only at run time differ between its two runs."""
    maker = _Maker(seed, depth, wide, pool).build()
    envs = []
    for n in range(2):
        if n and maker.states:
            envs.append(envs[0])  # a state keeps its size
            continue
        rows = int(maker.pick(ROWS)) if maker.chance(0.97) else 0
        envs.append({"M": rows, "B": int(maker.rng.integers(1, 4)), "C": int(maker.rng.integers(1, 3))})
    return Case(seed, maker.pipe, [maker.arrays(env) for env in envs])


# Running it in every way ---------------------------------------------------------------------------------------------


TILES = ("default", "minimal", "odd")
THREADS = (1, 2, 3)
VARIANTS = [
    (tile, threads, fuse, chain)
    for tile, threads, fuse, chain in itertools.product(TILES, THREADS, (True, False), (True, False))
]


@contextlib.contextmanager
def thresholds(tile):
    """Nothing is too small for a chain or a second thread while tiles are minimal or odd."""
    names = [(chaining, "WORTH", 0), (chaining, "LEAST_ROWS", 1 if tile == "minimal" else 3)]
    names += [(chaining, "L2", 1 if tile == "minimal" else 1000), (cutting, "SMALL", 0)]
    before = [getattr(module, name) for module, name, _ in names]
    try:
        if tile != "default":
            for module, name, value in names:
                setattr(module, name, value)
        yield
    finally:
        for (module, name, _), value in zip(names, before, strict=True):
            setattr(module, name, value)


@functools.lru_cache(maxsize=4)
def lowered(pipe, fuse, chain):
    """The steps that run, which no thread count changes."""
    return tw.TilingExecutor(1, fuse=fuse, chain=chain).compile(pipe).lowered.pipe.steps


def fixed_tiles(pipe, options, tile, share, seed):
    """tile= for a share of the steps: one multiple of each axis at a time, or three."""
    rng = np.random.default_rng(seed)
    found = {}
    for step in lowered(pipe, options["fuse"], options["chain"]):
        space = index_space(step.kernel)
        if space is None or rng.random() > share:
            continue
        times = 1 if tile == "minimal" else 3
        sizes = {a.name: a.multiple * times for a in space.axes if a.split and rng.random() < 0.7}
        if sizes:
            found[step.name] = sizes
    return found


def variant(case, tile, threads, fuse, chain):
    """A plan of the case; to be made and run under `thresholds(tile)`."""
    options = {"threads": threads, "fuse": fuse, "chain": chain}
    if tile == "default":
        return tw.TilingExecutor(**options).compile(case.pipe)
    share = 0.15 if chain else 0.7
    tiles = fixed_tiles(case.pipe, options, tile, share, case.seed)
    return tw.TilingExecutor(**options, tile=tiles).compile(case.pipe)


def results(plan, case):
    """Outputs of every run, and the states at the end; run twice at each size, so that the second takes the short way."""
    found = []
    for inputs in case.runs:
        for _ in range(2):
            found.append(plan.run(inputs))
    return found, {name: np.array(a) for name, a in plan.state.items()}


def differences(expected, found):
    """What differs in bytes, as texts."""
    wrong = []
    for n, (want, have) in enumerate(zip(expected[0], found[0], strict=True)):
        wrong += [f"run {n}: {text}" for text in _compare(want, have)]
    return wrong + [f"state {text}" for text in _compare(expected[1], found[1])]


def _compare(want, have):
    if want.keys() != have.keys():
        return [f"{sorted(want)} but {sorted(have)}"]
    wrong = []
    for name, a in want.items():
        b = have[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            wrong.append(f"{name}: {a.dtype} {a.shape} but {b.dtype} {b.shape}")
        elif a.tobytes() != b.tobytes():
            bad = np.frombuffer(a.tobytes(), np.uint8) != np.frombuffer(b.tobytes(), np.uint8)
            at = tuple(int(x) for x in np.unravel_index(int(np.argmax(bad)) // a.itemsize, a.shape))
            wrong.append(f"{name} {a.dtype} {a.shape}: {int(bad.sum())} bytes, first at {at}: {a[at]!r} but {b[at]!r}")
    return wrong


def chosen(seed, count):
    """`count` variants of the 36, others for another seed, so that all of them have their turn."""
    start = seed * count
    order = np.random.default_rng(1).permutation(len(VARIANTS))
    return [VARIANTS[order[(start + n) % len(VARIANTS)]] for n in range(count)]


def compare(case, variants, reference=True):
    """Run a case on the reference and in these variants; returns [(variant, text)], empty where all bytes are equal."""
    expected = results(tw.SingleThreadExecutor("reference" if reference else "cpu").compile(case.pipe), case)
    wrong = []
    found = results(tw.SingleThreadExecutor().compile(case.pipe), case)
    wrong += [("single thread", text) for text in differences(expected, found)]
    for which in variants:
        with thresholds(which[0]):
            found = results(variant(case, *which), case)
        wrong += [(which, text) for text in differences(expected, found)]
    return wrong


# Making a failure small ----------------------------------------------------------------------------------------------


def part(case, name):
    """The case with one value for its output, and only the steps, inputs and states that it takes."""
    old, new = case.pipe, tw.Pipeline(f"{case.pipe.name}_part")
    values = {**old.values, **{v.name: v for step in old.steps for v in step.outputs.values()}}
    needed, todo = set(), [values[name]]
    while todo:
        value = todo.pop()
        if value.name in needed:
            continue
        needed.add(value.name)
        if value.producer is not None:
            todo += value.producer[0].inputs.values()
        if value.name in old.updates:
            todo.append(old.updates[value.name])
    copies = {}
    for value in old.values.values():
        if value.kind != "result" and value.name in needed:
            copy = new._declare(value.name, value.dtype, value.shape, value.kind, value.axes, value.quant)
            copy.data = value.data
            copies[id(value)] = copy
    for step in old.order():
        if any(v.name in needed for v in step.outputs.values()):
            new.add(step.kernel, step_name=step.name, **{slot: copies[id(v)] for slot, v in step.inputs.items()})
            copies |= {id(v): new.steps[-1].outputs[slot] for slot, v in step.outputs.items()}
    new.output("y", copies[id(values[name])])
    for state, value in old.updates.items():
        if state in needed:
            new.update(new.values[state], copies[id(value)])
    inputs = {n for n, v in new.values.items() if v.kind in ("input", "argument")}
    return Case(case.seed, new, [{n: a for n, a in run.items() if n in inputs} for run in case.runs])


def shrunk(case, which):
    """The first value in running order that differs in this variant when it is the only output: its name, or None."""
    for step in case.pipe.order():
        for value in step.outputs.values():
            try:
                small = part(case, value.name)
                if compare(small, [] if which == "single thread" else [which]):
                    return value.name
            except Exception:  # a part that cannot be made or run by itself shows nothing
                continue
    return None
