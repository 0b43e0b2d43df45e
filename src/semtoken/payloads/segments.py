"""One list of steps for all that a model wrote -> the segments of a choice.

Engines give one list of log-probabilities and cut the text into reasoning, answer and tool calls apart from it. The
steps that spell the answer are found by their bytes. What comes before them is reasoning; what comes after them are
tool calls, or the end of the answer (a terminator, a stop string).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from semtoken.choices import SegmentKind
from semtoken.engine_tokens.spellings import BorrowedNames, is_unnamed, spelling
from semtoken.engine_tokens.top_steps import NOT_GIVEN, StepList, TopStep
from semtoken.payloads.align import SpelledText, find_text, joined, pieces_of
from semtoken.payloads.payload import PayloadChoice, Segment
from semtoken.tokens.tokenizers import REPLACEMENT

KINDS: tuple[SegmentKind, ...] = ("reasoning", "answer", "refusal", "tool_call")
FORBIDDEN = "The engine forbade tokens (a grammar, allowed tokens): these are probabilities among the others."
SHOWN = 60  # characters of a text in a message


@dataclass(frozen=True)
class RawChoice:
    """A choice as its engine gives it: texts here, steps there."""

    index: int
    texts: Mapping[SegmentKind, str]
    steps: StepList
    """Those of everything that the model wrote, or of a part of it."""
    finish_reason: str | None = None
    flags: tuple[str, ...] = ()
    apart: Mapping[SegmentKind, StepList] = field(default_factory=dict)
    """Steps that the engine lists under a segment of their own."""
    one_segment: bool = False
    """The engine does not divide what the model wrote: all of it is answer."""


@dataclass(frozen=True)
class Division:
    """Which steps belong to which segment."""

    steps: Mapping[SegmentKind, tuple[TopStep, ...]]
    flags: tuple[str, ...] = ()
    problem: str | None = None
    """Why the steps of the answer cannot be trusted."""


def assemble(raw: RawChoice, ask: str) -> PayloadChoice:
    """The choice in segments; `ask` names the request fields that bring log-probabilities."""
    main = main_segment(raw.texts)
    named = BorrowedNames().without(raw.steps.steps)
    division = Division({main: raw.steps.steps}) if raw.steps.problem else divide(raw, named)
    flags = [*raw.flags, *division.flags, *_noticed(named)]
    segments: list[Segment] = []
    for kind in KINDS:
        text, apart = raw.texts.get(kind, ""), raw.apart.get(kind, StepList())
        steps = division.steps.get(kind, ()) + apart.steps
        if not (text or steps):
            continue
        problem = apart.problem or raw.steps.problem or (division.problem if kind == "answer" else None)
        segments.append(Segment(kind, text, steps, problem or _silence(kind, steps, raw, ask)))
    if not segments:
        segments.append(Segment("answer", "", (), _silence("answer", (), raw, ask)))
    return PayloadChoice(raw.index, tuple(segments), raw.finish_reason, tuple(flags))


def _noticed(steps: Sequence[TopStep]) -> Iterator[str]:
    """What a reader of a score should know of the steps, under names of their own."""
    pieces = sum(step.names[0][0] is None and is_unnamed(step.names[0]) for step in steps)
    if pieces:
        yield f"{pieces} tokens are pieces of characters that the engine does not name: ask for token ids."
    if any(min(step.log_probs) <= NOT_GIVEN and min(step.log_probs[1:], default=0.0) <= NOT_GIVEN for step in steps):
        yield FORBIDDEN


def _silence(kind: SegmentKind, steps: Sequence[TopStep], raw: RawChoice, ask: str) -> str | None:
    """Why a part has no steps."""
    if steps:
        return None
    if raw.steps.steps or any(apart.steps for apart in raw.apart.values()):
        return f"The engine gives no log-probabilities for this part ({kind.replace('_', ' ')})."
    return (
        f"The reply holds no log-probabilities. Ask for them ({ask}); if that was done, the server drops them without "
        "a word, as `transformers serve` and some gateways do: `semtoken doctor` shows what an endpoint gives. "
        "`semtoken proxy --read-with MODEL` scores such answers with a model that reads them."
    )


def main_segment(texts: Mapping[SegmentKind, str]) -> SegmentKind:
    """The part that steps belong to unless they spell another."""
    if texts.get("answer", "").strip():
        return "answer"
    return next((kind for kind in ("refusal", "tool_call", "reasoning") if texts.get(kind)), "answer")


def divide(raw: RawChoice, steps: tuple[TopStep, ...]) -> Division:
    """Give every step, under a name of its own, to a part of the message."""
    texts = raw.texts
    if not raw.steps.steps:
        return Division({})
    if _are_the_answer(raw.steps.steps, texts):
        return Division({"answer": steps})
    pieces = pieces_of(raw.steps.steps)
    reasoning = texts.get("reasoning", "")
    found = find_text(pieces, reasoning, last=False) if reasoning.strip() else None
    first = 0 if found is None else found[1]
    main = main_segment(texts)
    if main == "reasoning" or (main == "answer" and not texts.get("answer", "").strip()):
        return _without_answer(steps, joined(pieces), main)
    if main != "answer":
        return Division({"reasoning": steps[:first], main: steps[first:]})
    span = find_text(pieces[first:], texts["answer"], last="tool_call" not in texts)
    if span is None:
        return Division({"answer": steps}, problem=_mismatch(joined(pieces[first:]), texts["answer"]))
    start, end = first + span[0], first + span[1]
    all_blank = not reasoning and not joined(pieces[:start]).strip()
    start = 0 if raw.one_segment or all_blank else _from_blanks(pieces, start, texts["answer"])
    return _around_answer(steps, start, end, texts)


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


def _around_answer(steps: tuple[TopStep, ...], start: int, end: int, texts: Mapping[SegmentKind, str]) -> Division:
    flags: list[str] = []
    if start and not texts.get("reasoning"):
        flags.append(f"The first {start} tokens are not in the message: they are taken as reasoning.")
    if texts.get("tool_call"):
        parts: dict[SegmentKind, tuple[TopStep, ...]] = {"answer": steps[start:end], "tool_call": steps[end:]}
    else:
        parts = {"answer": steps[start:]}
        if steps[end + 1 :]:
            flags.append(f"The last {len(steps) - end} tokens are not in the message: they are taken as its end.")
    return Division(parts | {"reasoning": steps[:start]}, tuple(flags))


def _mismatch(spelled: str, answer: str) -> str:
    """The first place where tokens and message differ."""
    at = next(
        (i for i, (a, b) in enumerate(zip(spelled, answer, strict=False)) if a != b), min(len(spelled), len(answer))
    )
    begin = max(0, at - SHOWN // 3)
    return (
        f"The log-probabilities do not spell the message: from character {begin} on it says "
        f"{answer[begin : begin + SHOWN]!r}, the tokens {spelled[begin : begin + SHOWN]!r}. Steps are missing or "
        "merged, or a parser changed the text: ask without streaming, without a reasoning or tool parser, or ask the "
        "engine itself instead of a gateway."
    )
