"""Nearest neighbours by quantized codes: how much recall each bit buys, and how fast it is.

    python examples/vector_search.py                        100,000 vectors of 128, 256 queries
    python examples/vector_search.py --vectors 2000 --queries 20 --check

A database is codes of a Scheme. Scores are products with the packed codes (int8, int4, ..), or for single bits the
number of those that differ; the best k are taken in the same pipeline. NumPy, and faiss where it is installed, do the
same job on as many threads, in the same rounds.
"""

import argparse
import os
import statistics
import time


def arguments():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--vectors", type=int, default=100_000)
    words.add_argument("--queries", type=int, default=256)
    words.add_argument("--width", type=int, default=128, help="numbers of a vector, a multiple of 64")
    words.add_argument("--k", type=int, default=10)
    words.add_argument("--threads", type=int, default=1)
    words.add_argument("--rounds", type=int, default=7)
    words.add_argument("--check", action="store_true", help="compare the bytes with the reference's")
    return words.parse_args()


GIVEN = arguments()
for library in ("OMP", "OPENBLAS", "MKL"):  # before they are imported
    os.environ[f"{library}_NUM_THREADS"] = str(GIVEN.threads)

import numpy as np  # noqa: E402
from numba import njit  # noqa: E402

import tilework as tw  # noqa: E402

try:
    import faiss
except ImportError:
    faiss = None


# Single bits: one scheme, one kernel


def positive(x):
    return 1 if x > 0.0 else 0


def plus_or_minus(q):
    return np.float32(2 * q - 1)


signs = tw.Scheme("signs", 1, "row", {}, encode=positive, decode=plus_or_minus)


class Hamming:
    """How many bits differ: q u8 (M, 8 W) against every column of codes u64 (W, N), to s32 (M, N)."""

    name = "hamming"

    def signature(self):
        return (
            tw.ArgSpec("q", "u8", shape=("M", "8*W"), strides="rows", align=8, follows=("m", None)),
            tw.ArgSpec("codes", "u64", shape=("W", "N"), strides="rows", follows=(None, "n")),
            tw.ArgSpec("y", "s32", "write", shape=("M", "N"), strides="rows", follows=("m", "n")),
        )

    def index_space(self):
        return tw.IndexSpace((tw.Axis("m", "M"), tw.Axis("n", "N")))

    def execute(self, ctx):
        ctx.sweep(self, ctx.read("q").view(np.uint64), ctx.read("codes"), ctx.write("y"))


U = np.uint64
PAIRS, NIBBLES, BYTES, ONES = (
    U(0x5555555555555555),
    U(0x3333333333333333),
    U(0x0F0F0F0F0F0F0F0F),
    U(0x0101010101010101),
)


@njit(nogil=True, error_model="numpy")
def hamming_tile(m0, m1, n0, n1, q, codes, y):
    for m in range(m0, m1):
        row = y[m, n0:n1]
        row[:] = 0
        for w in range(q.shape[1]):
            mine, theirs = q[m, w], codes[w, n0:n1]
            for n in range(row.size):  # LLVM knows this for what it is: the processor's own count of bits
                b = mine ^ theirs[n]
                b = b - ((b >> U(1)) & PAIRS)
                b = (b & NIBBLES) + ((b >> U(2)) & NIBBLES)
                b = (b + (b >> U(4))) & BYTES
                row[n] += np.int32((b * ONES) >> U(56))


@tw.factory.register("hamming", backend="cpu")
def hamming_on_cpu():
    return hamming_tile


@tw.factory.register("hamming", backend="reference")
def hamming_in_numpy():
    def meaning(q, codes, y):
        for m, row in enumerate(q):
            y[m] = np.bitwise_count(row[:, None] ^ codes).sum(axis=0)

    return tw.factory.Whole(meaning)


# Pipelines: queries f32 (M, width) come in, the places of the best k go out


def by_product(scheme, database, k):
    """Scores are products with the codes, whose sums are integers within a block of them."""
    pipe = tw.Pipeline(f"search_{scheme.name}")
    q = scheme.quantize(database)
    scores = tw.ops.linear(pipe.input("queries", "f32", ("M", database.shape[1])), q, compute="int8")
    pipe.output("found", tw.ops.topk(scores, k)[1])
    return pipe, 8 * q.nbytes / database.size


def by_signs(database, k):
    pipe = tw.Pipeline("search_signs")
    codes = signs.quantize(database).codes
    (q,) = tw.ops.encode(pipe.input("queries", "f32", ("M", database.shape[1])), signs)
    away = pipe.add(Hamming(), q=q, codes=pipe.constant("codes", np.ascontiguousarray(codes.view(np.uint64).T)))
    pipe.output("found", tw.ops.topk(away, k, largest=False)[1])
    return pipe, 8 * codes.nbytes / database.size


def in_numpy(database, k):
    """Exact scores in float32."""

    def search(queries):
        scores = queries @ database.T
        best = np.argpartition(scores, -k, axis=1)[:, -k:]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
        return np.take_along_axis(best, order, axis=1)

    return search


def in_faiss(kind, database, k):
    width = database.shape[1]
    if kind == "binary":
        index = faiss.IndexBinaryFlat(width)
        index.add(np.packbits(database > 0, axis=1))
        return lambda queries: index.search(np.packbits(queries > 0, axis=1), k)[1]
    if kind == "flat":
        index = faiss.IndexFlatIP(width)
    else:
        quantizer = {"8 bits": faiss.ScalarQuantizer.QT_8bit, "4 bits": faiss.ScalarQuantizer.QT_4bit}[kind]
        index = faiss.IndexScalarQuantizer(width, quantizer, faiss.METRIC_INNER_PRODUCT)
        index.train(database)
    index.add(database)
    return lambda queries: index.search(queries, k)[1]


def data(rng, vectors, queries, width):
    """Unit vectors in clouds, and queries near some of them."""
    centres = rng.standard_normal((max(1, vectors // 100), width)).astype(np.float32)
    spread = rng.standard_normal((vectors, width)).astype(np.float32)
    database = centres[rng.integers(0, len(centres), vectors)] + np.float32(0.7) * spread
    near = database[rng.integers(0, vectors, queries)]
    asked = near + np.float32(0.5) * rng.standard_normal((queries, width)).astype(np.float32)
    return [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (database, asked)]


def recall(found, right):
    return np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(found, right, strict=True)])


def main():
    given = GIVEN
    database, queries = data(np.random.default_rng(0), given.vectors, given.queries, given.width)
    exact = in_numpy(database, given.k)
    right = exact(queries)
    contenders = [("numpy", "f32", 32.0, exact, None)]
    executor = tw.TilingExecutor(threads=given.threads)
    made = [(name, by_product(tw.schemes.get(name), database, given.k)) for name in ("int8_channel", "int4_g32")]
    made += [(name, by_product(tw.schemes.get(name), database, given.k)) for name in ("int3_g32", "int2_g32")]
    for name, (pipe, bits) in [*made, ("signs", by_signs(database, given.k))]:
        plan = executor.compile(pipe, {"queries": queries.shape})
        contenders.append(("tilework", name, bits, lambda x, plan=plan: plan.run({"queries": x})["found"], pipe))
    if faiss is not None:
        faiss.omp_set_num_threads(given.threads)
        for kind, bits in (("flat", 32), ("8 bits", 8), ("4 bits", 4), ("binary", 1)):
            contenders.append(("faiss", kind, bits, in_faiss(kind, database, given.k), None))
    times = [[] for _ in contenders]
    for _ in range(given.rounds + 1):
        for n, contender in enumerate(contenders):
            start = time.perf_counter()
            contender[3](queries)
            times[n].append(time.perf_counter() - start)
    print(
        f"{given.vectors} vectors of {given.width}, {given.queries} queries, {given.threads} threads, median of rounds"
    )
    print(f"{'':9} {'codes':13} {'bits':>6} {f'recall@{given.k}':>10} {'queries/s':>10}")
    for n, (who, what, bits, search, pipe) in enumerate(contenders):
        found, each = search(queries), statistics.median(times[n][1:])
        print(f"{who:9} {what:13} {bits:6.2f} {recall(found, right):10.3f} {len(queries) / each:10.0f}")
        if given.check and pipe is not None:
            for other in (tw.SingleThreadExecutor(backend="reference"), tw.TilingExecutor(threads=3, chain=False)):
                assert other.run(pipe, {"queries": queries})["found"].tobytes() == found.tobytes(), (what, other)
    if given.check:
        print("every executor found the same")


if __name__ == "__main__":
    main()
