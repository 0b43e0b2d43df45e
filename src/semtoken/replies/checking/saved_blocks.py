"""The blocks of `semtoken serve` and `proxy` in saved replies: ranked where no log-probabilities were saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from semtoken.core.results import Distribution, ScoredAnswer, TokensLater
from semtoken.core.results.blocks import VERSION, block_of, final_block
from semtoken.core.results.confidence import Confidence
from semtoken.core.results.on_demand import QUESTION_UNKNOWN
from semtoken.core.scored_token import Flag
from semtoken.errors import InvalidInputError
from semtoken.guarantees.labels import log_of
from semtoken.replies import ReplyChoice
from semtoken.replies.checking.doubts import Doubt
from semtoken.support.inputs import flag, listed, one_of, real, text, whole
from semtoken.support.plain_values import parse_reply
from semtoken.support.sse import EventReader

ROUNDED = 1e-9
"""Numbers of two blocks that differ by less count as equal."""
NO_TOKENS = "the reply holds only the semtoken block, and no log-probabilities"


def blocks_of_reply(reply: Any) -> dict[int, Mapping[str, Any]]:
    """The block of each choice of a reply (plain values, or the text of a stream: final ones only) by its index."""
    if isinstance(reply, str):
        reader = EventReader()
        events = (event.data for event in [*reader.feed(reply), *reader.finish()])
        chunks = [parse_reply(data) for data in events if data and data != "[DONE]"]
        indexes = {choice.get("index", 0) for chunk in chunks for choice in _choices(chunk)}
        blocks = {index: final_block(chunks, index) for index in indexes}
    else:
        blocks = {choice.get("index", place): block_of(choice) for place, choice in enumerate(_choices(reply))}
    return {index: block for index, block in blocks.items() if block is not None}


def _choices(reply: Any) -> list[Mapping[str, Any]]:
    choices = reply.get("choices") if isinstance(reply, Mapping) else None
    return [choice for choice in choices if isinstance(choice, Mapping)] if isinstance(choices, list) else []


def answer_of_block(choice: ReplyChoice, block: Mapping[str, Any]) -> ScoredAnswer:
    """A choice with the numbers of its block, without tokens; `InvalidInputError` if it holds no score or is
    damaged.
    """
    if block.get("version") != VERSION:
        raise InvalidInputError(
            f"The semtoken block has the version {block.get('version')!r}, and this release reads {VERSION}. Save the "
            "reply with its log-probabilities, or check it with the release that wrote it."
        )
    if "reason" in block and "confidence" not in block:
        raise InvalidInputError(f"The server gave the answer no score: {block['reason']}")
    try:
        return _answer(choice, block)
    except KeyError as error:
        raise InvalidInputError(f"The semtoken block is damaged: it has no {error.args[0]!r}.") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"The semtoken block is damaged: {error}") from error


def _answer(choice: ReplyChoice, block: Mapping[str, Any]) -> ScoredAnswer:
    value, (low, high) = _number_and_interval(block, "sequence_uncertainty", "sequence_uncertainty_interval")
    signature = text(block["signature"], "signature")
    one_of("method", block["method"], ("exact", "top-k"))
    one_of("distribution", block["distribution"], get_args(Distribution))
    said = choice.segment("answer")
    raised = tuple(
        Flag(text(block_flag["code"], "code"), text(block_flag["message"], "message"))
        for block_flag in _mappings(block, "flags")
    )
    return ScoredAnswer(
        text="" if said is None else said.text,
        tokens=TokensLater.missing(  # type: ignore[arg-type]
            whole(block["n_tokens"], "n_tokens", low=0), _confidence(block, value), NO_TOKENS
        ),
        log_confidence=log_of(1 - value),
        preset=text(block["preset"], "preset"),
        distribution=block["distribution"],
        neutral_only=any(block_flag.code == "neutral_only" for block_flag in raised),
        signature=signature,
        log_confidence_interval=None if block["method"] == "exact" else (log_of(1 - high), log_of(1 - low)),
        flags=raised,
        proxy_for=None if block.get("proxy_for") is None else text(block["proxy_for"], "proxy_for"),
        truncated=None if block.get("truncated") is None else flag(block["truncated"], "truncated"),
        question=None if signature.endswith(QUESTION_UNKNOWN) else choice.question or "",
    )


def _confidence(block: Mapping[str, Any], sequence_uncertainty: float) -> Confidence:
    value, interval = _number_and_interval(block, "confidence", "interval")
    method = text(block["confidence_method"], "confidence_method")
    if method == "stc" and abs(1 - value - sequence_uncertainty) > ROUNDED:
        raise InvalidInputError(
            f"the confidence {value:g} does not belong to the sequence uncertainty {sequence_uncertainty:g}."
        )
    return Confidence(value, interval, method, text(block["explanation"], "explanation"))


def _number_and_interval(block: Mapping[str, Any], name: str, interval: str) -> tuple[float, tuple[float, float]]:
    """A number of the block in [0, 1], and the interval around it."""
    value = real(block[name], name, low=0.0, high=1.0)
    ends = [real(end, interval, low=0.0, high=1.0) for end in listed(block[interval], interval)]
    if len(ends) != 2:
        raise InvalidInputError(f"{interval!r} must be two numbers, got {len(ends)}.")
    low, high = ends
    if not low - ROUNDED <= value <= high + ROUNDED:
        raise InvalidInputError(f"{name!r} is {value:g} and lies outside its interval from {low:g} to {high:g}.")
    return value, (low, high)


def doubts_of_block(block: Mapping[str, Any]) -> tuple[Doubt, ...]:
    """The parts that a block lists, the least confident first; empty if the request asked for none."""
    try:
        parts = [_doubt(part) for part in _mappings(block, "parts") if part["confidence"] is not None]
    except KeyError as error:
        raise InvalidInputError(f"The semtoken block is damaged: a part has no {error.args[0]!r}.") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"The semtoken block is damaged: {error}") from error
    return tuple(
        sorted((part for part in parts if part.end > part.start), key=lambda part: (part.confidence, part.start))
    )


def _doubt(part: Mapping[str, Any]) -> Doubt:
    start, end = (whole(part[name], name, low=0) for name in ("start", "end"))
    confidence = real(part["confidence"], "confidence", low=0.0, high=1.0)
    path = None if part.get("path") is None else text(part["path"], "path")
    return Doubt(text(part["text"], "text"), start, end, confidence, (), path)


def _mappings(block: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    mappings = listed(block.get(name, ()), name)
    if not all(isinstance(mapping, Mapping) for mapping in mappings):
        raise InvalidInputError(f"'{name}' must be a list of mappings.")
    return mappings
