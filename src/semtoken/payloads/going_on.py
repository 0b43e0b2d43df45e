"""Chunks of a stream that go on with an answer and say nothing else: read in a fraction of the time.

Nearly all chunks are like that. They differ from one that was read in full in a few places: the text that the answer
gains, its log-probabilities and ids, and what changes from chunk to chunk and says nothing (`created`). What stands
around these places is the *frame* of a chunk. Where the frame is known, only the places are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from semtoken.engine_tokens.in_json import steps_in_json
from semtoken.engine_tokens.records import StepList

try:
    import msgspec
except ImportError:  # then every chunk is read in full
    msgspec = None  # type: ignore[assignment]

MOST_FRAMES = 64
"""Frames that are known at one time: a choice has one, or one a second where it holds the time."""
LONGEST_FRAME = 2048
"""Characters of the longest frame that is remembered; what upstreams send must not fill the memory."""
VARYING = {"choices": None, "created": None, "obfuscation": None}
"""Fields of a chunk in which those with the same frame may differ."""
OWN = ("content", "role")
"""Fields of a message that a chunk may have which only goes on."""
MARK = "\0"
"""Stands in no JSON."""
LISTS = ("content", "tokens", "token_logprobs", "top_logprobs", "text_offset")
"""Fields of log-probabilities that it may have."""


class Continuation(NamedTuple):
    """What a chunk adds that only goes on with an answer."""

    choice: int
    """Index of the choice."""
    text: str
    """What the answer gains, never empty."""
    steps: StepList
    ids: tuple[int, ...] | None
    """Of the tokens, where they are listed beside the steps."""
    before: str
    """What is written before its log-probabilities,"""
    after: str
    """and behind them."""


if msgspec is not None:

    class _ChoicePlaces(msgspec.Struct, gc=False):
        """The places of a choice, of a chat or of a completion."""

        logprobs: msgspec.Raw
        delta: msgspec.Raw = msgspec.Raw()
        text: msgspec.Raw = msgspec.Raw()
        token_ids: msgspec.Raw = msgspec.Raw()

    class _ChunkPlaces(msgspec.Struct, gc=False):
        choices: tuple[_ChoicePlaces]
        created: msgspec.Raw = msgspec.Raw()
        obfuscation: msgspec.Raw = msgspec.Raw()

    _read_chunk = msgspec.json.Decoder(_ChunkPlaces).decode
    _read_delta = msgspec.json.Decoder(dict[str, Any]).decode
    _read_text = msgspec.json.Decoder(str).decode
    _read_any = msgspec.json.Decoder().decode
    _read_ids = msgspec.json.Decoder(tuple[int, ...] | None).decode


class _Frame(NamedTuple):
    """What is written around the places of a chunk."""

    choice: int
    """Index of the choice."""
    texts: Sequence[str]
    """Before the first place, between one and the next, and behind the last."""
    names: Sequence[str]
    """Of the places in their order."""

    def places(self, data: str) -> dict[str, tuple[int, int]] | None:
        """Where each place begins and ends in a chunk with this frame; None for any other chunk.

        If each of them holds one JSON value, the chunk differs from the one that was learned in these values alone.
        """
        if not data.startswith(self.texts[0]) or not data.endswith(self.texts[-1]):
            return None
        found, start = {}, len(self.texts[0])
        for name, text in zip(self.names[:-1], self.texts[1:-1], strict=True):
            end = data.find(text, start)
            if end < 0:
                return None
            found[name], start = (start, end), end + len(text)
        found[self.names[-1]] = start, len(data) - len(self.texts[-1])
        return found


class GoingOn:
    """Recognises the chunks of one stream that only go on with an answer."""

    def __init__(self) -> None:
        self._frames: dict[str, _Frame] = {}
        """Frames of chunks that were read in full. They differ in their choice alone."""
        self._beside: Mapping[str, Any] = {}
        """What their chunks say beside the choice."""

    def learn(self, data: str, chunk: Mapping[str, Any]) -> None:
        """Remember the frame of a chunk that was read in full, if it only goes on with an answer."""
        index = None if msgspec is None else _only_goes_on(chunk)
        frame = None if index is None else _framed(data)
        usual = frame is not None and len(frame) <= LONGEST_FRAME
        beside = {**chunk, **VARYING} if usual else {}
        if not usual or beside != self._beside or len(self._frames) >= MOST_FRAMES:
            self._frames.clear()
        if frame is not None and index is not None and usual:
            parts = frame.split(MARK)
            self._frames[frame], self._beside = _Frame(index, parts[::2], parts[1::2]), beside

    def read(self, data: str) -> Continuation | None:
        """What a chunk adds; None for one that has to be read in full."""
        for frame in self._frames.values():  # mostly one
            places = frame.places(data)
            if places is not None:
                return _continuation(frame.choice, data, places)
        return None


def _continuation(index: int, data: str, places: Mapping[str, tuple[int, int]]) -> Continuation | None:
    """What a chunk with a known frame adds; None if one of its places holds something unusual."""
    values = {name: data[start:end] for name, (start, end) in places.items()}
    try:
        text = _text_of(_read_delta(values["delta"])) if "delta" in values else _read_text(values["text"])
        ids = _read_ids(values["token_ids"]) if "token_ids" in values else None
        for name in VARYING:
            _read_any(values.get(name, "null"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    steps = steps_in_json(values["logprobs"])
    if not text or steps is None or min(ids or (0,)) < 0:
        return None
    start, end = places["logprobs"]
    return Continuation(index, text, steps, ids, data[:start], data[end:])


def _framed(data: str) -> str | None:
    """A chunk with the names of its places in them, between marks; None if they may stand elsewhere in it."""
    try:
        chunk = _read_chunk(data)
        [choice] = chunk.choices
        for name, place in (
            ("logprobs", choice.logprobs),
            ("delta", choice.delta),
            ("text", choice.text),
            ("token_ids", choice.token_ids),
            ("created", chunk.created),
            ("obfuscation", chunk.obfuscation),
        ):
            if place:
                data = f"{MARK}{name}{MARK}".join(_around(f'"{name}":', place, data))
    except (msgspec.DecodeError, UnicodeError, RecursionError, LookupError):
        return None
    return data


def _around(name: str, place: msgspec.Raw, text: str) -> tuple[str, str]:
    """What is written before and behind the value of a name in JSON; the name occurs once in it.

    Raises
    ------
    LookupError
        It occurs again, or is written in another way.
    """
    written = str(place, "utf-8")
    start = text.index(name) + len(name) if text.count(name) == 1 else -1
    start += text.startswith(" ", start)
    if start <= 0 or not text.startswith(written, start):
        raise LookupError(name)
    return text[:start], text[start + len(written) :]


def _only_goes_on(chunk: Mapping[str, Any]) -> int | None:
    """The index of the choice that a chunk goes on with, if it says nothing else."""
    choices = chunk.get("choices")
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    if not isinstance(choice, dict) or choice.get("finish_reason") is not None or "semtoken" in choice:
        return None  # a score of the upstream's own is not for a proxy to pass on unread
    delta, logprobs, index = choice.get("delta"), choice.get("logprobs"), choice.get("index")
    text = _text_of(delta) if isinstance(delta, dict) else None if "delta" in choice else choice.get("text")
    if not isinstance(text, str) or not text or type(index) is not int:
        return None
    if not isinstance(logprobs, dict) or any(logprobs[name] for name in logprobs if name not in LISTS):
        return None
    return index


def _text_of(delta: Mapping[str, Any]) -> str | None:
    """The text of a message that holds nothing else."""
    text = delta.get("content")
    return text if isinstance(text, str) and not any(delta[name] for name in delta if name not in OWN) else None
