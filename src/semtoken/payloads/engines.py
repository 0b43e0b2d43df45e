"""Replies in the shapes of single engines: SGLang's `/generate`, llama.cpp's `/completion`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from semtoken.payloads.parts import RawChoice
from semtoken.payloads.tokens import Steps, steps_from_items, steps_from_triples
from semtoken.payloads.values import as_id, as_list, as_object, as_text, optional, text_or_empty

Reply = Mapping[str, Any]


def batch(reply: Reply) -> Iterator[Reply]:
    """The replies of a request for several; one in a list of its own else."""
    if BATCH in reply:
        for i, value in enumerate(as_list(reply[BATCH], "reply")):
            yield as_object(value, f"reply[{i}]")
    else:
        yield reply


BATCH = "semtoken.batch"
"""Where `read_payload` puts a reply that is a list."""


def sglang_choices(reply: Reply) -> Iterator[RawChoice]:
    """`text` with `meta_info.{output_token_logprobs, output_top_logprobs}`, one reply or a list of them."""
    for index, one in enumerate(batch(reply)):
        meta = as_object(one.get("meta_info"), "meta_info")
        chosen, tops = meta.get("output_token_logprobs"), meta.get("output_top_logprobs")
        steps = Steps() if chosen is None else steps_from_triples(chosen, tops, "meta_info")
        text = text_or_empty(one.get("text"), "text")
        number = as_id(one.get("index", index), "index")
        yield RawChoice(number, {"answer": text}, steps, _sglang_end(meta), one_part=True)


def _sglang_end(meta: Reply) -> str | None:
    reason = meta.get("finish_reason")
    if isinstance(reason, Mapping):
        reason = reason.get("type")
    return optional(as_text, reason, "meta_info.finish_reason")


def llama_cpp_choices(reply: Reply) -> Iterator[RawChoice]:
    """`content` with `completion_probabilities`, one reply or a list of them."""
    for index, one in enumerate(batch(reply)):
        items = one.get("completion_probabilities", one.get("probs"))
        steps = steps_from_items([] if items is None else items, "completion_probabilities")
        finish = optional(as_text, one.get("stop_type"), "stop_type")
        text = text_or_empty(one.get("content"), "content")
        number = as_id(one.get("index", index), "index")
        yield RawChoice(number, {"answer": text}, steps, finish, one_part=True)


def is_post_sampling(reply: Reply) -> bool:
    """Whether llama.cpp gave probabilities from after its samplers (`post_sampling_probs`)."""
    first = next(batch(reply), {})
    items = first.get("completion_probabilities")
    return isinstance(items, list) and any(isinstance(item, Mapping) and "prob" in item for item in items)
