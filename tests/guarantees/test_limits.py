"""Limits of the answers that each look at the journal takes in: one below, and one beyond.

The limits are some thousands of answers; here they are tens, which are soon written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken.choices import Guarantee
from semtoken.errors import InvalidInputError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.drift import Drift
from semtoken.guarantees.journal.database import cause, engine_of, url_of
from semtoken.guarantees.journal.entries import _name
from semtoken.guarantees.journal.labels import add_label, queue, undo
from semtoken.guarantees.journal.store import Journal
from semtoken.guarantees.journal.watch import _compared, watch
from tests.cli.run import invoke
from tests.guarantees.made_up import entry, filled, fitted, rows_of


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    found = Journal.open(str(tmp_path / "journal.db"))
    yield found
    found.close()


def test_twenty_answers_are_given_to_label_at_a_time_and_to_people_with_a_name(journal: Journal) -> None:
    journal.add(rows_of(entry(i, sampled=True) for i in range(25)))
    assert len(queue(journal, "ann")) == 20 and len(queue(journal, "ann", limit=21)) == 21
    assert len(queue(journal, "a" * 100)) == 20
    for name in ("a" * 101, " "):
        with pytest.raises(InvalidInputError, match="up to 100 characters, none of them invisible"):
            queue(journal, name)
    with pytest.raises(InvalidInputError):
        add_label(journal, "no such entry", "ann", True)
    assert _name("m" * 200) == "m" * 200 == _name("m" * 201) and _name("") is _name(7) is None


def test_odd_arguments_are_refused_by_their_names(journal: Journal) -> None:
    """Some ended in a TypeError, some in 'The journal cannot be used', and limit=-1 left out the last answer."""
    journal.add(rows_of(entry(i, sampled=True) for i in range(3)))
    any_queue: Any = queue
    any_label: Any = add_label
    any_undo: Any = undo
    any_journal: Any = journal
    odd: dict[str, list[Callable[[], Any]]] = {
        "'limit'": [partial(any_queue, journal, "ann", limit=limit) for limit in (-1, 1.5, "x", None)],
        "'reviewer'": [partial(any_undo, journal, None), partial(any_queue, journal, 5)],
        "A label is": [partial(any_label, journal, "entry-1", "ann", label) for label in ("yes", 0.5, math.nan)],
        "'before'": [partial(any_journal.delete, before=time) for time in (math.nan, "2026", datetime.now(UTC))],
        "'person'": [partial(any_journal.delete, person=5)],
        "Say which entries": [any_journal.delete],
        "'rate'": [partial(any_journal.sampling, rate) for rate in (True, "x", math.nan)],
        "'seed'": [partial(any_journal.sampling, seed=5)],
    }
    for message, calls in odd.items():
        for call in calls:
            with pytest.raises(InvalidInputError, match=message):
                call()
    assert journal.size().entries == 3 and journal.size().labels == 0
    any_label(journal, "entry-1", "ann", np.bool_(True))
    assert any_journal.delete(before=np.float32(1.0)) == 0


def test_a_journal_is_opened_by_a_path_of_any_kind(tmp_path: Path) -> None:
    Journal.open(tmp_path / "journal.db").close()
    assert (tmp_path / "journal.db").is_file()
    for other in (None, 5, b"journal.db"):
        with pytest.raises(InvalidInputError, match="address"):
            Journal.open(other)  # type: ignore[arg-type]


@pytest.mark.parametrize(("questions", "compared"), [(29, None), (30, 30), (45, 40)])
def test_as_many_of_the_newest_scores_are_compared(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, questions: int, compared: int | None
) -> None:
    monkeypatch.setattr("semtoken.guarantees.journal.watch.RECENT_SCORES", 40)
    used = fitted()
    journal.use(used.file, used.checksum)
    spread = np.linspace(-0.01, -3, questions)
    about = {"calibrator": used.checksum, "confidence_method": None}
    journal.add(rows_of(entry(i, log_confidence=float(score), **about) for i, score in enumerate(spread)))
    report = watch(journal)
    assert (None if report.moved is None else report.moved.n_recent) == compared


def test_a_new_journal_samples_five_in_a_hundred(journal: Journal) -> None:
    assert journal.sampling()[0].rate == 0.05


@pytest.mark.parametrize("level", [0.0, -0.1, 1.0])
def test_a_watch_takes_no_level_that_is_no_share(journal: Journal, level: float) -> None:
    calibrator = fitted()
    journal.use(calibrator.file, calibrator.checksum)
    with pytest.raises(InvalidInputError, match=f"level must lie between 0 and 1, both excluded. Got {level} instead"):
        watch(journal, level=level)
    assert watch(journal, level=0.01).level == 0.01


@pytest.mark.parametrize(
    ("guarantee", "n", "wrong"), [("selective_risk", 6, 2), ("miss_rate", 5, 2), ("joint_risk", 10, 2)]
)
def test_a_guarantee_is_about_its_own_answers(journal: Journal, guarantee: Guarantee, n: int, wrong: int) -> None:
    """Six of ten labeled answers were accepted, two of them wrong; three of the other four are wrong."""
    scores, correct = -np.arange(1, 401) / 100, np.arange(400) % 10 > 0
    threshold = st.Threshold.fit(scores, correct, alpha=0.5, guarantee=guarantee)
    applied = CalibratorInUse(replace(st.Calibrator.fit(scores, correct), threshold=threshold))
    journal.use(applied.file, applied.checksum)
    decisions = ["answer"] * 6 + ["abstain"] * 4 + ["answer"] * 3
    made = [entry(i, sampled=True, decision=d, calibrator=applied.checksum) for i, d in enumerate(decisions)]
    journal.add(rows_of(made))
    said = [True] * 4 + [False] * 2 + [False] * 3 + [True] + [None] * 3
    for one, label in zip(made, said, strict=True):
        add_label(journal, one.id, "me", label)
    report = watch(journal)
    assert (report.n, report.wrong, report.undecided, report.order) == (n, wrong, 3, "draw")


@pytest.mark.parametrize(("low", "said"), [(0.0, "no difference is shown"), (0.001, "questions or model have changed")])
def test_scores_have_moved_where_the_interval_leaves_out_zero(low: float, said: str) -> None:
    assert said in _compared(SimpleNamespace(drift=lambda answers: Drift(0.3, low, 0.5, 400, 30)), [])[1]  # type: ignore[arg-type]


def test_the_exit_status_of_a_watch(journal: Journal, tmp_path: Path) -> None:
    """0 where labels cannot tell; 1 where the lower end of the distance is above the limit, and not its middle; 3 where
    nothing was measured.
    """

    def status(*words: object) -> int:
        done = invoke(["audit", *map(str, words)])
        assert done.exit_code in (0, 1, 3), done.output
        return done.exit_code

    calibrator, url, file = fitted(), str(tmp_path / "journal.db"), tmp_path / "scores.jsonl"
    filled(journal, calibrator, [])
    assert status(url) == status(url, "--json") == 3
    filled(journal, calibrator, [True] * 28 + [False] * 4)
    found = watch(journal)
    moved = found.moved
    assert found.state == "unknown" and moved is not None and 0.05 < moved.low < moved.distance - 0.1
    assert invoke(["journal", "export", url, "-o", str(file)]).exit_code == 0
    calibrator.calibrator.save(tmp_path / "fitted")
    for words in ((url, "--json"), (file, "--calibrator", tmp_path / "fitted", "--json")):
        assert status(*words, "--audit.max-distance", (moved.low + moved.distance) / 2) == 0
        assert status(*words, "--audit.max-distance", moved.low - 0.05) == 1
    filled(journal, calibrator, [False] * 60, first=1000)
    assert status(url) == 1


def test_the_random_sample_is_a_share(journal: Journal) -> None:
    assert [journal.sampling(rate)[0].rate for rate in (0.0, 1.0)] == [0.0, 1.0]
    for rate in (-0.001, 1.001):
        with pytest.raises(InvalidInputError, match="must be from 0 to 1"):
            journal.sampling(rate)


def test_a_calibrator_decides_since_it_came_into_use_last(journal: Journal) -> None:
    one, other = fitted(), fitted(seed=1)
    journal.use(one.file, one.checksum)
    [first] = journal.in_use()
    journal.use(one.file, one.checksum)  # as a server does each time it is started
    assert journal.in_use()[0].since == first.since
    for again in (other, one):
        journal.use(again.file, again.checksum)
    assert [used.checksum for used in journal.in_use()] == [one.checksum, other.checksum]
    assert journal.in_use()[0].since > first.since


def test_an_error_is_told_on_one_line_of_300_characters() -> None:
    assert cause(ValueError("a\n  b")) == "a b"
    assert [len(cause(ValueError("x" * n))) for n in (299, 300, 301)] == [299, 300, 300]


@pytest.mark.parametrize("address", ["sqlite:///journal.db", "postgresql://me@host/db"])
def test_values_of_a_statement_never_stand_in_an_error(address: str) -> None:
    assert engine_of(url_of(address)).hide_parameters
