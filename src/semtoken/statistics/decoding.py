"""What is seen of a decoding while it runs: raw log-probabilities, best alternatives, hidden states; and draws.

Everything is reduced step by step. Of a batch of B answers at most two rows of V logits an answer exist at one time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from semtoken._arrays import FloatArray, IdArray, gather, log_normalizers
from semtoken._extras import require
from semtoken.backends.transformers.observe import forward_hook, inner_model
from semtoken.errors import InvalidInput, InvalidLogits, ModelError
from semtoken.statistics.timings import Timings

require("torch", extra="transformers")
require("transformers", extra="transformers")

import torch  # noqa: E402
from transformers import LogitsProcessor  # noqa: E402


@dataclass(frozen=True)
class Observed:
    """What a `StepObserver` saw of one answer of n tokens."""

    log_probs: FloatArray
    """[n] of the chosen tokens, raw distribution."""
    top_ids: IdArray | None
    """[n, k] the best tokens of each step, best first."""
    top_log_probs: FloatArray | None
    """[n, k] their log-probabilities."""
    hidden_state: FloatArray | None
    """[H] middle layer, the state that predicts the last token."""


class StepObserver(LogitsProcessor):  # type: ignore[misc]
    """A logits processor that reads the model's own logits, and chooses the tokens itself if it is given draws.

    Generate inside `with observer.watching(model):`, then ask for `results`.

    Parameters
    ----------
    vocabulary_size
        V. Columns of a padded head beyond it are never read.
    stop_ids
        Tokens that end an answer.
    timings
        Where the seconds go: `likelihoods`, `alternatives`, `hidden_states` (with `prefix` before the first).
    top_k
        How many best tokens of each step to keep.
    draws
        Without: decoding stays as it is. With: the only token left possible at each step is the one drawn.
    prefix
        "sample_" for samples.
    """

    def __init__(
        self,
        vocabulary_size: int,
        stop_ids: Sequence[int],
        timings: Timings,
        *,
        top_k: int = 0,
        draws: SeededDraws | None = None,
        prefix: str = "",
    ) -> None:
        self._size = vocabulary_size
        self._stop_ids = torch.tensor(sorted(stop_ids), dtype=torch.long)
        self._timings = timings
        self._top_k = min(top_k, vocabulary_size)
        self._draws = draws
        self._likelihoods_step = f"{prefix}likelihoods"
        self._logits: torch.Tensor | None = None
        self._previous: torch.Tensor | None = None
        self._state: torch.Tensor | None = None
        self._last_states: torch.Tensor | None = None
        self._finished: torch.Tensor | None = None
        self._normalizers: list[FloatArray] = []
        self._log_probs: list[FloatArray] = []
        self._top: list[tuple[IdArray, FloatArray]] = []

    @contextmanager
    def watching(self, model: Any, *, hidden_states: bool = False) -> Iterator[None]:
        """Observe every forward pass of the model, and its middle layer if asked to."""

        def keep_logits(module: Any, args: Any, output: Any) -> None:
            self._logits = output.logits[:, -1, : self._size].detach()

        def keep_state(module: Any, args: Any, output: Any) -> None:
            with self._timings.measure("hidden_states"):
                self._state = (output[0] if isinstance(output, tuple) else output)[:, -1].detach().float()

        with ExitStack() as hooks:
            hooks.enter_context(forward_hook(inner_model(model), keep_logits))
            if hidden_states:
                hooks.enter_context(forward_hook(middle_layer(model), keep_state))
            yield

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.Tensor:
        """Take in one step."""
        logits = self._logits
        assert logits is not None, "generate inside `with observer.watching(model):`"
        if self._finished is None:
            self._finished = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        else:
            self._take_in(input_ids[:, -1])
        self._keep_states(self._finished)
        with self._timings.measure(self._likelihoods_step):
            self._normalizers.append(log_normalizers(logits, self._size))
            self._check(self._finished)
        if self._top_k:
            with self._timings.measure("alternatives"):
                best = logits.float().topk(self._top_k)
                values = best.values.double().cpu().numpy() - self._normalizers[-1][:, None]
                self._top.append((best.indices.cpu().numpy(), values))
        self._previous = logits
        if self._draws is None:
            return scores
        return torch.full_like(scores, -torch.inf).scatter_(1, self._draws(logits)[:, None], 0.0)

    def results(self, sequences: torch.Tensor, lengths: Sequence[int]) -> list[Observed]:
        """What was seen of each answer, once `generate` has returned its sequences [B, prompt + answer]."""
        self._take_in(sequences[:, -1])
        states = None if self._last_states is None else self._last_states.double().cpu().numpy()
        log_probs = np.minimum(np.stack(self._log_probs, axis=1), 0.0)  # [B, steps]
        return [
            Observed(
                log_probs=log_probs[row, :length],
                top_ids=np.stack([ids[row] for ids, _ in self._top[:length]]) if self._top else None,
                top_log_probs=np.stack([values[row] for _, values in self._top[:length]]) if self._top else None,
                hidden_state=None if states is None else states[row],
            )
            for row, length in enumerate(lengths)
        ]

    def _take_in(self, tokens: torch.Tensor) -> None:
        """The tokens chosen from the rows of the step before."""
        assert self._finished is not None
        with self._timings.measure(self._likelihoods_step):
            values = gather(self._previous, np.arange(len(tokens)), tokens.cpu().numpy())
            self._log_probs.append(values - self._normalizers[-1])
        self._finished |= torch.isin(tokens, self._stop_ids.to(tokens.device))

    def _keep_states(self, finished: torch.Tensor) -> None:
        """Replace the states of running answers; a finished one keeps the state that predicted its last token."""
        if self._state is None:
            return
        with self._timings.measure("hidden_states"):
            if self._last_states is None:
                self._last_states = self._state
            else:
                self._last_states = torch.where(finished[:, None], self._last_states, self._state)

    def _check(self, finished: torch.Tensor) -> None:
        if not np.isfinite(self._normalizers[-1][~finished.cpu().numpy()]).all():
            raise InvalidLogits(
                f"The logits of step {len(self._normalizers) - 1} hold NaN or +inf, or not one finite value: "
                "there is no distribution to record."
            )


class SeededDraws:
    """Draws one token for each answer of a batch, the same ones whatever else is in the batch.

    Every answer has its own stream of random numbers, one number a token: the token where the running sum of
    its probabilities passes that number. Two batches may differ in the last bits of their logits; that changes a
    token only if the number lies that close to a border.

    Parameters
    ----------
    keys
        One list of integers for each answer; equal keys, equal draws.
    temperature
        The logits are divided by it. No top-k, no top-p.
    """

    def __init__(self, keys: Sequence[Sequence[int]], temperature: float) -> None:
        if not 0 < temperature < float("inf"):
            raise InvalidInput(f"temperature must be a positive number, got {temperature!r}.")
        self._streams = [np.random.default_rng(list(key)) for key in keys]
        self._temperature = temperature

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits [B, V] -> ids [B]."""
        sums = (logits.double() / self._temperature).softmax(-1).cumsum(-1)
        numbers = torch.tensor([stream.random() for stream in self._streams], dtype=sums.dtype, device=sums.device)
        passed = torch.searchsorted(sums, (numbers * sums[:, -1])[:, None], right=True)[:, 0]
        return passed.clamp(max=logits.shape[1] - 1)


def draw_key(seed: int, prompt_ids: Sequence[int], sample: int) -> list[int]:
    """Key of one sample for `SeededDraws`, made from the prompt: the order of the questions cannot matter."""
    digest = hashlib.sha256(np.asarray(prompt_ids, dtype="<i8").tobytes()).digest()
    return [seed, sample, *np.frombuffer(digest, dtype="<u4").tolist()]


def middle_layer(model: Any) -> Any:
    """The decoder layer whose output is entry int((L + 1) / 2) of the L + 1 hidden states (entry 0: the embeddings).

    Raises
    ------
    ModelError
        The model keeps its layers where they cannot be found.
    """
    count = model.config.get_text_config().num_hidden_layers
    for module in inner_model(model).modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return module[(count + 1) // 2 - 1]
    raise ModelError(
        f"No list of {count} layers was found in {type(model).__name__}, so EigenScore's hidden states cannot be "
        "recorded. Leave 'eigenscore' out of the methods."
    )
