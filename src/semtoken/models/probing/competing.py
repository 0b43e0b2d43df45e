"""The meanings that compete at one step of an answer, and the probability of each.

The probability of a meaning is a sum over a group of tokens. Groups are clusters, or tokens of the same spelling where
there are no clusters, with three exceptions, each of them needed. Function words, blanks and special tokens form one
group. Numerals are alone, since clusters hold all digits. Tokens that spell the beginning of what the answer goes on
with join the chosen token's group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from semtoken.clustering.function_words import english_stopwords
from semtoken.clustering.vocabulary import normalize
from semtoken.core.results import ScoredAnswer
from semtoken.core.scored_token import ScoredToken
from semtoken.core.scorer import Scorer
from semtoken.methods.observers.steps import LOGITS, Observer, Step
from semtoken.models.base import Backend
from semtoken.models.prompt_ids import encode_prompt
from semtoken.support.arrays import FloatArray, IdArray
from semtoken.support.inputs import instance, whole


@dataclass(frozen=True)
class Competitor:
    """One of the meanings between which the model chose at a step."""

    probability: float
    """Mass of the tokens of this meaning, in [0, 1]."""
    tokens: tuple[tuple[str, float], ...]
    """Texts of the most probable tokens of this meaning, with their own probabilities."""
    token_ids: tuple[int, ...]
    """The ids of these tokens; empty where no vocabulary is known."""
    chosen: bool
    """True if the answer goes on with this meaning."""
    continuation: str | None = None
    """The answer from the word that the step is in to the end of the phrase; None if not asked for."""


SHOWN = 3  # tokens of a group that are shown


class StepRows(Observer):
    """Keeps the log-probabilities of some steps of one answer (float64 [V] each)."""

    reads = frozenset({LOGITS})

    def __init__(self, steps: Sequence[int], size: int) -> None:
        self.rows: dict[int, FloatArray] = {}
        self._wanted = frozenset(steps)
        self._size = size
        self._position = 0

    def observe(self, step: Step) -> None:
        """Record the rows of logits of the wanted steps."""
        if self._position in self._wanted:
            self.rows[self._position] = step.log_distributions()[0, : self._size]
        self._position += 1


def step_rows(backend: Backend, prompt: Any, answer: ScoredAnswer, steps: Sequence[int]) -> dict[int, FloatArray]:
    """Log-probabilities of all tokens at some steps of an answer, float64 [V] each, from one teacher-forced pass.

    `InvalidInputError` if there is no such step, `BackendError` if the engine does not show all tokens.
    """
    instance(answer, ScoredAnswer, "answer")
    steps = [whole(step, "step", low=0, high=len(answer.tokens) - 1) for step in steps]
    rows = StepRows(steps, backend.vocabulary.size)
    # No further than the last step that is wanted.
    backend.read([encode_prompt(backend.tokenizer, prompt)], [answer.token_ids[: max(steps) + 1]], [rows])
    return rows.rows


def competing(stc: Any, prompt: Any, answer: ScoredAnswer, step: int, n: int = 4) -> list[Competitor]:
    """See what else the model could have written at a step of its answer: the n most probable meanings.

    The model reads the prompt and the answer up to the step once more. Tokens that agree under the rules of the
    `ScoredModel` are one meaning.

    Parameters
    ----------
    stc
        The `ScoredModel` that gave the answer.
    prompt
        What it was asked: text, chat messages or token ids.
    answer
        The answer.
    step
        Index of one of its tokens.
    n
        How many meanings, at least 1.

    Returns
    -------
    list of Competitor
        The most probable first, each with its probability in [0, 1].

    Raises
    ------
    InvalidInputError
        The prompt cannot be used, or there is no such step.
    """
    n = whole(n, "n", low=1)
    [(step, row)] = step_rows(stc.backend, prompt, answer, [step]).items()
    return groups_of(row, answer.token_ids, step, stc.scorer, n)


def competing_in_record(answer: ScoredAnswer, step: int, scorer: Scorer, n: int = 4) -> list[Competitor]:
    """The meanings that compete at a step, as `competing` gives them, without asking the model again.

    They come from the tokens in the answer's record, so rarer ones are missing. `scorer` is that of the answer
    (`scorer_for`), `n` the most meanings to give. `InvalidInputError` if there is no such step.
    """
    step, n = whole(step, "step", low=0, high=len(answer.tokens) - 1), whole(n, "n", low=1)
    token = answer.tokens[step]
    if scorer.open_ended:
        return _groups_of_texts(answer.text[token.start :], token, n)
    known = {token.id: token.probability} | {other.id: other.probability for other in token.alternatives}
    ids = np.array(list(known), dtype=np.int64)
    with np.errstate(divide="ignore"):
        log_probs = np.log(np.array(list(known.values())))
    return groups_of(log_probs, answer.token_ids, step, scorer, n, ids=ids)


def _groups_of_texts(following: str, token: ScoredToken, n: int) -> list[Competitor]:
    """Groups of one spelling at a step whose vocabulary is not known, by the texts in the record."""
    head, words = normalize(following), english_stopwords()
    groups: dict[str, list[tuple[str, float]]] = {"chosen": [(token.text, token.probability)]}
    for other in token.alternatives:
        key = "" if other.text.strip() in words else normalize(other.text)
        agrees = not key if token.function_word else key and head.startswith(key)
        groups.setdefault("chosen" if agrees else f"other {key}", []).append((other.text, other.probability))
    competitors = [
        Competitor(
            min(math.fsum(probability for _, probability in members), 1.0),
            tuple(sorted(members, key=lambda one: -one[1])[:SHOWN]),
            (),
            key == "chosen",
        )
        for key, members in groups.items()
    ]
    return sorted(competitors, key=lambda one: -one.probability)[:n]


def groups_of(
    log_probs: FloatArray,
    token_ids: Sequence[int],
    step: int,
    scorer: Scorer,
    n: int,
    *,
    ids: IdArray | None = None,
) -> list[Competitor]:
    """The n most probable groups of one meaning at a step of the answer `token_ids`, the most probable first.

    `log_probs` are of all V tokens, or of `ids`; `scorer` is the answer's, with its vocabulary and perhaps clusters.
    """
    groups, n_groups = _group_numbers(scorer, list(token_ids), step)
    ids = np.arange(len(groups)) if ids is None else ids
    probabilities = np.exp(log_probs)
    # One weighted count over the vocabulary is enough for all groups.
    totals = np.bincount(groups[ids], weights=probabilities, minlength=n_groups)
    best = [group for group in np.argsort(-totals, kind="stable")[:n].tolist() if totals[group] > 0]
    texts = scorer.vocabulary.texts
    competitors = []
    for group in best:
        members = np.flatnonzero(groups[ids] == group)
        top = members[np.argsort(-probabilities[members], kind="stable")[:SHOWN]]
        shown = tuple((texts[ids[i]], float(probabilities[i])) for i in top if probabilities[i] > 0)
        chosen = bool(group == groups[token_ids[step]])
        competitors.append(
            Competitor(min(float(totals[group]), 1.0), shown, tuple(int(ids[i]) for i in top[: len(shown)]), chosen)
        )
    return competitors


def _group_numbers(scorer: Scorer, token_ids: list[int], step: int) -> tuple[IdArray, int]:
    """The group of every token of the vocabulary at a step (int64 [V]), and how many numbers there are."""
    base, n_groups = _plain_groups(scorer)
    groups = base.copy()
    chosen = token_ids[step]
    if not scorer.vocabulary.neutral[chosen]:
        prefixes = scorer.index.prefix_set(token_ids, step)
        groups[prefixes[~scorer.vocabulary.neutral[prefixes]]] = groups[chosen]
    return groups, n_groups


@lru_cache(maxsize=1)
def _plain_groups(scorer: Scorer) -> tuple[IdArray, int]:
    """Clusters or spellings with function words together and numerals alone; computed once for a scorer."""
    vocabulary, clusters = scorer.vocabulary, scorer.clusters
    labels = scorer.surface.alike.has if clusters is None else np.asarray(clusters.labels, dtype=np.int64)
    # Numbers above all labels: one for function words together, and from `first` on one for each numeral.
    first = int(labels.max(initial=0)) + 2
    groups = np.where(vocabulary.numeral, first + np.arange(len(labels)), labels)
    groups[vocabulary.neutral] = first - 1
    return groups, first + len(labels)
