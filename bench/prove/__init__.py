"""The proof that anyone can run: every step, type, granularity, layout and executor against the reference, at random.

    tilework doctor --selftest                     two minutes of it
    python -m tilework.bench.prove --count 200000  as much as one likes

draw.py makes random operands, the families (products, codes, elements, moves, windows, weights) make random pipelines
of one step, run.py compares executors with the reference and shrinks what fails, table.py says what was tried.
"""

from .run import Failure as Failure
from .run import Proof as Proof
from .run import again as again

__all__ = ["Failure", "Proof", "again"]
