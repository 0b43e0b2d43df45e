"""One side of a typed question, such as a predicate that is called true: what its labeled answers gave, and how it is
saved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from semtoken.choices import Guarantee
from semtoken.decisions.records import DecisionRecord
from semtoken.errors import ArtifactError, InvalidInputError
from semtoken.guarantees import Calibrator, Threshold
from semtoken.guarantees.calibrator import to_bytes
from semtoken.guarantees.judge import KINDS, Claim, Kind, Share


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
    """The number of those accepted on this side. The threshold was chosen on them."""
    n_wrong_accepted: int
    """The number of wrong answers among the accepted."""
    calibrator: Calibrator | None
    """Turns the log-probability of the chosen option into the probability that it is right, and holds the threshold."""
    refusal: str = ""
    """Why there is no calibrator; empty where there is one."""

    @classmethod
    def fit(
        cls,
        records: Sequence[DecisionRecord],
        asked: int,
        *,
        guarantee: Guarantee,
        alpha: float,
        delta: float,
        start: float | None,
    ) -> DecisionSide:
        """Fit to the labeled answers of one side, of `asked` ones of the question; with a `refusal` if they are too
        few.

        `InvalidInputError` if two are about one state, or a level is outside (0, 1).
        """
        scores, right = scores_of(records), [record.correct for record in records]
        side = cls(records[0].name, records[0].answer.side, len(records), asked, 0, 0, None)
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

    @property
    def threshold(self) -> Threshold | None:
        """The threshold that decides whether an answer of this side is accepted; None if none could be fitted."""
        return None if self.calibrator is None else self.calibrator.threshold

    @property
    def kind(self) -> Kind:
        """The kind of guarantee; without a threshold the usual one."""
        return KINDS["selective_risk" if self.threshold is None else self.threshold.guarantee]

    @property
    def claim(self) -> Claim | None:
        """The guarantee as the judge tests it; None where nothing is guaranteed."""
        return self.threshold.claim if self.threshold is not None and self.guarantees else None

    @property
    def fired(self) -> Share:
        """Accepted on this side, of all labeled answers of the question."""
        return Share(self.n_accepted, self.asked)

    @property
    def wrong(self) -> Share:
        """Answers that counted against the guarantee, of the labeled ones that it is about (`judge.Kind`).

        They chose the threshold, so the share flatters.
        """
        accepted = np.arange(self.n) < self.n_accepted
        n_wrong = self.n_wrong_accepted if self.threshold is None else self.threshold.n_wrong
        right = np.ones(self.n, dtype=bool)
        # The order does not matter to the count, so wrong ones are put first among the accepted and among the others.
        right[: self.n_wrong_accepted] = False
        right[self.n_accepted : self.n_accepted + n_wrong - self.n_wrong_accepted] = False
        return self.kind.count(accepted, right)

    @property
    def what(self) -> str:
        """The name of this side in messages, such as the question and its answer."""
        return self.name if self.side == "answer" else f"{self.name}, called {self.side}"

    @property
    def guarantees(self) -> bool:
        """True if this side accepts any answers, and guarantees something about them."""
        return self.calibrator is not None and self.calibrator.guarantees

    def is_required(self, required: Collection[str]) -> bool:
        """Return True if a guarantee is wanted for this side: it is named, or its question is, or none is."""
        return not required or self.name in required or self.what in required

    def accepts(self, record: DecisionRecord) -> bool:
        """Return True if the threshold accepts this answer."""
        return self.accepted([record])[0]

    def accepted(self, records: Sequence[DecisionRecord]) -> list[bool]:
        """Say of each answer if the threshold accepts it."""
        if self.threshold is None or not records:
            return [False] * len(records)
        return [bool(one) for one in self.threshold.accepts(scores_of(records))]

    def own(self, records: Sequence[DecisionRecord]) -> list[DecisionRecord]:
        """The answers to the question that are on this side."""
        return [record for record in records if record.answer.side == self.side]

    @property
    def statement(self) -> str:
        """The guarantee as a sentence, or the reason why there is none."""
        if self.threshold is None:
            return self.refusal
        return self.threshold.statement


def scores_of(records: Sequence[DecisionRecord]) -> list[float]:
    """The numbers that thresholds and curves are fitted on: the log-probabilities of the chosen options."""
    return [record.answer.log_confidence for record in records]


class SavedSide(msgspec.Struct):
    """A `DecisionSide` in `decisions.json`, with the folder of its calibrator."""

    question: str
    """The fingerprint of the question."""
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

    @classmethod
    def of(cls, side: DecisionSide, question: str, folder: str) -> SavedSide:
        """The side as it is saved, with the calibrator in a folder of this name."""
        fitted = side.calibrator
        return cls(
            question=question,
            side=side.side,
            name=side.name,
            n=side.n,
            asked=side.asked,
            accepted=side.n_accepted,
            wrong=side.n_wrong_accepted,
            refusal=side.refusal,
            calibrator=None if fitted is None else folder,
            sha256=None if fitted is None else _digest(fitted),
        )

    def loaded(self, path: Path) -> DecisionSide:
        """The side with its calibrator, which lies beside the file; `ArtifactError` if that is another one than was
        saved.
        """
        fitted = None
        if self.calibrator is not None:
            # The last part alone: a file from elsewhere must not name a path outside of its folder.
            place = path.parent / Path(self.calibrator).name
            fitted = Calibrator.load(place)
            # Each folder is sound by itself, yet may have been copied from another fit.
            if _digest(fitted) != self.sha256:
                raise ArtifactError(f"{place} is part of another calibrator than {path}.")
        return DecisionSide(self.name, self.side, self.n, self.asked, self.accepted, self.wrong, fitted, self.refusal)


def _digest(calibrator: Calibrator) -> str:
    """SHA-256 of a side's calibrator, in hex digits."""
    return hashlib.sha256(to_bytes(calibrator)).hexdigest()
