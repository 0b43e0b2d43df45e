"""Replies and events of a stream with a block for each choice, and without what only we asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from semtoken.payloads.formats import HiddenFields, Place, Shape
from semtoken.payloads.splice import Change, Document, Drop, Edit, Put, encode
from semtoken.payloads.stream import Continuation, Frame
from semtoken.results.blocks import KEY
from semtoken.web.block import reason_block

Blocks = Mapping[int, Mapping[str, Any]]
"""The block that each choice gets, by the choice's index."""
Withheld = Callable[[Mapping[str, Any] | None], str | None]
"""The block of a choice -> the text to show in place of its answer; None: the answer itself."""
UNDECIDED = "The answer could not be scored, so nothing was decided."
"""Stands for the reason, which may quote the answer, where the answer is withheld."""
HERE = "block"
"""Stands for a block in what is remembered of an edit."""


class LocatedReply(NamedTuple):
    """A parsed reply or event, with the places of its choices."""

    json: Document
    places: Sequence[Place]

    @property
    def ends(self) -> bool:
        """Whether a choice ends with this reply or event."""
        return any(place.ended for place in self.places)


class _Piece(NamedTuple):
    """An edit of events with one frame: its ends are so many characters behind a place's end, or behind the start."""

    start: tuple[int, int]
    end: tuple[int, int]
    replacement: str
    is_block: bool


@dataclass
class Editor:
    """Edits the reply or the events of one answer: removes what is `hidden`, replaces answers that are `withheld`."""

    shape: type[Shape]
    hidden: HiddenFields | None
    withheld: Withheld | None = None
    _known: dict[tuple[Frame, bool], list[_Piece] | None] = field(default_factory=dict)
    """The edits of events that only go on with an answer, by their frame and by whether they get a block."""

    def read(self, text: str) -> LocatedReply:
        """Parse a reply or event, and find its choices.

        Raises
        ------
        ValueError
            The text is not JSON, or does not have the shape.
        """
        document = Document(text)
        places = self.shape.places(document.value)
        if places is None:
            raise ValueError(f"it is nothing that {self.shape.path} answers")
        return LocatedReply(document, places)

    def edited(self, reply: LocatedReply, blocks: Blocks) -> str:
        """The text of a reply or event after editing: without hidden fields, with blocks, and with withheld answers
        replaced.
        """
        return reply.json.changed(self._changes(reply, blocks))

    def _changes(self, reply: LocatedReply, blocks: Blocks) -> Iterator[Change]:
        for place in reply.places:
            block = None if place.choice is None else blocks.get(place.choice)
            other = None if self.withheld is None else self.withheld(block)
            if block is not None:
                quotes = other is not None and "decision" not in block
                yield Put(place.path, KEY, reason_block(UNDECIDED) if quotes else block)
            else:  # of an upstream that scores, too: its numbers must not stand among ours
                yield Drop((*place.path, KEY))
            if other is not None:
                yield from self.shape.withholding(reply.json.value, place, other)
        if self.hidden is not None:
            yield from self.shape.hiding(reply.json.value, self.hidden)

    def continued(self, event: Continuation, data: str, blocks: Blocks) -> str:
        """The same result as `edited` for an event that only adds to an answer, from its known frame."""
        key = (event.frame, bool(blocks))
        if key not in self._known:
            self._known[key] = self._learned(event, data, blocks)
        pieces = self._known[key]
        kept = None if self.hidden is None else self.hidden.kept
        if pieces is None or (kept is not None and any(len(step.names) > kept + 1 for step in event.steps.steps)):
            return self.edited(self.read(data), blocks)
        edges = [(0, 0), *event.spans]
        parts, done = [], 0
        for (behind, more), (until, beyond), replacement, is_block in pieces:
            parts += [data[done : edges[behind][1] + more], replacement]
            if is_block:
                parts.append(encode(blocks[event.choice]))
            done = edges[until][1] + beyond
        return "".join([*parts, data[done:]])

    def _learned(self, event: Continuation, data: str, blocks: Blocks) -> list[_Piece] | None:
        """The edits of an event; None if one of them changes the inside of a place."""
        reply = self.read(data)
        edits = reply.json.edits(self._changes(reply, {choice: {HERE: None} for choice in blocks}))
        pieces = [_piece(edit, event.spans) for edit in edits]
        return None if None in pieces else pieces  # type: ignore[return-value]


def _piece(edit: Edit, spans: Sequence[tuple[int, int]]) -> _Piece | None:
    start, end = _behind(edit.start, spans), _behind(edit.end, spans)
    if start is None or end is None:
        return None
    here = encode({HERE: None})
    return _Piece(start, end, edit.replacement.removesuffix(here), edit.replacement.endswith(here))


def _behind(position: int, spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The last place that ends before a position, from 1 on (0: the start), and how far; None inside a place."""
    number, edge = 0, 0
    for i, (start, end) in enumerate(spans, start=1):
        if start < position < end:
            return None
        if end <= position:
            number, edge = i, end
    return number, position - edge
