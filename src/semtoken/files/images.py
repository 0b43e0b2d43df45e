"""Images in chat messages: found, read safely, and made small for a page."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInput
from semtoken.support.extras import require
from semtoken.support.inputs import shown

MOST_BYTES = 20_000_000
"""The largest image file that is read."""
MOST_PIXELS = 40_000_000
"""The largest image that is unpacked: a small file can hold a picture that fills the memory."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
"""Endings of the files of a folder that are images, in lower case."""
SOURCES = ("image", "path", "url", "image_url")
DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,", re.IGNORECASE)
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
SIDES = (1600, 1200, 900, 600, 400, 250)
"""Longer sides, in pixels, that an image may get on a page; the first that is small enough is taken."""


def has_images(prompt: Any) -> bool:
    """Whether a prompt is a list of messages, one of which holds an image."""
    return next(image_parts(prompt), None) is not None


def image_parts(prompt: Any) -> Iterator[Mapping[str, Any]]:
    """The parts of chat messages that are images; none where a prompt is something else."""
    for message in prompt if isinstance(prompt, list | tuple) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        yield from filter(_is_image, content if isinstance(content, list | tuple) else ())


def _is_image(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in ("image", "image_url")


def with_images(messages: Any, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> list[Any]:
    """Chat messages with `change` applied to each part that is an image."""
    return [
        {**message, "content": [change(part) if _is_image(part) else part for part in message["content"]]}
        if isinstance(message.get("content"), list | tuple)
        else message
        for message in messages
    ]


def with_paths(messages: Any, place: Callable[[str], str]) -> list[Any]:
    """Chat messages with `place` applied to the path of each image that is a file."""
    return with_images(
        messages, lambda part: part if (path := path_of(part)) is None else {"type": "image", "path": place(path)}
    )


def path_of(part: Mapping[str, Any]) -> str | None:
    """The path of an image that is a file."""
    given = _given(part)
    return given if isinstance(given, str) and not ADDRESS.match(given) else None


def _given(part: Mapping[str, Any]) -> Any:
    """What a part of a message says of its image: a PIL image, a path or an address."""
    source = next((part[name] for name in SOURCES if part.get(name) is not None), None)
    return source.get("url") if isinstance(source, Mapping) else source


def read_image(part: Mapping[str, Any], *, files: bool = True) -> Any:
    """The picture of a part of a message, as a PIL image in RGB; `files`: whether files of this machine may be read.
    Parts are `{"type": "image"}` with "image" (a PIL image), "path" or "url" (a data URL, or the path of a file), or
    `{"type": "image_url", "image_url": {"url": ...}}`. `InvalidInput` if it is unreadable, too large or an address.
    """
    require("PIL", extra="images")
    from PIL import Image, ImageOps

    given = _given(part)
    if isinstance(given, Image.Image):
        _check_size(given)
        return ImageOps.exif_transpose(given).convert("RGB")
    if not isinstance(given, str | Path):
        raise InvalidInput(f"An image must be a PIL image, a path or a data URL, got {shown(given)}.")
    try:
        picture = Image.open(BytesIO(_bytes(str(given), files)), formats=FORMATS)
        _check_size(picture)
        return ImageOps.exif_transpose(picture).convert("RGB")
    except InvalidInput:
        raise
    except Exception as error:  # of a damaged file, decoders raise anything
        what = "The image" if len(str(given)) > 200 or not files else f"The image {given}"
        raise InvalidInput(f"{what} cannot be read as one of {', '.join(FORMATS)}.") from error


def _check_size(picture: Any) -> None:
    width, height = picture.size
    if width * height > MOST_PIXELS:
        raise InvalidInput(f"An image has {width:,} x {height:,} pixels; at most {MOST_PIXELS:,} are read. Scale it.")


def _bytes(given: str, files: bool) -> bytes:
    if match := DATA_URL.match(given):
        if len(given) > MOST_BYTES * 4 // 3 + 100:
            raise InvalidInput(f"An image file may have {MOST_BYTES:,} bytes at most.")
        try:
            return base64.b64decode(given[match.end() :], validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidInput("The data URL of an image is no base64.") from error
    if not files:
        raise InvalidInput("Give images as data URLs (data:image/png;base64,...): no address or file is read.")
    if ADDRESS.match(given):
        raise InvalidInput(f"The address {shown(given)} of an image is not fetched: save it, and give its path.")
    path = Path(given)
    if not path.is_file():
        raise InvalidInput(f"There is no image file {given}.")
    if path.stat().st_size > MOST_BYTES:
        raise InvalidInput(f"The image {given} has {path.stat().st_size:,} bytes; at most {MOST_BYTES:,} are read.")
    return path.read_bytes()


def image_files(folder: Path) -> list[Path]:
    """The images of a folder by name, without those of folders in it; `InvalidInput` if it holds none."""
    images = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    if not images:
        raise InvalidInput(f"{folder} holds no image: names that end in {', '.join(sorted(SUFFIXES))} are read.")
    return images


def small_url(picture: Any, most_bytes: int) -> str:
    """A picture as the data URL of a JPEG, scaled down until it has `most_bytes` at most, or the least of `SIDES`."""
    for side in SIDES:
        smaller, written = picture.copy(), BytesIO()
        smaller.thumbnail((side, side))
        smaller.save(written, "JPEG", quality=80)
        if written.tell() <= most_bytes:
            break
    return f"data:image/jpeg;base64,{base64.b64encode(written.getvalue()).decode()}"
