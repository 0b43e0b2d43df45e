"""Semantic Token Clustering: next-token logits + ids + clusters -> ScoredResponse.

At step i of an answer y the probabilities of the tokens that are consistent with y_i are summed: its embedding
cluster, its prefix set, and neutral tokens. The uncertainty is one minus the product of these sums over the
answer (Cao et al., EACL 2026, section 3).

There is one path for whole matrices, generation and streams. A row of logits is reduced as soon as its token
is known; only what may still end up in the prefix set is kept until the following tokens decide.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from semtoken._arrays import (
    FloatArray,
    IdArray,
    Rows,
    as_ids,
    as_rows,
    columns_above,
    copy_row,
    gather,
    is_tensor,
    levelled,
    log_normalizers,
    looks_like_probabilities,
    widened,
)
from semtoken.choices import FunctionWords, Preset
from semtoken.clusters import TokenClusters
from semtoken.errors import InvalidLogits, VocabularyMismatch
from semtoken.results import Alternative, Distribution, ScoredResponse, ScoredToken
from semtoken.scoring.endings import exact_ends
from semtoken.scoring.masses import (
    LEAST_LISTED,
    LISTED,
    NO_PREFIXES,
    Masses,
    PrefixSet,
    StepMass,
    StepRequest,
    masses,
    reduce_steps,
)
from semtoken.scoring.rules import ScoringRules, as_rules
from semtoken.scoring.running import LogMass, OpenStep, RunningAnswer
from semtoken.scoring.scorer import Scorer, scorer_for
from semtoken.vocabulary import Vocabulary

MAX_WAITING_ROWS = 32  # a blank token that comes while so many whole rows are kept has an empty prefix set
ROWS_AT_ONCE = 64  # rows on an accelerator whose normalisers are computed together


def score_logits(
    logits: Any,
    token_ids: Sequence[int] | Any,
    clusters: TokenClusters,
    preset: Preset | None = None,
    *,
    function_words: FunctionWords | None = None,
    clustering: bool | None = None,
    prefix_matching: bool | None = None,
    rules: ScoringRules | Preset | None = None,
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
        `paper` reproduces the published code. `default` counts what the evidence supports; see `ScoringRules`.
    function_words : {"paper", "whole-word", "off"}
        Which function words are neutral, if not those of the preset.
    clustering, prefix_matching
        Ablations, if not as in the preset. With both off the score is the sequence probability.
    rules
        Ready rules in place of these four, which have further switches.
    distribution
        What the logits are: `raw`, `processed` or `unknown`. Recorded in the result.

    Returns
    -------
    ScoredResponse
        Uncertainty in [0, 1], higher is riskier. A blank answer has uncertainty 1.

    Raises
    ------
    InvalidInput
        Rules that are not known, or given twice.
    InvalidLogits
        No rows, a wrong number of rows, or a row with NaN, +inf or no finite value (the message names the step).
    VocabularyMismatch
        Fewer columns than the vocabulary has tokens.
    VocabularyError
        An id outside the vocabulary.
    """
    chosen = as_rules(
        rules,
        preset=preset,
        function_words=function_words,
        clustering=clustering,
        prefix_matching=prefix_matching,
    )
    rows, ids = as_rows(logits), as_ids(token_ids)
    check_shape(rows, ids, clusters.vocabulary)
    answer = LogitsAnswer(scorer_for(clusters, chosen))
    on_cpu = not is_tensor(rows) or rows.device.type == "cpu"
    at_once = 1 if on_cpu else ROWS_AT_ONCE  # a single row stays in the cache
    size = clusters.vocabulary.size
    probable = True
    for first in range(0, len(ids), at_once):
        block = rows[first : first + at_once]
        if on_cpu and is_tensor(rows):
            block = widened(block)  # once, for all that looks at the row
        block, normalizers = levelled(block, log_normalizers(block, size), size)
        probable = probable and looks_like_probabilities(block, normalizers, size)
        for row in range(len(block)):
            answer.add(block, row, ids[first + row], normalizers[row])
    if probable:
        raise InvalidLogits(
            "logits look like probabilities: every row lies between 0 and 1 and sums to 1. Give the logits, or the "
            "logarithms of the probabilities."
        )
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
        self._prefixes: dict[int, PrefixSet] = {}

    def add(self, rows: Rows, row: int, token: int, log_normalizer: float) -> None:
        """Take in the next step: its row of logits, and the token that was chosen from it.

        Raises
        ------
        InvalidLogits
            The row's normaliser is not finite.
        """
        add_step([self], rows, [row], [token], np.array([log_normalizer]))

    def plan(self, token: int) -> StepRequest:
        """What is needed of the row from which `token` was chosen."""
        chosen = self.scorer.columns_of(token, self._opens(len(self.ids)))
        needs_row = not chosen.known and sum(step.row is not None for step in self._open) < MAX_WAITING_ROWS
        end = self.scorer.endings.request(self.ids[-1] if self.ids else None, token)
        return StepRequest(chosen, end, needs_row)

    def accept(self, request: StepRequest, step: StepMass, log_probs: FloatArray, row: FloatArray | None) -> None:
        """Take in the next step; see `add_step`.

        Parameters
        ----------
        request
            What `plan` said.
        step
            What the row was reduced to.
        log_probs
            Of the candidates of its prefix set.
        row
            All log-probabilities, if the request needs them.
        """
        position, candidates = len(self.ids), request.chosen.candidates
        waiting = None
        if request.chosen.decided:
            self._prefixes[position] = PrefixSet(candidates.copy(), log_probs.copy())  # no views: the rest may go
        elif row is not None or len(candidates):
            waiting = OpenRow(position, position + 2, candidates.copy(), log_probs.copy(), row)
        self._take_in(step, waiting)

    def _decide(self, step: OpenRow, head: str) -> None:
        ids = self.scorer.index.beginnings(head).copy()
        self._prefixes[step.position] = PrefixSet(ids, step.take(ids))

    def _narrowed(self, step: OpenRow, heads: Sequence[str]) -> OpenRow:
        if step.row is None:
            return step
        candidates = self.scorer.candidates(heads)
        return replace(step, candidates=candidates, log_probs=step.take(candidates), row=None)

    def _masses(self, position: int) -> Masses:
        prefixes = self._prefixes.get(position, NO_PREFIXES)
        return masses(self.scorer, self._steps[position], prefixes, neutrality=self._neutrality)

    def _mass(self, position: int) -> LogMass:
        found = log_clustered_probability(self._steps[position], self._masses(position), neutrality=self._neutrality)
        return LogMass(found, found, found)

    def truncate(self, length: int) -> None:
        """Forget the steps from `length` on: special tokens that pad a finished answer."""
        super().truncate(length)
        self._prefixes = {position: mass for position, mass in self._prefixes.items() if position < length}

    def finish(self, distribution: Distribution = "raw") -> ScoredResponse:
        """The result, once the answer is complete."""
        self._advance(complete=True)
        vocabulary = self.scorer.vocabulary
        offsets = vocabulary.offsets(self.ids)
        tokens = tuple(self._scored(position, offsets[position]) for position in range(len(self.ids)))
        blank = not vocabulary.decode(self.ids).strip()
        log_score = -math.inf if blank else math.fsum(token.log_clustered_probability for token in tokens)
        return self._response(distribution, log_score, tokens=tokens)

    def _scored(self, position: int, offsets: tuple[int, int]) -> ScoredToken:
        """The record of one step."""
        step, found = self._steps[position], self._masses(position)
        certain = self._neutrality and step.neutral
        texts = self.scorer.vocabulary.texts
        return ScoredToken(
            id=step.token,
            text=texts[step.token],
            start=offsets[0],
            end=offsets[1],
            log_probability=min(step.own, 0.0),
            log_clustered_probability=log_clustered_probability(step, found, neutrality=self._neutrality),
            log_surface_probability=found.surface,
            log_meaning_probability=found.meaning,
            neutral=certain,
            cluster_probability=min(math.exp(found.cluster), 1.0),
            prefix_probability=0.0 if certain else min(math.exp(found.prefix), 1.0),
            neutral_probability=min(math.exp(found.neutral), 1.0),
            alternatives=self._alternatives(position),
            function_word=bool(self.scorer.vocabulary.neutral[step.token]),
            value_ends=exact_ends(step.ends),
        )

    def _alternatives(self, position: int) -> tuple[Alternative, ...]:
        step = self._steps[position]
        if not step.likely:
            return ()
        prefixes = self._prefixes.get(position, NO_PREFIXES).ids
        probabilities = {token: math.exp(min(log_prob, 0.0)) for token, log_prob in step.likely}
        return self.scorer.alternatives(
            step.token, probabilities, prefixes, opening=step.opening, neutrality=self._neutrality
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that is known of the answer so far: plain values and arrays, for `from_state_dict`."""
        return self._state() | {
            "steps": [vars(step) for step in self._steps],
            "prefixes": {str(position): found._asdict() for position, found in self._prefixes.items()},
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
        answer._steps = [StepMass(**step | {"likely": tuple(map(tuple, step["likely"]))}) for step in state["steps"]]
        answer._prefixes = {int(position): PrefixSet(**found) for position, found in state["prefixes"].items()}
        answer._open = [OpenRow(**step) for step in state["open"]]
        return answer


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
    if not answers:
        return
    _check_normalizers(answers, row_ids, normalizers)
    size = answers[0].scorer.vocabulary.size
    requests = [answer.plan(token) for answer, token in zip(answers, tokens, strict=True)]
    summed, listed = _gather_log_probs(rows, row_ids, requests, normalizers)
    firsts = itertools.accumulate((request.chosen.bounds[-1] for request in requests[:-1]), initial=0)
    likely = _likely_tokens(rows, row_ids, tokens, normalizers, summed[list(firsts)].tolist(), size)
    counts = [len(request.chosen.candidates) for request in requests]
    ends = [found[count:] for found, count in zip(listed, counts, strict=True)]
    steps = reduce_steps(answers[0].scorer, requests, summed, ends, likely)
    for k, (answer, request) in enumerate(zip(answers, requests, strict=True)):
        whole = None
        if request.needs_row:
            whole = copy_row(rows, row_ids[k], size)
            whole = np.subtract(whole, normalizers[k], dtype=np.float64).astype(whole.dtype)
        answer.accept(request, steps[k], listed[k][: counts[k]], whole)


def _gather_log_probs(
    rows: Rows, row_ids: Sequence[int], requests: Sequence[StepRequest], normalizers: FloatArray
) -> tuple[FloatArray, list[FloatArray]]:
    """Log-probabilities of the columns to be summed, of all rows in turn, and of those listed, with one transfer."""
    summed = [request.chosen.summed for request in requests]
    listed = [request.listed for request in requests]
    lengths = [len(columns) for columns in (*summed, *listed)]
    of_rows = np.repeat(np.concatenate([row_ids, row_ids]).astype(np.int64), lengths)
    values = gather(rows, of_rows, np.concatenate([*summed, *listed]))
    values -= np.repeat(np.concatenate([normalizers, normalizers]), lengths)
    places = list(itertools.accumulate(lengths[len(summed) :], initial=sum(lengths[: len(summed)])))
    return values[: places[0]], [values[first:last] for first, last in itertools.pairwise(places)]


def _check_normalizers(answers: Sequence[LogitsAnswer], row_ids: Sequence[int], normalizers: FloatArray) -> None:
    """Raise for a row that holds no distribution."""
    for answer, row, normalizer in zip(answers, row_ids, normalizers, strict=True):
        if not math.isfinite(normalizer):
            where = f"Sequence {row} of the batch: " if len(answers) > 1 else ""
            raise InvalidLogits(
                f"{where}The logits of step {len(answer.ids)} hold NaN or +inf, or not one finite value: "
                "there is no distribution to score."
            )


def _likely_tokens(
    rows: Rows, row_ids: Sequence[int], tokens: Sequence[int], normalizers: FloatArray, own: Sequence[float], size: int
) -> list[tuple[tuple[int, float], ...]]:
    """Of each row the most probable tokens but the chosen one, with their log-probabilities."""
    found: list[tuple[tuple[int, float], ...]] = [()] * len(row_ids)
    # Where the chosen token has all but 1 %, no other has so much: most rows of most answers need no look.
    unsure = [k for k, log_prob in enumerate(own) if not log_prob > math.log1p(-LEAST_LISTED)]
    least = [float(normalizers[k]) + math.log(LEAST_LISTED) for k in unsure]
    above = columns_above(rows, [row_ids[k] for k in unsure], size, least, LISTED + 1) if unsure else []
    for k, (columns, values) in zip(unsure, above, strict=True):
        if not len(columns):
            continue
        pairs = zip(columns.tolist(), (values - normalizers[k]).tolist(), strict=True)
        others = sorted((pair for pair in pairs if pair[0] != tokens[k]), key=lambda pair: (-pair[1], pair[0]))
        found[k] = tuple(others[:LISTED])
    return found


def log_clustered_probability(step: StepMass, found: Masses, *, neutrality: bool) -> float:
    """Log of the mass that counts as agreeing with a step's token, <= 0; 0 for a neutral one if neutrality counts."""
    if neutrality and step.neutral:
        return 0.0
    return min(float(np.logaddexp(np.logaddexp(found.cluster, found.prefix), found.neutral)), 0.0)
