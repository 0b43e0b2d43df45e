"""What OpenAI's two shapes with `choices` have in common, and which engine sent them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from semtoken.choices import SegmentKind
from semtoken.engine_tokens.top_steps import as_list, as_object
from semtoken.errors import InvalidInput
from semtoken.payloads.formats import base
from semtoken.payloads.splice import Change, Keep, Path, Replace

VLLM_FIELDS = frozenset({"prompt_logprobs", "prompt_token_ids", "kv_transfer_params", "ec_transfer_params"})
VLLM_CHOICE_FIELDS = frozenset({"stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids"})
LONGEST_INDEX = 10_000  # choices of one reply
ID_FIELDS = ("token_ids", "prompt_token_ids")
ITEM_LISTS = ("content", "refusal", "reasoning_content")
LISTS = (*ITEM_LISTS[:1], "tokens", "token_logprobs", "top_logprobs", "text_offset")
"""Fields that the log-probabilities of an event may have if it only adds to an answer."""
NOTICED = ("id", "object", "created", "model")
OTHER_PROMPT: Mapping[str, tuple[Any, ...]] = {
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
"""Fields that change what the model reads in ways that only the server knows, with the values that do not."""


class Choices(base.Shape):
    """The common part of OpenAI's two older shapes: a list `choices`, each a message or a text."""

    read_at = ("usage", "prompt_tokens")
    choices_at = ("choices",)
    gains: ClassVar[Path]
    """Where in a choice of an event the answer's text stands."""

    def __init__(self) -> None:
        super().__init__()
        self._fields: set[str] = set()
        """Fields of replies and chunks that have been seen."""
        self._choice_fields: set[str] = set()
        self._logprobs: Mapping[str, Any] | None = None
        """The first of them."""

    @classmethod
    def token_id_fields(cls, body: base.Reply) -> dict[str, Any]:
        """The fields with which vLLM and SGLang are asked for token ids.

        Ids spelled as token texts ("token_id:7") are asked for only where the client does not see the texts.
        """
        spelled = {"return_tokens_as_token_ids": True} if cls.requested(body) is None else {}
        return {"return_token_ids": True, **spelled}

    @classmethod
    def places(cls, reply: Any) -> Sequence[base.Place] | None:
        """The place of each element of `choices`."""
        if not isinstance(base.value_at(reply, cls.choices_at), list):
            return None
        return [cls._place(path, choice, 0) for _, path, choice in cls.choices(reply)]

    @classmethod
    def said(cls, choice: base.Reply) -> dict[SegmentKind, str]:
        """The text of the answer in a choice of an event, if it is one."""
        text = base.value_at(choice, cls.gains)
        return {"answer": text} if isinstance(text, str) else {}

    @classmethod
    def end_of(cls, choice: base.Reply) -> str | None:
        """The reason of the end, which some clients save in camel case."""
        return base.end_in_words(choice.get("finish_reason", choice.get("finishReason")))

    @classmethod
    def hiding(cls, reply: Any, hidden: base.HiddenFields) -> Iterator[Change]:
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
    def growth(cls, event: base.Reply) -> base.Growth | None:
        """The text and log-probabilities of the only choice in an event."""
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
        if not isinstance(choice, dict) or cls.is_ended(choice) or "semtoken" in choice:
            return None  # a score of the server's own is not to be passed on unread
        index, logprobs = choice.get("index"), choice.get("logprobs")
        if type(index) is not int or not cls._text_of(choice) or not isinstance(logprobs, dict):
            return None
        if any(value for name, value in logprobs.items() if name not in LISTS):
            return None
        at: Path = ("choices", 0)
        varying: tuple[Path, ...] = (("created",), ("obfuscation",))
        return base.Growth(index, at + cls.gains, (*at, "logprobs"), (*at, "token_ids"), varying)

    @classmethod
    def notice(cls, last: base.Reply, block: Mapping[str, Any]) -> dict[str, Any]:
        """A chunk without choices that carries the block."""
        return {**{name: last[name] for name in NOTICED if name in last}, "choices": [], "semtoken": block}

    @classmethod
    def _text_of(cls, choice: base.Reply) -> str | None:
        """The text of a choice of an event that holds nothing else."""
        raise NotImplementedError

    def whole(self, replies: Sequence[base.Reply]) -> Iterator[base.Delta]:
        """The choices of a reply."""
        as_list(base.only(replies).get("choices"), "choices")
        yield from self._of_choices(replies[0], streamed=False)

    def chunk(self, chunk: base.Reply) -> Iterator[base.Delta]:
        """The deltas that a chunk of a stream holds."""
        yield from self._of_choices(chunk, streamed=True)

    def _of_choices(self, reply: base.Reply, *, streamed: bool) -> Iterator[base.Delta]:
        self._fields.update(name for name, value in reply.items() if value is not None or not streamed)
        if streamed and reply.get("choices") and isinstance(reply.get("id"), str) and reply["id"]:
            self._ids[reply["id"]] += 1
        self.counted = base.count_at(reply, "timings", "predicted_n") or self.counted
        self.note_reply(reply)
        choices = reply.get("choices")
        for i, value in enumerate(as_list([] if choices is None else choices, "choices")):
            where = f"choices[{i}]"
            choice = as_object(value, where)
            base.raise_error(choice)
            self._choice_fields.update(choice)
            if self._logprobs is None and isinstance(choice.get("logprobs"), Mapping):
                self._logprobs = choice["logprobs"]
            index = base.index_of(choice, where)
            if index > LONGEST_INDEX:
                raise InvalidInput(f"{where}.index must be at most {LONGEST_INDEX}. Got {index} instead.")
            yield self._delta(choice, index, where, streamed=streamed)

    def _delta(self, choice: base.Reply, index: int, where: str, *, streamed: bool) -> base.Delta:
        raise NotImplementedError

    @property
    def engine(self) -> base.Engine:
        """The engine that sent the reply, by the fields that only it has."""
        if "sglext" in self._fields or "matched_stop" in self._choice_fields:
            return "sglang"
        if VLLM_FIELDS & self._fields or VLLM_CHOICE_FIELDS & self._choice_fields:
            return "vllm"
        items = (self._logprobs or {}).get("content")
        first = items[0] if isinstance(items, list) and items else {}
        if "timings" in self._fields or (isinstance(first, Mapping) and "id" in first):
            return "llama-cpp"
        return "llama-cpp-python" if _holds_numpy(self._logprobs or {}) else "openai"


def _shorter(choice: Any, at: Path, kept: int) -> Iterator[Change]:
    """The first best tokens of each step; in legacy lists also the chosen one, as OpenAI has it."""
    logprobs = choice.get("logprobs") if isinstance(choice, Mapping) else None
    if not isinstance(logprobs, Mapping):
        return
    for name in ITEM_LISTS:
        yield from base.shorter_items(logprobs.get(name), (*at, "logprobs", name), kept)
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


def check_prompt_fields(body: base.Reply) -> None:
    """Raise `InvalidInput` for a request whose prompt depends on something that only the server knows.

    Raises
    ------
    InvalidInput
        The request holds such a field; the message names it.
    """
    for name, neutral in OTHER_PROMPT.items():
        if body.get(name) is not None and body[name] not in neutral:
            raise InvalidInput(f"The request has '{name}', so what the upstream's model read is not known here.")


def are_messages(replies: Sequence[base.Reply]) -> bool | None:
    """Whether the choices of a single reply are those of a chat; None if there is no list of choices."""
    choices = replies[0].get("choices") if len(replies) == 1 else None
    if not isinstance(choices, list | tuple):
        return None
    first = next((choice for choice in choices if isinstance(choice, Mapping)), {})
    return "message" in first or "delta" in first or replies[0].get("object") == "chat.completion"


def in_first_choice(chunk: base.Reply, name: str) -> bool:
    """Whether the first choice of a chunk that is an object has this field."""
    choices = chunk.get("choices")
    found = choices if isinstance(choices, list | tuple) else ()
    return name in next((choice for choice in found if isinstance(choice, Mapping)), {})


def _holds_numpy(logprobs: Mapping[str, Any]) -> bool:
    """llama-cpp-python in process leaves numpy numbers in its dicts."""
    import numpy as np

    values = logprobs.get("token_logprobs")
    if isinstance(logprobs.get("content"), list):
        values = [item.get("logprob") for item in logprobs["content"] if isinstance(item, Mapping)]
    return isinstance(values, list) and any(isinstance(value, np.floating) for value in values)
