"""A vLLM engine in this process as a `Backend`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from semtoken.clustering.cache import clusters_for_model
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.core.results import Distribution
from semtoken.errors import InvalidInputError, ModelError, one_line_of
from semtoken.methods.observers.steps import Completion, Observer, Readable, Step, finish, readings, show
from semtoken.models.base import Decoding, OwnTokens, Prompt, Response, require_readings
from semtoken.models.prompt_ids import as_decodings, check_lengths, draw_key, encode_prompts, encode_responses
from semtoken.models.vllm.outputs import (
    DISTRIBUTIONS,
    MEMORY_BUDGET,
    memory_groups,
    position_of,
    sampling_params,
    steps_of,
    whole_row,
)
from semtoken.support.extras import require

Sequences = Sequence[Sequence[int]]


def load_vllm(
    model: str,
    *,
    device: str | None = None,
    dtype: Any = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    **options: Any,
) -> VLLMBackend:
    """Start a vLLM engine that gives log-probabilities of the whole vocabulary, and so exact scores.

    Parameters
    ----------
    model
        A directory or hub id.
    device
        None: vLLM takes the one that it was built for.
    dtype, revision, trust_remote_code
        As in `vllm.LLM`.
    **options
        Those of `vllm.LLM` (`max_model_len`, `tensor_parallel_size`, ...).

    Returns
    -------
    VLLMBackend
        For `ScoredModel`.

    Raises
    ------
    InvalidInputError
        A device was given, or an option that vLLM does not know.
    ModelError
        vLLM cannot load the model.
    MissingExtra
        vLLM is not installed.
    """
    vllm = require("vllm", extra="vllm")
    if device is not None:
        raise InvalidInputError("vLLM chooses its device itself; leave the device out.")
    known = {field.name for field in fields(require("vllm.engine.arg_utils", extra="vllm").EngineArgs)}
    if unknown := sorted(set(options) - known):
        raise InvalidInputError(f"{unknown[0]!r} is no option of vllm.LLM.")
    # Prompts are read in one piece: on a CPU, vLLM's first runner cannot seed an answer whose prompt comes in several.
    needed = {"max_logprobs": -1, "logprobs_mode": "raw_logprobs", "enable_chunked_prefill": False}
    given = {"dtype": dtype, "revision": revision, "trust_remote_code": trust_remote_code}
    try:
        return VLLMBackend(vllm.LLM(model=model, **(given | needed | options)))
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"vLLM cannot load {model!r}: {one_line_of(error)}") from error


class VLLMBackend(OwnTokens):
    """Generates and reads answers with a `vllm.LLM`; see `semtoken.models.base.Backend`.

    vLLM returns whole answers: observers see their steps once they are complete, one answer after the other, and cannot
    end them. Observers that read no more than the best tokens of each step are given these. For others the
    log-probabilities of the whole vocabulary are asked for, or, of an engine that does not give them, the `top_k` best.

    Parameters
    ----------
    llm
        A `vllm.LLM` for generation.
    top_k
        Best tokens a step to score by, where the engine does not give the whole vocabulary.
    memory_budget
        Bytes that log-probabilities of the whole vocabulary may take at one time; prompts are generated in groups that
        fit.
    """

    name = "vllm"

    def __init__(self, llm: Any, *, top_k: int = 20, memory_budget: int = MEMORY_BUDGET) -> None:
        self.model = llm
        self.tokenizer = llm.get_tokenizer()
        self.top_k = top_k
        self.memory_budget = memory_budget

    @property
    def distribution(self) -> Distribution:
        """The distribution that the engine's setting `logprobs_mode` stands for."""
        return DISTRIBUTIONS[self.model.model_config.logprobs_mode]

    @property
    def max_length(self) -> int | None:
        """The number of tokens of prompt and answer that the engine can read together, as it was started."""
        return int(self.model.model_config.max_model_len)

    @property
    def is_exact(self) -> bool:
        """True if the engine gives log-probabilities of the whole vocabulary."""
        limit = self.model.model_config.max_logprobs
        return bool(limit == -1 or limit >= self.vocabulary.size)

    @property
    def gives(self) -> frozenset[Readable]:
        """Whole rows if the engine lists the whole vocabulary; the best tokens if it lists log-probabilities."""
        if self.is_exact:
            return frozenset({"log_probability", "entropy", "best", "row", "logits"})
        if self.model.model_config.logprobs_mode.endswith("_logprobs"):
            return frozenset({"log_probability", "entropy", "best", "row"})
        return frozenset({"log_probability"})

    def default_clusters(self, progress: Callable[..., None] | None = None) -> TokenClusters:
        """The clusters cached for the engine's checkpoint, or computed from it and cached."""
        config = self.model.model_config
        return clusters_for_model(config.model, self.tokenizer, revision=config.revision, progress=progress)

    def check(self, prompts: Sequence[Prompt], decoding: Decoding) -> None:
        """Raise the error that `generate` would raise before its first step; does nothing if it would raise none."""
        self._encoded(prompts)

    def generate(
        self, prompts: Sequence[Prompt], decoding: Decoding | Sequence[Decoding], observers: Sequence[Observer] = ()
    ) -> list[Completion]:
        """Answer each prompt; see `Backend.generate`. `Decoding.options` are those of vLLM's `SamplingParams`.

        `InsufficientMemory` if the whole vocabulary is needed, and one answer may take more than `memory_budget`.
        """
        decodings = as_decodings(decoding, len(prompts))
        best = self._best(observers)
        jobs, params = [], []
        for ids, each in zip(self._encoded(prompts), decodings, strict=True):
            for sample in range(each.n):
                jobs.append(ids)
                params.append(self._params(each, ids, sample, best))
        completions: list[Completion] = []
        tokens = [each.max_new_tokens for each in decodings for _ in range(each.n)]
        for group in self._groups(tokens, whole=best is None):
            outputs = self._run([jobs[i] for i in group], [params[i] for i in group])
            for i, output in zip(group, outputs, strict=True):
                [answer] = output.outputs
                completion = Completion([int(t) for t in answer.token_ids], answer.finish_reason == "length")
                # A text as the reason is a stop string: no token ended the answer then.
                stopped = not completion.truncated and not isinstance(answer.stop_reason, str)
                ids = completion.token_ids
                self.vocabulary.check_ids(ids)
                steps = steps_of(i, ids, answer.logprobs, self.vocabulary.size, whole=best is None, stopped=stopped)
                for step in steps if observers else ():
                    show(step, observers)
                finish(i, completion, observers)
                completions.append(completion)
        return completions

    def _best(self, observers: Sequence[Observer]) -> int | None:
        """The number of best tokens of each step to ask for; None for the whole vocabulary."""
        require_readings(self, observers)
        wanted = readings(observers)
        if any(reading.what in ("row", "entropy", "logits") for reading in wanted):
            return None if self.is_exact else max(self.top_k, *(reading.k for reading in wanted))
        return max((reading.k for reading in wanted), default=0)

    def _params(self, decoding: Decoding, ids: Sequence[int], sample: int, best: int | None) -> Any:
        options: dict[str, Any] = {
            "temperature": decoding.temperature,
            "max_tokens": decoding.max_new_tokens,
            # vLLM looks for stop strings in the text, which costs time and is not needed otherwise.
            "detokenize": bool(decoding.stop_strings),
            "flat_logprobs": True,
        }
        if decoding.temperature > 0:
            options |= {"top_p": decoding.top_p, "top_k": decoding.top_k, "min_p": decoding.min_p}
        if decoding.seed is not None and decoding.temperature > 0:
            key = draw_key(decoding.seed, ids, sample)
            # vLLM's seeds have 64 bits, one of them for the sign.
            options["seed"] = int(np.random.default_rng(key).integers(2**63))
        if decoding.stop_at_newline:
            options["stop_token_ids"] = sorted(self.newlines)
        if decoding.stop_strings:
            options["stop"] = list(decoding.stop_strings)
        options["logprobs"] = -1 if best is None else best
        # Not `sampling_params`, whose `top_k` is the number of log-probabilities.
        return require("vllm", extra="vllm").SamplingParams(**options | dict(decoding.options))

    def read(
        self,
        prompts: Sequence[Prompt],
        replies: Sequence[Response],
        observers: Sequence[Observer],
        *,
        batch_size: int = 8,
    ) -> None:
        """Read replies; see `Backend.read`.

        Where whole rows are needed, each step of a reply is a request for one token after all that comes before it:
        vLLM would give the whole vocabulary for the prompt too otherwise. The engine's prefix cache makes that cheap.
        """
        encoded = self._encoded(prompts)
        answers = encode_responses(self.tokenizer, self.vocabulary, prompts, encoded, replies)
        best = self._best(observers)
        if best is None:
            for step in self._rows(encoded, answers):
                show(step, observers)
        else:
            params = sampling_params(temperature=0, max_tokens=1, detokenize=False, flat_logprobs=True)
            params.prompt_logprobs, params.logprobs = best, None
            read = [i for i, ids in enumerate(answers) if ids]
            outputs = self._run([encoded[i] + answers[i] for i in read], params)
            for i, output in zip(read, outputs, strict=True):
                first, size = len(encoded[i]), self.vocabulary.size
                for step in steps_of(i, answers[i], output.prompt_logprobs, size, whole=False, first=first):
                    show(step, observers)
        for i, ids in enumerate(answers):
            finish(i, Completion(ids, truncated=None), observers)

    def _rows(self, prompts: list[list[int]], answers: list[list[int]]) -> Iterator[Step]:
        """Step after step of each answer."""
        steps = [(number, step) for number, answer in enumerate(answers) for step in range(len(answer))]
        params = sampling_params(exact=True, temperature=0, max_tokens=1)
        size = self.vocabulary.size
        for group in self._groups([1] * len(steps), whole=True):
            jobs = [steps[i] for i in group]
            outputs = self._run([[*prompts[number], *answers[number][:step]] for number, step in jobs], params)
            for (number, step), output in zip(jobs, outputs, strict=True):
                row = whole_row(*position_of(output.outputs[0].logprobs, 0), size, step)
                yield Step([number], [answers[number][step]], size, row, [0])

    def _groups(self, tokens: Sequence[int], *, whole: bool) -> Iterator[list[int]]:
        if not whole:
            return iter([list(range(len(tokens)))])
        return memory_groups(tokens, self.model.model_config.get_vocab_size(), self.memory_budget)

    def _run(self, prompts: Sequences, params: Any) -> list[Any]:
        inputs = [{"prompt_token_ids": list(ids)} for ids in prompts]
        outputs: list[Any] = self.model.generate(inputs, params, use_tqdm=False)
        return outputs

    def _encoded(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        encoded = encode_prompts(self.tokenizer, prompts, self.vocabulary.size)
        check_lengths(map(len, encoded), self.max_length)
        return encoded
