"""`tilework bench scaling`: a batch job on 1, 2, .. local workers of Dask, with the same bytes, and how it scales.

The job is an int8 network of two layers on blocks of tokens; workers make their blocks and send back a class each, as a job
over files does. Every round times all numbers of workers in turn, on one cluster.
"""

from __future__ import annotations

import logging
import statistics
import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

import tilework as tw
from tilework.primitives.errors import Unsupported

WIDTH, HIDDEN, CLASSES = 768, 1536, 16


def job() -> tw.Pipeline:
    """u8 (M, 768) to the place of the largest of 16 scores."""
    rng = np.random.default_rng(0)
    pipe = tw.Pipeline("batch")
    x = pipe.input("x", "u8", ("M", WIDTH))
    w1, w2 = (rng.integers(-127, 128, s, dtype=np.int8) for s in ((WIDTH, HIDDEN), (HIDDEN, CLASSES)))
    h = tw.ops.relu(tw.ops.requantize(tw.ops.gemm(x, w1, a_zero_point=128), multiplier=1e-4, dtype="u8"))
    pipe.output("best", tw.ops.argmax(tw.ops.gemm(h, w2), dtype="s32"))
    return pipe


class Reader:
    """Makes block n, as a file would be read."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __call__(self, n: int) -> dict[str, Any]:
        return {"x": np.random.default_rng(n).integers(0, 256, (self.rows, WIDTH), dtype=np.uint8)}


def measure(workers: Sequence[int], blocks: int, rows: int, rounds: int) -> dict[str, Any]:
    """Blocks a second for each number of workers, and the efficiency: how near it comes to so many times one worker's."""
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise Unsupported(f"dask cannot be imported ({error}); pip install 'tilework[dask]'") from error
    counts = sorted({1, *workers})
    times: dict[int, list[float]] = {n: [] for n in counts}
    pipe, reader = job(), Reader(rows)
    alone = tw.TilingExecutor(threads=1).compile(pipe, {"x": (rows, WIDTH)})
    start = time.perf_counter()
    right = zlib.crc32(b"".join(alone.run(reader(n))["best"].tobytes() for n in range(blocks)))
    own = time.perf_counter() - start
    with (
        dask.config.set({"logging.distributed": "error"}),
        LocalCluster(
            n_workers=counts[-1],
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=logging.ERROR,
        ) as cluster,
        Client(cluster) as client,
    ):
        addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
        plans = [
            tw.DaskExecutor(client, threads=1, workers=addresses[:n]).compile(pipe, {"x": (rows, WIDTH)})  # type: ignore[attr-defined]
            for n in counts
        ]
        for turn in range(rounds + 1):
            for n, plan in zip(counts, plans, strict=True):
                todo = (
                    min(blocks, 4 * n) if turn == 0 else blocks
                )  # in the first turn, plans are made and code is loaded
                start = time.perf_counter()
                found = zlib.crc32(b"".join(r["best"].tobytes() for r in plan.files(range(todo), reader)))
                if turn:
                    times[n].append(time.perf_counter() - start)
                    if found != right:
                        raise AssertionError(f"{n} workers gave other bytes than one process")
    one = times[1]
    return {
        "blocks": blocks,
        "rows": rows,
        "without_dask_s": own,
        "workers": [
            {
                "workers": n,
                "s": statistics.median(times[n]),
                "blocks_per_s": blocks / statistics.median(times[n]),
                "efficiency": statistics.median(a / b / n for a, b in zip(one, times[n], strict=True)),
            }
            for n in counts
        ],
    }


def show(result: dict[str, Any]) -> None:
    """Print the result of `measure` for people."""
    print(f"{result['blocks']} blocks of {result['rows']} rows; in this process {result['without_dask_s']:.2f} s")
    for row in result["workers"]:
        print(
            f"  {row['workers']} workers {row['s']:6.2f} s {row['blocks_per_s']:8.1f} blocks a second, "
            f"efficiency {row['efficiency']:.1%}"
        )
