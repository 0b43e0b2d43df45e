"""A reply that was saved, with its question, its request and its identifiers; before and after it is parsed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from semtoken.errors import InvalidInputError
from semtoken.replies.checking.ids import IDS, identifiers, is_id_name, telling
from semtoken.replies.formats.base import Shape
from semtoken.replies.formats.registry import foreign
from semtoken.replies.formats.within import Found, replies_within
from semtoken.support.questions import question_of
from semtoken.support.splice import load_json

REPLY_FIELDS = ("response", "reply", "body", "completion")
"""The names under which a saved line keeps the reply, beside an id, a question or a request."""
NO_JSON = (
    "It is no JSON: a reply is JSON, one a line, or a saved stream. Of what Python prints, save "
    "`reply.model_dump_json()` or `json.dumps(reply)`."
)


@dataclass(frozen=True)
class SavedReply:
    """One reply as it was saved."""

    where: str
    """File and line, for messages."""
    reply: Any
    """The input of `semtoken.replies.read_reply`: text of a stream, or plain values."""
    id: str
    """The identifier of its line, that of the reply in a file of several, or the name of its file."""
    question: str | None = None
    """The question, where it was saved beside the reply."""
    name: str = ""
    """The name of its file without the ending, and its place in a file of several."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Values that may identify its line; see `semtoken.replies.checking.ids`."""
    own_ids: Mapping[str, str] = field(default_factory=dict)
    """Values that may identify the reply itself, which the server made up."""
    request: Mapping[str, Any] | None = None
    """The request, where it was saved beside the reply."""
    line: Any = None
    """All that was saved, in which each choice of the reply may have a question of its own."""
    shape: type[Shape] | None = None
    """The shape of the reply, where it is known by now."""


@dataclass(frozen=True)
class FoundReply:
    """A reply that was found in a file and not parsed yet."""

    where: str
    name: str
    """The name of its file without the ending, and its place in a file of several."""
    value: Any = None
    """The reply with what was saved beside it, as plain values or the text of a stream; the text of a line of JSON."""
    is_line: bool = False
    """Whether `value` is a line of JSON that has not been parsed yet."""
    request: Mapping[str, Any] | None = None
    """The request beside its file."""
    is_alone: bool = True
    """Whether its file holds nothing else."""
    inside: Sequence[Found] | None = None
    """The replies within `value`; None where they have not been looked for."""
    fault: str = ""
    """The reason why it cannot be read; empty if it can."""

    def parsed(self) -> Any:
        """The plain values of the line; raises `InvalidInputError` if it is no JSON, or its file cannot be read."""
        value = json_value(self.value) if self.is_line else self.value
        if self.fault or value is None:
            raise InvalidInputError(self.fault or NO_JSON)
        return value

    def read(self) -> SavedReply:
        """Parse the reply; `InvalidInputError` if it is no JSON, or its file cannot be read."""
        reply = _saved(self)
        if self.request is None:
            return reply
        # What was saved with the reply itself goes before the request beside its file.
        if reply.question is not None:
            return replace(reply, request=reply.request or self.request)
        return replace(reply, question=question_of(self.request), request=self.request, line=self.request)

    def named(self) -> SavedReply | None:
        """The reply with its names and question, without its content, which takes memory; None if it cannot be read."""
        try:
            return replace(self.read(), reply=None, line=None)
        except InvalidInputError:
            return None


def json_value(text: str | bytes) -> Any:
    """The value of a JSON text, which may be as Python writes it; None where it is none (or null, no reply either)."""
    try:
        return load_json(text)
    except (ValueError, RecursionError):
        return None


def replies_inside(value: Any) -> list[Found] | None:
    """The replies within a value; None where it holds different ones, which is said once it is read."""
    try:
        return replies_within(value)
    except InvalidInputError:
        return None


def _saved(found: FoundReply) -> SavedReply:
    """The reply in what was found, with its question, its request and what may identify it."""
    value = found.parsed()
    if not isinstance(value, Mapping):
        own_ids = _own_ids(value)
        return SavedReply(found.where, value, _called(found, {}, own_ids), name=found.name, own_ids=own_ids)
    replies = found.inside if found.inside is not None else replies_inside(value) or ()
    shape = None
    if len(replies) == 1:
        reply, line, shape = replies[0].reply, replies[0].line, replies[0].shape
    else:
        reply, line = value if replies else _leading(value), value
    question = question_of(line)
    all_ids = identifiers(value, inside=None if reply is value else reply)
    # Some people name a line by its question.
    ids = {name: said for name, said in all_ids.items() if said != question}
    if reply is value:
        usual = found.is_alone  # then its file names it, rather than what a server may have added
        ids = {name: said for name, said in ids.items() if not _is_of_server(name) and (name in IDS or not usual)}
    own_ids = _own_ids(reply)
    request = value["request"] if reply is not value and isinstance(value.get("request"), Mapping) else None
    called = _called(found, ids, own_ids)
    return SavedReply(found.where, reply, called, question, found.name, ids, own_ids, request, line, shape)


def _called(found: FoundReply, ids: Mapping[str, str], own_ids: Mapping[str, str]) -> str:
    """The identifier of a reply: that of its line, its own in a file of several, or the name that its file gives it."""
    named = next(telling(ids), None)
    if named is None:
        return found.name if found.is_alone else own_ids.get("id", found.name)
    return ids[named]


OF_SERVERS = ("id", "object", "model", "system_fingerprint", "service_tier", "responseId", "response_id", "created")
"""Fields of replies that say nothing of whom they answer; a client may have added others."""
CONTENT = ("choices", "output", "message", "usage", "candidates", "meta_info", "details", "usageMetadata")


def _is_of_server(name: str) -> bool:
    return name in OF_SERVERS or name.partition(".")[0] in CONTENT


def _own_ids(reply: Any) -> dict[str, str]:
    """Values that may identify a reply itself, or the chunks of a stream by the first of them."""
    first = reply[0] if isinstance(reply, list) and reply else reply
    own = identifiers(first) if isinstance(first, Mapping) else {}
    return {name: said for name, said in own.items() if is_id_name(name) and name.partition(".")[0] not in CONTENT}


def _leading(value: Mapping[str, Any]) -> Any:
    """The value that a line without a known reply keeps in place of one, for messages; else the line itself."""
    if value.get("error") or foreign(value):
        return value
    kept = next((value[name] for name in REPLY_FIELDS if isinstance(value.get(name), Mapping)), value)
    body = kept.get("body")
    return body if kept is not value and isinstance(body, Mapping) else kept
