"""Chances and promises for typed decisions: one calibrator for each question, for predicates true and false apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from semtoken.calibration import Calibrator, Threshold
from semtoken.decisions.records import DecisionRecord
from semtoken.errors import ArtifactError, InvalidInput
from semtoken.files.safe_files import (
    dump_json,
    is_sealed,
    parse_json,
    reading_errors,
    replacing_file,
    replacing_folder,
    seal,
)

NAME = "decisions.json"
FORMAT, FORMAT_VERSION = "semtoken.decisions", 1

Key = tuple[str, str]
"""A question's fingerprint, and the side that is decided."""


@dataclass(frozen=True)
class DecisionSide:
    """What is known of one question's answers on one side."""

    name: str
    """The name of the question."""
    side: str
    """`true` or `false` of a predicate, else `answer`."""
    n: int
    """Labelled answers on this side, by any margin."""
    asked: int
    """Labelled answers of the question."""
    calibrator: Calibrator | None
    """From the log-probability of the chosen option to the chance that it is right, with its threshold."""
    refusal: str = ""
    """Why there is none."""

    @property
    def threshold(self) -> Threshold | None:
        """What is decided with it."""
        return None if self.calibrator is None else self.calibrator.threshold

    @property
    def what(self) -> str:
        """For people."""
        return self.name if self.side == "answer" else f"{self.name}, called {self.side}"

    @property
    def promises(self) -> bool:
        """Whether anything is accepted, with a promise."""
        return self.threshold is not None and self.threshold.uncertainty is not None

    def accepts(self, record: DecisionRecord) -> bool:
        """Whether an answer of this side is accepted."""
        return self.threshold is not None and bool(self.threshold.accepts([record.log_score])[0])

    @property
    def statement(self) -> str:
        """The promise in one sentence, or why there is none."""
        if self.threshold is None:
            return self.refusal
        return self.threshold.statement


@dataclass(frozen=True)
class DecisionCalibrator:
    """Calibrators of questions, by fingerprint and side."""

    sides: Mapping[Key, DecisionSide]

    @classmethod
    def fit(cls, records: Sequence[DecisionRecord], *, alpha: float = 0.1, delta: float = 0.1) -> DecisionCalibrator:
        """Fit on labelled answers, each about another state.

        Parameters
        ----------
        records
            Those without a label are left out. Each side of each question needs 30 labels, 5 of either kind.
        alpha, delta
            Of the promise "with confidence 1 - delta at most alpha of the accepted are wrong".

        Raises
        ------
        InvalidInput
            No side of any question has labels enough; the message says how many are missing.
        """
        groups: dict[Key, list[DecisionRecord]] = {}
        asked: dict[str, int] = {}
        for record in records:
            if record.label is not None:
                groups.setdefault((record.fingerprint, record.side), []).append(record)
                asked[record.fingerprint] = asked.get(record.fingerprint, 0) + 1
        sides = {key: _side(own, asked[key[0]], alpha, delta) for key, own in groups.items()}
        if not any(one.calibrator for one in sides.values()):
            why = "; ".join(f"{one.what}: {one.refusal}" for one in sides.values()) or "no answer has a label."
            raise InvalidInput(f"Nothing can be fitted. {why}")
        return cls(sides)

    def block(self, record: DecisionRecord) -> dict[str, Any]:
        """Chance, decision and promise of one answer; nothing where its question was not fitted."""
        one = self.sides.get((record.fingerprint, record.side))
        if one is None:
            return {}
        if one.calibrator is None:
            return {"decision": "abstain", "promise": one.refusal, "labels": one.n}
        return {
            "chance": float(one.calibrator.chance(record.log_score)),
            "decision": "answer" if one.accepts(record) else "abstain",
            "promise": one.statement,
            "labels": one.n,
        }

    def save(self, directory: Path) -> None:
        """Write a folder: `decisions.json`, and a calibrator for each side. Replaces one that was there."""
        with replacing_folder(directory) as working:
            listed = []
            for number, ((fingerprint, side), one) in enumerate(self.sides.items()):
                place = f"{number:03}-{side}"
                if one.calibrator is not None:
                    one.calibrator.save(working / place)
                values = {"name": one.name, "n": one.n, "asked": one.asked, "refusal": one.refusal}
                fitted = None if one.calibrator is None else place
                listed.append({"question": fingerprint, "side": side, **values, "calibrator": fitted})
            content = {"format": FORMAT, "format_version": FORMAT_VERSION, "sides": listed}
            with replacing_file(working / NAME) as file:
                file.write(dump_json(seal(content), indent=1))

    @classmethod
    def load(cls, directory: Path) -> DecisionCalibrator:
        """Read what `save` wrote.

        Raises
        ------
        ArtifactError
            It is not there, or was changed.
        """
        path = directory / NAME
        try:
            with reading_errors(path):
                content = parse_json(path.read_bytes())
        except (InvalidInput, ValueError) as error:
            raise ArtifactError(f"{error} Make one with `semtoken decide fit`.") from error
        if not isinstance(content, dict) or not is_sealed(content) or content.get("format") != FORMAT:
            raise ArtifactError(f"{path} was changed, or holds no calibrator of decisions.")
        sides = {}
        for one in content["sides"]:
            place = one["calibrator"]
            fitted = None if place is None else Calibrator.load(directory / Path(place).name)
            sides[one["question"], one["side"]] = DecisionSide(
                one["name"], one["side"], one["n"], one["asked"], fitted, one["refusal"]
            )
        return cls(sides)


def _side(records: Sequence[DecisionRecord], asked: int, alpha: float, delta: float) -> DecisionSide:
    scores, right = [one.log_score for one in records], [one.correct for one in records]
    found = DecisionSide(records[0].name, records[0].side, len(records), asked, None)
    try:
        calibrator = Calibrator.fit(scores, right)
    except InvalidInput as error:
        return replace(found, refusal=str(error))
    threshold = Threshold.fit(scores, right, alpha=alpha, delta=delta)
    return replace(found, calibrator=replace(calibrator, threshold=threshold))
