"""`Shape`, the base of all reply shapes: a class that asks one API for log-probabilities and knows its replies.

It says what a request asked for and how it asks for more; it reads replies, whole and in chunks; and it says where in
them choices, texts and numbers stand, for those who pass replies on with something added (`semtoken proxy`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeAlias

from semtoken.choices import SegmentKind
from semtoken.core.engine_tokens.spellings import steps_from_items, steps_from_lists
from semtoken.core.engine_tokens.top_steps import StepList
from semtoken.core.results import Distribution
from semtoken.errors import InvalidInputError
from semtoken.replies.formats.fields import (
    ALL,
    MISSING,
    RawReply,
    as_many,
    content_text,
    count_at,
    count_of,
    dotted,
    end_in_words,
    ids_of,
    index_of,
    merged,
    raise_error,
    shorter_items,
    stop_of,
    text_or_ids,
    value_at,
    written_tokens,
)
from semtoken.support.splice import Change, Drop, Keep, Path, Replace
from semtoken.support.untrusted import as_list

Engine: TypeAlias = str
"""The name of an engine, one of those that the shapes have in `formats`."""
NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True)
class ProbeQuestion:
    """A request in no particular shape: a prompt, limits, and the log-probabilities to ask for."""

    prompt: str
    """A text, which is the message of the user in a chat."""
    max_tokens: int = 1
    """The most tokens of the answer."""
    top: int | None = None
    """The number of log-probabilities to ask for at each token; None: none are asked for."""
    temperature: float | None = None
    """The temperature to ask for; None: the server's own."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request's body."""
    model: str | None = None
    """The name of the model to ask for; None: the request names none."""


@dataclass(frozen=True)
class HiddenFields:
    """The fields of a reply that the proxy asked for and the client did not, so that they are taken out again."""

    kept: int | None
    """The number of log-probabilities of other tokens that the client sees at each step, besides the chosen token's;
    None: it sees none at all."""
    ids: bool = False
    """True if the proxy asked for token ids, too."""
    request: RawReply = field(default_factory=dict)
    """The body of the client's request."""


class Place(NamedTuple):
    """The paths at which the parts of one choice stand in a reply or an event."""

    choice: int | None
    """The index of the choice; None where what stands there is no index."""
    path: Path
    """The path of the object that takes the `semtoken` block."""
    ended: bool = False
    """True if the engine says that the choice is complete."""
    goes_on: bool = False
    """True if text of the answer stands there, and more may follow."""


class Delta(NamedTuple):
    """The content that a whole reply has for one choice, or that a chunk of a stream adds to it."""

    choice: int
    """The index of the choice."""
    texts: Mapping[SegmentKind, str] = NOTHING
    """The texts that were written, by the kind of segment that they belong to."""
    steps: StepList = StepList()
    """The steps of whatever was written; not yet given to a segment."""
    apart: Mapping[SegmentKind, StepList] = NOTHING
    """Steps that the engine lists under a segment of their own."""
    calls: Mapping[int, tuple[str, str]] = NOTHING
    """Name and arguments (or a piece of them) of each tool call, by its index; -1 is `function_call`."""
    ids: tuple[int, ...] | None = None
    """Ids of the tokens, which some engines list next to the steps."""
    finish_reason: str | None = None
    """The reason why the choice ended, such as `stop` or `length`; None while it goes on."""
    ended: bool = False
    """True if the engine says that the choice is complete."""
    stop: str | int | None = None
    """The text at which the engine stopped, or the id of the token, if it says so."""
    counted: int | None = None
    """The number of tokens that the engine counts in the choice so far."""
    repeats: bool = False
    """True if it is all of the choice once more, as the last chunk of some streams has it. It takes the place of what
    came before, but for steps that it lacks."""

    @property
    def written(self) -> Mapping[SegmentKind, str]:
        """The texts of the delta by segment, tool calls included."""
        if not self.calls:
            return self.texts
        said = "".join(name + arguments for name, arguments in self.calls.values())
        return {**self.texts, "tool_call": said} if said else self.texts


RAW = ("vllm", "llama-cpp", "llama-cpp-python")
"""Engines that were found to show the model's own probabilities."""


class Shape:
    """One shape of replies. An instance keeps facts about one reply, such as its model and its engine.

    A new shape is a subclass in a file of its own and a line in `registry.SHAPES`: mostly a table of where things
    stand, as paths from a choice (or from a request). What differs is a method to override.
    """

    name: ClassVar[str]
    """The shape's name for people and for `semtoken doctor`."""
    path: ClassVar[str] = ""
    """The end of the path at which servers answer in this shape, such as `/chat/completions`; none for a saved form."""
    below_v1: ClassVar[bool] = True
    """True if the path is below `/v1`; otherwise it is one of an engine's own, at the root."""
    formats: ClassVar[Mapping[Engine, str]]
    """The name of the format in which each engine uses this shape."""
    ask: ClassVar[str]
    """The fields of a request that bring log-probabilities, for messages."""
    one_segment: ClassVar[bool] = False
    """True if all text is the answer, since the shape does not mark reasoning."""
    is_chat: ClassVar[bool] = False
    """True if the server renders the prompt as a message of a chat; otherwise it continues the prompt."""
    is_telling: ClassVar[bool] = True
    """True if the marks set it apart from everything else that exports hold; otherwise it is known at the top only."""
    divided: ClassVar[bool] = False
    """True if the engine divides what the model wrote into reasoning, answer and tool calls."""
    ends: ClassVar[tuple[str, str]] = ("stop", "length")
    """The finish reasons of an answer that its model ended, and of one that was cut off at its longest."""

    # --- where things stand in a request

    prompts: ClassVar[Sequence[str]] = ()
    """The fields that may hold the prompt, the usual one first."""
    limit_at: ClassVar[Path] = ("max_tokens",)
    """The most tokens of an answer."""
    temperature_at: ClassVar[Path] = ("temperature",)
    """The temperature of sampling."""
    top_at: ClassVar[Path] = ()
    """The number of log-probabilities of other tokens to give."""
    switch_at: ClassVar[Path] = ()
    """The switch that asks for any; empty where the number says so."""
    copies_at: ClassVar[Path] = ()
    """The number of choices in a row that belong to each prompt; empty where it is always one."""
    stops_at: ClassVar[Sequence[Path]] = (("stop",),)
    """Texts that end the answer, and what else ends it."""
    other_prompt: ClassVar[Mapping[str, tuple[Any, ...]]] = NOTHING
    """Fields that change what the model reads in ways that only the server knows, with the values that do not."""

    # --- where things stand in a reply

    choices_at: ClassVar[Path] = ()
    """The list of choices; empty where the reply is one choice, and a list of replies a batch."""
    required: ClassVar[str] = ""
    """The list that a whole reply must have; empty where its marks say so."""
    marks: ClassVar[tuple[Path, ...]] = ()
    """Places that every reply has, and no reply of another shape."""
    chunk_marks: ClassVar[Sequence[Path]] = ()
    """Places that every chunk of a stream has; as `marks` if empty."""
    texts: ClassVar[Mapping[SegmentKind, tuple[Path, ...]]] = MappingProxyType({})
    """The texts of a choice in a reply or a chunk; of several places the first that holds one."""
    numbers_at: ClassVar[Sequence[Path]] = ()
    """The log-probabilities of a choice, which are taken out for clients that did not ask."""
    tops_at: ClassVar[Sequence[Path]] = ()
    """Lists next to them that hold the best tokens of each step."""
    tops_in: ClassVar[Sequence[str]] = ("top_logprobs",)
    """The field of an item that holds the best tokens of its step."""
    showing: ClassVar[tuple[Path, ...]] = ()
    """Other places that show the answer."""
    nulls: ClassVar[bool] = False
    """True if what is taken out of an answer becomes null; otherwise it vanishes."""
    end_at: ClassVar[Sequence[Path]] = (("finish_reason",),)
    """The reason why the choice ended; null while it goes on. Of several places the first that is there."""
    done_at: ClassVar[Path] = ()
    """The sign that the choice is complete: true, or the whole text; empty where the reason of its end shows it."""
    numbered: ClassVar[bool] = True
    """True if a choice that names no index has that of its place."""
    echoes: ClassVar[bool] = False
    """True if a choice may repeat its prompt."""
    count_at: ClassVar[Path] = ()
    """The number of tokens that were written."""
    read_at: ClassVar[Path] = ()
    """The number of tokens that the model read, in a reply."""

    def __init__(self) -> None:
        self.model: str | None = None
        """The model's name, if the reply gives it."""
        self.counted: int | None = None
        """The reply's count of tokens in all its choices, hidden reasoning apart; None if it does not say."""
        self.read: int | None = None
        """The reply's count of tokens in its prompts, which an echo is known by; None if it does not say."""
        self.ids: defaultdict[str, int] = defaultdict(int)
        """The number of chunks that name each reply, where shapes name them."""
        self.fields: set[str] = set()
        """The fields that the reply has, as far as its shape looks at them to recognize the engine."""
        self.post_sampling = False
        """The probabilities are those after the samplers (llama.cpp's `post_sampling_probs`)."""

    # --- ask

    @classmethod
    def request(cls, question: ProbeQuestion) -> dict[str, Any]:
        """The body of a request in this shape, for a question in none.

        `body` adds the log-probabilities and, below `/v1`, model and temperature.
        """
        prompt = [{"role": "user", "content": question.prompt}] if cls.is_chat else question.prompt
        body = merged({cls.prompts[0]: prompt}, cls.limit_at, question.max_tokens)
        if cls.below_v1 or question.temperature is None:
            return body
        return merged(body, cls.temperature_at, question.temperature)

    @classmethod
    def requested(cls, body: RawReply) -> int | None:
        """The number of log-probabilities of other tokens that a request wants at each step; None if it wants none.

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
        """The fields to add to a request's body to get at least `top` log-probabilities per token.

        `token_ids` asks for the ids of tokens, too, in shapes that can give them.
        """
        names = [str(path[0]) for path in (cls.switch_at, cls.top_at) if path]
        own = {name: body[name] for name in names if name in body}
        switched = merged(own, cls.switch_at, True) if cls.switch_at else own
        return merged(switched, cls.top_at, as_many(top, cls.requested(body)))

    @classmethod
    def body(cls, question: ProbeQuestion) -> dict[str, Any]:
        """The whole body of a request in this shape, for a question in none."""
        body = cls.request(question)
        if cls.below_v1:
            named = {"model": question.model, "temperature": question.temperature}
            body |= {name: value for name, value in named.items() if value is not None}
        body |= question.extra
        return body if question.top is None else body | cls.asking(body, question.top)

    @classmethod
    def streams(cls, body: RawReply) -> bool:
        """Return True if a request asks for a stream."""
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
        """Return True if a request names texts that end the answer, or what else ends it."""
        return any(value_at(body, at) for at in cls.stops_at)

    @classmethod
    def stop_texts(cls, body: RawReply) -> tuple[str, ...]:
        """The texts that a request names as ends of the answer."""
        named = (value_at(body, at) for at in cls.stops_at)
        listed = chain.from_iterable(stop if isinstance(stop, list | tuple) else [stop] for stop in named)
        return tuple(text for text in listed if isinstance(text, str) and text)

    # --- the places of a reply, for those who change it

    @classmethod
    def choices(cls, reply: Any) -> Sequence[tuple[int, Path, RawReply]]:
        """Each choice of a reply or an event, with its place in their list and its path."""
        all_choices = value_at(reply, cls.choices_at)
        listed = isinstance(all_choices, list | tuple)
        return [
            (number, (*cls.choices_at, number) if listed else cls.choices_at, choice)
            for number, choice in enumerate(all_choices if listed else [all_choices])
            if isinstance(choice, Mapping)
        ]

    @classmethod
    def places(cls, reply: Any) -> Sequence[Place] | None:
        """The places of all choices in a reply or an event of a stream; None for a reply of another shape."""
        # A shape without a list of choices answers several prompts by a list of replies.
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
        """The number of tokens that the model read; None if the reply does not say."""
        return count_at(reply, *cls.read_at) if cls.read_at else None

    # --- detect

    @classmethod
    def detects(cls, replies: Sequence[RawReply]) -> bool:
        """Return True if a reply (several: a batch) has this shape."""
        return _has_all(replies[0], cls.marks)

    @classmethod
    def starts(cls, chunk: RawReply) -> bool:
        """Return True if a chunk of a stream has this shape."""
        return _has_all(chunk, cls.chunk_marks or cls.marks)

    # --- read

    @classmethod
    def require_whole(cls, replies: Sequence[RawReply]) -> None:
        """Check what only a whole reply (several: a batch) must have, and no chunk of a stream."""
        if (cls.choices_at or cls.required) and len(replies) != 1:
            raise InvalidInputError(
                "A list of replies is understood from SGLang and llama.cpp only; read them one by one."
            )
        if cls.required:
            as_list(replies[0].get(cls.required), cls.required)

    def deltas(self, reply: RawReply, position: int = 0) -> Iterable[Delta]:
        """The deltas of a reply or of a chunk of a stream, one for each of its choices.

        `position` is the place of the reply in a batch. A shape whose chunks repeat what came before, or are events,
        has its own way.
        """
        self.note(reply)
        deltas = []
        for number, path, choice in self.choices(reply):
            raise_error(choice)
            try:
                deltas.append(self.delta(choice, position + number if self.numbered else 0))
            except InvalidInputError as error:
                where = dotted(path)
                raise type(error)(f"{where}.{error}" if where else str(error)) from error
        return deltas

    def delta(self, choice: RawReply, number: int) -> Delta:
        """The delta of one choice; `number` is its index where it names none."""
        end, index, ids, stop = self.end_of(choice), index_of(choice, number), ids_of(choice), stop_of(choice)
        return Delta(
            index,
            self.said(choice),
            self.steps(choice),
            self.apart(choice),
            self.calls(choice),
            ids,
            end,
            self.is_ended(choice) if self.done_at else end is not None,
            stop,
            count_at(choice, *self.count_at) if self.count_at else None,
        )

    @classmethod
    def said(cls, choice: RawReply) -> dict[SegmentKind, str]:
        """The texts of a choice in a reply or a chunk."""
        texts: dict[SegmentKind, str] = {}
        for kind, paths in cls.texts.items():
            for path in paths:
                content = value_at(choice, path) if path[0] in choice else None
                if content is not None and not isinstance(content, str):
                    content = content_text(content, dotted(path))
                if content:
                    texts[kind] = content
                    break
        return texts

    @classmethod
    def end_of(cls, choice: RawReply) -> str | None:
        """The reason why a choice ended; None while it goes on."""
        for at in cls.end_at:
            if (reason := value_at(choice, at, MISSING)) is not MISSING:
                return end_in_words(reason)
        return None

    @classmethod
    def is_ended(cls, choice: RawReply) -> bool:
        """Return True if a choice of a chunk says that it is complete."""
        if not cls.done_at:
            return cls.end_of(choice) is not None
        return value_at(choice, cls.done_at) not in (None, False)

    @classmethod
    def numbers(cls, choice: RawReply) -> Any:
        """The log-probabilities of a choice, from the first of their places that holds any; an empty list if none."""
        for at in cls.numbers_at:
            if (logprobs := value_at(choice, at)) is not None:
                return logprobs
        return []

    def steps(self, choice: RawReply) -> StepList:
        """The steps of a choice in a reply or a chunk, unless a shape has others."""
        return self.steps_in(self.numbers(choice), dotted(self.numbers_at[0]))

    def steps_in(self, logprobs: Any, where: str) -> StepList:
        """The steps of items, or of an object `logprobs`, which holds items, or lists as in legacy completions."""
        if not isinstance(logprobs, Mapping):
            return self.steps_of_items(logprobs, where)
        content = logprobs.get("content")
        if content is None and (logprobs.get("tokens") is not None or logprobs.get("top_logprobs")):
            return steps_from_lists(logprobs, where)
        return self.steps_of_items([] if content is None else content, f"{where}.content")

    def steps_of_items(self, items: Any, where: str) -> StepList:
        """The steps of items; probabilities in them are noticed, which llama.cpp gives after its samplers."""
        first = items[0] if isinstance(items, list | tuple) and items else None  # the others are like it
        self.post_sampling |= isinstance(first, Mapping) and ("prob" in first or "probs" in first)
        return steps_from_items(items, where)

    def apart(self, choice: RawReply) -> Mapping[SegmentKind, StepList]:
        """Steps that are listed under a segment of their own, as in `Delta`."""
        return NOTHING

    def calls(self, choice: RawReply) -> Mapping[int, tuple[str, str]]:
        """The tool calls of a choice in a reply or a chunk, as in `Delta`."""
        return NOTHING

    # --- what the reply says of itself

    def note(self, reply: RawReply) -> None:
        """Notice the model of a reply or a chunk, and how many tokens it counts."""
        for name in ("model", "modelVersion", "model_version"):  # the last two: Gemini's
            if isinstance(named := reply.get(name), str) and named:
                self.model = named
                break
        for name in ("usage", "usageMetadata", "usage_metadata"):
            if name in reply and (counted := written_tokens(reply[name])) is not None:
                self.counted = counted
                break

    @property
    def engine(self) -> Engine:
        """The engine that sent the reply, as far as its fields show it."""
        return next(iter(self.formats))

    def distribution(self, engine: Engine, temperature: float | None, *, masked: bool) -> Distribution:
        """The distribution that the log-probabilities come from, if the engine runs with its default settings.

        SGLang divides by the temperature, and takes 1 for the greedy 0. `masked`: some tokens have no probability.
        """
        if engine == "sglang":
            return "raw" if temperature in (0, 1) and not masked else "processed"
        if engine not in RAW:
            return "unknown"
        return "processed" if masked or self.post_sampling else "raw"


def _has_all(reply: RawReply, marks: Sequence[Path]) -> bool:
    """Return True if a reply has something at each of some places; mostly the first name decides."""
    return all(path[0] in reply and (len(path) == 1 or value_at(reply, path, MISSING) is not MISSING) for path in marks)
