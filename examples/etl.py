"""Filter, join, map and aggregate a few million rows, in a stream of batches, beside Polars.

    python examples/etl.py                          4 million rows in memory, on 1 thread
    python examples/etl.py --threads 2 --parquet    from a Parquet file that the script writes
    python examples/etl.py --rows 20000 --check     small, and the same bytes from every executor and any batches
    python examples/etl.py --memory                 10^5 to 10^8 rows, made as they come: how much memory each takes

The job: of sales with a price and more than one item, the revenue by customer: rows, sum, mean, least, largest.
Customers are joined by their key, some prices are null.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def arguments():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--rows", type=int, default=4_000_000)
    words.add_argument("--customers", type=int, default=1000)
    words.add_argument("--threads", type=int, default=1)
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--parquet", action="store_true", help="read the rows from a file")
    words.add_argument("--check", action="store_true", help="compare the bytes of every executor and of other batches")
    words.add_argument("--memory", action="store_true", help="stream 10^5 to 10^8 rows, each in a process of its own")
    words.add_argument("--most", type=int, default=10**8, help="rows of the longest stream of --memory")
    words.add_argument("--made", type=int, help=argparse.SUPPRESS)
    return words.parse_args()


GIVEN = arguments()
os.environ["POLARS_MAX_THREADS"] = str(GIVEN.threads)  # before it is imported

import numpy as np  # noqa: E402

import tilework as tw  # noqa: E402

try:
    import pyarrow as pa
    import pyarrow.parquet
except ImportError:
    pa = None
try:
    import polars as pl
except ImportError:
    pl = None

BATCH = 2**17


def sales(rng, rows, customers):
    """Columns of so many rows: customer and item s64 and s32, price f32, and where there is one, discount f32."""
    return {
        "customer": (rng.integers(0, customers, rows) * 7919 + 10**12).astype(np.int64),
        "items": rng.integers(1, 6, rows).astype(np.int32),
        "price": (rng.gamma(2.0, 20.0, rows)).astype(np.float32),
        "price_valid": rng.random(rows) < 0.95,
        "discount": rng.random(rows, dtype=np.float32) * np.float32(0.3),
    }


def keys_of(customers):
    return np.random.default_rng(1).permutation(np.arange(customers, dtype=np.int64) * 7919 + 10**12)


def wanted(items, priced):
    return items > 1 and priced


def revenue(price, items, discount):
    return price * items * (np.float32(1) - discount)


def job(customers):
    """The pipeline: columns come in, and what is known so far goes out."""
    pipe = tw.Pipeline("sales")
    customer = pipe.input("customer", "s64", ("N",))
    items = pipe.input("items", "s32", ("N",))
    price, priced = pipe.input("price", "f32", ("N",)), pipe.input("price_valid", "bool", ("N",))
    discount = pipe.input("discount", "f32", ("N",))
    chosen = tw.ops.map(wanted, items, priced, dtype="bool")
    code = tw.ops.join(customer, keys_of(customers))
    value = tw.ops.map(revenue, price, items, discount)
    results = tw.ops.group_by(
        code,
        customers,
        {
            "rows": "count",
            "sum": ("sum", value),
            "mean": ("mean", value),
            "least": ("min", value),
            "largest": ("max", value),
            "items": ("sum", items),
        },
        where=chosen,
    )
    for name, result in results.items():
        pipe.output(name, result)
    return pipe


def in_polars(frame, customers):
    """The same job, lazily."""
    right = pl.LazyFrame({"customer": keys_of(customers), "code": np.arange(customers, dtype=np.int32)})
    value = (pl.col("price") * pl.col("items").cast(pl.Float32) * (1 - pl.col("discount"))).cast(pl.Float32)
    return (
        frame.filter((pl.col("items") > 1) & pl.col("price").is_not_null())
        .join(right, on="customer")
        .with_columns(value.alias("value"))
        .group_by("code")
        .agg(
            pl.len().alias("rows"),
            pl.col("value").cast(pl.Float64).sum().alias("sum"),
            pl.col("value").cast(pl.Float64).mean().alias("mean"),
            pl.col("value").min().alias("least"),
            pl.col("value").max().alias("largest"),
            pl.col("items").cast(pl.Int64).sum().alias("items"),
        )
        .sort("code")
    )


def batches_of(columns, rows):
    for start in range(0, len(columns["items"]), rows):
        yield {name: x[start : start + rows] for name, x in columns.items()}


def arrow_of(columns):
    """The same rows as an Arrow table, with nulls for the prices that are not there."""
    made = {name: pa.array(x) for name, x in columns.items() if name not in ("price", "price_valid")}
    made["price"] = pa.array(columns["price"], mask=~columns["price_valid"])
    return pa.table(made)


def compare(given):
    columns = sales(np.random.default_rng(0), given.rows, given.customers)
    pipe = job(given.customers)
    executor = tw.TilingExecutor(threads=given.threads)
    table = arrow_of(columns) if pa else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sales.parquet"
        if given.parquet:
            pyarrow.parquet.write_table(table, path, compression="none")

        stream = tw.Stream(executor, pipe)

        def ours():
            stream.state.clear()
            if given.parquet:
                return stream.last(tw.arrow.read(path, pipe, rows=BATCH))
            return stream.last(tw.arrow.read(table, pipe, rows=BATCH) if table else batches_of(columns, BATCH))

        def theirs():
            frame = pl.scan_parquet(path) if given.parquet else pl.from_arrow(table).lazy()
            return in_polars(frame, given.customers).collect()

        found = ours()
        times = {"tilework": [], "polars": []}
        if pl is not None and pa is not None:
            other = theirs()
            for name in ("rows", "items", "least", "largest"):
                assert (other[name].to_numpy() == found[name]).all(), name
            for name in ("sum", "mean"):
                np.testing.assert_allclose(other[name].to_numpy(), found[name], rtol=1e-12)
            print("polars finds the same: counts, integers, least and largest equal, sums of floats within 1e-12")
        for _ in range(given.rounds):
            for name, run in (
                ("tilework", ours),
                *((("polars", theirs),) if pl is not None and pa is not None else ()),
            ):
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
        print(f"{given.rows} rows, {given.customers} customers, {given.threads} threads, median of {given.rounds}")
        for name, each in times.items():
            if each:
                best = statistics.median(each)
                print(f"  {name:9} {1e3 * best:8.1f} ms {given.rows / best / 1e6:8.1f} million rows a second")
        if times["polars"]:
            ratio = statistics.median(b / a for a, b in zip(times["tilework"], times["polars"], strict=True))
            print(f"  ratio {ratio:.2f}")
    if given.check:
        for other in (
            tw.SingleThreadExecutor(backend="reference"),
            tw.SingleThreadExecutor(),
            tw.TilingExecutor(threads=2),
            tw.TilingExecutor(threads=3, chain=False, fuse=False),
        ):
            for rows in (given.rows, 4999):
                same = tw.Stream(other, pipe, rows=rows).last(batches_of(columns, rows))
                assert all(same[name].tobytes() == found[name].tobytes() for name in found), other
        print("every executor gives the same bytes, whatever the batches")


def stream_made(rows, customers, threads):
    """Stream rows that are made as they come, and print the most memory that the process ever had."""
    rng = np.random.default_rng(0)

    def made():
        batch = sales(rng, BATCH, customers)  # the same numbers again and again: making them is not the job
        for start in range(0, rows, BATCH):
            yield {name: x[: rows - start] for name, x in batch.items()}

    stream = tw.Stream(tw.TilingExecutor(threads=threads), job(customers))
    start = time.perf_counter()
    found = stream.last(made())
    took = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  {rows:>11} rows {took:8.2f} s, {peak:6.0f} MiB at most, {int(found['rows'].sum())} rows counted")


def main():
    if GIVEN.made:
        stream_made(GIVEN.made, GIVEN.customers, GIVEN.threads)
    elif GIVEN.memory:
        rows = 10**5
        while rows <= GIVEN.most:
            words = [sys.executable, __file__, "--made", str(rows), "--threads", str(GIVEN.threads)]
            subprocess.run(words, check=True)
            rows *= 10
    else:
        compare(GIVEN)


if __name__ == "__main__":
    main()
