"""A choice of a reply in segments, and why those that cannot be scored cannot.

Engines spell, repeat and leave out tokens in ways of their own: the readings under which the steps fit the message are
tried in turn. What the list lacks is found by the count of tokens in the reply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from semtoken.choices import SegmentKind
from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.core.engine_tokens.passes import (
    as_scored,
    has_twice,
    merged_steps,
    steps_in_files,
    without_doubles,
    without_empty_bytes,
)
from semtoken.core.engine_tokens.placing import pieces_of, text_of_pieces
from semtoken.core.engine_tokens.token_names import MARKUP
from semtoken.core.engine_tokens.top_steps import NOT_GIVEN, StepList, TopStep
from semtoken.replies.division import Division, RawChoice, divide, main_segment
from semtoken.replies.ends import broken_end, end_notes, is_cut
from semtoken.replies.records import ReplyChoice, Segment
from semtoken.support.text import may_hold_marks, thinking_end, unclear_mark

KINDS: tuple[SegmentKind, ...] = ("reasoning", "answer", "refusal", "tool_call")
NO_LIST = StepList()
FORBIDDEN = "The engine forbade tokens (a grammar, allowed tokens): these are probabilities among the others."


def assemble(raw: RawChoice, ask: str, question: str | None = None) -> ReplyChoice:
    """The choice in segments, with the question that was asked; `ask` names the fields that bring log-probabilities."""
    raw = _thinking_apart(raw)
    main = main_segment(raw.texts)
    named = as_scored(raw.steps.steps)
    division = Division({main: raw.steps.steps}) if raw.steps.problem else _divided(raw, named)
    # Only where the steps do not fit: most engines leave the beginning that the request gave out of the message.
    rest = _behind_prefill(raw) if division.problem else None
    if rest is not None and (own := _divided(rest, named)).problem is None:
        raw, division = rest, replace(own, flags=(*own.flags, PREFILLED))
    flags = [*raw.flags, *division.flags, *_step_notes(named), *end_notes(raw.finish_reason)]
    lacking = lacking_steps(raw, division)
    flags += [note for note in (lacking.note,) if note]
    segments: list[Segment] = []
    for kind in KINDS:
        text, apart, steps = raw.texts.get(kind, ""), raw.apart.get(kind, NO_LIST), division.steps.get(kind, ())
        steps += apart.steps
        if not (text or steps):
            continue
        problem = apart.problem or raw.steps.problem or (division.problem if kind == "answer" else None)
        problem = problem or lacking.problem or _silence(kind, steps, raw, ask)
        segments.append(Segment(kind, text, steps, problem or (lacking.of_calls if kind == "tool_call" else None)))
    if not segments:
        segments.append(Segment("answer", "", (), _silence("answer", (), raw, ask)))
    broken = raw.broken or broken_end(raw.finish_reason)
    return ReplyChoice(raw.index, tuple(segments), raw.finish_reason, tuple(flags), broken, raw.calls, question)


def _divided(raw: RawChoice, named: tuple[TopStep, ...]) -> Division:
    """The steps among the parts of the message; read as in the tokenizer's file, or once each, where that fits."""
    in_files = steps_in_files(raw.steps.steps)
    # First as in the tokenizer's files; such a name is text in its own right where that does not fit the message.
    if in_files is not None:
        division = divide(replace(raw, steps=raw.steps._replace(steps=in_files)), in_files)
        if division.problem is None:
            return division
    division = divide(raw, named)
    if division.problem and any(name[1] and name[2] == b"" for name in (step.names[0] for step in raw.steps.steps)):
        spelled = StepList(tuple(map(without_empty_bytes, raw.steps.steps)))
        by_texts = divide(replace(raw, steps=spelled), named)  # some engines leave the bytes of a text out, as `[]`
        division = division if by_texts.problem else by_texts
    # Two equal steps are usual in a text that repeats itself, so that doubles are dropped only where that makes it fit.
    once = named if division.is_clear else without_doubles(named)
    if len(once) < len(named):
        again = divide(replace(raw, steps=StepList(once)), once)
        if again.is_clear:
            note = f"{len(named) - len(once)} of {len(named)} items are there twice: they count once."
            return replace(again, flags=(note,))
    return division


PREFILLED = (
    "The message begins with text that the list of log-probabilities does not hold, an assistant prefill: it does not "
    "count."
)


def _behind_prefill(raw: RawChoice) -> RawChoice | None:
    """The choice without the beginning of its answer that the model was given; None if it is not known to be one.

    The request tells. Without it the answer's end must be what all steps spell, of which the reply counts as many.
    """
    answer, given = raw.texts.get("answer", "").lstrip(), raw.prefill.strip()
    if given and answer.startswith(given):
        rest = answer[len(given) :]
    elif raw.counted == len(raw.steps.steps):
        rest = MARKUP.sub("", text_of_pieces(pieces_of(raw.steps.steps))).replace(REPLACEMENT, "").strip()
        rest = rest if answer.rstrip().endswith(rest) else ""
    else:
        return None
    return replace(raw, texts={**raw.texts, "answer": rest}) if rest.strip() else None


def _thinking_apart(raw: RawChoice) -> RawChoice:
    """The choice with what its text marks as thinking as reasoning: servers without a parser for it leave it there."""
    answer = raw.texts.get("answer", "")
    if not may_hold_marks(answer):
        return raw
    tokens = [step.names[0][1] for step in raw.steps.steps]
    # The server has a parser for the reasoning, so that such marks in the answer are its own text.
    if raw.texts.get("reasoning"):
        cut = 0
    else:
        cut = thinking_end(answer, lambda: tokens, opened=thinking_end(f"{raw.prefill}.") > len(raw.prefill))
    if cut:
        raw = replace(raw, texts={**raw.texts, "reasoning": answer[:cut], "answer": answer[cut:].lstrip()})
    mark = unclear_mark(raw.texts.get("answer", ""), tokens, thought="reasoning" in raw.texts)
    if mark is None:
        return raw
    note = f"The answer holds {mark}, as a thinking does: it is scored whole, with what may be reasoning."
    return replace(raw, flags=(*raw.flags, note))


class Lacking(NamedTuple):
    """What the list of steps lacks: a reason not to score it, or a note."""

    problem: str | None = None
    note: str | None = None
    of_calls: str | None = None
    """A reason not to score the tool calls, as `problem` is for all parts."""


UNSENT = (
    "tokens of the tool calls are missing. Streams of llama-server omit the name of the function and the JSON around "
    "the arguments: ask without `stream`."
)


def lacking_steps(raw: RawChoice, division: Division) -> Lacking:
    """Hold the count of tokens in a reply, and the names of its tokens, against the list of steps."""
    merged = merged_steps(raw.steps.steps)
    listed = len(raw.steps.steps) + sum(len(apart.steps) for apart in raw.apart.values())
    if merged:
        count = f"{raw.counted} tokens" if raw.counted else "more"
        return Lacking(
            f"{merged} of {listed} items stand for a character of several tokens and give the number of its last piece "
            f"only; the model wrote {count}, so numbers are missing. llama-server merges them so."
        )
    # Where the list leaves the reasoning out, its count holds tokens that are not missing.
    unlisted = raw.texts.get("reasoning") and not division.steps.get("reasoning")
    short = 0 if raw.counted is None or unlisted or not raw.steps.steps else raw.counted - listed
    if short <= 0:
        return Lacking()
    said = f"The reply counts {raw.counted} tokens and lists {listed}"
    if raw.texts.get("tool_call"):
        return Lacking(of_calls=f"{said}: {UNSENT}") if short > 1 else Lacking()
    # Many servers count the terminator and do not list it. An answer that was cut off has none.
    if short == 1 and not is_cut(raw.finish_reason):
        return Lacking(note=f"{said}: the terminator has no log-probability here and does not count.")
    # Only characters beyond ASCII take several tokens, so that nothing can have been merged here.
    if raw.texts.get("answer", "").isascii():
        return Lacking(note=f"{said}, which is fewer: steps are missing, or a reasoning is hidden.")
    return Lacking(
        f"{said}, which is fewer: steps are missing or merged (a character of several tokens), a reasoning is hidden, "
        "or end marks count."
    )


def _step_notes(steps: Sequence[TopStep]) -> Iterator[str]:
    """What a reader of a score should know of the steps, under names of their own."""
    if has_twice(steps):
        yield "Some items of the list are there twice, with the same numbers: a chunk may have come twice."
    if any(min(step.log_probs) <= NOT_GIVEN and min(step.log_probs[1:], default=0.0) <= NOT_GIVEN for step in steps):
        yield FORBIDDEN


def _silence(kind: SegmentKind, steps: Sequence[TopStep], raw: RawChoice, ask: str) -> str | None:
    """Why a part has no steps."""
    if steps:
        return None
    if not any(raw.texts.values()):
        return (
            f"The answer is empty (its end: {raw.finish_reason}) and has no log-probabilities: nothing is to be scored."
        )
    if raw.steps.steps or any(apart.steps for apart in raw.apart.values()):
        return f"The engine gives no log-probabilities for this part ({kind.replace('_', ' ')})."
    return (
        f"The reply holds no log-probabilities. Ask for them ({ask}); if that was done, the server drops them without "
        "a word, as `transformers serve` and some gateways do: `semtoken doctor --base-url URL` shows what an "
        "endpoint gives."
    )
