"""Probability and decision, which a calibrator adds to an answer: the same block in all commands and servers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.choices import PartKind
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.core.results import ScoredAnswer
from semtoken.errors import BudgetExceededError, CalibratorMismatchError, InvalidInputError
from semtoken.guarantees.calibrator import NAME, Calibrator, read_calibrator, to_bytes
from semtoken.guarantees.curves import LOWEST
from semtoken.guarantees.exact import percent
from semtoken.guarantees.fingerprint import ELSEWHERE, NOTHING_KNOWN, Fingerprint, require_clusters
from semtoken.guarantees.judge import judge
from semtoken.guarantees.labels import log_score_ends
from semtoken.guarantees.threshold import Threshold
from semtoken.support.files.safe_files import replacing_file


def origin_of(model: Any, name: str | None) -> dict[str, Any]:
    """Name (as the user gave it), precision and engine of a loaded model (`ScoredModel.model`), as fields of
    `Fingerprint`.
    """
    dtype = str(getattr(model, "dtype", "unknown")).removeprefix("torch.")
    return {"model": name, "dtype": dtype, "engine": type(model).__module__.partition(".")[0]}


def with_decision(
    answer: ScoredAnswer,
    calibrator: Calibrator | None,
    threshold: Threshold | None,
    known: Fingerprint = NOTHING_KNOWN,
) -> ScoredAnswer:
    """An answer with its probability, bounds and decision, and with flags where the calibrator may not fit.

    `known` is of the model, precision and engine that answered. `CalibratorMismatchError` if the answer was scored in
    another way than the labeled ones.
    """
    fields: dict[str, Any] = {}
    if calibrator is not None:
        fields["flags"] = (*answer.flags, *calibrator.flags(answer, known))
        if not answer.empty:
            fields |= {
                "probability_correct": calibrator.predict_proba(answer),
                "probability_correct_interval": calibrator.predict_proba_interval(answer),
            }
    if threshold is not None:
        fields["decision"] = threshold.decide(answer, fields.get("probability_correct"))
    return answer.with_fields(**fields)


REFUSED = "calibrator_refused"
"""Key of the reason why an answer gets no probability: it was scored in another way, or by another model."""
ANOTHER_MODEL = "Another model answered than the one that the calibrator was fitted on."
WIDE = 0.1
"""Width of an interval of the confidence above which the probability is shown for both of its ends."""


@dataclass(frozen=True)
class CalibratorInUse:
    """A calibrator together with what is known about the answers that it is applied to."""

    calibrator: Calibrator
    known: Fingerprint = NOTHING_KNOWN
    """The model, the precision and the engine that answer, as far as they are known."""
    abstain_text: str | None = None
    """The text to show instead of an answer that is not accepted. None: answers are never hidden."""
    saved: bytes | None = field(default=None, repr=False)
    """The bytes of the file that it was loaded from; None where it was not loaded from a file."""

    @property
    def file(self) -> bytes:
        """The file of the calibrator, byte for byte."""
        return to_bytes(self.calibrator) if self.saved is None else self.saved

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the file, in hex digits: which calibrator this is."""
        return hashlib.sha256(self.file).hexdigest()

    @property
    def n(self) -> int:
        """The number of labeled answers that the calibrator was fitted on."""
        return self.calibrator.n

    def save(self, directory: Path) -> None:
        """Write the calibrator's file into a folder, unchanged, so that `load` can read it."""
        directory.mkdir(parents=True, exist_ok=True)
        with replacing_file(directory / NAME) as file:
            file.write(self.file)

    @classmethod
    def load(
        cls,
        directory: str | Path,
        clusters: TokenClusters | None = None,
        known: Fingerprint = NOTHING_KNOWN,
        abstain_text: str | None = None,
    ) -> CalibratorInUse:
        """Load a calibrator for these clusters and this model.

        `ArtifactError` if the file cannot be used, `CalibratorMismatchError` if it belongs to other clusters, rules or
        probabilities, `InvalidInputError` if there is an `abstain_text` and no threshold.
        """
        calibrator, saved = read_calibrator(directory)
        if clusters is not None:
            require_clusters(calibrator.fingerprint, clusters)
        calibrator.fingerprint.require_same(known)
        if abstain_text is not None and calibrator.threshold is None:
            raise InvalidInputError(
                f"The calibrator in {directory} holds no threshold, so it cannot say when to abstain."
            )
        return cls(calibrator, known, abstain_text, saved)

    def block(self, answer: ScoredAnswer, line: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Probability, bounds, number of labels, decision and guarantee of an answer, as plain values.

        `line` is the line of a file that the answer belongs to, whose fields may say of which group it is. A score
        known within wide bounds only adds the probabilities at both ends; a calibrator that may not fit adds the
        reasons. `CalibratorMismatchError` if the answer was scored in another way than the labeled ones.
        """
        group = self.calibrator.fingerprint.group_of(line or {})
        flags = self.calibrator.flags(answer, replace(self.known, task=group or self.known.task))
        probability_correct = self.calibrator.predict_proba(answer)
        low, high = self.calibrator.predict_proba_interval(answer)
        fields: dict[str, Any] = {
            "probability_correct": _number(probability_correct),
            "probability_correct_interval": [_number(low), _number(high)],
            "n_labels": self.calibrator.n,
        }
        ends = log_score_ends(answer, self.calibrator.fingerprint.method)
        # A narrow interval has one probability for all readers; for a wide one the two ends may mean different
        # decisions.
        if ends is not None and math.exp(ends[1]) - math.exp(ends[0]) > WIDE:
            # An end of minus infinity is a score that may be as low as any, and not that of an empty answer.
            least = [max(end, LOWEST) for end in ends]
            fields["probability_correct_at_ends"] = [float(c) for c in self.calibrator.predict_proba(least)]
        if self.calibrator.threshold is not None:
            decision = self.calibrator.threshold.decide(answer)
            fields |= {"decision": decision.action, "reason": decision.reason, "guarantee": decision.guarantee}
        if flags:
            fields[ELSEWHERE] = [flag.message for flag in flags]
        return fields

    def block_or_refusal(self, answer: ScoredAnswer, line: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The same as `block`; for an answer of another model than the labeled ones only the reason why it gets no
        probability, under `REFUSED`.
        """
        try:
            self.calibrator.fingerprint.require_model(answer)
        except CalibratorMismatchError as error:
            return {REFUSED: str(error), ELSEWHERE: [ANOTHER_MODEL]}
        return self.block(answer, line)

    def shown_instead(self, block: Mapping[str, Any] | None) -> str | None:
        """The text that a server shows in place of the answer of a block, where one is set and nothing accepted it;
        None: the answer itself.
        """
        return None if (block or {}).get("decision") == "answer" else self.abstain_text

    def shown(self, answer: ScoredAnswer) -> str:
        """The text to show: the answer, unless it abstains and a text for that was asked for."""
        instead = None if self.abstain_text is None else self.shown_instead(self.block(answer))
        return answer.text if instead is None else instead

    def sentence(self, answer: ScoredAnswer) -> str:
        """Probability and decision as text: "right in about 3 of 10 answers like this one (12 to 55%, 40 labels)"."""
        block = self.block(answer)
        n, probability_correct, (low, high) = (
            block[name] for name in ("n_labels", "probability_correct", "probability_correct_interval")
        )
        words = "an empty answer has no probability"
        if probability_correct is not None:
            about = (
                f"{round(10 * probability_correct)} of 10" if n < 100 else f"{100 * probability_correct:.0f}% of the"
            )
            words = f"right in about {about} answers like this one ({100 * low:.0f} to {100 * high:.0f}%, {n} labels)"
        return f"{words} · {block['decision']}" if "decision" in block else words

    def check(self, scores: npt.ArrayLike, correct: npt.ArrayLike) -> str:
        """A sentence or two on how probabilities and threshold did on labeled answers that the calibrator did not see.

        `scores` [n] are log scores; `correct` [n] is 1 right, 0 wrong, NaN not judged (left out).
        """
        logs, labels = np.asarray(scores, dtype=np.float64), np.asarray(correct, dtype=np.float64)
        logs, labels = logs[~np.isnan(labels)], labels[~np.isnan(labels)]
        report = self.calibrator.report(logs, labels)
        gain = report.log_loss_gain
        sentence = (
            f"Probabilities by the calibrator: log loss {report.log_loss.value:.3f}, {gain.value:+.3f} "
            f"[{gain.low:+.3f}, "
            f"{gain.high:+.3f}] against always giving its base rate; ECE {report.calibration_error:.3f}."
        )
        threshold = self.calibrator.threshold
        if threshold is None:
            return sentence
        accepted = threshold.accepts(logs)
        if not accepted.any():
            return f"{sentence} It accepts none of the {labels.size:,} answers."
        claim = threshold.claim
        seen = claim.kind.count(accepted, labels == 1)
        [verdict] = judge([(claim, seen)])
        return (
            f"{sentence} It accepts {int(accepted.sum()):,} of {labels.size:,} answers. {claim.kind.among} {seen}; "
            f"guaranteed: at most {percent(claim.alpha)}: {verdict}."
        )


def decided(block: Mapping[str, Any]) -> list[str]:
    """The probability and the decision of a block in words, such as ["probability 83%", "answer"], as far as it has
    them.
    """
    probability = block.get("probability_correct")
    words = [] if probability is None else [f"probability {100 * probability:.0f}%"]
    return [*words, *filter(None, [block.get("decision")])]


def warnings_of(block: Mapping[str, Any]) -> list[str]:
    """Sentences on why an answer has no probability, or on why the calibrator may not fit it; of the answer's block."""
    refused = block.get(REFUSED)
    return [refused] if refused else list(block.get(ELSEWHERE, ()))


def plain_record(
    question: str, answer: ScoredAnswer, calibrator: CalibratorInUse | None = None, parts: PartKind | None = None
) -> dict[str, Any]:
    """An answer as plain values, with its question, what a calibrator says of it, and the parts of a kind.

    Where the calibrator shows another text in place of the answer, nothing that quotes the answer is in it.
    """
    scores = answer.to_dict()
    record = {"question": question, "response": scores.pop("text"), **scores}
    record["new_word_confidence"] = answer.new_word_confidence(question)
    if calibrator is not None:
        record |= calibrator.block(answer) | {"response": calibrator.shown(answer)}
    if record["response"] != answer.text:  # it is held back, and so is all that quotes it
        record["explanation"] = answer.without_quotes().explanation
        del record["tokens"], record["flags"]
    elif parts is not None:
        try:
            record["parts"] = [part.to_dict() for part in answer.parts(parts)]
        except BudgetExceededError as error:
            record["parts_refused"] = str(error)
    return record


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
