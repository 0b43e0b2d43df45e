"""Inspect: a provider whose answers keep their exact scores, a scorer that adds them to any other, and metrics.

It is published in Inspect's extension group, so that names work on its command line:

    inspect eval task.py --model semtoken/almanac
    inspect score log.eval --scorer semtoken/with_uncertainty -S base=match
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

from semtoken.choices import Equality, Preset
from semtoken.core.given_tokens import Tokens, as_tokens
from semtoken.core.results.blocks import KEY, blocks_of, numbers_of, risk_of
from semtoken.core.rules import as_rules
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.integrations.hosts import require_host
from semtoken.integrations.messages import score_message
from semtoken.integrations.selective import COVERAGES, auroc_figures, prr_figures, risk_coverage_figures
from semtoken.support.http_client import HttpClient
from semtoken.support.questions import question_of

require_host("inspect_ai")

import anyio  # noqa: E402
import anyio.to_thread  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatCompletionChoice,
    ChatMessageAssistant,
    GenerateConfig,
    Logprobs,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)
from inspect_ai.scorer import SampleScore, accuracy, metric, scorer, value_to_float  # noqa: E402
from inspect_ai.util import registry_create  # noqa: E402

FIELDS = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "stop_seqs": "stop",
    "num_choices": "n",
    "logprobs": "logprobs",
    "top_logprobs": "top_logprobs",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "logit_bias": "logit_bias",
}
"""Settings of Inspect that are fields of a request, with the names of the fields."""
_NOT_OF_ANSWERS = frozenset(
    {
        *("max_retries", "timeout", "attempt_timeout", "stream_idle_timeout", "max_connections"),
        *("adaptive_connections", "batch", "cache", "cache_prompt", "system_message", "fail_on_refusal"),
        *("parallel_tool_calls", "internal_tools", "max_tool_output", "reasoning_history"),
    }
)
"""Settings that Inspect applies itself, and those that change nothing in an answer without tools."""
_STOPS = {"stop": "stop", "length": "max_tokens", "content_filter": "content_filter", "tool_calls": "tool_calls"}
"""Inspect's names of the reasons for which an answer ends. It calls any other `unknown`."""
_COPIED = (
    "confidence",
    "interval",
    "explanation",
    "confidence_method",
    "sequence_uncertainty",
    "sequence_uncertainty_interval",
    "probability_correct",
    "decision",
    "new_word_confidence",
    "preset",
    "method",
    "question_known",
)
"""The fields that a scorer copies from a block."""
AT_ONCE = 64
"""Requests to a server that are under way at a time; a model in this process answers them in batches."""


# --- provider ----------------------------------------------------------------------------------------------------


class SemtokenAPI(ModelAPI):  # type: ignore[misc]
    """Answers with their uncertainty in `ModelOutput.metadata["semtoken"]`, one block for each choice.

    Without a base URL the model runs in this process: `--model semtoken/almanac -M preset=paper`. With one, requests go
    to `semtoken serve`, `semtoken proxy` or a gateway before one of them, and what it says is kept; the key may be in
    SEMTOKEN_API_KEY. In this process the name is one that `ScoredModel.from_pretrained` takes, and `model_args` are
    `calibrator` (a directory) and that function's options.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008  # Inspect's own signature
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, ["SEMTOKEN_API_KEY"], config)
        self._client: HttpClient | None = None
        self._options = model_args
        if base_url is not None and model_args:
            raise InvalidInputError(
                f"The server at {base_url} decides how it scores; leave out {', '.join(sorted(model_args))}."
            )

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: GenerateConfig) -> ModelOutput:
        """Answer a conversation, with the score in the metadata of the answer."""
        if tools:
            raise InvalidInputError("The semtoken provider answers in text and calls no tools. Leave out the tools.")
        request = {"model": self.model_name, "messages": [_text_message(one) for one in input], **fields_of(config)}
        if self.base_url is not None:
            return output_of(await self._ask(request))
        key = json.dumps(self._options, sort_keys=True, default=str)
        # Shielded: a sample that is canceled does not cancel the model of the others.
        model = await asyncio.shield(asyncio.wrap_future(_loaded(self.model_name, key, **self._options)))
        return output_of(await model.reply(request))

    async def _ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._client is None:
            self._client = HttpClient(str(self.base_url), key=self.api_key, at_once=AT_ONCE)
            # anyio's own limit is 40 threads for the whole process, which Inspect needs for its work, too.
            self._threads = anyio.CapacityLimiter(AT_ONCE)
        url = f"{str(self.base_url).rstrip('/')}/chat/completions"
        answer = await anyio.to_thread.run_sync(self._client.post, url, request, limiter=self._threads)
        reply: Mapping[str, Any] = answer.json()
        return reply

    def should_retry(self, ex: BaseException) -> bool:
        """Never: a busy server was waited for already, and nothing is sent twice that the server began to answer."""
        return False

    def max_connections(self) -> int:
        """The number of requests that may be under way; those of a model in this process are answered in batches."""
        return AT_ONCE

    async def aclose(self) -> None:
        """Close the connections. A model in this process stays loaded, for Inspect's next object of it."""
        if self._client is not None:
            self._client.close()


_LOADED: dict[tuple[str, str], Future[Any]] = {}
_LOADER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semtoken-inspect")


def _loaded(name: str, key: str, **options: Any) -> Future[Any]:
    """A model in this process, or the error of loading it: loaded once, in a thread, and when it is first asked.

    Weights are large, and Inspect makes several objects for one model, one of them without its options, to look
    something up.
    """
    from semtoken.integrations.local import LocalChat

    if (name, key) not in _LOADED:
        _LOADED[name, key] = _LOADER.submit(LocalChat.load, name, **options)
    return _LOADED[name, key]


@modelapi(name="semtoken")  # type: ignore[untyped-decorator]
def semtoken() -> type[SemtokenAPI]:
    """Register semtoken as a provider of models with Inspect."""
    return SemtokenAPI


def fields_of(config: Any) -> dict[str, Any]:
    """Convert Inspect's generation settings to fields of a chat request, those of `extra_body` among them.

    `InvalidInputError` if one of them would change the answer and has no field.
    """
    given = {name: value for name, value in config.model_dump().items() if value is not None}
    more: dict[str, Any] = given.pop("extra_body", {})
    unknown = given.keys() - FIELDS.keys() - _NOT_OF_ANSWERS
    if unknown:
        raise InvalidInputError(f"The semtoken provider has no setting {', '.join(sorted(unknown))}. Leave it out.")
    return {field: given[name] for name, field in FIELDS.items() if name in given} | more


def _text_message(message: Any) -> dict[str, str]:
    """A message of Inspect as one of a chat request; its reasoning is left out, as chats do."""
    parts = [] if isinstance(message.content, str) else [part.type for part in message.content]
    others = sorted({*parts} - {"text", "reasoning"})
    if getattr(message, "tool_calls", None):
        others.append("calls of tools")
    if others:
        raise InvalidInputError(
            f"The semtoken provider sends text alone, and a message of the {message.role} has {', '.join(others)}."
        )
    return {"role": message.role, "content": message.text}


def output_of(reply: Mapping[str, Any]) -> ModelOutput:
    """A reply in OpenAI's form as Inspect's output; the blocks are in `metadata["semtoken"]`."""
    choices = [
        ChatCompletionChoice(
            message=ChatMessageAssistant(
                content=choice["message"].get("content") or "", model=reply.get("model"), source="generate"
            ),
            stop_reason=_STOPS.get(choice.get("finish_reason"), "unknown"),
            logprobs=Logprobs(content=choice["logprobs"]["content"]) if choice.get("logprobs") else None,
        )
        for choice in reply["choices"]
    ]
    used = reply.get("usage") or {}
    return ModelOutput(
        model=reply.get("model") or "",
        choices=choices,
        usage=ModelUsage(
            input_tokens=used.get("prompt_tokens", 0),
            output_tokens=used.get("completion_tokens", 0),
            total_tokens=used.get("total_tokens", 0),
        ),
        metadata={KEY: blocks_of(reply)},
        response_id=reply.get("id"),
    )


# --- scorer ------------------------------------------------------------------------------------------------------


@metric(scores="unreduced")  # type: ignore[untyped-decorator]
def auroc() -> Callable[[list[SampleScore]], dict[str, float]]:
    """AUROC of the confidence with its interval: wrong answers against right ones, which have a value of 1."""

    def measure(scores: list[SampleScore]) -> dict[str, float]:
        return auroc_figures(*_pairs(scores))

    return measure


@metric(scores="unreduced")  # type: ignore[untyped-decorator]
def prr() -> Callable[[list[SampleScore]], dict[str, float]]:
    """Prediction rejection ratio of the confidence, with its interval."""

    def measure(scores: list[SampleScore]) -> dict[str, float]:
        return prr_figures(*_pairs(scores))

    return measure


@metric(scores="unreduced")  # type: ignore[untyped-decorator]
def risk_coverage(coverages: Sequence[float] = COVERAGES) -> Callable[[list[SampleScore]], dict[str, float]]:
    """Share of wrong answers among the surest ones, at some coverages and over all of them (aurc)."""

    def measure(scores: list[SampleScore]) -> dict[str, float]:
        return risk_coverage_figures(*_pairs(scores), coverages)

    return measure


@metric(scores="unreduced")  # type: ignore[untyped-decorator]
def without_uncertainty() -> Callable[[list[SampleScore]], float]:
    """The number of answers for which no uncertainty could be given; the other metrics leave them out."""

    def measure(scores: list[SampleScore]) -> float:
        return float(sum(math.isnan(risk) for risk in _pairs(scores)[0]))

    return measure


@scorer(metrics=[accuracy(), auroc(), prr(), risk_coverage(), without_uncertainty()])  # type: ignore[untyped-decorator]
def with_uncertainty(
    base: Any = "match", vocabulary: Any = None, preset: str = "default", equality: Equality | None = None
) -> Any:
    """Any scorer, with the uncertainty of the answer in `Score.metadata`.

    Parameters
    ----------
    base
        A scorer, or the name of one ("match", "includes", "my_package/graded"). Its value stays as it is.
    vocabulary
        For models of other providers, as in `semtoken.score_reply`. The task must generate with `logprobs=True,
        top_logprobs=20`; scores are intervals then. Answers of the provider `semtoken` bring exact scores with them.
    preset, equality
        As in `semtoken.score_reply`, for scores from log-probabilities.
    """
    judge = registry_create("scorer", base) if isinstance(base, str) else base
    rules = as_rules(cast(Preset, preset), equality)
    loaded = None if vocabulary is None else as_tokens(vocabulary, clustering=rules.clustering)

    async def score(state: Any, target: Any) -> Any:
        judged = await judge(state, target)
        # A scorer may decline a sample, and without its value there is nothing to add to.
        if judged is None:
            return None
        uncertainty = uncertainty_of(state.output, loaded, rules, question=_asked(state))
        return judged.model_copy(update={"metadata": {**(judged.metadata or {}), **uncertainty}})

    return score


def _asked(state: Any) -> str | None:
    """The question that a task state ends with."""
    return question_of([{"role": message.role, "content": message.text} for message in state.messages])


def uncertainty_of(
    output: Any, vocabulary: Tokens | None = None, preset: Any = "default", *, question: str | None = None
) -> dict[str, Any]:
    """The values of the first choice's block, or the reason why there are none, as `no_uncertainty` alone.

    They are `confidence`, `interval`, `explanation`, `confidence_method`, `sequence_uncertainty`,
    `sequence_uncertainty_interval`, `preset`, `method` and `question_known`, and where it has them
    `probability_correct`, `decision` and `new_word_confidence`. Where no server gave a block, `question` says which
    words are new.
    """
    blocks = (output.metadata or {}).get(KEY) or [None]
    block = blocks[0]
    if block is None:
        try:
            block = _block_from_logprobs(output, vocabulary, preset, question)
        except SemtokenError as error:
            return {"no_uncertainty": str(error)}
    if block is None:
        return {
            "no_uncertainty": "The answer brings no score. Ask by the provider 'semtoken', or "
            "generate with logprobs=True, top_logprobs=20."
        }
    if "confidence" not in block:
        return {"no_uncertainty": str(block.get("reason"))}
    return {name: block[name] for name in _COPIED if name in block}


def _block_from_logprobs(
    output: Any, vocabulary: Tokens | None, preset: Any, question: str | None
) -> dict[str, Any] | None:
    choice = output.choices[0] if output.choices else None
    if choice is None or choice.logprobs is None:
        return None
    end = None if choice.stop_reason == "unknown" else choice.stop_reason
    calls = [(call.function, call.arguments) for call in choice.message.tool_calls or ()]
    answer = score_message(
        choice.message.text,
        choice.logprobs.model_dump(),
        calls,
        end=end,
        tokenizer=vocabulary,
        preset=preset,
        question=question,
    )
    return numbers_of(answer) | {"method": "top-k"}


_to_float = value_to_float()


def _pairs(scores: Any) -> tuple[list[float], list[float]]:
    """Risk by the confidence (NaN where there is none) and value of every sample."""
    return [risk_of(each.score.metadata or {}) for each in scores], [_to_float(each.score.value) for each in scores]
