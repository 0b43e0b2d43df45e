"""How long each recording step took, so that a method can be charged for what it needs and for nothing else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

STEPS_OF_FIELD: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "text": (),
        "token_ids": (),
        "token_texts": (),
        "log_probs": ("likelihoods",),
        "top_ids": ("alternatives",),
        "top_texts": ("alternatives",),
        "top_log_probs": ("alternatives",),
        "stc_log_score": ("stc",),
        "stc_no_clustering_log_score": ("stc_no_clustering",),
        "stc_no_prefix_log_score": ("stc_no_prefix",),
        "p_true_log_probs": ("p_true",),
        "token_similarity": ("token_relevance",),
        "nli_chosen_to_alternative": ("alternatives", "alternative_entailment"),
        "nli_alternative_to_chosen": ("alternatives", "alternative_entailment"),
        "sample_texts": ("sampling",),
        "sample_token_ids": ("sampling",),
        "sample_log_probs": ("sampling", "sample_likelihoods"),
        "hidden_states": ("sampling", "hidden_states"),
        "nli_logits": ("sampling", "entailment"),
        "similarity": ("sampling", "similarity"),
        "sample_token_similarity": ("sampling", "sample_token_relevance"),
    }
)
"""Field of `Generation` -> the steps that must run to fill it, beyond the greedy generation itself."""


def steps_for(fields: Iterable[str]) -> frozenset[str]:
    """Every step that some fields of `Generation` need; none for a field that is there anyway."""
    return frozenset(step for field in fields for step in STEPS_OF_FIELD.get(field, ()))


def seconds_for(fields: Iterable[str], steps: Mapping[str, float]) -> float:
    """Seconds to record some fields of `Generation`, a step that several of them need counted once.

    Parameters
    ----------
    fields
        Of `Generation`.
    steps
        Step -> its seconds.
    """
    return sum(steps.get(step, 0.0) for step in sorted(steps_for(fields)))


class Timings:
    """Seconds of wall clock by step. A step inside another is taken out of the outer one.

    >>> timings = Timings()
    >>> with timings.measure("greedy"):
    ...     with timings.measure("likelihoods"):
    ...         pass
    >>> sorted(timings.seconds)
    ['greedy', 'likelihoods']
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._running: list[str] = []
        self._mark = 0.0

    @property
    def seconds(self) -> dict[str, float]:
        """Step -> seconds, in the order in which the steps first began."""
        return dict(self._seconds)

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        """Charge the time inside the block to `step`; may be entered any number of times."""
        self._charge()
        self._running.append(step)
        self._seconds.setdefault(step, 0.0)
        try:
            yield
        finally:
            self._charge()
            self._running.pop()

    def of(self, fields: Iterable[str]) -> float:
        """`seconds_for` with the seconds so far."""
        return seconds_for(fields, self._seconds)

    def _charge(self) -> None:
        _wait_for_device()
        now = time.perf_counter()
        if self._running:
            self._seconds[self._running[-1]] += now - self._mark
        self._mark = now


def _wait_for_device() -> None:
    """Work on a GPU is queued: the clock must not be read before it is done."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
