"""Blocks put into a reply or event, and what only the proxy asked for taken out; every other character stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from semtoken.core.results.blocks import KEY
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.replies.formats import HiddenFields, Place, Shape
from semtoken.replies.formats.fields import MISSING, value_at
from semtoken.support.splice import Change, Document, Drop, Put
from semtoken.web.block import reason_block

Blocks = Mapping[int, Mapping[str, Any]]
"""The block that each choice gets, by the choice's index."""
UNDECIDED = "The answer could not be scored, so nothing was decided."
"""Stands for the reason, which may quote the answer, where the answer is withheld."""


class LocatedReply(NamedTuple):
    """A parsed reply or event, with the places of its choices."""

    json: Document
    places: Sequence[Place]

    @property
    def ends(self) -> bool:
        """True if a choice ends with this reply or event."""
        return any(place.ended for place in self.places)


@dataclass
class Editor:
    """Edits the reply or the events of one answer: removes what is `hidden`, replaces answers that `applied` does not
    accept.
    """

    shape: type[Shape]
    hidden: HiddenFields | None
    applied: CalibratorInUse | None = None

    def read(self, text: str) -> LocatedReply:
        """Parse a reply or event, and find its choices; `ValueError` if it is not JSON or lacks the shape."""
        document = Document(text)
        places = self.shape.places(document.value)
        if places is None:
            raise ValueError(f"it is nothing that {self.shape.path} answers")
        return LocatedReply(document, places)

    def edited(self, reply: LocatedReply, blocks: Blocks) -> str:
        """A reply or event after editing: without hidden fields, with blocks, and with withheld answers replaced."""
        return reply.json.changed(self._changes(reply, blocks))

    def _changes(self, reply: LocatedReply, blocks: Blocks) -> Iterator[Change]:
        for place in reply.places:
            block = None if place.choice is None else blocks.get(place.choice)
            other = None if self.applied is None else self.applied.shown_instead(block)
            if block is not None:
                quotes = other is not None and "confidence" not in block
                # The reason why an answer has no score may quote the answer, which is held back.
                yield Put(place.path, {KEY: reason_block(UNDECIDED) if quotes else block})
            elif value_at(reply.json.value, (*place.path, KEY), MISSING) is not MISSING:
                # That of an upstream that scores, too: its numbers must not stand among ours.
                yield Drop((*place.path, KEY))
            if other is not None:
                yield from self.shape.withholding(reply.json.value, place, other)
        if self.hidden is not None:
            yield from self.shape.hiding(reply.json.value, self.hidden)
