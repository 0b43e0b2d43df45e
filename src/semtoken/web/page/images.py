"""Images of scored answers as a page shows them: small, and inside the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInputError
from semtoken.replies.checking.ids import identifiers
from semtoken.support.files.images import (
    file_part,
    has_images,
    image_parts,
    path_of,
    read_image,
    small_url,
    with_images,
    with_paths,
)
from semtoken.support.files.record_files import read_rows

LARGEST = 300_000
"""Bytes that one image takes at most, where there are few."""
TOGETHER = 12_000_000
"""Bytes that all images take together, as far as they can be made so small."""

Rows = list[dict[str, Any]]


def rows_with_images(rows: Rows, folder: Path) -> tuple[Rows, int]:
    """Rows whose `messages` hold images, with these as data URLs under `images`; and how many cannot be read. Paths of
    images are relative to the folder.
    """
    urls, lost = _small_urls([row.get("messages") for row in rows], folder)

    def without_pixels(part: Mapping[str, Any]) -> Mapping[str, Any]:
        path = path_of(part)
        return {"type": "image", "path": None} if path is None else file_part(part, path)

    with_urls = [
        row | {"images": own, "messages": with_images(row["messages"], without_pixels)} if own else row
        for row, own in zip(rows, urls, strict=True)
    ]
    return with_urls, lost


def rows_with_images_of(rows: Rows, questions: Path) -> tuple[Rows, int]:
    """As `rows_with_images`, where a file of questions or request bodies holds the messages, by the ids of the rows."""
    asked: dict[str, Any] = {}
    for _, _, fields in read_rows(questions):
        messages = (fields.get("body") or fields).get("messages")
        asked |= dict.fromkeys(identifiers(fields).values(), messages)  # the id that joined is one of a record alone
    urls, lost = _small_urls([asked.get(row["id"]) for row in rows], questions.parent)
    return [row | {"images": own} if own else row for row, own in zip(rows, urls, strict=True)], lost


def _small_urls(conversations: Sequence[Any], folder: Path) -> tuple[list[list[str]], int]:
    """The images of each conversation as data URLs, and how many could not be read."""
    shown = [
        list(image_parts(with_paths(conversation, lambda path: str(folder / path)))) if has_images(conversation) else []
        for conversation in conversations
    ]
    share, lost = min(LARGEST, TOGETHER // max(sum(map(len, shown)), 1)), 0
    urls: list[list[str]] = []
    for parts in shown:
        urls.append([])
        for part in parts:
            try:
                urls[-1].append(small_url(read_image(part), share))
            except InvalidInputError:
                lost += 1
    return urls, lost
