"""Pictures show what was measured, in the terminal, in files, and on a page that a browser reads without a complaint."""

import html.parser
import json
import os
import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from tilework.bench.pictures import data, terminal
from tilework.bench.tiles.result import Point, Result, Rival, Sweep
from tilework.primitives.errors import ArgumentError


def sweep(label="64x64x64", threads=1, scale=1.0):
    points = [
        Point({"mr": mr, "nr": nr, "mc": mc}, status="ok", p5_us=scale * (100 / mr + nr + mc / 100), samples=8, spread=0.01,
              predicted_us=90.0)
        for mr in (2, 4)
        for nr in (16, 32)
        for mc in (8, 16)
    ]  # fmt: skip
    points.append(Point({"mr": 8, "nr": 64, "mc": 8}, status="wrong", why="<b>7 of 9 elements</b> differ"))
    best = {"mr": 4, "nr": 16, "mc": 8}
    rivals = [Rival("mr 4 nr 16 mc 8", best, scale * 41.08, 1.0, 1.0, 1.0, True, cold_us=50.0)]
    peers = [Rival("torch int_mm", None, scale * 60.0, 1.5, 1.4, 1.6, False, "s8 x s8")]
    return Sweep(
        "gemm_u8s8s32", "gemm_u8s8s32", label, {"M": 64}, ["u8", "s8"], threads, "cpu", "full", "hot", "source",
        524288.0 * scale, 20000.0 * scale, points, best, rivals, peers,
        values={"mr": [2, 4, 8], "nr": [16, 32, 64], "mc": [8, 16]}, unit="dot", peak_gops=400.0, checked="a test",
    )  # fmt: skip


@pytest.fixture
def result():
    ceilings = {
        "1": {"gops": {"dot": 400.0, "fma": 100.0}, "read": {"l1": 200.0, "l2": 100.0, "l3": 60.0, "memory": 20.0}}
    }
    machine = {"model": "made up", "isa": "avx2", "usable_cores": 2, "compiler": "c", "load_before": {"load_1min": 0.5}}
    sweeps = [sweep(), sweep(threads=2, scale=0.6), sweep("128x64x64", scale=2.0)]
    return Result(machine, sweeps, ceilings, {"seed": 0})


def test_a_map_has_the_best_of_each_pair(result):
    grid = data.grid(result.sweeps[0], "mr", "nr")
    assert (grid.rows, grid.columns, grid.rest) == ((2, 4), (16, 32), "mc")
    assert grid.cells[1][0] == pytest.approx(524288 / (25 + 16 + 0.08) / 1e3)
    lines = result.heatmap("mr", "nr").splitlines()
    assert "mr\\nr" in lines[0]
    assert lines[2].split()[0] == "4"
    assert "12.8 @" in lines[2]
    with pytest.raises(ArgumentError, match="'kc' was not varied; mr, nr, mc was"):
        result.heatmap("kc", "mr")


def test_without_operations_a_map_has_microseconds(result):
    result.sweeps[0].operations = 0.0
    grid = data.grid(result.sweeps[0], "mr", "nr")
    assert (grid.what, grid.higher_is_better) == ("us", False)
    assert "41.1 @" in result.heatmap("mr", "nr")


def test_the_terminal_shows_roofline_sizes_and_scaling(result):
    text = terminal.pictures(result)
    assert "roofline" in text
    assert "memory 20 GB/s" in text
    assert "o 64x64x64 13 GOPS at 26 ops/byte" in text
    assert "us by operations" in text
    assert "torch int_mm" in text
    assert "times as fast, by threads" in text
    assert data.by_threads(result)["64x64x64"] == [(1, 1.0), (2, pytest.approx(1 / 0.6))]


def test_a_result_without_times_draws_nothing(result):
    for s in result.sweeps:
        s.points, s.finalists, s.peers, s.best = [], [], [], {}
    assert terminal.pictures(result) == ""


@pytest.fixture
def plot():
    return pytest.importorskip("matplotlib", reason="pictures in files need the extra plot")


@pytest.mark.usefixtures("plot")
def test_pictures_go_into_files(result, tmp_path):
    from tilework.bench.pictures import figures

    figures.draw(result, str(tmp_path / "p.png"))
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    figures.draw(result, str(tmp_path / "p.svg"), ("mr", "mc"))
    ElementTree.parse(tmp_path / "p.svg")
    with pytest.raises(ArgumentError, match=r"\.png, \.svg"):
        figures.draw(result, str(tmp_path / "p.gif"))


class Outside(html.parser.HTMLParser):
    """Everything that a page would fetch."""

    def __init__(self):
        super().__init__()
        self.found, self.ids = [], []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith(("#", "data:")):
                self.found.append((tag, value))
            if name == "id":
                self.ids.append(value)


@pytest.mark.usefixtures("plot")
def test_the_page_needs_nothing_beside_it(result, tmp_path):
    result.to_html(tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    page = Outside()
    page.feed(text)
    assert page.found == []
    assert len(page.ids) == len(set(page.ids))
    assert "&lt;b&gt;7 of 9 elements&lt;/b&gt; differ" in text
    assert text.count("<svg") == 3 + 3


@pytest.fixture
def browser():
    found = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    if found is None:
        if os.environ.get("TILEWORK_REQUIRE_BROWSER") == "1":
            pytest.fail("no chromium, but TILEWORK_REQUIRE_BROWSER=1 promises it")
        pytest.skip("no chromium; TILEWORK_REQUIRE_BROWSER=1 makes this a failure")
    return found


# Clicks on the heading of the last table's times, twice, and puts down what is then on the page.
CHECK = """
<script>
addEventListener('load', () => {
  const tables = document.querySelectorAll('details table'), table = tables[0];
  const column = () => [...table.tBodies[0].rows].map(r => r.cells[1].dataset.v ?? null);
  table.tHead.rows[0].cells[1].click(); const up = column();
  table.tHead.rows[0].cells[1].click(); const down = column();
  const box = document.querySelector('svg').getBoundingClientRect();
  const facts = {up, down, tables: tables.length, svgs: document.querySelectorAll('svg').length, wide: box.width,
    stored: JSON.parse(document.getElementById('result').textContent).schema,
    overflow: document.documentElement.scrollWidth > innerWidth, errors: window.seen};
  document.body.innerHTML = '<pre id="facts"></pre>';
  document.getElementById('facts').textContent = JSON.stringify(facts);
});
</script>
"""


@pytest.mark.usefixtures("plot")
def test_a_browser_shows_the_page_and_sorts_its_tables(result, tmp_path, browser):
    result.to_html(tmp_path / "p.html")
    text = (tmp_path / "p.html").read_text()
    watch = "<script>window.seen = []; addEventListener('error', e => seen.push(String(e.message)));</script>"
    (tmp_path / "q.html").write_text(text.replace("<head>", f"<head>{watch}").replace("</body>", f"{CHECK}</body>"))
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
         "--virtual-time-budget=5000", f"file://{tmp_path / 'q.html'}"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    facts = json.loads(done.stdout.partition('<pre id="facts">')[2].partition("</pre>")[0])
    assert facts["errors"] == []
    assert (facts["tables"], facts["svgs"], facts["stored"]) == (3, 6, "tilework.sweep")
    times = [float(v) for v in facts["up"] if v is not None]
    assert times == sorted(times)
    assert facts["up"][-1] is None
    assert facts["down"][-1] is None
    assert [float(v) for v in facts["down"] if v is not None] == times[::-1]
    assert facts["wide"] > 300
    assert not facts["overflow"]


def test_kernels_have_a_line_each_against_size(result):
    assert [len(line) for name, line in data.by_size(result).items() if name == "tilework"] == [2]
    result.sweeps[2].kernel = "another"
    assert data.by_size(result).keys() >= {"gemm_u8s8s32", "another"}
    for s in result.sweeps:
        s.peers = []
    assert data.by_size(result) == {}
