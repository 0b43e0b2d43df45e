"""Entries, people's labels and what is asked next, beside lists in memory that are searched one by one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
import pytest

from semtoken.guarantees.journal import labels as by_people
from semtoken.guarantees.journal.export import records
from semtoken.guarantees.journal.labels import QueueName, add_label, agreement, queue, sampled_answers, undo
from semtoken.guarantees.journal.store import Journal
from tests.guarantees.made_up import entry, fitted, rows_of
from tests.known import known

PEOPLE = ("ann", "bob", "cy")
LIMITS = {"RECENT": 25, "MOST_IN_QUEUE": 6, "OLDEST": 8, "MOST_UNLABELED": 9}
"""Limits that are some thousands of answers, so small that each of them is reached."""
CALIBRATORS = [fitted(0.2), fitted(0.4), fitted(0.1)]


@dataclass
class Twin:
    """A journal in lists."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """The entries in the order in which they came, each with its number `n`."""
    given: dict[tuple[str, str], bool | None] = field(default_factory=dict)
    """Labels by entry and person, in the order of their first ones."""
    last: list[tuple[str, str]] = field(default_factory=list)
    """Entries and people in the order in which the labels that count were given."""
    used: list[Any] = field(default_factory=list)
    """Calibrators, the one that decides now at the end."""

    def label(self, name: str, person: str, correct: bool | None) -> None:
        self.given[name, person] = correct
        self.last = [*(one for one in self.last if one != (name, person)), (name, person)]

    def undo(self, person: str) -> str | None:
        own = [one for one in self.last if one[1] == person]
        if not own:
            return None
        self.last.remove(own[-1])
        del self.given[own[-1]]
        return own[-1][0]

    def delete(self, **about: Any) -> int:
        gone = [
            row["id"]
            for row in self.rows
            if row["at"] < about.get("before", np.inf) and about.get("person", row["person"]) == row["person"]
        ]
        self.rows = [row for row in self.rows if row["id"] not in gone]
        self.given = {key: said for key, said in self.given.items() if key[0] not in gone}
        self.last = [key for key in self.last if key[0] not in gone]
        return len(gone)

    def of(self, name: str) -> dict[str, bool | None]:
        return {person: said for (entry, person), said in self.given.items() if entry == name}

    def verdict(self, name: str) -> bool | None:
        said = [one for one in self.of(name).values() if one is not None]
        return all(said) if said else None

    def queue(self, person: str, name: str, limit: int) -> list[str]:
        mine = [row for row in self.rows if row["answer"] is not None and person not in self.of(row["id"])]
        if name == "sample":
            wanted = [r for r in mine if r["sampled"] and len(self.of(r["id"])) < (2 if r["seen_twice"] else 1)]
            turn = {r["id"]: hashlib.blake2b(f"{person}:{r['id']}".encode(), digest_size=8).digest() for r in wanted}
            return sorted([row["id"] for row in wanted[: LIMITS["OLDEST"]]], key=turn.__getitem__)[:limit]
        newest = max((row["n"] for row in self.rows), default=0)
        recent = [row for row in self.rows if row["n"] > newest - LIMITS["RECENT"]]
        asked = [r for r in mine if r in recent and not r["sampled"] and not self.of(r["id"])]
        if name == "disagreement":
            asked = [row for row in asked if self.disagreed(row, [r for r in recent if r["decision"] is not None])]

        def doubt(row: dict[str, Any]) -> tuple[float, int]:
            numbers = [one for one in (row["probability_correct"], row["confidence"]) if one is not None]
            return (numbers or [-1.0])[0], row["n"]

        return [row["id"] for row in sorted(asked, key=doubt)][: min(limit, LIMITS["MOST_IN_QUEUE"])]

    def disagreed(self, row: dict[str, Any], decided: list[dict[str, Any]]) -> bool:
        """Whether models, or the two last calibrators, decided otherwise."""
        if row not in decided:
            return False
        each_once = list(dict.fromkeys(one.checksum for one in reversed(self.used)))
        if len(each_once) > 1 and row["calibrator"] == each_once[0]:
            [before] = {one for one in CALIBRATORS if one.checksum == each_once[1]}
            threshold = known(before.calibrator.threshold)
            accepted = row["log_confidence"] >= known(threshold.min_log_score)
            if accepted != (row["decision"] == "answer"):
                return True
        same = [other for other in decided if other["prompt"] == row["prompt"]]
        return all(len({other[name] for other in same}) > 1 for name in ("model", "decision"))

    def sample(self) -> list[tuple[str, bool | None]]:
        """The answers that a calibrator is fitted on, with those that only place its threshold."""
        sampled = {row["id"]: row for row in self.rows if row["sampled"]}
        labeled = [name for name in dict.fromkeys(name for name, _ in self.given) if name in sampled]
        judged = [name for name in labeled if self.verdict(name) is not None]
        kind = sampled[judged[-1]]["signature"]
        rest = [name for name, row in reversed(sampled.items()) if row["signature"] == kind][: LIMITS["MOST_UNLABELED"]]
        found = [(name, self.verdict(name)) for name in judged if sampled[name]["signature"] == kind]
        return found + [(name, None) for name in rest if name not in judged]


def compare(journal: Journal, twin: Twin, limit: int) -> None:
    for person in PEOPLE:
        for name in get_args(QueueName):
            asked = [row["id"] for row in queue(journal, person, name, limit=limit)]
            assert asked == twin.queue(person, name, limit), (person, name)
    labeled = {name: list(twin.of(name).values()) for name, _ in twin.given}
    judged = [[one for one in said if one is not None] for said in labeled.values()]
    twice = [said for said in judged if len(said) > 1]
    found = agreement(journal)
    assert (found.twice, found.disagreed) == (len(twice), sum(len(set(said)) > 1 for said in twice))
    size, at = journal.size(), [row["at"] for row in twin.rows]
    assert (size.entries, size.sampled) == (len(twin.rows), sum(row["sampled"] for row in twin.rows))
    assert (size.labels, size.reviewers) == (len(twin.given), len({person for _, person in twin.given}))
    assert (size.first, size.last) == (min(at, default=None), max(at, default=None))
    for row, own in zip(records(journal), twin.rows, strict=True):
        said = twin.of(own["id"])
        assert row["id"] == own["id"] and row.get("correct") == (twin.verdict(own["id"]) if own["sampled"] else None)
        assert {one["reviewer"]: one["correct"] for one in row.get("labels", ())} == said
    if any(row["sampled"] and twin.verdict(row["id"]) is not None for row in twin.rows):
        assert [(one.record["id"], one.correct) for one in sampled_answers(journal)] == twin.sample()


@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_a_journal_does_what_lists_do(journal: Journal, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in LIMITS.items():
        monkeypatch.setattr(by_people, name, limit)
    monkeypatch.setattr("semtoken.guarantees.journal.store.AT_ONCE", 7)
    draw, twin, made = np.random.default_rng(seed), Twin(), 0

    def one_of(*given: Any) -> Any:
        return given[draw.integers(len(given))]

    for _ in range(60):
        names = [row["id"] for row in twin.rows]
        match one_of("add", "add", "label", "label", "label", "ask", "ask", "undo", "delete", "use"):
            case "use":
                twin.used.append(one_of(*CALIBRATORS))
                journal.use(twin.used[-1].file, twin.used[-1].checksum)
            case "add":
                more = []
                for _ in range(12):
                    sampled, by = bool(draw.random() < 0.4), one_of(None, *twin.used[-2:])
                    about = {
                        "sampled": sampled,
                        "seen_twice": sampled and bool(draw.random() < 0.4),
                        "person": one_of("ann", "somebody"),
                        "prompt": f"p{draw.integers(5)}",
                        "model": one_of("m1", "m2"),
                        "signature": one_of("preset:default", "preset:default", "preset:paper"),
                        "answer": one_of("an answer", "an answer", None),
                        "log_confidence": -float(draw.exponential(0.5)),
                        "confidence_method": None,
                        "confidence": one_of(None, float(draw.random())),
                        "probability_correct": one_of(None, float(draw.random())),
                        "decision": None if by is None else one_of("answer", "abstain"),
                        "calibrator": None if by is None else by.checksum,
                    }
                    more.append(entry(made, **about))
                    made += 1
                journal.add(rows_of(more))
                numbers = {row["id"]: row["n"] for row in journal.entries()}
                twin.rows += [row | {"n": numbers[row["id"]]} for row in rows_of(more)]
            case "label" if names:
                name, person, said = one_of(*names), one_of(*PEOPLE), one_of(True, False, None)
                add_label(journal, name, person, said)
                twin.label(name, person, said)
            case "ask":
                person, kind = one_of(*PEOPLE), one_of("sample", "sample", "doubtful", "disagreement")
                for row in queue(journal, person, kind, limit=5):
                    correct = one_of(True, True, False)
                    add_label(journal, row["id"], person, correct)
                    twin.label(row["id"], person, correct)
            case "undo":
                person = one_of(*PEOPLE)
                assert undo(journal, person) == twin.undo(person)
            case "delete" if names:
                old = {"before": twin.rows[draw.integers(len(names)) // 5]["at"]}
                about = one_of(old, {"person": "ann"} | old)
                assert journal.delete(**about) == twin.delete(**about)
        compare(journal, twin, int(draw.integers(1, 12)))
    assert made > 60
