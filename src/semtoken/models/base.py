"""The members that semtoken asks of a model: the `Backend` protocol, and what goes in and out of one.

A backend turns prompts into *decoding steps*: one row of raw logits and the token chosen from it. `Observer` objects
listen to these steps and to nothing else; exact STC, log-probabilities, the best alternatives, hidden states and
text streams are all observers. To bring another model or engine to semtoken, write a class with the members of
`Backend`; `semtoken.ScoredModel`, `semtoken.bench.statistics.record`, the benchmark and the command line then take it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.results import Distribution
from semtoken.errors import BackendError, InvalidInputError, InvalidLogits
from semtoken.methods.observers.steps import (
    LOG_PROBABILITY,
    Completion,
    Observer,
    Readable,
    Step,
    not_given,
    readings,
)
from semtoken.support.arrays import FloatArray, gather

if TYPE_CHECKING:
    from semtoken.clustering.token_clusters import TokenClusters

Message: TypeAlias = Mapping[str, Any]
Prompt: TypeAlias = str | Sequence[Message] | Sequence[int]
"""Text, chat messages (`{"role": ..., "content": ...}`) for the tokenizer's own template, or token ids."""
Response: TypeAlias = str | Sequence[int]
"""An answer as text or as token ids."""


@dataclass(frozen=True)
class Decoding:
    """The settings with which a backend generates answers. Greedy unless a temperature says otherwise."""

    max_new_tokens: int = 256
    """The most tokens of an answer."""
    n: int = 1
    """The number of answers to each prompt; they are samples if there is a temperature."""
    temperature: float = 0.0
    """0: greedy decoding. Otherwise tokens are drawn from the distribution at this temperature. What observers see is
    the distribution at temperature 1 either way."""
    top_p: float = 1.0
    """Tokens are drawn only from the most probable ones that together have this probability; 1: from all."""
    top_k: int = 0
    """Tokens are drawn only from so many of the most probable ones; 0: from all."""
    min_p: float = 0.0
    """Tokens are drawn only from those with at least this share of the highest probability; 0: from all."""
    seed: int | None = None
    """The seed of sampled answers. Each answer has its own stream of random numbers, made from the seed, its prompt
    and its number, so that it does not depend on what else is generated. None: different answers every time."""
    stop_at_newline: bool = False
    """End an answer at the first token with a newline, as the paper's prompts ask for."""
    stop_strings: tuple[str, ...] = ()
    """End an answer where one of these is complete. The token that completes it belongs to the answer."""
    batch_size: int = 8
    """The number of prompts that are decoded together, where the engine does not decide that itself."""
    share_prefix: bool = False
    """Read the tokens that all prompts begin with (the examples of a few-shot prompt) once, where the engine can go on
    from them; log-probabilities agree with those of prompts read whole up to rounding."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the engine itself: keyword arguments of transformers' `generate`, of vLLM's
    `SamplingParams` or of llama.cpp's `Llama.generate`."""

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "n", "batch_size"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} must be positive, got {getattr(self, name)}.")
        if not 0 <= self.temperature < float("inf"):
            raise InvalidInputError(f"temperature must be a number from 0 on, got {self.temperature!r}.")


def require_readings(backend: Backend, observers: Sequence[Observer]) -> None:
    """Raise `BackendError`, before a backend runs, if an observer reads what it does not give."""
    missing = {reading.what for reading in readings(observers)} - backend.gives
    if missing:
        raise BackendError(not_given(backend.name, missing, f" of {type(backend.model).__name__}"))


@dataclass(frozen=True)
class Arrival:
    """A prompt that joins the answers that are being written."""

    answer: int
    """The number that observers know its answer by; none that is being written has it."""
    prompt_ids: Sequence[int]
    """The token ids of the prompt."""
    decoding: Decoding
    """The settings for its answer: `n` must be 1, and there can be no `options`."""
    is_wanted: Callable[[], bool] = lambda: True
    """Asked before more of its prompt is read; an answer that is not wanted any more ends without a token."""


class OwnTokens:
    """The members of a backend that follow from its tokenizer, and from how it reads replies."""

    tokenizer: Any

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the tokenizer."""
        return Vocabulary.from_tokenizer(self.tokenizer)

    @cached_property
    def newlines(self) -> frozenset[int]:
        """Every token whose text contains a newline: the paper's prompts end an answer there."""
        return frozenset(token for token, text in enumerate(self.vocabulary.texts) if "\n" in text)

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise `VocabularyMismatch` unless these are the tokens of the tokenizer."""
        vocabulary.require_same(self.vocabulary)

    def next_log_probs(
        self: Backend, prompts: Sequence[Prompt], continuations: Sequence[Sequence[int]], *, batch_size: int = 8
    ) -> FloatArray:
        """Log-probability of each continuation after each prompt, in as few replies as the engine's steps allow; see
        `Backend.next_log_probs`.
        """
        wanted = [tuple(ids) for ids in continuations]
        found: dict[tuple[int, ...], FloatArray] = {(): np.zeros(len(prompts))}
        while left := [ids for ids in wanted if ids not in found]:
            # The longest one serves all that differ from its beginning in their last token alone.
            looked = LookedUp(max(left, key=len), left, len(prompts))
            self.read(prompts, [looked.reply] * len(prompts), [looked], batch_size=batch_size)
            found |= looked.sums
        return np.array([found[ids] for ids in wanted]).reshape(len(wanted), len(prompts)).T


class LookedUp(Observer):
    """Sums the log-probabilities of continuations while one of them, the same for all prompts, is read as the reply."""

    reads = frozenset({LOG_PROBABILITY})

    def __init__(self, reply: tuple[int, ...], wanted: Sequence[tuple[int, ...]], prompts: int) -> None:
        self.reply = reply
        self.sums = {ids: np.zeros(prompts) for ids in wanted if ids[:-1] == reply[: len(ids) - 1]}
        """[prompts] for each of the continuations whose tokens can be looked up on the way."""
        self._read = np.zeros(prompts, dtype=np.int64)

    def observe(self, step: Step) -> None:
        """Take in one step of some replies."""
        if step.logits is None:  # the engine gives the chosen token of the step alone
            self.sums = {ids: sums for ids, sums in self.sums.items() if ids == self.reply[: len(ids)]}
        elif not np.isfinite(step.log_normalizers).all():
            raise InvalidLogits("The model gives NaN or no finite logit after a prompt.")
        for ids, sums in self.sums.items():
            places = [place for place, answer in enumerate(step.answers) if self._read[answer] < len(ids)]
            answers = np.array([step.answers[place] for place in places], dtype=np.int64)
            if step.logits is None:
                values = step.log_probabilities()[places]
            else:
                rows = np.array([step.rows[place] for place in places], dtype=np.int64)
                tokens = np.array([ids[self._read[answer]] for answer in answers], dtype=np.int64)
                values = gather(step.logits, rows, tokens) - step.log_normalizers[places]
            sums[answers] += np.minimum(values, 0.0)
        self._read[list(step.answers)] += 1


@runtime_checkable
class JoiningBackend(Protocol):
    """A backend whose answers begin and end one by one: nobody waits for the longest answer of a batch."""

    @property
    def joins(self) -> bool:
        """True if answers can begin and end one by one with the loaded model."""

    def generate_joining(self, arrivals: Callable[[], Sequence[Arrival]], observers: Sequence[Observer]) -> None:
        """Answer prompts as they come, until all answers are complete and nothing joins.

        `arrivals` is called before every step: what joins. Observers see every step of each answer, and its end; they
        may end answers as in `Backend.generate`.
        """


@runtime_checkable
class Backend(Protocol):
    """A model with its tokenizer. Prompts go in, answers come out, observers see every step."""

    @property
    def name(self) -> str:
        """The name in messages and provenance: "transformers", "vllm", "llama-cpp"."""

    @property
    def model(self) -> Any:
        """The engine's own model."""

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer; it is called like those of transformers."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens of the model."""

    @property
    def distribution(self) -> Distribution:
        """The kind of log-probabilities that the steps hold: `raw` (the model's own), `processed` (after temperature,
        penalties and the like) or `unknown`.
        """

    @property
    def max_length(self) -> int | None:
        """The number of tokens of prompt and answer that the model can read together; None if it does not say."""

    @property
    def gives(self) -> frozenset[Readable]:
        """The kinds of data that the steps of this backend hold for observers that ask for it."""

    def check(self, prompts: Sequence[Prompt], decoding: Decoding) -> None:
        """Raise the error that `generate` would raise before its first step; does nothing if it would raise none."""

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding | Sequence[Decoding], observers: Sequence[Observer] = ()
    ) -> list[Completion]:
        """Answer each prompt `decoding.n` times: the answers to the first, then those to the second, and so on.

        The decoding is for all prompts, or there is one for each, in which `n`, `batch_size` and `options` must be the
        same. Observers see every step as soon as the engine shows it, in the order given. `InvalidInputError` if a
        prompt or a setting cannot be used, `BackendError` if an observer reads what the backend does not give.
        """

    def read(
        self,
        prompts: Sequence[Prompt],
        replies: Sequence[Response],
        observers: Sequence[Observer],
        *,
        batch_size: int = 8,
    ) -> None:
        """Read replies that exist, one for each prompt, as if they had been generated: observers see the same steps.

        Text is read as it stands: no terminator is added. `batch_size` replies are read together, where the engine does
        not decide that itself. `InvalidInputError` if there is not one reply for each prompt, or one cannot be used.
        """

    def next_log_probs(
        self, prompts: Sequence[Prompt], continuations: Sequence[Sequence[int]], *, batch_size: int = 8
    ) -> FloatArray:
        """Natural log-probability of each continuation (token ids) after each prompt: [prompts, continuations], <= 0.

        `batch_size` prompts are read together, where the engine does not decide that itself. `InvalidInputError` if a
        prompt cannot be used, or is too long.
        """

    def default_clusters(self, progress: Callable[..., None] | None = None) -> TokenClusters:
        """The clusters cached for this model, or computed from its token table and cached.

        `progress` is called as in `TokenClusters.from_model`.
        """

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise `VocabularyMismatch` unless these are the model's tokens."""
