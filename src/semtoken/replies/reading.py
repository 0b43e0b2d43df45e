"""`ReplyReading`: one reply, whole or chunk by chunk, as the sum of the deltas that its shape finds -> Reply.

A shape gives a `Delta` for each choice of a reply or of a chunk; `ChoiceSum.add` adds them up. A whole reply has one
delta for each choice, a stream has many, and everything else is the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

from semtoken.choices import SegmentKind
from semtoken.core.engine_tokens.spellings import with_ids
from semtoken.core.engine_tokens.top_steps import StepList
from semtoken.core.parts import ToolCall
from semtoken.core.results import Distribution
from semtoken.errors import BackendError, InvalidInputError
from semtoken.replies.echo import Counts, prompt_length, without_prompt
from semtoken.replies.formats.base import NOTHING, Delta, Engine, Shape
from semtoken.replies.formats.fields import RawReply, prefill_of, raise_error
from semtoken.replies.formats.registry import shape_of_reply
from semtoken.replies.segments import FORBIDDEN, RawChoice, Reply, ReplyChoice, assemble, is_cut
from semtoken.support.questions import question_of

MIXED = "The chunks name several replies: those of two streams may be mixed."
SAID_AGAIN = (
    "Chunks of the stream repeat the tokens before them, so the answer stands in it several times: a gateway collects "
    "what it passes on. Ask without streaming, or the engine itself."
)
AFTER_THE_END = "More of the answer came after the server had said that it is complete: ask for one answer at a time."


class ReplyContext(NamedTuple):
    """Facts about a reply that it does not state itself."""

    request: RawReply = NOTHING
    temperature: float | None = None
    """The temperature, where it is known apart from the request."""
    engine: Engine | None = None
    """The engine that sent it; recognized by its fields by default."""
    line: Any = None
    """The value that the reply was saved in, where its question may be found."""


class ChoiceSum:
    """The sum of all deltas of one choice."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.texts: dict[SegmentKind, list[str]] = {}
        self.steps: list[StepList] = []
        self.apart: dict[SegmentKind, list[StepList]] = {}
        self.calls: dict[int, tuple[str, str]] = {}
        self.ids: tuple[int, ...] | None = None
        self.finish_reason: str | None = None
        self.stop: str | int | None = None
        self.counted: int | None = None
        self.broken: str | None = None
        self._ended = False

    def add(self, delta: Delta) -> None:
        """Add the content that a reply or a chunk has for the choice."""
        if delta.repeats:
            self.texts, self.calls, self._ended, self.broken = {}, {}, False, None
            # The last event of some streams repeats the texts without the numbers, which came before.
            self.steps = [] if delta.steps.steps or delta.steps.fault else self.steps
        for kind, text in delta.texts.items():
            self.texts.setdefault(kind, []).append(text)
        if delta.steps.steps or delta.steps.fault:
            self.steps.append(delta.steps)
        for kind, steps in delta.apart.items():
            self.apart.setdefault(kind, []).append(steps)
        for at, (name, arguments) in delta.calls.items():
            known = self.calls.get(at, ("", ""))
            self.calls[at] = (known[0] + name, known[1] + arguments)
        if delta.ids is not None:
            self.ids = (self.ids or ()) + delta.ids
        # More text behind the end comes from two answers under one index: their tokens would be multiplied.
        if self._ended and (delta.written or delta.steps.steps):
            self.broken = AFTER_THE_END
        self._ended = self._ended or delta.ended
        # Later chunks, such as the one with the usage, do not take back what was said.
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.stop = self.stop if delta.stop is None else delta.stop
        self.counted = self.counted if delta.counted is None else delta.counted

    @property
    def n_listed(self) -> int:
        """The number of steps that the engine has listed."""
        return sum(len(part.steps) for part in chain(self.steps, *self.apart.values()))


def read_whole(replies: Sequence[RawReply], shape: type[Shape] | None, context: ReplyContext) -> Reply:
    """Read a whole reply, or the replies of a batch; the fields show the shape where it is not known.

    `InvalidInputError` or `BackendError` says what is wrong with it.
    """
    for reply in replies:
        raise_error(reply)  # before anything else is read: it may hold choices, too
    reading = ReplyReading(shape or shape_of_reply(replies), context)
    reading.shape.require_whole(replies)
    for position, reply in enumerate(replies):
        n_before = len(reading.sums)
        # Each delta of a whole reply has to be a new choice.
        if len(reading.add(reply, position)) != len(reading.sums) - n_before:
            raise InvalidInputError("Two choices of the reply have the same index.")
    if not reading.sums:
        raise InvalidInputError("The reply holds no choices: there is nothing to read.")
    return reading.parsed_reply()


class ReplyReading:
    """A reply in progress: its shape, what is known besides, and the sum of each choice so far."""

    def __init__(self, shape: type[Shape], context: ReplyContext) -> None:
        self.shape = shape()
        """The shape, with the facts that the reply gives about itself."""
        self.context = context
        self.sums: dict[int, ChoiceSum] = {}

    def add(self, reply: RawReply, position: int = 0) -> list[Delta]:
        """Read a reply, its place in a batch given, or the next chunk of a stream; returns what was added."""
        deltas = []
        for delta in self.shape.deltas(reply, position):
            if delta.choice not in self.sums:
                self.sums[delta.choice] = ChoiceSum(delta.choice)
            self.sums[delta.choice].add(delta)
            deltas.append(delta)
        return deltas

    def parsed_reply(self) -> Reply:
        """All that has been read."""
        engine, choices = self.engine, tuple(map(self.choice, sorted(self.sums)))
        return Reply(self.shape.formats[engine], self.shape.model, self._distribution(choices, engine), choices)

    def choice(self, index: int) -> ReplyChoice:
        """The choice with this number in segments, as far as it has been read."""
        asked = question_of(self.context.request, index) if self.context.request else None
        return assemble(self._raw_choice(index), self.shape.ask, asked or question_of(self.context.line, index))

    @property
    def engine(self) -> Engine:
        """The engine that sent the reply, as it is known or as the fields of the reply show it."""
        return self.context.engine or self.shape.engine

    @property
    def format(self) -> str:
        """The name of the shape and engine, as far as has been read."""
        return self.shape.formats[self.engine]

    def distribution_of(self, choice: ReplyChoice) -> Distribution:
        """The distribution that the log-probabilities of a choice come from."""
        return self._distribution((choice,), self.engine)

    def _distribution(self, choices: Sequence[ReplyChoice], engine: Engine) -> Distribution:
        request, temperature, *_ = self.context
        if temperature is None and request:
            temperature = self.shape.temperature(request)
        masked = any(FORBIDDEN in choice.flags for choice in choices)
        return self.shape.distribution(engine, temperature, masked=masked)

    def _raw_choice(self, index: int) -> RawChoice:
        """The sum of a choice, with the facts about it from the shape, the request and the whole reply."""
        shape, request, known = self.shape, self.context.request, self.sums[index]
        texts: dict[SegmentKind, str] = {kind: "".join(parts) for kind, parts in known.texts.items() if any(parts)}
        if known.calls:
            texts["tool_call"] = "\n".join(f"{name}({arguments})" for name, arguments in known.calls.values())
        steps, flags = _with_ids(StepList.chained(known.steps), known.ids)
        counted = known.counted
        # Ids that have no step are tokens that the list lacks.
        if known.ids is not None and len(known.ids) > len(steps.steps):
            counted = max(counted or 0, len(known.ids))
        # The count is of all choices together, so that it says something of one choice only where there is one.
        if shape.counted is not None and len(self.sums) == 1:
            counted = shape.counted
        stops: tuple[str, ...] = (known.stop,) if isinstance(known.stop, str) else ()
        at_token, prefill = isinstance(known.stop, int), ""
        if request:
            stops = stops or shape.stop_texts(request)
            prefill = prefill_of(request) if shape.is_chat else ""
            # Where no text may end it, a token has.
            at_token |= known.finish_reason == shape.ends[0] and not shape.has_stop_texts(request)
        raw = RawChoice(
            choice=index,
            texts=texts,
            steps=steps,
            finish_reason=known.finish_reason,
            flags=(*flags, *self._notes()),
            apart={kind: StepList.chained(parts) for kind, parts in known.apart.items()},
            one_segment=shape.one_segment,
            stops=stops,
            at_token=at_token,
            counted=counted,
            broken=known.broken or (SAID_AGAIN if _repeat(known.steps) else None),
            prefill=prefill,
            calls=tuple(ToolCall(name, arguments) for name, arguments in known.calls.values()),
        )
        # Nothing comes before the first token of a prompt, so that it has no log-probability: that is how an echo is
        # known.
        return self._behind_prompt(raw) if shape.echoes and steps.missing[:1] == (0,) else raw

    def _notes(self) -> list[str]:
        """Notes for a reader that hold for all choices."""
        shape, choices = self.shape, self.sums.values()
        flags = [MIXED] if len(shape.ids) > 1 and max(shape.ids.values()) > 1 else []
        if shape.counted is not None and len(choices) > 1:  # perhaps that of one choice, as llama-server counts
            listed = sum(choice.n_listed for choice in choices)
            if shape.counted - listed > len(choices) and not any(choice.calls for choice in choices):
                flags.append(
                    f"The reply counts {shape.counted} tokens in all choices and lists {listed}: some are missing."
                )
        return flags

    def _behind_prompt(self, raw: RawChoice) -> RawChoice:
        """The choice without the prompt that it may repeat: then its first token has no number."""
        if self.context.request.get("echo") is False:
            return raw
        lengths = {at: sum(len(part.steps) for part in known.steps) for at, known in sorted(self.sums.items())}
        at_limit = all(is_cut(known.finish_reason) for known in self.sums.values())
        counts = Counts(self.shape.read, self.shape.counted)
        try:
            prompt = prompt_length([*lengths.values()], [*lengths].index(raw.choice), counts, at_limit=at_limit)
        except BackendError as error:
            return raw._replace(steps=raw.steps._replace(missing=(), fault=str(error)))
        if prompt is None:
            return raw
        steps, text = without_prompt(raw.steps, raw.texts.get("answer", ""), prompt)
        return raw._replace(steps=steps, texts={"answer": text}, flags=())


def _repeat(parts: Sequence[StepList]) -> bool:
    """True if each chunk has the steps of the one before and more, or the last has those of all others once more."""
    if len(parts) < 2:
        return False
    chunks = [part.steps for part in parts]
    if all(len(before) < len(more) and more[: len(before)] == before for before, more in pairwise(chunks)):
        return True
    return 2 < 2 * len(chunks[-1]) == sum(map(len, chunks)) and tuple(chain(*chunks[:-1])) == chunks[-1]


def _with_ids(steps: StepList, ids: Sequence[int] | None) -> tuple[StepList, tuple[str, ...]]:
    if ids is None or not steps.steps:
        return steps, ()
    if len(ids) != len(steps.steps):
        return steps, (f"{len(ids)} token ids do not fit {len(steps.steps)} steps; they are not used.",)
    return StepList(with_ids(steps.steps, ids), steps.missing, steps.fault), ()
