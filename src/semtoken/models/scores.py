"""The observer that scores answers: STC, exact from whole rows of logits, an interval from the k best tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from semtoken.core import AnswerBatch, GrowingAnswer, NormalizedRows, Scorer
from semtoken.core.batch import AnswersStep
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.results import Distribution, Flag, Running, ScoredAnswer
from semtoken.errors import VocabularyError
from semtoken.methods.observers.method_scores import MethodScores
from semtoken.methods.observers.steps import ROW, Observer, Step


class AnswerScores(Observer):
    """Scores all answers of a call while their tokens come; only a few numbers for each token are kept.
    `methods` are further ones of one pass; with a `depth`, the state of every answer's end at that depth is kept, too.
    """

    def __init__(self, scorer: Scorer, methods: Sequence[str] = (), depth: float | None = None) -> None:
        self.scorer = scorer
        self.methods = MethodScores(methods, depth)
        self.reads = frozenset({ROW}) | self.methods.reads
        self._exact = AnswerBatch(scorer)
        self._top: dict[int, GrowingAnswer] = {}

    def observe(self, step: Step) -> Collection[int] | None:
        """Add one decoding step to the score of each answer in it."""
        self.methods.observe(step)
        if step.logits is None:
            for answer, token, (ids, values) in zip(step.answers, step.tokens, step.best, strict=True):
                listed = [TopToken(log_prob=float(v), id=int(i)) for i, v in zip(ids, values, strict=True)]
                chosen = next(entry for entry in listed if entry.id == token)
                topk_answer = self._top.setdefault(answer, GrowingAnswer(self.scorer))
                topk_answer.add(TopStep(chosen=chosen, top=tuple(listed)))
            return None
        self._add([(step.answers, step.tokens)], step.normalized)
        return None

    def observe_together(self, steps: Sequence[AnswersStep], rows: NormalizedRows) -> None:
        """Add several decoding steps with logits, which takes less time than to add each by itself. `rows` are those of
        the answers of the first step, then those of the second one, and so on.
        """
        if self.methods.reads:
            first = 0
            for answers, tokens in steps:
                own = rows.of(slice(first, first + len(answers)))
                size, places = self.scorer.vocabulary.size, own.row_ids.tolist()
                self.methods.observe(Step(answers, tokens, size, own.logits, places, read=own))
                first += len(answers)
        self._add(steps, rows)

    def _add(self, steps: Sequence[AnswersStep], rows: NormalizedRows) -> None:
        self._check_ids(steps)
        self._exact.add(steps, rows)

    def _check_ids(self, steps: Sequence[AnswersStep]) -> None:
        """Raise `VocabularyError` for an id outside the vocabulary; the message names the step of its answer."""
        check = self.scorer.vocabulary.check_ids
        for place, (answers, tokens) in enumerate(steps):
            try:
                check(tokens)
            except VocabularyError:
                for answer, token in zip(answers, tokens, strict=True):
                    new = sum(answer in others for others, _ in steps[:place])
                    check([token], len(self._exact[answer].ids) + new)

    def _answer(self, answer: int) -> GrowingAnswer:
        return self._top[answer] if answer in self._top else self._exact[answer]

    def running(self, answer: int) -> Running:
        """The score of an unfinished answer from its tokens so far."""
        return self._answer(answer).running()

    def running_together(self, answers: Sequence[int]) -> list[Running]:
        """The scores of several unfinished answers from their tokens so far, computed together to save time."""
        if self._top:
            return [self.running(answer) for answer in answers]
        return self._exact.running(answers)

    def forget(self, answer: int) -> None:
        """Drop an answer, so that another one can have its number."""
        self._top.pop(answer, None)
        self.methods.forget(answer)
        del self._exact[answer]

    def results(self, lengths: Mapping[int, int], distribution: Distribution = "raw") -> list[ScoredAnswer]:
        """The scores of complete answers; `lengths` says how many tokens of each count."""
        if self._top:
            for answer, length in lengths.items():
                self._leave_out(answer, length)
            return [self.result(answer, distribution) for answer in lengths]
        return self._exact.finish(lengths, distribution)

    def _leave_out(self, answer: int, length: int) -> None:
        """Leave the listed steps from `length` on out of an answer."""
        lists = self._answer(answer).lists
        if lists is not None and length < len(lists.came):
            self._top[answer] = GrowingAnswer(self.scorer)
            self._top[answer].add(*lists.came[:length])

    def result(self, answer: int, distribution: Distribution = "raw") -> ScoredAnswer:
        """The score of a complete answer. One that has no tokens is empty, with uncertainty 1."""
        return self._answer(answer).finish(distribution)


class StoppingScores(AnswerScores):
    """Scores answers while they are written, and ends each once its -log_confidence can only be above `limit`."""

    def __init__(self, scorer: Scorer, limit: float, methods: Sequence[str] = (), depth: float | None = None) -> None:
        super().__init__(scorer, methods, depth)
        self.limit = limit
        self.stopped: set[int] = set()

    def observe(self, step: Step) -> Collection[int]:
        """Add one decoding step; returns the numbers of the answers that should end after it."""
        super().observe(step)
        self.stopped.difference_update(step.answers)  # of an engine that goes on nevertheless
        ends = step.ends or [False] * len(step.answers)
        going_on = [answer for answer, ended in zip(step.answers, ends, strict=True) if not ended]
        exceeding = {answer for answer in going_on if self.running(answer).exceeds(self.limit)}
        self.stopped |= exceeding
        return exceeding

    def result(self, answer: int, distribution: Distribution = "raw") -> ScoredAnswer:
        """The score of an answer that has ended, also where it was cut short."""
        return self._flagged(answer, super().result(answer, distribution))

    def results(self, lengths: Mapping[int, int], distribution: Distribution = "raw") -> list[ScoredAnswer]:
        """The scores of answers of these lengths that have ended, also where they were cut short."""
        responses = super().results(lengths, distribution)
        return [self._flagged(answer, result) for answer, result in zip(lengths, responses, strict=True)]

    def _flagged(self, answer: int, response: ScoredAnswer) -> ScoredAnswer:
        if answer not in self.stopped or any(flag.code == "stopped_early" for flag in response.flags):
            return response
        reason = f"The answer was ended early: its -log_confidence could only end above {self.limit:.4g}."
        return response.with_fields(flags=(*response.flags, Flag("stopped_early", reason)))
