"""The k best log-probabilities of every step: plain records, and the forms in which engines give them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from semtoken.errors import InvalidInput
from semtoken.top_logprobs.names import NAMED_BY_ID


@dataclass(frozen=True)
class TopToken:
    """One token of a step, named as its engine named it: by id, by bytes, by text, or by several of them."""

    log_prob: float
    """Natural log of its next-token probability."""
    id: int | None = None
    text: str | None = None
    bytes: bytes | None = None

    @property
    def name(self) -> str:
        """For messages."""
        if self.text is not None:
            return repr(self.text)
        return f"id {self.id}" if self.id is not None else repr(self.bytes)


@dataclass(frozen=True)
class TopStep:
    """One decoding step: the token that was chosen, and the most probable ones."""

    chosen: TopToken
    top: tuple[TopToken, ...]
    """As the engine listed them; the chosen token may be among them or not."""


def as_top_steps(steps: Any, token_ids: Sequence[int] | None = None) -> list[TopStep]:
    """Steps in any of the usual forms as records.

    Parameters
    ----------
    steps
        A sequence with one entry a step: `TopStep`; an item of OpenAI's `logprobs.content` (object or dict with
        `token`, `logprob`, `bytes`, `top_logprobs`); a dict from id to log-probability (vLLM's, whose values are
        objects with `logprob`, or plain numbers), whose first entry is the chosen token unless `token_ids` say
        otherwise; a pair (chosen token, such a dict), whose keys may also be strings; SGLang's triple
        (log-probability, id, text) of the chosen token, or a pair of it and the list of such triples.
    token_ids
        Ids of the chosen tokens, where the steps do not name them.

    Raises
    ------
    InvalidInput
        An entry has none of these forms, or does not say which token was chosen.
    """
    listed = list(steps)
    if token_ids is not None and len(token_ids) != len(listed):
        raise InvalidInput(f"There are {len(listed)} steps and {len(token_ids)} token ids; each step needs one.")
    ids = [None] * len(listed) if token_ids is None else [operator.index(token) for token in token_ids]
    return [_as_step(step, chosen, number) for number, (step, chosen) in enumerate(zip(listed, ids, strict=True))]


def _as_step(step: Any, chosen: int | None, number: int) -> TopStep:
    if isinstance(step, TopStep):
        return step
    try:
        if isinstance(step, Mapping) and "logprob" not in step:
            return _of_mapping(step, chosen)
        if isinstance(step, tuple | list):
            return _of_tuple(step, chosen)
        return _of_item(step, chosen)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidInput(
            f"Step {number} has none of the known forms (TopStep, an item of `logprobs.content`, a dict from token id "
            "to log-probability, a pair of chosen token and such a dict, a triple (log-probability, id, text), or a "
            f"pair of it and a list of triples): {str(error) or type(step).__name__}."
        ) from error


def _of_tuple(step: Sequence[Any], chosen: int | None) -> TopStep:
    if len(step) == 2 and isinstance(step[1], Mapping):
        return _of_mapping(step[1], step[0])
    if len(step) == 2 and isinstance(step[0], tuple | list):
        return TopStep(_of_triple(step[0], chosen), tuple(_of_triple(entry) for entry in step[1] or ()))
    if len(step) == 3 and not isinstance(step[0], tuple | list):
        return TopStep(_of_triple(step, chosen), ())
    raise ValueError("it does not say which token was chosen")


def _of_triple(entry: Sequence[Any], chosen: int | None = None) -> TopToken:
    log_prob, token, text = entry
    return TopToken(float(log_prob), operator.index(token) if chosen is None else chosen, text)


def _of_mapping(entries: Mapping[Any, Any], chosen: int | str | None) -> TopStep:
    if not entries:
        raise ValueError("it is empty")
    top = {_as_key(key): _of_entry(_as_key(key), value) for key, value in entries.items()}
    if chosen is None and isinstance(next(iter(top)), str):
        raise ValueError("the order of its strings does not say which token was chosen")
    key = next(iter(top)) if chosen is None else _as_key(chosen)
    if key not in top:
        raise ValueError(f"the chosen token {chosen!r} is not among its entries")
    return TopStep(top[key], tuple(top.values()))


def _as_key(key: Any) -> int | str:
    return key if isinstance(key, str) else operator.index(key)


def _of_entry(key: int | str, value: Any) -> TopToken:
    log_prob = float(value.logprob if hasattr(value, "logprob") else value)
    if isinstance(key, str):
        return TopToken(log_prob, text=key)
    return TopToken(log_prob, key, getattr(value, "decoded_token", None))


def _of_item(item: Any, chosen: int | None) -> TopStep:
    top = _field(item, "top_logprobs")
    own = _of_fields(item)
    if chosen is not None:
        own = TopToken(own.log_prob, chosen, own.text, own.bytes)
    return TopStep(own, tuple(_of_fields(entry) for entry in top or ()))


def _of_fields(item: Any) -> TopToken:
    text, spelled, token = _field(item, "token"), _field(item, "bytes"), _field(item, "id")
    if text is None and spelled is None and token is None:
        raise ValueError("a token without a name")
    if isinstance(text, str) and text.startswith(NAMED_BY_ID):
        spelled = None  # vLLM spells the name there, not the token
    value = _field(item, "logprob")
    if value is None:
        raise ValueError(f"token {text!r} has no logprob")
    return TopToken(float(value), token, text, None if spelled is None else bytes(spelled))


def _field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
