"""The input of a scoring job: JSON lines with a prompt, read one at a time and checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from semtoken.errors import InvalidInput

Prompt: TypeAlias = "str | Sequence[Mapping[str, Any]]"
Response: TypeAlias = "str | Sequence[int]"

RESULT_FIELDS = (
    "uncertainty",
    "confidence",
    "log_score",
    "log_probability",
    "length_normalized_uncertainty",
    "neutral_only",
    "empty",
    "preset",
    "distribution",
    "signature",
)
"""What a scored line gains beside `response`; the names are those of `ScoredResponse`."""
RESERVED = frozenset({*RESULT_FIELDS, "tokens", "error"})


@dataclass(frozen=True)
class Item:
    """One line to score."""

    number: int
    """Line of the file, counted from 1."""
    record: Mapping[str, Any]
    """All its fields, carried through to the output."""
    prompt: Prompt
    response: Response | None
    """The answer to score; None to have one generated."""


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be scored."""

    number: int
    reason: str


def read_items(path: Path) -> Iterator[Item | BadLine]:
    """The lines of a file in order, blank ones left out.

    Raises
    ------
    InvalidInput
        The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield parse_line(number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from error


def parse_line(number: int, line: bytes) -> Item | BadLine:
    """One line of JSON as an item, or what is wrong with it."""
    try:
        record = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
        dump_line(record)
        return _item(number, record)
    except UnicodeDecodeError as error:
        return BadLine(number, f"not UTF-8 at byte {error.start}")
    except json.JSONDecodeError as error:
        return BadLine(number, f"not JSON: {error.msg} at column {error.colno}")
    except RecursionError:
        return BadLine(number, "not usable JSON: nested too deeply")
    except ValueError as error:
        return BadLine(number, str(error))


def dump_line(record: Any) -> bytes:
    """One line of JSON, the newline included.

    Raises
    ------
    ValueError
        The record holds an infinite number or half a character, which JSON files cannot.
    """
    try:
        return json.dumps(record, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
    except UnicodeEncodeError as error:
        raise ValueError("a text holds half a character (a lone surrogate)") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name} is no JSON number")


def _item(number: int, record: Any) -> Item:
    if not isinstance(record, dict):
        raise InvalidInput(f"an object with the field 'prompt' or 'messages' is needed, not {_kind(record)}")
    taken = sorted(RESERVED.intersection(record))
    if taken:
        raise InvalidInput(f"the field {taken[0]!r} is one that scoring writes; rename it or leave it out")
    return Item(number, record, _prompt(record), _response(record))


def _prompt(record: Mapping[str, Any]) -> Prompt:
    if ("prompt" in record) == ("messages" in record):
        present = ", ".join(map(repr, record)) or "none"
        raise InvalidInput(
            "both 'prompt' and 'messages' are given; keep one"
            if "prompt" in record
            else f"the field 'prompt' (or 'messages') is missing; the fields are: {present}"
        )
    if "messages" in record:
        return _messages(record["messages"])
    prompt = record["prompt"]
    if not isinstance(prompt, str):
        raise InvalidInput(f"'prompt' must be text, not {_kind(prompt)}; chat messages go into 'messages'")
    if not prompt.strip():
        raise InvalidInput("the prompt is empty")
    return prompt


def _messages(messages: Any) -> Prompt:
    valid = isinstance(messages, list) and all(isinstance(message, dict) and "role" in message for message in messages)
    if not valid or not messages:
        raise InvalidInput("'messages' must be a list of one or more objects with 'role' and 'content'")
    return list(messages)


def _response(record: Mapping[str, Any]) -> Response | None:
    response = record.get("response")
    if response is None or isinstance(response, str):
        return response
    if isinstance(response, list) and all(type(token) is int for token in response):
        return response
    raise InvalidInput(f"'response' must be text or a list of token ids, not {_kind(response)}")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
