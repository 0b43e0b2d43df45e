"""A final score as the attributes of OpenTelemetry's event `gen_ai.evaluation.result`; no host is needed for that."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from semtoken.errors import InvalidInput
from semtoken.integrations.blocks import KEY, as_mapping, block_of
from semtoken.payloads.sse import EventReader

EVENT = "gen_ai.evaluation.result"
NAME = "semtoken.uncertainty"
UNSCORED = "semtoken.unscored"
"""`error.type` of an answer that could not be scored."""
_OURS = {
    "lower": "semtoken.lower",
    "upper": "semtoken.upper",
    "chance": "semtoken.chance",
    "new_word_confidence": "semtoken.new_word_confidence",
    "method": "semtoken.method",
    "read_with": "semtoken.read_with",
    "preset": "semtoken.preset",
    "n_tokens": "semtoken.n_tokens",
}
"""Fields of a block that OpenTelemetry has no attribute for. It has none for an interval yet."""

Attributes = dict[str, Any]


def evaluation(block: Mapping[str, Any], **more: Any) -> Attributes:
    """The attributes of one answer.

    Parameters
    ----------
    block
        The final `semtoken` block of a choice.
    **more
        `response_id`, `model`, `index` of the choice, and `text`, which is sent only where it is given.
    """
    found: Attributes = {"gen_ai.evaluation.name": NAME}
    if "uncertainty" in block:
        found["gen_ai.evaluation.score.value"] = block["uncertainty"]
        found |= {name: block[field_] for field_, name in _OURS.items() if block.get(field_) is not None}
        if block.get("decision") is not None:
            found["gen_ai.evaluation.score.label"] = block["decision"]
    else:
        found["error.type"] = UNSCORED
    if block.get("reason") is not None:
        found["gen_ai.evaluation.explanation"] = block["reason"]
    codes = [flag["code"] for flag in block.get("flags") or ()]
    if codes:
        found["semtoken.flags"] = codes
    names = {
        "response_id": "gen_ai.response.id",
        "model": "gen_ai.response.model",
        "index": "semtoken.choice",
        "text": "semtoken.answer",
    }
    return found | {name: more[key] for key, name in names.items() if more.get(key) is not None}


def evaluations_of(reply: Any, *, content: bool = False) -> list[Attributes]:
    """The attributes of every choice of a whole reply that carries a block.

    Parameters
    ----------
    reply
        In OpenAI's form, as a mapping or an object of a client.
    content
        Add the texts of the answers.
    """
    fields = as_mapping(reply)
    found = []
    for choice in fields.get("choices") or ():
        block = block_of(choice)
        if block is not None:
            found.append(_of_choice(fields, as_mapping(choice), block, _text(as_mapping(choice)) if content else None))
    return found


def _of_choice(reply: Mapping[str, Any], choice: Mapping[str, Any], block: Mapping[str, Any], text: Any) -> Attributes:
    return evaluation(
        block, response_id=reply.get("id"), model=reply.get("model"), index=choice.get("index", 0), text=text
    )


def _text(choice: Mapping[str, Any]) -> str:
    said = as_mapping(choice.get("message") or choice.get("delta")).get("content")
    return said if isinstance(said, str) else str(choice.get("text") or "")


@dataclass
class ReplyWatch:
    """Reads a reply while it passes, whole or streamed, and gives the attributes of the answers that are complete.

    What it does not understand it passes over: it watches, and decides nothing.
    """

    streamed: bool
    content: bool = False
    """Add the texts of the answers."""
    longest: int = 2**26
    """Bytes of a whole reply that are kept; nothing is reported of a longer one."""
    _body: bytearray = field(default_factory=bytearray)
    _reader: EventReader = field(default_factory=EventReader)
    _texts: dict[int, str] = field(default_factory=dict)
    _done: set[int] = field(default_factory=set)

    def take(self, piece: bytes) -> list[Attributes]:
        """Take in some bytes; returns what is complete with them."""
        if self.streamed:
            with suppress(InvalidInput):
                return [one for event in self._reader.feed(piece) for one in self._of_event(event)]
            return []
        if len(self._body) <= self.longest:
            self._body += piece
        return []

    def end(self) -> list[Attributes]:
        """What is complete at the end of a reply that is not a stream."""
        if self.streamed or len(self._body) > self.longest:
            return []
        try:
            return evaluations_of(json.loads(bytes(self._body)), content=self.content)
        except ValueError:
            return []

    def _of_event(self, event: Any) -> Iterator[Attributes]:
        try:
            data = event.data
            chunk = json.loads(data) if data and data.strip() != "[DONE]" else {}
        except (InvalidInput, ValueError):
            return
        fields = as_mapping(chunk)
        trailer = fields.get(KEY)
        if isinstance(trailer, Mapping) and trailer.get("final") is True:  # of a stream that was not understood
            yield evaluation(trailer, response_id=fields.get("id"), model=fields.get("model"))
        for choice in map(as_mapping, fields.get("choices") or ()):
            index = choice.get("index", 0)
            if self.content:
                self._texts[index] = self._texts.get(index, "") + _text(choice)
            block = block_of(choice)
            # the final block comes with the last content and again with the chunk that ends the choice
            ended = block is not None and block.get("final") is True and choice.get("finish_reason") is not None
            if ended and block is not None and index not in self._done:
                self._done.add(index)
                yield _of_choice(fields, choice, block, self._texts.get(index) if self.content else None)
