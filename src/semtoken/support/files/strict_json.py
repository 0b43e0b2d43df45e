"""JSON as all of semtoken reads and writes it: UTF-8, no NaN or infinity, no half characters; errors name the place."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import msgspec

from semtoken.errors import InvalidInputError
from semtoken.support.files.safe_files import bounded_lines, ending_of, reading_errors

LONGEST_NUMBER = 20  # characters of one that messages show
DIGITS_OF_FLOATS = 300  # whole numbers with fewer digits fit a float
_LOOKED_AT = 15  # every so many characters one is looked at for long numbers
_LONG_NUMBER = re.compile(rf"[0-9]{{{DIGITS_OF_FLOATS // _LOOKED_AT}}}")


@dataclass(frozen=True)
class JsonLine:
    """One line of a JSON lines file that is not blank."""

    number: int
    """Line of the file, counted from 1."""
    value: Any
    """The value that it holds; None if `fault` says why it cannot be read."""
    fault: str = ""


def read_json_lines(path: Path) -> Iterator[JsonLine]:
    """Read the lines of a file, `.gz` or not; blank lines are skipped, bad ones carry the reason."""
    with reading_errors(path), gzip.open(path, "rb") if ending_of(path) == ".gz" else path.open("rb") as file:
        yield from json_lines(bounded_lines(cast(IO[bytes], file)))


def json_lines(lines: Iterator[bytes]) -> Iterator[JsonLine]:
    """Read lines as `read_json_lines` does."""
    for number, line in enumerate(lines, start=1):
        # Editors of Windows begin UTF-8 with a byte order mark, which JSON does not allow.
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if text.strip():
            try:
                yield JsonLine(number, parse_json(text))
            except ValueError as error:
                yield JsonLine(number, None, str(error))


def parse_json(text: bytes | str) -> Any:
    """Parse JSON more strictly than `json.loads`, since what is read is written again.
    `ValueError` if it is no UTF-8 or JSON, holds NaN, infinity or half a character, or is nested too deeply; its
    message begins with "not ..." or "a text ..." and names the place in the line.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        # msgspec is as strict, except for huge whole numbers, which show as many digits in a row.
        if not _LONG_NUMBER.search(decoded[::_LOOKED_AT]):
            with suppress(ValueError, msgspec.MsgspecError):  # what it refuses is looked at again, for the reason
                return msgspec.json.decode(decoded)
        value = json.loads(decoded, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole)
        # Halves of characters show only when a text is written.
        dump_json(value)
        return value
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}: save it as UTF-8") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, " if error.lineno > 1 else ""
        said = error.msg.removesuffix(" at")
        raise ValueError(f"not JSON: {said} at {place}column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("not usable JSON: nested too deeply") from error


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Parse a JSON object, which messages call `what`; `InvalidInputError` if the text holds none, as `parse_json`."""
    try:
        value = parse_json(text.encode())
    except ValueError as error:
        raise InvalidInputError(f"{what} must be a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInputError(f"{what} must be a JSON object, got {text:.60}.")
    return value


def dump_json(value: Any, *, indent: int | None = None) -> bytes:
    """Encode a value as JSON in UTF-8; `ValueError` for infinity, NaN or half a character, which files cannot hold."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("a text holds half a character (a lone surrogate)") from error


def seal(content: Mapping[str, Any], name: str = "checksum") -> dict[str, Any]:
    """Add a checksum of all entries to a JSON object, see `is_sealed`."""
    return {**content, name: _digest(content, name)}


def is_sealed(content: Mapping[str, Any], name: str = "checksum") -> bool:
    """Return True if an object is unchanged since `seal`, however it is laid out in its file.
    This finds accidents, not somebody who changes a file on purpose.
    """
    return content.get(name) == _digest(content, name)


def _digest(content: Mapping[str, Any], name: str) -> str:
    """SHA-256 of an object without one of its entries."""
    rest = {key: value for key, value in content.items() if key != name}
    # Sorted and without line breaks, so that another layout of the same file is no change.
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode("ascii")).hexdigest()


def finite(value: Any) -> Any:
    """A copy of a JSON value with null in place of NaN and infinities, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        shown = text if len(text) <= LONGEST_NUMBER else f"{text[:LONGEST_NUMBER]}..."
        raise ValueError(f"not usable JSON: the number {shown} is too large")
    return number


def _whole(text: str) -> int:
    # Python refuses or takes quadratic time for such numbers, and most readers make infinity of them.
    if len(text) > DIGITS_OF_FLOATS:
        _finite(text)
    return int(text)
