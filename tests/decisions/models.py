"""A small model with a chat template and one-token labels, for tests of decisions, and what it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semtoken.decisions import Answer, Question, ReadingOptions

TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tokenizer() -> Any:
    """Byte-level, with `<|user|>` and `<|assistant|>` as control tokens, and a token before each text."""
    import copy

    from tests.tiny import byte_level_bpe, token_before

    found = copy.deepcopy(byte_level_bpe())
    found.add_tokens(["Yes", "No"])  # for transformers a label has to be one token
    found.chat_template = TEMPLATE
    found.backend_tokenizer.post_processor = token_before(found)
    return found


@cache
def tiny() -> Any:
    """A random Llama as a backend: its probabilities mean nothing, and are exact."""
    from semtoken.models.transformers.model import TransformersBackend
    from tests.tiny import llama

    own = tokenizer()
    model = llama(len(own) + 8, hidden=32)
    model.config.max_position_embeddings = 4096
    return TransformersBackend(model, own)


def answer_to(question: Question, state: str = "x", options: ReadingOptions | None = None) -> Answer:
    """The answer of that model to one question."""
    from semtoken.decisions import DecisionRequest, decide

    [found] = decide(tiny(), [DecisionRequest(state, [question], *([options] if options else []))])
    return found.answers[0]


@contextmanager
def passes(of: Callable[[dict[str, Any]], int] = lambda given: given["input_ids"].shape[1]) -> Iterator[list[int]]:
    """A number of each pass of that model, from what it is called with: the tokens that are read."""
    seen: list[int] = []
    hook = tiny().model.register_forward_pre_hook(lambda _m, _a, given: seen.append(of(given)), with_kwargs=True)
    try:
        yield seen
    finally:
        hook.remove()
