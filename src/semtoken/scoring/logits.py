"""Semantic Token Clustering: next-token logits + ids + clusters -> ScoredResponse.

At step i of an answer y the probabilities of the tokens that are consistent with y_i are summed: its embedding
cluster, its prefix set, and neutral tokens. The uncertainty is one minus the product of these sums over the
answer (Cao et al., EACL 2026, section 3).

There is one path for whole matrices, generation and streams. A row of logits is reduced as soon as its token
is known; only what may still end up in the prefix set is kept until the following tokens decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from semtoken._arrays import FloatArray, IdArray, Rows, as_ids, as_rows, copy_row, gather, log_normalizers
from semtoken.clusters import TokenClusters
from semtoken.errors import InvalidLogits, VocabularyMismatch
from semtoken.results import Alternative, Distribution, ScoredResponse, ScoredToken
from semtoken.scoring.masses import (
    NO_PREFIXES,
    Candidate,
    PrefixMass,
    StepMass,
    StepRequest,
    consistent_mass,
    reduce_prefixes,
    reduce_step,
    strongest_candidates,
)
from semtoken.scoring.prefixes import NO_IDS
from semtoken.scoring.rules import FunctionWords, Preset, ScoringRules
from semtoken.scoring.running import LogMass, OpenStep, RunningAnswer
from semtoken.scoring.scorer import Scorer, scorer_for
from semtoken.vocabulary import Vocabulary

MAX_WAITING_ROWS = 32  # a blank token that comes while so many whole rows are kept has an empty prefix set
ROWS_AT_ONCE = 64  # rows of a matrix reduced together


def score_logits(
    logits: Any,
    token_ids: Sequence[int] | Any,
    clusters: TokenClusters,
    preset: Preset = "default",
    *,
    function_words: FunctionWords = "paper",
    clustering: bool = True,
    prefix_matching: bool = True,
    distribution: Distribution = "raw",
) -> ScoredResponse:
    """Score one answer from the logits of every step.

    Parameters
    ----------
    logits : array or tensor of shape (n, columns)
        Row i is the model's output before token i was chosen, before the softmax (log-probabilities will do).
        Columns beyond the vocabulary (a padded lm_head) are ignored. -inf is legal. Accumulated in float32
        whatever the dtype.
    token_ids : n ids
        The answer, its terminator included.
    clusters
        Clusters of the tokenizer that made the ids.
    preset : {"default", "paper"}
        `paper` reproduces the published code. `default` differs in one case: an answer without a content token
        ("No", "the same") is scored without neutrality instead of being called certain.
    function_words : {"paper", "whole-word", "off"}
        Which function words are neutral; see `ScoringRules`.
    clustering, prefix_matching
        Ablations. With both off the score is the sequence probability.
    distribution
        What the logits are: `raw`, `processed` or `unknown`. Recorded in the result.

    Returns
    -------
    ScoredResponse
        Uncertainty in [0, 1], higher is riskier. A blank answer has uncertainty 1.

    Raises
    ------
    InvalidLogits
        No rows, a wrong number of rows, or a row with NaN, +inf or no finite value (the message names the step).
    VocabularyMismatch
        Fewer columns than the vocabulary has tokens.
    VocabularyError
        An id outside the vocabulary.
    """
    rules = ScoringRules(preset, function_words, clustering, prefix_matching)
    rows, ids = as_rows(logits), as_ids(token_ids)
    check_shape(rows, ids, clusters.vocabulary)
    answer = LogitsAnswer(scorer_for(clusters, rules))
    for first in range(0, len(ids), ROWS_AT_ONCE):
        block = rows[first : first + ROWS_AT_ONCE]
        normalizers = log_normalizers(block, clusters.vocabulary.size)
        for row in range(len(block)):
            answer.add(block, row, ids[first + row], normalizers[row])
    return answer.finish(distribution)


def check_shape(rows: Rows, ids: Sequence[int], vocabulary: Vocabulary) -> None:
    """Raise if logits and ids cannot belong to one answer of this vocabulary."""
    shape = tuple(rows.shape)
    if len(shape) != 2 or shape[0] != len(ids) or not ids:
        raise InvalidLogits(
            f"logits must have shape (n, V) with one row for each of the n >= 1 token ids. "
            f"Got shape {shape} and {len(ids)} ids instead."
        )
    if shape[1] < vocabulary.size:
        raise VocabularyMismatch(
            f"The logits have {shape[1]:,} columns, the vocabulary of the clusters has {vocabulary.size:,} tokens: "
            "these clusters belong to another model. Make matching ones with `semtoken cluster MODEL`."
        )
    vocabulary.check_ids(ids)


@dataclass(frozen=True, eq=False)
class OpenRow(OpenStep):
    """A step whose prefix set depends on tokens to come, and the log-probabilities that may then be asked for."""

    candidates: IdArray
    log_probs: FloatArray
    row: FloatArray | None
    """All log-probabilities, as long as nothing is known of the text to come."""

    def take(self, ids: IdArray) -> FloatArray:
        """Log-probabilities of some candidates."""
        if self.row is not None:
            return self.row[ids].astype(np.float64)
        return self.log_probs[np.searchsorted(self.candidates, ids)]


class LogitsAnswer(RunningAnswer[StepMass, OpenRow]):
    """One answer in progress whose logits are known: of each row a few numbers are kept once its token is known."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__(scorer)
        self._prefixes: dict[int, PrefixMass] = {}

    def add(self, rows: Rows, row: int, token: int, log_normalizer: float) -> None:
        """Take in the next step: its row of logits, and the token that was chosen from it.

        Raises
        ------
        InvalidLogits
            The row's normaliser is not finite.
        """
        request = self.plan(token)
        columns = request.columns
        values = gather(rows, np.full(len(columns), row), columns)
        whole = copy_row(rows, row, self.scorer.vocabulary.size) if request.needs_row else None
        self.accept(request, values, log_normalizer, whole)

    def plan(self, token: int) -> StepRequest:
        """What is needed of the row from which `token` was chosen."""
        opening = self._opens(len(self.ids))
        candidates, needs_row = NO_IDS, False
        if self._may_need_prefixes(neutral=bool(self.scorer.neutral_mask(opening)[token])):
            heads = self.scorer.index.heads([token], complete=False)
            if all(heads):
                candidates = self.scorer.candidates(heads)
            else:  # a blank, or a piece of a character: anything may follow
                needs_row = sum(step.row is not None for step in self._open) < MAX_WAITING_ROWS
        return self.scorer.request(token, candidates, opening=opening, needs_row=needs_row)

    def accept(self, request: StepRequest, values: FloatArray, log_normalizer: float, row: FloatArray | None) -> None:
        """Take in the next step from the columns that `plan` asked for; see `add`."""
        position = len(self.ids)
        if not math.isfinite(log_normalizer):
            raise InvalidLogits(
                f"The logits of step {position} hold NaN or +inf, or not one finite value: "
                "there is no distribution to score."
            )
        log_probs = values - log_normalizer
        waiting = None
        if request.needs_row or len(request.candidates):
            tail = log_probs[len(log_probs) - len(request.candidates) :]
            whole = None if row is None else row - np.asarray(log_normalizer, dtype=row.dtype)
            waiting = OpenRow(position, position + 2, request.candidates, tail, whole)
        self._take_in(reduce_step(request, log_probs), waiting)

    def _decide(self, step: OpenRow, head: str) -> None:
        token = self._steps[step.position].token
        ids = np.sort(self.scorer.index.beginnings(head))
        ids = ids[~self.scorer.in_cluster(token, ids)]
        neutral = self.scorer.neutral_mask(self._opens(step.position))[ids]
        self._prefixes[step.position] = reduce_prefixes(ids, step.take(ids), neutral)

    def _narrowed(self, step: OpenRow, heads: Sequence[str]) -> OpenRow:
        if step.row is None:
            return step
        candidates = self.scorer.candidates(heads)
        return replace(step, candidates=candidates, log_probs=step.take(candidates), row=None)

    def _is_decided(self, position: int) -> bool:
        return all(step.position != position for step in self._open)

    def _mass(self, position: int) -> LogMass:
        prefixes = self._prefixes.get(position, NO_PREFIXES)
        found = log_clustered_probability(self._steps[position], prefixes, neutrality=self._neutrality)
        return LogMass(found, found, found)

    def truncate(self, length: int) -> None:
        """Forget the steps from `length` on: special tokens that pad a finished answer."""
        super().truncate(length)
        self._prefixes = {position: mass for position, mass in self._prefixes.items() if position < length}

    def finish(self, distribution: Distribution = "raw") -> ScoredResponse:
        """The result, once the answer is complete."""
        self._advance(complete=True)
        vocabulary = self.scorer.vocabulary
        neutrality = self._neutrality
        offsets = vocabulary.offsets(self.ids)
        tokens = tuple(
            scored_token(vocabulary, step, self._prefixes.get(i, NO_PREFIXES), offsets[i], neutrality=neutrality)
            for i, step in enumerate(self._steps)
        )
        blank = not vocabulary.decode(self.ids).strip()
        log_score = -math.inf if blank else math.fsum(token.log_clustered_probability for token in tokens)
        return self._response(distribution, log_score, tokens=tokens)

    def state_dict(self) -> dict[str, Any]:
        """Everything that is known of the answer so far: plain values and arrays, for `from_state_dict`."""
        return self._state() | {
            "steps": [asdict(step) for step in self._steps],
            "prefixes": {str(position): asdict(mass) for position, mass in self._prefixes.items()},
            "open": [vars(step) for step in self._open],
        }

    @classmethod
    def from_state_dict(cls, scorer: Scorer, state: Mapping[str, Any]) -> LogitsAnswer:
        """The answer that `state_dict` saved; the scorer must have the same clusters and rules.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is no such state.
        VocabularyError
            An id outside the vocabulary.
        """
        answer = cls._from_state(scorer, state)
        answer._steps = [StepMass(**step | {"strongest": _candidates(step)}) for step in state["steps"]]
        answer._prefixes = {
            int(position): PrefixMass(**mass | {"strongest": _candidates(mass)})
            for position, mass in state["prefixes"].items()
        }
        answer._open = [OpenRow(**step) for step in state["open"]]
        return answer


def _candidates(mass: Mapping[str, Any]) -> tuple[Candidate, ...]:
    return tuple(Candidate(*candidate) for candidate in mass["strongest"])


def add_step(
    answers: Sequence[LogitsAnswer], rows: Rows, row_ids: Sequence[int], tokens: Sequence[int], normalizers: FloatArray
) -> None:
    """Take in the next step of several answers, with one transfer from the device of the rows.

    Parameters
    ----------
    answers
        Those that go on.
    rows
        Logits of shape [n, columns].
    row_ids, tokens
        The row of each answer, and the token that was chosen from it.
    normalizers
        Log normaliser of each answer's row.

    Raises
    ------
    InvalidLogits
        A row's normaliser is not finite; the message names the answer by its row.
    """
    requests = [answer.plan(token) for answer, token in zip(answers, tokens, strict=True)]
    if not requests:
        return
    columns = [request.columns for request in requests]
    lengths = [len(c) for c in columns]
    values = gather(rows, np.repeat(np.asarray(row_ids), lengths), np.concatenate(columns))
    parts = np.split(values, np.cumsum(lengths)[:-1])
    for answer, request, row, taken, normalizer in zip(answers, requests, row_ids, parts, normalizers, strict=True):
        whole = copy_row(rows, row, answer.scorer.vocabulary.size) if request.needs_row else None
        try:
            answer.accept(request, taken, float(normalizer), whole)
        except InvalidLogits as error:
            raise InvalidLogits(f"Sequence {row} of the batch: {error}") from error


def log_clustered_probability(step: StepMass, prefixes: PrefixMass, *, neutrality: bool) -> float:
    """Log of the mass consistent with a step's token, <= 0; 0 for a neutral token where neutrality counts."""
    if neutrality and step.neutral:
        return 0.0
    cluster, prefix, neutral = consistent_mass(step, prefixes, neutrality=neutrality)
    return min(float(np.logaddexp(np.logaddexp(cluster, prefix), neutral)), 0.0)


def scored_token(
    vocabulary: Vocabulary, step: StepMass, prefixes: PrefixMass, offsets: tuple[int, int], *, neutrality: bool
) -> ScoredToken:
    """The record of one step, neutral tokens counted as consistent or not."""
    cluster, prefix, neutral = consistent_mass(step, prefixes, neutrality=neutrality)
    alternatives = strongest_candidates(step, prefixes, neutrality=neutrality)
    return ScoredToken(
        id=step.token,
        text=vocabulary.texts[step.token],
        start=offsets[0],
        end=offsets[1],
        log_probability=min(step.own, 0.0),
        log_clustered_probability=log_clustered_probability(step, prefixes, neutrality=neutrality),
        neutral=neutrality and step.neutral,
        cluster_probability=min(math.exp(cluster), 1.0),
        prefix_probability=min(math.exp(prefix), 1.0),
        neutral_probability=min(math.exp(neutral), 1.0),
        alternatives=tuple(
            Alternative(c.id, vocabulary.texts[c.id], math.exp(min(c.log_probability, 0.0)), c.source)
            for c in alternatives
        ),
    )
