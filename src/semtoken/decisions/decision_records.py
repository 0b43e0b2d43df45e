"""Answered questions as lines of a file: what `semtoken decide run` writes, and what fits and audits read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semtoken.decisions.answers import AnsweredQuestion, plain
from semtoken.decisions.questions import Question, ReadingOptions, question_from, question_values, same_value
from semtoken.errors import InvalidInput
from semtoken.files.safe_files import dump_json, read_json_lines


@dataclass(frozen=True)
class AskedQuestion:
    """A question, with the options by which its probabilities are read."""

    question: Question
    options: ReadingOptions

    def values(self) -> dict[str, Any]:
        """Plain values: all that the probabilities depend on besides the model."""
        how = {"reading": self.options.reading, "orders": self.options.orders or "all"}
        return {**question_values(self.question), **how}

    @property
    def fingerprint(self) -> str:
        """A hash (SHA-256) of the question and how it is read: equal hashes mean that answers are comparable."""
        return hashlib.sha256(dump_json(self.values())).hexdigest()

    @classmethod
    def read(cls, values: Any, name: str | None = None) -> AskedQuestion:
        """Make a question from plain values of a file.

        Raises
        ------
        InvalidInput
            The values do not describe a question.
        """
        question = question_from(values, name)
        orders = values.get("orders")
        return cls(question, ReadingOptions(values.get("reading"), None if orders == "all" else orders))


@dataclass(frozen=True)
class DecisionRecord:
    """The answer to one question about one state, with its label where somebody gave one."""

    name: str
    fingerprint: str
    kind: str
    values: tuple[Any, ...]
    """The values of the options."""
    probabilities: tuple[float, ...]
    label: int | None = None
    """The place of the right option; None where nobody gave a label."""
    order_spread: float | None = None
    state: str = ""
    """SHA-256 of the state that the question was about."""
    asked: AskedQuestion | None = None
    """The question itself, where the line holds it."""
    bounds: tuple[tuple[float, float], ...] | None = None
    """Least and greatest probability of each option, where the server did not list all of them; else None."""

    @property
    def best(self) -> int:
        """The index of the most probable option; the first one of equals."""
        return self.probabilities.index(max(self.probabilities))

    @property
    def log_score(self) -> float:
        """Log-probability of the most probable option, in (-inf, 0]."""
        return min(math.log(self.probabilities[self.best]), 0.0)

    @property
    def side(self) -> str:
        """Which promise the answer belongs to: `true` or `false` for a predicate, else `answer`."""
        return ("true", "false")[self.best] if self.kind == "predicate" else "answer"

    @property
    def correct(self) -> bool:
        """Whether the most probable option is the right one; false without a label."""
        return self.best == self.label


def answer_values(answer: AnsweredQuestion, options: ReadingOptions) -> dict[str, Any]:
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
        **{key: value for key, value in plain(answer).items() if value is not None},
    }


def read_decisions(path: Path) -> list[DecisionRecord]:
    """Read the answers in a file; questions without an answer are left out.

    Raises
    ------
    InvalidInput
        A line cannot be read; the message names it. Or the file holds no answers.
    """
    found: list[DecisionRecord] = []
    for line in read_json_lines(path):
        try:
            if line.fault:
                raise ValueError(line.fault)
            found += records_of(line.value)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"{path}, line {line.number}: {_why(error)}") from error
    if not found:
        raise InvalidInput(f"{path} holds no answers. Make some with `semtoken decide run`.")
    return found


def records_of(line: Mapping[str, Any]) -> Iterable[DecisionRecord]:
    """The answers on one line of a file.

    Raises
    ------
    AttributeError, KeyError, TypeError, ValueError
        The line does not hold answers.
    """
    labels = line.get("labels") or {}
    state = hashlib.sha256(dump_json(line.get("state"))).hexdigest()
    for name, given in line["answers"].items():
        if "refusal" in given:
            continue
        values, probabilities = tuple(given["options"]), tuple(map(float, given["probabilities"]))
        if len(values) != len(probabilities) or not all(0 <= p <= 1 for p in probabilities) or not any(probabilities):
            raise ValueError(f"The probabilities of {name!r:.60} are none, or not as many as the options.")
        label = None
        if labels.get(name) is not None:
            label = next((i for i, value in enumerate(values) if same_value(value, labels[name])), None)
            if label is None:
                raise ValueError(f"The label {labels[name]!r:.60} is none of the options of {name!r:.60}.")
        spread, bounds = given.get("order_spread"), _bounds(given.get("bounds"), len(values), name)
        asked = AskedQuestion.read(given["asked"], name) if "asked" in given else None
        if asked is not None and asked.fingerprint != given["question"]:
            raise ValueError(f"The question {name!r:.60} was changed after it was answered.")
        about = (given["question"], given["kind"], values, probabilities, label, spread, state, asked, bounds)
        yield DecisionRecord(name, *about)


def _bounds(given: Any, n: int, name: str) -> tuple[tuple[float, float], ...] | None:
    if given is None:
        return None
    found = tuple((float(low), float(high)) for low, high in given)
    if len(found) != n or not all(0 <= low <= high <= 1 for low, high in found):
        raise ValueError(f"The bounds of {name!r:.60} are no intervals in [0, 1], or not as many as the options.")
    return found


def _why(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"the field {error} is missing. Lines come from `semtoken decide run`."
    if isinstance(error, AttributeError | TypeError):
        return "it is no line of `semtoken decide run`."
    return str(error) or "it cannot be read."
