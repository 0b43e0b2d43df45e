"""The paper's published figures beside those of a run, with the differences; what has no counterpart is said."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any, TypeAlias

from semtoken.bench.judges.llm import DEFAULT_JUDGE_MODEL
from semtoken.bench.report.cell_figures import CellFigures, settings_of
from semtoken.bench.report.comparison import NOT_RUN, shown
from semtoken.bench.report.figure_list import PAPER_TABLES, Figure
from semtoken.bench.report.table import (
    MISSING,
    Entry,
    Group,
    Table,
    amount,
    interval,
    metric,
    share,
    signed,
    signed_amount,
)
from semtoken.bench.results import RunResults

SOURCE = "Cao et al., EACL 2026, arXiv:2603.20161"
QUESTIONS = {"NQ": 3_610, "TQA": 9_960, "WQ": 2_032}
"""Data set -> questions that the paper asked."""
MODELS = {
    "Llama-2-7B": "meta-llama/Llama-2-7b-hf",
    "Llama-3-8B": "meta-llama/Meta-Llama-3-8B",
    "Mistral-7B": "mistralai/Mistral-7B-v0.3",
    "Qwen2.5-3B": "Qwen/Qwen2.5-3B",
    "Qwen2.5-7B": "Qwen/Qwen2.5-7B",
    "Qwen2.5-14B": "Qwen/Qwen2.5-14B",
}
"""Label in the paper -> hub id."""
DATASETS = {"nq": "NQ", "tqa": "TQA", "triviaqa": "TQA", "wq": "WQ", "webquestions": "WQ"}
"""Name in a run's settings, or label in lower case -> label in the paper."""
CLUSTERING = {
    "algorithm": "agglomerative",
    "linkage": "complete",
    "metric": "cosine",
    "embedding": "concatenated",
    "n_clusters": 16_000,
}
"""The paper's main clustering."""
SETTINGS = {"preset": "paper", "function_words": "paper"}
"""Settings of a run under which STC is the paper's."""
DECODING = {"max_new_tokens": 256, "n_samples": 5, "temperature": 0.5}
"""The paper's answers and samples."""

Key: TypeAlias = tuple[str, str, str, str, str]
"""Table, data set, setting (see `plain`), model, metric."""


@dataclass(frozen=True)
class Counterpart:
    """The paper's name for a model or data set of the run."""

    label: str
    doubt: str = ""
    """Why it may be another one all the same; empty if there is no reason to think so."""


def plain(setting: str) -> str:
    """The name of a setting in lower case without punctuation, so that "LN entropy" equals "LN-Entropy"."""
    return "".join(c for c in setting.casefold() if c.isalnum())


@cache
def published() -> Mapping[Key, Figure]:
    """All figures that the paper published, by table, data set, setting, model and metric."""
    source = files("semtoken.bench.report") / "paper_figures.csv"
    rows = csv.reader(source.read_text(encoding="utf-8").splitlines()[1:])
    return {
        (table, dataset, plain(setting), model, metric): Figure(table, dataset, setting, model, metric, float(value))
        for table, dataset, setting, model, metric, value in rows
    }


def paper_model(label: str, settings: Mapping[str, Any]) -> Counterpart | None:
    """The paper's model that matches a model of the run; None if it has none.

    It is found by the last part of the hub id or folder in the settings, else by the label alone, which is then said.
    """
    names = {name.casefold(): paper for paper, hub in MODELS.items() for name in (paper, PurePath(hub).name)}
    source = _name_behind(label, settings.get("models"))
    if source is not None and (paper_label := names.get(PurePath(source).name.casefold())):
        return Counterpart(paper_label)
    if paper_label := names.get(PurePath(label).name.casefold()):
        return Counterpart(
            paper_label, "" if source is None else f"{label} is compared by its label; the model is {source}."
        )
    return None


def paper_dataset(label: str, settings: Mapping[str, Any]) -> Counterpart | None:
    """The paper's data set that matches a data set of the run; None if it has none."""
    source = _name_behind(label, settings.get("datasets"), DATASETS)
    if source is not None and (paper_label := DATASETS.get(source)):
        return Counterpart(paper_label)
    if paper_label := DATASETS.get(label.casefold()):
        return Counterpart(
            paper_label, "" if source is None else f"{label} is compared by its label; the data are {source}."
        )
    return None


def _name_behind(label: str, choices: Any, usual: Mapping[str, str] | None = None) -> str | None:
    """The name that a run's settings give to what tables call by a label."""
    for choice in choices if isinstance(choices, list | tuple) else ():
        if isinstance(choice, Mapping) and isinstance(choice.get("name"), str):
            name: str = choice["name"]
            shown = choice.get("label") or (usual or {}).get(name) or PurePath(name).name.split(".jsonl")[0]
            if shown == label:
                return name
    return None


PERCENT = "percent of generation time"


@dataclass(frozen=True)
class ComparedFigure:
    """A figure of the run beside the paper's figure for the same method, model and data set."""

    figure: Figure
    published: float
    """NaN if the paper has no such figure."""

    @property
    def has_counterpart(self) -> bool:
        """Whether the paper published such a figure."""
        return not math.isnan(self.published)

    @property
    def difference(self) -> float:
        """The measured value minus the published one; NaN if one of them is missing."""
        return self.figure.value - self.published

    @property
    def within(self) -> bool | None:
        """Whether the published figure lies within the 95 % interval of the measured one; None if one is missing."""
        if math.isnan(self.published) or math.isnan(self.figure.low):
            return None
        return self.figure.low <= self.published <= self.figure.high

    @property
    def row(self) -> dict[str, Any]:
        """The values as a row of a file."""
        return {**asdict(self.figure), "paper": self.published, "difference": self.difference, "within": self.within}


@dataclass(frozen=True)
class AgainstPaper:
    """All figures of a run, each beside that of the paper if it published one."""

    compared: tuple[ComparedFigure, ...]
    summary: tuple[str, ...]
    """What a reader wants to know first, in sentences."""
    caveats: tuple[str, ...]
    """Why a difference may be one of the set-up."""
    tables: tuple[Table, ...]


def against_paper(
    results: RunResults, judge: str, cells: Sequence[CellFigures], figures: Sequence[Figure]
) -> AgainstPaper:
    """Compare the paper's figures with measured ones, matched by data set, model, and method or setting.

    Tables hold the pairs of a model and a data set that the paper has; the summary names the others.
    """
    labels = dict.fromkeys([*(cell.model for cell in cells), *(figure.model for figure in figures)])
    counterparts = _Counterparts(
        {label: paper_model(label, results.settings) for label in labels},
        {label: paper_dataset(label, results.settings) for label in dict.fromkeys(cell.dataset for cell in cells)},
    )
    compared = tuple(ComparedFigure(figure, counterparts.published(figure)) for figure in figures)
    shared = [cell for cell in cells if counterparts.models[cell.model] and counterparts.datasets[cell.dataset]]
    return AgainstPaper(
        compared=compared,
        summary=(*_summary(compared), *counterparts.unknown(), *counterparts.unmeasured(shared, figures)),
        caveats=tuple(dict.fromkeys((*counterparts.doubts(), *_differences(results, judge, shared, counterparts)))),
        tables=tuple(table for name in _TABLES if (table := _table(name, compared)).groups),
    )


@dataclass(frozen=True)
class _Counterparts:
    """Labels of the run -> what the paper calls them; None: the paper has no such thing."""

    models: Mapping[str, Counterpart | None]
    datasets: Mapping[str, Counterpart | None]

    def key(self, figure: Figure) -> Key | None:
        """Where the paper would have a figure."""
        model, dataset = self.models[figure.model], self.datasets.get(figure.dataset)
        if model is None or (dataset is None and figure.dataset):
            return None
        place = dataset.label if dataset is not None else ""
        return figure.table, place, plain(figure.setting), model.label, figure.metric

    def published(self, figure: Figure) -> float:
        """The paper's value; NaN if it has none."""
        key = self.key(figure)
        known = None if key is None else published().get(key)
        return math.nan if known is None else known.value

    def doubts(self) -> Iterator[str]:
        """Labels that may stand for something else than in the paper."""
        for known in (*self.models.values(), *self.datasets.values()):
            if known is not None and known.doubt:
                yield known.doubt

    def unknown(self) -> Iterator[str]:
        """Models and data sets that the paper has not."""
        for label in (name for name, counterpart in self.models.items() if counterpart is None):
            yield f"The paper has no figures for the model {label}; it has {', '.join(MODELS)}."
        for label in (name for name, counterpart in self.datasets.items() if counterpart is None):
            yield f"The paper has no figures for the data set {label}; it has {', '.join(QUESTIONS)}."

    def unmeasured(self, cells: Sequence[CellFigures], figures: Sequence[Figure]) -> Iterator[str]:
        """What the paper has and the run has not, for the models and data sets that both have."""
        held = {self.key(figure) for figure in figures}
        missing: dict[str, list[str]] = {}
        for cell in cells:
            model, dataset = self.models[cell.model], self.datasets[cell.dataset]
            assert model is not None and dataset is not None
            settings: dict[str, list[str]] = {}
            for key, figure in published().items():
                if key[1] == dataset.label and key[3:] == (model.label, "AUROC") and key not in held:
                    settings.setdefault(key[0], []).append(figure.setting)
            if settings:
                listed = "; ".join(f"{table}: {', '.join(names)}" for table, names in settings.items())
                missing.setdefault(listed, []).append(cell.title)
        for listed, titles in missing.items():
            yield f"In the paper but not in this run ({'; '.join(titles)}): {listed}."


def _summary(compared: Sequence[ComparedFigure]) -> Iterator[str]:
    measured = [pair for pair in compared if not math.isnan(pair.figure.value)]
    matched = [pair for pair in measured if pair.has_counterpart]
    yield f"{len(matched):,} of the {len(measured):,} figures of this run have a counterpart in the paper ({SOURCE})."
    # STC stands in several tables with one and the same figure: it counts once
    tested = {
        (pair.figure.dataset, pair.figure.model, pair.figure.metric, pair.figure.value, pair.published): pair.within
        for pair in matched
        if pair.within is not None
    }
    if tested:
        inside = sum(within is True for within in tested.values())
        yield (
            f"{inside:,} of {len(tested):,} published AUROC and PRR figures ({share(inside / len(tested))}) lie within "
            "the 95 % interval of the measured one."
        )


def _differences(
    results: RunResults, judge: str, cells: Sequence[CellFigures], counterparts: _Counterparts
) -> Iterator[str]:
    """Where the set-up is not the paper's, for cells that both have."""
    if not cells:
        return
    for cell in cells:
        dataset = counterparts.datasets[cell.dataset]
        if dataset is not None and cell.n != QUESTIONS[dataset.label]:
            yield (
                f"{cell.dataset}: {cell.n:,} questions, the paper asked {QUESTIONS[dataset.label]:,}; seconds are of "
                "all questions, so compare percentages."
            )
    for model in dict.fromkeys(cell.model for cell in cells):
        settings = settings_of(model, results.clusterings)
        other = [f"{name} {settings[name]}" for name, value in CLUSTERING.items() if settings.get(name, value) != value]
        if other:
            yield f"STC of {model} was clustered with {', '.join(other)}, unlike the paper's."
    yield from (
        f"{name.replace('_', ' ')} is {given}, the paper's is {value}."
        for name, value, given in _settings_unlike_the_papers(results.settings)
    )
    choices = [choice for choice in results.settings.get("judges", ()) if isinstance(choice, Mapping)]
    own = [choice for choice in choices if judge in (choice.get("name"), choice.get("kind"))]
    if not any(choice.get("model") == DEFAULT_JUDGE_MODEL for choice in own):
        yield f"Correctness is by the judge {judge}; the paper's is {DEFAULT_JUDGE_MODEL}."
    yield "Seconds and percentages are of this machine; the paper's were taken on 8 A100 GPUs with 40 GB."


def _settings_unlike_the_papers(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    decoding = settings.get("decoding")
    for given, expected in ((settings, SETTINGS), (decoding if isinstance(decoding, Mapping) else {}, DECODING)):
        for name, value in expected.items():
            if given.get(name, value) != value:
                yield name, value, given[name]


_TABLES = {
    "paper_quality": ("AUROC and PRR beside the paper's", ("comparison", "ablation"), ("AUROC", "PRR")),
    "paper_sensitivity": ("AUROC by clustering beside the paper's", tuple(PAPER_TABLES.values()), ("AUROC",)),
    "paper_overhead": ("Overheads beside the paper's", ("comparison",), ("seconds", PERCENT)),
    "paper_precomputation": ("Time of clustering beside the paper's", ("pre-computation",), ("seconds",)),
}
"""Name -> title, tables of the paper, metrics."""


def _table(name: str, compared: Sequence[ComparedFigure]) -> Table:
    title, sources, metrics = _TABLES[name]
    groups: dict[str, dict[str, dict[str, ComparedFigure]]] = {}
    for pair in compared:
        figure = pair.figure
        if figure.table in sources and figure.metric in metrics:
            heading = f"{figure.model} on {figure.dataset}" if figure.dataset else figure.model
            heading += "" if figure.table in ("comparison", "pre-computation") else f": {figure.table}"
            rows = groups.setdefault(heading, {})
            rows.setdefault(figure.setting, {})[figure.metric] = pair
    header = [f"{metric}{what}" for metric in metrics for what in ("", ", paper", ", difference")]
    return Table(
        name=name,
        title=title,
        header=("Setting", *(text.replace(PERCENT, "%").replace("seconds", "s") for text in header)),
        groups=tuple(
            Group(
                heading,
                tuple(
                    (Entry(shown(setting)), *(entry for metric in metrics for entry in _entries(by_metric.get(metric))))
                    for setting, by_metric in rows.items()
                ),
            )
            for heading, rows in groups.items()
            if any(pair.has_counterpart for row in rows.values() for pair in row.values())
        ),
        note="Difference: measured minus published. 'outside': the published figure is not within the 95 % interval of "
        "the measured one.",
    )


def _entries(figure: ComparedFigure | None) -> tuple[Entry, Entry, Entry]:
    """Three entries of a row: measured, published, and the difference."""
    if figure is None:
        return NOT_RUN, Entry(MISSING), Entry(MISSING)
    quality = figure.figure.metric in ("AUROC", "PRR")
    number, difference = (metric, signed) if quality else (amount, signed_amount)
    value = figure.figure.value
    measured = Entry(MISSING if math.isnan(value) else number(value), interval(figure.figure.low, figure.figure.high))
    if not figure.has_counterpart:
        return measured, Entry(MISSING, "not in the paper"), Entry(MISSING)
    return (
        measured,
        Entry(number(figure.published), "outside" if figure.within is False else ""),
        Entry(difference(figure.difference)),
    )
