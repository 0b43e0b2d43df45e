"""Legacy completions: `choices[].text` with the lists `choices[].logprobs.{tokens, token_logprobs, top_logprobs}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from semtoken.engine_tokens.placing import pieces_of, text_of_pieces
from semtoken.engine_tokens.top_steps import StepList
from semtoken.payloads.formats import base
from semtoken.payloads.formats.openai_choices import ID_FIELDS, Choices
from semtoken.payloads.segments import RawChoice

ECHO = (
    "The reply repeats the prompt and does not say where the answer begins: ask without `echo`, or for the usage too "
    '("stream_options": {"include_usage": true}).'
)


class OpenAICompletions(Choices):
    """The shape of legacy completions, of OpenAI and most engines."""

    name = "completions"
    path = "/completions"
    formats: ClassVar[Mapping[base.Engine, str]] = {
        "openai": "openai-completions",
        "vllm": "vllm-completions",
        "sglang": "sglang-completions",
        "llama-cpp": "llama-cpp-completions",
        "llama-cpp-python": "llama-cpp-python-completions",
    }
    ask = '"logprobs": 5 or more'
    one_segment = True
    prompts = ("prompt",)
    top_at = ("logprobs",)
    marks = (("choices",),)
    chunk_marks = (("choices", 0, "text"),)
    texts = {"answer": (("text",),)}  # noqa: RUF012
    showing = (("message",), *((name,) for name in ID_FIELDS))
    gains = ("text",)

    @classmethod
    def requested(cls, body: base.Reply) -> int | None:
        """The number in `logprobs`: how many log-probabilities for each token the client asked for."""
        return base.count_of(body.get("logprobs"), "logprobs")

    @classmethod
    def obstacle(cls, body: base.Reply) -> str | None:
        """The reason why a reply cannot be scored: the request asks for the prompt to be repeated."""
        if not body.get("echo"):
            return None
        return "With echo the reply repeats the prompt; ask without it to have the answer scored."

    def raw_choice(self, index: int) -> RawChoice:
        """One of the choices so far, without the prompt that it may repeat."""
        choice = super().raw_choice(index)
        if choice.steps.missing[:1] != (0,):
            return choice
        steps, text = _without_echo(choice.steps, choice.texts.get("answer", ""), self.counted)
        return replace(choice, steps=steps, texts={"answer": text}, flags=())


def _without_echo(steps: StepList, text: str, written: int | None) -> tuple[StepList, str]:
    """The answer alone, of a reply that repeats the prompt (`echo`): its first token has no log-probability."""
    if written is None:
        return steps._replace(missing=(), fault=ECHO), text
    prompt = len(steps.steps) - written
    if prompt <= 0:
        return steps, text
    kept = steps.steps[prompt:]
    missing = tuple(i - prompt for i in steps.missing if i >= prompt)
    spelled = text_of_pieces(pieces_of(kept))  # with a terminator, which the text lacks
    length = next((n for n in range(len(spelled), 0, -1) if text.endswith(spelled[:n])), 0)
    return StepList(kept, missing), spelled[:length] or text
