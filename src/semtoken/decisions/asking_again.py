"""The questions of a calibrator, asked again as they are and in other ways: what a live audit needs."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.comparing import Sensitivity, sensitivity
from semtoken.decisions.questions import Choice, Question, ReadingOptions
from semtoken.decisions.records import DecisionRecord, read_decisions
from semtoken.decisions.remote import Asker
from semtoken.decisions.running import DecisionJob
from semtoken.errors import InvalidInputError
from semtoken.support.files.strict_json import dump_json
from semtoken.support.http_client import AT_ONCE

TURNED, REWORDED = "with its options in another order", "in other words"


@dataclass(frozen=True)
class AskedAgain:
    """The answers of a server to all questions of a calibrator, as they were fitted and asked in other ways."""

    records: Sequence[DecisionRecord]
    """Answers to the unchanged questions."""
    variants: Mapping[str, Sequence[DecisionRecord]]
    """Answers to questions that were asked in another way, by what was different, such as "in other words"."""

    def changes(self, calibrator: DecisionCalibrator) -> list[Sensitivity]:
        """The changes that each other way of asking made; see `semtoken.decisions.comparing.sensitivity`."""
        ways = self.variants.items()
        return [one for how, records in ways for one in sensitivity(calibrator, self.records, records, how)]


def ask_again(
    calibrator: DecisionCalibrator,
    source: Path,
    ask: Asker,
    target: Path,
    *,
    reworded: Mapping[str, Question] | None = None,
    most: int = 100,
    answered_by: str = "",
) -> AskedAgain:
    """Ask a server all questions of a calibrator about the states in a file, to see whether its guarantees hold there.

    `source` has lines with `state` and `labels`. Answers that are in `target` are kept; those to variants are written
    beside it: about the first `most` items, `reworded` questions (same names and options), and choices with their
    options turned by half. `answered_by` names the server; answers of another one are refused.
    `InvalidInputError` if the calibrator does not know its questions, or holds two of one name or several ways of
    reading; `BackendError` if the server gives no answers.
    """
    questions, options = _questions(calibrator)
    if unknown := set(reworded or ()) - set(questions):
        raise InvalidInputError(f"The calibrator has no question {min(unknown)!r:.60}.")
    DecisionJob(source, target, questions, options, answered_by=answered_by).run(ask, AT_ONCE)
    turned: dict[str, Question] = {}
    for name, question in questions.items():
        if isinstance(question, Choice):
            half = (len(question.options) + 1) // 2
            turned[name] = replace(question, choices=[*question.options[half:], *question.options[:half]])
    variants: dict[str, Mapping[str, Question]] = {TURNED: turned}
    if reworded is not None:
        variants[REWORDED] = reworded
    records_by_variant: dict[str, Sequence[DecisionRecord]] = {}
    for how, others in variants.items():
        if others and most:
            place = target.with_suffix(f".{how.split()[-1]}.jsonl")
            DecisionJob(source, place, others, options, most=most, answered_by=answered_by).run(ask, AT_ONCE)
            records_by_variant[how] = read_decisions(place)
    return AskedAgain(read_decisions(target), records_by_variant)


@contextmanager
def kept_until_asked(source: Path, calibrator: Path, *asked: object) -> Iterator[Path]:
    """A file next to `source` for the answers of `ask_again`, so that a stopped one continues; removed at the end.

    It has a name of its own for what is in the calibrator's folder and whatever else says who is `asked`.
    """
    # Another server or calibrator must not go on with these answers.
    digest = sha256(dump_json(list(map(str, asked))))
    for part in sorted(path for path in calibrator.rglob("*") if path.is_file()):
        digest.update(part.read_bytes())
    target = source.with_name(f"{source.stem}.asked-{digest.hexdigest()[:12]}.jsonl")
    yield target
    # Not in a `finally`: answers cost money, so those of a run that failed stay for the next one.
    for path in source.parent.glob(f"{glob.escape(target.stem)}.*"):
        path.unlink()


def _questions(calibrator: DecisionCalibrator) -> tuple[dict[str, Question], ReadingOptions]:
    asked = [question.asked for question in calibrator.questions.values()]
    questions = {one.question.name or "": one.question for one in asked}
    if len(questions) < len(asked) or len({one.options for one in asked}) > 1:
        raise InvalidInputError(
            "The calibrator holds two questions of one name, or several ways of reading. Fit one for each, or audit "
            "files of answers."
        )
    return questions, asked[0].options
