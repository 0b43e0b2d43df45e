"""The uncertainty of each choice of a reply or stream; a reason in its place where there is none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from semtoken.clusters import TokenClusters
from semtoken.engine_tokens import TopStep, TopToken
from semtoken.errors import SemtokenError
from semtoken.payloads import Choice, Payload, PayloadStream, read_payload, score_payload
from semtoken.results import ScoredResponse
from semtoken.scoring import scorer_for
from semtoken.scoring.rules import ScoringRules
from semtoken.scoring.topk import TopkAnswer
from semtoken.web.block import reason_block, running_block, score_block
from semtoken.web.proxy.metrics import ProxyMetrics
from semtoken.web.proxy.rewriting import Asked

logger = logging.getLogger("semtoken.proxy")

Reply = Mapping[str, Any]
Block = dict[str, Any]


class Unscored(Exception):
    """A choice gets no score."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True)
class AnswerScoring:
    """How the answers of one proxy are scored."""

    clusters: TokenClusters
    rules: ScoringRules
    proxy_for: str | None
    metrics: ProxyMetrics

    def running(self) -> TopkAnswer:
        """The scorer of an answer that is being written."""
        return TopkAnswer(scorer_for(self.clusters, self.rules))

    def score(self, payload: Payload, choice: Choice) -> ScoredResponse:
        """The score of a choice that is complete.

        Raises
        ------
        SemtokenError
            It cannot be scored.
        """
        [result] = score_payload(
            replace(payload, choices=(choice,)),
            self.clusters,
            self.rules.preset,
            function_words=self.rules.function_words,
            clustering=self.rules.clustering,
            prefix_matching=self.rules.prefix_matching,
            proxy_for=self.proxy_for,
        )
        return result

    def warm_up(self) -> None:
        """Prepare what the first answer would have to wait for."""
        with suppress(SemtokenError):
            self.running().add(TopStep(TopToken(0.0, text="a", bytes=b"a"), ()))


class ReplyScorer:
    """Scores the choices of one reply, whole or as it is streamed.

    Parameters
    ----------
    scoring
        How.
    asked
        The request.
    obstacle
        Why nothing can be scored, if that is known before.
    """

    def __init__(self, scoring: AnswerScoring, asked: Asked, obstacle: str | None) -> None:
        self._scoring = scoring
        self._asked = asked
        self._obstacle = obstacle
        self._stream = PayloadStream(temperature=asked.temperature)
        self._answers: dict[int, TopkAnswer] = {}
        self._failed: Unscored | None = None

    def give_up(self, code: str) -> None:
        """Nothing can be added to the reply; count it."""
        self._scoring.metrics.unscored.labels(code).inc()

    @property
    def steps(self) -> int:
        """Steps of a stream so far."""
        return sum(len(answer.ids) for answer in self._answers.values())

    def reply(self, reply: Reply) -> dict[int, Block]:
        """The block of every choice of a whole reply."""
        try:
            payload = self._attempt(lambda: read_payload(reply, temperature=self._asked.temperature))
        except Unscored as failed:
            return {index: self._unscored(failed) for index in _endings(reply)}
        return {choice.index: self._final(payload, choice) for choice in payload.choices}

    def chunk(self, chunk: Reply) -> dict[int, Block]:
        """The blocks of the choices of a chunk: running, or final where the chunk ends a choice."""
        if self._failed is None:
            try:
                self._attempt(lambda: self._take_in(chunk))
            except Unscored as failed:
                self._failed = failed
        blocks: dict[int, Block] = {}
        for index, ended in _endings(chunk).items():
            block = self._ended(index) if ended else self._running(index)
            if block is not None:
                blocks[index] = block
        return blocks

    def _take_in(self, chunk: Reply) -> None:
        for event in self._stream.feed(chunk):
            if event.kind == "answer":
                if event.choice not in self._answers:
                    self._answers[event.choice] = self._scoring.running()
                for step in event.steps:
                    self._answers[event.choice].add(step)

    def _running(self, index: int) -> Block | None:
        if self._failed is not None or index not in self._answers or not self._answers[index].ids:
            return None
        return running_block(self._answers[index].running())

    def _ended(self, index: int) -> Block:
        """The final block of a choice, the same as if the reply had not been streamed."""
        try:
            if self._failed is not None:
                raise self._failed
            payload = self._attempt(self._stream.finish)
            choice = next(choice for choice in payload.choices if choice.index == index)
        except Unscored as failed:
            return self._unscored(failed) | {"final": True}
        return self._final(payload, choice) | {"final": True}

    def _final(self, payload: Payload, choice: Choice) -> Block:
        try:
            if choice.segment("answer") is None:
                kinds = " and a ".join(segment.kind.replace("_", " ") for segment in choice.segments)
                raise Unscored("no_answer", f"The choice holds a {kinds} and no answer; only answers are scored.")
            result = self._attempt(lambda: self._scoring.score(payload, choice))
        except Unscored as failed:
            return self._unscored(failed)
        self._scoring.metrics.scored.labels(self._asked.endpoint).inc()
        self._scoring.metrics.widths.observe(result.uncertainty_width)
        return score_block(result, self._scoring.clusters.signature, self._asked.options)

    def _attempt(self, work: Callable[[], Any]) -> Any:
        """Do it; whatever goes wrong is a reason, never an end of the answer.

        Raises
        ------
        Unscored
            It did not work out.
        """
        if self._obstacle is not None:
            raise Unscored("obstacle", self._obstacle)
        try:
            return work()
        except SemtokenError as error:
            raise Unscored(type(error).__name__, str(error)) from error
        except Exception as error:
            logger.exception("An answer could not be scored")
            raise Unscored("internal", f"Scoring failed ({type(error).__name__}); see the proxy's log.") from error

    def _unscored(self, failed: Unscored) -> Block:
        self.give_up(failed.code)
        return reason_block(failed.reason)


def _endings(chunk: Reply) -> dict[int, bool]:
    """The choices of a chunk, and whether it is the last of each."""
    found: dict[int, bool] = {}
    for choice in chunk.get("choices") or ():
        index = choice.get("index", 0) if isinstance(choice, Mapping) else None
        if isinstance(index, int):
            found[index] = choice.get("finish_reason") is not None
    return found
