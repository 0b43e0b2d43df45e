"""Flags about the lists of best tokens that an answer was scored from: what they lack, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix

from semtoken.engine_tokens.checked_list import ASK_FOR_IDS, ListedStep
from semtoken.engine_tokens.top_steps import is_own
from semtoken.errors import BackendError
from semtoken.scoring.topk_bounds import ListedSteps
from semtoken.support.arrays import BoolArray
from semtoken.tokens.scored_token import Flag
from semtoken.tokens.tokenizers import REPLACEMENT

SLIGHTLY_OVERFULL = 1.001
ZEROS_IN_A_ROW = 5
UNMAPPED = "list names that fit no token of the vocabulary"
NAMES_WITHOUT_BLANK = 20  # so many, and none with a blank: the engine leaves blanks out


def silent_zeros(answer: ListedSteps) -> list[int]:
    """The steps with a log-probability of 0 and no list in an answer whose other steps have lists.

    Engines write such zeros for tokens that they have not computed a distribution for, as under speculative decoding.

    Raises
    ------
    BackendError
        The engine gives nothing but zeros.
    """
    listed = [step.listed for step in answer.steps]
    zeros = [i for i, step in enumerate(listed) if step.log_prob == 0.0 and not (step.listed or step.complete)]
    if not zeros:
        return []
    certain = answer.bounds.certain
    zeros = [i for i in zeros if not certain[i]]
    bare = [i for i in zeros if listed[i].bare]
    whole = len(zeros) == len(listed) - int(certain.sum())
    if zeros and whole and (len(bare) == len(zeros) or len(zeros) >= ZEROS_IN_A_ROW):
        raise BackendError(
            "Every token has the log-probability 0 and no alternatives: the engine does not report log-probabilities "
            "(some do so under speculative decoding). Ask the engine without it, and for alternatives."
        )
    return bare if any(not step.bare for step in listed) else []


def listed_flags(answer: ListedSteps, silent: Sequence[int] = (), copied: Sequence[int] = ()) -> tuple[Flag, ...]:
    """Flags about the lists of a complete answer: what they lack, and what makes its bounds wide.

    Parameters
    ----------
    answer
        The steps.
    silent, copied
        The steps whose zeros (`silent_zeros`) or lists (`without_copied_list`) are not used.

    Raises
    ------
    BackendError
        The engine leaves out the blanks that tokens begin with.
    """
    steps = [step.listed for step in answer.steps]
    special = answer.scorer.vocabulary.special
    without_blank = [i for i, step in enumerate(steps) if step.without_blank]
    if any(step.with_blank for step in steps):
        without_blank = []
    if sum(step.without_blank for step in steps) >= NAMES_WITHOUT_BLANK:
        _refuse_names_without_blanks(without_blank)
    bare = [i for i, step in enumerate(steps) if not step.listed and not step.complete]
    zero = [i for i in bare if steps[i].log_prob == 0.0]
    wide = [i for i in bare if not answer.bounds.certain[i] and steps[i].log_prob != 0.0]
    twice = [i for i, step in enumerate(steps) if step.alike or step.doubtful]
    unknown = [i for i, step in enumerate(steps) if not is_own(round(step.log_prob, 6)) and i not in silent]
    overfull = [i for i, step in enumerate(steps) if step.total > SLIGHTLY_OVERFULL]
    unclear = [
        i
        for i, step in enumerate(steps)
        if step.ambiguous and (answer.bounds.ambiguous[i] > 0 or not _only_special(step, special))
    ]
    any_special = [i for i, step in enumerate(steps) if len(step.stands_for) > 1 and not answer.bounds.certain[i]]
    unmapped = [i for i, step in enumerate(steps) if step.unmapped]
    found = (
        ("no_alternatives", wide, "list no token beside the chosen one, so the interval is wide"),
        (
            "zero_log_probabilities",
            zero if len(zero) >= min(ZEROS_IN_A_ROW, len(steps)) else [],
            "have the log-probability 0 and list no other token: perhaps the engine reports none, or those after a "
            "sampler such as top_p",
        ),
        (
            "zero_log_probabilities",
            silent,
            "have the log-probability 0 and no list where others have one, which says nothing: their part of the "
            "interval begins at 0",
        ),
        (
            "copied_lists",
            copied,
            "have the list of the step before, which contradicts their own number and is not used",
        ),
        ("missing_log_probability", unknown, "do not tell the log-probability of the chosen token"),
        ("two_numbers", twice, "list the text of the chosen token with another number than its own, which counts"),
        ("overfull", overfull, "list probabilities that add up to more than 1"),
        ("ambiguous_names", unclear, "list names that fit several tokens"),
        ("special_names", any_special, "chose a special token whose name does not tell which, and it may matter"),
        ("names_without_blanks", without_blank, "list names that are other tokens' if the engine leaves out blanks"),
        ("unmapped_names", unmapped, "name tokens by ids alone" if answer.scorer.open_ended else UNMAPPED),
    )
    return tuple(Flag(code, f"{_steps(where, len(steps))} {what}.") for code, where, what in found if where)


def _only_special(step: ListedStep, special: BoolArray) -> bool:
    """Whether the names that fit several tokens are those of any special token."""
    return all(special[list(candidates)].all() for candidates, _ in step.ambiguous)


def _refuse_names_without_blanks(where: Sequence[int]) -> None:
    if where:
        raise BackendError(
            "No token of the reply begins with a blank, although many of the vocabulary do: the engine names tokens "
            f"as they read alone, and so one may be taken for another (the first at step {where[0]}). {ASK_FOR_IDS}"
        )


def _steps(where: Sequence[int], count: int) -> str:
    return f"{len(where)} of {count} steps (the first is step {where[0]})"


def text_flags(spelled: str, said: str) -> tuple[Flag, ...]:
    """The flag `other_text` if the steps do not spell what the engine said, blanks and pieces of characters aside."""
    ours, theirs = ("".join(text.replace(REPLACEMENT, "").split()) for text in (spelled, said))
    if ours == theirs:
        return ()
    same = len(commonprefix([ours, theirs]))  # noqa: RUF071, texts and no paths
    message = f"The steps spell {ours[same:][:30]!r} where the answer says {theirs[same:][:30]!r}: some are missing."
    return (Flag("other_text", message),)
