"""`ReplyStream`: the chunks of a reply one by one -> the content that each adds, and the Reply of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from semtoken.choices import SegmentKind
from semtoken.core.engine_tokens.passes import as_scored
from semtoken.core.engine_tokens.placing import find_text, pieces_of, text_of_pieces
from semtoken.core.engine_tokens.top_steps import TopStep
from semtoken.core.results import Distribution
from semtoken.errors import BackendError, InvalidInputError, SemtokenError
from semtoken.replies.formats.base import NOTHING, Delta
from semtoken.replies.formats.fields import RawReply, raise_error
from semtoken.replies.formats.registry import format_named, shape_of_chunk
from semtoken.replies.reading import ReplyContext, ReplyReading
from semtoken.replies.segments import Reply, ReplyChoice, ReplyEvent
from semtoken.support.inputs import real
from semtoken.support.plain_values import parse_reply, plain
from semtoken.support.sse import PINGS, Event, EventReader
from semtoken.support.text import error_text
from semtoken.support.untrusted import as_object

DONE = "[DONE]"
COUNTED = "The index of the choices counts chunks: a gateway has renumbered the answer's pieces. Ask the engine itself."
NO_END = "The stream is complete and gave no reason of the answer's end (finish_reason): it may be cut off."
CUT = "The stream ended before the engine said that the answer is complete."


class ReplyStream:
    """A streamed reply in progress.

    Parameters
    ----------
    format : str, optional
        One of `known_formats()`; recognized by the chunks by default.
    temperature, request
        See `read_reply`.

    Raises
    ------
    InvalidInputError
        There is no such format, the temperature is no number from 0, or the request is no object.
    """

    def __init__(
        self,
        format: str | None = None,
        *,
        temperature: float | None = None,
        request: Mapping[str, Any] | None = None,
    ) -> None:
        asked = {} if request is None else as_object(request, "request")
        if temperature is not None:
            real(temperature, "temperature", low=0)
        known = None if format is None else format_named(format)
        self._context = ReplyContext(asked, temperature, None if known is None else known.engine)
        self._reading = None if known is None else ReplyReading(known.shape, self._context)
        """Everything read so far; None before the first chunk that shows its shape."""
        self._events = EventReader()
        self._keepers: dict[int, SegmentKeeper] = {}
        self._failed: SemtokenError | None = None
        self._done = False
        """The server said that there is nothing more."""

    def feed(self, chunk: Any) -> list[ReplyEvent]:
        """Read a part of the stream; returns what it adds to each choice.

        Parameters
        ----------
        chunk
            Bytes or text of the stream, cut anywhere; or one chunk as a dict or a client's object.

        Returns
        -------
        list of ReplyEvent
            In the order in which the model wrote. The steps of the events of one choice and kind are those of its
            segment in `finish()`, whose text decides where a chunk leaves it open.

        Raises
        ------
        InvalidInputError
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
                raise InvalidInputError(
                    f"A chunk must be text, a dict or a client's object. Got {type(chunk).__name__} instead."
                )
            return self._feed_chunk(values)
        except SemtokenError as error:
            self._failed = error
            raise

    def finish(self) -> Reply:
        """The whole reply, equal to what `read_reply` makes of the same reply without a stream.

        A choice that the engine did not end carries a flag that says so.

        Raises
        ------
        InvalidInputError
            Nothing was streamed, or a chunk was not understood.
        BackendError
            The stream reports an error, or a gateway has numbered its chunks as if each were a choice.
        """
        if self._failed is not None:
            raise self._failed
        try:
            for sent in self._events.finish():
                self._events_of(sent)
        except SemtokenError as error:
            self._failed = error
            raise
        if self._reading is None or not self._reading.sums:
            raise InvalidInputError("The stream holds no chunk: there is nothing to read.")
        ended = [keeper.ended for _, keeper in sorted(self._keepers.items())]
        if (
            # A gateway that counts chunks gives each a choice of its own: many of one token, of which none but the last
            # may end.
            len(ended) > 2
            and not any(ended[:-1])
            and all(len(choice.steps) < 2 for choice in self._reading.sums.values())
        ):
            raise BackendError(COUNTED)
        parsed_reply = self._reading.parsed_reply()
        return replace(parsed_reply, choices=tuple(map(self._mark_as_cut, parsed_reply.choices)))

    def choice(self, index: int) -> tuple[ReplyChoice, Distribution]:
        """One of the choices so far, and the distribution of its log-probabilities.

        Raises
        ------
        InvalidInputError, BackendError
            The stream was not understood, or holds no such choice.
        """
        if self._failed is not None:
            raise self._failed
        if self._reading is None or index not in self._reading.sums:
            raise InvalidInputError(f"The stream holds no choice {index}.")
        choice = self._mark_as_cut(self._reading.choice(index))
        return choice, self._reading.distribution_of(choice)

    @property
    def model(self) -> str | None:
        """The model that answers, as the chunks so far name it; None where none does."""
        return None if self._reading is None else self._reading.shape.model

    @property
    def format(self) -> str | None:
        """The name of the format, as far as the chunks show it; None before the first that holds a choice."""
        return None if self._reading is None else self._reading.format

    def _mark_as_cut(self, choice: ReplyChoice) -> ReplyChoice:
        if choice.index not in self._keepers or self._keepers[choice.index].ended:
            return choice
        # The end mark of the stream says that nothing was lost, although the engine gave no reason for the end.
        if self._done:
            return replace(choice, flags=(*choice.flags, NO_END))
        return replace(choice, flags=(*choice.flags, CUT), broken=choice.broken or f"{CUT} Steps may be missing.")

    def _events_of(self, sent: Event) -> list[ReplyEvent]:
        data = sent.data
        if not data or sent.is_ping:
            return []
        if data.strip() == DONE:
            self._done = True
            return []
        values = parse_reply(data, "A chunk of the stream, which may have broken off there,")
        if not isinstance(values, Mapping):
            raise InvalidInputError(f"A chunk of the stream is {type(values).__name__}, not an object.")
        if sent.kind == "error":
            raise BackendError(f"The server reports an error: {error_text(values)}")
        return self._feed_chunk(values)

    def _feed_chunk(self, chunk: RawReply) -> list[ReplyEvent]:
        raise_error(chunk)
        if chunk.get("type") in PINGS and "choices" not in chunk:
            return []
        if self._reading is None:
            shape = shape_of_chunk(chunk)
            # Some streams begin with chunks that hold nothing yet, such as the filter results of Azure.
            if shape is None:
                return []
            self._reading = ReplyReading(shape, self._context)
        divided = self._reading.shape.divided
        return [event for delta in self._reading.add(chunk) for event in self._keeper(delta.choice, divided).add(delta)]

    def _keeper(self, choice: int, divided: bool) -> SegmentKeeper:
        if choice not in self._keepers:
            self._keepers[choice] = SegmentKeeper(divided=divided)
        return self._keepers[choice]


class SegmentKeeper:
    """Gives the steps of one choice to its segments as the chunks come. A step whose text has not come yet waits:
    engines hold back pieces of characters, markers and what may become a stop string.
    """

    def __init__(self, *, divided: bool) -> None:
        self.ended = False
        self._divided = divided
        self._kind: SegmentKind | None = None
        self._waiting: tuple[TopStep, ...] = ()
        self._last: TopStep | None = None

    def add(self, delta: Delta) -> list[ReplyEvent]:
        """Add a delta; returns the text and steps that it adds to each segment."""
        written = NOTHING if delta.repeats else delta.written
        steps = self._waiting if delta.repeats else self._waiting + delta.steps.steps
        self.ended = self.ended or delta.ended
        steps_by_kind: dict[SegmentKind, tuple[TopStep, ...]] = dict.fromkeys(written, ())
        if written or self.ended:
            self._waiting = ()
            before = self._kind
            kind = [before or "answer", *written][-1]
            begins = kind == "answer" != before and self._divided
            # Engines hold reasoning's last tokens back until they know that it has ended, and send them with the
            # answer's first.
            start = _first_of(steps, written.get("answer", "")) if begins else 0
            named = as_scored(steps, self._last)
            self._last = named[-1] if named else self._last
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
            ReplyEvent(delta.choice, kind, written.get(kind, ""), own)
            for kind, own in steps_by_kind.items()
            if own or written.get(kind)
        ]


def _first_of(steps: Sequence[TopStep], text: str) -> int:
    """The first of the steps that spell the beginning of the answer; 0 if they spell something else."""
    pieces = pieces_of(steps)
    span = find_text(pieces, text) if text.strip() else None
    return 0 if span is None or not text_of_pieces(pieces[: span[0]]).strip() else span[0]
