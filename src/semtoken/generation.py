"""What was recorded of one answer, for the methods to read: one frozen record, filled in step by step.

Recording steps return a fuller copy (`dataclasses.replace`); nothing writes to a record. Log-probabilities
are natural logs of the raw distribution, terminators (end of sequence, newline) included.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInput

FloatArray = npt.NDArray[np.floating[Any]]
IntArray = npt.NDArray[np.integer[Any]]

_PER_TOKEN = (
    "token_texts",
    "log_probs",
    "top_ids",
    "top_texts",
    "top_log_probs",
    "token_similarity",
    "nli_chosen_to_alternative",
    "nli_alternative_to_chosen",
)
_PER_SAMPLE = (
    "sample_texts",
    "sample_token_ids",
    "sample_log_probs",
    "sample_token_similarity",
    "nli_logits",
    "similarity",
    "hidden_states",
)


@dataclass(frozen=True, eq=False)
class Generation:
    """One produced answer with its records: n tokens, M samples of the same prompt. None: not recorded.

    Raises
    ------
    InvalidInput
        A record does not have one entry per token, or per sample.
    """

    text: str
    """The greedy answer, special tokens left out."""
    token_ids: Sequence[int]
    """[n] its tokens, the terminator included."""

    question: str | None = None
    """The bare question."""
    prompt: str | None = None
    """What the model was given, examples included."""
    distribution: str = "unknown"
    """What the log-probabilities are of: "raw", "processed" or "unknown". Published figures need "raw"."""

    token_texts: Sequence[str] | None = None
    """[n] each token decoded alone."""
    log_probs: FloatArray | None = None
    """[n] log-probability of each token."""
    top_ids: Sequence[IntArray] | None = None
    """[n] arrays: the best alternatives of each step, the chosen token first."""
    top_texts: Sequence[Sequence[str]] | None = None
    """[n] lists: the same, each token decoded alone."""
    top_log_probs: Sequence[FloatArray] | None = None
    """[n] arrays: their log-probabilities."""

    sample_texts: Sequence[str] | None = None
    """[M] sampled answers; the greedy one is not among them."""
    sample_token_ids: Sequence[Sequence[int]] | None = None
    """[M] lists: their tokens, terminators included."""
    sample_log_probs: Sequence[FloatArray] | None = None
    """[M] arrays: log-probabilities of the sampled tokens at temperature 1, whatever they were drawn with."""

    p_true_log_probs: FloatArray | None = None
    """[2] log P("True") and log P("False") after the question whether the greedy answer is true."""
    nli_logits: FloatArray | None = None
    """[M, M, 3] contradiction, neutral, entailment; row: premise, column: hypothesis; texts with the question."""
    similarity: FloatArray | None = None
    """[M, M] similarity of "question answer" texts in [0, 1]."""
    token_similarity: FloatArray | None = None
    """[n] similarity of the greedy answer with and without each token; 1 for special tokens."""
    sample_token_similarity: Sequence[FloatArray] | None = None
    """[M] arrays: the same for every sample."""
    nli_chosen_to_alternative: Sequence[IntArray] | None = None
    """[n] arrays: NLI class (0 contradiction, 1 neutral, 2 entailment), premise the chosen token, as `top_ids`."""
    nli_alternative_to_chosen: Sequence[IntArray] | None = None
    """[n] arrays: the same with the alternative as premise."""
    hidden_states: FloatArray | None = None
    """[M, H] middle layer at the last content token of each sample."""

    stc_log_score: float | None = None
    """`ScoredResponse.log_score` of the greedy answer."""
    stc_no_clustering_log_score: float | None = None
    """The same without embedding clusters."""
    stc_no_prefix_log_score: float | None = None
    """The same without prefix matching."""

    def __post_init__(self) -> None:
        self._require_one_per("token", _PER_TOKEN, len(self.token_ids))
        recorded = [getattr(self, name) for name in _PER_SAMPLE]
        samples = next((len(value) for value in recorded if value is not None), 0)
        self._require_one_per("sample", _PER_SAMPLE, samples)

    @property
    def sample_text_index(self) -> list[int] | None:
        """[M] position of the first sample with the same stripped text; None without samples."""
        if self.sample_texts is None:
            return None
        texts = [text.strip() for text in self.sample_texts]
        return [texts.index(text) for text in texts]

    @property
    def recorded(self) -> frozenset[str]:
        """Names of the fields that hold a value."""
        return frozenset(field.name for field in fields(self) if getattr(self, field.name) is not None)

    def _require_one_per(self, unit: str, names: Sequence[str], count: int) -> None:
        for name in names:
            value: Sized | None = getattr(self, name)
            if value is not None and len(value) != count:
                raise InvalidInput(f"'{name}' has {len(value)} entries for {count} {unit}s; it needs one per {unit}.")
