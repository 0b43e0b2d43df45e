"""The figures that the paper published, and which of a run's models and data sets are the paper's.

`paper_figures.csv` holds all numbers of the tables of Cao et al., "Semantic Token Clustering for Efficient
Uncertainty Quantification in Large Language Models", EACL 2026, arXiv:2603.20161. AUROC and PRR are fractions,
overheads seconds for all questions and percent of the greedy generation, the pre-computation seconds.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any, TypeAlias

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
JUDGE = "gpt-4.1-2025-04-14"
"""The language model that judged the paper's answers."""

Key: TypeAlias = tuple[str, str, str, str, str]
"""Table, data set, setting (see `plain`), model, metric."""


@dataclass(frozen=True)
class Counterpart:
    """What the paper calls a model or data set of the run."""

    label: str
    doubt: str = ""
    """Why it may be another one all the same; empty if there is no reason to think so."""


def plain(setting: str) -> str:
    """A setting without case and punctuation: "LN entropy" and "LN-Entropy" are one."""
    return "".join(c for c in setting.casefold() if c.isalnum())


@dataclass(frozen=True)
class Published:
    """One figure of the paper."""

    setting: str
    """As the paper writes it."""
    value: float


@cache
def published() -> Mapping[Key, Published]:
    """All published figures."""
    source = files("semtoken.bench.report") / "paper_figures.csv"
    rows = csv.DictReader(source.read_text(encoding="utf-8").splitlines())
    return {
        (row["table"], row["dataset"], plain(row["setting"]), row["model"], row["metric"]): Published(
            row["setting"], float(row["value"])
        )
        for row in rows
    }


def paper_model(label: str, settings: Mapping[str, Any]) -> Counterpart | None:
    """The paper's model of a label in a run.

    Parameters
    ----------
    label
        As in `Cell.model`.
    settings
        Of the run; they tell the hub id or the folder behind the label.

    Returns
    -------
    Counterpart or None
        Found by the last part of the hub id or folder, or else by the label alone, which is then said.
    """
    names = {name.casefold(): paper for paper, hub in MODELS.items() for name in (paper, PurePath(hub).name)}
    source = _name_behind(label, settings.get("models"))
    if source is not None and (found := names.get(PurePath(source).name.casefold())):
        return Counterpart(found)
    if found := names.get(PurePath(label).name.casefold()):
        return Counterpart(found, "" if source is None else f"{label} is compared by its label; the model is {source}.")
    return None


def paper_dataset(label: str, settings: Mapping[str, Any]) -> Counterpart | None:
    """The paper's data set of a label in a run, or None."""
    source = _name_behind(label, settings.get("datasets"), DATASETS)
    if source is not None and (found := DATASETS.get(source)):
        return Counterpart(found)
    if found := DATASETS.get(label.casefold()):
        return Counterpart(found, "" if source is None else f"{label} is compared by its label; the data are {source}.")
    return None


def _name_behind(label: str, choices: Any, usual: Mapping[str, str] | None = None) -> str | None:
    """The name that a run's settings give to what tables call by a label."""
    for choice in choices if isinstance(choices, list | tuple) else ():
        if isinstance(choice, Mapping) and isinstance(choice.get("name"), str):
            name: str = choice["name"]
            shown = choice.get("label") or (usual or {}).get(name) or _stem(name)
            if shown == label:
                return name
    return None


def _stem(name: str) -> str:
    """The usual label of a file or hub id."""
    return PurePath(name).name.split(".jsonl")[0]
