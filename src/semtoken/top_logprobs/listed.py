"""One step of an engine's list, read: which tokens are listed with which probability, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semtoken._arrays import FloatArray, IdArray
from semtoken.errors import BackendError, InvalidInput, InvalidLogits, VocabularyMismatch
from semtoken.results import Flag
from semtoken.top_logprobs.names import TokenNames, token_names
from semtoken.top_logprobs.steps import TopStep, TopToken
from semtoken.vocabulary import Vocabulary

SENTINEL = -9998.0  # engines write -9999 for "very unlikely" and for "not known"
ABOVE_ZERO = 1e-3  # a log-probability may come out above 0 by rounding
OVERFULL = 1.05  # a list whose probabilities add up to more holds no probabilities
SLIGHTLY_OVERFULL = 1.001
ZEROS_IN_A_ROW = 5


@dataclass(frozen=True, eq=False)
class ListedStep:
    """What a list of the best tokens says of one step, in probabilities."""

    token: int
    """The chosen token."""
    log_prob: float
    """Its log-probability, <= 0; -inf where the engine does not tell it."""
    ids: IdArray
    """Ascending ids of the listed tokens that are clear, the chosen one included where its probability is known."""
    probabilities: FloatArray
    """Theirs."""
    ambiguous: tuple[tuple[tuple[int, ...], float], ...]
    """Tokens that each entry may mean, and its probability."""
    unmapped: float
    """Probability of entries whose name fits no token."""
    missing: float
    """Probability that is not listed."""
    smallest: float
    """What a token that is not listed has at most; 1 where the list does not tell."""
    complete: bool
    """Every token of the vocabulary is listed."""
    listed: int
    """Entries beside the chosen token."""
    opening: bool = True
    """Only blanks come before."""
    neutral: bool = False
    """The chosen token is neutral where it stands."""


def read_step(step: TopStep, vocabulary: Vocabulary, position: int) -> ListedStep:
    """Find the tokens of a step in the vocabulary and check its numbers.

    Raises
    ------
    InvalidInput
        The chosen token is unknown or not clear.
    InvalidLogits
        A log-probability is NaN or above 0, or the probabilities add up to more than 1.
    VocabularyMismatch
        The id and the name of a token disagree.
    """
    names = token_names(vocabulary)
    for token in (step.chosen, *step.top):
        _check(token, names, position)
    chosen = _chosen(step.chosen, names, position)
    found: dict[int, float] = {}
    ambiguous: list[tuple[tuple[int, ...], float]] = []
    unmapped = 0.0
    for token in step.top:
        candidates = names.candidates(token.id, token.text, token.bytes)
        if chosen in candidates and _same(token, step.chosen):
            candidates = (chosen,)
        if token.log_prob <= SENTINEL and token.log_prob != -math.inf:
            continue
        if len(candidates) == 1:
            found.setdefault(candidates[0], _probability(token.log_prob))
        elif candidates:
            ambiguous.append((candidates, _probability(token.log_prob)))
        else:
            unmapped += _probability(token.log_prob)
    if step.chosen.log_prob > SENTINEL:
        found.setdefault(chosen, _probability(step.chosen.log_prob))
    ids = np.array(sorted(found), dtype=np.int64)
    complete = len(ids) == vocabulary.size
    total = math.fsum([*found.values(), *(p for _, p in ambiguous), unmapped])
    if total > OVERFULL:
        raise InvalidLogits(
            f"The probabilities listed at step {position} add up to {total:.3g}: these are no log-probabilities of "
            "the next token (logits?)."
        )
    return ListedStep(
        token=chosen,
        log_prob=math.log(found[chosen]) if found.get(chosen) else -math.inf,
        ids=ids,
        probabilities=np.array([found[i] for i in ids.tolist()], dtype=np.float64),
        ambiguous=tuple(ambiguous),
        unmapped=unmapped,
        missing=0.0 if complete else max(0.0, 1.0 - total),
        smallest=_smallest(step, names),
        complete=complete,
        listed=sum(not _same(token, step.chosen) for token in step.top),
    )


def _probability(log_prob: float) -> float:
    return math.exp(min(log_prob, 0.0))


def _same(token: TopToken, chosen: TopToken) -> bool:
    """Whether an entry of the list is the chosen token."""
    if token.id is not None and chosen.id is not None:
        return token.id == chosen.id
    if token.bytes is not None and chosen.bytes is not None and token.bytes != chosen.bytes:
        return False
    return token.text == chosen.text and abs(token.log_prob - chosen.log_prob) < ABOVE_ZERO


def _check(token: TopToken, names: TokenNames, position: int) -> None:
    if math.isnan(token.log_prob) or token.log_prob > ABOVE_ZERO:
        raise InvalidLogits(
            f"At step {position} the token {token.name} has the log-probability {token.log_prob}: it must be at most "
            "0. Ask the engine for log-probabilities, not logits."
        )
    if token.id is not None and not names.fits(token.id, token.text, token.bytes):
        known = (
            repr(names.vocabulary.texts[token.id])
            if 0 <= token.id < names.vocabulary.size
            else f"beyond its {names.vocabulary.size:,} tokens"
        )
        raise VocabularyMismatch(
            f"At step {position} the engine names token {token.id} {token.name}; in the vocabulary of the clusters it "
            f"is {known}. These clusters belong to another model."
        )


def _chosen(token: TopToken, names: TokenNames, position: int) -> int:
    """The chosen token's id."""
    candidates = names.candidates(token.id, token.text, token.bytes)
    if len(candidates) == 1:
        return candidates[0]
    ask = "Have the engine send token ids (vLLM: return_tokens_as_token_ids) or bytes."
    if not candidates:
        raise InvalidInput(
            f"The token chosen at step {position}, {token.name}, is not in the vocabulary of the clusters. A special "
            f"token, or clusters of another model? {ask}"
        )
    raise InvalidInput(
        f"The token chosen at step {position}, {token.name}, may be any of {len(candidates)} tokens of the "
        f"vocabulary. {ask}"
    )


def _smallest(step: TopStep, names: TokenNames) -> float:
    """What an unlisted token has at most.

    Engines append the chosen token where it is not among the best: as the last of a list it says nothing of the
    others. A list keyed by strings has lost all but one of the tokens that are spelled alike.
    """
    others = [token for token in step.top if not _same(token, step.chosen)]
    if not others or any(token.log_prob <= SENTINEL for token in others):
        return 1.0
    if any(token.id is None and token.bytes is None and names.shares(token.text) for token in step.top):
        return 1.0
    smallest = min(token.log_prob for token in others)
    return _probability(smallest)


def listed_flags(steps: Sequence[ListedStep]) -> tuple[Flag, ...]:
    """What a reader of the score should know of an answer's lists.

    Raises
    ------
    BackendError
        The engine lists nothing but zeros.
    """
    bare = [i for i, step in enumerate(steps) if not step.listed and not step.complete]
    zero = [i for i in bare if step_is_zero(steps[i])]
    if len(zero) == len(steps) >= ZEROS_IN_A_ROW:
        raise BackendError(
            "Every token has the log-probability 0 and no alternatives: the engine does not report log-probabilities "
            "(some do so under speculative decoding)."
        )
    unknown = [i for i, step in enumerate(steps) if step.log_prob == -math.inf]
    overfull = [i for i, step in enumerate(steps) if step.probabilities.sum() > SLIGHTLY_OVERFULL]
    unclear = [i for i, step in enumerate(steps) if step.ambiguous]
    unmapped = [i for i, step in enumerate(steps) if step.unmapped]
    found = (
        ("no_alternatives", bare, "list no token beside the chosen one, so the interval is wide"),
        (
            "zero_log_probabilities",
            zero if len(zero) >= ZEROS_IN_A_ROW else [],
            "have the log-probability 0, all of them: perhaps the engine does not report them",
        ),
        ("missing_log_probability", unknown, "do not tell the log-probability of the chosen token"),
        ("overfull", overfull, "list probabilities that add up to more than 1"),
        ("ambiguous_names", unclear, "list names that fit several tokens"),
        ("unmapped_names", unmapped, "list names that fit no token of the vocabulary"),
    )
    return tuple(Flag(code, f"{_steps(where, len(steps))} {what}.") for code, where, what in found if where)


def step_is_zero(step: ListedStep) -> bool:
    """Whether the chosen token is said to be certain."""
    return step.log_prob == 0.0


def _steps(where: Sequence[int], count: int) -> str:
    return f"{len(where)} of {count} steps (the first is step {where[0]})"
