"""Files of JSON lines, as tests write and read them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    """A file with a line for each record; a record that is a text is written as it is."""
    path.write_text("".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in records), "utf-8")
    return path


def read_lines(source: Path | str) -> list[Any]:
    """The records of a file, or of a text such as what a command printed."""
    text = source.read_text("utf-8") if isinstance(source, Path) else source
    return [json.loads(line) for line in text.split("\n") if line]
