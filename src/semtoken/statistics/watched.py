"""Statistics of the answering model of answers that exist, any number of them from one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from semtoken.backends.base import Backend, Prompt
from semtoken.observers import Statistic
from semtoken.statistics.decoding import Timed, backend_of, read_by_length
from semtoken.statistics.timings import Timings
from semtoken.stc import STC


def watched_statistics(
    model: STC | Backend,
    prompts: Sequence[Prompt],
    answers: Sequence[Sequence[int]],
    watches: Mapping[str, Statistic],
    timings: Timings,
    *,
    batch_size: int = 32,
) -> dict[str, list[Any]]:
    """What observers record of every answer, from one teacher-forced pass.

    Up to rounding these are the values that they record while the same answers are generated.

    Parameters
    ----------
    model
        The one that gave the answers.
    prompts, answers
        One answer, as token ids, for each prompt.
    watches
        By the names of their steps.
    timings
        Takes the seconds: those of the pass as `semtoken.statistics.decoding.READING`, those of each observer under the
        name of its step.
    batch_size
        Answers read together.

    Returns
    -------
    dict
        Name of a step -> one value for each answer.

    Raises
    ------
    BackendError
        The backend does not give what one of them reads. Nothing was read.
    """
    backend = backend_of(model)
    observers = [Timed(watch, name, timings) for name, watch in watches.items()]
    order = read_by_length(backend, prompts, answers, observers, timings, batch_size=batch_size)
    found: dict[str, list[Any]] = {name: [None] * len(answers) for name in watches}
    for name, watch in watches.items():
        for place, i in enumerate(order):
            found[name][i] = watch.of(place)
    return found
