"""Images in chat messages: found, read safely, and made small for a page; the pages of scans in a folder.

A model is shown what a person would see: 8 bits a channel, on white paper. A part of a message may name a `page` of a
TIFF or PDF file, from 1 on.
"""

from __future__ import annotations

import base64
import binascii
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.support.extras import require
from semtoken.support.files.safe_files import reading_errors
from semtoken.support.inputs import shown, whole
from semtoken.support.text import shortened, visible

MOST_BYTES = 20_000_000
"""The largest image file that is read."""
MOST_PIXELS = 40_000_000
"""The largest image that is unpacked: a small file can hold a picture that fills the memory."""
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".jfif", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
"""Endings of the files of a folder that are images, in lower case."""
PDF = ".pdf"
DOTS = 150
"""Dots an inch at which a page of a PDF file is drawn."""
MOST_PAGES = 2_000
"""The most pages of one file."""
SOURCES = ("image", "path", "url", "image_url")
MOST_SHOWN = 255
"""Characters of a path that a message shows at most; a longer one may be base64."""
DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,", re.IGNORECASE)
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:", re.IGNORECASE)
SIDES = (1600, 1200, 900, 600, 400, 250)
"""Longer sides, in pixels, that an image may get on a page; the first that is small enough is taken."""


def has_images(prompt: Any) -> bool:
    """Return True if a prompt is a list of messages, one of which holds an image."""
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
    return with_images(messages, lambda part: part if (path := path_of(part)) is None else file_part(part, place(path)))


def file_part(part: Mapping[str, Any], path: str, **more: Any) -> dict[str, Any]:
    """The part of a message that names the same page of an image as another part, in a file of this path."""
    return {"type": "image", "path": path} | ({"page": part["page"]} if "page" in part else {}) | more


def path_of(part: Mapping[str, Any]) -> str | None:
    """The path of an image that is a file."""
    given = _given(part)
    return given if isinstance(given, str) and not ADDRESS.match(given) else None


def _given(part: Mapping[str, Any]) -> Any:
    """The image that a part of a message gives: a PIL image, a path or an address."""
    source = next((part[name] for name in SOURCES if part.get(name) is not None), None)
    return source.get("url") if isinstance(source, Mapping) else source


def read_image(part: Mapping[str, Any], *, files: bool = True) -> Any:
    """The picture of a part of a message, as a PIL image in RGB; `files`: whether files of this machine may be read.
    Parts are `{"type": "image"}` with "image" (a PIL image), "path" or "url" (a data URL, or the path of a file), or
    `{"type": "image_url", "image_url": {"url": ...}}`. `InvalidInputError` if it is unreadable, too large or an
    address.
    """
    require("PIL", extra="images")
    from PIL import Image

    given = _given(part)
    page = whole(part.get("page", 1), "page", low=1, high=MOST_PAGES)
    if isinstance(given, Image.Image):
        _check_size(given)
        return on_paper(given)
    if not isinstance(given, str | Path):
        raise InvalidInputError(f"An image must be a PIL image, a path or a data URL, got {shown(given)}.")
    content = _bytes(str(given), files)
    try:
        if content[:1024].lstrip().startswith(b"%PDF-") and not DATA_URL.match(str(given)):
            return _pdf_page(content, page)
        picture = Image.open(BytesIO(content), formats=FORMATS)
        if page > 1:
            picture.seek(page - 1)
        _check_size(picture)
        return on_paper(picture)
    except SemtokenError:
        raise
    except Exception as error:  # of a damaged file, decoders raise anything
        what = "The image" if len(str(given)) > 200 or not files else f"The image {given}"
        where = f"Page {page} of {what[0].lower()}{what[1:]}" if page > 1 else what
        raise InvalidInputError(f"{where} cannot be read as one of {', '.join(FORMATS)}, PDF.") from error


def on_paper(picture: Any) -> Any:
    """A PIL image as a person sees it on white paper, upright, in RGB: what is transparent is white, and numbers of
    more than 8 bits become shades. `InvalidInputError` if its numbers are not finite.
    """
    from PIL import Image, ImageOps

    white_is_zero = getattr(picture, "tag_v2", {}).get(WHITE_IS_ZERO) == 0
    # Cameras store a picture as the sensor saw it, and say in EXIF how it is to be turned.
    picture = ImageOps.exif_transpose(picture)
    # Pillow's own conversion cuts numbers above 255 off, and a scan of 16 bits would be white.
    if picture.mode.startswith(("I", "F")):
        return Image.fromarray(_shades(picture, inverted=white_is_zero)).convert("RGB")
    if "A" in picture.mode or "a" in picture.mode or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return picture.convert("RGB")


def _shades(picture: Any, *, inverted: bool) -> Any:
    """The shades uint8 [height, width] of a gray image of 16 or 32 bits or of real numbers.
    Black is 0 and white the largest number of the fewest bits that hold all of it (8, 10, 12, 14 or 16), or 1 for real
    numbers up to 1. Where there are numbers below 0 or beyond 16 bits, the darkest is black and the lightest white.
    """
    values = np.asarray(picture, dtype=np.float64)
    if not np.isfinite(values).all():
        raise InvalidInputError("An image holds numbers that are not finite.")
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 2**16 - 1:
        white, black = high, low
    else:
        real = picture.mode.startswith("F") and high <= 1
        white, black = 1.0 if real else next(2.0**n - 1 for n in (8, 10, 12, 14, 16) if high <= 2**n - 1), 0.0
    shades = np.rint((values - black) / max(white - black, 1e-300) * 255)
    return (255 - shades if inverted else shades).astype(np.uint8)


WHITE_IS_ZERO = 262
"""The tag of a TIFF file that is 0 where 0 is white; Pillow follows it for 8 bits only."""


def _pdf_page(content: bytes, page: int) -> Any:
    """A page of a PDF file, drawn on white."""
    require("pypdfium2", extra="images")
    import pypdfium2

    with pypdfium2.PdfDocument(content) as document:
        if page > len(document):
            raise InvalidInputError(f"The PDF file has {len(document):,} pages, page {page:,} is asked for.")
        sheet = document[page - 1]
        width, height = sheet.get_size()
        # PDF counts in points, 72 to an inch.
        scale = DOTS / 72
        _check_pixels(math.ceil(width * scale), math.ceil(height * scale))
        return sheet.render(scale=scale, fill_color=(255, 255, 255, 255)).to_pil().convert("RGB")


def page_count(path: Path) -> int:
    """The number of pages of a TIFF or PDF file; 1 for another image.

    `InvalidInputError` if it cannot be read, or has more than `MOST_PAGES`.
    """
    suffix = path.suffix.lower()
    if suffix not in (PDF, ".tif", ".tiff"):
        return 1
    require("PIL" if suffix != PDF else "pypdfium2", extra="images")
    content = _bytes(str(path), files=True)
    try:
        if suffix == PDF:
            import pypdfium2

            with pypdfium2.PdfDocument(content) as document:
                count = len(document)
        else:
            from PIL import Image

            with Image.open(BytesIO(content), formats=FORMATS) as picture:
                count = int(getattr(picture, "n_frames", 1))
    except Exception as error:  # of a damaged file, decoders raise anything
        raise InvalidInputError(f"The image {path} cannot be read.") from error
    if count > MOST_PAGES:
        raise InvalidInputError(f"{path} has {count:,} pages; at most {MOST_PAGES:,} are read.")
    return count


def _check_size(picture: Any) -> None:
    _check_pixels(*picture.size)


def _check_pixels(width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        raise InvalidInputError(
            f"An image has {width:,} x {height:,} pixels; at most {MOST_PIXELS:,} are read. Scale it."
        )


def _bytes(given: str, files: bool) -> bytes:
    if match := DATA_URL.match(given):
        # Base64 takes four characters for three bytes; the rest is for the beginning of the address.
        if len(given) > MOST_BYTES * 4 // 3 + 100:
            raise InvalidInputError(f"An image file may have {MOST_BYTES:,} bytes at most.")
        try:
            return base64.b64decode(given[match.end() :], validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidInputError("The data URL of an image is no base64.") from error
    if not files:
        raise InvalidInputError("Give images as data URLs (data:image/png;base64,...): no address or file is read.")
    if ADDRESS.match(given):
        raise InvalidInputError(f"The address {shown(given)} of an image is not fetched: save it, and give its path.")
    if reason := lacking(given):
        raise InvalidInputError(f"An image cannot be read: {reason}.")
    path = Path(given)
    if path.stat().st_size > MOST_BYTES:
        raise InvalidInputError(
            f"The image {given} has {path.stat().st_size:,} bytes; at most {MOST_BYTES:,} are read."
        )
    with reading_errors(path):
        return path.read_bytes()


def lacking(path: str) -> str:
    """The reason why an image cannot be read if there is no file of this path; else an empty text."""
    if os.path.isfile(path):  # which is false, too, for a name that no file can have
        return ""
    hint = "; if it is base64, begin it with data:image/png;base64," if len(path) > MOST_SHOWN else ""
    return f"there is no image file {shortened(visible(path), MOST_SHOWN)}{hint}"


@dataclass(frozen=True)
class Scans:
    """The pages of the scans in a folder, and what is in it besides."""

    pages: list[tuple[str, dict[str, Any]]]
    """The name of each page, and the part of a message that shows it, with a path relative to the folder."""
    left_out: list[str]
    """Files that are neither images nor PDF files, by their paths in the folder."""


def scans_in(folder: Path) -> Scans:
    """The scans of a folder and of the folders in it, in the order of their names; hidden files and folders are not
    looked at. Each page of a TIFF or PDF file is one. `InvalidInputError` if there are none, or one cannot be read.
    """
    found = Scans([], [])
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if any(part.startswith(".") for part in relative.parts) or not path.is_file():
            continue
        if path.suffix.lower() not in SUFFIXES | {PDF}:
            found.left_out.append(relative.as_posix())
            continue
        name, pages = relative.as_posix(), page_count(path)
        for page in range(1, pages + 1):
            part: dict[str, Any] = {"type": "image", "path": name}
            found.pages.append((name, part) if pages == 1 else (f"{name}#{page}", part | {"page": page}))
    if not found.pages:
        raise InvalidInputError(
            f"{folder} holds no image: names that end in {', '.join(sorted(SUFFIXES | {PDF}))} are read."
        )
    return found


def small_url(picture: Any, most_bytes: int) -> str:
    """A picture as the data URL of a JPEG, scaled down until it has `most_bytes` at most, or the least of `SIDES`."""
    for side in SIDES:
        smaller, written = picture.copy(), BytesIO()
        smaller.thumbnail((side, side))
        smaller.save(written, "JPEG", quality=80)
        if written.tell() <= most_bytes:
            break
    return f"data:image/jpeg;base64,{base64.b64encode(written.getvalue()).decode()}"
