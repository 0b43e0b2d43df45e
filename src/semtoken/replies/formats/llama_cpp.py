"""llama.cpp's `/completion`: `content` with `completion_probabilities`, one reply or a list of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from semtoken.core.engine_tokens.top_steps import StepList
from semtoken.replies.formats.base import Engine, HiddenFields, Shape
from semtoken.replies.formats.fields import RawReply
from semtoken.support.splice import Change, Replace

STEPS = "completion_probabilities"


class LlamaCppCompletion(Shape):
    """The shape of llama.cpp's own `/completion`."""

    name = "completion"
    path = "/completion"
    below_v1 = False
    formats: ClassVar[Mapping[Engine, str]] = {"llama-cpp": "llama-cpp"}
    ask = '"n_probs": 20'
    ends = ("eos", "limit")
    one_segment = True
    prompts = ("prompt",)
    limit_at = ("n_predict",)
    top_at = ("n_probs",)
    chunk_marks = (("content",), ("stop",))
    texts = {"answer": (("content",), ("text",))}  # noqa: RUF012
    """The second is llama.rn's."""
    numbers_at = ((STEPS,), ("probs",))
    tops_in = ("top_logprobs", "top_probs")
    showing = (("tokens",),)
    end_at = (("stop_type",),)
    done_at = ("stop",)
    count_at = ("tokens_predicted",)
    read_at = ("tokens_evaluated",)

    @classmethod
    def detects(cls, replies: Sequence[RawReply]) -> bool:
        """Return True if a reply holds probabilities, or says why it stopped, in llama.cpp's fields."""
        return STEPS in replies[0] or cls.starts(replies[0])

    @classmethod
    def end_of(cls, choice: RawReply) -> str | None:
        """The reason why a choice ended; llama.rn and servers until the end of 2024 have a switch for each."""
        switched = (ended for ended in ("eos", "word", "limit") if choice.get(f"stopped_{ended}") is True)
        return super().end_of(choice) or next(switched, None)

    @classmethod
    def hiding(cls, reply: Any, hidden: HiddenFields) -> Iterator[Change]:
        """Changes that remove probabilities or shorten their lists, and restore the settings that replies repeat."""
        yield from super().hiding(reply, hidden)
        for _, path, _ in cls.choices(reply):
            yield Replace((*path, "generation_settings", "n_probs"), hidden.request.get("n_probs") or 0)

    def steps(self, choice: RawReply) -> StepList:
        """Items with log-probabilities, or with probabilities."""
        return self.steps_of_items(choice.get(STEPS, choice.get("probs")) or [], STEPS)
