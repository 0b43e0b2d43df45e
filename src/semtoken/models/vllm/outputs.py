"""Parameters for requests to vLLM, and scores of its outputs.

Its lists of log-probabilities, flat or as dicts, become steps of whole rows or of the best tokens; prompts go in groups
whose lists fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from semtoken.choices import Equality, Preset
from semtoken.core import scorer_for
from semtoken.core.given_tokens import Tokens
from semtoken.core.results import Distribution, ScoredAnswer
from semtoken.core.rules import ScoringRules, as_rules
from semtoken.errors import BackendError, InsufficientMemory
from semtoken.methods.observers.steps import Step
from semtoken.models.scores import AnswerScores
from semtoken.support.arrays import FloatArray, IdArray
from semtoken.support.extras import require

LogprobsMode: TypeAlias = str
"""The kind of numbers that vLLM lists, which it calls `logprobs_mode`."""

DISTRIBUTIONS: dict[LogprobsMode, Distribution] = {
    "raw_logprobs": "raw",
    "processed_logprobs": "processed",
    "raw_logits": "raw",
    "processed_logits": "processed",
}


def score_outputs(
    outputs: Iterable[Any],
    vocabulary: Tokens,
    preset: Preset | ScoringRules = "default",
    *,
    equality: Equality | None = None,
    logprobs_mode: LogprobsMode = "raw_logprobs",
) -> list[list[ScoredAnswer]]:
    """Score what `LLM.generate` or `LLM.chat` returned.

    Parameters
    ----------
    outputs
        `RequestOutput` objects, made with `semtoken.models.vllm.sampling_params` or another request for
        log-probabilities.
    vocabulary
        That of the model's tokenizer; the preset `paper` needs `TokenClusters`.
    preset, equality
        As in `score_logits`.
    logprobs_mode
        The engine's setting of this name: what the log-probabilities are. Recorded in the results; logits can be
        scored if they are those of the whole vocabulary.

    Returns
    -------
    list of lists of ScoredAnswer
        For each output its `n` answers. Exact where every step has the whole vocabulary; otherwise with
        `sequence_uncertainty_interval` around the exact uncertainty.

    Raises
    ------
    BackendError
        Beam search, no log-probabilities, or numbers that are none.
    InvalidLogits
        A log-probability that is NaN or infinite.
    """
    rules = as_rules(preset, equality)
    return [
        [score_steps(list(answer.token_ids), answer.logprobs, vocabulary, rules, logprobs_mode) for answer in answers]
        for answers in map(completions, outputs)
    ]


def completions(output: Any) -> Sequence[Any]:
    """The answers of one `RequestOutput`.
    `BackendError` for beam search, another object, or answers without log-probabilities.
    """
    if hasattr(output, "sequences"):
        raise BackendError(
            "Beam search is rejected: a beam's tokens are chosen among hypotheses that are reordered and dropped, so "
            "no single distribution is the one that the answer was drawn from. Use greedy decoding or sampling."
        )
    if not hasattr(output, "outputs") or not isinstance(output.outputs, Sequence):
        raise BackendError(f"This is no output of LLM.generate or LLM.chat: {type(output).__name__}.")
    answers: Sequence[Any] = output.outputs
    for answer in answers:
        if answer.logprobs is None:
            raise BackendError(
                f"Request {output.request_id} has no log-probabilities. Generate with "
                "semtoken.models.vllm.sampling_params(...), or SamplingParams(logprobs=20)."
            )
    return answers


def score_steps(
    ids: Sequence[int], logprobs: Any, vocabulary: Tokens, rules: ScoringRules, mode: LogprobsMode
) -> ScoredAnswer:
    """Score ids by vLLM's log-probabilities, one position of its list for each id.
    `BackendError` if the mode is unknown or lists logits of a part of the vocabulary, or the list does not fit the ids.
    """
    if mode not in DISTRIBUTIONS:
        raise BackendError(f"logprobs_mode {mode!r} is not known; known are {', '.join(DISTRIBUTIONS)}.")
    if len(logprobs) != len(ids):
        raise BackendError(f"There are log-probabilities for {len(logprobs)} tokens and {len(ids)} tokens.")
    scores = AnswerScores(scorer_for(vocabulary, rules))
    size = scores.scorer.vocabulary.size
    scores.scorer.vocabulary.check_ids(ids)
    whole = all(_entries(logprobs, step) >= size for step in range(len(ids)))
    if not whole and not mode.endswith("_logprobs"):
        raise BackendError(
            f"With logprobs_mode={mode!r} the k best values are logits, whose sum over the vocabulary is unknown. "
            "Start the engine with logprobs_mode='raw_logprobs', or ask for the whole vocabulary (exact=True)."
        )
    for step in steps_of(0, ids, logprobs, size, whole=whole):
        scores.observe(step)
    return scores.result(0, DISTRIBUTIONS[mode])


def steps_of(
    answer: int,
    ids: Sequence[int],
    logprobs: Any,
    size: int,
    *,
    whole: bool,
    first: int = 0,
    stopped: bool = False,
) -> Iterator[Step]:
    """The steps of an answer, of which that of the first token stands at position `first` of vLLM's lists: with `whole`
    rows of the vocabulary of this `size`, otherwise with the tokens of the list. If the answer was `stopped`, its last
    token ended it.
    """
    for number, token in enumerate(ids):
        listed, values = position_of(logprobs, first + number)
        ends = [stopped and number == len(ids) - 1]
        if whole:
            yield Step([answer], [token], size, whole_row(listed, values, size, number), [0], ends=ends)
        else:
            best = [_best_first(token, listed, values)]
            yield Step([answer], [token], size, None, best=best, ends=ends)


def _best_first(token: int, listed: IdArray, values: FloatArray) -> tuple[IdArray, FloatArray]:
    """The best tokens of a step in their order, the chosen one among them; vLLM lists it first, and perhaps again.
    `BackendError` if it does not list it.
    """
    if token in listed[1:]:
        return listed[1:], values[1:]
    if token not in listed:
        raise BackendError(f"The chosen token {token} is not among the log-probabilities of its step.")
    return np.append(listed[1:], listed[0]), np.append(values[1:], values[0])


def _is_flat(logprobs: Any) -> bool:
    return hasattr(logprobs, "start_indices")


def _entries(logprobs: Any, position: int) -> int:
    if _is_flat(logprobs):
        return int(logprobs.end_indices[position] - logprobs.start_indices[position])
    return len(logprobs[position] or ())


def position_of(logprobs: Any, position: int) -> tuple[IdArray, FloatArray]:
    """Ids and log-probabilities of one position, from vLLM's flat form or from its list of dicts."""
    if _is_flat(logprobs):
        part = slice(logprobs.start_indices[position], logprobs.end_indices[position])
        ids, values = logprobs.token_ids[part], logprobs.logprobs[part]
    else:
        entries = logprobs[position] or {}
        ids, values = list(entries), [entry.logprob for entry in entries.values()]
    return np.array(ids, dtype=np.int64), np.array(values, dtype=np.float64)


def whole_row(ids: IdArray, values: FloatArray, size: int, step: int) -> FloatArray:
    """Log-probabilities [1, size] in the order of the ids; `BackendError` if some are missing or NaN."""
    known = ids < size  # a padded lm_head has more columns than there are tokens
    row = np.full((1, size), np.nan)
    row[0, ids[known]] = values[known]
    if np.isnan(row).any():
        raise BackendError(
            f"Step {step} lacks log-probabilities of {int(np.isnan(row).sum()):,} tokens of the vocabulary ({size:,}), "
            "or they are NaN. Are these clusters those of the model's tokenizer?"
        )
    return row


BYTES_PER_NUMBER = 112  # of a log-probability in vLLM's lists: four references, two ints and a float object
MEMORY_BUDGET = 2 << 30


def sampling_params(*, exact: bool = False, top_k: int = 20, **kwargs: Any) -> Any:
    """Sampling parameters for vLLM whose outputs can be scored.

    Parameters
    ----------
    exact
        Ask for the whole vocabulary, in vLLM's flat form and without texts: exact scores. The engine must allow it
        (`LLM(max_logprobs=-1)`).
    top_k
        Otherwise, how many log-probabilities to get per token: scores with an interval. More than 20 need
        `LLM(max_logprobs=...)`.
    **kwargs
        Anything else of `SamplingParams`.

    Returns
    -------
    vllm.SamplingParams
        For `LLM.generate`, whose outputs `score_outputs` scores.

    Raises
    ------
    MissingExtra
        vLLM is not installed.
    """
    vllm = require("vllm", extra="vllm")
    options = {"logprobs": -1, "flat_logprobs": True, "detokenize": False} if exact else {"logprobs": top_k}
    return vllm.SamplingParams(**(options | kwargs))


def memory_groups(tokens: Sequence[int], columns: int, budget: int) -> Iterator[list[int]]:
    """Divide prompts into groups whose log-probabilities fit into `budget` bytes; gives the numbers of each group.
    Each prompt has rows of `columns` for so many `tokens`; `InsufficientMemory` if a single one takes more.
    """
    group: list[int] = []
    room = budget
    for i, count in enumerate(tokens):
        need = count * columns * BYTES_PER_NUMBER
        if need > budget:
            raise InsufficientMemory(
                f"Log-probabilities of the whole vocabulary for {count} tokens (number {i}) take about "
                f"{need / 2**30:.1f} GiB in vLLM's lists, more than memory_budget={budget / 2**30:.1f} "
                "GiB. Lower max_tokens, raise the budget, or score by the top-k or by the logits processor."
            )
        if need > room:
            yield group
            group, room = [], budget
        group.append(i)
        room -= need
    if group:
        yield group
