"""The paper's figures (Cao et al., EACL 2026, arXiv:2603.20161) beside those of a report, measured minus published.

    python research/experiments/published/against.py runs/paper/report --out build/published.csv

It reads `csv/figures.csv` and `answers.parquet` of the report, writes the figures that both have, and prints how many
published ones are in the measured 95 % interval, what has no counterpart, and where the set-up is not the paper's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import pandas

from semtoken.bench.results import RunResults, read_answers

PUBLISHED = Path(__file__).parent / "figures.csv"
PLACE = ["table", "dataset", "setting", "model", "metric"]
"""The columns of either list that say which figure a row is."""
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
"""Name in a run's settings, in lower case -> label in the paper."""
JUDGE = "gpt-4.1-2025-04-14"
SETTINGS = {"preset": "paper", "function_words": "paper"}
DECODING = {"max_new_tokens": 256, "n_samples": 5, "temperature": 0.5}
CLUSTERING = {
    "algorithm": "agglomerative",
    "linkage": "complete",
    "metric": "cosine",
    "embedding": "concatenated",
    "n_clusters": 16_000,
}
"""What the paper's run was set to."""


def plain(setting: str) -> str:
    """The name of a setting in lower case without punctuation, so that "LN entropy" equals "LN-Entropy"."""
    return "".join(c for c in setting.casefold() if c.isalnum())


def published() -> pandas.DataFrame:
    """All figures of the paper: `PLACE`, `value`; settings as `plain` has them, as published in `named`."""
    rows = pandas.read_csv(PUBLISHED, dtype={"setting": str}, keep_default_na=False)
    return rows.assign(named=rows.setting, setting=rows.setting.map(plain))


def paper_model(label: str, settings: Mapping[str, Any]) -> str:
    """The paper's label of a model of the run, found by the last part of its hub id or folder; empty if it has none."""
    names = {name.casefold(): paper for paper, hub in MODELS.items() for name in (paper, PurePath(hub).name)}
    return names.get(PurePath(name_behind(label, settings.get("models", ()))).name.casefold(), "")


def paper_dataset(label: str, settings: Mapping[str, Any]) -> str:
    """The paper's label of a data set of the run; empty if it has none."""
    return DATASETS.get(name_behind(label, settings.get("datasets", ())).casefold(), "")


def name_behind(label: str, choices: Sequence[Mapping[str, Any]]) -> str:
    """What the run's settings name what its tables call by a label; the label itself if they do not say."""
    return next((str(choice["name"]) for choice in choices if choice.get("label") == label), label)


def beside(figures: pandas.DataFrame, settings: Mapping[str, Any]) -> pandas.DataFrame:
    """The figures of a run with `paper`, `difference` (measured minus published) and `within`.

    `within`: the published figure is in the measured 95 % interval; missing where there is none, or no counterpart.
    """
    own = figures.assign(
        dataset=figures.dataset.map(lambda label: paper_dataset(label, settings) or f"not in the paper: {label}"),
        model=figures.model.map(lambda label: paper_model(label, settings)),
        setting=figures.setting.map(plain),
    )
    own.loc[figures.dataset == "", "dataset"] = ""  # the time of clustering is of a model alone
    found = own[PLACE].merge(published()[[*PLACE, "value"]], on=PLACE, how="left").value.to_numpy()
    made = figures.assign(paper=found, difference=figures.value - found)
    known = made.paper.notna() & made.low.notna()
    return made.assign(within=made.paper.between(made.low, made.high).where(known))


def summary(compared: pandas.DataFrame) -> Iterator[str]:
    """How many figures have a counterpart, and how many published ones are in the interval of the measured one."""
    measured = compared[compared.value.notna()]
    yield f"{measured.paper.count():,} of the {len(measured):,} figures of this run have a counterpart in the paper."
    # STC stands in several tables with one and the same figure: it counts once
    tested = measured[measured.within.notna()].drop_duplicates(["dataset", "model", "metric", "value", "paper"])
    if len(tested):
        inside = int(tested.within.sum())
        yield f"{inside:,} of {len(tested):,} published AUROC and PRR figures are in the measured 95 % interval."


def missing(compared: pandas.DataFrame, settings: Mapping[str, Any]) -> Iterator[str]:
    """Models and data sets that the paper does not have, and methods and settings that the run does not have."""
    for kind, known in (("model", paper_model), ("dataset", paper_dataset)):
        for label in filter(None, compared[kind].unique()):
            if not known(label, settings):
                yield f"The paper has no figures for the {kind} {label}."
    listed = published().query("metric == 'AUROC'")
    for (model, dataset), rows in compared[compared.dataset != ""].groupby(["model", "dataset"], sort=False):
        labels = paper_model(model, settings), paper_dataset(dataset, settings)
        own = listed[(listed.model == labels[0]) & (listed.dataset == labels[1])]
        held = set(zip(rows.table, rows.setting.map(plain), strict=True))
        names = [f"{row.table}: {row.named}" for row in own.itertuples() if (row.table, row.setting) not in held]
        if names:
            yield f"In the paper but not in this run ({model} on {dataset}): {'; '.join(names)}."


def set_up(results: RunResults) -> Iterator[str]:
    """Where the run is not set up as the paper's was."""
    for cell in results.cells:
        asked = QUESTIONS.get(paper_dataset(cell.dataset, results.settings), len(cell.question_ids))
        if len(cell.question_ids) != asked:
            yield f"{cell.title}: {len(cell.question_ids):,} questions, the paper asked {asked:,}."
    for own in results.clusterings:
        if own.variant == "main":
            yield from unlike(own.settings, CLUSTERING, f"The clustering of {own.model}: ")
    yield from unlike(results.settings, SETTINGS)
    yield from unlike(results.settings.get("decoding") or {}, DECODING)
    judges = [judge for judge in results.settings.get("judges", ()) if isinstance(judge, Mapping)]
    if not any(judge.get("model") == JUDGE for judge in judges):
        yield f"Correctness is by {results.primary_judge}; the paper's judge is {JUDGE}."
    yield "Seconds and percentages are of this machine; the paper's were taken on 8 A100 GPUs with 40 GB."


def unlike(settings: Mapping[str, Any], expected: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """The settings that are there and are not the expected ones."""
    for name, value in expected.items():
        if settings.get(name, value) != value:
            yield f"{where}{name} is {settings[name]}, the paper's is {value}."


def main() -> None:
    """Write the figures and print the sentences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="The folder of a report.")
    parser.add_argument("--out", type=Path, default=Path("build/published.csv"), help="Where the figures go.")
    arguments = parser.parse_args()
    results = read_answers(arguments.report / "answers.parquet")
    figures = pandas.read_csv(arguments.report / "csv/figures.csv", dtype={"setting": str}).fillna({"dataset": ""})
    compared = beside(figures, results.settings)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    compared[compared.paper.notna()].to_csv(arguments.out, index=False)
    print(*summary(compared), *missing(compared, results.settings), *dict.fromkeys(set_up(results)), sep="\n- ")


if __name__ == "__main__":
    main()
