"""The records of the tokens of a scored answer, made when somebody asks for them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.engine_tokens.precision import ROUNDING
from semtoken.core.results import Alternative, ScoredToken, TokensLater, ValueEnds
from semtoken.core.rows import LEAST_LISTED, LISTED
from semtoken.core.rules import SAME_LETTERS
from semtoken.core.score import Agreeing
from semtoken.core.scored_token import TokenMark
from semtoken.core.scorer import CLUSTER, NEUTRAL, PREFIX, SOURCES
from semtoken.support.arrays import IdArray

RIVAL = 0.1
"""Another token of at least this probability is a rival of the chosen one."""


def later_records(
    agreed: Agreeing,
    vocabulary: Vocabulary,
    ids: Sequence[int],
    with_others: Callable[[Agreeing, float], Agreeing],
) -> TokensLater:
    """The tokens of an answer with these ids of a vocabulary; `with_others` gives some steps all listed tokens of a
    probability.
    """
    by_spelling = agreed.scorer.by_spelling_alone
    return TokensLater(
        len(ids),
        lambda: token_records(with_others(agreed, 0.0), ids),
        lambda: _marks(agreed, vocabulary.offsets(ids)),
        by_spelling=by_spelling,
        alternatives=(lambda at: alternatives(with_others(agreed.at(at), LEAST_LISTED))) if by_spelling else None,
    )


def _marks(agreed: Agreeing, places: Sequence[tuple[int, int]]) -> list[TokenMark]:
    """The fields of the tokens' records that cost little; `places` are their characters."""
    exact = not agreed.listed
    log_probs = agreed.steps.log_probs.tolist() if exact else [step.log_prob for step in agreed.listed]
    columns = zip(places, log_probs, agreed.masses, strict=True)
    return [
        TokenMark(*place, log_prob, mass.estimate, None if exact else (mass.lower, mass.upper))
        for place, log_prob, mass in columns
    ]


def token_records(agreed: Agreeing, ids: Sequence[int]) -> tuple[ScoredToken, ...]:
    """The records of all tokens of an answer with these `ids`, made column by column."""
    scorer, steps, vocabulary = agreed.scorer, agreed.steps, agreed.scorer.vocabulary
    if scorer.looks_ahead and not scorer.rules.prefix_matching:
        agreed = replace(agreed, prefixes=scorer.index.prefix_sets(ids))
    bounds, surface = agreed.bounds, agreed.bounds_under(scorer.surface, neutrality=False)
    meaning = None if scorer.paper is None else agreed.bounds_under(scorer.paper, neutrality=True)
    nothing: Iterable[Any] = itertools.repeat(None)
    columns: dict[str, Iterable[Any]] = {
        "id": scorer.engine_ids(ids),
        "text": [vocabulary.texts[token] for token in ids],
        "start": [start for start, _ in vocabulary.offsets(ids)],
        "end": [end for _, end in vocabulary.offsets(ids)],
        "log_probability": steps.log_probs.tolist(),
        "log_agreeing_probability": bounds.estimate.tolist(),
        "log_surface_probability": surface.estimate.tolist(),
        "log_meaning_probability": nothing if meaning is None else meaning.estimate.tolist(),
        "neutral": bounds.certain.tolist(),
        "cluster_probability": bounds.shares[:, CLUSTER].tolist(),
        "prefix_probability": bounds.shares[:, PREFIX].tolist(),
        "neutral_probability": bounds.shares[:, NEUTRAL].tolist(),
        "alternatives": alternatives(agreed),
        "value_ends": _value_ends(agreed),
        "ambiguous_probability": bounds.ambiguous.tolist(),
        "unmapped_probability": steps.unmapped.tolist(),
        "function_word": vocabulary.neutral[steps.tokens].tolist(),
    }
    alone = agreed.bounds_under(scorer.exact, neutrality=False) if agreed.listed else None
    for name, under in (("probability", alone), ("agreeing", bounds), ("surface", surface), ("meaning", meaning)):
        columns[f"log_{name}_bounds"] = nothing if under is None or not agreed.listed else under.intervals()
    return tuple(map(ScoredToken, *(columns[field.name] for field in fields(ScoredToken))))


def _value_ends(agreed: Agreeing) -> list[ValueEnds | None]:
    """The probability at each step that a value ends there; None where none can end."""
    endings, steps = agreed.scorer.endings, agreed.steps
    asked = endings.what_may_end(np.concatenate([[-1], steps.tokens[:-1]]).astype(np.int64), steps.tokens)
    value_ends: list[ValueEnds | None] = [None] * len(steps)
    for i in np.flatnonzero(asked).tolist():
        # Rows of logits bring exact masses; lists bound them by their entries.
        if not math.isnan(steps.ends[i, 0]):
            value_ends[i] = endings.from_masses(int(asked[i]), steps.ends[i].tolist())
            continue
        own, complete = slice(*np.searchsorted(steps.owners, (i, i + 1))), bool(steps.complete[i])
        logs = steps.logs[own]
        off = agreed.rounding.off + float(agreed.rounding.beyond(logs).max(initial=0.0))
        off = 0.0 if complete and off <= ROUNDING else off  # such a list is as good as a row of logits
        value_ends[i] = endings.from_list(int(asked[i]), steps.ids[own], np.exp(logs), off=off, complete=complete)
    return value_ends


def _likely(agreed: Agreeing, least: float) -> IdArray:
    """The entries of other tokens than the chosen one with at least a probability: of each step the most probable."""
    steps = agreed.steps
    # The slack keeps a token of exactly the least probability, whichever way its log was rounded.
    likely = np.flatnonzero((steps.logs >= math.log(least) - 1e-12) & (steps.ids != steps.tokens[steps.owners]))
    return np.asarray(likely[np.lexsort((steps.ids[likely], -steps.logs[likely], steps.owners[likely]))])


def alternatives(agreed: Agreeing) -> list[tuple[Alternative, ...]]:
    """The most probable other tokens of each step, and how each relates to the chosen one.

    One that counts has the reason why it counts; one that does not is described as the paper's rules see it, as far as
    clusters are at hand.
    """
    steps, scorer, texts = agreed.steps, agreed.scorer, agreed.scorer.vocabulary.texts
    likely = _likely(agreed, LEAST_LISTED)
    owners = steps.owners[likely]
    kept = np.arange(len(likely)) - np.searchsorted(owners, owners) < LISTED  # among those of its step
    likely, owners = likely[kept], owners[kept]
    ids = steps.ids[likely]
    counted = agreed.kinds(scorer, neutrality=agreed.neutrality)[likely]
    described = NEUTRAL * scorer.vocabulary.neutral[ids]
    if scorer.paper is not None:
        described = agreed.kinds(scorer.paper, neutrality=True)[likely]
    columns = (
        scorer.engine_ids(ids.tolist()),
        [texts[token] for token in ids.tolist()],
        np.minimum(np.exp(steps.logs[likely]), 1.0).tolist(),
        [SOURCES[source] for source in np.where(counted > 0, counted, described).tolist()],
        (counted > 0).tolist(),
    )
    others = tuple(map(Alternative, *columns))
    ends = np.searchsorted(owners, np.arange(len(steps) + 1)).tolist()
    return [others[first:last] for first, last in itertools.pairwise(ends)]


def any_rival(agreed: Agreeing) -> bool:
    """Return True if a likely other word counts because of its cluster alone, so that `borrowed_flags` has to look."""
    if not agreed.scorer.rules.clustering:
        return False
    steps, texts = agreed.steps, agreed.scorer.vocabulary.normalized
    likely = _likely(agreed, RIVAL)
    likely = likely[agreed.kinds(agreed.scorer, neutrality=agreed.neutrality)[likely] == CLUSTER]
    # Where the chosen token is neutral, the step counts as 1 with its rivals and without.
    likely = likely[~agreed.bounds.certain[steps.owners[likely]]]
    pairs = zip(steps.ids[likely].tolist(), steps.tokens[steps.owners[likely]].tolist(), strict=True)
    return any(texts[rival][:SAME_LETTERS] != texts[token][:SAME_LETTERS] for rival, token in pairs)
