"""The embedded model in NumPy as a `Backend`: greedy answers, one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

import tokenizers

from semtoken.almanac import almanac_path
from semtoken.backends.base import (
    Completion,
    Decoding,
    Observer,
    Prompt,
    Readable,
    Response,
    Step,
    finish,
    require_readings,
    show,
)
from semtoken.backends.prompts import as_decodings, encode_prompts, encode_responses, end_ids, newline_ids
from semtoken.backends.small.llama import Array, Cache, Llama
from semtoken.clusters import TokenClusters
from semtoken.errors import BackendError, InvalidInput
from semtoken.results import Distribution
from semtoken.support.arrays import FloatArray
from semtoken.tokens.vocabulary import Vocabulary


class SmallTokenizer:
    """The tokenizer of the embedded model, called like those of transformers. It renders no chat messages."""

    chat_template = None

    def __init__(self, folder: Path) -> None:
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.eos_token = str(json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["eos_token"])
        self.eos_token_id = self.tokenizer.token_to_id(self.eos_token)

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        """Token ids of a text."""
        return {"input_ids": self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of some tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))


class SmallBackend:
    """The embedded model in NumPy; see `semtoken.backends.base.Backend`.

    Raises
    ------
    MissingExtra
        The weights of the embedded model are not installed.
    """

    name = "numpy"
    distribution: Distribution = "raw"
    gives: frozenset[Readable] = frozenset({"log_probability", "entropy", "best", "row", "logits"})

    def __init__(self) -> None:
        folder = almanac_path()
        self.model = Llama.load(folder)
        self.tokenizer = SmallTokenizer(folder)
        settings = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
        named = SimpleNamespace(generation_config=SimpleNamespace(**settings))
        self._ends = frozenset(end_ids(named, self.tokenizer))

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the tokenizer."""
        return Vocabulary.from_tokenizer(self.tokenizer.tokenizer)

    @property
    def max_length(self) -> int:
        """Tokens of prompt and answer together that the model can read."""
        return int(self.model.config["max_position_embeddings"])

    def default_clusters(self, progress: Callable[..., None] | None = None) -> TokenClusters:
        """The clusters that are embedded with the model."""
        from semtoken.almanac import almanac_clusters_path

        return TokenClusters.from_pretrained(almanac_clusters_path())

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise `VocabularyMismatch` unless these are the tokens of the tokenizer."""
        vocabulary.require_same(self.vocabulary, mine="These clusters were made for", theirs="the tokenizer has")

    def check(self, prompts: Sequence[Prompt], decoding: Decoding) -> None:
        """Raise what `generate` would raise before its first step, if it would."""
        self._encoded(prompts)
        if decoding.n > 1 or decoding.temperature > 0 or decoding.options or decoding.stop_strings:
            raise BackendError(
                "The numpy backend decodes greedily, one answer a prompt. Use transformers for the rest."
            )

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding | Sequence[Decoding], observers: Sequence[Observer] = ()
    ) -> list[Completion]:
        """Answer each prompt; see `Backend.generate`.

        Raises
        ------
        InvalidInput
            An empty prompt, chat messages, or no room for an answer.
        BackendError
            Samples, stop strings or options of another engine.
        """
        require_readings(self, observers)
        decodings = as_decodings(decoding, len(prompts))
        for each in decodings:
            self.check(prompts, each)
        return [
            self._generate_one(answer, ids, each, observers)
            for answer, (ids, each) in enumerate(zip(self._encoded(prompts), decodings, strict=True))
        ]

    def _generate_one(
        self, answer: int, prompt: list[int], decoding: Decoding, observers: Sequence[Observer]
    ) -> Completion:
        stops = self._ends | self._newlines if decoding.stop_at_newline else self._ends
        limit = min(decoding.max_new_tokens, self.max_length - len(prompt) + 1)  # the last token need not be read
        cache, ids, unread, stopped = Cache(), list[int](), prompt, False
        while not stopped and len(ids) < limit:
            logits = self.model.read(unread, cache)
            token = int(logits.argmax())
            ids.append(token)
            unread, stopped = [token], token in stops
            stopped = self._show(answer, token, logits, observers, ends=stopped) or stopped
        completion = Completion(ids, truncated=not stopped)
        finish(answer, completion, observers)
        return completion

    @cached_property
    def _newlines(self) -> frozenset[int]:
        return frozenset(newline_ids(self.vocabulary))

    def _show(self, answer: int, token: int, logits: Array, observers: Sequence[Observer], *, ends: bool) -> bool:
        """Show a step; returns whether an observer ends the answer."""
        return answer in show(Step([answer], [token], len(logits), logits[None], [0], ends=[ends]), observers)

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
        for number, (ids, reply) in enumerate(zip(encoded, answers, strict=True)):
            self._check_length(len(ids) + len(reply), number)
        for number, (ids, reply) in enumerate(zip(encoded, answers, strict=True)):
            cache, unread = Cache(), ids
            for token in reply:
                logits = self.model.read(unread, cache)
                unread = [token]
                self._show(number, token, logits, observers, ends=token in self._ends)
            finish(number, Completion(reply, truncated=None), observers)

    def next_log_probs(
        self, prompts: Sequence[Prompt], continuations: Sequence[Sequence[int]], *, batch_size: int = 8
    ) -> FloatArray:
        """Log-probability of each continuation after each prompt; see `Backend.next_log_probs`."""
        raise BackendError("The numpy backend reads no continuations. Use transformers.")

    def _encoded(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        encoded = encode_prompts(self.tokenizer, prompts)
        for number, ids in enumerate(encoded):
            self._check_length(len(ids), number)
        return encoded

    def _check_length(self, length: int, number: int) -> None:
        if length > self.max_length:
            raise InvalidInput(f"Prompt {number} has {length:,} tokens; the model reads {self.max_length:,} at most.")
