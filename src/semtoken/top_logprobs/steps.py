"""The k best log-probabilities of every step: plain records, and the forms in which engines give them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from semtoken._arrays import as_ids
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
        (log-probability, id, text) of the chosen token, or a pair of it and the list of such triples. OpenAI's
        `logprobs` itself will do.
    token_ids
        Ids of the chosen tokens, where the steps do not name them.

    Raises
    ------
    InvalidInput
        An entry has none of these forms, or does not say which token was chosen.
    """
    listed = _as_list(steps)
    ids: list[Any] = [None] * len(listed) if token_ids is None else as_ids(token_ids)
    if len(ids) != len(listed):
        raise InvalidInput(f"There are {len(listed)} steps and {len(ids)} token ids; each step needs one.")
    return [_as_step(step, chosen, number) for number, (step, chosen) in enumerate(zip(listed, ids, strict=True))]


def _as_list(steps: Any) -> list[Any]:
    content = _field(steps, "content")
    found = steps if content is None else content
    if found is None or isinstance(found, str | bytes | Mapping) or not hasattr(found, "__iter__"):
        raise InvalidInput(
            f"The steps must be a list with one entry a token, got {type(found).__name__}. If the reply has no "
            "log-probabilities, ask for them (`logprobs`, `top_logprobs`); some servers leave them out silently."
        )
    return list(found)


def _as_step(step: Any, chosen: int | None, number: int) -> TopStep:
    try:
        read = _read(step, chosen)
        if chosen is not None and read.chosen.id != chosen:
            if read.chosen.id is not None:
                raise ValueError(f"it chose token {read.chosen.id}, and token_ids say {chosen}")
            read = replace(read, chosen=replace(read.chosen, id=chosen))
        return read
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidInput(
            f"Step {number} has none of the known forms (TopStep, an item of `logprobs.content`, a dict from token id "
            "to log-probability, a pair of chosen token and such a dict, a triple (log-probability, id, text), or a "
            f"pair of it and a list of triples): {str(error) or type(step).__name__}."
        ) from error


def _read(step: Any, chosen: int | None) -> TopStep:
    if isinstance(step, TopStep):
        return step
    if isinstance(step, Mapping) and "logprob" not in step:
        return _of_mapping(step, chosen)
    if isinstance(step, tuple | list):
        return _of_tuple(step)
    return TopStep(_of_fields(step), tuple(map(_of_fields, _field(step, "top_logprobs") or ())))


def _of_tuple(step: Sequence[Any]) -> TopStep:
    if len(step) == 2 and isinstance(step[1], Mapping):
        return _of_mapping(step[1], step[0])
    if len(step) == 2 and isinstance(step[0], tuple | list):
        return TopStep(_of_triple(step[0]), tuple(map(_of_triple, step[1] or ())))
    if len(step) == 3 and not isinstance(step[0], tuple | list):
        return TopStep(_of_triple(step), ())
    raise ValueError("it does not say which token was chosen")


def _of_triple(entry: Sequence[Any]) -> TopToken:
    log_prob, token, text = entry
    return TopToken(float(log_prob), operator.index(token), _as_text(text))


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
    return TopToken(log_prob, key, _as_text(getattr(value, "decoded_token", None)))


def _of_fields(item: Any) -> TopToken:
    text, spelled, token = _as_text(_field(item, "token")), _field(item, "bytes"), _field(item, "id")
    if text is None and spelled is None and token is None:
        raise ValueError("a token without a name")
    if text is not None and text.startswith(NAMED_BY_ID):
        spelled = None  # vLLM spells the name there, not the token
    value = _field(item, "logprob")
    if value is None:
        raise ValueError(f"token {text!r} has no logprob")
    if not isinstance(spelled, bytes | list | tuple | None):
        raise TypeError(f"bytes of token {text!r} must be a list of numbers")
    return TopToken(
        float(value),
        None if token is None else operator.index(token),
        text,
        None if spelled is None else bytes(spelled),
    )


def _as_text(text: Any) -> str | None:
    if not isinstance(text, str | None):
        raise TypeError(f"the text of a token must be a string, got {type(text).__name__}")
    return text


def _field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
