"""STC beside its controls: a table, and in words which part of the score earns its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from semtoken.bench.formatting import signed, signed_interval
from semtoken.bench.report.cell_figures import BASELINE, REFERENCE, CellFigures, ControlFigures, Tested
from semtoken.bench.report.comparison import estimate_entry, few_note, tested_entries
from semtoken.bench.report.table import Entry, Group, Table

PARTS = {"no_clusters": "clusters", "no_prefixes": "prefixes", "no_function_words": "function words"}
"""Control without a part -> the part."""
SHUFFLED = "shuffled_by_frequency"
"""The shuffle that is fair to clusters of frequent tokens."""


def controls(cells: Sequence[CellFigures]) -> Table | None:
    """AUROC of STC and of every control; None in a run without controls."""
    groups = [Group(cell.title, tuple(_rows(cell))) for cell in cells if cell.controls]
    if not groups:
        return None
    return Table(
        name="controls",
        title="STC beside its controls",
        header=("Score", "AUROC", "STC minus it", "p", "minus sequence probability", "p"),
        groups=tuple(groups),
        note="Same answers, same model pass. Parts are taken away, or stand alone; other clusters replace those of "
        "the model and keep their sizes where they are shuffled. Bins of frequency go by token id unless counts were "
        "given. Shuffled clusters are drawn several times: the mean, with p of the draw with the median AUROC. Row "
        "means: every other member of a cluster has the mean probability of its step; compare it with clusters only. "
        "Bootstrap intervals and paired permutation tests; p corrected by Holm's procedure for all controls of a model "
        f"and data set, the intervals not.{few_note(cells)}",
    )


def _rows(cell: CellFigures) -> Iterator[tuple[Entry, ...]]:
    baseline = cell.methods[BASELINE].quality["auroc"]
    yield (Entry("STC"), estimate_entry(cell.methods[REFERENCE].quality["auroc"].estimate), *4 * (Entry(""),))
    yield (
        Entry("Sequence probability"),
        estimate_entry(baseline.estimate),
        *_reversed(baseline.to_stc),
        *2 * (Entry(""),),
    )
    for found in cell.controls.values():
        title = f"{found.control.title}" + (f" (mean of {found.repeats})" if found.repeats > 1 else "")
        yield (
            Entry(title),
            estimate_entry(found.estimate),
            *tested_entries(found.stc_minus),
            *tested_entries(found.minus_baseline),
        )


def _reversed(tested: Tested | None) -> tuple[Entry, Entry]:
    """STC minus the other, where the test was of the other minus STC."""
    difference, p = tested_entries(tested)
    if tested is not None:
        found = tested.difference
        ends = signed_interval(-found.high, -found.low) or difference.detail
        difference = Entry(signed(-found.value), ends)
    return difference, p


def parts_in_words(cells: Sequence[CellFigures]) -> Iterator[str]:
    """Which part of STC earns its place on each model and data set."""
    for cell in cells:
        if not cell.controls:
            continue
        said = [_of_part(part, cell.controls[name]) for name, part in PARTS.items() if name in cell.controls]
        if SHUFFLED in cell.controls:
            said.append(_of_meaning(cell.controls[SHUFFLED]))
        yield f"{cell.title}: {' '.join(said)}"


def _of_part(part: str, without: ControlFigures) -> str:
    plural = part.capitalize()
    verdicts = {
        "higher": f"{plural} earn their place",
        "lower": f"{plural} do harm",
        "not told apart": f"{plural} make no difference that these answers can show",
        "too few answers": f"Whether {part} help cannot be said from so few answers",
    }
    return f"{verdicts[without.stc_minus.verdict]} ({_amount(without.stc_minus)} against STC without them)."


def _of_meaning(shuffled: ControlFigures) -> str:
    verdicts = {
        "higher": "Which tokens share a cluster matters: STC beats clusters shuffled within bins of frequency",
        "lower": "The clusters are worse than shuffled ones (within bins of frequency)",
        "not told apart": "The clusters cannot be told from shuffled ones (within bins of frequency), so nothing here "
        "shows that meaning helps",
        "too few answers": "Whether the clusters beat shuffled ones cannot be said from so few answers",
    }
    return f"{verdicts[shuffled.stc_minus.verdict]} ({_amount(shuffled.stc_minus)})."


def _amount(tested: Tested) -> str:
    found = tested.difference
    return f"{signed(found.value)} {signed_interval(found.low, found.high)}".strip()
