"""Tables of the methods, of STC without its parts and with other clusters: the table of results, turned and tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, product
from typing import TYPE_CHECKING, Any

from semtoken.bench.controls import CONTROLS
from semtoken.bench.plan import MAIN
from semtoken.bench.report.measure import (
    ABLATIONS,
    BASELINE,
    METRICS,
    PERCENT,
    PLACE,
    SECONDS,
    STC,
    STUDIES,
    Measured,
    MeasuredCell,
    by_value,
    cell_titles,
    in_order,
    is_main,
    select,
    settings_of,
    spoken,
    title_of,
)
from semtoken.bench.report.numbers import MISSING, NOT_RUN, amount, difference, estimate, signed, signed_interval
from semtoken.bench.report.paired import FEW, FEWEST, NOT_SHOWN
from semtoken.bench.report.table import Table, best_marks, frame
from semtoken.bench.results import ClusteringRecord
from semtoken.support.extras import require
from semtoken.support.text import one_line

if TYPE_CHECKING:
    from pandas import DataFrame

VERDICT_RULE = (
    "Intervals: 95%, paired bootstrap, every resample draws the same questions for both. Higher, lower: the interval "
    "of the difference lies above or below 0; not shown: it holds 0. They are not corrected for their number: of "
    "twenty differences that are none, one is called so."
)
"""The meaning of the verdicts in all tables."""
UNDEFINED_SAID = "Undefined: answers for which the method has no value (NaN or infinite); they share the worst rank."
MARKS = (
    "Best of each column in bold, second best underlined; what reads the same is marked together. "
    "In brackets: 95% bootstrap interval. "
)
LEVEL = "≈: not shown to be lower than the best (the 95% interval of their difference holds 0). "


def comparison(made: Measured, metric: str) -> Table:
    """A table of one metric of every compared method: rows are methods, columns models, groups data sets."""
    figures = select(made.figures, table="comparison", metric=metric)
    best = made.tests[made.tests.against.str.startswith("best: ") & (made.tests.verdict == NOT_SHOWN)]
    level = set(best[list(PLACE)].itertuples(index=False, name=None))
    signs = ["≈" if place in level else "" for place in figures[list(PLACE)].itertuples(index=False, name=None)]
    return _crossed(
        figures.assign(sign=signs),
        list(product(datasets_of(made), _titles(made))),
        name=f"comparison_{metric.lower()}",
        title=f"{metric} of the methods",
        note=f"{MARKS}{LEVEL}Higher is better.{few_note(made)}",
    )


def ablation(made: Measured, metric: str) -> Table:
    """A table of one metric of STC, STC without clusters, STC without prefix sets, and sequence probability."""
    return _crossed(
        select(made.figures, table=["ablation", "comparison"], metric=metric).drop_duplicates(PLACE[1:]),
        list(product(datasets_of(made), _ablated(made))),
        name=f"ablation_{metric.lower()}",
        title=f"{metric} of STC without its parts",
        note=f"{MARKS}Sequence probability is STC without clusters, prefixes and function words.{few_note(made)}",
        first="Setting",
    )


def overhead(made: Measured, metric: str) -> Table:
    """A table of the time that methods take beyond the greedy generation, in seconds or in percent of it."""
    return _crossed(
        select(made.figures, table="comparison", metric=metric),
        list(product(datasets_of(made), _titles(made))),
        lambda row: f"{MISSING} not measured" if row.value != row.value else amount(row.value),
        smallest=True,
        name="overhead_percent" if metric == PERCENT else "overhead_seconds",
        title="Overhead in percent of the greedy generation" if metric == PERCENT else f"Overhead in {SECONDS}",
        note="Time beyond the greedy generation of all questions. A step that several methods share (samples, "
        "entailment) is charged in full to each. Smallest in bold, second smallest underlined.",
    )


def sensitivity(made: Measured, clusterings: Sequence[ClusteringRecord]) -> Table | None:
    """A table of the AUROC of STC with other clusterings; None without a study."""
    figures = select(made.figures, table=list(STUDIES.values()))
    if figures.empty:
        return None
    settings = {study: setting for setting, study in STUDIES.items()}
    main = [str(settings_of(r.model, clusterings).get(settings[r.table])) == r.setting for r in figures.itertuples()]
    places = [
        (f"{dataset}: {study}", value)
        for dataset, study in product(datasets_of(made), STUDIES.values())
        for value in sorted(set(select(figures, dataset=dataset, table=study).setting), key=by_value)
    ]
    return _crossed(
        figures.assign(dataset=figures.dataset + ": " + figures.table, sign=["*" if own else "" for own in main]),
        places,
        first="Value",
        name="sensitivity",
        title="AUROC of STC by clustering",
        note=f"{MARKS}One setting is changed at a time. *: the clustering that the methods use.",
    )


def _crossed(
    figures: DataFrame,
    places: Sequence[tuple[str, str]],
    text: Callable[[Any], str] = lambda row: estimate_text(row),
    *,
    smallest: bool = False,
    first: str = "Method",
    **rest: Any,
) -> Table:
    """Settings of every data set in rows, models in columns; `places` are the data set and the setting of each row."""
    pandas = require("pandas", extra="bench")
    models = list(dict.fromkeys(figures.model))
    index = pandas.MultiIndex.from_tuples(places, names=["dataset", "setting"])
    groups = [dataset for dataset, _ in places]
    figures = figures.assign(text=[text(row) for row in figures.itertuples()])
    figures = figures.set_index(["dataset", "setting", "model"])
    texts = figures.text.unstack().reindex(index=index, columns=models).fillna(NOT_RUN).set_axis(groups)
    values = figures.value.unstack().reindex(index=index, columns=models).astype(float).set_axis(groups)
    marks = best_marks(values, texts, smallest=smallest)
    marks.insert(0, first, "", allow_duplicates=True)
    texts.insert(0, first, [shown(setting) for _, setting in places], allow_duplicates=True)
    return Table(frame=texts, marks=marks, **rest)


def estimate_text(row: Any) -> str:
    """The value of a figure with its sign, if it has one, and its interval."""
    value, gap, rest = estimate(row.value, row.low, row.high).partition(" ")
    return f"{value}{getattr(row, 'sign', '')}{gap}{rest}"


def method_tests(made: Measured, metric: str, reference: str | None = None) -> Table:
    """A table of one metric of every method and its tested differences: to STC and to the best, or to a reference."""
    rows, groups = [], []
    title = "STC" if reference is None else title_of(reference)
    for cell in made.cells:
        ranked = made.ranked(cell, metric)
        if ranked.empty or (reference is not None and reference not in cell.seconds):
            continue
        undefined = {title_of(name): count for name, count in cell.undefined.items()}
        others = [title] if reference is not None else [title, f"best: {ranked.setting.iloc[0]}"]
        for row in ranked.itertuples():
            rows.append([row.setting, *_with_tests(made, cell, row, others), f"{undefined[row.setting]:,}"])
            groups.append(cell.title)
    about = "" if reference is None else spoken(reference)
    picked = "" if about else " The best was picked on these same answers, which its intervals do not allow for."
    tested_header = (f"minus {about}", "") if about else ("minus STC", "", "minus the best", "")
    return Table(
        name=f"reference_{metric.lower()}" if about else f"tests_{metric.lower()}",
        title=f"{metric} beside that of {about}" if about else f"Differences of {metric} on the same answers",
        frame=frame(rows, ("Method", metric, *tested_header, "undefined"), groups),
        note=f"{VERDICT_RULE}{picked} {UNDEFINED_SAID}{few_note(made)}",
    )


def ablation_tests(made: Measured) -> Table:
    """A table of both metrics of STC, its ablations and sequence probability, with differences to STC and verdicts."""
    rows, groups = [], []
    for cell in made.cells:
        for setting in _ablated(made):
            # STC is in two tables, with one figure.
            figures = made.of(cell, setting=setting, metric=list(METRICS.values())).drop_duplicates("metric")
            if len(figures):
                texts = (_with_tests(made, cell, figure, ["STC"]) for figure in figures.itertuples())
                rows.append([setting, *chain.from_iterable(texts)])
                groups.append(cell.title)
    return Table(
        name="ablation_tests",
        title="STC without its parts next to STC",
        frame=frame(rows, ("Setting", "AUROC", "minus STC", "", "PRR", "minus STC", ""), groups),
        note=f"{VERDICT_RULE}{few_note(made)}",
    )


def sensitivity_tests(made: Measured) -> Table | None:
    """A table of tests of every clustering of the study against the main one; None without a study."""
    tests = select(made.tests, table=list(STUDIES.values()))
    if tests.empty:
        return None
    values = tests.merge(made.figures, on=list(PLACE), suffixes=("_difference", ""))
    rows = [
        [f"{row.table.capitalize()}: {shown(row.setting)}", estimate_text(row), *tested_texts(test)]
        for row, test in zip(values.itertuples(), tests.itertuples(), strict=True)
    ]
    return Table(
        name="sensitivity_tests",
        title="Other clusterings next to the one that the methods use",
        frame=frame(rows, ("Clustering", "AUROC", "minus STC", ""), cell_titles(tests)),
        note=VERDICT_RULE,
    )


def datasets_of(made: Measured) -> list[str]:
    """The labels of the data sets, each once, in the order of the run."""
    return list(dict.fromkeys(cell.dataset for cell in made.cells))


def _titles(made: Measured) -> list[str]:
    """The titles of the compared methods, those of `METHODS` in its order first."""
    names = in_order(dict.fromkeys(name for cell in made.cells for name in cell.seconds))
    return [title_of(name) for name in names if name not in ABLATIONS]


def _ablated(made: Measured) -> list[str]:
    own = {name for cell in made.cells for name in cell.seconds}
    return [title_of(name) for name in (STC, *ABLATIONS, BASELINE) if name in own]


def _with_tests(made: Measured, cell: MeasuredCell, figure: Any, others: Sequence[str]) -> list[str]:
    """A figure as text, with its difference to each of the others and the verdict on that."""
    tests = [made.test(cell, figure.setting, other, figure.metric) for other in others]
    return [estimate_text(figure), *chain.from_iterable(map(tested_texts, tests))]


def tested_texts(tested: Any) -> tuple[str, str]:
    """Two entries of a table: a difference with its interval, and the verdict on it; empty for None."""
    if tested is None:
        return "", ""
    return difference(tested.difference, tested.low, tested.high), tested.verdict


def few_note(made: Measured) -> str:
    """A warning for the note below a table, where few answers are right or few are wrong; else empty."""
    few = [f"{cell.title} ({cell.fewest:,})" for cell in made.cells if cell.fewest < FEW]
    if not few:
        return ""
    return (
        f" Beware: fewer than {FEW} right or wrong answers in {', '.join(few)}: a few answers more or less could turn "
        f"these figures round. With fewer than {FEWEST} there is no verdict."
    )


PARTS = {"no_clusters": "clusters", "no_prefixes": "prefixes", "no_function_words": "function words"}
"""Control without a part -> the part."""
SHUFFLED = "shuffled_by_frequency"
"""The shuffle that is fair to clusters of frequent tokens."""


def controls(made: Measured) -> Table | None:
    """A table of the AUROC of STC and of every control; None in a run without controls."""
    rows, groups = [], []
    for cell in made.cells:
        own = made.of(cell, table="control")
        beside = made.of(cell, table="comparison", metric="AUROC", setting=[title_of(STC), title_of(BASELINE)])
        for row in () if own.empty else [*beside.itertuples(), *own.itertuples()]:
            rows.append([row.setting, *_with_tests(made, cell, row, ["STC", title_of(BASELINE)])])
            groups.append(cell.title)
    if not rows:
        return None
    return Table(
        name="controls",
        title="STC next to its controls",
        frame=frame(rows, ("Score", "AUROC", "minus STC", "", "minus sequence probability", ""), groups),
        note="Same answers, same model pass. Parts are taken away, or stand alone; other clusters replace those of "
        "the model and keep their sizes where they are shuffled. Bins of frequency go by token id unless counts were "
        "given. Shuffled clusters are drawn several times: the mean. Row "
        "means: every other member of a cluster has the mean probability of its step; compare it with clusters only. "
        f"{VERDICT_RULE}{few_note(made)}",
    )


OF_PART = {
    "lower": "{} earn their place",
    "higher": "{} do harm",
    "not shown": "{} make no difference that these answers can show",
    "too few answers": "Whether {} help cannot be said from so few answers",
}
OF_MEANING = {
    "lower": "Which tokens share a cluster matters: STC beats clusters shuffled within bins of frequency",
    "higher": "The clusters are worse than shuffled ones (within bins of frequency)",
    "not shown": "The clusters cannot be told from shuffled ones (within bins of frequency), so nothing here "
    "shows that meaning helps",
    "too few answers": "Whether the clusters beat shuffled ones cannot be said from so few answers",
}


def parts_in_words(made: Measured) -> Iterator[str]:
    """Sentences on which part of STC improves the ranking on each model and data set."""
    for cell in made.cells:
        said = []
        for name, part in PARTS.items():
            if (test := made.test(cell, CONTROLS[name].title, "STC")) is not None:
                words = OF_PART[test.verdict].format(part if test.verdict == "too few answers" else part.capitalize())
                said.append(f"{words} (without them {_amount(test)}).")
        if (test := made.test(cell, CONTROLS[SHUFFLED].title, "STC")) is not None:
            said.append(f"{OF_MEANING[test.verdict]} (shuffled {_amount(test)}).")
        if said:
            yield f"{cell.title}: {' '.join(said)}"


def _amount(tested: Any) -> str:
    return f"{signed(tested.difference)} {signed_interval(tested.low, tested.high)}".strip()


BLANK = "␣"
"""Stands for a blank at the beginning of a token."""


def examples(clusterings: Sequence[ClusteringRecord]) -> Table | None:
    """A table of the clusters of some frequent words; None if the run holds no such examples."""
    rows = [(own.model, ", ".join(map(token_text, cluster))) for own in clusterings for cluster in own.examples]
    if not rows:
        return None
    return Table(
        name="clusters",
        title="Examples of clusters",
        frame=frame([[text] for _, text in rows], ("Tokens of one cluster",), [model for model, _ in rows]),
        note=f"{BLANK} is a space.",
    )


def precomputation(clusterings: Sequence[ClusteringRecord]) -> Table | None:
    """A table of the time that each clustering took; None in a run without clusterings."""
    if not clusterings:
        return None
    own = [one for one in clusterings if not is_main(one.variant, one.model, clusterings)]
    return Table(
        name="precomputation",
        title="Time of clustering",
        frame=frame(
            [
                [
                    one.model,
                    "used by the methods" if one.variant == MAIN else _variant_title(one.variant),
                    ", ".join(str(one.settings[k]) for k in STUDIES if k in one.settings and k != "n_clusters"),
                    f"{one.n_tokens:,}",
                    f"{n:,}" if isinstance(n := one.settings.get("n_clusters"), int) else MISSING,
                    f"{MISSING} not known" if one.seconds is None else amount(one.seconds),
                ]
                for one in own
            ],
            ("Model", "Clustering", "Settings", "Tokens", "Clusters", "Seconds"),
        ),
        note="Once for each model, before any question. Clusters that were given may not say how long they took.",
        left=3,
    )


def shown(value: str) -> str:
    """The value of a setting as text: 16,000 rather than 16000."""
    return f"{int(value):,}" if value.isdigit() else value


def _variant_title(name: str) -> str:
    """The name of a variant in tables: "Distance: euclidean" for "metric=euclidean"."""
    setting, _, value = name.partition("=")
    return f"{STUDIES.get(setting, setting).capitalize()}: {shown(value)}"


def token_text(text: str) -> str:
    """The text of a token with blanks made visible."""
    return one_line(text).replace(" ", BLANK)
