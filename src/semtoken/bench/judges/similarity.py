"""A judge that asks a cross-encoder how alike the answer and the accepted answers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from semtoken.bench.judges.records import Judged, OnJudged, Verdict

if TYPE_CHECKING:
    from semtoken.statistics import SimilarityModel

CHUNK = 256
"""Answers between two reports of progress."""


@dataclass(frozen=True)
class SimilarityJudge:
    """Correct if the largest similarity with an accepted answer is above a threshold.

    Answer and accepted answer are compared as bare texts, without the question. An empty answer has quality 0.
    """

    model: str | None = None
    """A directory or a hub id; "almanac" is the small one inside the package. None: the one that methods use."""
    threshold: float = 0.5
    device: str | None = None
    name: str = "similarity"

    @property
    def settings(self) -> Mapping[str, Any]:
        """Model and threshold."""
        return {"kind": "similarity", "model": self._model, "threshold": self.threshold}

    @property
    def _model(self) -> str:
        from semtoken.statistics.similarity import DEFAULT_SIMILARITY

        return self.model or DEFAULT_SIMILARITY

    @cached_property
    def _encoder(self) -> SimilarityModel:
        from semtoken.statistics import SimilarityModel  # torch is loaded only where it is used

        return SimilarityModel.from_pretrained(self._model, device=self.device)

    def judge(self, items: Sequence[Judged], on_judged: OnJudged | None = None) -> list[Verdict]:
        """One verdict for each item, its similarity as the quality."""
        verdicts: list[Verdict] = []
        for start in range(0, len(items), CHUNK):
            verdicts += self._verdicts(items[start : start + CHUNK])
            if on_judged is not None:
                on_judged(len(verdicts))
        return verdicts

    def _verdicts(self, items: Sequence[Judged]) -> list[Verdict]:
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
