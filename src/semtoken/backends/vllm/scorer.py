"""`VLLMScorer`: score what a `vllm.LLM` generates, by vLLM's own `SamplingParams`.

Three ways, from cheap to exact: the k best log-probabilities a token (an interval), the engine's own reduction
(`semtoken.backends.vllm.processor`), and the log-probabilities of the whole vocabulary. docs/vllm.md compares them.
`STC` with a `VLLMBackend` does the same behind the interface that all backends share, without the second way.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from semtoken.backends.prompts import Prompt, Response, as_prompts, encode_prompt, encode_response
from semtoken.backends.vllm.channel import read_channel, read_channels
from semtoken.backends.vllm.outputs import LogprobsMode, completions, score_outputs, score_steps
from semtoken.choices import FunctionWords, Preset
from semtoken.clusters import TokenClusters
from semtoken.clusters.cache import clusters_for_model
from semtoken.errors import InsufficientMemory, InvalidInput
from semtoken.results import Answers, ScoredResponse
from semtoken.scoring import LogitsAnswer, scorer_for
from semtoken.scoring.rules import ScoringRules
from semtoken.scoring.token_sources import Tokens, as_clusters, as_tokens
from semtoken.support.extras import require

__all__ = ["VLLMScorer", "read_channel", "sampling_params", "score_outputs"]

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
        Otherwise, the best log-probabilities a token: scores with an interval. More than 20 need
        `LLM(max_logprobs=...)`.
    **kwargs
        Anything else of `SamplingParams`.

    Raises
    ------
    MissingExtra
        vLLM is not installed.
    """
    vllm = require("vllm", extra="vllm")
    options = {"logprobs": -1, "flat_logprobs": True, "detokenize": False} if exact else {"logprobs": top_k}
    return vllm.SamplingParams(**(options | kwargs))


class VLLMScorer:
    """A vLLM `LLM` whose answers come with an uncertainty.

    Parameters
    ----------
    llm
        A `vllm.LLM` for generation.
    clusters
        Only the preset `paper` reads them: `TokenClusters`, or a directory, a hub id or a model's name. None: those
        cached for the engine's checkpoint, or computed from it (minutes to an hour for 150k tokens) and cached.
    preset, function_words, clustering, prefix_matching
        As in `score_logits`.
    channel
        The folder of an engine that runs `semtoken.backends.vllm.processor.ClusterProcessor`: answers are then scored
        by the engine, exactly and without log-probabilities in its output.
    memory_budget
        Bytes that log-probabilities of the whole vocabulary may take at one time; prompts are generated in groups that
        fit.

    Raises
    ------
    VocabularyMismatch
        The clusters are those of another tokenizer.
    """

    def __init__(
        self,
        llm: Any,
        clusters: TokenClusters | str | None = None,
        *,
        preset: Preset = "default",
        function_words: FunctionWords | None = None,
        clustering: bool | None = None,
        prefix_matching: bool | None = None,
        channel: str | Path | None = None,
        memory_budget: int = MEMORY_BUDGET,
    ) -> None:
        self.llm = llm
        self.tokenizer = llm.get_tokenizer()
        self.rules = ScoringRules(preset, function_words, clustering, prefix_matching)
        self.tokens = self._tokens(clusters)
        self.logprobs_mode: LogprobsMode = llm.model_config.logprobs_mode
        self.channel = channel
        self.memory_budget = memory_budget

    def _tokens(self, given: TokenClusters | str | None) -> Tokens:
        if given is not None:
            found = as_clusters(given)
            found.check(self.tokenizer)
            return found
        if not self.rules.clustering:
            return as_tokens(self.tokenizer)
        config = self.llm.model_config
        return clusters_for_model(config.model, self.tokenizer, revision=config.revision)

    def generate(
        self, prompts: Prompt | Sequence[Prompt], sampling_params: Any = None, **generate_kwargs: Any
    ) -> list[list[ScoredResponse]]:
        """Generate and score.

        Parameters
        ----------
        prompts
            A string, a list of chat messages (rendered by the tokenizer's template), or a list of either.
        sampling_params
            vLLM's, for all prompts. Default: the engine's own for this model. Without a request for log-probabilities
            the 20 best a token are asked for, unless there is a channel.
        **generate_kwargs
            Of `LLM.generate`, such as `lora_request`; `use_tqdm` is off by default.

        Returns
        -------
        list of lists of ScoredResponse
            For each prompt its `n` answers; see `score_outputs`.

        Raises
        ------
        InsufficientMemory
            The whole vocabulary was asked for, and one answer alone may take more than `memory_budget`.
        """
        encoded = [encode_prompt(self.tokenizer, prompt, number) for number, prompt in enumerate(as_prompts(prompts))]
        params = (sampling_params or self.llm.get_default_sampling_params()).clone()
        if self.channel is not None:
            return self._through_channel(encoded, params, generate_kwargs)
        if params.logprobs is None:
            params.logprobs = 20
        tokens = [(params.max_tokens or self.llm.model_config.max_model_len) * params.n] * len(encoded)
        results: list[list[ScoredResponse]] = []
        for group in self._groups(tokens, whole=params.logprobs == -1):
            outputs = self._run([encoded[i] for i in group], params, generate_kwargs)
            for answers in map(completions, outputs):
                results.append(
                    [
                        score_steps(
                            list(answer.token_ids), answer.logprobs, self.tokens, self.rules, self.logprobs_mode
                        )
                        for answer in answers
                    ]
                )
        return results

    def _run(self, prompts: list[list[int]], params: Any, options: dict[str, Any]) -> list[Any]:
        inputs = [{"prompt_token_ids": ids} for ids in prompts]
        outputs: list[Any] = self.llm.generate(inputs, params, **({"use_tqdm": False} | options))
        return outputs

    def _through_channel(
        self, prompts: list[list[int]], params: Any, options: dict[str, Any]
    ) -> list[list[ScoredResponse]]:
        assert self.channel is not None
        names = [uuid.uuid4().hex for _ in prompts]
        each = []
        for name in names:
            own = params.clone()
            own.extra_args = (own.extra_args or {}) | {"semtoken_id": name}
            each.append(own)
        outputs = self._run(prompts, each, options)
        answers = [(name, list(output.outputs[0].token_ids)) for name, output in zip(names, outputs, strict=True)]
        return [[scored] for scored in read_channels(self.channel, answers, self.tokens)]

    def score(
        self,
        prompts: Prompt | Sequence[Prompt],
        responses: Response | Sequence[Response],
        *,
        exact: bool = False,
        top_k: int = 20,
        **generate_kwargs: Any,
    ) -> list[ScoredResponse]:
        """Score text that already exists, by the log-probabilities that vLLM gives for a prompt.

        vLLM returns those of the prompt too, which are dropped: with `exact` a text takes about
        112 bytes x (tokens of prompt and response) x V at one time.

        Parameters
        ----------
        prompts
            As in `generate`.
        responses
            One text, or list of token ids, for each prompt. Text is scored as it stands: no terminator is added.
        exact
            Use the whole vocabulary (`LLM(max_logprobs=-1)`).
        top_k
            Otherwise, the best log-probabilities a token.
        **generate_kwargs
            As in `generate`.

        Raises
        ------
        InvalidInput
            Numbers of prompts and responses differ, or one of them cannot be used.
        InsufficientMemory
            As in `generate`.
        """
        listed = as_prompts(prompts)
        answers: list[Any] = [responses] if isinstance(responses, str) else list(responses)
        if len(listed) != len(answers):
            raise InvalidInput(f"There are {len(listed)} prompts and {len(answers)} responses; each prompt needs one.")
        encoded = [encode_prompt(self.tokenizer, prompt, number) for number, prompt in enumerate(listed)]
        replies = [
            encode_response(self.tokenizer, prompt, ids, response, number)
            for number, (prompt, ids, response) in enumerate(zip(listed, encoded, answers, strict=True))
        ]
        params = sampling_params(exact=exact, temperature=0, max_tokens=1, detokenize=False)
        params.prompt_logprobs, params.logprobs = -1 if exact else top_k, None
        texts = [prompt + reply for prompt, reply in zip(encoded, replies, strict=True)]
        mode = self.logprobs_mode.replace("processed", "raw")  # nothing is processed before a prompt
        results = Answers()
        for group in self._groups([len(ids) for ids in texts], whole=exact):
            outputs = self._run([texts[i] for i in group], params, generate_kwargs)
            for i, output in zip(group, outputs, strict=True):
                if not replies[i]:
                    results.append(LogitsAnswer(scorer_for(self.tokens, self.rules)).finish())
                    continue
                found, first = output.prompt_logprobs, len(encoded[i])
                results.append(score_steps(replies[i], found, self.tokens, self.rules, mode, first))
        return results

    def _groups(self, tokens: Sequence[int], *, whole: bool) -> Iterator[list[int]]:
        if not whole:
            return iter([list(range(len(tokens)))])
        return memory_groups(tokens, self.llm.model_config.get_vocab_size(), self.memory_budget)


def memory_groups(tokens: Sequence[int], columns: int, budget: int) -> Iterator[list[int]]:
    """Numbers of the prompts that may run together, given the tokens that each has whole rows of log-probabilities of.

    Raises
    ------
    InsufficientMemory
        One prompt alone takes more than the budget.
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
