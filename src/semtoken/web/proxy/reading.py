"""Answers that come without log-probabilities: a model in this process reads them and says how probable they were.

`transformers serve` and some gateways drop log-probabilities, so there is nothing to score in their replies. A reader
holds the same model. It sees what the client asked and what the upstream answered, in one forward pass.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from semtoken.backends.base import Prompt
from semtoken.backends.prompts import encode_prompt, encode_response, end_ids, is_ids, prompt_text
from semtoken.errors import InvalidInput
from semtoken.files.images import has_images
from semtoken.payloads import PayloadChoice
from semtoken.results import ScoredResponse
from semtoken.stc import STC
from semtoken.web.proxy.asking import AnswerRequest
from semtoken.web.serve.requests import Message

ALWAYS_TOKENISED = 2**16
"""A text of up to so many characters is tokenised even if it seems too long for the model: some tokenizers drop blanks.
"""


def is_silent(choice: PayloadChoice) -> bool:
    """Whether a choice came without any log-probabilities."""
    return not any(segment.steps for segment in choice.segments)


@dataclass(frozen=True)
class _Text:
    """A prompt with its answer, in token ids."""

    prompt: list[int]
    answer: list[int]
    ended: bool
    """The model ended it itself, with a token that is not among the answer's."""


class Reader:
    """Scores answers that came without log-probabilities, with a model of its own, for one thread at a time.

    `stc` is the upstream's model with the clusters of the proxy; blocks call it `name`. Prompt and answer must together
    have fewer than `most_tokens` tokens to be read.
    """

    def __init__(self, stc: STC, name: str, most_tokens: int = 8192) -> None:
        self.name = name
        self._stc = stc
        room = stc.backend.max_length
        self._most = most_tokens if room is None else min(most_tokens, room)
        self._longest_text = max(self._most * max(map(len, stc.scorer.vocabulary.pieces)), ALWAYS_TOKENISED)
        self._ends = end_ids(stc.model, stc.tokenizer)
        self._one_at_a_time = threading.Lock()

    def read(self, asked: AnswerRequest, choice: PayloadChoice) -> ScoredResponse:
        """Score a complete choice by having the model read it.

        `InvalidInput` if the prompt is not known, there is more in the choice than an answer, or it is too long.
        """
        prompt = _readable(asked.shape.prompt(asked.body, choice.index))
        with self._one_at_a_time:
            text = self._text(asked, prompt, choice)
            if not text.ended:
                return self._score(text, [])
            response = self._score(text, [self._ends[0]])
            last = response.tokens[-1]
            others = [other for other in last.alternatives if other.id in self._ends]
            likeliest = max(others, key=lambda other: other.probability, default=last)
            return response if likeliest.probability <= last.probability else self._score(text, [likeliest.id])

    def _score(self, text: _Text, end: list[int]) -> ScoredResponse:
        [response] = self._stc.score([text.prompt], [text.answer + end])
        return response

    def _text(self, asked: AnswerRequest, prompt: Prompt, choice: PayloadChoice) -> _Text:
        """A choice as its model saw it. What is too long in any case is not tokenised."""
        tokenizer = self._stc.tokenizer
        answer = _answer(choice)
        size = len(prompt) if is_ids(prompt) else len(prompt_text(tokenizer, prompt, choice.index)) + len(answer)
        if size > self._longest_text:
            raise self._too_long(f"{size:,} characters")
        ids = encode_prompt(tokenizer, prompt, choice.index)
        read = encode_response(tokenizer, prompt, ids, answer, choice.index)
        if len(ids) + len(read) >= self._most:
            raise self._too_long(f"{len(ids) + len(read):,} tokens")
        by_itself = choice.finish_reason == asked.shape.ends[0] and not asked.shape.has_stop_texts(asked.body)
        return _Text(ids, read, by_itself and bool(self._ends) and read[-1:] != [] and read[-1] not in self._ends)

    def _too_long(self, size: str) -> InvalidInput:
        return InvalidInput(
            f"Prompt and answer have {size}; fewer than {self._most:,} tokens are read again (--max-read-tokens)."
        )


def _readable(prompt: str | list[Any]) -> Prompt:
    """A prompt as a backend takes it: texts and ids as they are, messages if they hold text and nothing else."""
    if isinstance(prompt, str) or is_ids(prompt):
        return prompt
    try:
        messages = [Message.model_validate(given) for given in prompt]
    except ValidationError as error:
        raise InvalidInput("The messages hold something else than text, which is not read again.") from error
    if has_images(prompt):
        raise InvalidInput("The messages hold something else than text, which is not read again.")
    if any(message.role in ("tool", "function") or message.model_extra for message in messages):
        raise InvalidInput("The messages hold calls of tools or other fields, which are not read again.")
    return [{"role": message.role, "content": message.text} for message in messages]


def _answer(choice: PayloadChoice) -> str:
    """The text of a choice that is nothing but an answer."""
    kinds = [segment.kind for segment in choice.segments]
    if kinds != ["answer"]:
        raise InvalidInput(
            f"The choice holds {' and '.join(kind.replace('_', ' ') for kind in kinds)}; only a plain answer is read "
            "again, since how the model wrote the rest is not known."
        )
    if choice.broken is not None:
        raise InvalidInput(choice.broken)
    return choice.segments[0].text
