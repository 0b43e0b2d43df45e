"""Semantic Token Clustering: next-token logits + ids + clusters -> ScoredResponse.

At step i of an answer y the probabilities of the tokens that are consistent with y_i are summed: its embedding
cluster, its prefix set, and neutral tokens. The uncertainty is one minus the product of these sums over the
answer (Cao et al., EACL 2026, section 3).

There is one path for whole matrices, generation and streams. A row of logits is reduced as soon as its token
is known; only what may still end up in the prefix set is kept until the following tokens decide.

Answers that are written together: what a step costs in Python does not depend on how many they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, get_args

import numpy as np

from semtoken.choices import Preset
from semtoken.errors import InvalidLogits, VocabularyMismatch
from semtoken.results import Alternative, Distribution, Running, ScoredResponse, ScoredToken, ValueEnds
from semtoken.scoring.prefixes import NO_IDS
from semtoken.scoring.rows import LISTED, NormalizedRows, WholeRow, normalized_rows
from semtoken.scoring.running import LogMass, OpenStep, RunningAnswer
from semtoken.scoring.scorer import Scorer, Tokens, as_tokens, scorer_for
from semtoken.scoring.steps import KeptSteps, PrefixSet, PrefixSets, ReducedSteps, joined, masses, reduce_rows
from semtoken.support.arrays import (
    BoolArray,
    FloatArray,
    IdArray,
    Rows,
    as_ids,
    as_rows,
    is_tensor,
    looks_like_probabilities,
)
from semtoken.support.inputs import one_of
from semtoken.tokens.rules import ScoringRules, as_rules
from semtoken.tokens.vocabulary import Vocabulary

MAX_WAITING_ROWS = 32  # a blank token that comes while so many whole rows are kept has an empty prefix set
ROWS_ON_DEVICE = 64  # rows on an accelerator that are read together
ROWS_AT_ONCE = 16  # rows on the CPU: no more than stay in its cache


def score_logits(
    logits: Any,
    token_ids: Sequence[int] | Any,
    vocabulary: Tokens,
    preset: Preset | ScoringRules = "default",
    *,
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
    vocabulary
        That of the tokenizer that made the ids. The preset `paper` needs `TokenClusters`, which hold theirs; given
        under other rules, they ask for `uncertainty_under("meaning")` beside the score.
    preset
        What counts as agreeing: `default` (what the evidence supports), `paper` (the published code), or ready rules
        (`ScoringRules`), which have further switches.
    distribution
        What the logits are: `raw`, `processed` or `unknown`. Recorded in the result.

    Returns
    -------
    ScoredResponse
        Uncertainty in [0, 1], higher is riskier. A blank answer has uncertainty 1.

    Raises
    ------
    InvalidInput
        A preset or a distribution that is not known, or rules that count clusters where there are none.
    InvalidLogits
        No rows, a wrong number of rows, a row with NaN, +inf or no finite value (the message names the step), or rows
        that are all probabilities instead of logits.
    VocabularyMismatch
        Fewer columns than the vocabulary has tokens.
    VocabularyError
        An id outside the vocabulary.
    """
    rules = as_rules(preset)
    one_of("distribution", distribution, get_args(Distribution))
    scorer = scorer_for(as_tokens(vocabulary, clustering=rules.clustering), rules)
    rows, ids = as_rows(logits), as_ids(token_ids)
    check_shape(tuple(rows.shape), ids, scorer.vocabulary)
    answer = LogitsAnswer(scorer)
    size, probable = scorer.vocabulary.size, True
    at_once = ROWS_ON_DEVICE if is_tensor(rows) and rows.device.type != "cpu" else ROWS_AT_ONCE
    for first in range(0, len(ids), at_once):
        block = normalized_rows(rows[first : first + at_once], size)
        probable = probable and looks_like_probabilities(block.logits, block.log_normalizers, size)
        answer.extend(block, ids[first : first + at_once])
    if probable:
        raise InvalidLogits(
            "logits look like probabilities: every row lies between 0 and 1 and sums to 1. Give the logits, or the "
            "logarithms of the probabilities."
        )
    return answer.finish(distribution)


def check_shape(shape: tuple[int, ...], ids: Sequence[int], vocabulary: Vocabulary) -> None:
    """Check that logits of this shape and these ids can belong to one answer of this vocabulary.

    `InvalidLogits`, `VocabularyMismatch`, `VocabularyError` or `InvalidInput` if they cannot.
    """
    if len(shape) != 2 or shape[0] != len(ids) or not ids:
        raise InvalidLogits(
            f"logits must have shape (n, V) with one row for each of the n >= 1 token ids. "
            f"Got shape {shape} and {len(ids)} ids instead."
        )
    if shape[1] < vocabulary.size:
        raise VocabularyMismatch(
            f"The logits have {shape[1]:,} columns, the vocabulary has {vocabulary.size:,} tokens. "
            "It belongs to another model."
        )
    vocabulary.check_ids(ids)


@dataclass(frozen=True, eq=False)
class OpenRow(OpenStep):
    """A step whose prefix set depends on later tokens, with the log-probabilities that may then be needed."""

    candidates: IdArray
    log_probs: FloatArray
    row: WholeRow | None
    """All log-probabilities, as long as nothing is known of the text to come."""

    def take(self, ids: IdArray) -> FloatArray:
        """Log-probabilities of some candidates, from the row of logits that was kept."""
        if self.row is not None:
            return self.row.log_probs(ids)
        return self.log_probs[np.searchsorted(self.candidates, ids)]


class LogitsAnswer(RunningAnswer[OpenRow]):
    """An unfinished answer scored from all logits; a few numbers of each row are kept once its token is known."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__(scorer)
        self._steps = KeptSteps()
        """With the log-probabilities of the prefix sets that nothing can change."""
        self._prefixes: dict[int, PrefixSet] = {}
        """The prefix sets of other steps that are decided."""

    def add(self, rows: Rows, row: int, token: int) -> None:
        """Add the next step: its row of logits, and the token that was chosen from it."""
        self.extend(normalized_rows(rows, self.scorer.vocabulary.size, [row]), [token])

    def extend(self, rows: NormalizedRows, tokens: Sequence[int]) -> None:
        """Add the next steps, one for each of some rows of logits; `InvalidLogits` if a row holds no distribution."""
        check_normalizers(rows.log_normalizers, range(len(self.ids), len(self.ids) + len(tokens)))
        chosen = np.array(tokens, dtype=np.int64)
        before = np.array([*(self.ids[-1:] or [-1]), *tokens[:-1]], dtype=np.int64)
        blank = self.scorer.vocabulary.blank[before] | (before < 0)
        opening = np.logical_and.accumulate(blank) & self.opens
        self.take_in(*reduce_rows(self.scorer, rows, np.arange(len(tokens)), chosen, before, opening))

    def take_in(self, steps: ReducedSteps, rows: Mapping[int, WholeRow]) -> None:
        """Add reduced steps, with copies of some rows by the places of their steps, as `reduce_rows` gives them."""
        first, tables = len(self.ids), self.scorer.tables
        undecided = ~tables.decided[steps.tokens]
        places = np.cumsum(steps.counts)
        waiting = []
        for k in np.flatnonzero(undecided).tolist():
            low, high = tables.candidates_of[steps.tokens[k]]
            candidates = tables.candidates[low:high]
            log_probs = steps.candidates[places[k] - steps.counts[k] : places[k]]
            look_again = first + k + (1 if k in rows else 2)  # what tells by itself is known up to the next token
            waiting.append(OpenRow(first + k, look_again, candidates.copy(), log_probs.copy(), rows.get(k)))
        self._take_in(steps.tokens.tolist(), steps.neutral.tolist(), waiting)
        self._steps.add(steps.without_candidates(undecided) if waiting else steps)
        self.advance()
        kept = [step.position for step in self._open if step.row is not None][:MAX_WAITING_ROWS]
        self._open = [
            step for step in self._open if step.position in kept or (step.row is None and len(step.candidates))
        ]

    def _decide(self, step: OpenRow, head: str) -> None:
        ids = self.scorer.index.beginnings(head).copy()
        self._prefixes[step.position] = PrefixSet(ids, step.take(ids))

    def _narrowed(self, step: OpenRow, heads: Sequence[str]) -> OpenRow:
        if step.row is None:
            return step
        candidates = self.scorer.candidates(heads)
        return replace(step, candidates=candidates, log_probs=step.take(candidates), row=None)

    def _masses_at(self, positions: range) -> list[LogMass]:
        return _agreeing([self], [positions])[1]

    def truncate(self, length: int) -> None:
        """Forget all steps from `length` on, which are special tokens that pad a finished answer."""
        del self.ids[length:], self._neutral[length:]
        self._open = [step for step in self._open if step.position < length]
        self._n_settled, self._settled = 0, LogMass(0.0, 0.0, 0.0)
        self._leading_blanks = min(self._leading_blanks, length)
        self._has_content = not all(self._neutral)
        self._steps.truncate(length)
        self._prefixes = {position: mass for position, mass in self._prefixes.items() if position < length}

    def finish(self, distribution: Distribution = "raw") -> ScoredResponse:
        """The scored answer, once all steps have been added."""
        return finish_answers([self], distribution)[0]

    def state_dict(self) -> dict[str, Any]:
        """The state of the answer as plain values and arrays, for `from_state_dict`."""
        return {
            "ids": list(self.ids),
            "leading_blanks": int(self._leading_blanks),
            "has_content": bool(self._has_content),
            "steps": self._steps.state_dict(),
            "prefixes": {str(position): prefix_set._asdict() for position, prefix_set in self._prefixes.items()},
            "open": [vars(step) | {"row": step.row and vars(step.row)} for step in self._open],
        }

    @classmethod
    def from_state_dict(cls, scorer: Scorer, state: Mapping[str, Any]) -> LogitsAnswer:
        """The answer that `state_dict` saved; the scorer must have the same clusters and rules.

        `KeyError`, `TypeError`, `ValueError` or `VocabularyError` if `state` is not what it returns.
        """
        answer = cls(scorer)
        answer.ids = [int(token) for token in state["ids"]]
        scorer.vocabulary.check_ids(answer.ids)
        answer._leading_blanks = int(state["leading_blanks"])
        answer._has_content = bool(state["has_content"])
        answer._steps = KeptSteps.from_state_dict(scorer, answer.ids, state["steps"])
        answer._neutral = answer._steps.part(0, len(answer.ids)).neutral.tolist()
        answer._prefixes = {
            int(position): PrefixSet(**prefix_set) for position, prefix_set in state["prefixes"].items()
        }
        answer._open = [OpenRow(**step | {"row": step["row"] and WholeRow(**step["row"])}) for step in state["open"]]
        return answer


class LogitsStream:
    """An unfinished answer scored from all logits, the streaming form of `score_logits`.

    It takes the vocabulary and the preset that `score_logits` takes, and raises what that raises.
    """

    def __init__(self, vocabulary: Any, preset: Preset | ScoringRules = "default") -> None:
        rules = as_rules(preset)
        self._answer = LogitsAnswer(scorer_for(as_tokens(vocabulary, clustering=rules.clustering), rules))

    def add(self, logits: Any, token: int) -> Running:
        """Add the logits of one step [columns] and the token that was chosen from them."""
        rows = as_rows(logits)[None]
        vocabulary = self._answer.scorer.vocabulary
        check_shape(tuple(rows.shape), [token], vocabulary)
        self._answer.add(rows, 0, token)
        return self._answer.running()

    def finish(self, distribution: Distribution = "raw") -> ScoredResponse:
        """The score of the answer, once it is complete."""
        return self._answer.finish(distribution)


def running_answers(answers: Sequence[LogitsAnswer]) -> list[Running]:
    """The running scores of answers with the same scorer, computed together to save time."""
    if not answers:
        return []
    bounds, new = _agreeing(answers, [answer._unsettled() for answer in answers])
    return [
        answer._running_with(new[low:high])
        for answer, (low, high) in zip(answers, itertools.pairwise(bounds), strict=True)
    ]


def _agreeing(answers: Sequence[LogitsAnswer], spans: Sequence[range]) -> tuple[list[int], list[LogMass]]:
    """The masses of steps of several answers as one row: where those of each begin, and the masses."""
    bounds, steps, prefixes, neutrality = _lined_up(answers, spans)
    logs = masses(answers[0].scorer, steps, prefixes, neutrality).agreeing.tolist()
    return bounds, [LogMass(mass, mass, mass) for mass in logs]


def _lined_up(
    answers: Sequence[LogitsAnswer], spans: Sequence[range]
) -> tuple[list[int], ReducedSteps, PrefixSets, BoolArray]:
    """Steps of several answers as one row of steps: where those of each begin, and what `masses` asks of them."""
    bounds = [*itertools.accumulate(map(len, spans), initial=0)]
    steps = joined([answer._steps.part(span.start, span.stop) for answer, span in zip(answers, spans, strict=True)])
    decided: dict[int, PrefixSet] = {}
    for answer, span, first in zip(answers, spans, bounds, strict=False):
        decided |= {at - span.start + first: prefix_set for at, prefix_set in answer._prefixes.items() if at in span}
    neutrality = np.repeat([answer._neutrality for answer in answers], np.diff(bounds))
    return bounds, steps, _prefix_sets(answers[0].scorer, steps, decided), neutrality


def _prefix_sets(scorer: Scorer, steps: ReducedSteps, decided: Mapping[int, PrefixSet]) -> PrefixSets:
    """The prefix sets of steps: their candidates, and others that were decided later, by the places of the steps."""
    filled = np.flatnonzero(steps.counts)
    counts, sets = steps.counts[filled], PrefixSets(NO_IDS, NO_IDS, steps.candidates)
    if len(filled):
        skipped = scorer.tables.candidates_of[steps.tokens[filled], 0] - (np.cumsum(counts) - counts)
        ids = scorer.tables.candidates[np.repeat(skipped, counts) + np.arange(len(steps.candidates))]
        sets = PrefixSets(np.repeat(filled, counts), ids, steps.candidates)
    if not decided:
        return sets
    owners = np.repeat(list(decided), [len(prefix_set.ids) for prefix_set in decided.values()])
    later = (owners, *map(np.concatenate, zip(*decided.values(), strict=True)))
    owners, ids, log_probs = (np.concatenate(pair) for pair in zip(sets, later, strict=True))
    order = np.argsort(owners, kind="stable")
    return PrefixSets(owners[order], ids[order], log_probs[order])


def finish_answers(answers: Sequence[LogitsAnswer], distribution: Distribution = "raw") -> list[ScoredResponse]:
    """The scored answers of complete answers with the same scorer, computed together."""
    if not answers:
        return []
    for answer in answers:
        answer.advance(complete=True)
    scorer, vocabulary = answers[0].scorer, answers[0].scorer.vocabulary
    bounds, steps, prefixes, neutrality = _lined_up(answers, [range(len(answer.ids)) for answer in answers])
    log_masses, ids = masses(scorer, steps, prefixes, neutrality), steps.tokens.tolist()
    offsets = [span for answer in answers for span in vocabulary.offsets(answer.ids)]
    columns: dict[str, Iterable[Any]] = {
        "id": ids,
        "text": [vocabulary.texts[token] for token in ids],
        "start": [start for start, _ in offsets],
        "end": [end for _, end in offsets],
        "log_probability": log_masses.own.tolist(),
        "log_agreeing_probability": log_masses.agreeing.tolist(),
        "log_surface_probability": log_masses.surface.tolist(),
        "log_meaning_probability": itertools.repeat(None) if scorer.paper is None else log_masses.meaning.tolist(),
        "neutral": (steps.neutral & neutrality).tolist(),
        "cluster_probability": np.minimum(np.exp(log_masses.cluster), 1.0).tolist(),
        "prefix_probability": np.minimum(np.exp(log_masses.prefix), 1.0).tolist(),
        "neutral_probability": np.minimum(np.exp(log_masses.neutral), 1.0).tolist(),
        "alternatives": _alternatives(scorer, steps, prefixes, neutrality),
        "value_ends": _ends(scorer, steps),
        "function_word": vocabulary.neutral[steps.tokens].tolist(),
    }
    every = (columns.get(field.name, itertools.repeat(field.default)) for field in fields(ScoredToken))
    tokens, logs, results = tuple(map(ScoredToken, *every)), log_masses.agreeing.tolist(), []
    for answer, (low, high) in zip(answers, itertools.pairwise(bounds), strict=True):
        blank = not vocabulary.decode(answer.ids).strip()
        log_score = -math.inf if blank else math.fsum(logs[low:high])
        results.append(answer._response(distribution, log_score, tokens=tokens[low:high]))
    return results


def _ends(scorer: Scorer, steps: ReducedSteps) -> list[ValueEnds | None]:
    """How probable it was at each step that a value ends there."""
    value_ends: list[ValueEnds | None] = [None] * len(steps)
    for k in np.flatnonzero(steps.asked).tolist():
        value_ends[k] = scorer.endings.from_masses(int(steps.asked[k]), steps.ends[k].tolist())
    return value_ends


def _alternatives(
    scorer: Scorer, steps: ReducedSteps, prefixes: PrefixSets, neutrality: BoolArray
) -> list[tuple[Alternative, ...]]:
    """The other tokens that were likely at each step."""
    others = (steps.likely_ids >= 0) & (steps.likely_ids != steps.tokens[:, None])
    others &= np.cumsum(others, axis=1) <= LISTED
    owners, ids, size = np.nonzero(others)[0], steps.likely_ids[others], scorer.vocabulary.size
    probabilities = np.exp(np.minimum(steps.likely[others], 0.0))
    alternatives = scorer.alternatives(
        steps.tokens[owners],
        list(zip(ids.tolist(), probabilities.tolist(), strict=True)),
        np.isin(owners * size + ids, prefixes.steps * size + prefixes.ids),  # a step and a token in one number
        opening=steps.opening[owners],
        neutrality=neutrality[owners],
    )
    places = itertools.accumulate(others.sum(axis=1).tolist(), initial=0)
    return [alternatives[low:high] for low, high in itertools.pairwise(places)]


def check_normalizers(
    log_normalizers: FloatArray, steps: Sequence[int], sequences: Sequence[int] | IdArray | None = None
) -> None:
    """Raise `InvalidLogits` for the first row that holds no distribution: its log normaliser is not finite.

    `steps` [n] and, in a batch, `sequences` [n] number the rows' steps and answers for the message.
    """
    finite = np.isfinite(log_normalizers)
    if not finite.all():
        place = int(finite.argmin())
        where = "" if sequences is None else f"Sequence {sequences[place]} of the batch: "
        raise InvalidLogits(
            f"{where}The logits of step {steps[place]} hold NaN or +inf, or not one finite value: "
            "there is no distribution to score."
        )


MOST_WAITING = 256
"""The most steps that wait, reduced and not yet taken in by their answers: a few hundred numbers of each sequence and
step."""
MOST_ROWS = 64
"""The most whole rows that are kept for these steps, where a token does not decide what the text begins with: 40 MB of
a large vocabulary."""


AnswersStep: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""One decoding step of several answers: their numbers, and the tokens that were chosen."""


class AnswerBatch:
    """Unfinished answers by their numbers, to which steps are added for several of them together.

    A step that has been reduced waits as a few arrays until somebody asks for one of the answers.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._answers: dict[int, LogitsAnswer] = {}
        self._waiting: list[tuple[IdArray, ReducedSteps]] = []
        self._rows: dict[int, WholeRow] = {}
        """Rows that some of these steps need, by their place among all of them."""
        self._n_waiting = 0
        """How many steps of answers that is."""
        self._last = np.full(64, -1)
        """The last token of each answer, -1 for none."""
        self._opens = np.ones(64, dtype=bool)
        """Whether each has nothing but blanks so far."""

    def __getitem__(self, number: int) -> LogitsAnswer:
        """An answer, as far as it is known; an empty one under a new number."""
        self._take_in()
        return self._answer(number)

    def __setitem__(self, number: int, answer: LogitsAnswer) -> None:
        """Put an answer under a number, in place of the one that is there; later steps are added to it."""
        self._take_in()
        self._reserve(number)
        self._answers[number] = answer
        self._last[number] = answer.ids[-1] if answer.ids else -1
        self._opens[number] = answer.opens

    def __delitem__(self, number: int) -> None:
        """Forget an answer; its number is new again."""
        self[number] = LogitsAnswer(self.scorer)
        del self._answers[number]

    def add(self, steps: Sequence[AnswersStep], rows: NormalizedRows) -> None:
        """Add one decoding step of some answers, or several.

        `rows` are those of the answers of the first step, then those of the second one, and so on. `InvalidLogits` if
        one holds no distribution; the message names the answer by its row.
        """
        if not len(rows.row_ids):
            return
        self._reserve(max(number for numbers, _ in steps for number in numbers))
        if np.isfinite(rows.log_normalizers).all():
            self._reduce(steps, rows, range(len(rows.row_ids)))
            return
        firsts = itertools.accumulate((len(numbers) for numbers, _ in steps), initial=0)
        for (numbers, tokens), first in zip(steps, firsts, strict=False):
            own, places = slice(first, first + len(numbers)), range(first, first + len(numbers))
            lengths = [len(self[number].ids) for number in numbers]
            check_normalizers(rows.log_normalizers[own], lengths, rows.numbers[own] if len(numbers) > 1 else None)
            self._reduce([(numbers, tokens)], rows, places)

    def _reduce(self, steps: Sequence[AnswersStep], rows: NormalizedRows, places: Sequence[int]) -> None:
        """Reduce some steps, which then wait; `places` are those of their answers among the rows."""
        columns = []
        for numbers, tokens in steps:
            which, chosen = np.array(numbers, dtype=np.int64), np.array(tokens, dtype=np.int64)
            opening = self._opens[which]
            columns.append((which, chosen, self._last[which], opening))
            self._last[which] = chosen
            self._opens[which] = opening & self.scorer.vocabulary.blank[chosen]
        which, chosen, before, openings = map(np.concatenate, zip(*columns, strict=True))
        taken = np.array(places, dtype=np.int64)
        reduced, waiting = reduce_rows(self.scorer, rows, taken, chosen, before, openings)
        for k, row in waiting.items():
            self._rows[self._n_waiting + k] = row
        self._waiting.append((which, reduced))
        self._n_waiting += len(which)
        if len(self._rows) >= MOST_ROWS or len(self._waiting) >= MOST_WAITING:
            self._take_in()

    def running(self, numbers: Sequence[int]) -> list[Running]:
        """The scores of some unfinished answers, from their tokens so far."""
        self._take_in()
        return running_answers([self._answer(number) for number in numbers])

    def finish(self, lengths: Mapping[int, int], distribution: Distribution = "raw") -> list[ScoredResponse]:
        """Score some complete answers, in the order of `lengths`.

        That is the number of an answer -> how many of its tokens count; those after them are dropped from it.
        """
        self._take_in()
        for number, length in lengths.items():
            answer = self._answer(number)
            if length < len(answer.ids):
                answer.truncate(length)
                self[number] = answer
        return finish_answers([self._answer(number) for number in lengths], distribution)

    def _answer(self, number: int) -> LogitsAnswer:
        if number not in self._answers:
            self._answers[number] = LogitsAnswer(self.scorer)
        return self._answers[number]

    def _reserve(self, number: int) -> None:
        """Make room for a number."""
        missing = number + 1 - len(self._last)
        if missing > 0:
            more = max(missing, len(self._last))
            self._last = np.append(self._last, np.full(more, -1))
            self._opens = np.append(self._opens, np.ones(more, dtype=bool))

    def _take_in(self) -> None:
        """Have the answers take in the steps that wait."""
        if not self._waiting:
            return
        (which, reduced), waiting_rows = zip(*self._waiting, strict=True), self._rows
        self._waiting, self._rows, self._n_waiting = [], {}, 0
        numbers = np.concatenate(which)
        order = np.argsort(numbers, kind="stable")
        steps, place = joined(reduced).take(order), np.argsort(order).tolist()
        rows = {place[k]: row for k, row in waiting_rows.items()}
        each, counts = np.unique(numbers, return_counts=True)
        bounds = itertools.accumulate(counts.tolist(), initial=0)
        for number, (low, high) in zip(each.tolist(), itertools.pairwise(bounds), strict=True):
            own = {at - low: rows[at] for at in range(low, high) if at in rows}
            self._answer(number).take_in(steps.part(low, high), own)
