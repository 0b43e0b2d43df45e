"""Scoring while transformers generates: a logits processor that observes and changes nothing.

It sees the logits of a step before the token is chosen. They are kept for one step, until the token is known,
and then only a few numbers of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy.typing as npt

from semtoken._arrays import as_rows
from semtoken._extras import require
from semtoken.backends.prompts import answer_length
from semtoken.backends.scores import AnswerScores
from semtoken.backends.transformers.model import NOT_BEAMS
from semtoken.backends.transformers.observe import forward_hook, inner_model
from semtoken.choices import FunctionWords, Preset
from semtoken.clusters import TokenClusters, as_clusters
from semtoken.errors import BackendError, InvalidInput, VocabularyMismatch
from semtoken.results import Answers, Distribution, Running, ScoredResponse
from semtoken.scoring import NormalizedRows, ScoringRules, normalized_rows, scorer_for
from semtoken.scoring.rows import kept_rows

require("torch", extra="transformers")
require("transformers", extra="transformers")

import torch  # noqa: E402
from transformers import LogitsProcessor  # noqa: E402

ROWS_TOGETHER = 8
"""Rows of steps whose tokens are known that wait for each other, if the steps are so small. Between two steps the
model empties the processor's caches: what one step needs of memory and code, the next ones find at hand."""


class ClusterRecorder(LogitsProcessor):  # type: ignore[misc]
    """A logits processor that scores the answers of your own `model.generate` call and changes nothing.

    >>> recorder = ClusterRecorder(clusters)  # doctest: +SKIP
    >>> sequences = model.generate(**inputs, logits_processor=[recorder])  # doctest: +SKIP
    >>> results = recorder.results(sequences)  # doctest: +SKIP

    A processor sees logits after transformers' own penalties and masks. Where the generation uses any
    (`repetition_penalty`, `no_repeat_ngram_size`, `suppress_tokens`, ...), generate inside
    `with recorder.watching(model):` and the model's own logits are scored. Temperature, top-k and top-p come
    later and never matter.

    While the answers are being written, `running` gives what is known of their scores.

    Parameters
    ----------
    clusters
        Clusters of the model's tokenizer, or a directory or hub id of some.
    preset, function_words, clustering, prefix_matching
        As in `score_logits`.
    eos_token_id
        Ids that end an answer. Without them, special tokens at the end of a sequence are taken as padding after
        the first.

    Raises
    ------
    ArtifactError
        There are no clusters in this place, or they are damaged.
    InvalidInput
        Rules that are not known.
    VocabularyMismatch
        At the first step: the model has fewer logits than the clusters have tokens.
    """

    def __init__(
        self,
        clusters: TokenClusters | str | Path,
        preset: Preset = "default",
        *,
        function_words: FunctionWords | None = None,
        clustering: bool | None = None,
        prefix_matching: bool | None = None,
        eos_token_id: int | Collection[int] | None = None,
    ) -> None:
        self._scorer = scorer_for(
            as_clusters(clusters), ScoringRules(preset, function_words, clustering, prefix_matching)
        )
        stop_ids = [eos_token_id] if isinstance(eos_token_id, int) else (eos_token_id or ())
        self._stop_ids = frozenset(stop_ids)
        self._lock = Lock()
        """Held while a step is taken in, so that other threads may ask for what is known."""
        self.reset()

    def reset(self) -> None:
        """Forget an unfinished generation. `results` does so by itself."""
        self._scores = AnswerScores(self._scorer)
        self._finished: list[bool] = []
        self._final: dict[int, Running] = {}
        self._history: torch.Tensor | None = None
        self._rows: NormalizedRows | torch.Tensor | None = None
        """Logits whose tokens are not known yet: those of the answers that go on, or of all."""
        self._waiting: list[tuple[NormalizedRows | torch.Tensor, list[int], list[int]]] = []
        """Steps to take in: their logits, the answers that went on, and the tokens of all."""
        self._together = 1
        """Steps that are taken in at once."""
        self._memory: npt.NDArray[Any] | None = None
        """Copies of the rows of so many steps, the newest one included."""
        self._watched: torch.Tensor | None = None
        self._prompt_length = 0
        self._masked = False

    @contextmanager
    def watching(self, model: Any) -> Iterator[None]:
        """Score the model's own logits, taken where the model returns them, before any processor."""

        def keep(module: Any, args: Any, output: Any) -> None:
            self._watched = output.logits[:, -1].detach()

        with forward_hook(inner_model(model), keep):
            yield

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Take in one step; `scores` is returned as it is."""
        with self._lock:
            if self._history is None:
                self._begin(input_ids)
            else:
                self._follow(input_ids)
            self._keep_row(scores if self._watched is None else self._watched)
            if self._watched is None:
                self._look_for_masks(scores)
        return scores

    def _keep_row(self, logits: torch.Tensor) -> None:
        """Keep the logits of a step until its token is known: a copy, as others may change them."""
        assert self._history is not None
        rows, size = as_rows(logits), self._scorer.vocabulary.size
        if rows.shape[1] < size:
            raise self._mismatch(rows.shape[1])
        self._memory = kept_rows(rows, len(rows) * self._together, size, self._memory)
        if self._memory is None:
            self._rows = logits.detach().clone()
        else:
            first = self._history.shape[1] % self._together * len(rows)
            into, common = self._memory[first : first + len(rows)], self._scorer.tables.neutral_ids
            self._rows = normalized_rows(rows, size, self._active(), into=into, common=common)

    def _look_for_masks(self, scores: torch.Tensor) -> None:
        """Note whether transformers has taken tokens out."""
        if not self._masked:
            known = self._rows.has_minus_infinity if isinstance(self._rows, NormalizedRows) else None
            size = self._scorer.vocabulary.size
            self._masked = bool(torch.isneginf(scores[:, :size]).any() if known is None else known.any())

    def _active(self) -> list[int]:
        """The rows of answers that go on."""
        return [i for i, finished in enumerate(self._finished) if not finished]

    def _begin(self, input_ids: torch.Tensor) -> None:
        self._finished = [False] * len(input_ids)
        self._prompt_length = input_ids.shape[1]
        self._history = input_ids
        self._together = max(1, ROWS_TOGETHER // len(input_ids))

    def _follow(self, input_ids: torch.Tensor) -> None:
        """Note the token of the step whose logits are kept, if any are."""
        self._check_history(input_ids)
        if self._rows is None:
            return
        active, tokens = self._active(), input_ids[:, -1].tolist()
        self._waiting.append((self._rows, active, tokens))
        self._history, self._rows = input_ids, None
        for i in active:
            self._finished[i] = tokens[i] in self._stop_ids
        if len(self._waiting) >= self._together:
            self._take_in()

    def _check_history(self, input_ids: torch.Tensor) -> None:
        before = self._history
        assert before is not None
        recorded = before.shape[1]
        if input_ids.shape[1] != recorded + (self._rows is not None) or len(input_ids) != len(before):
            raise BackendError(
                "The recorder was called for another generation, or for several tokens at once (assisted decoding). "
                "Call results() or reset() after each generate(), and decode one token at a time."
            )
        if not torch.equal(input_ids[:, :recorded], before):
            raise BackendError(f"The sequences changed places between two steps: beam search? {NOT_BEAMS}")

    def _take_in(self) -> None:
        """Reduce the rows of the steps whose tokens are known."""
        size = self._scorer.vocabulary.size
        while self._waiting:
            rows, active, tokens = self._waiting[0]
            if isinstance(rows, torch.Tensor):
                rows = normalized_rows(as_rows(rows), size, active)
            self._scores.add(active, rows, [tokens[i] for i in active])
            del self._waiting[0]

    def _mismatch(self, columns: int) -> VocabularyMismatch:
        return VocabularyMismatch(
            f"The model gives {columns:,} logits a step, the vocabulary of the clusters has "
            f"{self._scorer.vocabulary.size:,} tokens: these clusters belong to another model."
        )

    def running(self, sequences: Any = None) -> list[Running]:
        """What is known so far of each answer that is being written.

        A streamer or another thread may ask at any time between two steps. A stopping criterion can end an answer
        whose uncertainty has passed a threshold, since `uncertainty_bounds[0]` is never taken back:

        >>> class StopIfUncertain(StoppingCriteria):  # doctest: +SKIP
        ...     def __call__(self, input_ids, scores, **kwargs):
        ...         running = recorder.running(input_ids)
        ...         return torch.tensor([one.uncertainty_bounds[0] > 0.9 for one in running], device=input_ids.device)

        Parameters
        ----------
        sequences
            The ids so far [B, prompt + answer], as a stopping criterion gets them, or what `generate` returned. Without
            them the newest token is not known yet and left out.

        Returns
        -------
        list of Running
            One for each sequence; none before the first step. Where a token of `eos_token_id` ended an answer, its
            final score: give these ids for a batch, in which padding counts as tokens otherwise.

        Raises
        ------
        BackendError
            The sequences are not those that are being recorded.
        """
        with self._lock:
            if sequences is not None:
                self._follow_last(getattr(sequences, "sequences", sequences))
            self._take_in()
            return [self._running(i) for i in range(len(self._finished))]

    def _running(self, i: int) -> Running:
        if not self._finished[i]:
            return self._scores.running(i)
        if i not in self._final:
            scored = self._scores.result(i)
            score, length, log_score = scored.uncertainty, len(scored.tokens), scored.log_score
            self._final[i] = Running(score, (score, score), length, length, (log_score, log_score))
        return self._final[i]

    def _follow_last(self, ids: torch.Tensor) -> None:
        """Note the last token of the sequences, unless that was done."""
        if self._history is None or len(ids) != len(self._finished):
            raise BackendError(
                f"{len(self._finished)} sequences were recorded, {len(ids)} were given. Was the recorder passed to "
                f"this generate() as logits_processor=[recorder]? {NOT_BEAMS}"
            )
        if ids.shape[1] > self._history.shape[1]:
            self._follow(ids)
        elif not torch.equal(ids, self._history[:, : ids.shape[1]]):
            raise BackendError(f"The sequences are not those that were recorded. {NOT_BEAMS}")

    def results(self, sequences: Any, *, lengths: Sequence[int] | None = None) -> list[ScoredResponse]:
        """The scored answers of the generation that just ended, one for each of its sequences.

        Parameters
        ----------
        sequences
            What `generate` returned: ids of shape [B, prompt + answer], or its output object.
        lengths
            Tokens of each answer, where neither an end-of-sequence token nor padding says so.

        Raises
        ------
        BackendError
            The sequences are not those that were recorded (beam search, another generation).
        InvalidInput
            There are not as many lengths as answers.
        """
        ids = getattr(sequences, "sequences", sequences)
        with self._lock:
            self._follow_last(ids)
            self._take_in()
            distribution: Distribution = "processed" if self._masked else "raw"
            if lengths is None:
                lengths = [self._length(generated) for generated in ids[:, self._prompt_length :].tolist()]
            if len(lengths) != len(self._finished):
                raise InvalidInput(f"There are {len(self._finished)} answers and {len(lengths)} lengths.")
            results = Answers(self._scores.results(dict(enumerate(lengths)), distribution))
            self.reset()
        return results

    def _length(self, ids: list[int]) -> int:
        """Tokens of an answer, its terminator included, without the padding behind it."""
        if self._stop_ids:
            return answer_length(ids, self._stop_ids, (), self._scorer.vocabulary)
        special = self._scorer.vocabulary.special
        length = len(ids)
        while length > 1 and special[ids[length - 1]] and special[ids[length - 2]]:
            length -= 1
        return length
