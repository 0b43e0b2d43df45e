"""The paper and the report: citations are there, the length is what the journal asks for, figures follow the tables."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

PAPER = Path(__file__).parents[2] / "research" / "paper"


@pytest.fixture(scope="module")
def build() -> ModuleType:
    return importlib.import_module("research.paper.build")


def entries() -> dict[str, tuple[str, set[str]]]:
    """Keys, types and fields, by a reader of these plain entries; `make paper` reads them with pybtex."""
    text = (PAPER / "paper.bib").read_text("utf-8")
    found = re.findall(r"^@(\w+)\{(\w+),\n(.*?)^\}", text, re.DOTALL | re.MULTILINE)
    return {key: (kind, set(re.findall(r"^ +(\w+) +=", inside, re.MULTILINE))) for kind, key, inside in found}


def test_every_citation_is_there_and_every_entry_is_cited(build: ModuleType) -> None:
    texts = [(PAPER / name).read_text("utf-8") for name in ("paper.md", "report.md")]
    known = entries()
    assert len(known) > 15 and not build.problems_of_bibliography(known, texts)


def test_what_is_wrong_with_a_bibliography_is_said(build: ModuleType) -> None:
    text = "---\ntitle: a\n---\n[@missing2020; @there2021]\n"
    found = build.problems_of_bibliography({"there2021": ("article", {"author", "title", "year"})}, [text])
    assert [one.split()[0] for one in found] == ["missing2020", "there2021", "there2021"]
    assert "journal" in found[1] and "DOI" in found[2]
    assert build.problems_of_bibliography({"other2020": ("misc", {"author", "title", "year", "url"})}, [text])


def test_the_paper_has_the_length_that_the_journal_asks_for(build: ModuleType) -> None:
    words = len(build.body((PAPER / "paper.md").read_text("utf-8")).split())
    assert build.WORDS[0] <= words <= build.WORDS[1]


def test_the_figures_of_the_report_are_those_of_the_tables(build: ModuleType) -> None:
    text = build.report()
    assert "{{" not in text and "nan" not in text
    rows = pd.read_csv(PAPER.parent / "experiments" / "default_rule" / "tables.csv").set_index(["set", "judge", "rule"])
    row = rows.loc["gemma3-nq", "exact", "clusters, beginnings"]
    assert f"{row['minus_shuffled']:+.3f}" in text
    # What its prose says:
    rules = rows.xs("paper", level="rule")
    worse = rules["minus_probability_high"].xs("exact", level="judge") < 0
    better = rules["minus_probability_low"].xs("second", level="judge") > 0
    assert worse.sum() == 4 and better.sum() == 1
    shuffled = rows.xs("clusters, beginnings", level="rule")["minus_shuffled_low"]
    assert not (shuffled.xs("exact", level="judge") > 0).any()
