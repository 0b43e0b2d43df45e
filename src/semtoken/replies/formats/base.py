"""What a reply shape is: one class that asks one API for log-probabilities and knows its replies.

It says what a request asked for and how it asks for more; it reads replies, whole and in chunks; and it says where in
them choices, texts and numbers stand, for those who pass replies on with something added (`semtoken proxy`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeAlias

from semtoken.choices import SegmentKind
from semtoken.core.engine_tokens.spellings import steps_from_items, with_ids
from semtoken.core.engine_tokens.top_steps import (
    StepList,
    TopStep,
    as_id,
    as_list,
    as_object,
    optional,
    text_or_empty,
)
from semtoken.core.parts import ToolCall
from semtoken.core.results import Distribution
from semtoken.errors import BackendError, InvalidInputError
from semtoken.replies.segments import FORBIDDEN, RawChoice, Reply, ReplyChoice, assemble
from semtoken.support.questions import question_of
from semtoken.support.splice import Change, Drop, Keep, Path, Replace
from semtoken.support.text import error_text

RawReply: TypeAlias = Mapping[str, Any]
Engine: TypeAlias = str
"""The name of an engine, one of those that the shapes have in `formats`."""
ALL = 1 << 30
"""Stands for all log-probabilities of a step: more than any server gives."""
NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True)
class ProbeQuestion:
    """A request in no particular shape: a prompt, limits, and the log-probabilities to ask for."""

    prompt: str
    max_tokens: int = 1
    top: int | None = None
    """How many log-probabilities to ask for at each token; None: none are asked for."""
    temperature: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None


@dataclass(frozen=True)
class HiddenFields:
    """The fields of a reply that the proxy asked for and the client did not, so that they are taken out again."""

    kept: int | None
    """How many log-probabilities of other tokens the client sees at each step besides the chosen token's; None: it sees
    none at all."""
    ids: bool = False
    """Whether the proxy asked for token ids, too."""
    request: RawReply = field(default_factory=dict)


class Told(NamedTuple):
    """What is known of a reply besides what it says itself."""

    request: RawReply = NOTHING
    temperature: float | None = None
    """The temperature, where it is known apart from the request."""
    engine: Engine | None = None
    """The engine that sent it; recognised by its fields by default."""
    line: Any = None
    """What the reply was saved in, where its question may be found."""


class Place(NamedTuple):
    """The paths at which the parts of one choice stand in a reply or an event."""

    choice: int | None
    """The index of the choice; None where what stands there is no index."""
    path: Path
    """The path of the object that takes the `semtoken` block."""
    ended: bool = False
    """Whether the engine says that the choice is complete."""
    goes_on: bool = False
    """Whether text of the answer stands there, and more may follow."""


class Delta(NamedTuple):
    """The content that a whole reply has for one choice, or that a chunk of a stream adds to it."""

    choice: int
    texts: Mapping[SegmentKind, str] = NOTHING
    steps: StepList = StepList()
    """The steps of whatever was written; not yet given to a segment."""
    apart: Mapping[SegmentKind, StepList] = NOTHING
    """Steps that the engine lists under a segment of their own."""
    calls: Mapping[int, tuple[str, str]] = NOTHING
    """Name and arguments (or a piece of them) of each tool call, by its index; -1 is `function_call`."""
    ids: tuple[int, ...] | None = None
    """Ids of the tokens, which some engines list beside the steps."""
    finish_reason: str | None = None
    ended: bool = False
    """Whether the engine says that the choice is complete."""
    stop: str | int | None = None
    """The text at which the engine stopped, or the id of the token, if it says so."""
    counted: int | None = None
    """How many tokens the engine counts in the choice so far."""

    @property
    def written(self) -> Mapping[SegmentKind, str]:
        """The texts of the delta by segment, tool calls included."""
        if not self.calls:
            return self.texts
        said = "".join(name + arguments for name, arguments in self.calls.values())
        return {**self.texts, "tool_call": said} if said else self.texts


RAW = ("vllm", "llama-cpp", "llama-cpp-python")
"""Engines that were found to show the model's own probabilities."""
MIXED = "The chunks name several replies: those of two streams may be mixed."
SAID_AGAIN = (
    "Chunks of the stream repeat the tokens before them, so the answer stands in it several times: a gateway collects "
    "what it passes on. Ask without streaming, or the engine itself."
)
AFTER_THE_END = "More of the answer came after the server had said that it is complete: ask for one answer at a time."


class ChoiceSum:
    """The sum of all deltas of one choice."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.texts: dict[SegmentKind, list[str]] = {}
        self.steps: list[StepList] = []
        self.apart: dict[SegmentKind, list[StepList]] = {}
        self.calls: dict[int, tuple[str, str]] = {}
        self.ids: list[int] | None = None
        self.finish_reason: str | None = None
        self.stop: str | int | None = None
        self.counted: int | None = None
        self.broken: str | None = None
        self._ended = False

    def add(self, delta: Delta) -> None:
        """Add the delta of a chunk."""
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
            self.ids = [*(self.ids or ()), *delta.ids]
        if self._ended and (delta.written or delta.steps.steps):
            self.broken = AFTER_THE_END
        self._ended = self._ended or delta.ended
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.stop = self.stop if delta.stop is None else delta.stop
        self.counted = self.counted if delta.counted is None else delta.counted

    def raw(
        self,
        *,
        one_segment: bool = False,
        stops: tuple[str, ...] = (),
        prefill: str = "",
        counted: int | None = None,
    ) -> RawChoice:
        """The choice with texts and steps as its engine gave them; the arguments are fields of it that the engine did
        not tell: what is known of its shape and request, and the count of the whole reply.
        """
        texts: dict[SegmentKind, str] = {kind: "".join(parts) for kind, parts in self.texts.items() if any(parts)}
        if self.calls:
            texts["tool_call"] = "\n".join(f"{name}({arguments})" for name, arguments in self.calls.values())
        steps, flags = _with_ids(StepList.chained(self.steps), self.ids)
        apart = {kind: StepList.chained(parts) for kind, parts in self.apart.items()}
        if counted is None:
            counted = self.counted
            if self.ids is not None and len(self.ids) > len(steps.steps):
                counted = max(counted or 0, len(self.ids))
        broken = self.broken or (SAID_AGAIN if _repeat([part.steps for part in self.steps]) else None)
        stops = (self.stop,) if isinstance(self.stop, str) else stops
        at_token = isinstance(self.stop, int)
        calls = tuple(ToolCall(name, arguments) for name, arguments in self.calls.values())
        return RawChoice(
            self.index,
            texts,
            steps,
            finish_reason=self.finish_reason,
            flags=flags,
            apart=apart,
            one_segment=one_segment,
            stops=stops,
            at_token=at_token,
            counted=counted,
            broken=broken,
            prefill=prefill,
            calls=calls,
        )


def _repeat(chunks: Sequence[tuple[TopStep, ...]]) -> bool:
    """Whether each chunk has the steps of the one before and more, or the last has those of all others once more."""
    if len(chunks) < 2:
        return False
    if all(len(before) < len(more) and more[: len(before)] == before for before, more in pairwise(chunks)):
        return True
    return 2 < 2 * len(chunks[-1]) == sum(map(len, chunks)) and tuple(chain(*chunks[:-1])) == chunks[-1]


def _with_ids(steps: StepList, ids: Sequence[int] | None) -> tuple[StepList, tuple[str, ...]]:
    if ids is None or not steps.steps:
        return steps, ()
    if len(ids) != len(steps.steps):
        return steps, (f"{len(ids)} token ids do not fit {len(steps.steps)} steps; they are not used.",)
    return StepList(with_ids(steps.steps, ids), steps.missing, steps.fault), ()


class Shape:
    """One shape of replies, and the reading of one reply of it: all at once, or chunk by chunk.

    A new shape is a subclass in a file of its own and a line in `registry.SHAPES`: mostly a table of where things
    stand, as paths from a choice (or from a request). What differs is a method to override.
    """

    name: ClassVar[str]
    """The shape's name for people and for `semtoken doctor`."""
    path: ClassVar[str] = ""
    """The end of the path at which servers answer in this shape, such as `/chat/completions`; none for a saved form."""
    below_v1: ClassVar[bool] = True
    """Whether the path lies below `/v1`; otherwise it is one of an engine's own, at the root."""
    formats: ClassVar[Mapping[Engine, str]]
    """The name of the format in which each engine uses this shape."""
    ask: ClassVar[str]
    """The fields of a request that bring log-probabilities, for messages."""
    one_segment: ClassVar[bool] = False
    """Whether all text is the answer, since the shape does not mark reasoning."""
    is_chat: ClassVar[bool] = False
    """Whether the server renders the prompt as a message of a chat; otherwise it continues the prompt."""
    is_telling: ClassVar[bool] = True
    """Whether the marks tell it from everything else that exports hold; otherwise it is known at the top only."""
    divided: ClassVar[bool] = False
    """Whether the engine divides what the model wrote into reasoning, answer and tool calls."""
    ends: ClassVar[tuple[str, str]] = ("stop", "length")
    """The finish reasons of an answer that its model ended, and of one that was cut off at its longest."""

    # --- where things stand in a request

    prompts: ClassVar[Sequence[str]] = ()
    """The fields that may hold the prompt, the usual one first."""
    limit_at: ClassVar[Path] = ("max_tokens",)
    """The most tokens of an answer."""
    temperature_at: ClassVar[Path] = ("temperature",)
    top_at: ClassVar[Path] = ()
    """How many log-probabilities of other tokens to give."""
    switch_at: ClassVar[Path] = ()
    """Whether to give any; empty where the number tells."""
    copies_at: ClassVar[Path] = ()
    """How many choices in a row belong to each prompt; empty where it is always one."""
    stops_at: ClassVar[Sequence[Path]] = (("stop",),)
    """Texts that end the answer, and what else ends it."""
    other_prompt: ClassVar[Mapping[str, tuple[Any, ...]]] = NOTHING
    """Fields that change what the model reads in ways that only the server knows, with the values that do not."""

    # --- where things stand in a reply

    choices_at: ClassVar[Path] = ()
    """The list of choices; empty where the reply is one choice, and a list of replies a batch."""
    marks: ClassVar[tuple[Path, ...]] = ()
    """What every reply has, and no reply of another shape."""
    chunk_marks: ClassVar[Sequence[Path]] = ()
    """What every chunk of a stream has; as `marks` if empty."""
    texts: ClassVar[Mapping[SegmentKind, tuple[Path, ...]]] = MappingProxyType({})
    """The texts of a choice in a reply or a chunk; of several places the first that holds one."""
    numbers_at: ClassVar[Sequence[Path]] = ()
    """The log-probabilities of a choice, which are taken out for clients that did not ask."""
    tops_at: ClassVar[Sequence[Path]] = ()
    """Lists beside them that hold the best tokens of each step."""
    tops_in: ClassVar[Sequence[str]] = ("top_logprobs",)
    """The field of an item that holds the best tokens of its step."""
    showing: ClassVar[tuple[Path, ...]] = ()
    """What else shows the answer."""
    nulls: ClassVar[bool] = False
    """Whether what is taken out of an answer becomes null; otherwise it vanishes."""
    end_at: ClassVar[Path] = ("finish_reason",)
    """Why the choice ended; null while it goes on."""
    count_at: ClassVar[Path] = ()
    """How many tokens were written."""
    read_at: ClassVar[Path] = ()
    """How many tokens the model read, in a reply."""

    def __init__(self) -> None:
        self.counted: int | None = None
        """How many tokens the reply counts in all its choices, hidden reasoning apart; None if it does not say."""
        self.post_sampling = False
        """The probabilities are those after the samplers (llama.cpp's `post_sampling_probs`)."""
        self.sums: dict[int, ChoiceSum] = {}
        self.told = Told()
        self._ids: Counter[str] = Counter()
        """How many chunks name each reply."""
        self._model: str | None = None

    # --- ask

    @classmethod
    def request(cls, question: ProbeQuestion) -> dict[str, Any]:
        """A request in this shape. `body` adds the log-probabilities and, below `/v1`, model and temperature."""
        prompt = [{"role": "user", "content": question.prompt}] if cls.is_chat else question.prompt
        body = merged({cls.prompts[0]: prompt}, cls.limit_at, question.max_tokens)
        if cls.below_v1 or question.temperature is None:
            return body
        return merged(body, cls.temperature_at, question.temperature)

    @classmethod
    def requested(cls, body: RawReply) -> int | None:
        """How many log-probabilities of other tokens a request asks for at each step; None if it asks for none at all.

        `InvalidInputError` if the body is no request of this shape; what a request means is for the server to judge.
        """
        if cls.prompts and not any(name in body for name in cls.prompts):
            raise InvalidInputError(f"The request has no {' or '.join(cls.prompts)}.")
        top = count_of(value_at(body, cls.top_at), ".".join(map(str, cls.top_at)))
        if not cls.switch_at:
            return top or None
        switch = value_at(body, cls.switch_at)
        if not isinstance(switch, bool | None):
            raise InvalidInputError(f"{'.'.join(map(str, cls.switch_at))} must be true or false.")
        return (top or 0) if switch else None

    @classmethod
    def asking(cls, body: RawReply, top: int, *, token_ids: bool = False) -> dict[str, Any]:
        """The fields that ask for `top` log-probabilities for each token, or for more if the request itself does."""
        names = [str(path[0]) for path in (cls.switch_at, cls.top_at) if path]
        own = {name: body[name] for name in names if name in body}
        switched = merged(own, cls.switch_at, True) if cls.switch_at else own
        return merged(switched, cls.top_at, as_many(top, cls.requested(body)))

    @classmethod
    def body(cls, question: ProbeQuestion) -> dict[str, Any]:
        """The body of a request in this shape."""
        body = cls.request(question)
        if cls.below_v1:
            named = {"model": question.model, "temperature": question.temperature}
            body |= {name: value for name, value in named.items() if value is not None}
        body |= question.extra
        return body if question.top is None else body | cls.asking(body, question.top)

    @classmethod
    def streams(cls, body: RawReply) -> bool:
        """Whether a request asks for a stream."""
        return bool(body.get("stream"))

    @classmethod
    def temperature(cls, body: RawReply) -> float | None:
        """The temperature that a request names, None if it names none."""
        value = value_at(body, cls.temperature_at)
        return value if isinstance(value, int | float) else None

    @classmethod
    def obstacle(cls, body: RawReply) -> str | None:
        """The reason why the reply to a request can never be scored; None if it can."""
        return None

    @classmethod
    def prompt(cls, body: RawReply, choice: int) -> str | list[Any]:
        """The prompt of a choice, for a model that reads the answer again: a text, token ids, or chat messages.

        `InvalidInputError` if only the server knows what the model was asked.
        """
        for name, neutral in cls.other_prompt.items():
            if body.get(name) is not None and body[name] not in neutral:
                raise InvalidInputError(
                    f"The request has '{name}', so what the upstream's model read is not known here."
                )
        given = next((body[name] for name in cls.prompts if name in body), None)
        if cls.is_chat:
            if not isinstance(given, list) or not given:
                raise InvalidInputError(
                    f"The request holds no {cls.prompts[0]}, so what the model was asked is not known."
                )
            return given
        copies = (value_at(body, cls.copies_at) or 1) if cls.copies_at else 1
        return text_or_ids(given, choice // copies if isinstance(copies, int) and copies > 0 else ALL)

    @classmethod
    def has_stop_texts(cls, body: RawReply) -> bool:
        """Whether a request names texts that end the answer, or what else ends it."""
        return any(value_at(body, at) for at in cls.stops_at)

    @classmethod
    def stop_texts(cls, body: RawReply) -> tuple[str, ...]:
        """The texts that a request names as ends of the answer."""
        named = (value_at(body, at) for at in cls.stops_at)
        listed = chain.from_iterable(stop if isinstance(stop, list | tuple) else [stop] for stop in named)
        return tuple(text for text in listed if isinstance(text, str) and text)

    # --- the places of a reply, for those who change it

    @classmethod
    def choices(cls, reply: Any) -> Iterator[tuple[int, Path, RawReply]]:
        """Each choice of a reply or an event, with its place in their list and its path."""
        all_choices = value_at(reply, cls.choices_at)
        listed = isinstance(all_choices, list | tuple)
        for number, choice in enumerate(all_choices if listed else [all_choices]):
            if isinstance(choice, Mapping):
                yield number, (*cls.choices_at, number) if listed else cls.choices_at, choice

    @classmethod
    def places(cls, reply: Any) -> Sequence[Place] | None:
        """The places of all choices in a reply or an event of a stream; None for a reply of another shape."""
        replies = reply if isinstance(reply, list) and not cls.choices_at else [reply]
        if not replies or not all(
            isinstance(single, Mapping) and (cls.starts(single) or cls.detects([single])) for single in replies
        ):
            return None
        return [cls._place(path, choice, number) for number, path, choice in cls.choices(reply)]

    @classmethod
    def _place(cls, path: Path, choice: RawReply, number: int) -> Place:
        index, ended = choice.get("index", number), cls.is_ended(choice)
        texts = (value_at(choice, at) for at in cls.texts.get("answer", ()))
        goes_on = not ended and any(isinstance(text, str) and text for text in texts)
        return Place(index if isinstance(index, int) else None, path, ended, goes_on)

    @classmethod
    def hiding(cls, reply: Any, hidden: HiddenFields) -> Iterator[Change]:
        """Changes that remove everything from a reply or event that its client did not ask for."""
        for _, path, choice in cls.choices(reply):
            if hidden.kept is None:
                yield from (Drop((*path, *at)) for at in cls.numbers_at)
                continue
            for at in cls.numbers_at:
                for name in cls.tops_in:
                    yield from shorter_items(value_at(choice, at), (*path, *at), hidden.kept, name)
            for at in cls.tops_at:
                steps = value_at(choice, at)
                count = len(steps) if isinstance(steps, list) and hidden.kept else 0
                yield from (Keep((*path, *at, i), range(hidden.kept)) for i in range(count))
                if not hidden.kept:
                    yield Drop((*path, *at))

    @classmethod
    def withholding(cls, reply: Any, place: Place, text: str) -> Iterator[Change]:
        """Changes that put a text in the place of an answer, and remove everything that shows the answer."""
        for kind, paths in cls.texts.items():
            yield from (Replace((*place.path, *at), text if kind == "answer" else None) for at in paths)
        for at in (*cls.numbers_at, *cls.tops_at, *cls.showing):
            yield Replace((*place.path, *at), None) if cls.nulls else Drop((*place.path, *at))

    @classmethod
    def notice(cls, last: RawReply, block: Mapping[str, Any]) -> dict[str, Any] | None:
        """An event without a choice that carries a block at the end of a stream; None if the shape has none."""
        return None

    @classmethod
    def prompt_tokens(cls, reply: Any) -> int | None:
        """How many tokens the model read, if the reply says so."""
        return count_at(reply, *cls.read_at) if cls.read_at else None

    # --- detect

    @classmethod
    def detects(cls, replies: Sequence[RawReply]) -> bool:
        """Whether a reply (several: a batch) has this shape."""
        return all(value_at(replies[0], path, MISSING) is not MISSING for path in cls.marks)

    @classmethod
    def starts(cls, chunk: RawReply) -> bool:
        """Whether a chunk of a stream has this shape."""
        return all(value_at(chunk, path, MISSING) is not MISSING for path in cls.chunk_marks or cls.marks)

    # --- read

    @classmethod
    def said(cls, choice: RawReply) -> dict[SegmentKind, str]:
        """The texts of a choice in a reply or a chunk."""
        texts: dict[SegmentKind, str] = {}
        for kind, paths in cls.texts.items():
            for path in paths:
                content = value_at(choice, path)
                if content is None:
                    continue
                text = content if isinstance(content, str) else content_text(content, dotted(path))
                if text and kind not in texts:
                    texts[kind] = text
        return texts

    @classmethod
    def is_ended(cls, choice: RawReply) -> bool:
        """Whether a choice of a chunk says that it is complete."""
        return cls.end_of(choice) is not None

    @classmethod
    def end_of(cls, choice: RawReply) -> str | None:
        """The reason why a choice ended; None while it goes on."""
        return end_in_words(value_at(choice, cls.end_at))

    @classmethod
    def numbers(cls, choice: RawReply) -> Any:
        """The log-probabilities of a choice, from the first of their places that holds any; an empty list if none."""
        all_logprobs = (value_at(choice, at) for at in cls.numbers_at)
        return next((logprobs for logprobs in all_logprobs if logprobs is not None), [])

    def steps(self, choice: RawReply) -> StepList:
        """The steps of a choice in a reply or a chunk: items in the usual form, unless a shape has another."""
        return steps_from_items(self.numbers(choice), dotted(self.numbers_at[0]))

    def apart(self, choice: RawReply) -> Mapping[SegmentKind, StepList]:
        """Steps that are listed under a segment of their own, as in `Delta`."""
        return NOTHING

    def calls(self, choice: RawReply) -> Mapping[int, tuple[str, str]]:
        """The tool calls of a choice in a reply or a chunk, as in `Delta`."""
        return NOTHING

    def whole(self, replies: Sequence[RawReply]) -> Iterator[Delta]:
        """The deltas of a whole reply (several: of a batch), one for each choice."""
        for position, reply in enumerate(replies if self.choices_at == () else [only(replies)]):
            yield from (delta._replace(ended=True) for delta in self._deltas(reply, position))

    def chunk(self, chunk: RawReply) -> Iterator[Delta]:
        """The deltas that a chunk of a stream holds."""
        yield from self._deltas(chunk, 0)

    def _deltas(self, reply: RawReply, position: int) -> Iterator[Delta]:
        self.note_reply(reply)
        for number, path, choice in self.choices(reply):
            raise_error(choice)
            try:
                delta = self._delta(choice, position + number)
            except InvalidInputError as error:
                where = dotted(path)
                raise type(error)(f"{where}.{error}" if where else str(error)) from error
            yield delta

    def _delta(self, choice: RawReply, number: int) -> Delta:
        return Delta(
            index_of(choice, number),
            self.said(choice),
            self.steps(choice),
            self.apart(choice),
            self.calls(choice),
            ids_of(choice),
            self.end_of(choice),
            self.is_ended(choice),
            stop_of(choice),
            count_at(choice, *self.count_at) if self.count_at else None,
        )

    def add(self, delta: Delta) -> None:
        """Add a delta from `whole` or `chunk` to its choice."""
        if delta.choice not in self.sums:
            self.sums[delta.choice] = ChoiceSum(delta.choice)
        self.sums[delta.choice].add(delta)

    def raw_choice(self, index: int) -> RawChoice:
        """The choice with this number, as far as it has been read."""
        request = self.told.request
        raw = self.sums[index].raw(
            one_segment=self.one_segment,
            stops=self.stop_texts(request) if request else (),
            prefill=prefill_of(request) if self.is_chat and request else "",
            counted=self.counted if len(self.sums) == 1 else None,
        )
        if request and raw.finish_reason == self.ends[0] and not self.has_stop_texts(request):
            raw = replace(raw, at_token=True)  # nothing else could end it
        flags = [MIXED] if len(self._ids) > 1 and max(self._ids.values()) > 1 else []
        if self.counted is not None and len(self.sums) > 1:  # perhaps that of one choice, as llama-server counts
            every = list(self.sums.values())
            listed = sum(
                len(part.steps) for choice in every for part in (*choice.steps, *chain(*choice.apart.values()))
            )
            if self.counted - listed > len(every) and not any(choice.calls for choice in every):
                flags.append(f"The reply counts {self.counted} tokens in all choices and lists {listed}: some lack.")
        return replace(raw, flags=(*raw.flags, *flags)) if flags else raw

    def choice(self, index: int) -> ReplyChoice:
        """The choice with this number in segments, as far as it has been read."""
        asked = question_of(self.told.request, index) or question_of(self.told.line, index)
        return assemble(self.raw_choice(index), self.ask, asked)

    def parsed_reply(self) -> Reply:
        """All that has been read."""
        choices = tuple(map(self.choice, sorted(self.sums)))
        engine = self.told.engine or self.engine
        return Reply(self.formats[engine], self.model, self.distribution_of(choices, engine), choices)

    @property
    def format(self) -> str:
        """The name of the shape and engine, as far as has been read."""
        return self.formats[self.told.engine or self.engine]

    # --- what the numbers are

    def distribution_of(self, choices: Sequence[ReplyChoice], engine: Engine | None = None) -> Distribution:
        """Which distribution the log-probabilities of some choices come from; `engine`: that which sent them."""
        request, temperature, named, _ = self.told
        temperature = self.temperature(request) if temperature is None else temperature
        masked = any(FORBIDDEN in choice.flags for choice in choices)
        return self.distribution(engine or named or self.engine, temperature, masked=masked)

    @property
    def engine(self) -> Engine:
        """The engine that sent the reply, as far as its fields tell."""
        return next(iter(self.formats))

    @property
    def model(self) -> str | None:
        """The model's name, if the reply gives it."""
        return self._model

    def note_reply(self, reply: RawReply) -> None:
        """Notice the model of a reply, and how many tokens it counts in its answers."""
        named = (reply.get(name) for name in ("model", "modelVersion", "model_version"))  # the last two: Gemini's
        self._model = next((name for name in named if isinstance(name, str) and name), self._model)
        usages = [reply[name] for name in ("usage", "usageMetadata", "usage_metadata") if name in reply]
        self.counted = next((n for n in map(written_tokens, usages) if n is not None), self.counted)

    def note_probabilities(self, items: Any) -> None:
        """Notice probabilities in place of log-probabilities: llama.cpp gives them after its samplers."""
        first = value_at(items, (0,))  # the others are like it
        self.post_sampling |= isinstance(first, Mapping) and ("prob" in first or "probs" in first)

    def distribution(self, engine: Engine, temperature: float | None, *, masked: bool) -> Distribution:
        """Which distribution the log-probabilities come from, if the engine runs with its default settings.

        SGLang divides by the temperature, and takes 1 for the greedy 0. `masked`: some tokens have no probability.
        """
        if engine == "sglang":
            return "raw" if temperature in (0, 1) and not masked else "processed"
        if engine not in RAW:
            return "unknown"
        return "processed" if masked or self.post_sampling else "raw"


def as_many(top: int, requested: int | None) -> int:
    """The larger of two numbers of log-probabilities to ask for; -1 means all of them."""
    return -1 if top < 0 or requested == ALL else max(top, requested or 0)


MISSING = object()


def value_at(value: Any, path: Path, default: Any = None) -> Any:
    """The value at a path of plain values; `default` where there is none."""
    for name in path:
        if type(value) is dict or isinstance(value, Mapping):  # asking for the exact type is much faster
            value = value.get(name, MISSING)
        elif isinstance(value, list | tuple) and isinstance(name, int) and name < len(value):
            value = value[name]
        else:
            return default
        if value is MISSING:
            return default
    return value


def merged(values: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A copy of some values with another one at a path."""
    first, *rest = path
    inside = values.get(str(first))
    below = merged(inside if isinstance(inside, Mapping) else {}, tuple(rest), value) if rest else value
    return {**values, str(first): below}


def count_at(reply: Any, *path: str | int) -> int | None:
    """The number at a path of a reply; None if there is none."""
    count = value_at(reply, path)
    return count if type(count) is int and count >= 0 else None


def text_or_ids(prompt: Any, number: int) -> str | list[Any]:
    """The prompt of the choice with this number, as text or token ids; `InvalidInputError` if it is neither or
    missing.
    """
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        prompt = prompt[number] if number < len(prompt) else None
    if isinstance(prompt, str) or (
        isinstance(prompt, list) and prompt and all(type(token_id) is int for token_id in prompt)
    ):
        return prompt
    raise InvalidInputError("The request holds no prompt for this choice, so what the model was asked is not known.")


def count_of(value: Any, name: str) -> int | None:
    """The number of log-probabilities in a field of a request; `ALL` below 0, `InvalidInputError` for no whole
    number.
    """
    if value is None:
        return None
    if type(value) is not int:
        raise InvalidInputError(f"{name} must be a whole number.")
    return ALL if value < 0 else value


def shorter_items(items: Any, at: Path, kept: int, name: str = "top_logprobs") -> Iterator[Change]:
    """Changes that shorten each item's list of best tokens."""
    for i, item in enumerate(items if isinstance(items, list) else ()):
        best = item.get(name) if isinstance(item, Mapping) else None
        if isinstance(best, list) and len(best) > kept:
            yield Keep((*at, i, name), range(kept))


def only(replies: Sequence[RawReply]) -> RawReply:
    """The single reply, for shapes that have no batches; raises `InvalidInputError` for several."""
    if len(replies) != 1:
        raise InvalidInputError("A list of replies is understood from SGLang and llama.cpp only; read them one by one.")
    return replies[0]


def dotted(path: Path) -> str:
    """A path as messages show it, such as `choices[0].message`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


LONGEST_INDEX = 10_000  # choices of one reply


def index_of(choice: RawReply, default: int = 0) -> int:
    """The index of a choice, `default` where it has none."""
    index = choice.get("index")
    choice_index = default if index is None else as_id(index, "index")
    if choice_index > LONGEST_INDEX:
        raise InvalidInputError(f"index must be at most {LONGEST_INDEX}. Got {choice_index} instead.")
    return choice_index


def logprobs_of(choice: RawReply) -> RawReply:
    """The object with the log-probabilities of a choice, or an empty one; `InvalidInputError` if there is something
    else.
    """
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, list):
        if logprobs and isinstance(logprobs[0], float):
            raise InvalidInputError("logprobs is a list of numbers alone: ask for items that name their tokens.")
        return {"content": logprobs}
    if isinstance(logprobs, int | float) and not isinstance(logprobs, bool):
        raise InvalidInputError(
            f"logprobs is the number {logprobs}: an average of the answer's log-probabilities, which gateways "
            "take from Gemini's avgLogprobs. Ask for those of each token (Gemini: responseLogprobs and logprobs=5)."
        )
    return as_object({} if logprobs is None else logprobs, "logprobs")


def raise_error(reply: RawReply) -> None:
    """Raise `BackendError` if a reply, a chunk or a choice reports an error of the server, whatever else it holds."""
    error = reply.get("error")
    response = reply.get("response")
    if reply.get("type") == "response.failed" and isinstance(response, Mapping):
        error = response.get("error") or "the response failed"
    elif not error and "error" in (reply.get("type"), reply.get("object")):
        error = reply
    if error:
        raise BackendError(f"The server reports an error: {error_text(error)}")


def prefill_of(request: RawReply) -> str:
    """The beginning of the answer that a request of a chat gives to the model, as its last message; mostly empty."""
    messages = request.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, Mapping) or last.get("role") != "assistant":
        return ""
    content = last.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = (part.get("text") if isinstance(part, Mapping) else part for part in parts)
    return "".join(text for text in texts if isinstance(text, str))


def content_text(content: Any, where: str) -> str:
    """The text of a list of parts of which some are text."""
    parts = (
        piece if isinstance(piece, str) else as_object(piece, where).get("text") for piece in as_list(content, where)
    )
    return "".join(text_or_empty(part, f"{where}.text") for part in parts)


def stop_of(choice: RawReply) -> str | int | None:
    """The text at which a choice was stopped, or the id of the token, in the fields of vLLM, SGLang and llama.cpp."""
    apart = ("stop_reason",) if "finish_reason" in choice else ()  # alone it is the reason of the end
    named = (choice.get(name) for name in (*apart, "matched_stop", "stopping_word"))
    return next((stop for stop in named if type(stop) is int or (isinstance(stop, str) and stop)), None)


USAGES = (
    ("completion_tokens", ("completion_tokens_details", "reasoning_tokens")),
    ("output_tokens", ("output_tokens_details", "reasoning_tokens")),
    ("output_tokens", ("output_token_details", "reasoning")),
    ("completionTokens", ("completionTokensDetails", "reasoningTokens")),
    ("outputTokens", ("reasoningTokens",)),
    ("candidatesTokenCount", ()),
    ("candidates_token_count", ()),
)
"""Where engines and clients count the written tokens, and those of them that belong to a hidden reasoning."""


def ids_of(choice: RawReply) -> tuple[int, ...] | None:
    """The token ids that vLLM lists beside the steps; None if it lists none."""
    ids = optional(as_list, choice.get("token_ids"), "token_ids")
    return None if ids is None else tuple(as_id(token, "token_ids") for token in ids)


AGAIN = re.compile(r"([a-z_]{3,}?)\1+", re.IGNORECASE)


def end_in_words(reason: Any) -> str | None:
    """The reason of an end as an engine gives it: a text, or an object with a type.

    Clients that add up the chunks of a stream write it several times in a row.
    """
    named = reason.get("type", reason.get("reason", "unknown")) if isinstance(reason, Mapping) else reason
    if named in (None, "", "null"):  # as some gateways write while it goes on
        return None
    again = AGAIN.fullmatch(str(named))
    return again[1] if again else str(named)


def written_tokens(usage: Any) -> int | None:
    """How many tokens a reply counts in its answers, without those of a hidden reasoning; None if it does not say."""
    for name, _ in USAGES:
        if (count := count_at(usage, name)) is not None:
            hidden = max(count_at(usage, *path) or 0 for count_name, path in USAGES if count_name == name)
            return max(count - hidden, 0)
    return None
