"""STC scores of answers that exist, by any number of clusterings and rules from one pass of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from semtoken.backends.base import LOGITS, Backend, Observer, Prompt, Step
from semtoken.results import ScoredResponse
from semtoken.scoring import AnswerBatch, Scorer, normalized_rows
from semtoken.statistics.decoding import backend_of, read_by_length
from semtoken.statistics.timings import Timings
from semtoken.stc import STC

NORMALIZERS = "normalizers"
"""What the seconds of the log normalisers are called, which all scorers share."""


def clustered_scores(
    model: STC | Backend,
    prompts: Sequence[Prompt],
    answers: Sequence[Sequence[int]],
    scorers: Mapping[str, Scorer],
    timings: Timings,
    *,
    batch_size: int = 32,
) -> dict[str, list[ScoredResponse]]:
    """Every answer scored by every scorer, from one teacher-forced pass.

    Up to rounding these are the scores that `STC.generate` gives while it generates the same answers.

    Parameters
    ----------
    model
        The one that gave the answers.
    prompts, answers
        One answer, as token ids, for each prompt.
    scorers
        By name; see `semtoken.scoring.scorer_for`.
    timings
        Takes the seconds: `semtoken.statistics.decoding.READING`, `NORMALIZERS`, and for each scorer its own under its
        name.
    batch_size
        Answers read together.

    Returns
    -------
    dict
        Name of a scorer -> one scored response for each answer.
    """
    backend = backend_of(model)
    for scorer in scorers.values():
        backend.check_vocabulary(scorer.vocabulary)
    observer = _Clustered(scorers, timings)
    order = read_by_length(backend, prompts, answers, [observer], timings, batch_size=batch_size)
    found: dict[str, list[ScoredResponse]] = {}
    places = {i: place for place, i in enumerate(order)}
    for name in scorers:
        with timings.measure(name):
            found[name] = [observer.open[name][places[i]].finish("raw") for i in range(len(answers))]
    return found


class _Clustered(Observer):
    """Scores the same steps by several scorers, which share the log normalisers."""

    reads = frozenset({LOGITS})

    def __init__(self, scorers: Mapping[str, Scorer], timings: Timings) -> None:
        self.open = {name: AnswerBatch(scorer) for name, scorer in scorers.items()}
        self._timings = timings

    def observe(self, step: Step) -> None:
        """Take in one step."""
        assert step.logits is not None
        with self._timings.measure(NORMALIZERS):
            rows = normalized_rows(step.logits, step.size, step.rows)
        for name, answers in self.open.items():
            with self._timings.measure(name):
                answers.add(step.answers, rows, range(len(step.answers)), step.tokens)
