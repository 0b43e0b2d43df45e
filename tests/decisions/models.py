"""A small model with a chat template and one-token labels, for tests of decisions."""

from __future__ import annotations

from functools import cache
from typing import Any

TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tokenizer() -> Any:
    """Byte-level, with `<|user|>` and `<|assistant|>` as control tokens."""
    import copy

    from tests.tiny import byte_level_bpe

    found = copy.deepcopy(byte_level_bpe())
    found.add_tokens(["Yes", "No"])  # for transformers a label has to be one token
    found.chat_template = TEMPLATE
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
