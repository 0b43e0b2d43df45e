"""Events of a stream that go on with an answer and say nothing else: read in a fraction of the time.

Nearly all events are like that. They differ from one that was read in full in a few places: the text that the answer
gains, its log-probabilities and ids, and what changes from event to event and says nothing (a time). A shape says where
these places are (`Growth`). What stands around them is the *frame* of an event. Where it is known, only the places are
read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from semtoken.engine_tokens.in_json import steps_in_json
from semtoken.engine_tokens.top_steps import StepList
from semtoken.payloads.formats.base import Growth
from semtoken.payloads.splice import Document

MOST_FRAMES = 64
"""Frames that are known at one time: a choice has one, or one a second where it holds the time."""
LONGEST_FRAME = 2048
"""Characters of the longest frame that is remembered; what upstreams send must not fill the memory."""

try:
    import msgspec
except ImportError:  # then every event is read in full
    msgspec = None  # type: ignore[assignment]

if msgspec is not None:
    _read_text = msgspec.json.Decoder(str).decode
    _read_any = msgspec.json.Decoder().decode
    _read_ids = msgspec.json.Decoder(tuple[int, ...] | None).decode


class Frame(NamedTuple):
    """What is written around the places of an event."""

    choice: int
    """The index of the choice that goes on."""
    texts: tuple[str, ...]
    """Before the first place, between one and the next, and behind the last."""
    names: tuple[str, ...]
    """What stands at each place, in their order: "text", "steps", "ids", or "" for what says nothing."""

    def spans(self, data: str) -> list[tuple[int, int]] | None:
        """Where each place begins and ends in an event with this frame; None for any other event.

        If each of them holds one JSON value, the event differs from the one that was learned in these values alone.
        """
        if not data.startswith(self.texts[0]) or not data.endswith(self.texts[-1]):
            return None
        found, start = [], len(self.texts[0])
        for text in self.texts[1:-1]:
            end = data.find(text, start)
            if end < 0:
                return None
            found.append((start, end))
            start = end + len(text)
        found.append((start, len(data) - len(self.texts[-1])))
        return found


class Continuation(NamedTuple):
    """What an event adds that only goes on with an answer."""

    choice: int
    """Index of the choice."""
    text: str
    """What the answer gains, never empty."""
    steps: StepList
    ids: tuple[int, ...] | None
    """The ids of the tokens, where they are listed beside the steps."""
    frame: Frame
    """What is written around the places of the event,"""
    spans: Sequence[tuple[int, int]]
    """and where these begin and end."""


class GoingOn:
    """Recognises the events of one stream that only go on with an answer."""

    def __init__(self) -> None:
        self._frames: dict[tuple[str, ...], Frame] = {}
        """Frames of events that were read in full. They differ in their choice alone."""
        self._beside: Mapping[str, Any] = {}
        """What their events say beside the places."""

    def learn(self, data: str, event: Mapping[str, Any], growth: Growth | None) -> None:
        """Remember the frame of an event that was read in full, if it only goes on with an answer."""
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
        """What an event adds; None for one that has to be read in full."""
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
    found = [(name, document.find(path)) for name, path in named if path is not None]
    places = sorted((place.start, place.end, name) for name, place in found if place is not None)
    if not {"text", "steps"} <= {name for *_, name in places}:
        return None
    edges = [0, *(edge for start, end, _ in places for edge in (start, end)), len(data)]
    texts = tuple(data[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    return Frame(growth.choice, texts, tuple(name for *_, name in places))
