"""Mutants: what is made of a file, and that reasons for those that survive are of lines that are there."""

import ast

from tilework.bench.checks import equivalent_mutants, mutations


def test_reasons_are_of_lines_that_are_there():
    assert equivalent_mutants.gone() == []
    used = {alike.reason for alike in equivalent_mutants.ALIKE}
    assert used == set(equivalent_mutants.REASONS)


def test_a_survivor_is_explained_by_its_line_its_function_and_its_rule():
    text = (mutations.PACKAGE / "primitives/layout.py").read_text(encoding="utf-8").splitlines()
    line = 1 + next(n for n, t in enumerate(text) if t.strip() == "low = first + sum(s for s in steps if s < 0)")
    assert equivalent_mutants.why("primitives/layout.py", line, "Lt is LtE") == "same"
    assert equivalent_mutants.why("primitives/layout.py", line, "Add is Sub") is None
    assert equivalent_mutants.why("primitives/buffer.py", line, "Lt is LtE") is None
    arena = (mutations.PACKAGE / "primitives/arena.py").read_text(encoding="utf-8")
    inside = next(
        n for n in ast.walk(ast.parse(arena)) if isinstance(n, ast.FunctionDef) and n.name == "_moved"
    ).body[-1].lineno  # fmt: skip
    assert equivalent_mutants.why("primitives/arena.py", inside, "Add is Sub") == "search"


def test_every_mutant_changes_its_file():
    file = "executors/intervals.py"
    right = ast.unparse(ast.parse((mutations.PACKAGE / file).read_text(encoding="utf-8")))
    made = mutations.mutants(file)
    assert len(made) > 50
    assert not any("strict" in str(m) and m.rule.startswith("True") for m in made)
    for mutant in made[::7]:
        tree = ast.parse((mutations.PACKAGE / file).read_text(encoding="utf-8"))
        list(mutations._walk(tree, None, ()))[mutant.number][3]()
        assert ast.unparse(tree) != right, mutant
