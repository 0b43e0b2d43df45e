"""Tables of the report: marks, entries, and what becomes of hostile names in each format."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from sklearn.metrics import roc_auc_score

from semtoken.bench.read_results import _examples
from semtoken.bench.report.comparison import (
    ablation,
    comparison,
    examples,
    method_tests,
    overhead,
    precomputation,
    sensitivity,
    sensitivity_tests,
)
from semtoken.bench.report.content import build_report
from semtoken.bench.report.latex import latex_document, latex_escaped, latex_table
from semtoken.bench.report.markdown import markdown_table
from semtoken.bench.report.measure import Measured
from semtoken.bench.report.numbers import amount, difference, estimate, metric, share, signed, signed_interval
from semtoken.bench.report.overview import judges, overview, properties
from semtoken.bench.report.table import Table, best_marks, frame
from semtoken.bench.report.writing import write_report
from semtoken.bench.results import Cell
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.methods import METHODS
from semtoken.support.text import one_line
from tests import worked
from tests.bench.report_runs import cell, clustering, measured, paired, results, rows_of, texts
from tests.known import known
from tests.rows import each

HOSTILE = r"50% <script>alert('x')</script> a_b & #1 {c} \d | `e` *f* ~ ^ $2$ [g](h)"


@each(
    ("values", "smallest", "marks"),
    [
        ([0.7, 0.9, 0.8], False, ["", "best", "second"]),
        ([0.7, 0.9, 0.8], True, ["best", "", "second"]),
        ([0.9001, 0.9004, 0.8], False, ["best", "best", ""]),  # both read 0.900: there is no second place
        ([0.9, 0.8001, 0.8004, 0.7], False, ["best", "second", "second", ""]),
        ([math.nan, 0.8, math.nan, 0.7], False, ["", "best", "", "second"]),
        ([math.nan, math.nan], False, ["", ""]),
        ([], False, []),
    ],
)
def test_best_and_second_are_marked_as_they_read(values: list[float], smallest: bool, marks: list[str]) -> None:
    shown = frame([[metric(value)] for value in values], ["value"])
    found = best_marks(frame([[value] for value in values], ["value"]), shown, smallest=smallest)
    assert list(found["value"]) == marks


def test_numbers_have_sensible_digits() -> None:
    assert [amount(v) for v in (0, 0.0001, 0.0231, 0.9996, 3.0281, 9.996, 50.86, 99.96, 1373.9)] == [
        *("0", "<0.001", "0.023", "1.00", "3.03", "10.0", "50.9", "100", "1,374")
    ]
    assert signed(-0.0001) == "0.000"
    assert signed(0.0126) == "+0.013"
    assert metric(math.nan) == share(math.nan) == "–"
    assert (estimate(math.nan, 0, 1), estimate(0.5, 0.4, 0.61)) == ("undefined", "0.500 [0.400, 0.610]")
    assert (estimate(0.5, 0.5, 0.5), difference(0.0, 0.0, 0.0)) == ("0.500 no interval", "0.000 no interval")
    assert one_line("a\nb\x1b\u202ec") == "a\\nb\\x1b\\u202ec"


def test_no_interval_reads_as_if_it_had_no_width() -> None:
    assert signed_interval(-0.0031, 0.02) == "[-0.003, +0.020]"
    assert signed_interval(0.0001, 0.0004) == "[+0.0001, +0.0004]"
    assert signed_interval(-0.00012, -0.00006) == "[-0.00012, -0.00006]"
    assert signed_interval(0.0, 0.0) == ""
    scores = cell(methods=["stc"]).uncertainty["stc"]
    same = cell(uncertainty={"stc": scores, "perplexity": 2 * scores})
    found = texts(method_tests(measured(same), "AUROC"))["Qwen2.5-7B on NQ"]
    assert found[METHODS["perplexity"].title][1] == "0.000 no interval"


@cache
def two_models() -> tuple[list[Cell], Measured]:
    names = ("stc", "stc_no_clustering", "sequence_probability", "perplexity", "sar")
    cells = [
        cell("A", "NQ", methods=names),
        cell("B", "NQ", methods=names[:-1], seed=1),
        cell("A", "TQA", methods=names, seed=2),
    ]
    return cells, measured(*cells, n_resamples=100)


def test_the_comparison_holds_scikit_learns_numbers_where_they_belong() -> None:
    cells, found = two_models()
    table = comparison(found, "AUROC")
    assert table.header == ("Method", "A", "B")
    rows = texts(table)
    assert list(rows) == ["NQ", "TQA"]
    assert list(rows["NQ"]) == ["STC", "Sequence probability", "Perplexity", "SAR"]
    for one, place in ((cells[0], 0), (cells[1], 1)):
        expected = roc_auc_score(1 - one.judgments["exact"], one.uncertainty["perplexity"])
        assert rows["NQ"]["Perplexity"][place].startswith(f"{expected:.3f}")
    assert rows["NQ"]["SAR"][1] == "– not in this run"
    assert {row[1] for row in rows["TQA"].values()} == {"– not in this run"}


def test_what_is_level_with_the_best_has_a_sign() -> None:
    _, found = two_models()
    best = found.ranked(found.cells[0]).setting.iloc[0]
    for setting, row in texts(comparison(found, "AUROC"))["NQ"].items():
        test = found.test(found.cells[0], setting, f"best: {best}")
        assert bool(test is not None and test.low <= 0 <= test.high) == ("≈" in row[0])


def test_ablations_and_overheads() -> None:
    _, found = two_models()
    assert list(texts(ablation(found, "PRR"))["NQ"]) == ["STC", "STC without clustering", "Sequence probability"]
    made = overhead(found, "seconds")
    seconds = texts(made)["NQ"]
    assert [seconds[name][0] for name in ("STC", "Perplexity", "SAR")] == ["0.500", "2.05", "3.28"]  # 0.5 x 1.6^k
    assert list(known(made.marks)["A"]["NQ"]) == ["best", "second", "", ""]
    assert texts(overhead(found, "percent of generation time"))["NQ"]["SAR"][0] == "1.64"  # of 200 seconds


def test_a_run_of_ablations_alone_has_its_report(tmp_path: Path) -> None:
    one = cell(methods=("stc_no_clustering", "stc_no_prefix"))
    made = build_report(results(one), n_resamples=20)
    write_report(made, tmp_path / "report")
    rows = [
        [value.partition(" ")[0] for value in table.frame.iloc[:, 1]]
        for table in made.tables
        if table.name == "ablation_auroc"
    ]
    assert rows == [[f"{roc_auc_score(1 - one.judgments['exact'], values):.3f}" for values in one.uncertainty.values()]]
    assert (tmp_path / "report/latex/comparison_auroc.tex").exists()


def test_a_run_without_any_verdict_has_its_report() -> None:
    made = build_report(results(cell(methods=("stc",), judgments={"exact": np.full(120, np.nan)})), n_resamples=20)
    assert made.opening == (
        "A model answered 120 questions; how well STC tells wrong answers from right ones is not known."
    )
    assert [row["no_verdict"] for row in rows_of(made, "cells")] == ["120"]


def test_tests_stand_beside_the_values() -> None:
    _, found = two_models()
    title, rows = next(iter(texts(method_tests(found, "AUROC")).items()))
    test = paired(found, "sar")
    assert title == "A on NQ"
    assert rows["SAR"][1].startswith(f"{test.difference:+.3f} [")
    assert rows["SAR"][2] == ("higher" if test.low > 0 else "lower" if test.high < 0 else "not shown")
    assert rows["STC"][1] == ""


def test_overview_properties_and_judges() -> None:
    cells, found = two_models()
    first = overview(found, "exact")
    row = first.frame.iloc[0].tolist()
    right = cells[0].judgments["exact"].sum()
    assert row[:6] == ["A", "NQ", "120", f"{right:.0f}", "0", f"{100 * right / 120:.1f}%"]
    assert row[-2] == "1 of 4"
    assert texts(properties(found))[""] == {
        "STC": ["yes", "yes", "yes", "low"],
        "Sequence probability": ["no", "yes", "yes", "low"],
        "Perplexity": ["no", "yes", "yes", "low"],
        "SAR": ["yes", "no", "no", "high"],
    }
    verdicts, agreement = judges(found)
    assert verdicts.frame.iloc[1].tolist()[:3] == ["A", "NQ", "llm"]
    assert agreement.frame["Judges"].iloc[0] == "exact, llm"
    alone = cell(methods=("stc",), judgments={"exact": cells[0].judgments["exact"]})
    assert len(judges(measured(alone))) == 1


def test_sensitivity_clusters_and_their_time() -> None:
    one = cell(methods=("stc",), variants=("n_clusters=8000", "n_clusters=12000", "linkage=single"))
    made = [clustering(), clustering(variant="linkage=single", linkage="single", seconds=None)]
    found = measured(one, clusterings=made)
    rows = texts(sensitivity(found, made))
    assert list(rows) == ["NQ: number of clusters", "NQ: linkage"]
    assert list(rows["NQ: number of clusters"]) == ["8,000", "12,000", "16,000"]
    assert ["*" in row[0] for row in rows["NQ: number of clusters"].values()] == [False, False, True]
    assert list(texts(sensitivity_tests(found))["Qwen2.5-7B on NQ"])[2] == "Linkage: single"
    assert list(texts(examples(made))["Qwen2.5-7B"]) == ["TV, ␣tv, ␣Television", "Cold, ␣chilly"]
    times = precomputation(made)
    assert times is not None
    assert list(times.frame["Seconds"]) == ["80.0", "– not known"]
    without = measured(cell(methods=("stc",)))
    assert (sensitivity(without, []), sensitivity_tests(without), examples([]), precomputation([])) == (None,) * 4


# --- formats -----------------------------------------------------------------------------------------------------


def hostile_table() -> Table:
    made = frame([[HOSTILE, "0.900≈ [0.8, 1.0]"]], ("Method", HOSTILE), HOSTILE)
    return Table("t_1", HOSTILE, made, HOSTILE, marks=frame([["", "best"]], ("Method", HOSTILE), HOSTILE))


def test_latex_escapes_every_special_character() -> None:
    assert latex_escaped("a_b & 50% #1 {c} $") == r"a\_b \& 50\% \#1 \{c\} \$"
    assert latex_escaped("\\ ~ ^") == r"\textbackslash{} \textasciitilde{} \textasciicircum{}"
    assert latex_escaped("a-b --- é 中 ␣ –") == r"a-b -{}-{}- é \texttt{U+4E2D} \textvisiblespace{} \textendash{}"


def test_negative_numbers_have_a_minus_in_latex() -> None:
    text = latex_table(Table("t", "T", frame([["Qwen2.5-7B", "-0.423 [-0.724, +0.076]"]], ("a", "b"))))
    assert r"Qwen2.5-7B & $-$0.423 \detail{[$-$0.724, +0.076]} \\" in text


def test_latex_is_balanced_and_has_as_many_cells_as_columns() -> None:
    text = latex_table(hostile_table())
    body = text[text.index(r"\begin{table}") :]
    plain = re.sub(r"\\[\\{}%&_#$]", "", body)
    assert plain.count("{") == plain.count("}")
    assert re.findall(r"\\(begin|end)\{(\w+)\}", text) == [
        *(("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table"))
    ]
    assert [text.count(f"\\{rule}rule") for rule in ("top", "mid", "bottom")] == [1, 1, 1]
    assert r"\begin{tabular}{llr}" in text  # the group has a column of its own
    rows = [line for line in body.splitlines() if line.endswith(r" \\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {2}
    assert r"\best{0.900$\approx$} \detail{[0.8, 1.0]}" in rows[-1]
    for character in "%#$^~":  # unescaped, they would be commands
        assert not re.search(r"(?<!\\)" + re.escape(character), body.replace(r"$\approx$", ""))


def test_latex_goes_over_several_pages_where_it_must() -> None:
    text = latex_table(Table("t", "T", frame([["[a]", "*"]] * 60, ("a", "b"))))
    assert re.findall(r"\\(begin|end)\{(\w+)\}", text) == [("begin", "longtable"), ("end", "longtable")]
    assert text.count("\n{}[a] & * ") == 60  # not an option of the line end before
    assert text.count(r"\endhead") == 1


def test_latex_of_a_report_has_what_its_tables_need_and_an_escaped_title() -> None:
    text = latex_document([hostile_table()], HOSTILE)
    assert r"\usepackage{booktabs,longtable}" in text and "<script>" not in text


@pytest.mark.parametrize(("letters", "columns"), [(1, 1), (40, 1), (400, 1), (1, 30)])
def test_the_paper_has_room_for_the_widest_table(letters: int, columns: int) -> None:
    """By the letters of Computer Modern, in which LaTeX sets them, at nine points, and its six between columns."""
    header = ("Method", "AUROC", *["0.5"] * columns)
    rows = [["Weakest token " * letters, "0.900 [0.850, 0.950]", *["+0.1"] * columns], ["STC", "0.5", *["–"] * columns]]
    tables = [Table("narrow", "T", frame([["a", "b"]], ("A", "B"))), Table("wide", "T", frame(rows, header))]
    [width] = map(int, re.findall(r"paperwidth=(\d+)mm", latex_document(tables, "T")))
    font = FontProperties(fname=str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "cmr10.ttf"))
    printed = [
        max(TextPath((0, 0), text, size=9, prop=font).get_extents().width for text in column) + 12
        for column in zip(header, rows[0], strict=True)
    ]
    needed = sum(printed) * 25.4 / 72.27 + 2 * 20
    assert max(210, needed) <= width <= max(210, 2 * needed)


def test_markdown_shows_hostile_names_as_they_are() -> None:
    text = markdown_table(hostile_table())
    assert "<script" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 3
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [3, 3, 3]
    assert "**0.900≈** \\[0.8, 1.0\\]" in rows[2]


def test_markdown_says_what_is_not_complete_only_of_a_table_without_rows() -> None:
    nothing = "Nothing of this is complete."
    assert markdown_table(Table("t", "T", frame([["a", "1"]], ("A", "B")))).count(nothing) == 0
    assert markdown_table(Table("t", "T", frame([], ("A", "B")), "a note")) == f"### T\n\n{nothing}\n\na note\n"


def test_csv_files_hold_plain_numbers() -> None:
    cells, _ = two_models()
    report = build_report(results(cells[0], clusterings=[clustering("A", seconds=7.5)]), n_resamples=20)
    rows = rows_of(report, "figures")
    by_place = {tuple(row[k] for k in ("table", "dataset", "setting", "model", "metric")): row for row in rows}
    assert list(rows[0])[:6] == ["table", "dataset", "setting", "model", "metric", "value"]
    value = float(by_place["comparison", "NQ", "SAR", "A", "AUROC"]["value"])
    assert value == pytest.approx(roc_auc_score(1 - cells[0].judgments["exact"], cells[0].uncertainty["sar"]))
    assert by_place["pre-computation", "", "agglomerative clustering", "A", "seconds"]["value"] == "7.5"
    assert by_place["comparison", "NQ", "SAR", "A", "seconds"]["low"] == ""
    (first, *_) = rows_of(report, "cells")
    assert (first["questions"], first["method"], first["undefined"]) == ("120", "stc", "0")
    right, second = cells[0].judgments["exact"], cells[0].judgments["llm"]
    assert [first[name] for name in ("correct", "incorrect", "no_verdict", "greedy_seconds")] == [
        *(str(int((right == value).sum())) for value in (1, 0)), "0", "200.0"
    ]  # fmt: skip
    (pair,) = rows_of(report, "judges")
    counted = {"both_correct": (1, 1), "both_incorrect": (0, 0), "only_first": (1, 0), "only_second": (0, 1)}
    for name, (one, two) in counted.items():
        assert int(pair[name]) == ((right == one) & (second == two)).sum()
    (made,) = rows_of(report, "clusterings")
    assert (made["tokens"], made["n_clusters"], made["linkage"], made["seconds"]) == (
        *("151665", "16000", "complete", "7.5"),
    )
    tokens = [(row["cluster"], row["token"]) for row in rows_of(report, "clusters")]
    assert tokens[:4] == [("1", "TV"), ("1", " tv"), ("1", " Television"), ("2", "Cold")]


def test_no_cell_of_a_report_is_a_formula() -> None:
    """Names of models and data sets and tokens are other people's text; numbers stay numbers."""
    evil = [start + 'HYPERLINK("http://evil.example")' for start in "=+-@\t\r\n"]
    record = replace(clustering(evil[0], seconds=-7.5), examples=(tuple(evil), ("fine",)))
    one = replace(cell(methods=("stc", "sar"), n=40), model=evil[0], dataset=evil[1])
    files = build_report(results(one, clusterings=[record]), n_resamples=5).csv
    for name, text in files.items():
        cells = [entry for row in csv.reader(io.StringIO(text)) for entry in row]
        assert {"'" + own for own in (evil if name == "clusters" else evil[:1])} <= set(cells)
        assert name.startswith("clust") or "'" + evil[1] in cells
        for entry in cells:
            if entry[:1] in tuple("=+-@\t\r\n") and entry:
                float(entry)
    assert "-7.5" in files["figures"]


def test_an_undefined_figure_is_empty_in_csv_and_a_word_in_tables() -> None:
    run = results(cell(methods=("stc", "sar"), judgments={"exact": np.zeros(120)}))
    made = build_report(run, n_resamples=5)
    (row, *_) = rows_of(made, "figures")
    assert (row["metric"], row["value"], row["low"]) == ("AUROC", "", "")
    assert {row[0] for row in texts(comparison(made.measured, "PRR"))["NQ"].values()} == {"undefined"}
    assert "nan" not in made.csv["figures"].lower()


def test_every_method_of_the_library_has_a_row() -> None:
    found = measured(cell(), n_resamples=5)
    shown = {*texts(comparison(found, "AUROC"))["NQ"], *texts(ablation(found, "AUROC"))["NQ"]}
    assert shown == {method.title for method in METHODS.values()}


def test_examples_of_clusters_are_clusters_of_several_tokens() -> None:
    vocabulary = worked.vocabulary(("TV", " tv", "city", " river"))
    clusters = TokenClusters(np.array([0, 0, 1, 2]), vocabulary)
    assert list(_examples(clusters)) == [("TV", " tv")]
