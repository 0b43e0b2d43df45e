"""Judges that compare the answer's words with those of the accepted answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from semtoken.almanac import is_correct
from semtoken.almanac.questions import normalize_answer
from semtoken.bench.judges.base import AnswerToJudge, OnJudged, Verdict
from semtoken.support.extras import require

if TYPE_CHECKING:
    from semtoken.statistics import SimilarityModel


class _JudgeOfOne:
    """The base of judges that look at one answer at a time."""

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """One verdict for each item, in the same order."""
        verdicts = []
        for item in items:
            verdicts.append(self._verdict(item))
            if on_judged is not None:
                on_judged(len(verdicts))
        return verdicts

    def _verdict(self, item: AnswerToJudge) -> Verdict:
        raise NotImplementedError


@dataclass(frozen=True)
class ExactJudge(_JudgeOfOne):
    """Calls an answer correct if it equals an accepted one, lower-cased and without articles and punctuation.

    An empty answer is incorrect.
    """

    name: str = "exact"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The kind of the judge, which has no further settings."""
        return {"kind": "exact"}

    def _verdict(self, item: AnswerToJudge) -> Verdict:
        return Verdict(float(is_correct(item.answer, item.question)))


@dataclass(frozen=True)
class ContainsJudge(_JudgeOfOne):
    """Calls an answer correct if the words of an accepted one stand in it, normalised as by `ExactJudge`.

    Whole words count: "art" does not stand in "party".
    """

    name: str = "contains"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The kind of the judge, which has no further settings."""
        return {"kind": "contains"}

    def _verdict(self, item: AnswerToJudge) -> Verdict:
        words = f" {normalize_answer(item.answer)} "
        accepted = {normalize_answer(answer) for answer in item.question.answers} - {""}
        return Verdict(float(any(f" {answer} " in words for answer in accepted)))


@dataclass(frozen=True)
class RougeJudge(_JudgeOfOne):
    """Calls an answer correct if its largest ROUGE-L F1 with an accepted answer, its quality, is above a threshold.

    Uses Google's `rouge_score` without stemming. Its words are runs of the letters a to z and digits after
    lower-casing: a text without any, such as one in Greek, has a ROUGE-L of 0 with everything.
    """

    threshold: float = 0.3
    name: str = "rouge"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The threshold of ROUGE-L F1 that decides the verdicts."""
        return {"kind": "rouge", "threshold": self.threshold}

    @cached_property
    def _scorer(self) -> Any:
        return require("rouge_score.rouge_scorer", extra="bench").RougeScorer(["rougeL"], use_stemmer=False)

    def _verdict(self, item: AnswerToJudge) -> Verdict:
        quality = float(self._scorer.score_multi(list(item.question.answers), item.answer)["rougeL"].fmeasure)
        return Verdict(float(quality > self.threshold), quality)


CHUNK = 256
"""How many answers are compared between two reports of progress."""


@dataclass(frozen=True)
class SimilarityJudge:
    """Calls an answer correct if its largest similarity with an accepted answer is above a threshold.

    Answer and accepted answer are compared as bare texts, without the question. An empty answer has quality 0.
    """

    model: str | None = None
    """A directory or a hub id; "almanac" is the small one inside the package. None: `DEFAULT_SIMILARITY`."""
    threshold: float = 0.5
    device: str | None = None
    name: str = "similarity"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The cross-encoder and the threshold of the similarity, which decide the verdicts."""
        return {"kind": "similarity", "model": self._model, "threshold": self.threshold}

    @property
    def _model(self) -> str:
        from semtoken.statistics.encoders import DEFAULT_SIMILARITY

        return self.model or DEFAULT_SIMILARITY

    @cached_property
    def _encoder(self) -> SimilarityModel:
        from semtoken.statistics import SimilarityModel  # torch is loaded only where it is used

        return SimilarityModel.from_pretrained(self._model, device=self.device)

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """Judge answers by similarity to the best accepted answer, which is the quality of each verdict."""
        verdicts: list[Verdict] = []
        for start in range(0, len(items), CHUNK):
            verdicts += self._verdicts(items[start : start + CHUNK])
            if on_judged is not None:
                on_judged(len(verdicts))
        return verdicts

    def _verdicts(self, items: Sequence[AnswerToJudge]) -> list[Verdict]:
        answers = [item.answer.strip() for item in items]
        pairs = {
            (answer, accepted): 0.0
            for item, answer in zip(items, answers, strict=True)
            for accepted in item.question.answers
            if answer
        }
        found = dict(zip(pairs, self._encoder.similarities(list(pairs)).tolist(), strict=True))
        best = [
            max((found[answer, accepted] for accepted in item.question.answers), default=0.0) if answer else 0.0
            for item, answer in zip(items, answers, strict=True)
        ]
        return [Verdict(float(quality > self.threshold), quality) for quality in best]
