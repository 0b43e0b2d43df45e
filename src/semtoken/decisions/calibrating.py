"""Probabilities and guarantees for typed decisions: one calibrator for each question, for predicates true and false
apart.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from semtoken.choices import Guarantee
from semtoken.core.results import Decision
from semtoken.decisions.answers import Answer
from semtoken.decisions.options import OptionScale, PredictionSets, agreeing, labels_for_sets
from semtoken.decisions.questions import ReadingOptions
from semtoken.decisions.records import AskedQuestion, DecisionRecord
from semtoken.decisions.sides import DecisionSide, SavedSide
from semtoken.errors import ArtifactError, CalibratorMismatchError, InvalidInputError
from semtoken.guarantees.calibrator import to_bytes
from semtoken.guarantees.exact import check_level
from semtoken.guarantees.fingerprint import Fingerprint, one_model
from semtoken.support.files.safe_files import MOST_FITTED, read_file, replacing_file, replacing_folder, writing_errors
from semtoken.support.files.strict_json import dump_json, is_sealed, parse_json, seal
from semtoken.support.inputs import instance, listed, place, text, whole

NAME = "decisions.json"
FORMAT, FORMAT_VERSION = "semtoken.decisions", 2
_OWN_NAME = re.compile(rf"{re.escape(NAME)}|\d{{3,}}-(true|false|answer)")
"""The names in a saved calibrator's folder."""

OTHER_QUESTION = "Nothing: the calibrator knows no question with these words, options, reading and orders."
NO_LABEL = 'No answer has a label. Say in each line what is right for each question: "labels": {"refund": false}.'
NO_LABELS = "Nothing: no labeled answer was like this one."


def short(state: str) -> str:
    """The beginning of a state's hash, enough to know the state again."""
    return state[:16]


@dataclass(frozen=True)
class CalibratedQuestion:
    """The thresholds, scale and sets that were fitted to the labeled answers to one question."""

    asked: AskedQuestion
    """The question, and how it was read."""
    sides: tuple[DecisionSide, ...]
    """The fit to each side of the question that has labeled answers."""
    scale: OptionScale | None = None
    """Makes the probabilities of all options calibrated; None where labels are too few for that."""
    sets: PredictionSets | None = None
    """Chooses the options in the set of an answer; None where labels are too few."""
    states: frozenset[str] = frozenset()
    """The states that it was fitted on (`short`): an audit does not count them again."""

    @classmethod
    def fit(cls, records: Sequence[DecisionRecord], *, alpha: float, **levels: Any) -> CalibratedQuestion:
        """Fit to answers to one question, all with a label; levels and errors are those of `DecisionSide.fit`."""
        by_side: dict[str, list[DecisionRecord]] = {}
        for record in records:
            # By side, since a wrong yes and a wrong no seldom cost the same, and are seldom equally frequent.
            by_side.setdefault(record.answer.side, []).append(record)
        sides = tuple(DecisionSide.fit(own, len(records), alpha=alpha, **levels) for own in by_side.values())
        probabilities = [record.answer.probabilities for record in records]
        labels = [record.label for record in records if record.label is not None]
        asked = records[0].asked
        scale = sets = None
        with suppress(InvalidInputError):  # too few labels
            scale = OptionScale.fit(probabilities, labels, [str(option.value) for option in asked.question.options])
        if scale is not None and len(records) >= labels_for_sets(alpha):
            sets = PredictionSets.fit(probabilities, labels, alpha)
        states = frozenset(short(record.state) for record in records if record.state)
        return cls(asked, sides, scale, sets, states)

    @property
    def name(self) -> str:
        """The name of the question."""
        return self.sides[0].name

    def side_of(self, record: DecisionRecord) -> DecisionSide | None:
        """The fit to the side that an answer is on; None if no labeled answer was on it."""
        return next((side for side in self.sides if side.side == record.answer.side), None)

    def block(self, record: DecisionRecord) -> dict[str, Any]:
        """The fields of `DecisionCalibrator.block` for an answer to this question."""
        side = self.side_of(record)
        if side is None:
            return _abstaining(NO_LABELS)
        scaled: dict[str, Any] = {}
        probability_correct = (
            None if side.calibrator is None else float(side.calibrator.predict_proba(record.answer.log_confidence))
        )
        if self.scale is not None:
            p = self.scale(record.answer.probabilities)
            scaled["calibrated_probabilities"] = (
                p if probability_correct is None else agreeing(p, record.answer.best, probability_correct)
            ).tolist()
        if (sets := self.sets) is not None:
            options = [record.answer.question.options[k].value for k in sets(record.answer.probabilities)]
            scaled["prediction_set"] = {"options": options, "coverage": 1 - sets.alpha}
        if side.calibrator is None:
            return {**scaled, **_abstaining(side.refusal, side.n)}
        return {
            **scaled,
            "probability_correct": probability_correct,
            "decision": "answer" if side.accepts(record) else "abstain",
            "guarantee": side.statement,
            "labels": side.n,
        }


def _abstaining(why: str, labels: int = 0) -> dict[str, Any]:
    return {"decision": "abstain", "guarantee": why, "labels": labels}


@dataclass(frozen=True)
class DecisionCalibrator:
    """Probabilities of being right, and thresholds with a guarantee, for answers to typed questions.

    Fit one with `fit`, load one with `load`, and use `decide` to accept an answer or abstain.
    """

    questions: Mapping[str, CalibratedQuestion]
    """The fit to each question, by its fingerprint."""
    model: str | None = None
    """The model that gave the labeled answers, as far as they name it: answers of another one get no probability."""

    @classmethod
    def fit(
        cls,
        records: Sequence[DecisionRecord],
        *,
        guarantee: Guarantee = "selective_risk",
        alpha: float = 0.1,
        delta: float = 0.1,
        start: float | None = None,
    ) -> DecisionCalibrator:
        """Fit to labeled answers, each about another state.

        Parameters
        ----------
        records
            Answers to one or more questions; those without a label are skipped. A side of a question gets a calibrator
            if it has 30 labels, 5 of either kind.
        guarantee, alpha, delta, start
            As for `semtoken.guarantees.Threshold.fit`. Each side of a predicate has a guarantee of its own:
            `selective_risk` is about the accepted answers of that side, `miss_rate` about its wrong ones, and
            `joint_risk` about all of its answers.

        Returns
        -------
        DecisionCalibrator

        Raises
        ------
        InvalidInputError
            No side of any question has enough labels (the message gives the reason for each), a question was answered
            twice about one state, several models gave the labeled answers, a label is not the place of an option, or a
            level is outside (0, 1).
        """
        check_level(alpha, "alpha")
        by_question: dict[str, list[DecisionRecord]] = {}
        for number, given in enumerate(listed(records, "records")):
            record = instance(given, DecisionRecord, f"records[{number}]")
            if record.label is not None:
                # True would be the place of "No".
                last = len(record.answer.question.options) - 1
                whole(record.label, f"records[{number}].label", low=0, high=last)
                by_question.setdefault(record.fingerprint, []).append(record)
        labeled = [record.answer for own in by_question.values() for record in own]
        model = one_model(labeled, remedy="the answers of each")
        levels: dict[str, Any] = {"guarantee": guarantee, "alpha": alpha, "delta": delta, "start": start}
        fitted = cls({key: CalibratedQuestion.fit(own, **levels) for key, own in by_question.items()}, model)
        # One side may well lack labels: it abstains, and the other one is of use.
        if not any(side.calibrator for side in fitted.sides):
            why = " ".join(f"{side.what}: {side.refusal}" for side in fitted.sides)
            raise InvalidInputError(f"Nothing can be fitted. {why or NO_LABEL}")
        return fitted

    @property
    def sides(self) -> list[DecisionSide]:
        """The fits to all sides of all questions."""
        return [side for question in self.questions.values() for side in question.sides]

    @property
    def n(self) -> int:
        """The number of labeled answers that it was fitted on, over all questions."""
        return sum(side.n for side in self.sides)

    def without_guarantee(self, required: Sequence[str] = ()) -> list[str]:
        """The names of the sides that accept nothing, among the required ones (see `DecisionSide.is_required`).

        `InvalidInputError` if `required` is no list of texts.
        """
        names = _names(required)
        return [side.what for side in self.sides if not side.guarantees and side.is_required(names)]

    def unknown(self, required: Sequence[str]) -> list[str]:
        """The required names that are of no question and no side, in alphabetical order.

        `InvalidInputError` if `required` is no list of texts.
        """
        known = {name for side in self.sides for name in (side.name, side.what)}
        return sorted(set(_names(required)) - known)

    def lines(self) -> Iterator[str]:
        """The fit for people: a sentence on each side, then on the probabilities of all options, and on the sets."""
        for side in self.sides:
            yield f"{side.what} ({side.n} labels): {side.statement}"
        for question in self.questions.values():
            if question.scale is not None:
                yield f"{question.name}, probabilities of all options: {question.scale.statement}."
        for question in self.questions.values():
            if question.sets is not None:
                yield f"{question.name}, sets of options: {question.sets.statement}."

    def plain_values(self) -> Iterator[Mapping[str, Any]]:
        """The fit to each side as plain values: its labels, and what it guarantees."""
        for side in self.sides:
            counts = {"labels": side.n, "accepted": side.n_accepted, "wrong": side.n_wrong_accepted}
            guarantee = {"guarantees": side.guarantees, "statement": side.statement}
            yield {"question": side.name, "side": side.side, **counts, **guarantee}

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of all that it says, in hex digits: which calibrator this is."""
        said = str(seal(self._content())["checksum"])
        fitted = [to_bytes(side.calibrator) for side in self.sides if side.calibrator is not None]
        return hashlib.sha256(b"\n".join([said.encode(), *fitted])).hexdigest()

    def accepts(self, record: DecisionRecord) -> bool:
        """Return True if the threshold of its side accepts an answer; never for a question that was not fitted.

        It does not compare models: `decide` and `block` do.
        """
        side = self._side_of(instance(record, DecisionRecord, "record"))
        return side is not None and side.accepts(record)

    def _side_of(self, record: DecisionRecord) -> DecisionSide | None:
        """The fit to the side that an answer is on; None if no labeled answer was."""
        question = self.questions.get(record.fingerprint)
        return None if question is None else question.side_of(record)

    def block(self, record: DecisionRecord) -> dict[str, Any]:
        """Probability, decision, guarantee and number of labels of one answer, and calibrated probabilities of all
        options where labels suffice for them. An answer to an unknown question, or of another model than the labeled
        ones, abstains with the reason.
        """
        try:
            Fingerprint(model=self.model).require_model(record.answer)
        except CalibratorMismatchError as error:
            return _abstaining(str(error))
        question = self.questions.get(record.fingerprint)
        return _abstaining(OTHER_QUESTION) if question is None else question.block(record)

    def decide(self, answer: Answer, options: ReadingOptions | None = None) -> Decision:
        """Decide whether to act on the answer to a typed question, with the guarantee, or the reason why not.

        Parameters
        ----------
        answer
            As `ScoredModel.decide` gives it.
        options
            How the question was read, if not as by default.

        Returns
        -------
        Decision
            With the probability of being right where the side has a calibrator. It abstains on a question that was not
            fitted, and on an answer of another model.

        Raises
        ------
        InvalidInputError
            Something else than an answer and its options.
        """
        instance(answer, Answer, "answer")
        if answer.refusal is not None:
            return Decision("abstain", "empty", None, answer.refusal)
        read = ReadingOptions() if options is None else instance(options, ReadingOptions, "options")
        record = DecisionRecord(answer, read)
        block, side = self.block(record), self._side_of(record)
        accepted = block["decision"] == "answer"
        # An answer of another model has no probability, whatever its side guarantees.
        guarantees = side is not None and side.guarantees and "probability_correct" in block
        doubt = "uncertain" if guarantees else "no_threshold"
        reason = "accepted" if accepted else doubt
        return Decision(block["decision"], reason, block.get("probability_correct"), block["guarantee"])

    def save(self, directory: str | Path) -> None:
        """Write a folder with `decisions.json` and a calibrator for each side, replacing one that is there.

        Raises `InvalidInputError` if the place cannot be written, or holds other files.
        """
        target = place(directory, "directory")
        with writing_errors(target):
            there = os.listdir(target) if target.exists() else []
        # Saving replaces the folder as a whole, so what else is in it would be gone.
        if others := [name for name in there if not _OWN_NAME.fullmatch(name)]:
            raise InvalidInputError(
                f"{target} holds {min(others)!r:.60}, which is no part of a calibrator and would be lost. Choose a new "
                "or empty directory."
            )
        with replacing_folder(target) as working:
            for folder, side in zip(self._folders(), self.sides, strict=True):
                if side.calibrator is not None:
                    side.calibrator.save(working / folder)
            with replacing_file(working / NAME) as file:
                file.write(dump_json(seal(self._content()), indent=1))

    def _folders(self) -> list[str]:
        """The folder of each side."""
        return [f"{number:03}-{side.side}" for number, side in enumerate(self.sides)]

    def _content(self) -> dict[str, Any]:
        """The values that `decisions.json` holds."""
        folders, questions = iter(self._folders()), self.questions.items()
        saved = _Saved(
            FORMAT,
            FORMAT_VERSION,
            [SavedSide.of(side, key, next(folders)) for key, question in questions for side in question.sides],
            {key: question.scale for key, question in questions if question.scale is not None},
            {key: question.asked.values() for key, question in questions},
            {key: question.sets for key, question in questions if question.sets is not None},
            {key: sorted(question.states) for key, question in questions},
            self.model,
        )
        content: dict[str, Any] = msgspec.to_builtins(saved)
        return content

    @classmethod
    def load(cls, directory: str | Path) -> DecisionCalibrator:
        """Read a calibrator from the folder to which `save` wrote it.

        Raises `ArtifactError` if it is missing, or one of its files was changed.
        """
        directory = place(directory, "directory")
        path = directory / NAME
        try:
            content = parse_json(read_file(path, MOST_FITTED))
        except (InvalidInputError, ValueError) as error:
            raise ArtifactError(f"{error} Make one with `semtoken calibrate`.") from error
        if not isinstance(content, dict) or not is_sealed(content) or content.get("format") != FORMAT:
            raise ArtifactError(f"{path} was changed, or holds no calibrator of decisions.")
        try:
            saved = msgspec.convert(content, _Saved)
            sides: dict[str, list[DecisionSide]] = {}
            for side in saved.sides:
                if side.question not in saved.questions:
                    raise ArtifactError(
                        f"{path} does not say how {side.name!r:.60} was asked: it was fitted on answers without the "
                        "field `asked`. Fit it again, on lines as `semtoken decide` writes them."
                    )
                sides.setdefault(side.question, []).append(side.loaded(path))
            questions = {
                key: CalibratedQuestion(
                    AskedQuestion.read(saved.questions[key], own[0].name),
                    tuple(own),
                    saved.scales.get(key),
                    saved.sets.get(key),
                    frozenset(saved.states.get(key, ())),
                )
                for key, own in sides.items()
            }
        except ArtifactError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
            raise ArtifactError(
                f"{path} holds no calibrator of decisions that this version reads: {error!r}."
            ) from error
        return cls(questions, saved.model)


class _Saved(msgspec.Struct, omit_defaults=True):
    """The content of `decisions.json`; see `DecisionCalibrator`."""

    format: str
    format_version: int
    sides: list[SavedSide]
    scales: Mapping[str, OptionScale]
    questions: Mapping[str, Any]
    sets: Mapping[str, PredictionSets]
    states: Mapping[str, Collection[str]]
    model: str | None = None


def blocks_of(
    calibrator: DecisionCalibrator | None, answers: Sequence[Answer], options: ReadingOptions
) -> list[Mapping[str, Any]]:
    """A calibrator's block for each answer (`DecisionCalibrator.block`); empty without one, or if it was refused."""
    return [
        {} if calibrator is None or answer.refusal is not None else calibrator.block(DecisionRecord(answer, options))
        for answer in answers
    ]


def _names(required: Sequence[str]) -> list[str]:
    return [text(name, f"required[{i}]") for i, name in enumerate(listed(required, "required"))]
