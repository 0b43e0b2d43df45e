"""One whole reply, as a dict -> Payload."""

from __future__ import annotations

from semtoken.errors import InvalidInput
from semtoken.payloads.formats import Reply, detect, format_named
from semtoken.payloads.parts import FORBIDDEN, assemble
from semtoken.payloads.records import Payload
from semtoken.payloads.values import as_text, optional


def read_reply(reply: Reply, format: str | None, temperature: float | None) -> Payload:
    """Read a reply that is a dict."""
    found = detect(reply) if format is None else format_named(format)
    choices = sorted((assemble(raw, found.ask) for raw in found.choices(reply)), key=lambda choice: choice.index)
    if not choices:
        raise InvalidInput("The reply holds no choices: there is nothing to read.")
    if len({choice.index for choice in choices}) < len(choices):
        raise InvalidInput("Two choices of the reply have the same index.")
    model = optional(as_text, reply.get("model"), "model")
    masked = any(FORBIDDEN in choice.flags for choice in choices)
    return Payload(found.name, model, found.distribution(reply, temperature, masked=masked), tuple(choices))
