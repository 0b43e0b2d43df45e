"""Chunks of a stream that go on with an answer and say nothing else: read in a fraction of the time.

Nearly all chunks are like that. They differ from one that was read in full in a few places: the text that the answer
gains, its log-probabilities and ids, and what changes from chunk to chunk and says nothing (`created`). What stands
around these places is the *frame* of a chunk. Where the frame is known, only the places are read.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    _read_ids = msgspec.json.Decoder(tuple[int, ...] | None).decode


class _Framed(NamedTuple):
    """A chunk in two parts: what is written around the places that change, and in them."""

    frame: str
    choice: _ChoicePlaces
    before: str
    after: str


class GoingOn:
    """Recognises the chunks of one stream that only go on with an answer."""

    def __init__(self) -> None:
        self._frames: dict[str, int] = {}
        """Frames of chunks that were read in full, and the choice of each. They differ in their choice alone."""
        self._beside: Mapping[str, Any] = {}
        """What their chunks say beside the choice."""

    def learn(self, data: str, chunk: Mapping[str, Any]) -> None:
        """Remember the frame of a chunk that was read in full, if it only goes on with an answer."""
        index = None if msgspec is None else _only_goes_on(chunk)
        found = None if index is None else _framed(data)
        usual = found is not None and len(found.frame) <= LONGEST_FRAME
        beside = {**chunk, **VARYING} if usual else {}
        if not usual or beside != self._beside or len(self._frames) >= MOST_FRAMES:
            self._frames.clear()
        if found is not None and index is not None and usual:
            self._frames[found.frame], self._beside = index, beside

    def read(self, data: str) -> Continuation | None:
        """What a chunk adds; None for one that has to be read in full."""
        found = _framed(data) if self._frames else None
        index = None if found is None else self._frames.get(found.frame)
        if found is None or index is None:
            return None
        choice = found.choice
        try:
            text = _text_of(_read_delta(choice.delta)) if choice.delta else _read_text(choice.text)
            ids = _read_ids(choice.token_ids) if choice.token_ids else None
        except msgspec.DecodeError:
            return None
        steps = steps_in_json(choice.logprobs)
        if not text or steps is None or min(ids or (0,)) < 0:
            return None
        return Continuation(index, text, steps, ids, found.before, found.after)


def _framed(data: str) -> _Framed | None:
    """The places of a chunk; None if they are not there, or may stand elsewhere in it."""
    try:
        chunk = _read_chunk(data)
        [choice] = chunk.choices
        before, after = _around('"logprobs":', choice.logprobs, data)
        frame = before + after
        for name, place in (
            ('"delta":', choice.delta),
            ('"text":', choice.text),
            ('"token_ids":', choice.token_ids),
            ('"created":', chunk.created),
            ('"obfuscation":', chunk.obfuscation),
        ):
            if place:
                frame = "".join(_around(name, place, frame))
    except (msgspec.DecodeError, UnicodeError, RecursionError, LookupError):
        return None
    return _Framed(frame, choice, before, after)


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
