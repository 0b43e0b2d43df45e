"""Scoring while transformers generates: a logits processor that observes and changes nothing.

It sees the logits of a step before the token is chosen. They are kept for one step, until the token is known,
and then only a few numbers of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from semtoken._arrays import as_rows, log_normalizers
from semtoken._extras import require
from semtoken.backends._batches import answer_length
from semtoken.clusters import TokenClusters
from semtoken.errors import BackendError, VocabularyMismatch
from semtoken.results import Distribution, ScoredResponse
from semtoken.rules import FunctionWords, Preset, ScoringRules
from semtoken.scoring import AnswerScorer, add_step, scorer_for

require("torch", extra="transformers")
require("transformers", extra="transformers")

import torch  # noqa: E402
from transformers import LogitsProcessor  # noqa: E402

NOT_BEAMS = (
    "A beam's tokens are chosen among hypotheses that are reordered and dropped on the way, so there is no single "
    "next-token distribution that the answer was drawn from. Use greedy decoding (num_beams=1) or sampling."
)


class ClusterRecorder(LogitsProcessor):  # type: ignore[misc]
    """A logits processor that scores the answers of your own `model.generate` call and changes nothing.

    >>> recorder = ClusterRecorder(clusters)  # doctest: +SKIP
    >>> sequences = model.generate(**inputs, logits_processor=[recorder])  # doctest: +SKIP
    >>> results = recorder.results(sequences)  # doctest: +SKIP

    A processor sees logits after transformers' own penalties and masks. Where the generation uses any
    (`repetition_penalty`, `no_repeat_ngram_size`, `suppress_tokens`, ...), generate inside
    `with recorder.watching(model):` and the model's own logits are scored. Temperature, top-k and top-p come
    later and never matter.

    Parameters
    ----------
    clusters
        Clusters of the model's tokenizer.
    preset, function_words, clustering, prefix_matching
        As in `score_logits`.
    eos_token_id
        Ids that end an answer. Without them, special tokens at the end of a sequence are taken as padding after
        the first.
    """

    def __init__(
        self,
        clusters: TokenClusters,
        preset: Preset = "default",
        *,
        function_words: FunctionWords = "paper",
        clustering: bool = True,
        prefix_matching: bool = True,
        eos_token_id: int | Collection[int] | None = None,
    ) -> None:
        self._scorer = scorer_for(clusters, ScoringRules(preset, function_words, clustering, prefix_matching))
        stop_ids = [eos_token_id] if isinstance(eos_token_id, int) else (eos_token_id or ())
        self._stop_ids = frozenset(stop_ids)
        self.reset()

    def reset(self) -> None:
        """Forget an unfinished generation. `results` does so by itself."""
        self._answers: list[AnswerScorer] = []
        self._finished: list[bool] = []
        self._history: torch.Tensor | None = None
        self._rows: torch.Tensor | None = None
        self._watched: torch.Tensor | None = None
        self._prompt_length = 0
        self._masked = False

    @contextmanager
    def watching(self, model: Any) -> Iterator[None]:
        """Score the model's own logits, taken where the model returns them, before any processor."""

        def keep(module: Any, args: Any, output: Any) -> None:
            self._watched = output.logits[:, -1].detach()

        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        handle = inner.register_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Take in one step; `scores` is returned as it is."""
        if self._history is None:
            self._begin(input_ids)
        else:
            self._check_history(input_ids)
            self._take_in(input_ids[:, -1])
        self._history = input_ids
        self._rows = scores.detach().clone() if self._watched is None else self._watched
        if self._watched is None and not self._masked:
            self._masked = bool(torch.isneginf(scores[:, : self._scorer.vocabulary.size]).any())
        return scores

    def _begin(self, input_ids: torch.Tensor) -> None:
        self._answers = [AnswerScorer(self._scorer) for _ in range(len(input_ids))]
        self._finished = [False] * len(input_ids)
        self._prompt_length = input_ids.shape[1]

    def _check_history(self, input_ids: torch.Tensor) -> None:
        before = self._history
        assert before is not None
        if input_ids.shape[1] != before.shape[1] + 1 or len(input_ids) != len(before):
            raise BackendError(
                "The recorder was called for another generation, or for several tokens at once (assisted decoding). "
                "Call results() or reset() after each generate(), and decode one token at a time."
            )
        if not torch.equal(input_ids[:, :-1], before):
            raise BackendError(f"The sequences changed places between two steps: beam search? {NOT_BEAMS}")

    def _take_in(self, tokens: torch.Tensor) -> None:
        """Reduce the rows that are kept, now that the token of each is known."""
        assert self._rows is not None
        rows, chosen = as_rows(self._rows), tokens.tolist()
        size = self._scorer.vocabulary.size
        if rows.shape[1] < size:
            raise VocabularyMismatch(
                f"The model gives {rows.shape[1]:,} logits a step, the vocabulary of the clusters has {size:,} tokens: "
                "these clusters belong to another model."
            )
        active = [i for i, finished in enumerate(self._finished) if not finished]
        normalizers = log_normalizers(rows, size)
        for i in active:
            self._scorer.vocabulary.check_ids([chosen[i]])
        add_step([self._answers[i] for i in active], rows, active, [chosen[i] for i in active], normalizers[active])
        for i in active:
            self._finished[i] = chosen[i] in self._stop_ids

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
        """
        ids = getattr(sequences, "sequences", sequences)
        if self._history is None or len(ids) != len(self._answers):
            raise BackendError(
                f"{len(self._answers)} sequences were recorded, {len(ids)} were given. Was the recorder passed to "
                f"this generate() as logits_processor=[recorder]? {NOT_BEAMS}"
            )
        recorded = self._history.shape[1]
        if ids.shape[1] > recorded:
            self._check_history(ids)
            self._take_in(ids[:, -1])
        elif not torch.equal(ids, self._history[:, : ids.shape[1]]):
            raise BackendError(f"The sequences are not those that were recorded. {NOT_BEAMS}")
        distribution: Distribution = "processed" if self._masked else "raw"
        results = []
        for i, answer in enumerate(self._answers):
            generated = ids[i, self._prompt_length :].tolist()
            answer.truncate(self._length(generated) if lengths is None else lengths[i])
            results.append(answer.finish(distribution))
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
