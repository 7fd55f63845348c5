"""Mistakes seeded into CUDA kernels: the interpreter, or a result that differs, shows nine in ten of them."""

from tilework.bench.checks import cuda_mutations


def test_the_interpreter_catches_seeded_mistakes(report):
    assert cuda_mutations.caught_by(None) is None
    found = {mutation: cuda_mutations.caught_by(mutation) for mutation in cuda_mutations.chosen(35, seed=0)}
    missed = [str(mutation) for mutation, how in found.items() if how is None]
    report("seeded mistakes in CUDA kernels that were caught", f"{len(found) - len(missed)} of {len(found)}")
    for mutation in missed:
        report("not caught", mutation)
    assert len(missed) <= 0.1 * len(found), missed
