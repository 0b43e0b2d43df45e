"""llama.cpp's `/completion`: `content` with `completion_probabilities`, one reply or a list of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from semtoken.engine_tokens.spellings import steps_from_items
from semtoken.engine_tokens.top_steps import as_text, optional, text_or_empty
from semtoken.errors import InvalidInput
from semtoken.payloads.formats.base import (
    Delta,
    Engine,
    Growth,
    HiddenFields,
    Place,
    ProbeQuestion,
    Reply,
    Shape,
    as_many,
    count_at,
    count_of,
    index_of,
    one_each,
    ones,
    shorter_items,
)
from semtoken.payloads.formats.openai_choices import text_or_ids
from semtoken.payloads.splice import Change, Drop, Path, Replace
from semtoken.results import Distribution

STEPS = "completion_probabilities"
VARYING: tuple[Path, ...] = (("tokens",), ("tokens_predicted",), ("tokens_evaluated",), ("timings",))


class LlamaCppCompletion(Shape):
    """The shape of llama.cpp's own `/completion`."""

    name = "completion"
    path = "/completion"
    below_v1 = False
    formats: ClassVar[Mapping[Engine, str]] = {"llama-cpp": "llama-cpp"}
    ask = '"n_probs": 20'
    ends = ("eos", "limit")
    one_segment = True

    def __init__(self) -> None:
        super().__init__()
        self._post_sampling = False
        """The probabilities are those after the samplers (`post_sampling_probs`)."""
        self._model: str | None = None

    @classmethod
    def detects(cls, replies: Sequence[Reply]) -> bool:
        """Whether a reply holds probabilities, or says why it stopped, in llama.cpp's fields."""
        first = replies[0]
        return "completion_probabilities" in first or ("content" in first and "stop" in first)

    @classmethod
    def starts(cls, chunk: Reply) -> bool:
        """Whether a chunk says in llama.cpp's field that the answer goes on or stops."""
        return "content" in chunk and "stop" in chunk

    @classmethod
    def request(cls, question: ProbeQuestion) -> dict[str, Any]:
        """The body of a request whose answer continues the prompt of the question."""
        body: dict[str, Any] = {"prompt": question.prompt, "n_predict": question.max_tokens}
        return body if question.temperature is None else body | {"temperature": question.temperature}

    @classmethod
    def requested(cls, body: Reply) -> int | None:
        """The number in `n_probs`; None for 0."""
        if "prompt" not in body:
            raise InvalidInput("The request has no prompt.")
        return count_of(body.get("n_probs"), "n_probs") or None

    @classmethod
    def asking(cls, body: Reply, top: int, *, token_ids: bool = False) -> dict[str, Any]:
        """The field `n_probs`; token ids come without being asked for."""
        return {"n_probs": as_many(top, cls.requested(body))}

    @classmethod
    def prompt(cls, body: Reply, choice: int) -> str | list[Any]:
        """The prompt of a choice, from one prompt or a list of them."""
        return text_or_ids(body.get("prompt"), choice)

    @classmethod
    def places(cls, reply: Any) -> Sequence[Place] | None:
        """The place of the reply itself, or of each reply of a batch."""
        return one_each(reply, lambda one: "content" in one and "stop" in one, _place)

    @classmethod
    def hiding(cls, reply: Any, hidden: HiddenFields) -> Iterator[Change]:
        """Changes that remove probabilities or shorten their lists, and restore the settings that replies repeat."""
        for path, one in ones(reply):
            if hidden.kept is None:
                yield Drop((*path, STEPS))
            else:
                for name in ("top_logprobs", "top_probs"):
                    yield from shorter_items(one.get(STEPS), (*path, STEPS), hidden.kept, name)
            yield Replace((*path, "generation_settings", "n_probs"), hidden.request.get("n_probs") or 0)

    @classmethod
    def withholding(cls, reply: Any, place: Place, text: str) -> Iterator[Change]:
        """Replace the content by a text, and take the tokens out."""
        yield Replace((*place.path, "content"), text)
        yield Replace((*place.path, "tokens"), [])
        yield from (Drop((*place.path, name)) for name in (STEPS, "probs"))

    @classmethod
    def prompt_tokens(cls, reply: Any) -> int | None:
        """The count in `tokens_evaluated`."""
        return count_at(reply, "tokens_evaluated")

    @classmethod
    def growth(cls, event: Reply) -> Growth | None:
        """Where an event brings more content, and the probabilities of its tokens."""
        known = {"index", "content", "stop", STEPS, *(path[0] for path in VARYING)}
        if any(value for name, value in event.items() if name not in known) or event.get("stop") is not False:
            return None
        index, text = event.get("index", 0), event.get("content")
        if type(index) is not int or not isinstance(text, str) or not text or not event.get(STEPS):
            return None
        return Growth(index, ("content",), (STEPS,), varying=VARYING)

    def whole(self, replies: Sequence[Reply]) -> Iterator[Delta]:
        """The delta of each reply, which is one choice."""
        for position, reply in enumerate(replies):
            yield self._delta(reply, index_of(reply, "", position), ended=True)

    def chunk(self, chunk: Reply) -> Iterator[Delta]:
        """The delta that a chunk adds."""
        yield self._delta(chunk, index_of(chunk, ""), ended=chunk.get("stop") is True)

    def _delta(self, reply: Reply, index: int, *, ended: bool) -> Delta:
        items = reply.get("completion_probabilities", reply.get("probs"))
        steps = steps_from_items([] if items is None else items, "completion_probabilities")
        self._post_sampling |= any("prob" in item for item in items or ())
        self._model = optional(as_text, reply.get("model"), "model") or self._model
        text = text_or_empty(reply.get("content"), "content")
        finish = optional(as_text, reply.get("stop_type"), "stop_type")
        return Delta(index, {"answer": text} if text else {}, steps, finish_reason=finish, ended=ended)

    @property
    def model(self) -> str | None:
        """The model's name, if the reply gives it."""
        return self._model

    def distribution(self, engine: Engine, temperature: float | None, *, masked: bool) -> Distribution:
        """`processed` where probabilities are those after the samplers or some tokens have none; otherwise `raw`."""
        return super().distribution(engine, temperature, masked=masked or self._post_sampling)


def _place(one: Reply, path: Path, number: int) -> Place:
    index, ended = one.get("index", number), one["stop"] is True
    goes_on = not ended and isinstance(one["content"], str) and bool(one["content"])
    return Place(index if isinstance(index, int) else None, path, ended, goes_on)
