"""A final score as the attributes of OpenTelemetry's event `gen_ai.evaluation.result`; no host is needed for that.

The score is the confidence, the number by which answers are ranked; the product over the tokens stands beside it under
its own name. Numbers and codes are sent, and no messages: those quote answers. A block may come from anywhere, so what
is no number or code where there should be one is left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from semtoken.core.results.blocks import KEY, as_mapping, block_of
from semtoken.errors import InvalidInputError
from semtoken.support.sse import EventReader

EVENT = "gen_ai.evaluation.result"
CONFIDENCE, PRODUCT = "semtoken.confidence", "semtoken.sequence_uncertainty"
"""`gen_ai.evaluation.name` is the first: higher is surer. The second is the product over all tokens."""
UNSCORED = "semtoken.unscored"
"""`error.type` of an answer that could not be scored."""
_INTERVALS = {"interval": CONFIDENCE, "sequence_uncertainty_interval": PRODUCT}
_NUMBERS = {
    "sequence_uncertainty": PRODUCT,
    "probability_correct": "semtoken.probability_correct",
    "new_word_confidence": "semtoken.new_word_confidence",
    "n_tokens": "semtoken.n_tokens",
}
"""Fields of a block that OpenTelemetry has no attribute for. It has none for an interval yet."""
_NAMES = {
    "method": "semtoken.method",
    "preset": "semtoken.preset",
    "confidence_method": f"{CONFIDENCE}.method",
}
_REPLY_NAMES = {"response_id": "gen_ai.response.id", "model": "gen_ai.response.model"}
_CODE = re.compile(r"[a-z][a-z0-9_]{0,39}")
_NAME = re.compile(r"[\w.:/@+=~-]{1,200}", re.ASCII)
"""The form of the name of a model or a reply: one word."""
ENDS = ("lower", "upper")
MOST_FLAGS = 32
MOST_CHOICES = 128
"""Choices of one reply that are reported; servers give fewer."""

LONGEST_EVENT = 2**22

Attributes = dict[str, Any]


def evaluation(block: Mapping[str, Any], *, content: bool = False, **more: Any) -> Attributes:
    """The attributes of the OpenTelemetry event for one answer, by the final `semtoken` block of its choice.

    `content` adds the reason, which may quote the answer, and its `text`.
    """
    attributes: Attributes = {"gen_ai.evaluation.name": CONFIDENCE}
    if is_share(block.get("confidence")):
        attributes["gen_ai.evaluation.score.value"] = block["confidence"]
        attributes |= _intervals(block)
        attributes |= {name: block[key] for key, name in _NUMBERS.items() if _is_number(block.get(key))}
        attributes |= {name: block[key] for key, name in _NAMES.items() if _matches(_NAME, block.get(key))}
        if _matches(_CODE, block.get("decision")):
            attributes["gen_ai.evaluation.score.label"] = block["decision"]
    else:
        attributes["error.type"] = UNSCORED
    flags = block.get("flags")
    listed = flags[:MOST_FLAGS] if isinstance(flags, list | tuple) else ()
    codes = [code for code in (as_mapping(flag).get("code") for flag in listed) if _matches(_CODE, code)]
    if codes:
        attributes["semtoken.flags"] = codes
    attributes |= {name: more[key] for key, name in _REPLY_NAMES.items() if _matches(_NAME, more.get(key))}
    if type(more.get("index")) is int:
        attributes["semtoken.choice"] = more["index"]
    if content:
        texts = {"gen_ai.evaluation.explanation": block.get("reason"), "semtoken.answer": more.get("text")}
        attributes |= {name: text for name, text in texts.items() if isinstance(text, str)}
    return attributes


def _intervals(block: Mapping[str, Any]) -> Attributes:
    """The ends of the intervals of a block, each as an attribute of its own."""
    attributes: Attributes = {}
    for key, name in _INTERVALS.items():
        ends = ends_of(block.get(key))
        if ends is not None:
            attributes |= {f"{name}.{end}": value for end, value in zip(ENDS, ends, strict=True)}
    return attributes


def ends_of(value: Any) -> tuple[float, float] | None:
    """The two ends of an interval in a block; None if the value is no interval from 0 to 1."""
    if isinstance(value, list | tuple) and len(value) == len(ENDS) and all(map(is_share, value)):
        return value[0], value[1]
    return None


def is_share(value: Any) -> bool:
    """Return True for a number from 0 to 1."""
    return _is_number(value) and 0 <= value <= 1


def _is_number(value: Any) -> bool:
    # By type, since true is no number; integers of OpenTelemetry have 64 bits.
    return type(value) in (int, float) and abs(value) < 2**63 and math.isfinite(value)


def _matches(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def evaluations_of(reply: Any, *, content: bool = False) -> list[Attributes]:
    """The attributes of the OpenTelemetry events for every choice of a reply that has a semtoken block.

    `reply` is in OpenAI's form, or that of another server that the proxy scores: a mapping, an object of a client, or a
    list. `content` adds the texts of the answers, and the reasons, which may quote them.
    """
    replies = (
        [as_mapping(element) for element in reply[:MOST_CHOICES]]
        if isinstance(reply, list | tuple)
        else [as_mapping(reply)]
    )
    evaluations = []
    for fields in replies:
        for choice in _choices(fields) or [fields]:
            block = block_of(choice)
            if block is not None:
                evaluations.append(_of_choice(fields, choice, block, _text(choice), content=content))
    return evaluations


def _choices(reply: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    listed = reply.get("choices")
    return [as_mapping(choice) for choice in listed[:MOST_CHOICES]] if isinstance(listed, list | tuple) else []


def _of_choice(
    reply: Mapping[str, Any], choice: Mapping[str, Any], block: Mapping[str, Any], text: str, *, content: bool
) -> Attributes:
    names = {"response_id": reply.get("id"), "model": reply.get("model"), "index": choice.get("index", 0)}
    return evaluation(block, content=content, text=text, **names)


def _text(choice: Mapping[str, Any]) -> str:
    """The text of a choice in OpenAI's form, llama.cpp's or SGLang's."""
    said = as_mapping(choice.get("message") or choice.get("delta"))
    places = (said.get("content"), choice.get("text"), choice.get("content"), choice.get("delta"))
    return next((text for text in places if isinstance(text, str)), "") or _output_text(choice)


def _output_text(response: Mapping[str, Any]) -> str:
    """The text of an answer of the Responses API."""
    parts = []
    for item in _mappings(response.get("output")):
        parts += [part.get("text") for part in _mappings(item.get("content")) if part.get("type") == "output_text"]
    return "".join(text for text in parts if isinstance(text, str))


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [as_mapping(entry) for entry in value] if isinstance(value, list) else []


@dataclass
class ReplyWatch:
    """Reads a reply while it passes, whole or streamed, and gives the attributes of the answers that are complete.

    What it does not understand it passes over: it watches, and decides nothing.
    """

    streamed: bool
    content: bool = False
    """True to add the texts of the answers, and the reasons, which may quote them."""
    longest: int = 2**24
    """Bytes of a whole reply, and characters of the texts of a stream, that are kept; nothing is reported of a longer
    one."""
    _body: bytearray = field(default_factory=bytearray)
    _reader: EventReader = field(default_factory=EventReader)
    _texts: dict[int, str] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)

    def take(self, piece: bytes) -> list[Attributes]:
        """Read further bytes of a reply; returns the attributes of the choices that end in them."""
        if self.streamed:
            with suppress(InvalidInputError):
                return [attributes for event in self._reader.feed(piece) for attributes in self._of_event(event)]
            return []
        if len(self._body) <= self.longest:
            self._body += piece
        return []

    @property
    def size(self) -> int:
        """The number of bytes that `end` has to parse."""
        return len(self._body)

    def end(self) -> list[Attributes]:
        """Finish a reply that is not a stream; returns the attributes of its choices."""
        if self.streamed or len(self._body) > self.longest:
            return []
        try:
            return evaluations_of(json.loads(bytes(self._body)), content=self.content)
        except (ValueError, RecursionError):
            return []

    def _of_event(self, event: Any) -> Iterator[Attributes]:
        try:
            data = event.data
            wanted = data and len(data) <= LONGEST_EVENT and (self.content or KEY in data)
            fields = as_mapping(json.loads(data)) if wanted and data.strip() != "[DONE]" else {}
        except (InvalidInputError, ValueError, RecursionError):
            return
        if "choices" not in fields:
            yield from self._of_other(fields)
        trailer = fields.get(KEY) if "choices" in fields else None
        if isinstance(trailer, Mapping) and trailer.get("final") is True:  # of a stream that was not understood
            yield evaluation(trailer, content=self.content, response_id=fields.get("id"), model=fields.get("model"))
        for choice in _choices(fields):
            # the final block comes with the last content and again with the chunk that ends the choice
            yield from self._of_place(fields, choice, ended=choice.get("finish_reason") is not None)

    def _of_other(self, fields: Mapping[str, Any]) -> Iterator[Attributes]:
        """Read an event without choices, as the Responses API sends them: its last event holds the whole reply."""
        whole = as_mapping(fields.get("response"))
        if whole:
            yield from self._of_place(whole, whole, ended=True)
        else:
            yield from self._of_place(fields, fields, ended="type" not in fields)

    def _of_place(self, reply: Mapping[str, Any], choice: Mapping[str, Any], *, ended: bool) -> Iterator[Attributes]:
        index = choice.get("index", 0)
        # A server may send any number, and for each new one a text is kept.
        if type(index) is not int or not 0 <= index < MOST_CHOICES or index in self._done:
            return
        if self.content:
            said = _text(choice)
            # The last event of the Responses API holds the whole text once more.
            known = "" if "output" in choice else self._texts.get(index, "")
            self._texts[index] = (known + said)[: self.longest]
        block = block_of(choice)
        if ended and block is not None and block.get("final") is True:
            self._done.add(index)
            yield _of_choice(reply, choice, block, self._texts.get(index, ""), content=self.content)
