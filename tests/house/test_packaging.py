"""What is shipped: the rooms and nothing else, from a folder of any name."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
UNSHIPPED = ("tests", "docs", "examples", "build", "dist", "venv")  # folders of the checkout that are no room

DATA = {"py.typed", "bench/data/digits.npz", "bench/data/README.md", "kernels/schemes/gguf/grids.npz"}


def sources():
    """Return every Python file of the package, relative to its root."""
    files = (p.relative_to(ROOT) for p in ROOT.rglob("*.py"))
    return {p.as_posix() for p in files if p.parts[0] not in UNSHIPPED and not p.parts[0].startswith(".")}


def test_packages_lists_every_room():
    block = re.search(r"^packages = \[(.*?)\]", PROJECT, re.S | re.M).group(1)
    listed = re.findall(r'"([\w.]+)"', block)
    folders = {Path(f).parent for f in sources() if f.endswith("__init__.py")}
    assert sorted(listed) == sorted(".".join(["tilework", *folder.parts]) for folder in folders)


def test_every_room_with_sources_is_a_package():
    folders = {(ROOT / f).parent for f in sources()}
    assert [str(f) for f in folders if not (f / "__init__.py").exists()] == []


def test_no_stray_module_at_the_root():
    # setuptools would ship it as tilework.<name>
    assert {p.name for p in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the sdist, and the wheel from the sdist, in a copy of the checkout whose folder has another name."""
    checkout = tmp_path_factory.mktemp("elsewhere") / "some other-name.2"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "venv")
    shutil.copytree(ROOT, checkout, ignore=ignored)
    for name in (".ci", ".pre-commit-config.yaml"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, checkout / name)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", str(checkout)], capture_output=True, text=True, cwd=checkout
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,) = (checkout / "dist").glob("*.tar.gz")
    (wheel,) = (checkout / "dist").glob("*.whl")
    return sdist, wheel


@pytest.mark.slow
def test_the_wheel_holds_the_rooms_and_nothing_else(built):
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
        (info,) = {n.split("/")[0] for n in names if ".dist-info/" in n}
        metadata = BytesParser().parsebytes(wheel.read(f"{info}/METADATA"))
        scripts = wheel.read(f"{info}/entry_points.txt").decode()
    assert {n.split("/")[0] for n in names} == {"tilework", info}
    shipped = {n.removeprefix("tilework/") for n in names if n.startswith("tilework/")}
    assert {n for n in shipped if n.endswith(".py")} == sources()
    assert {n for n in shipped if not n.endswith(".py")} == DATA
    assert f"{info}/licenses/LICENSE" in names
    assert "tilework = tilework.bench.cli:main" in scripts
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == "<3.14,>=3.10"
    extras = {"onnx", "gguf", "cuda12", "cuda13", "plot", "dask", "peers", "dev"}
    assert extras <= set(metadata.get_all("Provides-Extra"))
    core = {re.match(r"[\w-]+", r).group() for r in metadata.get_all("Requires-Dist") if "extra ==" not in r}
    assert core == {"numba", "llvmlite", "numpy", "ml_dtypes", "rich", "typer"}


@pytest.mark.slow
def test_the_sdist_holds_what_its_tests_need(built):
    with tarfile.open(built[0]) as sdist:
        names = {n.partition("/")[2] for n in sdist.getnames()}
    assert sources() <= names
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml", ".ci/run"} <= names
    assert {"tests/conftest.py", "tests/house/test_packaging.py", "examples/train_digits.py"} <= names
    assert [n for n in names if "__pycache__" in n or n.endswith((".pyc", ".nbi", ".nbc"))] == []


@pytest.mark.slow
def test_the_wheel_runs_without_the_checkout(built, tmp_path):
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, str(built[1])], check=True)
    assert {p.name for p in site.iterdir() if not p.name.endswith(".dist-info")} == {"tilework", "bin"}
    code = f"""
import runpy, sys
sys.path.insert(0, {str(site)!r})
import tilework
assert tilework.__file__.startswith({str(site)!r}), tilework.__file__
sys.argv = ["tilework", "--version"]
runpy.run_module("tilework", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"tilework \d+\.\d+\.\d+\S*\n", done.stdout)
