"""OpenAI's two shapes with `choices`, and the signs of the engine that sent them.

Chat completions have `choices[].message` with `choices[].logprobs.content`, in chunks `choices[].delta`; legacy
completions have `choices[].text` with the lists `choices[].logprobs.{tokens, token_logprobs, top_logprobs}`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, ClassVar

import numpy as np

from semtoken.choices import SegmentKind
from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.core.engine_tokens.passes import steps_in_files
from semtoken.core.engine_tokens.placing import pieces_of, text_of_pieces
from semtoken.core.engine_tokens.spellings import steps_from_items, steps_from_triples
from semtoken.core.engine_tokens.token_names import MARKUP
from semtoken.core.engine_tokens.top_steps import StepList
from semtoken.errors import InvalidInputError
from semtoken.replies.formats import fields
from semtoken.replies.formats.base import Engine, HiddenFields, Place, Shape
from semtoken.replies.formats.fields import RawReply, dotted
from semtoken.support.splice import Change, Keep, Path, Replace
from semtoken.support.untrusted import as_id, as_list, as_object, text_or_empty

VLLM_FIELDS = frozenset({"prompt_logprobs", "kv_transfer_params", "ec_transfer_params"})
VLLM_CHOICE_FIELDS = frozenset({"prompt_logprobs", "routed_experts"})
VLLM_BOTH = frozenset({"stop_reason", "token_ids"})
"""Others have one of these fields in a choice."""
NOT_VLLM = frozenset({"disaggregated_params", "context_logits", "avg_decoded_tokens_per_iter", "mm_embedding_handle"})
"""Fields of a choice of TensorRT-LLM's, whose form began as vLLM's."""
SIGNS = VLLM_FIELDS | {"sglext", "timings"}
"""Fields of a reply that show its engine."""
ID_FIELDS = ("token_ids", "prompt_token_ids")
ITEM_LISTS: Mapping[str, SegmentKind] = {
    "content": "answer",
    "refusal": "refusal",
    "reasoning_content": "reasoning",
}
STEPS_BESIDE = "completion_probabilities"
TRIPLES_BESIDE = ("meta_info", "output_token_logprobs")
"""SGLang's own, as routers for training put them into the choices of a chat."""
NOTICED = ("id", "object", "created", "model")


class Choices(Shape):
    """The common part of OpenAI's two older shapes: a list `choices`, each a message or a text."""

    read_at = ("usage", "prompt_tokens")
    copies_at = ("n",)
    other_prompt: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "tools": ([],),
        "functions": ([],),
        "documents": ([],),
        "chat_template": (),
        "chat_template_kwargs": ({},),
        "reasoning_effort": (),
        "continue_final_message": (False,),
        "add_generation_prompt": (True,),
        "suffix": ("",),
    }
    choices_at = ("choices",)
    required = "choices"
    numbers_at = (("logprobs",),)
    nulls = True

    numbered = False
    end_at = (("finish_reason",), ("finishReason",), ("stop_reason",))
    """Some clients save it in camel case. Beside another one, `stop_reason` is the stop string."""

    _choice_fields: Set[str] = frozenset()
    """Fields of choices that have been seen."""
    _beside: Any = None
    """Items beside the choices: llama.cpp's server gave those of a chat so until the end of 2024."""
    _logprobs: Mapping[str, Any] | None = None
    """The log-probabilities of the first choice that has any."""

    @classmethod
    def asking(cls, body: RawReply, top: int, *, token_ids: bool = False) -> dict[str, Any]:
        """The numbers, and token ids in the fields of vLLM and SGLang.

        Ids spelled as token texts ("token_id:7") are asked for only where the client does not see the texts.
        """
        ids = {"return_token_ids": True} if token_ids else {}
        # The option changes what the client reads as tokens.
        spelled = {"return_tokens_as_token_ids": True} if token_ids and cls.requested(body) is None else {}
        return super().asking(body, top) | ids | spelled

    @classmethod
    def places(cls, reply: Any) -> Sequence[Place] | None:
        """The place of each element of `choices`."""
        if not isinstance(fields.value_at(reply, cls.choices_at), list):
            return None
        return [cls._place(path, choice, 0) for _, path, choice in cls.choices(reply)]

    @classmethod
    def hiding(cls, reply: Any, hidden: HiddenFields) -> Iterator[Change]:
        """Changes that set log-probabilities and ids to null, or shorten the lists of best tokens."""
        places: list[Path] = [("choices", i) for i in range(len(reply["choices"]))]
        if hidden.ids and not hidden.request.get("return_token_ids"):
            yield from (Replace((*at, name), None) for at in [(), *places] for name in ID_FIELDS)
        for at in places:
            if hidden.kept is None:
                yield Replace((*at, "logprobs"), None)
            else:
                yield from _shorter(reply["choices"][at[-1]], at, hidden.kept)

    @classmethod
    def notice(cls, last: RawReply, block: Mapping[str, Any]) -> dict[str, Any]:
        """A chunk without choices that carries the block."""
        return {**{name: last[name] for name in NOTICED if name in last}, "choices": [], "semtoken": block}

    def note(self, reply: RawReply) -> None:
        """Notice fields that only some engines have."""
        if "timings" in reply:  # llama-server's; the usage goes before it
            self.counted = fields.count_at(reply, "timings", "predicted_n") or self.counted
        super().note(reply)
        choices, self._beside = reply.get("choices"), reply.get(STEPS_BESIDE)
        if choices and isinstance(reply.get("id"), str) and reply["id"]:
            self.ids[reply["id"]] += 1
        self.fields |= {name for name in SIGNS.intersection(reply) if reply[name] is not None or name in VLLM_FIELDS}
        if self.echoes and (read := fields.count_at(reply, *self.read_at)) is not None:
            self.read = read
        for i, value in enumerate(() if choices is None else as_list(choices, "choices")):
            choice = as_object(value, f"choices[{i}]")
            self._choice_fields = self._choice_fields | choice.keys()
            if self._logprobs is None and isinstance(choice.get("logprobs"), Mapping):
                self._logprobs = choice["logprobs"]

    def steps(self, choice: RawReply) -> StepList:
        """Items of a chat, or the lists of legacy completions."""
        logprobs = _logprobs_of(choice)
        if not logprobs and (beside := choice.get(STEPS_BESIDE, self._beside)):
            return self.steps_of_items(beside, STEPS_BESIDE)
        if not logprobs and (triples := fields.value_at(choice, TRIPLES_BESIDE)):
            return steps_from_triples(triples, None, dotted(TRIPLES_BESIDE))
        return self.steps_in(logprobs, "logprobs")

    @property
    def engine(self) -> Engine:
        """The engine that sent the reply, by the fields that only it has."""
        if "sglext" in self.fields or "matched_stop" in self._choice_fields:
            return "sglang"
        vllm = VLLM_FIELDS & self.fields or VLLM_CHOICE_FIELDS & self._choice_fields
        if (vllm or self._choice_fields >= VLLM_BOTH) and not NOT_VLLM & self._choice_fields:
            return "vllm"
        logprobs = self._logprobs or {}
        items, listed = logprobs.get("content"), logprobs.get("token_logprobs")
        first = items[0] if isinstance(items, list) and items else {}
        first = first if isinstance(first, Mapping) else {}
        if "timings" in self.fields or {"id", "bytes"} <= first.keys():
            return "llama-cpp"
        # llama-cpp-python in process leaves numpy numbers in its dicts.
        numbers = [first.get("logprob"), *(listed if isinstance(listed, list) else ())]
        return "llama-cpp-python" if any(isinstance(number, np.floating) for number in numbers) else "openai"


def _logprobs_of(choice: RawReply) -> RawReply:
    """The object with the log-probabilities of a choice, or an empty one; `InvalidInputError` if there is something
    else.
    """
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, Mapping | None):
        return logprobs or {}
    if isinstance(logprobs, list):
        if logprobs and isinstance(logprobs[0], float):
            raise InvalidInputError("logprobs is only a list of numbers: ask for items that name their tokens.")
        return {"content": logprobs}
    if isinstance(logprobs, int | float) and not isinstance(logprobs, bool):
        raise InvalidInputError(
            f"logprobs is the number {logprobs}: an average of the answer's log-probabilities, which gateways "
            "take from Gemini's avgLogprobs. Ask for those of each token (Gemini: responseLogprobs and logprobs=5)."
        )
    return as_object(logprobs, "logprobs")


def _shorter(choice: Any, at: Path, kept: int) -> Iterator[Change]:
    """The first best tokens of each step; in legacy lists also the chosen one, as OpenAI has it."""
    logprobs = choice.get("logprobs") if isinstance(choice, Mapping) else None
    if not isinstance(logprobs, Mapping):
        return
    for name in ITEM_LISTS:
        yield from fields.shorter_items(logprobs.get(name), (*at, "logprobs", name), kept)
    names, tops = logprobs.get("tokens"), logprobs.get("top_logprobs")
    for i, step in enumerate(tops if isinstance(tops, list) else ()):
        chosen = names[i] if isinstance(names, list) and i < len(names) else None
        if not isinstance(step, Mapping):
            continue
        try:
            best = {*sorted(step, key=lambda name, of=step: -of[name])[:kept], chosen}  # type: ignore[misc]
        except TypeError:  # no numbers: not ours to judge
            continue
        yield Keep((*at, "logprobs", "top_logprobs", i), best)


REASONING = ("reasoning_content", "reasoning")
"""Some engines send it under both names."""
FUNCTION_CALL = -1


def _below(*names: str) -> tuple[Path, ...]:
    """The paths of members of a message or a delta."""
    return tuple((message, name) for name in names for message in ("message", "delta"))


class OpenAIChat(Choices):
    """The shape of chat completions, of OpenAI and most engines."""

    name = "chat"
    path = "/chat/completions"
    formats: ClassVar[Mapping[Engine, str]] = {
        "openai": "openai-chat",
        "vllm": "vllm-chat",
        "sglang": "sglang-chat",
        "llama-cpp": "llama-cpp-chat",
        "llama-cpp-python": "llama-cpp-python-chat",
    }
    ask = '"logprobs": true, "top_logprobs": 20'
    is_chat = True
    prompts = ("messages",)
    top_at = ("top_logprobs",)
    switch_at = ("logprobs",)
    divided = True
    chunk_marks = (("choices", 0, "delta"),)
    texts: ClassVar[Mapping[SegmentKind, tuple[Path, ...]]] = {
        "reasoning": _below(*REASONING),
        "answer": _below("content"),
        "refusal": _below("refusal"),
    }
    showing = (*_below("tool_calls", "function_call", "audio"), ("text",), *((name,) for name in ID_FIELDS))

    @classmethod
    def detects(cls, replies: Sequence[RawReply]) -> bool:
        """Return True if the first choice of a reply holds a message."""
        choices = replies[0].get("choices")
        listed = choices if isinstance(choices, list | tuple) else [choices]
        first: RawReply = next((choice for choice in listed if isinstance(choice, Mapping)), {})
        return "message" in first or "delta" in first or (not first and replies[0].get("object") == "chat.completion")

    @classmethod
    def requested(cls, body: RawReply) -> int | None:
        """The number in `top_logprobs` if `logprobs` is true; else None."""
        if body.get("top_logprobs") is not None and not body.get("logprobs"):
            raise InvalidInputError("logprobs must be true where top_logprobs are given.")
        return super().requested({"messages": [], **body})

    def steps(self, choice: RawReply) -> StepList:
        """The items of the content; Together's streams give the number of the one token alone."""
        number, delta = choice.get("logprobs"), choice.get("delta")
        if not isinstance(number, float | int) or not isinstance(delta, Mapping):
            return super().steps(choice)
        token = {"id": delta.get("token_id"), "token": delta.get("content"), "logprob": number}
        return steps_from_items([token] if delta.get("content") else [], "logprobs")

    def apart(self, choice: RawReply) -> Mapping[SegmentKind, StepList]:
        """The steps of a refusal and of the reasoning, which have lists of their own."""
        logprobs = choice.get("logprobs")
        named = logprobs.items() if isinstance(logprobs, Mapping) else ()
        return {
            ITEM_LISTS[name]: steps_from_items(items, f"logprobs.{name}")
            for name, items in named
            if name in ITEM_LISTS and name != "content" and items is not None
        }

    def calls(self, choice: RawReply) -> Mapping[int, tuple[str, str]]:
        """The calls of tools, whose pieces come in any order, and of a function."""
        calls: dict[int, tuple[str, str]] = {}
        message = as_object(choice.get("message", choice.get("delta")) or {}, "message")
        if message.get("function_call") is not None:
            calls[FUNCTION_CALL] = call_of(message["function_call"], "message.function_call")
        for i, tool in enumerate(as_list(message.get("tool_calls") or (), "message.tool_calls")):
            here = f"message.tool_calls[{i}]"
            entry = as_object(tool, here)
            name, arguments = call_of(entry.get("function", entry.get("custom", {})), here)
            at = as_id(entry.get("index", i), f"{here}.index")
            before = calls.get(at, ("", ""))
            # Chunks of a stream carry pieces of several calls, and only the index says which call a piece belongs to.
            calls[at] = (before[0] + name, before[1] + arguments)
        return calls


def call_of(function: Any, where: str) -> tuple[str, str]:
    """The name and arguments of a tool call, or the pieces of them in a chunk."""
    call = as_object({} if function is None else function, where)
    arguments = call.get("arguments", call.get("input"))
    return text_or_empty(call.get("name"), f"{where}.name"), text_or_empty(arguments, f"{where}.arguments")


class OpenAICompletions(Choices):
    """The shape of legacy completions, of OpenAI and most engines."""

    name = "completions"
    path = "/completions"
    formats: ClassVar[Mapping[Engine, str]] = {
        "openai": "openai-completions",
        "vllm": "vllm-completions",
        "sglang": "sglang-completions",
        "llama-cpp": "llama-cpp-completions",
        "llama-cpp-python": "llama-cpp-python-completions",
    }
    ask = '"logprobs": 5 or more'
    one_segment = True
    echoes = True
    prompts = ("prompt",)
    top_at = ("logprobs",)
    marks = (("choices",),)
    chunk_marks = (("choices", 0, "text"),)
    texts = {"answer": (("text",),)}  # noqa: RUF012
    showing = (("message",), *((name,) for name in ID_FIELDS))

    @classmethod
    def detects(cls, replies: Sequence[RawReply]) -> bool:
        """Return True if there are choices, and the first holds more than the ids of tokens."""
        choices = replies[0].get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(first, Mapping) or "text" in first or not isinstance(first.get("token_ids"), list):
            return "choices" in replies[0]
        return bool(cls.said(first))

    @classmethod
    def said(cls, choice: RawReply) -> dict[SegmentKind, str]:
        """The text of a choice; of one without a member for it, what its tokens spell."""
        if choice.get("text") is not None or choice.get("logprobs") is None:
            return super().said(choice)
        steps = cls().steps(choice).steps
        spelled = MARKUP.sub("", text_of_pieces(pieces_of(steps_in_files(steps) or steps)))
        return {"answer": spelled} if spelled.strip(REPLACEMENT) else {}

    @classmethod
    def requested(cls, body: RawReply) -> int | None:
        """The number in `logprobs`, of the log-probabilities for each token that the client asked for."""
        return fields.count_of(body.get("logprobs"), "logprobs")

    @classmethod
    def obstacle(cls, body: RawReply) -> str | None:
        """The reason why a reply cannot be scored: the request asks for the prompt to be repeated."""
        if not body.get("echo"):
            return None
        return "With echo the reply repeats the prompt; ask without it to have the answer scored."
