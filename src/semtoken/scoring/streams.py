"""Scores of answers that are still being written: one token in, the running uncertainty out.

A step is settled once no later token can change its agreeing probability. Only its prefix set depends on later tokens,
and only on as much text as the longest normalised string of the vocabulary, so the settled part lags behind the answer
by no more. Under the preset `default` nothing is settled as long as all tokens are neutral. `finish` gives what scoring
the whole answer at once gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from semtoken.choices import Preset
from semtoken.engine_tokens.spellings import BorrowedNames, as_top_steps
from semtoken.results import Distribution, Running, ScoredResponse
from semtoken.scoring.logits import LogitsAnswer, check_shape
from semtoken.scoring.scorer import Scorer, scorer_for
from semtoken.scoring.topk import new_answer, tokens_or_none
from semtoken.scoring.topk_answer import TopkAnswer
from semtoken.support.arrays import as_rows
from semtoken.tokens.rules import ScoringRules, as_rules

A = TypeVar("A")


class _Stream(Generic[A]):
    """What both kinds of streams are made with."""

    _kind: Callable[[Scorer], A]
    """What scores the answer."""

    def __init__(self, vocabulary: Any, preset: Preset | ScoringRules = "default") -> None:
        rules = as_rules(preset)
        self._answer: A = self._kind(scorer_for(tokens_or_none(vocabulary, rules), rules))


class LogitsStream(_Stream[LogitsAnswer]):
    """An unfinished answer scored from all logits, the streaming form of `score_logits`.

    Parameters
    ----------
    vocabulary, preset
        As in `score_logits`.
    """

    _kind = LogitsAnswer

    def add(self, logits: Any, token: int) -> Running:
        """Add the logits of one step [columns] and the token that was chosen from them.

        Raises
        ------
        InvalidLogits, VocabularyMismatch, VocabularyError
            As `score_logits`.
        """
        rows = as_rows(logits)[None]
        vocabulary = self._answer.scorer.vocabulary
        check_shape(tuple(rows.shape), [token], vocabulary)
        self._answer.add(rows, 0, token)
        return self._answer.running()

    def finish(self, distribution: Distribution = "raw") -> ScoredResponse:
        """The score of the answer, once it is complete."""
        return self._answer.finish(distribution)


class TopLogprobsStream(_Stream[TopkAnswer]):
    """An unfinished answer scored from the k best tokens of each step, the streaming form of `score_top_logprobs`.

    It takes the vocabulary and the preset that `score_top_logprobs` takes.
    """

    _kind = staticmethod(new_answer)

    def __init__(self, vocabulary: Any = None, preset: Preset | ScoringRules = "default") -> None:
        super().__init__(vocabulary, preset)
        self._names = BorrowedNames()

    def add(self, step: Any) -> Running:
        """Add one step, in any form that `score_top_logprobs` reads.

        Raises
        ------
        InvalidInput, InvalidLogits, VocabularyMismatch, BackendError
            As `score_top_logprobs`.
        """
        [read] = self._names.without(as_top_steps([step]))
        self._answer.add(read)
        return self._answer.running()

    def finish(self, distribution: Distribution = "unknown", *, proxy_for: str | None = None) -> ScoredResponse:
        """The score of the answer, once it is complete.

        Raises
        ------
        BackendError
            All log-probabilities are zero, or names lack the blanks that tokens begin with.
        """
        return self._answer.finish(distribution, proxy_for=proxy_for)
