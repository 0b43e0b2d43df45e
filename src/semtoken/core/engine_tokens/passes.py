"""Passes over engines' quirks, in which lists say what is not so: functions from steps to those steps, or to a note.

A quirk that a step shows by itself goes into `ON_READING`, and one that shows beside the step before into `ON_SCORING`:
every list of every engine goes through both tables. The other functions are notes, and passes for steps that do not fit
the text of the message or contradict their own numbers: `semtoken.replies.segments` and `ListReader` ask for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import eq
from typing import NamedTuple

from semtoken.clustering.tokenizers import BYTE_TOKEN, REPLACEMENT
from semtoken.core.engine_tokens.token_names import SENTENCEPIECE_BLANK, bytes_in_files, is_markup
from semtoken.core.engine_tokens.top_steps import (
    NAMELESS,
    SPELLED,
    Name,
    TopStep,
    ends_inside,
    is_given,
    is_same_number,
    is_unnamed,
    may_be_one,
    spelling,
)

WITHOUT_NAME: frozenset[Name] = frozenset({NAMELESS, (None, "", None), (None, REPLACEMENT, None)})
"""The names of tokens of which an engine says next to nothing."""
ASCII_END = 0x7F
IN_FILES = re.compile(rf"[\u0120\u010a{SENTENCEPIECE_BLANK}]|{BYTE_TOKEN.pattern}\Z")
"""The beginning of names that are spelled as in a tokenizer's files: a blank, a line end, a byte."""
BLANKS = ("\u0120", "\u010a", SENTENCEPIECE_BLANK)
"""The blank or line end that a token begins with, as tokenizers' files spell it."""


# --- passes that every step goes through -----------------------------------------------------------------------------


def as_read(steps: Iterable[TopStep]) -> tuple[TopStep, ...]:
    """Steps without the quirks that each of them shows by itself (`ON_READING`)."""
    passed = tuple(steps)
    for quirk in ON_READING:
        passed = quirk(passed)
    return passed


def as_scored(steps: Iterable[TopStep], before: TopStep | None = None) -> tuple[TopStep, ...]:
    """Steps without the quirks that show beside the step before (`ON_SCORING`).

    `before` is the last step that went in earlier, as it came out. A step that went in before stays as it is.
    """
    passed = tuple(steps)
    for quirk in ON_SCORING:
        passed = quirk(passed, before)
    return passed


def with_listed_names(steps: Sequence[TopStep]) -> tuple[TopStep, ...]:
    """The steps with the chosen tokens' names as their lists have them, under the same ids.

    llama-server names the chosen token by the text that it sends with it. While that may begin a stop string, the name
    is empty or a part of the token's, and the next token has the name of all that was held back. The list has their own
    names. A listed name is not taken if it adds only the blank that the start of an answer loses, or is that of a piece
    of a character.
    """
    return tuple(
        [
            step if (own := step.names[0])[0] is None or own in step.names[1:] else _with_listed_name(step)
            for step in steps
        ]
    )


def _with_listed_name(step: TopStep) -> TopStep:
    own = step.names[0]
    listed = next((entry for entry in step.names[1:] if entry[0] == own[0]), own)
    if listed == own:
        return step
    said, other = spelling(own) or b"", spelling(listed) or b""
    # The chosen token's own name is better where it is that of the list, or lost nothing but a leading blank.
    if not other or (said and other.lstrip() == said) or not _is_whole_text(other):
        return step
    return step.renamed((listed, *step.names[1:]))


def _is_whole_text(spelled: bytes) -> bool:
    try:
        spelled.decode()
    except UnicodeDecodeError:
        return False
    return True


def without_quirks_of_names(steps: Sequence[TopStep], before: TopStep | None = None) -> tuple[TopStep, ...]:
    """The steps without the quirks of names that have no bytes; most engines give bytes with every name."""
    names = chain.from_iterable([step.names for step in steps])
    if all(map(SPELLED, names)) and (before is None or before.names[0][2]):
        return tuple(steps)
    return without_empty_bytes(without_borrowed_names(without_nameless_copies(steps), before))


def without_nameless_copies(steps: Sequence[TopStep]) -> tuple[TopStep, ...]:
    """The steps without an entry that has the chosen token's number and no name, if their lists lack the chosen token.

    Some gateways drop the names of a list. Then the chosen token would count twice.
    """
    return tuple([step if WITHOUT_NAME.isdisjoint(step.names) else _without_nameless_copy(step) for step in steps])


def _without_nameless_copy(step: TopStep) -> TopStep:
    chosen, own = step.names[0], step.log_probs[0]
    if is_unnamed(chosen) or chosen in step.names[1:]:
        return step
    named = zip(step.names, step.log_probs, strict=True)
    at = next((i for i, (name, number) in enumerate(named) if name in WITHOUT_NAME and number == own), 0)
    if not at:
        return step
    return TopStep.of_columns(step.names[:at] + step.names[at + 1 :], step.log_probs[:at] + step.log_probs[at + 1 :])


def without_borrowed_names(steps: Sequence[TopStep], before: TopStep | None = None) -> tuple[TopStep, ...]:
    """The steps without the name of a whole character for the last of the tokens that spell pieces of it.

    vLLM calls the token that completes a character by the whole of it, and the pieces before it by nothing. Taken by
    their names they would be other tokens. What a name says is kept behind a U+FFFD. With that of the chosen one the
    character is complete, so that the names of the next step are its own.
    """
    passed: list[TopStep] = []
    for step in steps:
        inside = before is not None and not before.names[0][2] and ends_inside(before.names[0])
        before = _without_borrowed_names(step) if inside else step
        passed.append(before)
    return tuple(passed)


def _without_borrowed_names(step: TopStep) -> TopStep:
    return step.renamed(map(_unborrowed, step.names))


def _said(name: Name) -> str:
    _, text, spelled = without_no_bytes(name)
    return (spelled or b"").decode("utf-8", "replace") if text is None else text


def _unborrowed(name: Name) -> Name:
    """A name that may be borrowed, with a U+FFFD before it, which marks it.

    What it says is either the character that the token ends, or, in a list, the token's own text.
    """
    said = _said(name)
    if not said or said[0].isascii() or is_unnamed(name):
        return without_no_bytes(name)
    if REPLACEMENT not in said:
        return name[0], REPLACEMENT + said, None
    return name[0], REPLACEMENT if name[0] is None else None, None


def without_empty_bytes(steps: Sequence[TopStep]) -> tuple[TopStep, ...]:
    """The steps with tokens by their texts alone where their bytes are an empty list, as for special tokens."""
    return tuple([_without_empty_bytes(step) if b"" in map(SPELLED, step.names) else step for step in steps])


def _without_empty_bytes(step: TopStep) -> TopStep:
    return step.renamed(list(map(without_no_bytes, step.names)))


def without_no_bytes(name: Name) -> Name:
    """The name, if its bytes are an empty list, by its text alone."""
    token_id, text, spelled = name
    return (token_id, text, None) if spelled == b"" else name


ON_READING: tuple[Callable[[Sequence[TopStep]], tuple[TopStep, ...]], ...] = (with_listed_names,)
"""From steps to those steps, before they are laid against the text of the message."""

ON_SCORING: tuple[Callable[[Sequence[TopStep], TopStep | None], tuple[TopStep, ...]], ...] = (without_quirks_of_names,)
"""From steps, and the step before them as it came out of here (None for the first), to those steps."""


# --- passes where the text does not fit, or the numbers do not


class Quirks(NamedTuple):
    """The steps of one answer and what is odd about them, before they are laid against the text of the message."""

    named: tuple[TopStep, ...]
    """The steps as they are scored (`as_scored`)."""
    in_files: tuple[TopStep, ...] | None
    """The steps with decoded names, if they are spelled as in the tokenizer's files (`steps_in_files`)."""
    twice: bool
    """True if some of them are there twice (`has_twice`)."""
    merged: int
    """The number of them that stand for all pieces of a character (`merged_steps`)."""


def quirks_of(steps: tuple[TopStep, ...]) -> Quirks:
    """Look once for all that may be odd about the steps of an answer."""
    named = as_scored(steps)
    return Quirks(named, steps_in_files(steps), has_twice(named), merged_steps(steps))


def steps_in_files(steps: Sequence[TopStep]) -> tuple[TopStep, ...] | None:
    """The steps with decoded names, if all are spelled as in the tokenizer's files; None if they are not.

    There a blank is "Ġ" or "▁", and a byte "<0x0A>"; no name holds white space itself.
    """
    # White space in one chosen name is enough to know that names are decoded text.
    if any(map(str.isspace, "".join([step.names[0][1] or "" for step in steps]))):
        return None
    whole = "".join([text for step in steps for _, text, _ in step.names if text])
    if not any(mark in whole for mark in (*BLANKS, "<0x")) or any(map(str.isspace, whole)):
        return None
    if not any(IN_FILES.match(text) for step in steps for _, text, _ in step.names if text):
        return None
    return tuple(step.renamed(map(_name_in_files, step.names)) for step in steps)


def _name_in_files(name: Name) -> Name:
    token_id, text, spelled = name
    if (
        not text
        or (spelled is not None and spelled != text.encode("utf-8", "surrogatepass"))
        or (is_markup(text) and not BYTE_TOKEN.match(text))
    ):
        return name
    piece = bytes_in_files(text)
    return name if piece is None else (token_id, piece.decode("utf-8", "replace"), piece)


def without_doubles(steps: Sequence[TopStep]) -> tuple[TopStep, ...]:
    """The steps without those that are equal to the step before in names and numbers."""
    return tuple(step for i, step in enumerate(steps) if not i or step != steps[i - 1])


def without_copied_lists(steps: Sequence[TopStep], before: TopStep | None = None) -> list[TopStep]:
    """Steps without the lists that are copies of the list before: such a list says nothing of its own step.

    Engines that decode several tokens at a time send one list for all of them. The chosen token's own number then
    contradicts it. `before` is the step before them as it came.
    """
    numbers = [step.log_probs[1:] for step in steps]
    last = None if before is None else before.log_probs[1:]
    if not any(map(eq, numbers, (last, *numbers))):
        return list(steps)
    return [
        step if last is None or step.log_probs[1:] != last.log_probs[1:] else _without_copied_list(step, last)
        for step, last in zip(steps, (before, *steps), strict=False)
    ]


def _without_copied_list(step: TopStep, before: TopStep) -> TopStep:
    """The step without its list, unless that may have the numbers of the list before by chance."""
    if len(step.names) < 3:
        return step
    if all(number == round(number, 3) for number in step.log_probs[1:]):
        return step  # so short that two lists may agree by chance
    own, chosen = step.log_probs[0], step.names[0]
    entries = zip(step.names[1:], step.log_probs[1:], strict=True)
    if step.names[1:] != before.names[1:] or any(
        may_be_one(chosen, name) is not False and is_same_number(own, number) for name, number in entries
    ):
        return step
    return TopStep.of_columns(step.names[:1], step.log_probs[:1])


# --- notes


def merged_steps(steps: Sequence[TopStep]) -> int:
    """The number of steps that stand for all pieces of a character and give the probability of the last piece alone.

    llama-server names such an item by the whole character, and by its own piece in its list.
    """
    if {step.names[0][0] for step in steps} <= {None}:
        return 0
    count, inside = 0, False
    for step in steps:
        own, *entries = step.names
        if not inside and own[0] is not None and own[2] and own[2][0] > ASCII_END:
            # The item has the whole character as its bytes, and the entry of the same id in its list has the last piece
            # of it.
            count += any(
                entry[0] == own[0] and entry[2] and entry[2][0] & 0xC0 == 0x80 and entry[2] != own[2]  # a later piece
                for entry in entries
            )
        inside = not own[2] and is_unnamed(own)
    return count


SURE = -1e-3
"""Numbers nearer to 0 are those of sure tokens, which share few values in float32 where no list is beside them."""
COARSE = 16
"""Logits in bfloat16 are multiples of an eighth or a sixteenth, so that lists of a few tokens agree by chance."""
MANY_RIVALS = 3
"""The number of entries of a list, beside the chosen token, from which on their numbers never agree by chance."""


def has_twice(steps: Sequence[TopStep]) -> bool:
    """True if a step is there twice with its list, or steps without lists are, one run directly behind the other.

    They must have the same names and numbers, and numbers that two steps do not share by chance.
    """
    if len({step.log_probs for step in steps}) == len(steps):
        return False
    last: dict[TopStep, int] = {}
    run, distance = 0, 0
    for i, step in enumerate(steps):
        before = last.get(step)
        last[step] = i
        if before is None or not _is_telling(step):
            run = 0
            continue
        # A chunk that came twice repeats its steps at one distance; other repeats are chance.
        run, distance = (run + 1 if run and i - before == distance else 1), i - before
        if run >= distance or len(set(step.log_probs)) > 1:
            return True
    return False


def _is_telling(step: TopStep) -> bool:
    """Return True if no other step has the numbers of this one by chance."""
    own, others = step.log_probs[0], {number for number in step.log_probs[1:] if is_given(number)}
    gaps = [(own - number) * COARSE for number in others if number != own]
    coarse = all(abs(gap - round(gap)) < 1e-3 for gap in gaps)
    return own != round(own, 4) and (not coarse or len(gaps) >= MANY_RIVALS if gaps else own < SURE)
