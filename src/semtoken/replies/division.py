"""One list of steps for all that a model wrote, divided among the parts of its message.

Engines give one list of log-probabilities and cut the text into reasoning, answer and tool calls apart from it. The
steps that spell the answer are found by laying the tokens' bytes against the text of the message. What comes before
them is reasoning; what comes after them are tool calls, or the end of the answer (a terminator, a stop string).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from semtoken.choices import SegmentKind
from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.core.engine_tokens.placing import (
    SpelledText,
    end_of_answer,
    find_text,
    pieces_of,
    place_of_answer,
    text_of_pieces,
)
from semtoken.core.engine_tokens.top_steps import StepList, TopStep, spelling
from semtoken.core.parts import ToolCall
from semtoken.replies.ends import is_cut

BROKEN = "have bytes that make no character: pieces of it are missing, or the engine gives wrong bytes."


@dataclass(frozen=True)
class RawChoice:
    """A choice with texts and steps as its engine gave them, before steps are divided among segments."""

    index: int
    texts: Mapping[SegmentKind, str]
    steps: StepList
    """The steps of everything that the model wrote, or of a part of it."""
    finish_reason: str | None = None
    flags: tuple[str, ...] = ()
    apart: Mapping[SegmentKind, StepList] = field(default_factory=dict)
    """Steps that the engine lists under a segment of their own."""
    one_segment: bool = False
    """Whether all that the model wrote is the answer, since the engine does not divide it."""
    stops: tuple[str, ...] = ()
    """The text at which the engine stopped, if it says so; otherwise those at which it was asked to."""
    at_token: bool = False
    """Whether a token is known to have ended the choice, whatever it spells."""
    counted: int | None = None
    """How many tokens the model wrote, as the reply counts them; None if it does not say."""
    broken: str | None = None
    """Why the choice is not whole."""
    prefill: str = ""
    """The beginning of the answer that the request gave to the model; some engines repeat it in the message."""
    calls: tuple[ToolCall, ...] = ()
    """The tool calls that the engine gives apart."""


@dataclass(frozen=True)
class Division:
    """How the steps of a choice are divided among its segments."""

    steps: Mapping[SegmentKind, tuple[TopStep, ...]]
    flags: tuple[str, ...] = ()
    problem: str | None = None
    """Why the steps of the answer cannot be trusted."""
    unsure: bool = False
    """Whether a step after the answer is not known to end it."""

    @property
    def is_clear(self) -> bool:
        """Whether nothing speaks against it."""
        return not (self.problem or self.flags or self.unsure)


def main_segment(texts: Mapping[SegmentKind, str]) -> SegmentKind:
    """The segment that gets all steps that do not spell another one."""
    if texts.get("answer", "").strip():
        return "answer"
    return next((kind for kind in ("refusal", "tool_call", "reasoning") if texts.get(kind)), "answer")


def divide(raw: RawChoice, steps: tuple[TopStep, ...]) -> Division:
    """Divide the steps among the parts of the message."""
    texts = raw.texts
    if not raw.steps.steps:
        return Division({})
    if _are_the_answer(raw.steps.steps, texts):
        return Division({"answer": steps})
    pieces = pieces_of(raw.steps.steps)
    reasoning = texts.get("reasoning", "")
    reasoning_range = find_text(pieces, reasoning, last=False) if reasoning.strip() else None
    first = 0 if reasoning_range is None else reasoning_range[1]
    main = main_segment(texts)
    if main == "reasoning" or (main == "answer" and not texts.get("answer", "").strip()):
        return _without_answer(steps, text_of_pieces(pieces), main)
    if main != "answer":
        return Division({"reasoning": steps[:first], main: steps[first:]})
    place = place_of_answer(pieces[first:], texts["answer"], raw.stops, called="tool_call" in texts)
    if place.problem:
        return Division({"answer": steps}, problem=place.problem)
    start, end = first + place.start, first + place.end
    unread = bool(place.before and reasoning)
    all_blank = not reasoning and not text_of_pieces(pieces[:start]).strip()
    start = 0 if (raw.one_segment and not reasoning) or all_blank else _from_blanks(pieces, start, texts["answer"])
    called = "tool_call" in texts
    end = end_of_answer(pieces, end, texts["answer"], at_token=raw.at_token, called=called)
    division = _around_answer(steps, start, end, texts, unread=unread, unsure=place.behind)
    # The last character of an answer that was cut off may rightly lack bytes.
    cut = is_cut(raw.finish_reason)
    broken = REPLACEMENT not in texts["answer"] and sum(piece.broken for piece in pieces[start : end - cut])
    return replace(division, flags=(*division.flags, f"{broken} tokens {BROKEN}")) if broken else division


def _are_the_answer(steps: Sequence[TopStep], texts: Mapping[SegmentKind, str]) -> bool:
    """Whether the steps spell the answer and nothing else was written, as mostly: the pieces would tell the same."""
    answer = texts.get("answer", "")
    if len(texts) > 1 or not answer.strip() or REPLACEMENT in answer:
        return False
    spelled = [spelling(step.names[0]) for step in steps]
    return None not in spelled and b"".join(filter(None, spelled)).decode("utf-8", "replace") == answer


def _from_blanks(pieces: Sequence[SpelledText], start: int, answer: str) -> int:
    """`start` moved back over the blanks that the answer begins with."""
    blanks = len(answer) - len(answer.lstrip())
    while start and (text := pieces[start - 1].text) and not text.strip() and len(text) <= blanks:
        start, blanks = start - 1, blanks - len(text)
    return start


def _without_answer(steps: tuple[TopStep, ...], spelled: str, main: SegmentKind) -> Division:
    if main == "reasoning" or len(steps) == 1 or not spelled.strip():
        return Division({main: steps})
    note = f"The message is empty, but {len(steps)} tokens were written: they are taken as reasoning."
    return Division({"reasoning": steps}, (note,))


def _around_answer(
    steps: tuple[TopStep, ...], start: int, end: int, texts: Mapping[SegmentKind, str], *, unread: bool, unsure: bool
) -> Division:
    """The steps up to the end of the answer; those after it are a tool call, or belong to no part."""
    flags: list[str] = []
    if start and not texts.get("reasoning"):
        flags.append(f"The first {start} tokens are not in the message: they are taken as reasoning.")
    if unread:
        flags.append("Tokens between reasoning and answer are not in the message: the answer's beginning may be lost.")
    if texts.get("tool_call"):
        parts: dict[SegmentKind, tuple[TopStep, ...]] = {"answer": steps[start:end], "tool_call": steps[end:]}
    else:
        parts = {"answer": steps[start:end]}
        if unsure:
            flags.append(_behind_note(len(steps) - end))
    return Division(parts | {"reasoning": steps[:start]}, tuple(flags), unsure=unsure)


def _behind_note(dropped: int) -> str:
    """What is said of tokens after the answer that are not known to end it; all may count, as pieces of characters."""
    if not dropped:
        return "The last tokens are not in the message: pieces of characters, which it has lost."
    return (
        f"The last {dropped} tokens are not in the message and do not count: a stop string that the reply does not "
        "name, or what came after it."
    )
