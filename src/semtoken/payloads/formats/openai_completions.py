"""Legacy completions: `choices[].text` with the lists `choices[].logprobs.{tokens, token_logprobs, top_logprobs}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from semtoken.engine_tokens.placing import pieces_of, text_of_pieces
from semtoken.engine_tokens.top_steps import StepList, text_or_empty
from semtoken.payloads.formats import base
from semtoken.payloads.formats.openai_chat import steps_of_logprobs
from semtoken.payloads.formats.openai_choices import (
    ID_FIELDS,
    Choices,
    are_messages,
    check_prompt_fields,
    in_first_choice,
)
from semtoken.payloads.segments import RawChoice
from semtoken.payloads.splice import Change, Path, Replace

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
    gains: ClassVar[Path] = ("text",)

    @classmethod
    def detects(cls, replies: Sequence[base.Reply]) -> bool:
        """Whether a reply has choices that hold no messages."""
        return are_messages(replies) is False

    @classmethod
    def starts(cls, chunk: base.Reply) -> bool:
        """Whether the choices of a chunk hold texts."""
        return in_first_choice(chunk, "text")

    @classmethod
    def requested(cls, body: base.Reply) -> int | None:
        """The number in `logprobs`: how many log-probabilities for each token the client asked for."""
        return base.count_of(body.get("logprobs"), "logprobs")

    @classmethod
    def asking(cls, body: base.Reply, top: int, *, token_ids: bool = False) -> dict[str, Any]:
        """The fields that ask for at least `top` log-probabilities for each token."""
        ids = cls.token_id_fields(body) if token_ids else {}
        return {"logprobs": base.as_many(top, cls.requested(body)), **ids}

    @classmethod
    def obstacle(cls, body: base.Reply) -> str | None:
        """The reason why a reply cannot be scored: the request asks for the prompt to be repeated."""
        if not body.get("echo"):
            return None
        return "With echo the reply repeats the prompt; ask without it to have the answer scored."

    @classmethod
    def prompt(cls, body: base.Reply, choice: int) -> str | list[Any]:
        """The prompt of a choice: `n` choices in a row belong to each prompt."""
        check_prompt_fields(body)
        each = body.get("n") or 1
        return base.text_or_ids(body.get("prompt"), choice // each if isinstance(each, int) and each > 0 else base.ALL)

    @classmethod
    def withholding(cls, reply: Any, place: base.Place, text: str) -> Iterator[Change]:
        """Replace the text of a choice, and take its numbers out."""
        yield Replace((*place.path, "text"), text)
        yield from (Replace((*place.path, name), None) for name in ("logprobs", "message", *ID_FIELDS))

    @classmethod
    def _text_of(cls, choice: base.Reply) -> str | None:
        text = choice.get("text")
        return text if isinstance(text, str) and "delta" not in choice else None

    def _delta(self, choice: base.Reply, index: int, where: str, *, streamed: bool) -> base.Delta:
        text = text_or_empty(choice.get("text"), f"{where}.text")
        logprobs = base.logprobs_of(choice, where)
        self.note_probabilities(logprobs.get("content"))
        steps, _ = steps_of_logprobs(logprobs, f"{where}.logprobs")
        finish = self.end_of(choice)
        return base.Delta(
            index,
            {"answer": text} if text else {},
            steps,
            ids=base.ids_of(choice, where),
            finish_reason=finish,
            ended=finish is not None,
            stop=base.stop_of(choice),
        )

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
