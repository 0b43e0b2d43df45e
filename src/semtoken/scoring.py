"""Semantic Token Clustering: next-token logits + ids + clusters -> ScoredResponse.

At step i of an answer y the probabilities of the tokens that are consistent with y_i are summed: its embedding
cluster, its prefix set, and neutral tokens. The uncertainty is one minus the product of these sums over the
answer (Cao et al., EACL 2026, section 3).

There is one path for whole matrices, generation and streams. A row of logits is reduced as soon as its token
is known; only what may still end up in the prefix set is kept until the following tokens decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from semtoken._arrays import FloatArray, IdArray, Rows, as_ids, as_rows, copy_row, gather, log_normalizers
from semtoken.clusters import TokenClusters
from semtoken.errors import InvalidLogits, VocabularyMismatch
from semtoken.prefixes import NO_IDS, PrefixIndex, next_look
from semtoken.results import Alternative, Distribution, Running, ScoredResponse, ScoredToken
from semtoken.rules import FunctionWords, Preset, ScoringRules
from semtoken.steps import (
    NO_PREFIXES,
    PrefixMass,
    StepMass,
    StepRequest,
    consistent_mass,
    reduce_prefixes,
    reduce_step,
    strongest_candidates,
)
from semtoken.vocabulary import BoolArray, Vocabulary

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
    answer = AnswerScorer(scorer_for(clusters, rules))
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


@lru_cache(maxsize=16)
def scorer_for(clusters: TokenClusters, rules: ScoringRules) -> Scorer:
    """The (cached) scorer of some clusters and rules."""
    return Scorer(clusters, rules, prefix_index(clusters.vocabulary))


@lru_cache(maxsize=4)
def prefix_index(vocabulary: Vocabulary) -> PrefixIndex:
    """The (cached) prefix index of a vocabulary."""
    return PrefixIndex(vocabulary)


class Scorer:
    """Clusters and rules, prepared for scoring; shared by all answers."""

    def __init__(self, clusters: TokenClusters, rules: ScoringRules, index: PrefixIndex) -> None:
        self.clusters = clusters
        self.vocabulary = clusters.vocabulary
        self.rules = rules
        self.index = index
        self._neutral_masks = rules.neutral_masks(clusters.vocabulary)
        self._neutral_ids = tuple(np.flatnonzero(mask) for mask in self._neutral_masks)
        self.signature = f"{clusters.signature}|{rules.signature}"

    def request(self, token: int, candidates: IdArray, *, opening: bool, needs_row: bool) -> StepRequest:
        """What is needed of the row from which `token` was chosen."""
        mask = self.neutral_mask(opening)
        members = self.cluster_of(token)
        members = members[members != token]
        neutral = mask[members]
        return StepRequest(
            token=token,
            neutral=bool(mask[token]),
            cluster=members[~neutral],
            cluster_neutral=members[neutral],
            neutrals=self._neutral_ids[0 if opening else 1],
            candidates=candidates,
            needs_row=needs_row,
        )

    def neutral_mask(self, opening: bool) -> BoolArray:
        """Which tokens are neutral at a step that opens the answer, or at a later one (bool [V])."""
        return self._neutral_masks[0 if opening else 1]

    def n_neutral(self, opening: bool) -> int:
        """How many tokens are neutral there."""
        return len(self._neutral_ids[0 if opening else 1])

    def cluster_of(self, token: int) -> IdArray:
        """T^e: the ids that share the token's label; a numeral (or any token without clustering) has itself only."""
        if not self.rules.clustering or self.vocabulary.numeral[token]:
            return np.array([token], dtype=np.int64)
        return self.clusters.cluster_ids(token)

    def in_cluster(self, token: int, ids: IdArray) -> BoolArray:
        """Which of `ids` are in the cluster of `token`."""
        if not self.rules.clustering or self.vocabulary.numeral[token]:
            return np.asarray(ids == token)
        return np.asarray(self.clusters.labels[ids] == self.clusters.labels[token])

    def candidates(self, heads: Sequence[str]) -> IdArray:
        """Ascending ids, some of them twice, of the tokens that may be in a prefix set that begins with a head."""
        found = [ids for head in heads for ids in (self.index.beginnings(head), self.index.continuations(head))]
        return np.sort(np.concatenate(found))


@dataclass(eq=False)
class OpenStep:
    """A step whose prefix set depends on tokens to come."""

    position: int
    candidates: IdArray
    log_probs: FloatArray
    row: FloatArray | None
    """All log-probabilities, as long as nothing is known of the text to come."""
    look_again: int
    """Tokens of the answer at which the text to come is looked at again: ever less often, once the row is gone."""

    def take(self, ids: IdArray) -> FloatArray:
        """Log-probabilities of some candidates."""
        if self.row is not None:
            return self.row[ids].astype(np.float64)
        return self.log_probs[np.searchsorted(self.candidates, ids)]


class AnswerScorer:
    """One answer in progress: rows go in as their tokens become known, a few numbers a step are kept."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.ids: list[int] = []
        self._steps: list[StepMass] = []
        self._prefixes: dict[int, PrefixMass] = {}
        self._open: list[OpenStep] = []
        self._leading_blanks = 0
        self._has_content = False
        self._settled: list[float] = []  # log clustered probabilities of the first steps, once nothing can change them

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

    def _opens(self, position: int) -> bool:
        """Whether nothing but blanks comes before a position."""
        return position <= self._leading_blanks

    def _may_need_prefixes(self, *, neutral: bool) -> bool:
        """Whether a prefix set can matter; that of a neutral token only if the whole answer turns out neutral."""
        if not self.scorer.rules.prefix_matching:
            return False
        return not neutral or (self.scorer.rules.preset == "default" and not self._has_content)

    def accept(self, request: StepRequest, values: FloatArray, log_normalizer: float, row: FloatArray | None) -> None:
        """Take in the next step from the columns that `plan` asked for; see `add`."""
        position = len(self.ids)
        if not math.isfinite(log_normalizer):
            raise InvalidLogits(
                f"The logits of step {position} hold NaN or +inf, or not one finite value: "
                "there is no distribution to score."
            )
        log_probs = values - log_normalizer
        blank = bool(self.scorer.vocabulary.blank[request.token])
        self._leading_blanks += blank and self._opens(position)
        self._has_content = self._has_content or not request.neutral
        self.ids.append(request.token)
        self._steps.append(reduce_step(request, log_probs))
        if request.needs_row or len(request.candidates):
            tail = log_probs[len(log_probs) - len(request.candidates) :]
            whole = None if row is None else row - np.asarray(log_normalizer, dtype=row.dtype)
            self._open.append(OpenStep(position, request.candidates, tail, whole, look_again=position + 2))
        self._advance(complete=False)

    def _advance(self, *, complete: bool) -> None:
        """Decide every prefix set that the tokens so far can decide."""
        waiting: list[OpenStep] = []
        for step in self._open:
            if not self._may_need_prefixes(neutral=self._steps[step.position].neutral):
                continue
            if len(self.ids) < step.look_again and not complete:
                waiting.append(step)
                continue
            heads = self.scorer.index.heads(self.ids[step.position :], complete=complete)
            if self.scorer.index.is_decided(heads, complete=complete):
                self._prefixes[step.position] = self._prefix_mass(step, heads[0])
            else:
                waiting.append(self._narrowed(step, heads))
        self._open = waiting

    def _prefix_mass(self, step: OpenStep, head: str) -> PrefixMass:
        token = self._steps[step.position].token
        ids = np.sort(self.scorer.index.beginnings(head))
        ids = ids[~self.scorer.in_cluster(token, ids)]
        neutral = self.scorer.neutral_mask(self._opens(step.position))[ids]
        return reduce_prefixes(ids, step.take(ids), neutral)

    def _narrowed(self, step: OpenStep, heads: Sequence[str]) -> OpenStep:
        """The same step, to be looked at later; without the whole row once something is known of the text to come."""
        if not all(heads):
            return step
        later = step.position + next_look(len(self.ids) - step.position)
        if step.row is None:
            return replace(step, look_again=later)
        candidates = self.scorer.candidates(heads)
        return OpenStep(step.position, candidates, step.take(candidates), None, later)

    def truncate(self, length: int) -> None:
        """Forget the steps from `length` on: special tokens that pad a finished answer."""
        del self.ids[length:], self._steps[length:]
        self._open = [step for step in self._open if step.position < length]
        self._settled = []
        self._leading_blanks = min(self._leading_blanks, length)
        self._has_content = not all(step.neutral for step in self._steps)

    @property
    def _neutrality(self) -> bool:
        """Whether neutral tokens count as consistent, if the answer ends here."""
        return self._has_content or self.scorer.rules.preset == "paper"

    def running(self) -> Running:
        """What is known so far. Before the first content token nothing is settled under the preset `default`."""
        neutrality = self._neutrality
        first_open = self._open[0].position if self._open else len(self.ids)
        for position in range(len(self._settled), first_open if neutrality else 0):
            prefixes = self._prefixes.get(position, NO_PREFIXES)
            self._settled.append(log_clustered_probability(self._steps[position], prefixes, neutrality=True))
        later = range(len(self._settled), len(self.ids))
        known = math.fsum(self._settled)
        least = math.fsum(
            log_clustered_probability(self._steps[i], self._prefixes.get(i, NO_PREFIXES), neutrality=neutrality)
            for i in later
        )
        return Running(
            uncertainty=-math.expm1(known) + 0.0,
            uncertainty_bounds=(-math.expm1(known) + 0.0, -math.expm1(known + least) + 0.0),
            n_settled=len(self._settled),
            n_tokens=len(self.ids),
        )

    def finish(self, distribution: Distribution = "raw") -> ScoredResponse:
        """The result, once the answer is complete."""
        self._advance(complete=True)
        vocabulary = self.scorer.vocabulary
        neutrality = self._neutrality
        text = vocabulary.decode(self.ids)
        offsets = vocabulary.offsets(self.ids)
        tokens = tuple(
            scored_token(vocabulary, step, self._prefixes.get(i, NO_PREFIXES), offsets[i], neutrality=neutrality)
            for i, step in enumerate(self._steps)
        )
        blank = not text.strip()
        log_score = -math.inf if blank else math.fsum(token.log_clustered_probability for token in tokens)
        return ScoredResponse(
            text=text,
            tokens=tokens,
            log_score=log_score,
            preset=self.scorer.rules.preset,
            distribution=distribution,
            neutral_only=not self._has_content and not blank,
            signature=self.scorer.signature,
        )


def add_step(
    answers: Sequence[AnswerScorer], rows: Rows, row_ids: Sequence[int], tokens: Sequence[int], normalizers: FloatArray
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
