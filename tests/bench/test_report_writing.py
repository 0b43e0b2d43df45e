"""The folder of a report: what is in it, that nothing is lost, and that the same run gives the same bytes."""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semtoken.bench.report import writing as report_writing
from semtoken.bench.report.content import BenchReport, build_report
from semtoken.bench.report.drawing import OURS, STYLE
from semtoken.bench.report.measure import ABLATIONS
from semtoken.bench.report.plots import MARKERS, against_overhead, bars, plots, sensitivity_panels
from semtoken.bench.report.probabilities import probabilities_of
from semtoken.bench.report.probability_plots import risk_curves
from semtoken.bench.report.writing import write_report
from semtoken.errors import InvalidInputError
from semtoken.methods import METHODS
from tests.bench.report_runs import cell, clustering, figure, measured, results

HOSTILE = "<script>alert(1)</script> $x$ \x1b[31m"
VARIANTS = ("n_clusters=8000", "linkage=single")
SOME = ("confidence", "stc", "stc_no_prefix", "sequence_probability", "sar")
"""Methods enough for every table and figure; what all of them get is looked at elsewhere."""
CELLS = (cell(variants=VARIANTS, methods=SOME), cell(HOSTILE, n=25, seed=1, methods=SOME[:2]))


@cache
def report() -> BenchReport:
    run = results(
        *CELLS,
        clusterings=[clustering()],
        notes=(f"{HOSTILE} is a note.",),
        settings={"models": [{"name": HOSTILE}]},
    )
    return build_report(run, n_resamples=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(report(), tmp_path_factory.mktemp("out") / "report").parent


def contents(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def test_all_formats_are_there(folder: Path) -> None:
    found = contents(folder)
    for name in (
        *("index.html", "report.md", "report.json", "csv/figures.csv", "csv/tests.csv"),
        *("latex/all.tex", "latex/comparison_auroc.tex"),
        *("figures/best_methods_1_NQ.png", "figures/best_methods_1_NQ.svg", "figures/sensitivity.svg"),
    ):
        assert name in found
    assert all(found.values())
    assert json.loads(found["report.json"])["files"] == sorted(set(found) - {"report.json"})
    included = re.findall(r"\\input\{(\w+)\}", found["latex/all.tex"].decode())
    assert {f"latex/{name}.tex" for name in included} == {n for n in found if n.startswith("latex/")} - {
        "latex/all.tex"
    }
    linked = set(re.findall(r"\]\((figures/[^)]+)\)", found["report.md"].decode()))
    assert linked == {name for name in found if name.endswith(".png")}


def test_what_a_report_says_is_recorded(folder: Path) -> None:
    """All sentences and tables of a run: if a change is meant, the new text goes into the file."""
    recorded = Path(__file__).with_name("recorded_report.md").read_text("utf-8")
    # Of a number so near 0 the last digit is the machine's.
    assert re.sub(r"-?0\.0000\d", "NEARLY 0", (folder / "report.md").read_text("utf-8")) == recorded


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    report.cache_clear()
    again = write_report(report(), tmp_path / "elsewhere").parent
    assert contents(again) == contents(folder)


class Page(HTMLParser):
    """Tags, addresses and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "action", "data")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_stands_alone_and_runs_nothing(folder: Path) -> None:
    text = (folder / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert {"script", "iframe", "object", "link"}.isdisjoint(page.tags)
    assert all(address.startswith(("#", "data:image/svg+xml;base64,")) for address in page.addresses)
    assert {a.removeprefix("#") for a in page.addresses if a.startswith("#")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert "url(" not in text
    assert "@import" not in text
    assert "<script>alert(1)</script>" in page.text  # shown, as text
    assert "prefers-color-scheme: dark" in text


def test_the_page_shows_what_a_reader_looks_for(folder: Path) -> None:
    page = Page((folder / "index.html").read_text(encoding="utf-8"))
    for part in ("Main result", "AUROC of the methods", "Overhead in seconds", "Manifest", "a processor"):
        assert part in page.text
    images = [a for a in page.addresses if a.startswith("data:")]
    inlined = {base64.b64decode(image.partition(",")[2]) for image in images}
    assert inlined == {path.read_bytes() for path in (folder / "figures").glob("*.svg")}


def test_the_report_opens_with_what_came_out(folder: Path) -> None:
    shares, right, asked = [], 0.0, 0
    for one in CELLS:
        correct, uncertainty = one.judgments["exact"], one.uncertainty["confidence"]
        pairs = uncertainty[correct == 0][:, None] > uncertainty[correct == 1][None, :]
        shares.append(pairs.mean())
        right, asked = right + correct.sum(), asked + correct.size
    text = (folder / "index.html").read_text(encoding="utf-8")
    told = text[text.index('class="opening">') : text.index("<nav")]
    assert f"2 models answered {asked} questions, {100 * right / asked:.0f}% of them correctly" in told
    assert f"on average, calls the wrong one more uncertain in {round(100 * np.mean(shares))} of 100 cases" in told


def test_figures_and_markdown_escape_names(folder: Path) -> None:
    for path in (folder / "figures").glob("*.svg"):
        assert "<script" not in path.read_text(encoding="utf-8")
    text = (folder / "report.md").read_text(encoding="utf-8")
    outside_code = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert "<script" not in outside_code
    assert "\x1b" not in text


@pytest.mark.slow
def test_a_former_report_is_replaced_and_stale_files_go(tmp_path: Path) -> None:
    target = write_report(report(), tmp_path / "report").parent
    assert (target / "csv/clusters.csv").exists()
    write_report(build_report(results(cell()), n_resamples=20), target)
    assert not (target / "csv/clusters.csv").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_other_files_are_never_lost(folder: Path, tmp_path: Path) -> None:
    target = Path(shutil.copytree(folder, tmp_path / "report"))
    (target / "figures" / "mine.txt").write_text("mine")
    before = contents(target)
    with pytest.raises(InvalidInputError, match=r"figures/mine\.txt.*--out"):
        write_report(report(), target)
    assert contents(target) == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("mine")
    with pytest.raises(InvalidInputError, match=r"index\.html"):
        write_report(report(), other)
    with pytest.raises(InvalidInputError, match="is a file"):
        write_report(report(), other / "index.html")


def test_a_report_that_fails_halfway_leaves_the_former_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Path(shutil.copytree(folder, tmp_path / "report"))
    before = contents(target)
    made = report()

    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report_writing, "latex_document", full)
    with pytest.raises(InvalidInputError, match="No space left"):
        write_report(made, target)
    assert contents(target) == before
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no TeX engine is installed")
def test_latex_compiles(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "latex", tmp_path / "latex")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path / "latex", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


# --- figures -----------------------------------------------------------------------------------------------------

LOOKS = ("text", "position", "x", "y", "width", "height", "xydata", "segments")
"""What is recorded of a line, a bar, a text and whatever else is drawn, as far as it has that."""


def looks(artist: Any) -> str:
    """One line on an artist: many numbers as their count, first, last and mean."""

    def shown(value: Any) -> str:
        if isinstance(value, list):
            value = np.concatenate([np.ravel(one) for one in value] or [np.empty(0)])
        if isinstance(value, np.ndarray) and value.size > 8:
            value = (value.size, *value.flat[:2], *value.flat[-2:], value.mean())
        numbers = value if isinstance(value, tuple | np.ndarray) else [value]
        return " ".join(f"{one:.4f}" if isinstance(one, float) else str(one) for one in np.ravel(numbers).tolist())

    got = {name: getattr(artist, f"get_{name}")() for name in LOOKS if hasattr(artist, f"get_{name}")}
    got |= {"at": artist.xy} if hasattr(artist, "xy") else {}
    return f"{type(artist).__name__}: " + ", ".join(f"{name} {shown(value)}" for name, value in got.items())


def drawn(figure: Any) -> Iterator[str]:
    """Lines on a figure and all that is in it."""
    yield from (f"legend {[one.get_text() for one in legend.get_texts()]}" for legend in figure.legends)
    for axis in figure.axes:
        yield f"panel {axis.get_xscale()} {[*map(float, (*axis.get_xlim(), *axis.get_ylim()))]}"
        ticks = [[one.get_text() for one in own] for own in (axis.get_xticklabels(), axis.get_yticklabels())]
        yield f"{axis.get_xlabel()} | {axis.get_ylabel()} | {ticks}"
        axes = (axis.patch, axis.xaxis, axis.yaxis, *axis.spines.values())
        shown = (one for one in axis.get_children() if one not in axes)
        yield from (looks(one) for one in shown if not hasattr(one, "get_text") or one.get_text())


def test_what_figures_show_is_recorded() -> None:
    """Lines, bars, marks and texts of each kind: if a change is meant, what is printed goes into the file."""
    import matplotlib

    lines = []
    for plot in report().plots:
        with matplotlib.rc_context(STYLE):
            lines += [f"== {plot.name}: {plot.title}", *drawn(plot.draw())]
    found, recorded = "\n".join(lines) + "\n", Path(__file__).with_name("recorded_figures.txt").read_text("utf-8")
    print(found)
    number = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
    assert number.sub("#", found).splitlines() == number.sub("#", recorded).splitlines()
    assert [*map(float, number.findall(found))] == pytest.approx([*map(float, number.findall(recorded))], abs=2e-4)


MANY = (*list(METHODS)[:9], "confidence")


@pytest.mark.parametrize("sign", [1, -1], ids=["good", "last"])
def test_bars_show_the_best_seven_in_order_and_what_the_report_is_about_beside_them(sign: int) -> None:
    one = cell(methods=MANY)
    one.uncertainty["confidence"][:] *= sign
    found = measured(one)
    (axis,) = bars(found, found.cells).axes
    ranked = found.ranked(found.cells[0])
    place = list(ranked.setting).index("Confidence")
    assert place >= 7
    titles = [*ranked.setting[:7], f"Confidence (place {place + 1})"]
    assert [label.get_text() for label in axis.get_yticklabels()] == titles
    ends = [bar.get_x() + bar.get_width() for bar in axis.patches]
    assert ends == pytest.approx([*ranked.value[:7], ranked.value.iloc[place]])
    assert axis.yaxis_inverted() and axis.get_title() == "Qwen2.5-7B"


def test_overhead_is_on_a_logarithmic_scale() -> None:
    names = ("stc", "perplexity", "sar")
    found = measured(cell(methods=names, seconds={"stc": 0.0, "perplexity": 1.0, "sar": 400.0}))
    drawn = against_overhead(found, found.cells)
    (axis,) = drawn.axes
    assert axis.get_xscale() == "log"
    shown = [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in axis.lines if len(line.get_xdata()) == 1
    ]
    values = [figure(found, name).value for name in names]
    assert shown == [(pytest.approx(x), pytest.approx(y)) for x, y in zip((0.5 / 3, 0.5, 200.0), values, strict=True)]
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["STC", "Perplexity", "SAR"]


def test_no_two_methods_look_alike() -> None:
    one = cell(methods=[name for name in METHODS if name not in ABLATIONS][:18])
    found = measured(one)
    (axis,) = against_overhead(found, found.cells).axes
    points = [line for line in axis.lines if len(line.get_xdata()) == 1]
    (curves,) = risk_curves(probabilities_of([one], "exact", 20, found.reference), "NQ").axes
    looks = [
        [(str(line.get_marker()), line.get_color()) for line in points],
        [(str(line.get_linestyle()), line.get_color()) for line in curves.lines],
    ]
    for drawn in looks:
        assert len(drawn) == len(set(drawn)) == 18
        assert [color for _, color in drawn].count(OURS) == 1
    assert ("*", OURS) in looks[0] and ("-", OURS) in looks[1]


def test_the_sensitivity_study_has_a_panel_for_each_setting() -> None:
    made = [clustering(), clustering("B")]
    own: dict[str, Any] = {"methods": ("stc",), "variants": VARIANTS}
    found = measured(cell(**own), cell("B", **own), clusterings=made)
    figure = sensitivity_panels(found)
    assert [axis.get_title() for axis in figure.axes] == ["NQ: number of clusters", "NQ: linkage"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["8,000", "16,000"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Qwen2.5-7B", "B"]
    shown = [line for line in figure.axes[0].lines if line.get_marker() in MARKERS]
    assert len({line.get_marker() for line in shown}) == len({line.get_color() for line in shown}) == 2


def test_figures_without_numbers_are_left_out() -> None:
    found = measured(cell(judgments={"exact": np.ones(120)}))
    assert list(plots(found)) == []
    (only,) = plots(measured(cell(methods=("stc",), seconds={})))
    assert only.name == "best_methods_1_NQ"


@pytest.mark.slow
def test_two_data_sets_with_like_names_have_figures_of_their_own() -> None:
    names = [plot.name for plot in plots(measured(cell(dataset="a b"), cell(dataset="a/b")))]
    assert len(names) == len(set(names)) == 4


def test_names_too_long_or_strange_for_a_figure_do_no_harm(recwarn: pytest.WarningsRecorder) -> None:
    found = measured(cell("模型" + "x" * 300, "y" * 300, methods=("stc", "sar"), seconds={}))
    (axis,) = bars(found, found.cells).axes
    assert len(axis.get_title()) == 32
    assert all(len(plot.name) < 100 and "模型" in plot.svg.decode() for plot in plots(found))
    assert [str(one.message) for one in recwarn] == []


def test_a_notebook_shows_the_main_result_and_every_table() -> None:
    card = report()._repr_html_()
    assert "<script" not in card and "\x1b" not in card and html.escape(HOSTILE[:10]) in card
    assert all(html.escape(table.title) in card for one in report().sections for table in one.tables)
    assert repr(report()).startswith("BenchReport(Benchmark run") and len(repr(report())) < 400


@pytest.mark.parametrize("n", [1, 3, 4])
def test_files_that_are_no_report_are_named_and_stay(n: int, tmp_path: Path) -> None:
    names = [f"note {number}" for number in range(n)]
    for name in names:
        (tmp_path / name).write_text("mine")
    listed = ", ".join(names[:3]) + (", ..." if n == 4 else "")
    with pytest.raises(InvalidInputError, match=re.escape(f"holds other files ({listed}), which would be lost")):
        write_report(report(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == names
