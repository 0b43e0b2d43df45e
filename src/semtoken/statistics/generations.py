"""Answers with what likelihood and clustering methods read of them: one greedy answer a prompt, and its samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semtoken._arrays import FloatArray, IdArray
from semtoken._extras import require
from semtoken.backends.prompts import answer_length
from semtoken.backends.transformers.prefill import generation_inputs
from semtoken.backends.transformers.recorder import ClusterRecorder
from semtoken.errors import InvalidInput
from semtoken.generation import Generation
from semtoken.scoring.rules import ScoringRules
from semtoken.statistics.decoding import Observed, SeededDraws, StepObserver, draw_key
from semtoken.statistics.pairs import in_batches_by_length
from semtoken.statistics.steps import STC_STEPS, RecordingStep
from semtoken.statistics.timings import Timings

require("torch", extra="transformers")
require("transformers", extra="transformers")

import torch  # noqa: E402
from transformers import LogitsProcessor  # noqa: E402

if TYPE_CHECKING:
    from semtoken.backends.transformers import STC

Progress = Callable[[str, int, int], None]
"""Called with (step, done, of how many)."""


@dataclass(frozen=True)
class Decoding:
    """How answers are generated. The defaults are the paper's."""

    max_new_tokens: int = 256
    stop_at_newline: bool = True
    """End an answer at the first token with a newline, besides end-of-sequence tokens."""
    n_samples: int = 5
    temperature: float = 0.5
    """Of the samples; no top-k, no top-p. Their log-probabilities are recorded at temperature 1."""
    seed: int = 0
    """Of the samples. Each has its own stream, made from the seed, the prompt and the number of the sample."""
    batch_size: int = 32
    """Prompts decoded together; for samples, their prompts."""
    top_k: int = 10
    """Best alternatives of each step of the greedy answer."""

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "n_samples", "batch_size", "top_k"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be positive, got {getattr(self, name)}.")


def record_greedy(
    stc: STC,
    prompts: Sequence[Sequence[int]],
    needs: Collection[str],
    decoding: Decoding,
    timings: Timings,
    progress: Progress | None = None,
) -> list[Generation]:
    """The greedy answer of each prompt, with log-probabilities, alternatives and STC scores from the same pass.

    Parameters
    ----------
    stc
        Model, tokenizer, clusters and rules.
    prompts
        Token ids.
    needs
        Fields of `Generation` to fill, of those that the greedy pass can give.
    decoding, timings, progress
        How to generate; where the seconds of `greedy`, `likelihoods`, `alternatives`, `stc`, `stc_no_clustering`
        and `stc_no_prefix` go; whom to tell.
    """
    top_k = decoding.top_k if {"top_ids", "top_texts", "top_log_probs"} & set(needs) else 0
    found: list[Generation | None] = [None] * len(prompts)
    done = 0
    for batch in in_batches_by_length([len(ids) for ids in prompts], decoding.batch_size):
        with timings.measure("greedy"):
            generations = _greedy_batch(stc, [prompts[i] for i in batch], needs, decoding, top_k, timings)
        for i, generation in zip(batch, generations, strict=True):
            found[i] = generation
        done += len(batch)
        if progress is not None:
            progress("greedy", done, len(prompts))
    return [generation for generation in found if generation is not None]


def _greedy_batch(
    stc: STC, prompts: list[Sequence[int]], needs: Collection[str], decoding: Decoding, top_k: int, timings: Timings
) -> list[Generation]:
    options = stc.generation_options({"num_beams": 1}, decoding.max_new_tokens, decoding.stop_at_newline, ())
    ends = options["eos_token_id"] or ()
    observer = StepObserver(stc.clusters.vocabulary.size, ends, timings, top_k=top_k)
    wanted = [step for step in STC_STEPS if set(step.fills) & set(needs)]
    recorders = {step.fills[0]: TimedRecorder(stc, step, ends, timings) for step in wanted}
    inputs = generation_inputs(stc, prompts, options["pad_token_id"], 1)
    with ExitStack() as stack:
        stack.enter_context(observer.watching(stc.model))
        for recorder in recorders.values():
            stack.enter_context(recorder.watching(stc.model))
        sequences, answers = _generate(stc, inputs, options, [observer, *recorders.values()])
    lengths = [len(ids) for ids in answers]
    scores = {name: recorder.log_scores(sequences, lengths) for name, recorder in recorders.items()}
    observed = observer.results(sequences, lengths)
    records = []
    for i, ids in enumerate(answers):
        fields: dict[str, Any] = {name: scored[i] for name, scored in scores.items()}
        records.append(replace(_greedy_record(stc, ids, observed[i]), **fields))
    return records


def _greedy_record(stc: STC, ids: list[int], seen: Observed) -> Generation:
    vocabulary = stc.clusters.vocabulary
    generation = Generation(
        text=vocabulary.decode(ids),
        token_ids=ids,
        distribution="raw",
        token_texts=[vocabulary.texts[token] for token in ids],
        log_probs=seen.log_probs,
    )
    if seen.top_ids is None or seen.top_log_probs is None:
        return generation
    top = [
        chosen_first(token, float(log_prob), best, values)
        for token, log_prob, best, values in zip(ids, seen.log_probs, seen.top_ids, seen.top_log_probs, strict=True)
    ]
    return replace(
        generation,
        top_ids=[best for best, _ in top],
        top_texts=[[vocabulary.texts[token] for token in best] for best, _ in top],
        top_log_probs=[values for _, values in top],
    )


def chosen_first(token: int, log_prob: float, best: IdArray, log_probs: FloatArray) -> tuple[IdArray, FloatArray]:
    """The best alternatives of one step with the chosen token in front, moved there or put in for the last."""
    others = best != token
    others[np.flatnonzero(others)[len(best) - 1 :]] = False
    return np.append(token, best[others]), np.append(log_prob, log_probs[others])


def record_samples(
    stc: STC,
    prompts: Sequence[Sequence[int]],
    generations: Sequence[Generation],
    needs: Collection[str],
    decoding: Decoding,
    timings: Timings,
    progress: Progress | None = None,
) -> list[Generation]:
    """The same generations, one for each prompt, with `decoding.n_samples` sampled answers.

    The arguments are those of `record_greedy`. Of `needs` only "hidden_states" matters: texts, ids and
    log-probabilities are always recorded. Seconds go to `sampling`, `sample_likelihoods` and `hidden_states`.
    """
    found = list(generations)
    done = 0
    for batch in in_batches_by_length([len(ids) for ids in prompts], decoding.batch_size):
        with timings.measure("sampling"):
            samples = _sample_batch(stc, [prompts[i] for i in batch], "hidden_states" in needs, decoding, timings)
        for i, fields in zip(batch, samples, strict=True):
            found[i] = replace(found[i], **fields)
        done += len(batch)
        if progress is not None:
            progress("sampling", done, len(prompts))
    return found


def _sample_batch(
    stc: STC, prompts: list[Sequence[int]], hidden_states: bool, decoding: Decoding, timings: Timings
) -> list[dict[str, Any]]:
    rows = [(ids, sample) for ids in prompts for sample in range(decoding.n_samples)]
    draws = SeededDraws([draw_key(decoding.seed, ids, sample) for ids, sample in rows], decoding.temperature)
    options = stc.generation_options({"num_beams": 1}, decoding.max_new_tokens, decoding.stop_at_newline, ())
    observer = StepObserver(
        stc.clusters.vocabulary.size, options["eos_token_id"] or (), timings, draws=draws, prefix="sample_"
    )
    inputs = generation_inputs(stc, prompts, options["pad_token_id"], decoding.n_samples)
    with observer.watching(stc.model, hidden_states=hidden_states):
        sequences, answers = _generate(stc, inputs, options, [observer])
    observed = observer.results(sequences, [len(ids) for ids in answers])
    return [
        _sample_fields(stc, answers[first : first + decoding.n_samples], observed[first : first + decoding.n_samples])
        for first in range(0, len(rows), decoding.n_samples)
    ]


def _sample_fields(stc: STC, answers: list[list[int]], observed: list[Observed]) -> dict[str, Any]:
    states = [seen.hidden_state for seen in observed if seen.hidden_state is not None]
    return {
        "sample_texts": [stc.clusters.vocabulary.decode(ids) for ids in answers],
        "sample_token_ids": answers,
        "sample_log_probs": [seen.log_probs for seen in observed],
        "hidden_states": np.stack(states) if states else None,
    }


class TimedRecorder(LogitsProcessor):  # type: ignore[misc]
    """A `ClusterRecorder` of one of `STC_STEPS` whose seconds are kept."""

    def __init__(self, stc: STC, step: RecordingStep, ends: Sequence[int], timings: Timings) -> None:
        rules: ScoringRules = replace(stc.rules, **(step.rules or {}))
        with timings.measure("loading"):  # the index of the vocabulary is made once
            self._recorder = ClusterRecorder(
                stc.clusters,
                rules.preset,
                function_words=rules.function_words,
                clustering=rules.clustering,
                prefix_matching=rules.prefix_matching,
                eos_token_id=ends,
            )
        self._timings = timings
        self._step = step.name
        self.watching = self._recorder.watching

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.Tensor:
        """Take in one step."""
        with self._timings.measure(self._step):
            return self._recorder(input_ids, scores)

    def log_scores(self, sequences: torch.Tensor, lengths: Sequence[int]) -> list[float]:
        """`ScoredResponse.log_score` of each answer."""
        with self._timings.measure(self._step):
            return [scored.log_score for scored in self._recorder.results(sequences, lengths=lengths)]


def _generate(
    stc: STC, inputs: dict[str, Any], options: dict[str, Any], processors: list[Any]
) -> tuple[torch.Tensor, list[list[int]]]:
    """Sequences [B, prompt + answer], and the answers up to their terminators."""
    sequences = stc.model.generate(**inputs, logits_processor=processors, **options)
    ends = frozenset(options["eos_token_id"] or ())
    answers = sequences[:, inputs["input_ids"].shape[1] :].tolist()
    return sequences, [ids[: answer_length(ids, ends, (), stc.clusters.vocabulary)] for ids in answers]
