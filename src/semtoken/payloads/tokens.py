"""How each engine spells its tokens and log-probabilities -> TopStep."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from semtoken.payloads.values import (
    as_bytes,
    as_id,
    as_list,
    as_log_prob,
    as_number,
    as_object,
    as_text,
    optional,
)
from semtoken.top_logprobs import TopStep, TopToken

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
MISSING = -9999.0  # what vLLM itself writes for a token without a log-probability
_TOKEN_ID = re.compile(r"token_id:(\d{1,9})\Z")
_BYTES = re.compile(r"bytes?: ?((?:\\x[0-9a-f]{2})+)\Z")  # OpenAI's and llama.cpp's names of pieces of characters


@dataclass(frozen=True)
class Steps:
    """The steps of a choice, and what is wrong with them."""

    steps: tuple[TopStep, ...] = ()
    missing: tuple[int, ...] = ()
    """Steps without a log-probability."""
    fault: str | None = None
    """Why there are no steps although the engine sent some."""

    @property
    def problem(self) -> str | None:
        """Why they cannot be scored."""
        if self.fault or not self.missing:
            return self.fault
        return (
            f"{len(self.missing)} of {len(self.steps)} steps have no log-probability, the first of them step "
            f"{self.missing[0]}: the engine left them out."
        )


def steps_from_items(items: Any, where: str) -> Steps:
    """Chat items `{token, logprob, bytes, top_logprobs}`; llama.cpp adds `id` and may give `prob`, `top_probs`."""
    steps: list[TopStep] = []
    missing: list[int] = []
    for i, value in enumerate(as_list(items, where)):
        here = f"{where}[{i}]"
        item = as_object(value, here)
        top = item.get("top_logprobs", item.get("top_probs"))
        entries = as_list([] if top is None else top, f"{here}.top_logprobs")
        log_prob = _log_prob(item, here)
        if log_prob is None or (log_prob == MISSING and not entries):
            missing.append(i)
        tops = (_token(as_object(e, here), f"{here}.top_logprobs[{j}]") for j, e in enumerate(entries))
        steps.append(TopStep(_token(item, here, chosen=True), tuple(tops)))
    return Steps(tuple(steps), tuple(missing))


def _token(item: Mapping[str, Any], where: str, *, chosen: bool = False) -> TopToken:
    text = optional(as_text, item.get("token"), f"{where}.token")
    token_id = optional(as_id, item.get("id"), f"{where}.id")
    spelled = optional(as_bytes, item.get("bytes"), f"{where}.bytes")
    log_prob = _log_prob(item, where)
    if log_prob is None and not chosen:
        log_prob = as_log_prob(None, f"{where}.logprob")
    return named(MISSING if log_prob is None else log_prob, text, token_id, spelled)


def _log_prob(item: Mapping[str, Any], where: str) -> float | None:
    if "prob" in item and "logprob" not in item:
        probability = as_number(item["prob"], f"{where}.prob")
        return as_log_prob(math.log(probability), f"{where}.prob") if probability > 0 else -math.inf
    return optional(as_log_prob, item.get("logprob"), f"{where}.logprob")


def named(log_prob: float, text: str | None, token_id: int | None = None, spelled: bytes | None = None) -> TopToken:
    """A token by what its engine calls it.

    Bytes that only spell the name ("token_id:808", U+FFFD for a piece of a character) say nothing and are dropped. A
    token without any text is a piece of a character, or a special token: its text becomes U+FFFD.
    """
    if not text and not spelled and (text is not None or token_id is None):
        return TopToken(log_prob, token_id, REPLACEMENT if token_id is None else None)
    if text is not None and spelled is not None and _is_name(text) and spelled == _encoded(text):
        spelled = None
    if text is not None and (found := _TOKEN_ID.match(text)):
        return TopToken(log_prob, int(found[1]) if token_id is None else token_id, None, spelled)
    if text is not None and spelled is None and (found := _BYTES.match(text)):
        return TopToken(log_prob, token_id, None, bytes.fromhex(found[1].replace("\\x", "")))
    return TopToken(log_prob, token_id, text, spelled)


def _is_name(text: str) -> bool:
    return REPLACEMENT in text or _TOKEN_ID.match(text) is not None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def steps_from_lists(logprobs: Mapping[str, Any], where: str) -> Steps:
    """Legacy completions: `{tokens, token_logprobs, top_logprobs}`, the best of each step a dict by text."""
    tokens = as_list(logprobs.get("tokens"), f"{where}.tokens")
    chosen = as_list(logprobs.get("token_logprobs"), f"{where}.token_logprobs")
    tops = logprobs.get("top_logprobs")
    tops = as_list([None] * len(tokens) if tops is None else tops, f"{where}.top_logprobs")
    if not len(tokens) == len(chosen) == len(tops):
        lengths = f"{len(tokens)} tokens, {len(chosen)} token_logprobs, {len(tops)} top_logprobs"
        return Steps(fault=f"The lists of log-probabilities differ in length: {lengths}. Steps are missing.")
    steps: list[TopStep] = []
    for i, (token, value, top) in enumerate(zip(tokens, chosen, tops, strict=True)):
        log_prob = optional(as_log_prob, value, f"{where}.token_logprobs[{i}]")
        name = as_text(token, f"{where}.tokens[{i}]")
        best = as_object({} if top is None else top, f"{where}.top_logprobs[{i}]")
        entries = (named(as_log_prob(v, f"{where}.top_logprobs[{i}][{k!r}]"), str(k)) for k, v in best.items())
        steps.append(TopStep(named(MISSING if log_prob is None else log_prob, name), tuple(entries)))
    missing = [i for i, value in enumerate(chosen) if value is None]
    return Steps(tuple(steps), tuple(missing))


def steps_from_triples(chosen: Any, tops: Any, where: str) -> Steps:
    """SGLang: `(logprob, id, text or null)` for each step, and a list of such triples for its best tokens."""
    picked = as_list(chosen, f"{where}.output_token_logprobs")
    best = as_list([None] * len(picked) if tops is None else tops, f"{where}.output_top_logprobs")
    if len(best) != len(picked):
        lengths = f"{len(picked)} output_token_logprobs, {len(best)} output_top_logprobs"
        return Steps(fault=f"The lists of log-probabilities differ in length: {lengths}. Steps are missing.")
    steps: list[TopStep] = []
    missing: list[int] = []
    for i, (value, entries) in enumerate(zip(picked, best, strict=True)):
        here = f"{where}.output_top_logprobs[{i}]"
        token = _triple(value, f"{where}.output_token_logprobs[{i}]")
        listed = (_triple(e, f"{here}[{j}]") for j, e in enumerate(as_list([] if entries is None else entries, here)))
        if token.log_prob == MISSING:
            missing.append(i)
        steps.append(TopStep(token, tuple(listed)))
    return Steps(tuple(steps), tuple(missing))


def _triple(value: Any, where: str) -> TopToken:
    triple = as_list(value, where)
    if len(triple) not in (2, 3):
        as_list(None, f"{where} (log-probability, id, text)")
    log_prob = optional(as_log_prob, triple[0], f"{where}[0]")
    text = optional(as_text, triple[2], f"{where}[2]") if len(triple) == 3 else None
    return named(MISSING if log_prob is None else log_prob, text, optional(as_id, triple[1], f"{where}[1]"))


def without_borrowed_names(steps: Sequence[TopStep], *, inside: bool = False) -> tuple[tuple[TopStep, ...], bool]:
    """The steps without the names of whole characters for the last of their pieces.

    vLLM calls the token that completes a character by the whole of it, and the pieces before it by nothing. Taken by
    their names they would be other tokens.

    Parameters
    ----------
    steps
        As the engine named them.
    inside
        The step before the first ends inside a character.

    Returns
    -------
    tuple of TopStep
        The same steps.
    bool
        The last of them ends inside a character.
    """
    renamed: list[TopStep] = []
    for step in steps:
        change = _unborrowed if inside else _without_no_bytes
        inside = is_unnamed(change(step.chosen))
        renamed.append(TopStep(change(step.chosen), tuple(map(change, step.top))))
    return tuple(renamed), inside


def is_unnamed(token: TopToken) -> bool:
    """The engine gives no text to tell it by: a piece of a character."""
    return not token.bytes and (token.text is None or REPLACEMENT in token.text)


def _without_no_bytes(token: TopToken) -> TopToken:
    return replace(token, bytes=None) if token.bytes == b"" else token


def _unborrowed(token: TopToken) -> TopToken:
    token = _without_no_bytes(token)
    text = (token.bytes or b"").decode("utf-8", "replace") if token.text is None else token.text
    if not text or text[0].isascii():
        return token
    return replace(token, text=REPLACEMENT if token.id is None else None, bytes=None)


def with_ids(steps: Sequence[TopStep], ids: Sequence[int]) -> tuple[TopStep, ...]:
    """The steps with the ids of their chosen tokens, which the engine gave apart."""
    pairs = zip(steps, ids, strict=True)
    return tuple(replace(step, chosen=replace(step.chosen, id=token)) for step, token in pairs)


def chained(parts: Sequence[Steps]) -> Steps:
    """The steps of several lists, one after the other."""
    offsets = [sum(len(part.steps) for part in parts[:i]) for i in range(len(parts))]
    return Steps(
        steps=tuple(step for part in parts for step in part.steps),
        missing=tuple(offset + i for offset, part in zip(offsets, parts, strict=True) for i in part.missing),
        fault=next((part.fault for part in parts if part.fault), None),
    )
