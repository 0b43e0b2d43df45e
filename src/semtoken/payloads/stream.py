"""`PayloadStream`: the chunks of a reply one by one -> what each adds, and the Payload of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from semtoken.errors import BackendError, InvalidInput
from semtoken.payloads.align import find_text, joined, pieces_of
from semtoken.payloads.formats import FORMATS, Shape, error_text, format_named
from semtoken.payloads.merging import (
    ChatMerger,
    Chunk,
    CompletionMerger,
    Delta,
    LlamaCppMerger,
    Merger,
    ResponseMerger,
    SGLangMerger,
)
from semtoken.payloads.plain import parsed, plain
from semtoken.payloads.records import Payload, SegmentKind, StreamEvent
from semtoken.payloads.replies import read_reply
from semtoken.payloads.sse import EventReader
from semtoken.payloads.tokens import without_borrowed_names
from semtoken.top_logprobs import TopStep

_MERGERS: Mapping[Shape, type[Merger]] = {
    "chat": ChatMerger,
    "completions": CompletionMerger,
    "responses": ResponseMerger,
    "generate": SGLangMerger,
    "completion": LlamaCppMerger,
}
PARTING = (ChatMerger, ResponseMerger)  # engines part the text in these shapes
DONE = "[DONE]"
CUT = "The stream ended before the engine said that the answer is complete."


class PayloadStream:
    """A streamed reply in progress.

    Parameters
    ----------
    format : str, optional
        One of `FORMATS`; told from the chunks by default.
    temperature : float, optional
        See `read_payload`.
    """

    def __init__(self, format: str | None = None, *, temperature: float | None = None) -> None:
        self._format = format
        self._temperature = temperature
        self._merger = None if format is None else _MERGERS[format_named(format).shape]()
        self._events = EventReader()
        self._parts: dict[int, PartKeeper] = {}

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
            The chunk is not understood.
        BackendError
            The server reports an error.
        """
        values = plain(chunk)
        if isinstance(values, str | bytes | bytearray | memoryview):
            part = values if isinstance(values, str) else bytes(values)
            return [event for data in self._events.feed(part) for event in self._feed_data(data)]
        if not isinstance(values, Mapping):
            raise InvalidInput(
                f"A chunk must be text, a dict or a client's object. Got {type(chunk).__name__} instead."
            )
        return self._feed_chunk(values)

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
        for data in self._events.finish():
            self._feed_data(data)
        if self._merger is None:
            raise InvalidInput("The stream holds no chunk: there is nothing to read.")
        payload = read_reply(self._merger.reply(), self._format, self._temperature)
        open_ended = {index for index, parts in self._parts.items() if not parts.ended}
        choices = (replace(c, flags=(*c.flags, CUT)) if c.index in open_ended else c for c in payload.choices)
        return replace(payload, choices=tuple(choices))

    def _feed_data(self, data: str) -> list[StreamEvent]:
        if data.strip() == DONE:
            return []
        values = parsed(data)
        if not isinstance(values, Mapping):
            raise InvalidInput(f"A chunk of the stream is {type(values).__name__}, not an object.")
        return self._feed_chunk(values)

    def _feed_chunk(self, chunk: Chunk) -> list[StreamEvent]:
        _raise_error(chunk)
        if self._merger is None:
            shape = _shape_of(chunk)
            if shape is None:
                return []
            self._merger = _MERGERS[shape]()
        events: list[StreamEvent] = []
        for delta in self._merger.merge(chunk):
            if delta.choice not in self._parts:
                self._parts[delta.choice] = PartKeeper(one_part=not isinstance(self._merger, PARTING))
            events += self._parts[delta.choice].add(delta)
        return events


def _raise_error(chunk: Chunk) -> None:
    error = chunk.get("error")
    if chunk.get("type") == "response.failed" and isinstance(chunk.get("response"), Mapping):
        error = chunk["response"].get("error", "the response failed")
    if chunk.get("type") == "error" and error is None:
        error = chunk
    if error is not None and "choices" not in chunk:
        raise BackendError(f"The server broke the stream off with an error: {error_text(error)}")


def _shape_of(chunk: Chunk) -> Shape | None:
    """The shape of a stream by a chunk; None for one that could come in any."""
    if "meta_info" in chunk:
        return "generate"
    if str(chunk.get("type", "")).startswith("response."):
        return "responses"
    if "content" in chunk and "stop" in chunk:
        return "completion"
    choices = chunk.get("choices")
    if isinstance(choices, list | tuple):
        first = choices[0] if choices else {}
        if isinstance(first, Mapping) and "delta" in first:
            return "chat"
        if isinstance(first, Mapping) and "text" in first:
            return "completions"
        if not choices:
            return None
    raise InvalidInput(
        f"This is no chunk of a stream that semtoken understands: its fields are "
        f"{', '.join(map(repr, chunk)) or 'none'}. Understood are the streams of: {', '.join(FORMATS)}."
    )


class PartKeeper:
    """Gives the steps of one choice to its parts as the chunks come.

    A step whose text has not come yet waits: engines hold back pieces of characters, markers and what may become a
    stop string.
    """

    def __init__(self, *, one_part: bool) -> None:
        self.ended = False
        self._one_part = one_part
        self._kind: SegmentKind | None = None
        self._waiting: tuple[TopStep, ...] = ()
        self._inside = False  # the last step that was given away ends inside a character

    def add(self, delta: Delta) -> list[StreamEvent]:
        """What a chunk adds, part by part."""
        steps = self._waiting + delta.steps.steps
        self.ended = self.ended or delta.ended
        parts: dict[SegmentKind, tuple[TopStep, ...]] = dict.fromkeys(delta.texts, ())
        if delta.texts or self.ended:
            self._waiting = ()
            before = self._kind
            kind = [before or "answer", *delta.texts][-1]
            begins = kind == "answer" != before and not self._one_part
            start = _first_of(steps, delta.texts.get("answer", "")) if begins else 0
            named, self._inside = without_borrowed_names(steps, inside=self._inside)
            if start:
                earlier: SegmentKind = before or "reasoning"
                parts = {earlier: (), **parts}
                parts[earlier] = named[:start]
            parts[kind] = parts.get(kind, ()) + named[start:]
            self._kind = kind
        else:
            self._waiting = steps
        for kind, apart in delta.apart.items():
            parts[kind] = parts.get(kind, ()) + apart.steps
        return [
            StreamEvent(delta.choice, kind, delta.texts.get(kind, ""), own)
            for kind, own in parts.items()
            if own or delta.texts.get(kind)
        ]


def _first_of(steps: Sequence[TopStep], text: str) -> int:
    """The first of the steps that spell the beginning of the answer; 0 if they spell something else."""
    pieces = pieces_of(steps)
    span = find_text(pieces, text) if text.strip() else None
    return 0 if span is None or not joined(pieces[: span[0]]).strip() else span[0]
