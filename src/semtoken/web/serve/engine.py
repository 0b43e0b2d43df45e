"""One generation, watched step by step: tokens, raw log-probabilities, text and uncertainty as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Any, Literal

import numpy as np
import torch
from transformers import StoppingCriteria

from semtoken._arrays import FloatArray, as_rows, log_normalizers
from semtoken.backends.detokenize import AnswerText
from semtoken.backends.prompts import pad
from semtoken.backends.transformers import STC
from semtoken.backends.transformers.observe import forward_hook, inner_model
from semtoken.results import Running, ScoredResponse
from semtoken.scoring import LogitsAnswer, add_step, scorer_for

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Work:
    """What to generate: one answer for each row."""

    prompts: Sequence[Sequence[int]]
    """Token ids of each row's prompt."""
    max_tokens: int
    sampling: Mapping[str, Any]
    """Arguments of transformers' `generate`."""
    seed: int | None = None
    stops: tuple[str, ...] = ()
    """Texts that end an answer; they are not shown."""
    stop_at_newline: bool = False
    """End an answer at its first newline, which is not shown."""
    top: int = 0
    """Best tokens to report at each step."""


@dataclass(frozen=True)
class Step:
    """One token of one row."""

    row: int
    token: int
    log_prob: float
    """Raw: temperature 1, before any processor."""
    top: tuple[tuple[int, float], ...]
    """Ids and log-probabilities of the best tokens, best first."""
    text: str
    """What the shown text gained."""
    running: Running
    """The score so far."""


@dataclass(frozen=True)
class Ended:
    """A row is complete."""

    row: int
    text: str
    """What the shown text gained at last."""
    finish_reason: FinishReason
    result: ScoredResponse


class Engine:
    """Generates with a model, one `Work` at a time.

    Parameters
    ----------
    stc
        The model with its clusters.
    """

    def __init__(self, stc: STC) -> None:
        self.stc = stc

    def warm_up(self) -> None:
        """Generate a token, so that the first request finds everything ready."""
        token = int(np.argmin(self.stc.clusters.vocabulary.special))
        self.run(Work([[token]], max_tokens=1, sampling={}), lambda _: None, Event())

    @property
    def room(self) -> int | None:
        """Tokens of prompt and answer together that the model can read, if it says."""
        limit = getattr(self.stc.model.config.get_text_config(), "max_position_embeddings", None)
        return None if limit is None else int(limit)

    def run(self, work: Work, emit: Callable[[Step | Ended], None], cancelled: Event) -> None:
        """Generate; blocks until all rows are complete or `cancelled` is set.

        Parameters
        ----------
        work
            What to generate.
        emit
            Called with every step, and with the end of every row.
        cancelled
            Set by whoever no longer wants the answer.

        Raises
        ------
        InvalidLogits
            The model gives NaN.
        """
        if cancelled.is_set():
            return
        torch.manual_seed(torch.seed() if work.seed is None else work.seed)
        options = self.stc.generation_options(dict(work.sampling), work.max_tokens, work.stop_at_newline, ())
        watch = _Watch(self.stc, work, frozenset(options["eos_token_id"] or ()), emit, cancelled)
        batch = pad(work.prompts, options["pad_token_id"], left=True)
        device = self.stc.model.get_input_embeddings().weight.device
        with watch.watching(self.stc.model):
            self.stc.model.generate(
                input_ids=torch.from_numpy(batch.ids).to(device),
                attention_mask=torch.from_numpy(batch.mask).to(device),
                stopping_criteria=[watch],
                **options,
            )


class _Watch(StoppingCriteria):  # type: ignore[misc]
    """Sees every step right after its tokens were chosen, and says which rows are complete."""

    def __init__(
        self,
        stc: STC,
        work: Work,
        stop_ids: frozenset[int],
        emit: Callable[[Step | Ended], None],
        cancelled: Event,
    ) -> None:
        scorer = scorer_for(stc.clusters, stc.rules)
        self._vocabulary = stc.clusters.vocabulary
        self._work = work
        self._stop_ids = stop_ids
        self._emit = emit
        self._cancelled = cancelled
        self._logits: torch.Tensor | None = None
        self._answers = [LogitsAnswer(scorer) for _ in work.prompts]
        stops = (*work.stops, "\n") if work.stop_at_newline else work.stops
        self._texts = [AnswerText(self._vocabulary, stops) for _ in work.prompts]
        self._done = [False] * len(work.prompts)

    @contextmanager
    def watching(self, model: Any) -> Iterator[None]:
        """Keep the logits of every forward pass, before any processor."""

        def keep(module: Any, args: Any, output: Any) -> None:
            self._logits = output.logits[:, -1, : self._vocabulary.size].detach()

        with forward_hook(inner_model(model), keep):
            yield

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor, **kwargs: Any) -> torch.Tensor:
        """Take in one step; returns which rows are complete (bool [B])."""
        active = [row for row, done in enumerate(self._done) if not done]
        if active and not self._cancelled.is_set():
            self._take_in(active, input_ids[active, -1].tolist())
        stop = [True] * len(self._done) if self._cancelled.is_set() else self._done
        return torch.tensor(stop, dtype=torch.bool, device=input_ids.device)

    def _take_in(self, active: list[int], tokens: list[int]) -> None:
        assert self._logits is not None
        rows = as_rows(self._logits[active])
        normalizers = log_normalizers(rows, self._vocabulary.size)
        add_step([self._answers[row] for row in active], rows, range(len(active)), tokens, normalizers)
        best = self._best(active, normalizers)
        for i, (row, token) in enumerate(zip(active, tokens, strict=True)):
            log_prob = min(float(rows[i, token]) - float(normalizers[i]), 0.0)
            text = self._texts[row].add(token) if self._is_shown(token) else ""
            self._emit(Step(row, token, log_prob, best[i], text, self._answers[row].running()))
            self._end_if_complete(row, token)

    def _is_shown(self, token: int) -> bool:
        """A token that ends the answer is not, unless there is text before the newline that it holds."""
        return token not in self._stop_ids or (self._work.stop_at_newline and "\n" in self._vocabulary.texts[token])

    def _best(self, active: list[int], normalizers: FloatArray) -> list[tuple[tuple[int, float], ...]]:
        if not self._work.top:
            return [()] * len(active)
        assert self._logits is not None
        best = self._logits[active].float().topk(min(self._work.top, self._vocabulary.size))
        values = np.minimum(best.values.double().cpu().numpy() - normalizers[:, None], 0.0)
        ids = best.indices.tolist()
        return [tuple(zip(ids[i], values[i].tolist(), strict=True)) for i in range(len(active))]

    def _end_if_complete(self, row: int, token: int) -> None:
        answer, text = self._answers[row], self._texts[row]
        stopped = token in self._stop_ids or text.stopped
        if stopped or len(answer.ids) >= self._work.max_tokens:
            self._done[row] = True
            rest = text.finish()
            self._emit(Ended(row, rest, "stop" if stopped else "length", answer.finish("raw")))
