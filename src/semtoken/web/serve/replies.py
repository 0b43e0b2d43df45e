"""Answers in OpenAI's two forms, that of chat completions and that of completions: whole, and as chunks of a stream."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.web.serve.orders import RowEnd, RowToken
from semtoken.web.serve.requests import AnyRequest

LOWEST = -9999.0  # as OpenAI writes the log of what is as good as impossible; JSON has no infinity

Block = Mapping[str, Any]


@dataclass(frozen=True)
class TokenSpelling:
    """The spelling of tokens in log-probabilities: as texts or as ids."""

    vocabulary: Vocabulary
    special: Mapping[int, str]
    """Names of the tokens that have no text."""
    as_ids: bool = False
    """True if every token is spelled like "token_id:7", which names it even where several share a text."""

    def name(self, token: int) -> str:
        """The text of a token, or its id spelled as a text."""
        if self.as_ids:
            return f"token_id:{token}"
        return self.special.get(token) or self.vocabulary.pieces[token].decode("utf-8", "replace")

    def item(self, token: int, log_prob: float) -> dict[str, Any]:
        """An entry in the form of chat; the id is there besides OpenAI's fields, as llama.cpp has it."""
        return {
            "token": self.name(token),
            "logprob": max(log_prob, LOWEST),
            "bytes": list(self.vocabulary.pieces[token]),
            "id": token,
        }


@dataclass
class Row:
    """One choice, with the tokens that have come so far."""

    index: int
    steps: list[RowToken] = field(default_factory=list)
    text: str = ""
    ended: RowEnd | None = None

    def take(self, item: RowToken | RowEnd) -> None:
        """Add the next token, or end the choice."""
        self.text += item.text
        if isinstance(item, RowToken):
            self.steps.append(item)
        else:
            self.ended = item

    @property
    def finish_reason(self) -> str | None:
        """The reason why the choice ended, or None while it goes on."""
        return None if self.ended is None else self.ended.finish_reason


class ServedReply(ABC):
    """The form in which an answer is sent: that of chat completions, or that of completions. `request` says which
    fields a client wants beside the text.
    """

    prefix: ClassVar[str]
    object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(self, model: str, names: TokenSpelling, request: AnyRequest) -> None:
        self.names = names
        self._shows_log_probs, self._shows_ids = request.top is not None, request.return_token_ids
        self._usage_later = {"usage": None} if request.shows_usage else {}
        self._head = {"id": f"{self.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    def opening(self, index: int) -> dict[str, Any] | None:
        """The first chunk of a choice, if there is one."""
        return None

    def chunk(self, row: Row, step: RowToken, block: Block | None) -> dict[str, Any]:
        """The chunk of a token; without a block if there is none."""
        choice = self._part(
            row.index, step.text, self._logprobs([step], row.steps[:-1] if self._shows_log_probs else ()), None
        )
        return self._chunk({**choice, **self._ids([step]), **({} if block is None else {"semtoken": block})})

    def rest(self, ended: RowEnd, block: Block) -> dict[str, Any]:
        """The chunk of the text that the end of a choice brings."""
        return self._chunk({**self._part(ended.row, ended.text, None, None), "semtoken": block})

    def closing(self, ended: RowEnd, block: Block) -> dict[str, Any]:
        """The last chunk of a choice, without text."""
        end = self._part(ended.row, None, None, ended.finish_reason)
        return self._chunk({**end, "stop_reason": ended.stop, "semtoken": block})

    def usage_chunk(self, usage: Mapping[str, int]) -> dict[str, Any]:
        """The chunk behind all choices, with the numbers of tokens."""
        return {**self._head, "object": self.chunk_object, "choices": [], "usage": usage}

    def whole(self, rows: Sequence[Row], blocks: Sequence[Block], usage: Mapping[str, int]) -> dict[str, Any]:
        """The whole reply to a request that does not stream."""
        choices = [
            {
                **self._complete(row, self._logprobs(row.steps, ())),
                "stop_reason": None if row.ended is None else row.ended.stop,
                **self._ids(row.steps),
                "semtoken": block,
            }
            for row, block in zip(rows, blocks, strict=True)
        ]
        return {**self._head, "object": self.object, "choices": choices, "usage": usage}

    def _chunk(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._head, "object": self.chunk_object, "choices": [choice], **self._usage_later}

    def _ids(self, steps: Sequence[RowToken]) -> dict[str, Any]:
        return {"token_ids": [step.token for step in steps]} if self._shows_ids else {}

    @abstractmethod
    def _part(self, index: int, text: str | None, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        """A choice in a chunk; without text if that is None."""

    @abstractmethod
    def _complete(self, row: Row, logprobs: Any) -> dict[str, Any]:
        """A choice in a whole reply."""

    @abstractmethod
    def _logprobs(self, steps: Sequence[RowToken], before: Sequence[RowToken]) -> dict[str, Any] | None:
        """The log-probabilities of some steps behind others; None if the client did not ask for them."""


class ChatReply(ServedReply):
    """Replies to POST /v1/chat/completions."""

    prefix = "chatcmpl"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any]:
        """The first chunk of a choice, which says that the assistant speaks."""
        delta = {"role": "assistant", "content": "", "refusal": None}
        return self._chunk({"index": index, "delta": delta, "logprobs": None, "finish_reason": None})

    def _part(self, index: int, text: str | None, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        delta = {} if text is None else {"content": text}
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}

    def _complete(self, row: Row, logprobs: Any) -> dict[str, Any]:
        message = {"role": "assistant", "content": row.text, "refusal": None}
        return {"index": row.index, "message": message, "logprobs": logprobs, "finish_reason": row.finish_reason}

    def _logprobs(self, steps: Sequence[RowToken], before: Sequence[RowToken]) -> dict[str, Any] | None:
        if not self._shows_log_probs:
            return None
        item = self.names.item
        content = [
            {**item(step.token, step.log_prob), "top_logprobs": [item(*best) for best in step.top]} for step in steps
        ]
        return {"content": content, "refusal": None}


class CompletionReply(ServedReply):
    """Replies to POST /v1/completions."""

    prefix = "cmpl"
    object = chunk_object = "text_completion"

    def _part(self, index: int, text: str | None, logprobs: Any, finish_reason: str | None) -> dict[str, Any]:
        return {"index": index, "text": text or "", "logprobs": logprobs, "finish_reason": finish_reason}

    def _complete(self, row: Row, logprobs: Any) -> dict[str, Any]:
        return self._part(row.index, row.text, logprobs, row.finish_reason)

    def _logprobs(self, steps: Sequence[RowToken], before: Sequence[RowToken]) -> dict[str, Any] | None:
        """Lists, one entry a token. Of tokens with one name the most probable is shown, the chosen one always."""
        if not self._shows_log_probs:
            return None
        name = self.names.name
        tokens = [name(step.token) for step in steps]
        tops: list[dict[str, float]] = []
        for step in steps:
            best: dict[str, float] = {}
            for token, log_prob in step.top:
                # The form is an object by names, so of two tokens of one name only one can be there: the more probable
                # one.
                best.setdefault(name(token), max(log_prob, LOWEST))
            tops.append(best | {name(step.token): max(step.log_prob, LOWEST)})
        offset = sum(len(name(step.token)) for step in before)
        return {
            "tokens": tokens,
            "token_logprobs": [max(step.log_prob, LOWEST) for step in steps],
            "top_logprobs": tops,
            "text_offset": list(accumulate(map(len, tokens[:-1]), initial=offset)),
        }
