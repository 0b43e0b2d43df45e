"""The beginning of the answer in a reply that repeats its prompt (`echo`), found by the counts in the reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semtoken.core.engine_tokens.placing import pieces_of, text_of_pieces
from semtoken.core.engine_tokens.top_steps import StepList
from semtoken.errors import BackendError

UNCOUNTED = (
    "The reply repeats the prompt and does not say where the answer begins: ask without `echo`, or for the usage too "
    '("stream_options": {"include_usage": true}).'
)
OPEN = (
    "The reply repeats the prompt and lists a token less than it counts, the prompt's first or the terminator, which "
    "leaves open where the answer begins: ask without `echo`."
)
TOGETHER = (
    "The reply repeats its prompts and counts the tokens of all choices together, which leaves open where each answer "
    "begins: ask for one prompt at a time, or without `echo`."
)
NOTHING_WRITTEN = "The reply only repeats the prompt: it counts 0 tokens of an answer, so nothing is to be scored."


class Counts(NamedTuple):
    """The counts of tokens in a reply, for all its choices together."""

    read: int | None
    """Tokens of its prompts; that of several choices may be counted once. None if it does not say."""
    written: int | None
    """Tokens of its answers; None if it does not say."""


def prompt_length(listed: Sequence[int], choice: int, counts: Counts, *, at_limit: bool) -> int | None:
    """The number of listed tokens of a choice that belong to the prompt; None if it does not repeat the prompt.

    Parameters
    ----------
    listed
        How many tokens each choice of the reply lists.
    choice
        The place of the choice among them.
    counts
        The counts in the reply.
    at_limit
        Whether all answers were cut off at the token limit, so that they are equally long and have no terminator.

    Raises
    ------
    BackendError
        The counts leave open where the answer begins, or there is none.
    """
    several, total = len(listed), sum(listed)
    read, written = counts
    if written is None:
        raise BackendError(UNCOUNTED)
    if several == 1 and read is not None:
        unlisted = read + written - total  # 1: the prompt's first token, or the terminator
        if unlisted not in (-1, 0, 1):
            return None
        if unlisted == 1 and not at_limit:
            raise BackendError(OPEN if written else NOTHING_WRITTEN)
        prompt = read - max(unlisted, 0)
    elif several == 1:
        prompt = total - written
        if prompt <= 1:
            return None
    elif read is not None and total == several * read + written:
        prompt = read  # that of all choices
    elif read is not None and total != read + written:
        return None
    elif written % several == 0 and (at_limit or written in (0, several)):
        prompt = listed[choice] - written // several
    else:
        raise BackendError(TOGETHER)
    if prompt >= listed[choice]:
        raise BackendError(NOTHING_WRITTEN)
    return prompt


def without_prompt(steps: StepList, text: str, prompt: int) -> tuple[StepList, str]:
    """The answer alone, behind so many tokens of the prompt."""
    kept = steps.steps[prompt:]
    missing = tuple(i - prompt for i in steps.missing if i >= prompt)
    spelled = text_of_pieces(pieces_of(kept))  # with a terminator, which the text lacks
    length = next((n for n in range(len(spelled), 0, -1) if text.endswith(spelled[:n])), 0)
    return StepList(kept, missing), spelled[:length] or text
