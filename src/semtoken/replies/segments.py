"""The plain records of any engine's reply; one list of steps for all that a model wrote -> its segments.

Engines give one list of log-probabilities and cut the text into reasoning, answer and tool calls apart from it. The
steps that spell the answer are found by laying the tokens' bytes against the text of the message. What comes before
them is reasoning; what comes after them are tool calls, or the end of the answer (a terminator, a stop string).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from semtoken.choices import SegmentKind
from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.core.engine_tokens.passes import (
    Quirks,
    quirks_of,
    without_doubles,
    without_empty_bytes,
)
from semtoken.core.engine_tokens.placing import (
    SpelledText,
    end_of_answer,
    find_text,
    pieces_of,
    place_of_answer,
    text_of_pieces,
)
from semtoken.core.engine_tokens.token_names import MARKUP
from semtoken.core.engine_tokens.top_steps import NOT_GIVEN, StepList, TopStep, spellings
from semtoken.core.parts import ToolCall
from semtoken.core.results import Distribution
from semtoken.support.thinking import may_hold_marks, thinking_end, unclear_mark


@dataclass(frozen=True)
class Segment:
    """A part of one choice: what the user reads, or what came with it."""

    kind: SegmentKind
    """`answer`, `reasoning`, `refusal` or `tool_call`."""
    text: str
    """The text of this part of the message."""
    steps: tuple[TopStep, ...]
    """The decoding steps, each with its best tokens; empty where the engine gives no log-probabilities for it."""
    problem: str | None = None
    """The reason why its steps cannot be scored, and what to do; None if they can."""


@dataclass(frozen=True)
class ReplyChoice:
    """One of the answers of a reply."""

    index: int
    """The number of the choice in its reply, from 0."""
    segments: tuple[Segment, ...]
    """Segments in the order in which the model wrote them, at most one of each kind."""
    finish_reason: str | None = None
    """The reason why the engine ended it, in the engine's words; None if it does not say."""
    flags: tuple[str, ...] = ()
    """Notes for a reader of the score, one sentence each."""
    broken: str | None = None
    """The reason why the choice is not whole and cannot be scored: its stream broke off, or went on after its end."""
    calls: tuple[ToolCall, ...] = ()
    """The tool calls that the engine read out of what the model wrote, with arguments as the engine gives them."""
    question: str | None = field(default=None, compare=False)
    """The question, as the request or the saved line around the reply has it; None if it is not known."""
    cut: bool | None = None
    """True if the token limit ended it; None if the engine does not say why it ended."""

    def segment(self, kind: SegmentKind) -> Segment | None:
        """The part of this kind; None if the choice has none."""
        return next((segment for segment in self.segments if segment.kind == kind), None)


@dataclass(frozen=True)
class Reply:
    """The reply of an engine in semtoken's form: its choices and what their log-probabilities are."""

    format: str
    """The format of the reply, one of `semtoken.replies.known_formats()`."""
    model: str | None
    """The model's name in the reply, if it has one."""
    distribution: Distribution
    """The distribution of the log-probabilities: `raw`, `processed` or `unknown`."""
    choices: tuple[ReplyChoice, ...]
    """The choices in the order of their index."""


@dataclass(frozen=True)
class ReplyEvent:
    """The text and steps that a chunk of a stream added to one segment of a choice."""

    choice: int
    """The index of the choice."""
    kind: SegmentKind
    """The kind of segment: the answer, reasoning, a refusal or a tool call."""
    text: str
    """The text that the message gained."""
    steps: tuple[TopStep, ...]
    """The steps that became known to belong to this part; they may come a chunk later than their text."""


CUT_ENDS = (
    "length",
    "limit",
    "token_limit",
    "max_tokens",
    "max_output_tokens",
    "max_completion_tokens",
    "model_length",
    "model_context_window_exceeded",
)
"""The reasons that engines give for an answer that the token limit ended, in small letters."""


def is_cut(finish_reason: str | None) -> bool:
    """Return True if the token limit ended an answer, by the reason that its engine gives for its end."""
    return (finish_reason or "").casefold().removeprefix("finish_reason_") in CUT_ENDS


BROKEN = "have bytes that make no character: pieces of it are missing, or the engine gives wrong bytes."
TWICE = "Some items of the list are there twice, with the same numbers: a chunk may have come twice."
KINDS: tuple[SegmentKind, ...] = ("reasoning", "answer", "refusal", "tool_call")
FORBIDDEN = "The engine forbade tokens (a grammar, allowed tokens): these are probabilities among the others."


class RawChoice(NamedTuple):
    """A choice with texts and steps as its engine gave them, before steps are divided among segments."""

    choice: int
    """The index of the choice."""
    texts: Mapping[SegmentKind, str]
    steps: StepList
    """The steps of everything that the model wrote, or of a part of it."""
    finish_reason: str | None
    flags: tuple[str, ...]
    apart: Mapping[SegmentKind, StepList]
    """Steps that the engine lists under a segment of their own."""
    one_segment: bool
    """True if all that the model wrote is the answer, since the engine does not divide it."""
    stops: tuple[str, ...]
    """The text at which the engine stopped, if it says so; otherwise those at which it was asked to."""
    at_token: bool
    """True if a token is known to have ended the choice, whatever it spells."""
    counted: int | None
    """The number of tokens that the model wrote, as the reply counts them; None if it does not say."""
    broken: str | None
    """The reason why the choice is not whole."""
    prefill: str
    """The beginning of the answer that the request gave to the model; some engines repeat it in the message."""
    calls: tuple[ToolCall, ...]
    """The tool calls that the engine gives apart."""


class Division(NamedTuple):
    """The steps of a choice, divided among its segments, and doubts about this division."""

    steps: Mapping[SegmentKind, tuple[TopStep, ...]]
    flags: tuple[str, ...] = ()
    problem: str | None = None
    """The reason why the steps of the answer cannot be trusted."""
    unsure: bool = False
    """True if a step after the answer is not known to end it."""

    @property
    def is_clear(self) -> bool:
        """True if nothing speaks against it."""
        return not (self.problem or self.flags or self.unsure)


def assemble(raw: RawChoice, ask: str, question: str | None = None) -> ReplyChoice:
    """The choice in segments, with the question that was asked; `ask` names the fields that bring log-probabilities."""
    raw = _thinking_apart(raw)
    fault, quirks = raw.steps.problem, quirks_of(raw.steps.steps)
    division = Division({main_segment(raw.texts): raw.steps.steps}) if fault else _divided(raw, quirks)
    # Only where the steps do not fit: most engines leave the beginning that the request gave out of the message.
    rest = _behind_prefill(raw) if division.problem else None
    if rest is not None and (own := _divided(rest, quirks)).problem is None:
        raw, division = rest, own._replace(flags=(*own.flags, PREFILLED))
    ending = stated_end(raw.finish_reason)
    flags = [*raw.flags, *division.flags, *_step_notes(quirks), *ending.notes]
    lacking = lacking_steps(raw, division, quirks.merged)
    flags += [note for note in (lacking.note,) if note]
    segments: list[Segment] = []
    for kind in KINDS:
        text, steps, problem = raw.texts.get(kind, ""), division.steps.get(kind, ()), None
        if kind in raw.apart:
            steps, problem = steps + raw.apart[kind].steps, raw.apart[kind].problem
        if not (text or steps):
            continue
        problem = problem or fault or (division.problem if kind == "answer" else None)
        problem = problem or lacking.problem or _silence(kind, steps, raw, division, ask)
        segments.append(Segment(kind, text, steps, problem or (lacking.of_calls if kind == "tool_call" else None)))
    if not segments:
        segments.append(Segment("answer", "", (), _silence("answer", (), raw, division, ask)))
    return ReplyChoice(
        index=raw.choice,
        segments=tuple(segments),
        finish_reason=raw.finish_reason,
        flags=tuple(flags),
        broken=raw.broken or ending.broken,
        calls=raw.calls,
        question=question,
        cut=ending.cut,
    )


def _divided(raw: RawChoice, quirks: Quirks) -> Division:
    """Divide the steps among the parts of the message.

    Names are read as in the tokenizer's files where that fits, and equal steps count once where only that fits.
    """
    named, in_files = quirks.named, quirks.in_files
    # First as in the tokenizer's files; such a name is text in its own right where that does not fit the message.
    if in_files is not None:
        division = divide(raw._replace(steps=raw.steps._replace(steps=in_files)), in_files)
        if division.problem is None:
            return division
    division = divide(raw, named)
    if division.problem and any(name[1] and name[2] == b"" for name in (step.names[0] for step in raw.steps.steps)):
        spelled = StepList(without_empty_bytes(raw.steps.steps))
        by_texts = divide(raw._replace(steps=spelled), named)  # some engines leave the bytes of a text out, as `[]`
        division = division if by_texts.problem else by_texts
    # Two equal steps are usual in a text that repeats itself, so that doubles are dropped only where that makes it fit.
    once = named if division.is_clear else without_doubles(named)
    if len(once) < len(named):
        again = divide(raw._replace(steps=StepList(once)), once)
        if again.is_clear:
            note = f"{len(named) - len(once)} of {len(named)} items are there twice: they count once."
            return again._replace(flags=(note,))
    return division


PREFILLED = (
    "The message begins with text that the list of log-probabilities does not hold, an assistant prefill: it does not "
    "count."
)


def _behind_prefill(raw: RawChoice) -> RawChoice | None:
    """The choice without the beginning of its answer that the model was given; None if none is known.

    The request shows it. Without it all steps must spell the end of the answer, and the reply must count as many.
    """
    answer, given = raw.texts.get("answer", "").lstrip(), raw.prefill.strip()
    if given and answer.startswith(given):
        rest = answer[len(given) :]
    elif raw.counted == len(raw.steps.steps):
        rest = MARKUP.sub("", text_of_pieces(pieces_of(raw.steps.steps))).replace(REPLACEMENT, "").strip()
        rest = rest if answer.rstrip().endswith(rest) else ""
    else:
        return None
    return raw._replace(texts={**raw.texts, "answer": rest}) if rest.strip() else None


def _thinking_apart(raw: RawChoice) -> RawChoice:
    """The choice with the marked thinking of its text as reasoning: servers without a parser leave it in the answer."""
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
        raw = raw._replace(texts={**raw.texts, "reasoning": answer[:cut], "answer": answer[cut:].lstrip()})
    mark = unclear_mark(raw.texts.get("answer", ""), tokens, thought="reasoning" in raw.texts)
    if mark is None:
        return raw
    note = f"The answer holds {mark}, as a thinking does: it is scored whole, with what may be reasoning."
    return raw._replace(flags=(*raw.flags, note))


NORMAL_END = re.compile(
    r"(finish_reason_)?stop|tool_(calls?|use)|function_call|eos(_token|_found)?|word|"
    r"end(_turn|_?of_?(text|turn))?|stop_(sequence|token|str)|completed?|finished|pause_turn"
)
BROKEN_END = re.compile(
    r"error|abort(ed)?|cancell?ed|failed|in_progress|queued|incomplete|network_error|interrupted|timeout|unknown|"
    r"insufficient_system_resource|finish_reason_unspecified"
)


def is_whole(reason: str | None) -> bool:
    """True if an answer with this reason of its end is all that the model meant to write; not where there is none."""
    said = (reason or "").casefold()
    return NORMAL_END.fullmatch(said) is not None and said != "pause_turn"


class StatedEnd(NamedTuple):
    """The meaning of the reason that an engine gives for the end of an answer."""

    cut: bool | None = None
    """True if the token limit ended it; None where no reason is given."""
    notes: tuple[str, ...] = ()
    """Notes for a reader on an end that is none of the model's own."""
    broken: str | None = None
    """A sentence on why the answer is not whole; None if it is."""


def stated_end(reason: str | None) -> StatedEnd:
    """The meaning of a reason for the end of an answer; None where the engine gives none."""
    if reason is None:
        return StatedEnd()
    said, cut = reason.casefold(), is_cut(reason)
    if not said or cut or NORMAL_END.fullmatch(said):
        return StatedEnd(cut)
    if BROKEN_END.fullmatch(said):
        broken = f"The server broke the answer off (its reason: {reason!r}), so steps may be missing. Ask again."
        return StatedEnd(cut, broken=broken)
    note = f"The server ended the answer with {reason!r}: it is cut off there, and the model had not ended it."
    return StatedEnd(cut, (note,))


class Lacking(NamedTuple):
    """A gap in the list of steps: a reason not to score it, or a note."""

    problem: str | None = None
    note: str | None = None
    of_calls: str | None = None
    """A reason not to score the tool calls, as `problem` is for all parts."""


UNSENT = (
    "tokens of the tool calls are missing. Streams of llama-server omit the name of the function and the JSON around "
    "the arguments: ask without `stream`."
)


def lacking_steps(raw: RawChoice, division: Division, merged: int) -> Lacking:
    """Hold the count of tokens in a reply against the list of steps, of which some may be `merged`."""
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


def _step_notes(quirks: Quirks) -> list[str]:
    """Notes for a reader of the score on the steps."""
    # A chosen token without a number is no sign of that; mostly no token is without one.
    lowest = [step for step in quirks.named if min(step.log_probs) <= NOT_GIVEN]
    forbidden = any(min(step.log_probs[1:], default=0.0) <= NOT_GIVEN for step in lowest)
    return [TWICE] * quirks.twice + [FORBIDDEN] * forbidden


def _silence(kind: SegmentKind, steps: Sequence[TopStep], raw: RawChoice, division: Division, ask: str) -> str | None:
    """The reason why a part has no steps; None if it has some."""
    if steps:
        return None
    if raw.steps.steps and not division.steps:
        return "The answer is empty, since its stop string opens it: nothing is to be scored."
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
        spelled = text_of_pieces(pieces)
        if main == "answer" and any(begin.startswith(raw.stops) for begin in (spelled, spelled.lstrip())):
            return Division({})  # the engine stopped before it had written anything
        return _without_answer(steps, spelled, main)
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
    return division._replace(flags=(*division.flags, f"{broken} tokens {BROKEN}")) if broken else division


def _are_the_answer(steps: Sequence[TopStep], texts: Mapping[SegmentKind, str]) -> bool:
    """True if the steps spell the answer and nothing else was written, as mostly: the pieces would show the same."""
    answer = texts.get("answer", "")
    if len(texts) > 1 or not answer.strip() or REPLACEMENT in answer:
        return False
    spelled = spellings([step.names[0] for step in steps])
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
    """A note on tokens after the answer that are not known to end it; all may count, as pieces of characters."""
    if not dropped:
        return "The last tokens are not in the message: pieces of characters, which it has lost."
    return (
        f"The last {dropped} tokens are not in the message and do not count: a stop string that the reply does not "
        "name, or what came after it."
    )
