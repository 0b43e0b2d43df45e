"""`PayloadStream`: the chunks of a reply one by one -> what each adds, and the Payload of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from semtoken.choices import SegmentKind
from semtoken.engine_tokens.spellings import BorrowedNames
from semtoken.engine_tokens.top_steps import TopStep
from semtoken.errors import BackendError, InvalidInput, SemtokenError
from semtoken.payloads.align import find_text, joined, pieces_of
from semtoken.payloads.formats.base import Delta, Reply, Shape
from semtoken.payloads.formats.registry import Format, error_text, format_named, shape_of_chunk
from semtoken.payloads.going_on import Continuation, GoingOn
from semtoken.payloads.inline import parsed, plain
from semtoken.payloads.payload import Payload, PayloadChoice, StreamEvent
from semtoken.payloads.segments import FORBIDDEN, assemble
from semtoken.payloads.sse import Event, EventReader
from semtoken.results import Distribution

DONE = "[DONE]"
CUT = "The stream ended before the engine said that the answer is complete."


class PayloadStream:
    """A streamed reply in progress.

    Parameters
    ----------
    format : str, optional
        One of `FORMATS`; recognised by the chunks by default.
    temperature : float, optional
        See `read_payload`.
    """

    def __init__(self, format: str | None = None, *, temperature: float | None = None) -> None:
        self._format = None if format is None else format_named(format)
        self._temperature = temperature
        self._shape: Shape | None = None if self._format is None else self._format.shape()
        self._events = EventReader()
        self._keepers: dict[int, SegmentKeeper] = {}
        self._failed: SemtokenError | None = None
        self._done = False
        """The server said that there is nothing more."""
        self._going_on = GoingOn()

    def feed(self, chunk: Any) -> list[StreamEvent]:
        """Take in a part of the stream.

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
        """The whole reply: that which `read_payload` makes of the same reply unstreamed.

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
        payload = payload_of(self._shape, self._format, self._temperature)
        return replace(payload, choices=tuple(map(self._marked, payload.choices)))

    def choice(self, index: int) -> tuple[PayloadChoice, Distribution]:
        """One of the choices so far, and the distribution of its log-probabilities.

        Raises
        ------
        InvalidInput, BackendError
            The stream was not understood.
        """
        if self._failed is not None:
            raise self._failed
        if self._shape is None or index not in self._shape.sums:
            raise InvalidInput(f"The stream holds no choice {index}.")
        choice = self._marked(assemble(self._shape.raw_choice(index), self._shape.ask))
        return choice, distribution_of(self._shape, self._format, self._temperature, (choice,))

    def _marked(self, choice: PayloadChoice) -> PayloadChoice:
        if self._done or choice.index not in self._keepers or self._keepers[choice.index].ended:
            return choice
        return replace(choice, flags=(*choice.flags, CUT), complete=False)

    def _events_of(self, sent: Event) -> list[StreamEvent]:
        data = sent.data
        if not data:
            return []
        found = self.continuation(data)
        if found is not None:
            return self.go_on(found)
        if data.strip() == DONE:
            self._done = True
            return []
        values = parsed(data)
        if not isinstance(values, Mapping):
            raise InvalidInput(f"A chunk of the stream is {type(values).__name__}, not an object.")
        if sent.kind == "error":
            raise BackendError(f"The server broke the stream off with an error: {error_text(values)}")
        events = self._feed_chunk(values)
        self.learn(data, values)
        return events

    def _feed_chunk(self, chunk: Reply) -> list[StreamEvent]:
        _raise_error(chunk)
        if self._shape is None:
            shape = shape_of_chunk(chunk)
            if shape is None:
                return []
            self._shape = shape()
        return [event for delta in self._shape.chunk(chunk) for event in self._take_in(self._shape, delta)]

    def _take_in(self, shape: Shape, delta: Delta) -> list[StreamEvent]:
        shape.add(delta)
        if delta.choice not in self._keepers:
            self._keepers[delta.choice] = SegmentKeeper(divided=shape.divided)
        return self._keepers[delta.choice].add(delta)

    # --- chunks that only go on with an answer

    def learn(self, data: str, chunk: Reply) -> None:
        """Remember what a chunk that was fed looks like, so that those like it are recognised in their JSON."""
        if self._shape is not None:
            self._going_on.learn(data, chunk, self._shape.growth(chunk))

    def continuation(self, data: str) -> Continuation | None:
        """What the JSON of a chunk adds if it only goes on with an answer, as one that was learned."""
        return self._going_on.read(data)

    def go_on(self, found: Continuation) -> list[StreamEvent]:
        """Take in such a chunk, as `feed` would do it.

        Raises
        ------
        InvalidInput, BackendError
            As `feed`.
        """
        if self._failed is not None:
            raise self._failed
        assert self._shape is not None
        return self._take_in(self._shape, Delta(found.choice, {"answer": found.text}, found.steps, ids=found.ids))


def payload_of(shape: Shape, format: Format | None, temperature: float | None) -> Payload:
    """What was read of a reply."""
    choices = tuple(assemble(raw, shape.ask) for raw in shape.raw_choices())
    name = shape.formats[shape.engine] if format is None else format.name
    return Payload(name, shape.model, distribution_of(shape, format, temperature, choices), choices)


def distribution_of(
    shape: Shape, format: Format | None, temperature: float | None, choices: Sequence[PayloadChoice]
) -> Distribution:
    """What the log-probabilities of some choices are."""
    engine = shape.engine if format is None else format.engine
    masked = any(FORBIDDEN in choice.flags for choice in choices)
    return shape.distribution(engine, temperature, masked=masked)


def _raise_error(chunk: Reply) -> None:
    error = chunk.get("error")
    if chunk.get("type") == "response.failed" and isinstance(chunk.get("response"), Mapping):
        error = chunk["response"].get("error", "the response failed")
    if chunk.get("type") == "error" and error is None:
        error = chunk
    if error is not None and "choices" not in chunk:
        raise BackendError(f"The server broke the stream off with an error: {error_text(error)}")


class SegmentKeeper:
    """Gives the steps of one choice to its segments as the chunks come.

    A step whose text has not come yet waits: engines hold back pieces of characters, markers and what may become a
    stop string.
    """

    def __init__(self, *, divided: bool) -> None:
        self.ended = False
        self._divided = divided
        self._kind: SegmentKind | None = None
        self._waiting: tuple[TopStep, ...] = ()
        self._names = BorrowedNames()

    def add(self, delta: Delta) -> list[StreamEvent]:
        """What a chunk adds, segment by segment."""
        if self._kind == "answer" and not self._waiting and delta.goes_on:
            return [StreamEvent(delta.choice, "answer", delta.texts["answer"], self._names.without(delta.steps.steps))]
        written = delta.written
        steps = self._waiting + delta.steps.steps
        self.ended = self.ended or delta.ended
        found: dict[SegmentKind, tuple[TopStep, ...]] = dict.fromkeys(written, ())
        if written or self.ended:
            self._waiting = ()
            before = self._kind
            kind = [before or "answer", *written][-1]
            begins = kind == "answer" != before and self._divided
            start = _first_of(steps, written.get("answer", "")) if begins else 0
            named = self._names.without(steps)
            if start:
                earlier: SegmentKind = before or "reasoning"
                found = {earlier: (), **found}
                found[earlier] = named[:start]
            found[kind] = found.get(kind, ()) + named[start:]
            self._kind = kind
        else:
            self._waiting = steps
        for kind, apart in delta.apart.items():
            found[kind] = found.get(kind, ()) + apart.steps
        return [
            StreamEvent(delta.choice, kind, written.get(kind, ""), own)
            for kind, own in found.items()
            if own or written.get(kind)
        ]


def _first_of(steps: Sequence[TopStep], text: str) -> int:
    """The first of the steps that spell the beginning of the answer; 0 if they spell something else."""
    pieces = pieces_of(steps)
    span = find_text(pieces, text) if text.strip() else None
    return 0 if span is None or not joined(pieces[: span[0]]).strip() else span[0]
