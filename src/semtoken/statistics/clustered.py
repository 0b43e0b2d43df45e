"""STC scores of answers that exist, by any number of clusterings and rules from one pass of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from semtoken._arrays import log_normalizers
from semtoken.scoring import LogitsAnswer, Scorer, add_step
from semtoken.statistics.pairs import in_batches_by_length
from semtoken.statistics.timings import Timings

if TYPE_CHECKING:
    from semtoken.backends.transformers import STC

READING, NORMALIZERS = "reading", "normalizers"
"""Steps of the clock: the pass itself, and the log normalisers, which all scorers share."""


def clustered_log_scores(
    stc: STC,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    scorers: Mapping[str, Scorer],
    timings: Timings,
    *,
    batch_size: int = 32,
) -> dict[str, list[float]]:
    """`ScoredResponse.log_score` of every answer by every scorer, from one teacher-forced pass.

    Up to rounding these are the scores that `STC.generate` gives while it generates the same answers.

    Parameters
    ----------
    stc
        The model that gave the answers.
    prompts, answers
        Token ids, one answer for each prompt.
    scorers
        By name; see `semtoken.scoring.scorer_for`.
    timings
        Takes the seconds: `READING`, `NORMALIZERS`, and for each scorer its own under its name.
    batch_size
        Answers read together.

    Returns
    -------
    dict
        Name of a scorer -> one log score for each answer.
    """
    found: dict[str, list[float]] = {name: [0.0] * len(answers) for name in scorers}
    lengths = [len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True)]
    for batch in in_batches_by_length(lengths, batch_size):
        given, replies = [list(prompts[i]) for i in batch], [list(answers[i]) for i in batch]
        with timings.measure(READING):
            scored = _score_batch(stc, given, replies, scorers, timings)
        for name, values in scored.items():
            for i, value in zip(batch, values, strict=True):
                found[name][i] = value
    return found


def _score_batch(
    stc: STC, prompts: list[list[int]], replies: list[list[int]], scorers: Mapping[str, Scorer], timings: Timings
) -> dict[str, list[float]]:
    size = stc.clusters.vocabulary.size
    open_answers = {name: [LogitsAnswer(scorer) for _ in prompts] for name, scorer in scorers.items()}
    for step in stc.reply_steps(prompts, replies):
        with timings.measure(NORMALIZERS):
            normalizers = log_normalizers(step.logits, size)
        for name, answers in open_answers.items():
            with timings.measure(name):
                going_on = [answers[i] for i in step.answers]
                add_step(going_on, step.logits, range(len(going_on)), step.tokens, normalizers)
    scores = {}
    for name, answers in open_answers.items():
        with timings.measure(name):
            scores[name] = [answer.finish("raw").log_score for answer in answers]
    return scores
