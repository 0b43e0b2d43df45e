"""Probabilities and guarantees for typed decisions: one calibrator for each question, for predicates true and false
apart.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from semtoken.choices import Guarantee
from semtoken.core.results import Decision
from semtoken.decisions.answers import Answer, AskedQuestion, DecisionRecord
from semtoken.decisions.options import OptionScale, PredictionSets, agreeing, labels_for_sets, least_to_a_person
from semtoken.decisions.questions import ReadingOptions
from semtoken.errors import ArtifactError, CalibratorMismatchError, InvalidInputError
from semtoken.guarantees import Calibrator, Threshold
from semtoken.guarantees.calibrator import to_bytes
from semtoken.guarantees.exact import labels_needed, percent
from semtoken.guarantees.fingerprint import Fingerprint, models_named
from semtoken.support.files.safe_files import MOST_FITTED, read_file, replacing_file, replacing_folder, writing_errors
from semtoken.support.files.strict_json import dump_json, is_sealed, parse_json, seal
from semtoken.support.inputs import instance, listed, place

NAME = "decisions.json"
FORMAT, FORMAT_VERSION = "semtoken.decisions", 2
_OWN_NAME = re.compile(rf"{re.escape(NAME)}|\d{{3,}}-(true|false|answer)")
"""What a saved calibrator's folder holds."""
_OWN_NAME = re.compile(rf"{re.escape(NAME)}|\d{{3,}}-(true|false|answer)")
"""What a saved calibrator's folder holds."""

OTHER_QUESTION = "Nothing: the calibrator knows no question with these words, options, reading and orders."
NO_LABEL = 'No answer has a label. Say in each line what is right for each question: "labels": {"refund": false}.'
NO_LABELS = "Nothing: no labeled answer was like this one."

Key = tuple[str, str]
"""A question's fingerprint, and the side that is decided."""


def short(state: str) -> str:
    """The beginning of a state's hash, enough to know the state again."""
    return state[:16]


@dataclass(frozen=True)
class DecisionSide:
    """The curve and threshold that were fitted to one side of a question: its answer yes or no, or any answer."""

    name: str
    """The name of the question."""
    side: str
    """`true` or `false` of a predicate, else `answer`."""
    n: int
    """Labeled answers whose most probable option is on this side, accepted or not."""
    asked: int
    """Labeled answers of the question, on all sides."""
    n_accepted: int
    """How many of them are accepted on this side. The threshold was chosen on them."""
    n_wrong_accepted: int
    """How many of the accepted ones are wrong."""
    calibrator: Calibrator | None
    """Turns the log-probability of the chosen option into the probability that it is right, and holds the threshold."""
    refusal: str = ""
    """Why there is no calibrator; empty where there is one."""

    @property
    def threshold(self) -> Threshold | None:
        """The threshold that decides whether an answer of this side is accepted; None if none could be fitted."""
        return None if self.calibrator is None else self.calibrator.threshold

    @property
    def what(self) -> str:
        """The name of this side in messages, such as the question and its answer."""
        return self.name if self.side == "answer" else f"{self.name}, called {self.side}"

    @property
    def guarantees(self) -> bool:
        """Whether this side accepts any answers, and guarantees something about them."""
        return self.threshold is not None and self.threshold.uncertainty is not None

    def accepts(self, record: DecisionRecord) -> bool:
        """Whether the threshold accepts this answer."""
        return self.accepted([record])[0]

    def accepted(self, records: Sequence[DecisionRecord]) -> list[bool]:
        """Say of each answer if the threshold accepts it."""
        if self.threshold is None or not records:
            return [False] * len(records)
        return [bool(one) for one in self.threshold.accepts([record.log_confidence for record in records])]

    @property
    def statement(self) -> str:
        """The guarantee as a sentence, or the reason why there is none."""
        if self.threshold is None:
            return self.refusal
        return self.threshold.statement


@dataclass(frozen=True)
class DecisionCalibrator:
    """Probabilities of being right, and thresholds with a guarantee, for answers to typed questions.

    Fit one with `fit`, load one with `load`, and use `decide` to accept an answer or abstain.
    """

    sides: Mapping[Key, DecisionSide]
    """What was fitted to each side of each question, by the question's fingerprint and the side."""
    scales: Mapping[str, OptionScale] = field(default_factory=dict)
    """What makes the probabilities of all options calibrated, by fingerprint; only for questions with enough labels."""
    questions: Mapping[str, AskedQuestion] = field(default_factory=dict)
    """What was asked, by fingerprint, where the answers say it."""
    sets: Mapping[str, PredictionSets] = field(default_factory=dict)
    """Which options belong to the set of an answer, by fingerprint; only where a scale could be fitted, too."""
    states: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Which states it was fitted on (`short`), by fingerprint: an audit does not count them again."""
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
            twice about one state, several models gave the labeled answers, or a level is outside (0, 1).
        """
        groups: dict[Key, list[DecisionRecord]] = {}
        asked: dict[str, int] = {}
        for number, given in enumerate(listed(records, "records")):
            record = instance(given, DecisionRecord, f"records[{number}]")
            if record.label is not None:
                # By side, since a wrong yes and a wrong no seldom cost the same, and are seldom equally frequent.
                groups.setdefault((record.fingerprint, record.side), []).append(record)
                asked[record.fingerprint] = asked.get(record.fingerprint, 0) + 1
        models = models_named([record for own in groups.values() for record in own])
        if len(models) > 1:
            raise InvalidInputError(
                f"These answers were given by different models: {models[0]!r} and {models[1]!r}. The probabilities of "
                "one are not those of another: fit a calibrator for the answers of each."
            )
        sides = {key: _side(own, asked[key[0]], guarantee, alpha, delta, start) for key, own in groups.items()}
        # One side may well lack labels: it abstains, and the other one is of use.
        if not any(side.calibrator for side in sides.values()):
            why = "; ".join(f"{side.what}: {side.refusal}" for side in sides.values())
            raise InvalidInputError(f"Nothing can be fitted. {why or NO_LABEL}")
        by_question: dict[str, list[DecisionRecord]] = {}
        for (fingerprint, _), own in groups.items():
            by_question.setdefault(fingerprint, []).extend(own)
        told = {key: own[0].asked for key, own in by_question.items()}
        scales = {key: scale for key, own in by_question.items() if (scale := _scale(own)) is not None}
        return cls(
            sides,
            scales,
            {key: question for key, question in told.items() if question is not None},
            {key: _sets(own, alpha) for key in scales if len(own := by_question[key]) >= labels_for_sets(alpha)},
            {key: frozenset(short(r.state) for r in own if r.state) for key, own in by_question.items()},
            models[0] if models else None,
        )

    @property
    def n(self) -> int:
        """How many labeled answers it was fitted on, over all questions."""
        return sum(side.n for side in self.sides.values())

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of all that it says, in hex digits: which calibrator this is."""
        said = str(seal(self._content())["checksum"])
        fitted = [to_bytes(side.calibrator) for side in self.sides.values() if side.calibrator is not None]
        return hashlib.sha256(b"\n".join([said.encode(), *fitted])).hexdigest()

    def accepts(self, record: DecisionRecord) -> bool:
        """Whether the threshold of its side accepts an answer; never for a question that was not fitted.

        It does not compare models: `decide` and `block` do.
        """
        side = self.sides.get((record.fingerprint, record.side))
        return side is not None and side.accepts(record)

    def block(self, record: DecisionRecord) -> dict[str, Any]:
        """Probability, decision, guarantee and number of labels of one answer, and calibrated probabilities of all
        options where labels suffice for them. An answer to an unknown question, or of another model than the labeled
        ones, abstains with the reason.
        """
        try:
            Fingerprint(model=self.model).require_model(record)
        except CalibratorMismatchError as error:
            return {"decision": "abstain", "guarantee": str(error), "labels": 0}
        side, scale = self.sides.get((record.fingerprint, record.side)), self.scales.get(record.fingerprint)
        if side is None:
            # The question may be known, and only this side of it without labels.
            known = any(fingerprint == record.fingerprint for fingerprint, _ in self.sides)
            return {"decision": "abstain", "guarantee": NO_LABELS if known else OTHER_QUESTION, "labels": 0}
        scaled: dict[str, Any] = {}
        probability_correct = (
            None if side.calibrator is None else float(side.calibrator.predict_proba(record.log_confidence))
        )
        if scale is not None:
            p = scale(record.probabilities)
            scaled["calibrated_probabilities"] = (
                p if probability_correct is None else agreeing(p, record.best, probability_correct)
            ).tolist()
        if (sets := self.sets.get(record.fingerprint)) is not None:
            options = [record.values[k] for k in sets(record.probabilities)]
            scaled["prediction_set"] = {"options": options, "coverage": 1 - sets.alpha}
        if side.calibrator is None:
            return {**scaled, "decision": "abstain", "guarantee": side.refusal, "labels": side.n}
        return {
            **scaled,
            "probability_correct": probability_correct,
            "decision": "answer" if side.accepts(record) else "abstain",
            "guarantee": side.statement,
            "labels": side.n,
        }

    def decide(self, answer: Answer, options: ReadingOptions | None = None) -> Decision:
        """Whether to act on the answer to a typed question, with the guarantee, or the reason why not.

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
        """
        if answer.refusal is not None:
            return Decision("abstain", "empty", None, answer.refusal)
        block = self.block(DecisionRecord.of(answer, options or ReadingOptions()))
        accepted = block["decision"] == "answer"
        doubt = "uncertain" if block.get("probability_correct") is not None else "no_threshold"
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
            for folder, side in zip(self._places(), self.sides.values(), strict=True):
                if side.calibrator is not None:
                    side.calibrator.save(working / folder)
            with replacing_file(working / NAME) as file:
                file.write(dump_json(seal(self._content()), indent=1))

    def _places(self) -> list[str]:
        """The folder of each side."""
        return [f"{number:03}-{side}" for number, (_, side) in enumerate(self.sides)]

    def _content(self) -> dict[str, Any]:
        """The values that `decisions.json` holds."""
        sides = [
            _SavedSide(
                question=fingerprint,
                side=which,
                name=side.name,
                n=side.n,
                asked=side.asked,
                accepted=side.n_accepted,
                wrong=side.n_wrong_accepted,
                refusal=side.refusal,
                calibrator=None if side.calibrator is None else folder,
                sha256=None if side.calibrator is None else _digest(side.calibrator),
            )
            for folder, ((fingerprint, which), side) in zip(self._places(), self.sides.items(), strict=True)
        ]
        questions = {key: question.values() for key, question in self.questions.items()}
        states = {key: sorted(states) for key, states in self.states.items()}
        saved = _Saved(FORMAT, FORMAT_VERSION, sides, self.scales, questions, self.sets, states, self.model)
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
            sides = {(side.question, side.side): side.loaded(directory) for side in saved.sides}
            names = {side.question: side.name for side in reversed(saved.sides)}
            questions = {key: AskedQuestion.read(values, names.get(key)) for key, values in saved.questions.items()}
        except (AttributeError, KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
            raise ArtifactError(
                f"{path} holds no calibrator of decisions that this version reads: {error!r}."
            ) from error
        states = {key: frozenset(states) for key, states in saved.states.items()}
        return cls(sides, saved.scales, questions, saved.sets, states, saved.model)


class _SavedSide(msgspec.Struct):
    """A `DecisionSide` in `decisions.json`, with the folder of its calibrator."""

    question: str
    side: str
    name: str
    n: int
    asked: int
    accepted: int
    wrong: int
    refusal: str
    calibrator: str | None
    """The name of the folder; None where nothing could be fitted."""
    sha256: str | None
    """The checksum of what is in it."""

    def loaded(self, directory: Path) -> DecisionSide:
        """The side with its calibrator; `ArtifactError` if that is another one than was saved."""
        fitted = None
        if self.calibrator is not None:
            # The last part alone: a file from elsewhere must not name a path outside of its folder.
            place = directory / Path(self.calibrator).name
            fitted = Calibrator.load(place)
            # Each folder is sound by itself, yet may have been copied from another fit.
            if _digest(fitted) != self.sha256:
                raise ArtifactError(f"{place} is part of another calibrator than {directory / NAME}.")
        return DecisionSide(self.name, self.side, self.n, self.asked, self.accepted, self.wrong, fitted, self.refusal)


class _Saved(msgspec.Struct, omit_defaults=True):
    """What `decisions.json` holds; see `DecisionCalibrator`."""

    format: str
    format_version: int
    sides: list[_SavedSide]
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
        {} if calibrator is None or answer.refusal is not None else calibrator.block(DecisionRecord.of(answer, options))
        for answer in answers
    ]


def _digest(calibrator: Calibrator) -> str:
    """SHA-256 of a side's calibrator, in hex digits."""
    return hashlib.sha256(to_bytes(calibrator)).hexdigest()


def _side(
    records: Sequence[DecisionRecord], asked: int, guarantee: Guarantee, alpha: float, delta: float, start: float | None
) -> DecisionSide:
    scores, right = [record.log_confidence for record in records], [record.correct for record in records]
    side = DecisionSide(records[0].name, records[0].side, len(records), asked, 0, 0, None)
    # Records without a state cannot be compared, so each counts as one of its own.
    if repeated := len(records) - len({record.state or str(number) for number, record in enumerate(records)}):
        raise InvalidInputError(
            f"{side.name}: {repeated} labeled answers are about a state that another one is about, too. Repeated "
            "answers count as evidence that is not there: leave them out."
        )
    try:
        calibrator = Calibrator.fit(scores, right)
    except InvalidInputError as error:
        return replace(side, refusal=str(error))
    threshold = Threshold.fit(scores, right, guarantee=guarantee, alpha=alpha, delta=delta, start=start)
    accepted = threshold.accepts(scores)
    return replace(
        side,
        n_accepted=int(accepted.sum()),
        n_wrong_accepted=int((accepted & ~np.array(right)).sum()),
        calibrator=replace(calibrator, threshold=threshold),
    )


def _sets(records: Sequence[DecisionRecord], alpha: float) -> PredictionSets:
    labels = [record.label for record in records if record.label is not None]
    return PredictionSets.fit([record.probabilities for record in records], labels, alpha)


def doubts(records: Sequence[DecisionRecord], guarantee: Guarantee, alpha: float, delta: float) -> list[str]:
    """What labels cannot support, each as a sentence, before anything is fitted to them."""
    labeled: dict[str, list[DecisionRecord]] = {}
    for record in records:
        if record.label is not None:
            labeled.setdefault(f"{record.name} {record.fingerprint}", []).append(record)
    sentences = []
    for own in labeled.values():
        name, wrong, n = own[0].name, sum(not answer.correct for answer in own), len(own)
        least = labels_needed(0, alpha, delta)
        if (tells := wrong if guarantee == "miss_rate" else n) < least:
            what = "wrong answers with a label" if guarantee == "miss_rate" else "labels"
            sentences.append(
                f"{name}: a guarantee at alpha {alpha:g} takes at least {least} {what} on each side; here are {tells} "
                "in all. Label more, or choose a larger alpha."
            )
        if (least_sets := labels_for_sets(alpha)) > n:
            sentences.append(
                f"{name}: sets of options take at least {least_sets} labels at alpha {alpha:g}, and there are {n}: "
                "with fewer every set holds all options, so none are made."
            )
        if guarantee == "selective_risk" and (share := least_to_a_person(wrong, n, alpha)) > 0:
            sentences.append(
                f"{name}: {percent(wrong / n)} of {n:,} labeled answers are wrong. If at most {percent(alpha)} of the "
                f"accepted may be, at least {percent(share)} of all must go to a person, whatever the score."
            )
    return sentences


def _scale(records: Sequence[DecisionRecord]) -> OptionScale | None:
    """Fit the scale of a question; None where its labels are too few."""
    labels = [record.label for record in records if record.label is not None]
    try:
        return OptionScale.fit(
            [record.probabilities for record in records], labels, [str(v) for v in records[0].values]
        )
    except InvalidInputError:
        return None
