"""How an answer would have gone on with each of the meanings that compete, and what the branches disagree on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from semtoken.backends.base import Decoding
from semtoken.parts import Part, parts_of
from semtoken.parts.prose import words
from semtoken.probing.competing import Competitor, Dispute, groups_of, prompt_ids, step_rows
from semtoken.results import ScoredResponse
from semtoken.support.inputs import real, whole
from semtoken.tokens.stopwords import is_function_word, plain_word

DOUBTFUL = 0.9
"""Steps of less confidence than this are looked at."""
MAX_STEPS = 8
BRANCH_TOKENS = 8
AGREED = 0.85
"""Share of the branches that has to agree for a doubt to be one of form; the page marks nothing above it."""
_END = re.compile(r"[.!?;:\n](?=\s|\Z)|\n")


def disputed(
    stc: Any,
    prompt: Any,
    answer: ScoredResponse,
    *,
    n: int = 4,
    max_steps: int = MAX_STEPS,
    doubtful: float = DOUBTFUL,
    branch_tokens: int = BRANCH_TOKENS,
    with_agreed: bool = False,
) -> list[Dispute]:
    """Where the model could have said something else, the greatest disagreement first.

    At each doubtful step the n most probable meanings are forced in turn, and the answer goes on greedily to the end
    of the phrase. Branches that have the same content words count as one. Steps whose branches all say the same are
    left out unless you ask for them.

    Parameters
    ----------
    stc
        The `STC` that gave the answer.
    prompt
        What it was asked: text, chat messages or token ids.
    answer
        The answer.
    n
        Meanings that are followed at a step.
    max_steps
        Steps that are looked at, the most doubtful ones.
    doubtful
        Only steps where the chosen token has less than this probability.
    branch_tokens
        Length of a branch.
    with_agreed
        Return the steps whose branches all say the same too; `only_in_form` needs them.
    """
    steps = doubtful_steps(answer, max_steps, doubtful)
    if not steps:
        return []
    ids = prompt_ids(stc.backend, prompt)
    rows = step_rows(stc.backend, ids, answer, steps)
    competitors = {step: groups_of(rows[step], answer.token_ids, step, stc.scorer, n) for step in steps}
    texts = _continuations(stc, ids, answer, competitors, branch_tokens)
    phrases = parts_of(answer, "phrase")
    found = [_dispute(answer, step, competitors[step], texts, phrases) for step in steps]
    wanted = [one for one in found if with_agreed or one.disagreement > 0]
    return sorted(wanted, key=lambda one: (-one.disagreement, one.step))


def only_in_form(part: Part, answer: ScoredResponse, found: Sequence[Dispute]) -> bool:
    """Whether a part is doubtful only in its wording: the branches of its doubtful steps say the same.

    At each of its doubtful steps the branches that agree with the answer have to hold at least `AGREED` of the
    probability. What was not followed counts against it, so a step that was not looked at is a doubt.

    Parameters
    ----------
    part
        A phrase of the answer.
    answer
        The answer.
    found
        Its steps, by `disputed(..., with_agreed=True)`.
    """
    shares = {one.step: 1.0 - one.disagreement - one.unheard for one in found}
    steps = [step for step in doubtful_steps(answer, len(answer.tokens)) if step in part.tokens]
    return bool(steps) and all(shares.get(step, 0.0) >= AGREED for step in steps)


def doubtful_steps(answer: ScoredResponse, most: int = MAX_STEPS, doubtful: float = DOUBTFUL) -> list[int]:
    """The steps whose tokens were least certain, in the order of the answer; special tokens left out."""
    most, doubtful = whole(most, "most", low=0), real(doubtful, "doubtful", low=0.0, high=1.0)
    below = [
        (token.probability, step)
        for step, token in enumerate(answer.tokens)
        if token.probability < doubtful and token.text.strip()
    ]
    return sorted(step for _, step in sorted(below)[:most])


def _continuations(
    stc: Any,
    prompt: list[int],
    answer: ScoredResponse,
    competitors: dict[int, list[Competitor]],
    length: int,
) -> dict[tuple[int, int], str]:
    """The text of each branch from the word that it changes on, by step and token; all branches are one batch."""
    wanted = [(step, one.token_ids[0]) for step, group in competitors.items() for one in group]
    prompts = [[*prompt, *answer.token_ids[:step], token] for step, token in wanted]
    completions = stc.backend.generate(prompts, Decoding(max_new_tokens=length, batch_size=len(prompts)))
    decode = stc.scorer.vocabulary.decode
    found = {}
    for (step, token), completion in zip(wanted, completions, strict=True):
        before = answer.token_ids[:step]
        start = _word_start(answer, step)
        text = decode([*before, token, *completion.token_ids])
        forced = len(decode([*before, token])) - start
        found[step, token] = _to_end_of_phrase(text[start:], forced, broken_off=bool(completion.truncated))
    return found


def _word_start(answer: ScoredResponse, step: int) -> int:
    """First character of the word that a token belongs to."""
    start = answer.tokens[step].start
    while start and not answer.text[start - 1].isspace() and not answer.text[start].isspace():
        start -= 1
    return start


def _to_end_of_phrase(text: str, from_: int, *, broken_off: bool = False) -> str:
    """A text cut at the first end of a sentence or clause after a place; else, if broken off, after a whole word."""
    end = _END.search(text, max(from_, 0))
    if end is not None:
        return text[: end.start()].strip()
    blank = text.rstrip().rfind(" ") if broken_off else -1
    return (text[:blank] if blank >= max(from_, 1) else text).strip()


def _dispute(
    answer: ScoredResponse,
    step: int,
    group: list[Competitor],
    texts: dict[tuple[int, int], str],
    phrases: Sequence[Part],
) -> Dispute:
    told = [replace(one, continuation=texts[step, one.token_ids[0]]) for one in group]
    merged = merge(told)
    against = [one.probability for one in merged if not one.chosen]
    heard = sum(one.probability for one in group)
    return Dispute(
        step=step,
        part=_part_around(answer, step, phrases),
        competitors=tuple(merged),
        disagreement=sum(against),
        unheard=max(0.0, 1.0 - heard),
    )


def merge(competitors: Sequence[Competitor]) -> list[Competitor]:
    """Competitors whose continuations have the same content words as one, the most probable first."""
    merged: list[tuple[tuple[str, ...], Competitor]] = []
    for one in competitors:
        said = content_words(one.continuation or "")
        same = next((i for i, (other, _) in enumerate(merged) if _same(said, other)), None)
        if same is None:
            merged.append((said, one))
            continue
        longer, first = merged[same]
        joined = replace(
            first,
            probability=min(first.probability + one.probability, 1.0),
            tokens=first.tokens + one.tokens,
            token_ids=first.token_ids + one.token_ids,
            chosen=first.chosen or one.chosen,
        )
        merged[same] = (max(longer, said, key=len), joined)
    return sorted((one for _, one in merged), key=lambda one: -one.probability)


def content_words(text: str) -> tuple[str, ...]:
    """The words of a text in lower case, function words left out; all of them if there are no others."""
    everything = [plain_word(text[start:end]) for start, end in words(text)]
    return tuple(word for word in everything if not is_function_word(word)) or tuple(everything)


def _same(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether two branches say the same as far as both go; one that says nothing says nothing else."""
    shorter = min(len(a), len(b))
    return shorter > 0 and a[:shorter] == b[:shorter]


def _part_around(answer: ScoredResponse, step: int, phrases: Sequence[Part]) -> Part:
    """The phrase that a token belongs to, or the token itself as a part."""
    for phrase in phrases:
        if step in phrase.tokens:
            return phrase
    token = answer.tokens[step]
    [part] = parts_of(answer, lambda _: [(token.start, token.end, "token")])
    return part
