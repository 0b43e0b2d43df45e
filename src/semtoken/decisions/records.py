"""Answers to typed questions as plain values in lines of files, and how they are read back and compared with labels.

The lines are what `semtoken decide` writes, and what fits and audits read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from semtoken.decisions.answers import Answer, plain
from semtoken.decisions.labels import place_of
from semtoken.decisions.questions import (
    READ_AS_USUAL,
    Question,
    ReadingOptions,
    Value,
    question_from,
    question_values,
    same_value,
)
from semtoken.errors import InvalidInputError
from semtoken.support.files.strict_json import dump_json, read_json_lines


@dataclass(frozen=True)
class AskedQuestion:
    """A question, with the options by which its probabilities are read."""

    question: Question
    options: ReadingOptions

    def values(self) -> dict[str, Any]:
        """Plain values: all that the probabilities depend on besides the model."""
        # Without the question's name: renamed, it is the same question, and its calibrator still fits.
        return {**question_values(self.question), **self.options.values()}

    @property
    def fingerprint(self) -> str:
        """A hash (SHA-256) of the question and how it is read: equal hashes mean that answers are comparable."""
        return _fingerprint(self)

    @classmethod
    def read(cls, values: Any, name: str | None = None) -> AskedQuestion:
        """Make a question from plain values of a file; `InvalidInputError` if they do not describe one."""
        return cls(question_from(values, name), ReadingOptions.read(values))


@lru_cache(maxsize=1024)
def _fingerprint(asked: AskedQuestion) -> str:
    # Kept, since the lines of a file are answers to the same few questions.
    return hashlib.sha256(dump_json(asked.values())).hexdigest()


@dataclass(frozen=True)
class DecisionRecord:
    """An answer about one state, with how it was read, and its label where somebody gave one."""

    answer: Answer
    """The answer; its question was not refused."""
    options: ReadingOptions = READ_AS_USUAL
    """The way in which its probabilities were read."""
    label: int | None = None
    """The place of the right option; None where nobody gave a label."""
    state: str = ""
    """SHA-256 of the state that the question was about; empty where it is not kept."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Further short values of the line, by which answers can be grouped."""

    @property
    def asked(self) -> AskedQuestion:
        """The question and how it was read."""
        return AskedQuestion(self.answer.question, self.options)

    @property
    def fingerprint(self) -> str:
        """The hash of the question and how it was read; see `AskedQuestion.fingerprint`."""
        return self.asked.fingerprint

    @property
    def name(self) -> str:
        """The name of the question; empty where it has none."""
        return self.answer.question.name or ""

    @property
    def correct(self) -> bool:
        """True if the option that was chosen is the right one; false without a label."""
        return self.answer.best == self.label


def answer_values(answer: Answer, options: ReadingOptions) -> dict[str, Any]:
    """One answer as plain values for a line, under `answers` and its question's name."""
    if answer.refusal is not None:
        return {"refusal": answer.refusal}
    asked = AskedQuestion(answer.question, options)
    return {
        "question": asked.fingerprint,
        "asked": asked.values(),
        "kind": answer.question.kind,
        "options": [option.value for option in answer.question.options],
        "probabilities": list(answer.probabilities),
        "value": answer.value,
        "confidence": answer.confidence,
        **({} if answer.model is None else {"model": answer.model}),
        **{key: value for key, value in plain(answer).items() if value is not None},
    }


def unwrapped(reply: Any) -> Any:
    """A reply without the envelope that some gateways put around it, as Cloudflare does: `result` and `success`.

    >>> unwrapped({"success": True, "errors": [], "result": {"answers": {}}})
    {'answers': {}}
    """
    if isinstance(reply, Mapping) and "answers" not in reply and isinstance(reply.get("result"), Mapping):
        return reply["result"]
    return reply


def first_line(path: Path) -> Mapping[str, Any] | None:
    """The value of the first line of a file of JSON lines; None if there is none, or it is no JSON object."""
    line = next(iter(read_json_lines(path)), None)
    return line.value if line is not None and not line.fault and isinstance(line.value, Mapping) else None


def read_decisions(path: Path) -> list[DecisionRecord]:
    """The answers in a file, unanswered questions left out; `InvalidInputError` if a line is bad or there are none."""
    records: list[DecisionRecord] = []
    for line in read_json_lines(path):
        try:
            if line.fault:
                raise ValueError(line.fault)
            records += records_of(line.value)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"{path}, line {line.number}: {_why(error)}") from error
    if not records:
        raise InvalidInputError(f"{path} holds no answers. Make some with `semtoken decide`.")
    return records


def records_of(line: Mapping[str, Any]) -> Iterator[DecisionRecord]:
    """The answers on one line of a file; for one that holds none, an error whose kind follows from what is missing."""
    labels = line.get("labels") or {}
    columns = {
        key: str(value) for key, value in line.items() if isinstance(value, str | int | float) and key != "state"
    }
    state = hash_of_state(line.get("state"))
    for name, given in line["answers"].items():
        if "refusal" in given:
            continue
        if "asked" not in given:
            raise ValueError(
                f"The answer to {name!r:.60} lacks the field `asked`, with which `semtoken decide` writes it."
            )
        asked = AskedQuestion.read(given["asked"], name)
        # The hash was written with the answer, so an edit of the words shows here.
        if asked.fingerprint != given["question"]:
            raise ValueError(f"The question {name!r:.60} was changed after it was answered.")
        answer = _read_answer(asked.question, given)
        yield DecisionRecord(answer, asked.options, place_of_label(asked.question, labels), state, columns)


def hash_of_state(state: Any) -> str:
    """SHA-256 of a state, in hex digits: it shows which answers are about one state, and states can be long."""
    return hashlib.sha256(dump_json(state)).hexdigest()


def place_of_label(question: Question, labels: Mapping[str, Any]) -> int | None:
    """The place of the right option of a question, by labels under the names of questions; None where it has none.

    `ValueError` if its label means none of the options, or several.
    """
    name = question.name or ""
    if labels.get(name) is None:
        return None
    try:
        return place_of(labels[name], question)
    except ValueError as error:
        raise ValueError(f"{name!r:.60}: {error}") from error


def chosen_value(question: Question, probabilities: Sequence[float], given: Any) -> Value | None:
    """The value of the option that a server chose, given by its value or name; None for the first of the most probable.

    `InvalidInputError` if no option is meant, or it has no probability.
    """
    by_value = [option for option in question.options if same_value(option.value, given)]
    by_name = [option for option in question.options if option.name == given]  # a format without true and false
    chosen = next(iter(by_value + by_name), None)
    if chosen is None or probabilities[question.options.index(chosen)] == 0:
        raise InvalidInputError(
            f"The server chose {given!r:.60}, which is no option to which it gives any probability."
        )
    # What the probabilities say anyway is not kept, so that equal answers compare as equal.
    most_probable = probabilities.index(max(probabilities))
    return None if question.options.index(chosen) == most_probable else chosen.value


def intervals(given: Any, n: int) -> tuple[tuple[float, float], ...] | None:
    """An interval in [0, 1] for each of n options, from a list of pairs; None if it is none."""
    pairs = given if isinstance(given, list) and len(given) == n else []
    ends = [tuple(map(share, pair)) for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    known = [(low, high) for low, high in ends if low is not None and high is not None and low <= high]
    return tuple(known) if len(known) == n else None


def share(value: Any) -> float | None:
    """A number in [0, 1]; None for anything else."""
    # By type, since true would pass for 1.
    return float(value) if type(value) in (int, float) and 0 <= value <= 1 else None


def _read_answer(question: Question, given: Mapping[str, Any]) -> Answer:
    """The answer to a question on a line."""
    n, probabilities = len(question.options), tuple(map(float, given["probabilities"]))
    if len(probabilities) != n or not all(0 <= p <= 1 for p in probabilities) or not any(probabilities):
        raise ValueError(f"The probabilities of {question.name!r:.60} are none, or not as many as the options.")
    figures = {name: given[name] for name in ("option_mass", "order_spread") if given.get(name) is not None}
    if wrong := [name for name, value in figures.items() if share(value) is None]:
        raise ValueError(f"The field {wrong[0]} of {question.name!r:.60} must be a number in [0, 1].")
    bounds = intervals(given.get("bounds"), n)
    if bounds is None and given.get("bounds") is not None:
        raise ValueError(
            f"The bounds of {question.name!r:.60} are no intervals in [0, 1], or not as many as the options."
        )
    choice = given.get("value")
    try:
        choice = None if choice is None else chosen_value(question, probabilities, choice)
    except InvalidInputError as error:
        raise ValueError(
            f"The answer {choice!r:.60} to {question.name!r:.60} is none of the options that have any probability."
        ) from error
    return Answer(
        question,
        probabilities,
        **figures,
        bounds=bounds,
        choice=choice,
        model=given["model"] if isinstance(given.get("model"), str) else None,
    )


def _why(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"the field {error} is missing. Lines come from `semtoken decide`."
    if isinstance(error, AttributeError | TypeError):
        return "it is no line of `semtoken decide`."
    return str(error) or "it cannot be read."
