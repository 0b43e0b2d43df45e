"""Asking another server the questions of a calibrator, as they are and in other ways: what a live audit needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.endpoints import Asker
from semtoken.decisions.options import ReadingOptions
from semtoken.decisions.questions import Choice, Question
from semtoken.decisions.records import DecisionRecord, read_decisions
from semtoken.decisions.running import DecisionJob
from semtoken.errors import InvalidInput

TURNED, REWORDED = "with its options in another order", "in other words"


@dataclass(frozen=True)
class AskedAgain:
    """What a server says to the questions of a calibrator."""

    records: Sequence[DecisionRecord]
    """To the questions as they are."""
    variants: Mapping[str, Sequence[DecisionRecord]]
    """How else they were asked, and the answers."""


def ask_again(
    calibrator: DecisionCalibrator,
    source: Path,
    ask: Asker,
    target: Path,
    *,
    reworded: Mapping[str, Question] | None = None,
    most: int = 100,
) -> AskedAgain:
    """Ask a server all that a calibrator was fitted on.

    Parameters
    ----------
    calibrator
        It knows its questions if it was fitted on lines of `semtoken decide run`.
    source
        Lines with `state` and `labels`.
    ask
        The server.
    target
        The file of its answers. What is there is kept; answers to variants are written beside it.
    reworded
        The same questions by name in other words, with the same options.
    most
        Items that the variants are asked about. Choices are also asked with their options turned by half.

    Raises
    ------
    InvalidInput
        The calibrator does not know its questions, or holds two of one name or several ways of reading.
    BackendError
        The server gave no answers.
    """
    questions, options = _questions(calibrator)
    DecisionJob(source, target, questions, options).run(ask)
    turned = {name: _turned(one) for name, one in questions.items() if isinstance(one, Choice)}
    variants: dict[str, Mapping[str, Question]] = {TURNED: turned}
    if reworded is not None:
        if unknown := set(reworded) - set(questions):
            raise InvalidInput(f"The calibrator has no question {min(unknown)!r:.60}.")
        variants[REWORDED] = reworded
    found: dict[str, Sequence[DecisionRecord]] = {}
    for how, others in variants.items():
        if others and most:
            place = target.with_suffix(f".{how.split()[-1]}.jsonl")
            _run_some(source, place, others, options, ask, most)
            found[how] = read_decisions(place)
    return AskedAgain(read_decisions(target), found)


def _questions(calibrator: DecisionCalibrator) -> tuple[dict[str, Question], ReadingOptions]:
    names = {fingerprint: one.name for (fingerprint, _), one in calibrator.sides.items()}
    missing = [name for fingerprint, name in names.items() if fingerprint not in calibrator.questions]
    if missing:
        raise InvalidInput(
            f"The calibrator does not know the words of {missing[0]!r:.60}: it was fitted on answers that do not hold "
            "them. Ask the server with `semtoken decide run --endpoint`, and audit its file."
        )
    asked = list(calibrator.questions.values())
    found = {names[fingerprint]: one.question for fingerprint, one in calibrator.questions.items()}
    if len(found) < len(asked) or len({one.options for one in asked}) > 1:
        raise InvalidInput(
            "The calibrator holds two questions of one name, or several ways of reading. Fit one for each, or audit "
            "files of answers."
        )
    return found, asked[0].options


def _turned(question: Choice) -> Choice:
    half = (len(question.options) + 1) // 2
    return replace(question, choices=[*question.options[half:], *question.options[:half]])


def _run_some(
    source: Path, target: Path, questions: Mapping[str, Question], options: ReadingOptions, ask: Asker, most: int
) -> None:
    """The first items alone."""
    some = target.with_suffix(".items.jsonl")
    with source.open("rb") as lines, some.open("wb") as file:
        file.writelines(islice(lines, most))
    try:
        DecisionJob(some, target, questions, options).run(ask)
    finally:
        some.unlink()
