"""The common part of backends that answer one prompt after the other, a token at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.core.results import Distribution
from semtoken.errors import BackendError
from semtoken.methods.observers.steps import Completion, Observer, Readable, Step, finish, show
from semtoken.models.base import Decoding, OwnTokens, Prompt, Response, require_readings
from semtoken.models.prompt_ids import as_decodings, check_lengths, encode_prompts, encode_responses
from semtoken.models.written import WrittenAnswer

if TYPE_CHECKING:
    from semtoken.clustering.token_clusters import TokenClusters

Logits: TypeAlias = npt.NDArray[np.floating[Any]]
"""A row of logits, of shape [columns]: columns beyond the vocabulary are padding."""


class OneByOne(OwnTokens, ABC):
    """A `Backend` of an engine that reads tokens and gives the logits after the last one.

    A subclass has the attributes below without a value, and says in `_begin` how tokens are read. Its answers are
    greedy, unless it says in `_tokens` how else they are chosen.
    """

    name: ClassVar[str]
    """The name of the engine in messages and provenance."""
    model: Any
    """The engine's own model."""
    _ends: frozenset[int]
    """Tokens that end an answer."""
    distribution: Distribution = "raw"
    """The kind of distribution that the logits stand for; `raw` is the model's own distribution."""
    gives: frozenset[Readable] = frozenset({"log_probability", "entropy", "best", "row", "logits"})
    """The kinds of data that observers can read of a step."""
    _remedy: ClassVar[str] = "Shorten the prompt."
    """The advice to a user whose prompt is longer than the model reads."""
    _last_is_read: ClassVar[int] = 0
    """1 if the engine reads the last token of an answer, too, and needs room for it."""

    @property
    def max_length(self) -> int | None:
        """The number of tokens of prompt and answer that the model can read together; None if it does not say."""
        return None

    @abstractmethod
    def default_clusters(self, progress: Callable[..., None] | None = None) -> TokenClusters:
        """The clusters cached for this model, or computed from its token table and cached."""

    @abstractmethod
    def _begin(self) -> Callable[[Sequence[int]], Logits]:
        """Begin a new text. The function reads further tokens of it and gives the logits [columns] after the last one,
        which are valid until it is called again.
        """

    def check(self, prompts: Sequence[Prompt], decoding: Decoding) -> None:
        """Raise the error that `generate` would raise before its first step; does nothing if it would raise none."""
        self._encoded(prompts, self._last_is_read)
        self._check_decoding(decoding)

    def _check_decoding(self, decoding: Decoding) -> None:
        """Raise `BackendError` for settings that cannot be followed."""
        if decoding.n > 1 or decoding.temperature > 0 or decoding.options or decoding.stop_strings:
            raise BackendError(
                f"The {self.name} backend decodes greedily, one answer a prompt. Use transformers for the rest."
            )

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding | Sequence[Decoding], observers: Sequence[Observer] = ()
    ) -> list[Completion]:
        """Answer each prompt; see `Backend.generate`."""
        require_readings(self, observers)
        decodings = as_decodings(decoding, len(prompts))
        encoded = self._encoded(prompts, self._last_is_read)
        for each in decodings:
            self._check_decoding(each)
        wanted = [(ids, each, n) for ids, each in zip(encoded, decodings, strict=True) for n in range(each.n)]
        return [self._answer(answer, *request, observers) for answer, request in enumerate(wanted)]

    def _answer(
        self, answer: int, prompt: list[int], decoding: Decoding, sample: int, observers: Sequence[Observer]
    ) -> Completion:
        limit = decoding.max_new_tokens
        if self.max_length is not None:
            # Nothing follows the last token, so most engines need not read it: one more fits.
            limit = min(limit, self.max_length - len(prompt) + 1 - self._last_is_read)
        written = WrittenAnswer(answer, limit, self._stop_ids(decoding), decoding.stop_strings)
        for token, logits in self._tokens(prompt, decoding, sample):
            # Shown in any case: the token that ends an answer has a probability, too, and counts in its score.
            ended = self._show(answer, token, logits, observers, ends=token in written.stop_ids)
            if written.completed(token, self.vocabulary, ended=ended):
                break
        completion = written.completion or written.broken_off()
        finish(answer, completion, observers)
        return completion

    def _stop_ids(self, decoding: Decoding) -> frozenset[int]:
        """Tokens that end an answer."""
        return self._ends | self.newlines if decoding.stop_at_newline else self._ends

    def _tokens(self, prompt: list[int], decoding: Decoding, sample: int) -> Iterator[tuple[int, Logits]]:
        """The tokens of an answer, without end, each with the logits that it was chosen from."""
        read, unread = self._begin(), prompt
        while True:
            logits = read(unread)
            # The prompt was read in the first pass, and the engine keeps it: from here on one token at a time.
            unread = [int(logits.argmax())]
            yield unread[0], logits

    def read(
        self,
        prompts: Sequence[Prompt],
        replies: Sequence[Response],
        observers: Sequence[Observer],
        *,
        batch_size: int = 8,
    ) -> None:
        """Read replies token by token; see `Backend.read`."""
        require_readings(self, observers)
        encoded = self._encoded(prompts)
        answers = encode_responses(self.tokenizer, self.vocabulary, prompts, encoded, replies)
        self._check_lengths([len(ids) + len(reply) for ids, reply in zip(encoded, answers, strict=True)])
        for number, (ids, reply) in enumerate(zip(encoded, answers, strict=True)):
            read, unread = self._begin(), ids
            for token in reply:
                self._show(number, token, read(unread), observers)
                unread = [token]
            finish(number, Completion(reply, truncated=None), observers)

    def _show(
        self, answer: int, token: int, logits: Logits, observers: Sequence[Observer], *, ends: bool = False
    ) -> bool:
        """Show a step; returns whether an observer ends the answer."""
        return answer in show(Step([answer], [token], len(logits), logits[None], [0], ends=[ends]), observers)

    def _encoded(self, prompts: Sequence[Prompt], more: int = 0) -> list[list[int]]:
        """Token ids of prompts, behind each of which there must be room for so many more tokens."""
        encoded = encode_prompts(self.tokenizer, prompts, self.vocabulary.size)
        self._check_lengths([len(ids) + more for ids in encoded])
        return encoded

    def _check_lengths(self, lengths: Sequence[int]) -> None:
        check_lengths(lengths, self.max_length, "and its answer take at least", self._remedy)
