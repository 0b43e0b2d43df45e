"""A reply that was saved, with its question, its request and its identifiers; before and after it is parsed."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from semtoken.errors import InvalidInputError
from semtoken.replies.checking.ids import IDS, identifiers, is_id_name, telling
from semtoken.replies.formats.base import Shape
from semtoken.replies.formats.registry import foreign
from semtoken.replies.formats.within import Found, opened, replies_within
from semtoken.support.plain_values import json_or_none
from semtoken.support.questions import question_of

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
    question: str | None
    """The question, where it was saved beside the reply."""
    request: Mapping[str, Any] | None
    """The request, where it was saved beside the reply."""
    line: Any
    """All that was saved, in which each choice of the reply may have a question of its own."""
    record: Mapping[str, Any]
    """The fields of what was saved, and of the record of several answers that it stands in: one may name its group."""
    shape: type[Shape] | None
    """The shape of the reply, where it is known by now."""
    ids: Mapping[str, str]
    """Values that may identify its line; see `semtoken.replies.checking.ids`."""


class ReplyNames(NamedTuple):
    """Everything by which a file of questions may refer to a reply."""

    where: str
    """File and line, for messages."""
    name: str
    """The name of its file without the ending, and its place in a file of several."""
    id: str
    """The identifier of the reply, as in `SavedReply`."""
    ids: Mapping[str, str]
    """Values that may identify its line, as in `SavedReply`."""
    own_ids: Mapping[str, str]
    """Values that may identify the reply itself, which the server made up."""


@dataclass(frozen=True)
class FoundReply:
    """A reply that was found in a file and not parsed yet."""

    where: str
    name: str
    """The name of its file without the ending, and its place in a file of several."""
    value: Any = None
    """The reply with what was saved beside it, as plain values or the text of a stream; the text of a line of JSON."""
    is_line: bool = False
    """True if `value` is a line of JSON that has not been parsed yet."""
    request: Mapping[str, Any] | None = None
    """The request beside its file."""
    around: Mapping[str, Any] = field(default_factory=dict)
    """The record that holds it among other answers, such as several to one question."""
    question: str | None = None
    """The question in that record."""
    is_alone: bool = True
    """True if its file holds nothing else."""
    inside: Sequence[Found] | None = None
    """The replies within `value`; None where they have not been looked for."""
    fault: str = ""
    """The reason why it cannot be read; empty if it can."""

    def parsed(self) -> Any:
        """The plain values of the line; raises `InvalidInputError` if it is no JSON, or its file cannot be read."""
        value = json_or_none(self.value) if self.is_line else self.value
        if self.fault or value is None:
            raise InvalidInputError(self.fault or NO_JSON)
        return value

    def read(self) -> SavedReply:
        """Parse the reply; `InvalidInputError` if it is no JSON, or its file cannot be read."""
        value = self.parsed()
        if isinstance(value, Mapping):
            reply, line, shape = _reply_in(value, self.inside)
            question, request = question_of(line), None if reply is value else opened(value.get("request"))
        else:
            reply, line, shape, question, request = value, None, None, None, None
        ids = self._ids(value, reply, question)
        named = next(telling(ids), None)
        if named is not None:
            identifier = ids[named]
        else:
            identifier = self.name if self.is_alone else _own_ids(reply).get("id", self.name)
        request = request if isinstance(request, Mapping) else self.request
        # What was saved with the reply itself goes before the request beside its file.
        if question is None and self.request is not None:
            question, request, line = question_of(self.request), self.request, self.request
        question = self.question if question is None else question
        # Many replies have an empty `error`, which does not hide that of their record. A record may hold thousands.
        own = {name: said for name, said in value.items() if said is not None} if isinstance(value, Mapping) else {}
        record = ChainMap(own, cast("dict[str, Any]", self.around))
        return SavedReply(self.where, reply, identifier, question, request, line, record, shape, ids)

    def named(self) -> ReplyNames | None:
        """The names of the reply without its content, which takes memory; None if it cannot be read."""
        try:
            saved = self.read()
        except InvalidInputError:
            return None
        return ReplyNames(self.where, self.name, saved.id, saved.ids, _own_ids(saved.reply))

    def _ids(self, value: Any, reply: Any, question: str | None) -> dict[str, str]:
        """Values that may identify the line of a reply, which is within `value` or all of it."""
        if not isinstance(value, Mapping):
            return {}
        all_ids = identifiers(value, inside=None if reply is value else reply)
        # Some people name a line by its question.
        ids = {name: said for name, said in all_ids.items() if said != question}
        if reply is not value:
            return ids
        usual = self.is_alone  # then its file names it, rather than what a server may have added
        return {name: said for name, said in ids.items() if not _is_of_server(name) and (name in IDS or not usual)}


def replies_inside(value: Any) -> list[Found] | None:
    """The replies within a value; None where it holds different ones, which is said once it is read."""
    try:
        return replies_within(value)
    except InvalidInputError:
        return None


def _reply_in(value: Mapping[str, Any], inside: Sequence[Found] | None) -> tuple[Any, Any, type[Shape] | None]:
    """The reply in a value, what its questions are looked for in, and its shape, where that is known by now."""
    found = inside if inside is not None else replies_inside(value) or ()
    if len(found) == 1:
        return found[0].reply, found[0].line, found[0].shape
    return value if found else _leading(value), value, None


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
