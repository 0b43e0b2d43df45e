"""The scores of a stream: values so far with each event, and the final block with the event that ends a choice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from semtoken.core.growing import GrowingAnswer
from semtoken.replies import ReplyStream
from semtoken.replies.stream import NO_END
from semtoken.web.block import running_block
from semtoken.web.proxy.editing import LocatedReply
from semtoken.web.proxy.scoring import TOO_LONG, Block, ReplyScorer, UnscoredChoice, explained

AFTER_THE_END = "More of the answer came after the server had said that it is complete."


class StreamScorer:
    """Scores the choices of one stream, event by event; `reply` keeps what holds for the whole of it.

    An answer is read as it comes where values so far are asked for, else once it is complete.
    """

    def __init__(self, reply: ReplyScorer) -> None:
        self.reply = reply
        reply.parsed = self._stream = ReplyStream(request=reply.asked.body)
        self._written: dict[int, GrowingAnswer] = defaultdict(lambda: GrowingAnswer(reply.scoring.scorer))
        """The choices that the stream has shown, by index, with their answers where values so far are asked for."""
        self._last: Mapping[str, Any] = {}
        """The newest event that was parsed."""
        self._is_over = False
        """True once the stream was looked at as a whole, at its mark of the end or where it ends without one."""

    def blocks(self, event: LocatedReply) -> dict[int, Block]:
        """Score an event; returns the blocks of unfinished answers and of those that end with it."""
        self._last = event.json.value
        blocks: dict[int, Block] = {}
        with self.reply.clock:
            late = self._take_in(event)
            for place in event.places:
                index = place.choice
                if index is not None and (place.ended or index in late):
                    blocks[index] = self._final(index)
                elif index is not None and (running := self._running(index)) is not None:
                    blocks[index] = running
        return blocks

    def trailer(self) -> Block | None:
        """An event for the end of a stream that was not understood or ended no choice, if none had a final block.

        None if it was asked for before.
        """
        reply, was_over, self._is_over = self.reply, self._is_over, True
        failed = reply.failed or (UnscoredChoice("no_end", NO_END) if self._written else None)
        if was_over or failed is None or reply.ended:
            return None
        return reply.asked.shape.notice(self._last, reply.unscored(failed) | {"final": True})

    def _take_in(self, event: LocatedReply) -> set[int]:
        """Take in what an event adds, or remember why not; the choices that it adds to although they had ended."""
        reply, late = self.reply, set[int]()
        reply.check_budget()
        if reply.failed is not None:
            return late
        try:
            for added in self._stream.feed(event.json.value):
                written = self._written[added.choice]
                if added.choice in reply.ended:
                    late.add(added.choice)
                # Thinking counts, too: it takes memory and time like an answer.
                reply.n_tokens += len(added.steps)
                if reply.n_tokens > reply.settings.max_scored_tokens:
                    raise UnscoredChoice("too_long", TOO_LONG)
                if added.kind == "answer" and reply.asked.options.running:
                    written.add(*added.steps)
        except Exception as error:
            reply.failed = explained(error)
            return set()
        if late:
            reply.fail("after_the_end", AFTER_THE_END)
        return late

    def _running(self, index: int) -> Block | None:
        """The block of an answer that goes on, where values so far are asked for and there are any."""
        written = self._written.get(index)
        if self.reply.failed is not None or written is None or not written.ids:
            return None
        return running_block(written.running())

    def _final(self, index: int) -> Block:
        """The final block of a choice, the same as if the reply had not been streamed."""
        reply = self.reply
        reply.ended.add(index)
        try:
            if reply.failed is not None:
                raise reply.failed
            choice, distribution = self._stream.choice(index)
        except Exception as error:
            return reply.unscored(explained(error)) | {"final": True}
        return reply.block(choice, distribution, self._written[index]) | {"final": True}
