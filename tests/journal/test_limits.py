"""How many answers each look at the journal takes in: one below the limit, and one beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from semtoken.journal.labels import add_label, queue, sampled_answers
from semtoken.journal.store import Journal, rows_of
from semtoken.journal.watch import promise_report, watch
from tests.journal.made_up import entry, fitted


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    found = Journal.open(str(tmp_path / "journal.db"))
    yield found
    found.close()


def test_the_least_sure_of_the_newest_two_thousand_are_asked_about(journal: Journal) -> None:
    journal.add(rows_of(entry(i, sampled=False, chance=i / 3000) for i in range(2_100)))
    asked = [row["id"] for row in queue(journal, "ann", "doubtful", limit=1000)]
    assert asked == [f"entry-{i}" for i in range(100, 300)]
    assert len(queue(journal, "ann", "doubtful", limit=3)) == 3


def test_the_sample_is_labelled_from_its_oldest_hundred_on(journal: Journal) -> None:
    journal.add(rows_of(entry(i, sampled=True) for i in range(120)))
    asked = {row["id"] for row in queue(journal, "ann", limit=1000)}
    assert asked == {f"entry-{i}" for i in range(100)}


def test_thresholds_are_placed_by_the_newest_five_thousand(journal: Journal) -> None:
    journal.add(rows_of(entry(i, sampled=True, log_score=-i / 1e4, headline=None) for i in range(5_010)))
    for number in (0, 5_009):
        add_label(journal, f"entry-{number}", "ann", True)
    found = sampled_answers(journal)
    scores = sorted(-(one.log_score or 0.0) * 1e4 for one in found)
    assert scores == pytest.approx([0, *range(10, 5_010)])
    assert [one.correct for one in found].count(True) == 2


@pytest.mark.parametrize(("questions", "compared"), [(11, None), (12, 12), (2_005, 2_000)])
def test_as_many_of_the_newest_scores_are_compared(journal: Journal, questions: int, compared: int | None) -> None:
    used = fitted()
    journal.use(used.file, used.checksum)
    spread = np.linspace(-0.01, -3, questions)
    about = {"calibrator": used.checksum, "headline": None}
    journal.add(rows_of(entry(i, log_score=float(score), **about) for i, score in enumerate(spread)))
    report = watch(journal)
    assert (None if report.moved is None else report.moved.n_recent) == compared


def test_a_new_journal_samples_five_in_a_hundred(journal: Journal) -> None:
    assert journal.sampling()[0].rate == 0.05


def test_each_state_is_said_with_its_counts_and_ends_in_percent() -> None:
    kept = promise_report([False] * 200, range(200), 0.1)
    assert kept.sentence == (
        f"Kept so far: 0 of 200 labelled accepted answers are wrong (between 0 % and {100 * kept.high:.1f} %); "
        "promised: at most 10 %."
    )
    assert promise_report([], [], 0.1).sentence == "Cannot be told yet: 0 labels. Promised: at most 10 %."
    for promise, said in (
        ("missed", "3 of 20 labelled wrong answers were accepted"),
        ("joint", "3 of 20 labelled answers were"),
    ):
        report = promise_report([i % 6 == 5 for i in range(20)], range(20), 0.1, promise)
        assert said in report.sentence and (report.n, report.wrong, report.alpha) == (20, 3, 0.1)
        assert report.state == "unknown" and report.sentence.startswith("Cannot be told yet: 20 labels. 3 of 20")
