"""What the pages say: every Python block runs, every command is the one that CI runs, every count is right."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SMALL = {  # how an example is run here; the README says how people do
    "etl.py": ["--rows", "20000", "--check", "--rounds", "1"],
    "onnx_models.py": ["--only", "image_cnn", "--rounds", "1"],
    "render.py": ["--size", "96x72", "--check"],
    "vector_search.py": ["--vectors", "2000", "--queries", "20", "--rounds", "1", "--check"],
}
EXAMPLES = sorted(p for p in (ROOT / "examples").glob("*.py") if p.name != "train_digits.py")  # test_demo trains


def blocks(text, language):
    """Return the (line number, code) of each fenced block of a language."""
    fence = re.compile(rf"^```{language}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [(text[: found.start(1)].count("\n"), found.group(1)) for found in fence.finditer(text)]


def script_of(page):
    """Join the Python blocks of a page, each on the line where it stands there, so that a traceback fits the page."""
    script = ""
    for line, code in blocks(page.read_text(encoding="utf-8"), "python"):
        script += "\n" * (line - script.count("\n")) + code
    return script


def run(path, cwd, *words, **environment):
    command = [sys.executable, "-W", "error", str(path), *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("page", [p for p in PAGES if script_of(p)], ids=lambda p: p.name)
def test_the_python_blocks_of_a_page_run_in_order(page, tmp_path):
    script = tmp_path / f"{page.stem.replace('-', '_')}.py"  # a file: user functions are read from their source
    script.write_text(script_of(page), encoding="utf-8")
    run(script, tmp_path)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_an_example_runs_and_the_readme_says_how(example, tmp_path):
    assert run(example, tmp_path, *SMALL.get(example.name, ()))
    assert f"examples/{example.name}" in README


def test_an_example_prints_the_same_as_plain_python(tmp_path):
    example = ROOT / "examples" / "int8_gemm_pipeline.py"
    assert run(example, tmp_path, NUMBA_DISABLE_JIT="1") == run(example, tmp_path)


def test_ci_installs_and_tests_as_the_readme_says():
    demo, test = (code.strip() for _, code in blocks(README, "sh"))
    setup = "python3 -m venv .venv && . .venv/bin/activate && "
    assert demo == setup + "pip install -e . && tilework demo"
    command = test.removeprefix(setup + "pip install -e '.[dev]' && ")
    assert command == "python -m pytest -n logical --dist worksteal"
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "pip install --quiet -e '.[dev]'" in ci
    assert command in ci


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_within_the_repository_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_room_map_names_every_room():
    rooms = {p.parent.name for p in ROOT.glob("*/__init__.py")} | {"tests", "docs", "examples"}
    assert [room for room in sorted(rooms) if f"{room}/" not in README] == []


def counted(page):
    """Return the blocks that a page counts: {name: lines of code}, without blank lines, comments and imports."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"<!-- counted: ([\w -]+) -->\n+```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    is_code = re.compile(r"\s*(?!#|import |from )\S")
    return {name: sum(bool(is_code.match(line)) for line in code.splitlines()) for name, code in found}


def test_the_lines_that_a_kernel_costs_are_counted():
    page = ROOT / "docs" / "when-to-write-a-kernel.md"
    table = re.findall(r"^\| ([\w -]+?) \| (\d+) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: int(lines) for name, lines in table} == counted(page)
    assert len(table) >= 4


@pytest.mark.parametrize("page", ["numerics.md", "faults.md"])
def test_pages_name_tests_that_exist(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named, file = 0, None
    for path, name in re.findall(r"`(tests/[\w/]+\.py)?::(\w+)`", text):
        file = path or file
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {name}"
        named += 1
    assert named > 30
