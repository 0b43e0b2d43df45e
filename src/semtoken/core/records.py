"""The records of the tokens of a scored answer, made when somebody asks for them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from semtoken.core.rows import LEAST_LISTED, LISTED
from semtoken.core.score import Part
from semtoken.core.scorer import SOURCES
from semtoken.results import Alternative, ScoredToken, TokensLater, ValueEnds
from semtoken.support.arrays import IdArray
from semtoken.tokens.rules import SAME_LETTERS
from semtoken.tokens.scored_token import TokenMark

RIVAL = 0.1
"""Another token of at least this probability is a rival of the chosen one."""


def later_records(part: Part, ids: Sequence[int], with_others: Callable[[float], Part]) -> TokensLater:
    """The tokens of an answer with these ids; `with_others` gives the steps with all listed tokens of a probability."""
    by_spelling = part.scorer.surface is part.scorer or part.scorer.surface.rules == part.scorer.rules
    return TokensLater(
        len(ids),
        lambda: token_records(with_others(0.0), ids),
        lambda: _marks(part, ids),
        by_spelling=by_spelling,
        alternatives=(lambda places: alternatives(with_others(LEAST_LISTED), places)) if by_spelling else None,
    )


def _marks(part: Part, ids: Sequence[int]) -> list[TokenMark]:
    """What the records of the tokens say that costs little."""
    exact = not part.listed
    columns = zip(part.scorer.vocabulary.offsets(ids), part.steps.log_probs.tolist(), part.bounds.masses(), strict=True)
    return [
        TokenMark(*place, log_prob, mass.estimate, None if exact else (mass.lower, mass.upper))
        for place, log_prob, mass in columns
    ]


def token_records(part: Part, ids: Sequence[int]) -> tuple[ScoredToken, ...]:
    """The records of all tokens of an answer with these `ids`, made column by column."""
    scorer, steps, vocabulary = part.scorer, part.steps, part.scorer.vocabulary
    if scorer.looks_ahead and not scorer.rules.prefix_matching:
        part = replace(part, prefixes=scorer.index.prefix_sets(ids))
    bounds, surface = part.bounds, part.bounds_under(scorer.surface, neutrality=False)
    meaning = None if scorer.paper is None else part.bounds_under(scorer.paper, neutrality=True)
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
        "cluster_probability": bounds.cluster.tolist(),
        "prefix_probability": bounds.prefix.tolist(),
        "neutral_probability": bounds.neutral.tolist(),
        "alternatives": alternatives(part),
        "value_ends": _value_ends(part),
        "ambiguous_probability": bounds.ambiguous.tolist(),
        "unmapped_probability": steps.unmapped.tolist(),
        "function_word": vocabulary.neutral[steps.tokens].tolist(),
    }
    for name, under in (("agreeing", bounds), ("surface", surface), ("meaning", meaning)):
        columns[f"log_{name}_bounds"] = nothing if under is None or not part.listed else under.intervals()
    return tuple(map(ScoredToken, *(columns[field.name] for field in fields(ScoredToken))))


def _value_ends(part: Part) -> list[ValueEnds | None]:
    """How probable it was at each step that a value ends there; None where none can."""
    endings, steps = part.scorer.endings, part.steps
    asked = endings.what_may_end(np.concatenate([[-1], steps.tokens[:-1]]).astype(np.int64), steps.tokens)
    value_ends: list[ValueEnds | None] = [None] * len(steps)
    for i in np.flatnonzero(asked).tolist():
        if not math.isnan(steps.ends[i, 0]):
            value_ends[i] = endings.from_masses(int(asked[i]), steps.ends[i].tolist())
            continue
        own = slice(*np.searchsorted(steps.owners, (i, i + 1)))
        probabilities = np.exp(steps.logs[own])
        unseen = 0.0 if steps.complete[i] else max(0.0, 1.0 - float(probabilities.sum()))
        value_ends[i] = endings.from_list(int(asked[i]), steps.ids[own], probabilities, unseen)
    return value_ends


def _likely(part: Part, least: float) -> IdArray:
    """The entries of other tokens than the chosen one with at least a probability: of each step the most probable."""
    steps = part.steps
    likely = np.flatnonzero((steps.logs >= math.log(least) - 1e-12) & (steps.ids != steps.tokens[steps.owners]))
    return np.asarray(likely[np.lexsort((steps.ids[likely], -steps.logs[likely], steps.owners[likely]))])


def alternatives(part: Part, places: Sequence[int] | None = None) -> list[tuple[Alternative, ...]]:
    """The most probable other tokens of all steps, or of those at some places, and how each relates to the chosen one.

    One that counts has the reason why it counts; one that does not is described as the paper's rules see it, as far as
    clusters are at hand.
    """
    steps, scorer, texts = part.steps, part.scorer, part.scorer.vocabulary.texts
    likely = _likely(part, LEAST_LISTED)
    owners = steps.owners[likely]
    kept = np.arange(len(likely)) - np.searchsorted(owners, owners) < LISTED  # among those of its step
    likely, owners = likely[kept], owners[kept]
    ids = steps.ids[likely]
    counted = part.kinds(scorer, neutrality=part.neutrality)[likely]
    described = 3 * scorer.vocabulary.neutral[ids]
    if scorer.paper is not None:
        described = part.kinds(scorer.paper, neutrality=True)[likely]
    columns = (
        scorer.engine_ids(ids.tolist()),
        [texts[token] for token in ids.tolist()],
        np.minimum(np.exp(steps.logs[likely]), 1.0).tolist(),
        [SOURCES[source] for source in np.where(counted > 0, counted, described).tolist()],
        (counted > 0).tolist(),
    )
    others = tuple(map(Alternative, *columns))
    ends = np.searchsorted(owners, np.arange(len(steps) + 1)).tolist()
    return [others[ends[i] : ends[i + 1]] for i in (range(len(steps)) if places is None else places)]


def any_rival(part: Part) -> bool:
    """Whether a likely other word counts because of its cluster alone, so that `borrowed_flags` has to look."""
    if not part.scorer.rules.clustering:
        return False
    steps, texts = part.steps, part.scorer.vocabulary.normalized
    likely = _likely(part, RIVAL)
    likely = likely[part.kinds(part.scorer, neutrality=part.neutrality)[likely] == 1]
    likely = likely[~part.bounds.certain[steps.owners[likely]]]
    pairs = zip(steps.ids[likely].tolist(), steps.tokens[steps.owners[likely]].tolist(), strict=True)
    return any(texts[rival][:SAME_LETTERS] != texts[token][:SAME_LETTERS] for rival, token in pairs)
