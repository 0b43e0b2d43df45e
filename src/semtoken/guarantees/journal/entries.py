"""Entries of the journal: what is kept of a scored answer, under the names of the table's columns.

A row that is read becomes a record under the names that files of answers have.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from semtoken.core.results import ScoredAnswer
from semtoken.guarantees.answer_records import AnswerRecord, answer_record
from semtoken.guarantees.apply import REFUSED, CalibratorInUse, decided
from semtoken.guarantees.fingerprint import ELSEWHERE
from semtoken.guarantees.journal.kept_texts import TextRule, storable
from semtoken.support.text import with_bounds

MOST_DOUBTS = 5
"""Most doubtful tokens of an answer that are kept."""
DOUBTFUL = 0.5
"""A token is doubtful if its confidence is below this."""
LOG_DOUBTFUL = math.log(DOUBTFUL)
LONGEST_NAME = 200
"""Most characters that are kept of a name that others choose, such as the model's or the person's."""
SEEN_TWICE = 0.2
"""Share of the random sample that two people are asked about, so that their agreement shows."""


@dataclass(frozen=True)
class SamplingRule:
    """The rule of the random sample: entries are drawn by their identifiers, before any answer is known."""

    seed: str
    """Any text. With an entry's identifier it settles whether the entry is taken."""
    rate: float
    """Share of entries that the sample takes, in [0, 1]."""

    def takes(self, entry: str) -> bool:
        """Return True if the entry with this identifier belongs to the random sample."""
        return self._place(entry, "sample") < self.rate

    def takes_twice(self, entry: str) -> bool:
        """Return True if an entry of the random sample is shown to two people."""
        return self._place(entry, "twice") < SEEN_TWICE

    def _place(self, entry: str, use: str) -> float:
        """A number in [0, 1) that looks random and follows from seed and identifier."""
        digest = hashlib.sha256(f"{use}:{self.seed}:{entry}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


@dataclass(frozen=True)
class AnswerOrigin:
    """The command, model and engine behind answers, the same for all answers of a command."""

    source: str
    """The command: `serve`, `proxy` or `check`."""
    model: str | None = None
    engine: str | None = None
    k: int | None = None
    """The number of best tokens that were asked for at each step; None if all were seen, or it is not known."""


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One answer as the journal stores it: each field is a column of the table. A field is None where its value is not
    known. A length is that of the column in PostgreSQL, which refuses longer texts.
    """

    id: Annotated[str, Meta(max_length=64)]
    at: float
    """When the entry was made, in seconds since 1970, UTC."""
    source: Annotated[str, Meta(max_length=20)]
    sampled: bool = False
    seen_twice: bool = False
    """True if two people are to be asked about it."""
    model: Annotated[str, Meta(max_length=200)] | None = None
    engine: Annotated[str, Meta(max_length=200)] | None = None
    prompt: Annotated[str, Meta(max_length=200)] | None = None
    """Sixteen hex digits that stand for the prompt: equal for equal prompts of one journal."""
    person: Annotated[str, Meta(max_length=200)] | None = None
    """A tag that the request carried, by which entries can be deleted."""
    unscored: str | None = None
    """Why there is no score; None where there is one."""
    log_confidence: float | None = None
    """The log score; None for an empty answer, whose log score is minus infinity, and where there is no score."""
    log_confidence_lower: float | None = None
    log_confidence_upper: float | None = None
    method: Annotated[str, Meta(max_length=10)] | None = None
    """`exact` or `top-k`."""
    k: int | None = None
    preset: Annotated[str, Meta(max_length=20)] | None = None
    distribution: Annotated[str, Meta(max_length=20)] | None = None
    signature: str | None = None
    confidence: float | None = None
    """The confidence of the model, in [0, 1]; higher is surer."""
    confidence_lower: float | None = None
    confidence_upper: float | None = None
    confidence_method: Annotated[str, Meta(max_length=100)] | None = None
    """Name of the method that the confidence is by."""
    sequence_uncertainty: float | None = None
    sequence_uncertainty_lower: float | None = None
    sequence_uncertainty_upper: float | None = None
    numbers: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Scores by further methods: name -> [value, low, high]. The bounds are None where a score has none."""
    n_tokens: int | None = None
    truncated: bool | None = None
    flags: tuple[str, ...] = ()
    """Codes of the answer's flags. Their messages are not kept, since they may quote the answer."""
    doubts: tuple[Mapping[str, Any], ...] = ()
    """Parts in doubt: `start`, `end`, `confidence`, and `text` where texts are kept."""
    probability_correct: float | None = None
    probability_correct_lower: float | None = None
    probability_correct_upper: float | None = None
    decision: Annotated[str, Meta(max_length=20)] | None = None
    """`answer` or `abstain`."""
    reason: Annotated[str, Meta(max_length=40)] | None = None
    calibrator: Annotated[str, Meta(max_length=64)] | None = None
    """SHA-256 of the file of the calibrator that gave probability and decision."""
    question: str | None = None
    answer: str | None = None

    def line(self) -> bytes:
        """The entry as a line of JSON, with null for NaN and infinities."""
        return _ENCODER.encode(self) + b"\n"


_ENCODER = msgspec.json.Encoder(enc_hook=float)  # NumPy's scalars
_SORTED = msgspec.json.Encoder(order="deterministic")
_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=True, default=str)  # takes half characters, too
COLUMNS = JournalEntry.__struct_fields__


@dataclass(frozen=True)
class Recording:
    """Makes journal entries from answers, with the settings of one command."""

    origin: AnswerOrigin
    sampling: SamplingRule
    salt: bytes
    """Secret of the journal, so that a fingerprint does not give a short prompt away to who reads the table alone."""
    texts: TextRule = field(default_factory=TextRule)

    def entry(
        self,
        result: ScoredAnswer,
        block: Mapping[str, Any],
        *,
        applied: CalibratorInUse | None = None,
        prompt: Any = None,
        question: str | None = None,
        person: str | None = None,
        model: str | None = None,
        identifier: str | None = None,
    ) -> JournalEntry:
        """Make the entry of a scored answer, for which `block` has what `CalibratorInUse.block` says of it.

        `prompt` is all that was asked, as plain values, `question` its text; by the tag `person` entries can be
        deleted. Where no question is given it is the answer's own. An entry with the same identifier is not written
        twice.
        """
        answer = self.texts.apply(result.text)
        reason = block.get("reason")
        low, high = block.get("probability_correct_interval", (None, None))
        fields: dict[str, Any] = {
            "answer": answer,
            **{name: fact for name, fact in result.facts().items() if name in COLUMNS},
            "k": None if result.log_confidence_interval is None else self.origin.k,
            "numbers": _numbers(result),
            "flags": _codes(result, block),
            "doubts": _doubts(result, with_texts=answer is not None and answer == storable(result.text)),
            "probability_correct": block.get("probability_correct"),
            "probability_correct_lower": low,
            "probability_correct_upper": high,
            "decision": block.get("decision"),
            "reason": None if reason is None else storable(reason),
            "calibrator": None if applied is None or "probability_correct" not in block else applied.checksum,
        }
        asked = result.question if question is None else question
        return self._new_entry(fields, identifier, prompt, asked, person, model)

    def unscored(
        self,
        reason: str,
        *,
        prompt: Any = None,
        question: str | None = None,
        person: str | None = None,
        model: str | None = None,
    ) -> JournalEntry:
        """Make the entry of an answer that has no score."""
        return self._new_entry({"unscored": storable(reason)[:500]}, None, prompt, question, person, model)

    def _new_entry(
        self,
        given: dict[str, Any],
        identifier: str | None,
        prompt: Any,
        question: str | None,
        person: str | None = None,
        model: str | None = None,
    ) -> JournalEntry:
        name, origin = storable(identifier) if identifier else uuid.uuid4().hex, self.origin
        # An answer without a score cannot be decided, so a label of it says nothing of the guarantee.
        sampled = "unscored" not in given and self.sampling.takes(name)
        return JournalEntry(
            id=name,
            at=time.time(),
            source=origin.source,
            sampled=sampled,
            seen_twice=sampled and self.sampling.takes_twice(name),
            model=_name(origin.model if model is None else model),
            engine=_name(origin.engine),
            prompt=None if prompt is None else fingerprint_of_prompt(prompt, self.salt),
            person=_name(person),
            question=self.texts.apply(question),
            **given,
        )


def _doubts(result: ScoredAnswer, *, with_texts: bool) -> tuple[Mapping[str, Any], ...]:
    """The tokens that the model was least sure of, in the order of the answer; with texts only where nothing is
    withheld: a rule that finds a card number does not find it where each of its digits stands alone.
    """
    weak = [
        (mark.log_agreeing_probability, mark.start, mark.end)
        for mark in result.marks
        if mark.log_agreeing_probability < LOG_DOUBTFUL and mark.end > mark.start
    ]
    chosen = sorted(weak, key=lambda doubt: doubt[0])[:MOST_DOUBTS]
    doubts = []
    for log, start, end in sorted(chosen, key=lambda doubt: doubt[1]):
        place = {"start": start, "end": end, "confidence": math.exp(log)}
        doubts.append({**place, "text": storable(result.text[start:end])} if with_texts else place)
    return tuple(doubts)


def fingerprint_of_prompt(prompt: Any, salt: bytes) -> str:
    """A keyed hash of a prompt, sixteen hex digits: equal prompts of one journal can be found without their texts."""
    try:
        encoded = _SORTED.encode(prompt)
    except (TypeError, ValueError, RecursionError):  # half characters, and whatever else is no JSON
        encoded = _CANONICAL.encode(prompt).encode()
    return hashlib.blake2b(encoded, digest_size=8, key=salt).hexdigest()


def _numbers(result: ScoredAnswer) -> dict[str, Any]:
    bounds = result.score_bounds
    return {name: [value, *bounds.get(name, (None, None))] for name, value in result.scores.items()}


def _codes(result: ScoredAnswer, block: Mapping[str, Any]) -> tuple[str, ...]:
    codes = [flag.code for flag in result.flags]
    if result.neutral_only:
        codes.append("neutral_only")
    return (*codes, *(name for name in (ELSEWHERE, REFUSED) if name in block))


def kept_name(name: str) -> str:
    """A name that others choose, such as a person's tag, as the journal keeps it."""
    return storable(name)[:LONGEST_NAME]


def _name(value: Any) -> str | None:
    return kept_name(value) if isinstance(value, str) and value else None


Record = dict[str, Any]


def verdict(given: Iterable[bool | None]) -> bool | None:
    """The verdict of several people's labels: False if anybody says so, None if nobody can tell."""
    decided = [label for label in given if label is not None]
    return all(decided) if decided else None


def record_of(row: Mapping[str, Any], given: Mapping[str, bool | None]) -> Record:
    """A row of `Journal.entries` under the names of files, without empty fields; `given` are its labels by reviewer.

    It is `correct` or not only in the random sample: labels of answers that were chosen for their doubt would enter the
    guarantees that are made from files.
    """
    record: Record = {"id": row["id"], "at": when(row["at"])}
    for name, value in row.items():
        if value is not None and value != [] and name not in _ELSEWHERE:
            record[name] = value
    if row["unscored"] is None:
        record["log_confidence"] = row["log_confidence"]  # null here means minus infinity: a blank answer
    if row["method"] == "top-k":
        record["log_confidence_interval"] = [row["log_confidence_lower"], row["log_confidence_upper"]]
    for name, (value, low, high) in (row["numbers"] or {}).items():
        if value is not None:
            record[f"score_{name}"] = value
        if low is not None or high is not None:
            record[f"score_bounds_{name}"] = [low, high]
    if given:
        if row["sampled"]:
            record["correct"] = verdict(given.values())
        record["labels"] = [{"reviewer": name, "correct": correct} for name, correct in given.items()]
    return record


def line_of(row: Mapping[str, Any]) -> str:
    """A row of `Journal.entries` as a line: where it is from, its confidence, its probability and its decision."""
    parts = [row["source"], row["model"] or "", "sample" if row["sampled"] else ""]
    if row["unscored"] is not None:
        parts.append(f"no score: {row['unscored']}")
    elif row["confidence"] is not None:
        sure = row["confidence"]
        low, high = (sure if row[end] is None else row[end] for end in ("confidence_lower", "confidence_upper"))
        parts.append(f"confidence {with_bounds(sure, (low, high), digits=2)}")
    parts += [*decided(row), ", ".join(row["flags"] or ())]
    return " · ".join(filter(None, parts))


_ELSEWHERE = frozenset(("n", "id", "at", "numbers", "log_confidence", "log_confidence_lower", "log_confidence_upper"))
"""Columns that a record has under another name, or in another form."""


def when(seconds: float) -> str:
    """A time as text in UTC, from seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def answer_of(row: Mapping[str, Any], given: Mapping[str, bool | None] | None = None) -> AnswerRecord:
    """Convert a row of the journal to the form in which calibrators take answers."""
    return answer_record(f"entry {row['n']}", record_of(row, given or {}))
