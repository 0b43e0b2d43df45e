"""The steps at which a model could have said something else: how its answer would go on with each of the meanings that
compete there, and where these branches disagree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from semtoken.clustering.function_words import is_function_word, plain_word
from semtoken.core.parts import Part, parts_of
from semtoken.core.parts.prose import words
from semtoken.core.results import ScoredAnswer
from semtoken.models.base import Decoding
from semtoken.models.probing.competing import Competitor, groups_of, step_rows
from semtoken.models.prompt_ids import encode_prompt
from semtoken.support.inputs import flag, instance, listed, real, whole
from semtoken.support.text import visible

DOUBTFUL = 0.9
"""Steps whose chosen token has less than this probability are looked at."""
MAX_STEPS = 8
BRANCH_TOKENS = 8
AGREED = 0.85
"""Probability that the branches which agree with the answer must have, for a doubt to be about its wording only; the
page marks nothing above it."""
_END = re.compile(r"[.!?;:\n](?=\s|\Z)|\n")


@dataclass(frozen=True)
class Dispute:
    """A step at which the model might have said something else."""

    step: int
    """Index of the step's token in the answer."""
    part: Part
    """The phrase that it belongs to; the token itself where it belongs to none."""
    competitors: tuple[Competitor, ...]
    """The meanings that compete, the most probable first; branches that say the same are one."""
    disagreement: float
    """Mass of the competitors that say something else than the answer, in [0, 1]."""
    unheard: float
    """Mass of the tokens whose branches were not followed, in [0, 1]."""

    @property
    def sentence(self) -> str:
        """The tokens that competed at the step: at “Istanbul” the model also considered “Ankara” (9%)."""
        others = [c for c in self.competitors if not c.chosen and c.continuation and round(100 * c.probability) >= 1]
        named = ", ".join(f"“{visible(c.continuation or '')}” ({c.probability:.0%})" for c in others[:3])
        part = visible(self.part.text.strip())
        return f"at “{part}” the model also considered {named}" if named else f"at “{part}” it was least sure"


def disputed(
    stc: Any,
    prompt: Any,
    answer: ScoredAnswer,
    *,
    n: int = 4,
    max_steps: int = MAX_STEPS,
    doubtful: float = DOUBTFUL,
    branch_tokens: int = BRANCH_TOKENS,
    with_agreed: bool = False,
) -> list[Dispute]:
    """The steps at which the model could have said something else, the greatest disagreement first.

    At each doubtful step the n most probable meanings are forced in turn, and the answer goes on greedily to the end
    of the phrase. Branches that have the same content words count as one. Steps whose branches all say the same are
    left out unless you ask for them.

    Parameters
    ----------
    stc, prompt, answer
        As in `competing`.
    n
        Meanings that are followed at a step.
    max_steps
        Steps that are looked at, the most doubtful ones.
    doubtful
        Only steps where the chosen token has less than this probability.
    branch_tokens
        How many tokens a branch has at most after its first.
    with_agreed
        Return the steps whose branches all say the same too; `only_in_form` needs them.

    Returns
    -------
    list of Dispute
        With disagreements in [0, 1]; a higher one means that more of the probability says something else.

    Raises
    ------
    InvalidInputError
        The prompt cannot be used, or a setting is out of range.
    """
    n, branch_tokens = whole(n, "n", low=1), whole(branch_tokens, "branch_tokens", low=1)
    flag(with_agreed, "with_agreed")
    steps = doubtful_steps(answer, max_steps, doubtful)
    if not steps:
        return []
    ids = encode_prompt(stc.backend.tokenizer, prompt)
    rows = step_rows(stc.backend, ids, answer, steps)
    competitors = {step: groups_of(rows[step], answer.token_ids, step, stc.scorer, n) for step in steps}
    texts = _continuations(stc, ids, answer, competitors, branch_tokens)
    phrases = parts_of(answer, "phrase")
    disputes = [_dispute(answer, step, competitors[step], texts, phrases) for step in steps]
    wanted = [dispute for dispute in disputes if with_agreed or dispute.disagreement > 0]
    return sorted(wanted, key=lambda dispute: (-dispute.disagreement, dispute.step))


def only_in_form(part: Part, answer: ScoredAnswer, found: Sequence[Dispute]) -> bool:
    """True if a phrase of an answer is doubtful in its wording only: all branches of its doubtful steps mean the same.

    At each of its doubtful steps, `found` by `disputed(..., with_agreed=True)`, the branches that agree with the answer
    have to hold at least `AGREED` of the probability. What was not followed counts against it, so a step that was not
    looked at is a doubt.
    """
    instance(part, Part, "part")
    instance(answer, ScoredAnswer, "answer")
    found = [instance(dispute, Dispute, "found") for dispute in listed(found, "found")]
    shares = {dispute.step: 1.0 - dispute.disagreement - dispute.unheard for dispute in found}
    steps = [step for step in doubtful_steps(answer, len(answer.tokens)) if step in part.tokens]
    return bool(steps) and all(shares.get(step, 0.0) >= AGREED for step in steps)


def doubtful_steps(answer: ScoredAnswer, most: int = MAX_STEPS, doubtful: float = DOUBTFUL) -> list[int]:
    """The steps whose tokens were least certain, in the order of the answer; blanks and special tokens are left out.

    There are at most `most`, and each token has a probability below `doubtful`, in [0, 1].
    """
    instance(answer, ScoredAnswer, "answer")
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
    answer: ScoredAnswer,
    competitors: dict[int, list[Competitor]],
    length: int,
) -> dict[tuple[int, int], str]:
    """The text of each branch from the word that it changes on, by step and token; all branches are one batch."""
    wanted = [(step, competitor.token_ids[0]) for step, group in competitors.items() for competitor in group]
    prompts = [[*prompt, *answer.token_ids[:step], token] for step, token in wanted]
    # What the branches begin with, which is nearly all of them, is read once.
    decoding = Decoding(max_new_tokens=length, batch_size=len(prompts), share_prefix=True)
    completions = stc.backend.generate(prompts, decoding)
    decode = stc.scorer.vocabulary.decode
    texts = {}
    for (step, token), completion in zip(wanted, completions, strict=True):
        before = answer.token_ids[:step]
        start = _word_start(answer, step)
        text = decode([*before, token, *completion.token_ids])
        # The branch may end its phrase only behind the token that makes it one.
        forced = len(decode([*before, token])) - start
        texts[step, token] = _to_end_of_phrase(text[start:], forced, broken_off=bool(completion.truncated))
    return texts


def _word_start(answer: ScoredAnswer, step: int) -> int:
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
    answer: ScoredAnswer,
    step: int,
    group: list[Competitor],
    texts: dict[tuple[int, int], str],
    phrases: Sequence[Part],
) -> Dispute:
    branches = [replace(competitor, continuation=texts[step, competitor.token_ids[0]]) for competitor in group]
    merged = merge(branches)
    against = [competitor.probability for competitor in merged if not competitor.chosen]
    heard = sum(competitor.probability for competitor in group)
    return Dispute(
        step=step,
        part=_part_around(answer, step, phrases),
        competitors=tuple(merged),
        disagreement=sum(against),
        unheard=max(0.0, 1.0 - heard),
    )


def merge(competitors: Sequence[Competitor]) -> list[Competitor]:
    """Merge competitors whose continuations have the same content words as far as both go, the most probable first."""
    merged: list[tuple[tuple[str, ...], Competitor]] = []
    for competitor in competitors:
        said = content_words(competitor.continuation or "")
        same = next((i for i, (other, _) in enumerate(merged) if _same(said, other)), None)
        if same is None:
            merged.append((said, competitor))
            continue
        longer, first = merged[same]
        joined = replace(
            first,
            probability=min(first.probability + competitor.probability, 1.0),
            tokens=first.tokens + competitor.tokens,
            token_ids=first.token_ids + competitor.token_ids,
            chosen=first.chosen or competitor.chosen,
        )
        # The longer of the two: what comes next is compared with all that is known.
        merged[same] = (max(longer, said, key=len), joined)
    return sorted((competitor for _, competitor in merged), key=lambda competitor: -competitor.probability)


def content_words(text: str) -> tuple[str, ...]:
    """The words of a text in lower case, function words left out; all of them if there are no others."""
    everything = [plain_word(text[start:end]) for start, end in words(text)]
    return tuple(word for word in everything if not is_function_word(word)) or tuple(everything)


def _same(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Return True if two branches say the same as far as both go; one that says nothing says nothing else."""
    shorter = min(len(a), len(b))
    return shorter > 0 and a[:shorter] == b[:shorter]


def _part_around(answer: ScoredAnswer, step: int, phrases: Sequence[Part]) -> Part:
    """The phrase that a token belongs to, or the token itself as a part."""
    for phrase in phrases:
        if step in phrase.tokens:
            return phrase
    token = answer.tokens[step]
    return parts_of(answer, lambda _: [(token.start, token.end, "token")])[0]
