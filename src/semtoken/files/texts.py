"""Texts in the encodings that files come in: UTF-8 and UTF-16, with a byte order mark or without."""

from __future__ import annotations

import codecs

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def is_utf8(data: bytes) -> bool:
    """Whether bytes are UTF-8 without a byte order mark."""
    if data.startswith((codecs.BOM_UTF8, *_UTF16)) or b"\0" in data:
        return False
    if data.isascii():
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def decoded(data: bytes) -> str:
    """The text of a file.

    Raises
    ------
    ValueError
        It is neither UTF-8 nor UTF-16; the message names the place, as in "not UTF-8 at byte 7".
    """
    if data.startswith(_UTF16) and len(data) > len(codecs.BOM_UTF16):
        encoding, name = "utf-16", "UTF-8 nor UTF-16"
    elif b"\0" in data[:2]:  # ASCII characters have a zero beside them
        encoding, name = ("utf-16-be" if data[0] == 0 else "utf-16-le"), "UTF-8 nor UTF-16"
    else:
        encoding, name = "utf-8-sig", "UTF-8"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"not {name} at byte {error.start}, and so no text") from error
