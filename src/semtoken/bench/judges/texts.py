"""Judges that compare the answer's words with those of the accepted answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from semtoken.almanac import is_correct
from semtoken.almanac.questions import normalize_answer
from semtoken.bench.judges.base import AnswerToJudge, OnJudged, Verdict
from semtoken.support.extras import require

if TYPE_CHECKING:
    from semtoken.statistics import SimilarityModel


@dataclass(frozen=True)
class ExactJudge:
    """Calls an answer correct if it equals an accepted one, lower-cased and without articles and punctuation."""

    name: str = "exact"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The kind of the judge, which has no further settings."""
        return {"kind": "exact"}

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """One verdict for each item; an empty answer is incorrect."""
        return _each(items, lambda item: Verdict(float(is_correct(item.answer, item.question))), on_judged)


@dataclass(frozen=True)
class ContainsJudge:
    """Calls an answer correct if the words of an accepted one stand in it, normalised as by `ExactJudge`."""

    name: str = "contains"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The kind of the judge, which has no further settings."""
        return {"kind": "contains"}

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """One verdict for each item. Whole words count: "art" does not stand in "party"."""
        return _each(items, lambda item: Verdict(float(_contains(item))), on_judged)


def _contains(item: AnswerToJudge) -> bool:
    words = f" {normalize_answer(item.answer)} "
    accepted = {normalize_answer(answer) for answer in item.question.answers} - {""}
    return any(f" {answer} " in words for answer in accepted)


@dataclass(frozen=True)
class RougeJudge:
    """Calls an answer correct if its largest ROUGE-L F1 with an accepted answer is above a threshold.

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

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """Judge answers by ROUGE-L F1 with the best accepted answer; that F1 is the quality of each verdict."""
        return _each(items, self._verdict, on_judged)

    def _verdict(self, item: AnswerToJudge) -> Verdict:
        quality = float(self._scorer.score_multi(list(item.question.answers), item.answer)["rougeL"].fmeasure)
        return Verdict(float(quality > self.threshold), quality)


def _each(
    items: Sequence[AnswerToJudge], verdict: Callable[[AnswerToJudge], Verdict], on_judged: OnJudged | None
) -> list[Verdict]:
    verdicts = []
    for item in items:
        verdicts.append(verdict(item))
        if on_judged is not None:
            on_judged(len(verdicts))
    return verdicts


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
