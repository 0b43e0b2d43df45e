"""A run's answers from vLLM, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semtoken._arrays import log_normalizers
from semtoken._extras import require
from semtoken.backends.prompts import Prompt, encode_prompt, newline_ids
from semtoken.backends.vllm import VLLMScorer, sampling_params
from semtoken.backends.vllm.outputs import position_of, whole_row
from semtoken.errors import BackendError
from semtoken.generation import Generation
from semtoken.scoring import LogitsAnswer, Scorer
from semtoken.statistics import Decoding, Timings
from semtoken.statistics.clustered import NORMALIZERS, READING
from semtoken.statistics.decoding import draw_key
from semtoken.statistics.generations import chosen_first
from semtoken.statistics.p_true import Spelling, ask_p_true
from semtoken.statistics.pairs import FloatArray

Sequences = Sequence[Sequence[int]]


def load_engine(name: str, **options: Any) -> Any:
    """A `vllm.LLM` that gives what a run needs: log-probabilities of the whole vocabulary, prompts read in one piece.

    (On a CPU, vLLM's first runner cannot seed an answer whose prompt comes in several.) `options` are further ones of
    `vllm.LLM`: `dtype`, `revision`, `tensor_parallel_size` and so on.
    """
    needed = {"max_logprobs": -1, "logprobs_mode": "raw_logprobs", "enable_chunked_prefill": False}
    return require("vllm", extra="vllm").LLM(model=name, **(options | needed))


@dataclass(frozen=True)
class VLLMBackend:
    """A vLLM engine as `GenerationBackend`. It records no hidden states.

    Greedy answers are those of `TransformersBackend` up to rounding; samples are others: vLLM draws in its own way.
    """

    scorer: VLLMScorer

    def __post_init__(self) -> None:
        if self.scorer.logprobs_mode != "raw_logprobs":
            raise BackendError(
                f"A run needs raw log-probabilities; the engine has logprobs_mode={self.scorer.logprobs_mode!r}."
            )

    def greedy(self, prompts: Sequence[Prompt], decoding: Decoding, timings: Timings) -> list[Generation]:
        """See `GenerationBackend`."""
        params = self._params(decoding, temperature=0.0, logprobs=decoding.top_k)
        with timings.measure("greedy"):
            outputs = self._run(self._encoded(prompts), params)
        with timings.measure("likelihoods"):
            return [self._greedy_record(output.outputs[0], decoding.top_k) for output in outputs]

    def _greedy_record(self, answer: Any, top_k: int) -> Generation:
        vocabulary = self.scorer.clusters.vocabulary
        ids = [int(token) for token in answer.token_ids]
        vocabulary.check_ids(ids)
        top = []
        for step, token in enumerate(ids):
            found, values = position_of(answer.logprobs, step)  # the chosen token, then the best in their order
            top.append(chosen_first(token, float(values[0]), found[1 : top_k + 1], values[1 : top_k + 1]))
        return Generation(
            text=vocabulary.decode(ids),
            token_ids=ids,
            distribution="raw",
            token_texts=[vocabulary.texts[token] for token in ids],
            log_probs=np.array([values[0] for _, values in top]),
            top_ids=[best for best, _ in top],
            top_texts=[[vocabulary.texts[token] for token in best] for best, _ in top],
            top_log_probs=[values for _, values in top],
        )

    def samples(self, prompts: Sequence[Prompt], decoding: Decoding, timings: Timings) -> list[Generation]:
        """See `GenerationBackend`."""
        encoded = self._encoded(prompts)
        jobs = [(ids, sample) for ids in encoded for sample in range(decoding.n_samples)]
        params = [
            self._params(decoding, temperature=decoding.temperature, logprobs=0, seed=_seed(decoding.seed, ids, sample))
            for ids, sample in jobs
        ]
        with timings.measure("sampling"):
            outputs = self._run([ids for ids, _ in jobs], params)
        with timings.measure("sample_likelihoods"):
            answers = [output.outputs[0] for output in outputs]
            firsts = range(0, len(answers), decoding.n_samples)
            return [self._sample_record(answers[first : first + decoding.n_samples]) for first in firsts]

    def _sample_record(self, answers: Sequence[Any]) -> Generation:
        vocabulary = self.scorer.clusters.vocabulary
        ids = [[int(token) for token in answer.token_ids] for answer in answers]
        for one in ids:
            vocabulary.check_ids(one)
        return Generation(
            text="",
            token_ids=(),
            sample_texts=[vocabulary.decode(one) for one in ids],
            sample_token_ids=ids,
            sample_log_probs=[
                np.array([position_of(answer.logprobs, step)[1][0] for step in range(len(one))])
                for answer, one in zip(answers, ids, strict=True)
            ],
        )

    def clustered(
        self,
        prompts: Sequence[Prompt],
        answers: Sequences,
        scorers: Mapping[str, Scorer],
        timings: Timings,
    ) -> dict[str, list[float]]:
        """See `GenerationBackend`. Each step of an answer is a request for one token after what comes before it."""
        encoded = self._encoded(prompts)
        found = {name: [LogitsAnswer(scorer) for _ in answers] for name, scorer in scorers.items()}
        with timings.measure(READING):
            for number, step, row in self._rows(encoded, answers):
                with timings.measure(NORMALIZERS):
                    normalizer = log_normalizers(row, row.shape[1])[0]
                for name, open_answers in found.items():
                    with timings.measure(name):
                        open_answers[number].add(row, 0, answers[number][step], normalizer)
        return {name: [one.finish("raw").log_score for one in finished] for name, finished in found.items()}

    def _rows(self, prompts: Sequences, answers: Sequences) -> Iterator[tuple[int, int, FloatArray]]:
        """(Number of the answer, step, log-probabilities [1, V] of that step), step after step of each answer."""
        steps = [(number, step) for number, answer in enumerate(answers) for step in range(len(answer))]
        params = sampling_params(exact=True, temperature=0, max_tokens=1)
        size = self.scorer.clusters.vocabulary.size
        for group in self.scorer.groups([1] * len(steps), whole=True):
            jobs = [steps[i] for i in group]
            outputs = self._run([[*prompts[number], *answers[number][:step]] for number, step in jobs], params)
            for (number, step), output in zip(jobs, outputs, strict=True):
                yield number, step, whole_row(*position_of(output.outputs[0].logprobs, 0), size, step)

    def p_true(self, questions: Sequence[str], answers: Sequence[str], spelling: Spelling) -> FloatArray:
        """See `semtoken.statistics.p_true_log_probs`."""
        return ask_p_true(self.scorer.tokenizer, questions, answers, spelling, self._continuations)

    def _continuations(self, prompts: Sequences, continuations: Sequences) -> FloatArray:
        jobs = [[*prompt, *ids] for prompt in prompts for ids in continuations]
        params = sampling_params(temperature=0, max_tokens=1, detokenize=False, flat_logprobs=True)
        params.logprobs, params.prompt_logprobs = None, 0
        sums: list[float] = []
        for ids, output in zip(jobs, self._run(jobs, params), strict=True):
            added = len(continuations[len(sums) % len(continuations)])
            chosen = [position_of(output.prompt_logprobs, i)[1][0] for i in range(len(ids) - added, len(ids))]
            sums.append(float(np.sum(chosen)))
        return np.array(sums).reshape(len(prompts), len(continuations))

    def _params(self, decoding: Decoding, **options: Any) -> Any:
        ends = newline_ids(self.scorer.clusters.vocabulary) if decoding.stop_at_newline else []
        return sampling_params(
            max_tokens=decoding.max_new_tokens, stop_token_ids=ends, detokenize=False, flat_logprobs=True, **options
        )

    def _run(self, prompts: Sequences, params: Any) -> list[Any]:
        inputs = [{"prompt_token_ids": list(ids)} for ids in prompts]
        outputs: list[Any] = self.scorer.llm.generate(inputs, params, use_tqdm=False)
        return outputs

    def _encoded(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        return [encode_prompt(self.scorer.tokenizer, prompt, number) for number, prompt in enumerate(prompts)]


def _seed(seed: int, prompt_ids: Sequence[int], sample: int) -> int:
    """One number of 63 bits for one sample of one prompt."""
    return int(np.random.default_rng(draw_key(seed, prompt_ids, sample)).integers(2**63))
