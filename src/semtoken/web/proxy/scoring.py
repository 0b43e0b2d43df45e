"""The uncertainty of each choice of a reply or stream; a reason in its place where there is none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from semtoken.clusters import TokenClusters
from semtoken.errors import SemtokenError
from semtoken.payloads import Choice, Payload, PayloadStream, read_payload
from semtoken.results import ScoredResponse
from semtoken.rules import ScoringRules
from semtoken.scoring import Scorer, scorer_for
from semtoken.top_logprobs import TopAnswerScorer, TopStep
from semtoken.web.block import reason_block, running_block, score_block
from semtoken.web.proxy.metrics import ProxyMetrics
from semtoken.web.proxy.rewriting import Asked

logger = logging.getLogger("semtoken.proxy")

Reply = Mapping[str, Any]
Block = dict[str, Any]

NO_ANSWER = "The model wrote no answer but {kinds}; only answers are scored."


class Unscored(Exception):
    """A choice gets no score."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True)
class AnswerScoring:
    """How the answers of one proxy are scored."""

    scorer: Scorer
    proxy_for: str | None
    metrics: ProxyMetrics

    @classmethod
    def prepared(
        cls, clusters: TokenClusters, rules: ScoringRules, proxy_for: str | None, metrics: ProxyMetrics
    ) -> AnswerScoring:
        """Ready to score: what the first answer would have to wait for is done."""
        return cls(scorer_for(clusters, rules), proxy_for, metrics)

    def finish(self, answer: TopAnswerScorer, payload: Payload) -> ScoredResponse:
        """The result of an answer that is complete."""
        return answer.finish(payload.distribution, proxy_for=self.proxy_for)

    def score(self, steps: Iterable[TopStep], payload: Payload) -> ScoredResponse:
        """The result of an answer of which all steps are known."""
        answer = TopAnswerScorer(self.scorer)
        for step in steps:
            answer.add(step)
        return self.finish(answer, payload)


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
        self._answers: dict[int, TopAnswerScorer] = {}
        self._steps: dict[int, list[TopStep]] = {}
        self._failed: Unscored | None = None

    def give_up(self, code: str) -> None:
        """Nothing can be added to the reply; count it."""
        self._scoring.metrics.unscored.labels(code).inc()

    def reply(self, reply: Reply) -> dict[int, Block]:
        """The block of every choice of a whole reply."""
        try:
            payload = self._attempt(lambda: read_payload(reply, temperature=self._asked.temperature))
        except Unscored as failed:
            return {index: self._unscored(failed) for index in _indices(reply)}
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
                answer = self._answers.setdefault(event.choice, TopAnswerScorer(self._scoring.scorer))
                steps = self._steps.setdefault(event.choice, [])
                for step in event.steps:
                    answer.add(step)
                    steps.append(step)

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
            result = self._attempt(lambda: self._result(payload, choice))
        except Unscored as failed:
            return self._unscored(failed)
        self._scoring.metrics.scored.labels(self._asked.endpoint).inc()
        self._scoring.metrics.widths.observe(result.uncertainty_width)
        artifact = self._scoring.scorer.clusters.signature
        return score_block(result, artifact, self._asked.options, choice.flags)

    def _result(self, payload: Payload, choice: Choice) -> ScoredResponse:
        segment = choice.segment("answer")
        if segment is None:
            kinds = " and ".join(f"a {s.kind.replace('_', ' ')}" for s in choice.segments)
            raise Unscored("no_answer", NO_ANSWER.format(kinds=kinds))
        if segment.problem is not None:
            raise Unscored("problem", segment.problem)
        if self._steps.get(choice.index) == list(segment.steps):
            return self._scoring.finish(self._answers[choice.index], payload)
        return self._scoring.score(segment.steps, payload)

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
        except Unscored:
            raise
        except SemtokenError as error:
            raise Unscored(type(error).__name__, str(error)) from error
        except Exception as error:
            logger.exception("An answer could not be scored")
            raise Unscored("internal", f"Scoring failed ({type(error).__name__}); see the proxy's log.") from error

    def _unscored(self, failed: Unscored) -> Block:
        self.give_up(failed.code)
        return reason_block(failed.reason)


def _indices(reply: Reply) -> list[int]:
    return list(_endings(reply))


def _endings(chunk: Reply) -> dict[int, bool]:
    """The choices of a chunk, and whether it is the last of each."""
    found: dict[int, bool] = {}
    for choice in chunk.get("choices") or ():
        index = choice.get("index", 0) if isinstance(choice, Mapping) else None
        if isinstance(index, int):
            found[index] = choice.get("finish_reason") is not None
    return found
