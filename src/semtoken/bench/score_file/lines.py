"""The input of a scoring job: records with a prompt, read one at a time and checked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from semtoken.core.results.generation import STATE_FIELDS
from semtoken.errors import InvalidInputError
from semtoken.support.files.images import (
    MOST_BYTES,
    file_part,
    has_images,
    image_parts,
    lacking,
    path_of,
    with_images,
    with_paths,
)
from semtoken.support.files.record_files import Record, kind_of, read_records
from semtoken.support.files.strict_json import dump_json
from semtoken.support.inputs import place
from semtoken.support.text import shortened

Prompt: TypeAlias = "str | Sequence[Mapping[str, Any]]"
Response: TypeAlias = "str | Sequence[int]"

RESULT_FIELDS = (
    "confidence",
    "explanation",
    "confidence_method",
    "sequence_uncertainty",
    "log_confidence",
    "log_probability",
    "neutral_only",
    "empty",
    "truncated",
    "preset",
    "distribution",
    "signature",
    "question_known",
)
"""The fields that a scored line gains next to `response`, by their names in `ScoredAnswer`; scores by further methods
are written after `score_`."""
CALIBRATOR_FIELDS = (
    *(
        "probability_correct",
        "probability_correct_interval",
        "probability_correct_at_ends",
        "n_labels",
    ),
    *("decision", "reason", "guarantee", "calibrated_elsewhere"),
)
"""Fields that a calibrator adds to a scored line."""
PART_FIELDS = (
    *("kind", "path", "start", "end", "text", "confidence", "product", "weakest", "mean", "closing", "equality"),
    *("present", "complete"),
)
"""These fields of `semtoken.core.parts.Part` are written for a part of an answer, with its flags."""
REPLACED = frozenset(
    {*RESULT_FIELDS, *CALIBRATOR_FIELDS}
    | {"tokens", "parts", "parts_refused", "error", "line", *STATE_FIELDS}
    # now `score_length_normalized`, where that method is asked for
    | {"length_normalized_uncertainty"}
)
"""Fields that an earlier command wrote; they are not carried through, since they are written again."""


@dataclass(frozen=True)
class Item:
    """One line to score."""

    number: int
    """Line of the file, counted from 1."""
    record: Mapping[str, Any]
    """All its fields, carried through to the output."""
    prompt: Prompt
    """The prompt that the model gets: text, or chat messages."""
    response: Response | None
    """The answer to score; None to have one generated."""
    is_question: bool = False
    """True if the prompt is a bare question, to be put into the form that the model knows."""


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be scored."""

    number: int
    """Line of the file, counted from 1."""
    reason: str
    """Why it cannot be scored, in a sentence."""


def read_items(path: str | Path) -> Iterator[Item | BadLine]:
    """The records of a file in order (`semtoken.support.files.record_files`); `InvalidInputError` if it cannot be
    read.
    """
    return map(item_of, read_records(place(path, "path")))


def placed(item: Item | BadLine, folder: Path, output: Path) -> Item | BadLine:
    """An item with images: its prompt has their paths as they are opened, its record has them relative to the output.

    `folder` is what relative paths in the item are relative to, `output` the folder of the output.
    """
    if isinstance(item, BadLine) or not has_images(item.prompt):
        return item
    prompt = with_paths(item.prompt, lambda path: str(folder / path))
    opened = [path_of(part) for part in image_parts(prompt)]
    if reasons := [reason for path in opened if path and (reason := lacking(path))]:
        return BadLine(item.number, reasons[0])

    def kept(part: Mapping[str, Any]) -> Mapping[str, Any]:
        if (path := path_of(part)) is None:
            return part
        shown = path if os.path.isabs(path) else os.path.relpath(folder / path, output)
        return file_part(part, shown, sha256=_content_hash(folder / path))

    return replace(item, prompt=prompt, record={**item.record, "messages": with_images(item.prompt, kept)})


def _content_hash(path: Path) -> str | None:
    """A hash that distinguishes an image from others in its place; None if it cannot be read, which scoring reports."""
    try:
        about = path.stat()
        return None if about.st_size > MOST_BYTES else _hash_of(path, about.st_mtime_ns, about.st_size)
    except OSError:
        return None


@cache
def _hash_of(path: Path, changed: int, size: int) -> str:
    return sha256(path.read_bytes()).hexdigest()


def item_of(record: Record) -> Item | BadLine:
    """A record as an item, or what is wrong with it."""
    if record.fault:
        return BadLine(record.number, record.fault)
    try:
        return _item(record.number, record.fields)
    except InvalidInputError as error:
        return BadLine(record.number, str(error))


def _item(number: int, record: Mapping[str, Any]) -> Item:
    there = {name for name, value in record.items() if value is not None}
    if "error" in there and not {"prompt", "messages", "question"} & there:
        raise InvalidInputError(f"an earlier command could not use it: {record['error']}")
    carried = {name: value for name, value in record.items() if name not in REPLACED}
    asks = "question" in there and not {"prompt", "messages"} & there
    return Item(number, carried, _prompt(record), _response(record), asks)


def _prompt(record: Mapping[str, Any]) -> Prompt:
    there = [name for name in ("messages", "prompt", "question") if record.get(name) is not None]
    if {"prompt", "messages"} <= set(there):
        raise InvalidInputError("both 'prompt' and 'messages' are given; keep one")
    if there[:1] == ["messages"]:
        messages = record["messages"]
        valid = isinstance(messages, list) and all(
            isinstance(message, dict) and "role" in message for message in messages
        )
        if not valid or not messages:
            raise InvalidInputError("'messages' must be a list of one or more objects with 'role' and 'content'")
        return list(messages)
    if not there:
        present = ", ".join(map(repr, record)) or "none"
        raise InvalidInputError(
            f"the field 'prompt' (or 'question', or 'messages') is missing; the fields are: {present}"
        )
    name = there[0]
    prompt = record[name]
    if not isinstance(prompt, str):
        raise InvalidInputError(f"{name!r} must be text, not {kind_of(prompt)}; chat messages go into 'messages'")
    if not prompt.strip():
        raise InvalidInputError(f"the {name} is empty")
    return prompt


def _response(record: Mapping[str, Any]) -> Response | None:
    response = record.get("response")
    if response is None or isinstance(response, str):
        return response
    if not isinstance(response, list):
        raise InvalidInputError(f"'response' must be text or a list of token ids, not {kind_of(response)}")
    for number, token in enumerate(response, start=1):
        if type(token) is not int:
            item = shortened(dump_json(token).decode("utf-8"), 40)
            raise InvalidInputError(f"'response' must be text or a list of token ids; item {number} is {item}")
    return response
