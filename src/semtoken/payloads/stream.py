"""`PayloadStream`: the chunks of a reply one by one -> what each adds, and the Payload of the whole.

Nearly all events of a stream go on with an answer and say nothing else. They differ from one that was read in full in a
few places: the text that the answer gains, its log-probabilities and ids, and what changes from event to event and says
nothing (a time). A shape says where these places are (`Growth`). What stands around them is the *frame* of an event.
Where it is known, only the places are read, in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from semtoken.choices import SegmentKind
from semtoken.engine_tokens.in_json import steps_in_json
from semtoken.engine_tokens.placing import find_text, pieces_of, text_of_pieces
from semtoken.engine_tokens.spellings import BorrowedNames
from semtoken.engine_tokens.top_steps import StepList, TopStep, as_object
from semtoken.errors import BackendError, InvalidInput, SemtokenError
from semtoken.payloads.formats.base import Delta, Growth, Reply, Shape, Told, raise_error
from semtoken.payloads.formats.registry import format_named, shape_of_chunk
from semtoken.payloads.segments import Payload, PayloadChoice, StreamEvent
from semtoken.results import Distribution
from semtoken.support.splice import Document, parse_reply, plain
from semtoken.support.sse import PINGS, Event, EventReader
from semtoken.support.text import error_text

MOST_FRAMES = 64
"""Most frames that are known at one time. A choice has one, or a new one each second where its events hold the time."""
LONGEST_FRAME = 2048
"""Most characters of a frame that is remembered; what upstreams send must not fill the memory."""

try:
    import msgspec
except ImportError:  # then every event is read in full
    msgspec = None  # type: ignore[assignment]

if msgspec is not None:
    _read_text = msgspec.json.Decoder(str).decode
    _read_any = msgspec.json.Decoder().decode
    _read_ids = msgspec.json.Decoder(tuple[int, ...] | None).decode


class Frame(NamedTuple):
    """The text of an event around the places that change from event to event."""

    choice: int
    """The index of the choice that goes on."""
    texts: tuple[str, ...]
    """The texts before the first place, between each and the next, and behind the last."""
    names: tuple[str, ...]
    """What stands at each place, in their order: "text", "steps", "ids", or "" for what says nothing."""

    def spans(self, data: str) -> list[tuple[int, int]] | None:
        """Where each place begins and ends in an event with this frame; None for an event with another frame.

        If each of them holds one JSON value, the event differs from the one that was learned in these values alone.
        """
        if not data.startswith(self.texts[0]) or not data.endswith(self.texts[-1]):
            return None
        ranges, start = [], len(self.texts[0])
        for text in self.texts[1:-1]:
            end = data.find(text, start)
            if end < 0:
                return None
            ranges.append((start, end))
            start = end + len(text)
        ranges.append((start, len(data) - len(self.texts[-1])))
        return ranges


class Continuation(NamedTuple):
    """The text and log-probabilities of an event that adds to one answer and nothing else."""

    choice: int
    """The index of the choice."""
    text: str
    """The text that the answer gains, which is never empty."""
    steps: StepList
    ids: tuple[int, ...] | None
    """The ids of the tokens, where they are listed beside the steps."""
    frame: Frame
    """What is written around the places of the event."""
    spans: Sequence[tuple[int, int]]
    """Where each of these places begins and ends."""


class GoingOn:
    """Recognises events of one stream that only add to an answer, so that they need not be parsed."""

    def __init__(self) -> None:
        self._frames: dict[tuple[str, ...], Frame] = {}
        """Frames of events that were read in full. They differ in their choice alone."""
        self._beside: Mapping[str, Any] = {}
        """What their events say beside the places."""

    def learn(self, data: str, event: Mapping[str, Any], growth: Growth | None) -> None:
        """Remember the frame of a parsed event, if it only adds to an answer."""
        frame = None if growth is None or msgspec is None else _framed(data, growth)
        if frame is None or growth is None or sum(map(len, frame.texts)) > LONGEST_FRAME:
            self._frames.clear()
            return
        varying = {path[0] for path in (growth.text, growth.steps, *growth.varying)}
        beside = {name: value for name, value in event.items() if name not in varying}
        if beside != self._beside or len(self._frames) >= MOST_FRAMES:
            self._frames.clear()
        self._frames[frame.texts], self._beside = frame, beside

    def read(self, data: str) -> Continuation | None:
        """Read an event by its frame; None if it has to be parsed in full."""
        for frame in self._frames.values():  # mostly one
            spans = frame.spans(data)
            if spans is not None:
                return _continuation(frame, data, spans)
        return None


def _continuation(frame: Frame, data: str, spans: Sequence[tuple[int, int]]) -> Continuation | None:
    """What an event with a known frame adds; None if one of its places holds something unusual."""
    text, steps, ids = "", None, None
    try:
        for name, (start, end) in zip(frame.names, spans, strict=True):
            written = data[start:end]
            if name == "steps":
                steps = steps_in_json(written)
            elif name == "text":
                text = _read_text(written)
            elif name == "ids":
                ids = _read_ids(written)
            else:
                _read_any(written)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not text or steps is None or not steps.steps or min(ids or (0,)) < 0:
        return None
    return Continuation(frame.choice, text, steps, ids, frame, spans)


def _framed(data: str, growth: Growth) -> Frame | None:
    """The frame of an event; None if it lacks the text or the log-probabilities."""
    document = Document(data)
    named = [
        ("text", growth.text),
        ("steps", growth.steps),
        ("ids", growth.ids),
        *(("", path) for path in growth.varying),
    ]
    located = [(name, document.find(path)) for name, path in named if path is not None]
    places = sorted((place.start, place.end, name) for name, place in located if place is not None)
    if not {"text", "steps"} <= {name for *_, name in places}:
        return None
    edges = [0, *(edge for start, end, _ in places for edge in (start, end)), len(data)]
    texts = tuple(data[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    return Frame(growth.choice, texts, tuple(name for *_, name in places))


DONE = "[DONE]"
COUNTED = "The index of the choices counts chunks: a gateway has renumbered the answer's pieces. Ask the engine itself."
NO_END = "The stream is complete and gave no reason of the answer's end (finish_reason): it may be cut off."
CUT = "The stream ended before the engine said that the answer is complete."


class PayloadStream:
    """A streamed reply in progress.

    Parameters
    ----------
    format : str, optional
        One of `known_formats()`; recognised by the chunks by default.
    temperature, request
        See `read_payload`.
    """

    def __init__(
        self,
        format: str | None = None,
        *,
        temperature: float | None = None,
        request: Mapping[str, Any] | None = None,
    ) -> None:
        asked = {} if request is None else as_object(request, "request")
        known = None if format is None else format_named(format)
        self._told = Told(asked, temperature, None if known is None else known.engine)
        self._shape: Shape | None = None if known is None else known.shape()
        self._events = EventReader()
        self._keepers: dict[int, SegmentKeeper] = {}
        self._failed: SemtokenError | None = None
        self._done = False
        """The server said that there is nothing more."""
        self._going_on = GoingOn()

    def feed(self, chunk: Any) -> list[StreamEvent]:
        """Read a part of the stream; returns what it adds to each choice.

        Parameters
        ----------
        chunk
            Bytes or text of the stream, cut anywhere; or one chunk as a dict or a client's object.

        Returns
        -------
        list of StreamEvent
            In the order in which the model wrote. The steps of the events of one choice and kind are those of its
            segment in `finish()`, whose text decides where a chunk leaves it open.

        Raises
        ------
        InvalidInput
            The chunk is not understood. From then on there is nothing to score: `feed` and `finish` raise it again.
        BackendError
            The server reports an error.
        """
        if self._failed is not None:
            raise self._failed
        try:
            values = plain(chunk)
            if isinstance(values, str | bytes | bytearray | memoryview):
                part = values if isinstance(values, str) else bytes(values)
                return [event for sent in self._events.feed(part) for event in self._events_of(sent)]
            if not isinstance(values, Mapping):
                raise InvalidInput(
                    f"A chunk must be text, a dict or a client's object. Got {type(chunk).__name__} instead."
                )
            return self._feed_chunk(values)
        except SemtokenError as error:
            self._failed = error
            raise

    def finish(self) -> Payload:
        """The whole reply, equal to what `read_payload` makes of the same reply without a stream.

        A choice that the engine did not end carries a flag that says so.

        Raises
        ------
        InvalidInput
            Nothing was streamed.
        BackendError
            The last part of the stream reports an error.
        """
        for sent in self._events.finish():
            self._events_of(sent)
        if self._failed is not None:
            raise self._failed
        if self._shape is None or not self._shape.sums:
            raise InvalidInput("The stream holds no chunk: there is nothing to read.")
        ended = [keeper.ended for _, keeper in sorted(self._keepers.items())]
        if (
            len(ended) > 2
            and not any(ended[:-1])
            and all(len(choice.steps) < 2 for choice in self._shape.sums.values())
        ):
            raise BackendError(COUNTED)
        payload = self._shape.payload()
        return replace(payload, choices=tuple(map(self._mark_as_cut, payload.choices)))

    def choice(self, index: int) -> tuple[PayloadChoice, Distribution]:
        """One of the choices so far, and the distribution of its log-probabilities.

        Raises
        ------
        InvalidInput, BackendError
            The stream was not understood, or holds no such choice.
        """
        if self._failed is not None:
            raise self._failed
        if self._shape is None or index not in self._shape.sums:
            raise InvalidInput(f"The stream holds no choice {index}.")
        choice = self._mark_as_cut(self._shape.choice(index))
        return choice, self._shape.distribution_of((choice,))

    @property
    def model(self) -> str | None:
        """The model that answers, as the chunks so far name it; None where none does."""
        return None if self._shape is None else self._shape.model

    @property
    def format(self) -> str | None:
        """The name of the format, as far as the chunks tell; None before the first that holds a choice."""
        return None if self._shape is None else self._shape.format

    def _mark_as_cut(self, choice: PayloadChoice) -> PayloadChoice:
        if choice.index not in self._keepers or self._keepers[choice.index].ended:
            return choice
        if self._done:
            return replace(choice, flags=(*choice.flags, NO_END))
        return replace(choice, flags=(*choice.flags, CUT), broken=choice.broken or f"{CUT} Steps may be missing.")

    def _events_of(self, sent: Event) -> list[StreamEvent]:
        data = sent.data
        if not data or sent.is_ping:
            return []
        if (continuation := self.continuation(data)) is not None:
            return self.go_on(continuation)
        if data.strip() == DONE:
            self._done = True
            return []
        values = parse_reply(data, "A chunk of the stream, which may have broken off there,")
        if not isinstance(values, Mapping):
            raise InvalidInput(f"A chunk of the stream is {type(values).__name__}, not an object.")
        if sent.kind == "error":
            raise BackendError(f"The server reports an error: {error_text(values)}")
        events = self._feed_chunk(values)
        self.learn(data, values)
        return events

    def _feed_chunk(self, chunk: Reply) -> list[StreamEvent]:
        raise_error(chunk)
        if chunk.get("type") in PINGS and "choices" not in chunk:
            return []
        if self._shape is None:
            shape = shape_of_chunk(chunk)
            if shape is None:
                return []
            self._shape = shape()
        self._shape.told = self._told
        return [event for delta in self._shape.chunk(chunk) for event in self._take_in(self._shape, delta)]

    def _take_in(self, shape: Shape, delta: Delta) -> list[StreamEvent]:
        shape.add(delta)
        if delta.choice not in self._keepers:
            self._keepers[delta.choice] = SegmentKeeper(divided=shape.divided)
        return self._keepers[delta.choice].add(delta)

    # --- chunks that only go on with an answer

    def learn(self, data: str, chunk: Reply) -> None:
        """Remember the form of a chunk, so that chunks like it are recognised without parsing."""
        if self._shape is not None:
            self._going_on.learn(data, chunk, self._shape.growth(chunk))

    def continuation(self, data: str) -> Continuation | None:
        """Read a chunk whose form was learned; None for any other chunk."""
        return self._going_on.read(data)

    def go_on(self, continuation: Continuation) -> list[StreamEvent]:
        """Add an event that was read by `GoingOn`, with the same result as `feed`, and the same errors."""
        if self._failed is not None:
            raise self._failed
        assert self._shape is not None
        return self._take_in(
            self._shape,
            Delta(continuation.choice, {"answer": continuation.text}, continuation.steps, ids=continuation.ids),
        )


class SegmentKeeper:
    """Gives the steps of one choice to its segments as the chunks come. A step whose text has not come yet waits:
    engines hold back pieces of characters, markers and what may become a stop string.
    """

    def __init__(self, *, divided: bool) -> None:
        self.ended = False
        self._divided = divided
        self._kind: SegmentKind | None = None
        self._waiting: tuple[TopStep, ...] = ()
        self._names = BorrowedNames()

    def add(self, delta: Delta) -> list[StreamEvent]:
        """Add a delta; returns what it adds to each segment."""
        if self._kind == "answer" and not self._waiting and delta.goes_on:
            return [StreamEvent(delta.choice, "answer", delta.texts["answer"], self._names.without(delta.steps.steps))]
        written = delta.written
        steps = self._waiting + delta.steps.steps
        self.ended = self.ended or delta.ended
        steps_by_kind: dict[SegmentKind, tuple[TopStep, ...]] = dict.fromkeys(written, ())
        if written or self.ended:
            self._waiting = ()
            before = self._kind
            kind = [before or "answer", *written][-1]
            begins = kind == "answer" != before and self._divided
            start = _first_of(steps, written.get("answer", "")) if begins else 0
            named = self._names.without(steps)
            if start:
                earlier: SegmentKind = before or "reasoning"
                steps_by_kind = {earlier: (), **steps_by_kind}
                steps_by_kind[earlier] = named[:start]
            steps_by_kind[kind] = steps_by_kind.get(kind, ()) + named[start:]
            self._kind = kind
        else:
            self._waiting = steps
        for kind, apart in delta.apart.items():
            steps_by_kind[kind] = steps_by_kind.get(kind, ()) + apart.steps
        return [
            StreamEvent(delta.choice, kind, written.get(kind, ""), own)
            for kind, own in steps_by_kind.items()
            if own or written.get(kind)
        ]


def _first_of(steps: Sequence[TopStep], text: str) -> int:
    """The first of the steps that spell the beginning of the answer; 0 if they spell something else."""
    pieces = pieces_of(steps)
    span = find_text(pieces, text) if text.strip() else None
    return 0 if span is None or not text_of_pieces(pieces[: span[0]]).strip() else span[0]
