"""What the lists of an answer show that its reader should know: flags, or a refusal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from os.path import commonprefix

from semtoken.engine_tokens.checked_list import ASK_FOR_IDS, ListedStep
from semtoken.errors import BackendError
from semtoken.scoring.topk_records import ListedSteps
from semtoken.tokens.scored import Flag
from semtoken.tokens.tokenizers import REPLACEMENT
from semtoken.tokens.vocabulary import BoolArray

SLIGHTLY_OVERFULL = 1.001
ZEROS_IN_A_ROW = 5
NAMES_WITHOUT_BLANK = 20  # so many, and none with a blank: the engine leaves blanks out


def listed_flags(answer: ListedSteps) -> tuple[Flag, ...]:
    """What a reader of the score should know of the lists of a complete answer.

    Raises
    ------
    BackendError
        The engine lists nothing but zeros, or leaves out the blanks that tokens begin with.
    """
    steps = [step.listed for step in answer.steps]
    special = answer.scorer.vocabulary.special
    without_blank = [i for i, step in enumerate(steps) if step.without_blank]
    if any(step.with_blank for step in steps):
        without_blank = []
    if sum(step.without_blank for step in steps) >= NAMES_WITHOUT_BLANK:
        _refuse_names_without_blanks(without_blank)
    bare = [i for i, step in enumerate(steps) if not step.listed and not step.complete]
    wide = [i for i in bare if not answer.bounds.certain[i]]
    zero = [i for i in bare if step_is_zero(steps[i])]
    if len(zero) == len(steps) >= ZEROS_IN_A_ROW:
        raise BackendError(
            "Every token has the log-probability 0 and no alternatives: the engine does not report log-probabilities "
            "(some do so under speculative decoding)."
        )
    unknown = [i for i, step in enumerate(steps) if step.log_prob == -math.inf]
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
            zero if len(zero) >= ZEROS_IN_A_ROW else [],
            "have the log-probability 0, all of them: perhaps the engine does not report them",
        ),
        ("missing_log_probability", unknown, "do not tell the log-probability of the chosen token"),
        ("overfull", overfull, "list probabilities that add up to more than 1"),
        ("ambiguous_names", unclear, "list names that fit several tokens"),
        ("special_names", any_special, "chose a special token whose name does not tell which, and it may matter"),
        ("names_without_blanks", without_blank, "list names that are other tokens' if the engine leaves out blanks"),
        ("unmapped_names", unmapped, "list names that fit no token of the vocabulary"),
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


def step_is_zero(step: ListedStep) -> bool:
    """Whether the chosen token is said to be certain."""
    return step.log_prob == 0.0


def _steps(where: Sequence[int], count: int) -> str:
    return f"{len(where)} of {count} steps (the first is step {where[0]})"


def text_flags(spelled: str, said: str) -> tuple[Flag, ...]:
    """A flag if the steps do not spell the answer, blanks and pieces of characters aside."""
    ours, theirs = ("".join(text.replace(REPLACEMENT, "").split()) for text in (spelled, said))
    if ours == theirs:
        return ()
    same = len(commonprefix([ours, theirs]))  # noqa: RUF071, texts and no paths
    message = f"The steps spell {ours[same:][:30]!r} where the answer says {theirs[same:][:30]!r}: some are missing."
    return (Flag("other_text", message),)
