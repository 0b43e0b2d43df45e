"""The outputs of a command: their default places, and files that they must not replace, found before any work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInputError

OUTPUT, FORCE = "output", "force"
"""The parameters that name what a command writes, and that let it replace what is there, on all commands."""
SOURCES = ("paths", "source")
"""The parameters that name files or folders as texts, since they may also be patterns, addresses or "-"."""


def beside(source: Path, ending: str) -> Path:
    """The default place of the output for a file, such as answers.labeled.jsonl; standard output for "-"."""
    if not source.name:
        raise InvalidInputError(f"{source} is a folder; give the name of a file.")
    return source if str(source) == "-" else source.with_suffix(ending)


def check_names(values: dict[str, Any], words: Sequence[str]) -> None:
    """Refuse an empty name of a file or folder, which `Path` takes for the working directory: it comes from a variable
    of the shell that is not set. `values` are the parameters of a command, and `words` what was typed.
    """
    if not any(not word or (word.startswith("-") and word.endswith("=")) for word in words):
        return
    named = [path for value in values.values() for path in _texts(value) if isinstance(path, Path)]
    sources = [text for name in SOURCES for text in _listed(values.get(name))]
    if Path() in named or "" in sources:
        raise InvalidInputError("The name of a file or folder is empty: is a variable of the shell not set?")


def check_outputs(values: dict[str, Any], command: str) -> list[Path]:
    """Refuse, before any work, outputs that would destroy an input, each other or another file, or cannot be written.
    Returns what the command may write.

    Without --force, where it has that, it replaces only files of its own. `values` are its parameters.
    """
    named = [Path(one) for one in _listed(values.get(OUTPUT)) if one is not None]
    outputs = [path for path in named if str(path) != "-"]
    if not outputs:
        return []
    from semtoken.support.files.outputs import check_not_read, check_own
    from semtoken.support.files.safe_files import check_place

    read = [path for name, value in values.items() if name != OUTPUT for path in _texts(value)]
    for place, output in enumerate(outputs):
        check_not_read([output], read)
        if any(output.absolute() == other.absolute() for other in outputs[:place]):
            raise InvalidInputError(f"{output} is named for two outputs. Give each its own name. Nothing was written.")
        if not values.get(FORCE, False) and FORCE in values:
            check_own(output, command)
        check_place(output)
    return outputs


def _listed(value: Any) -> Sequence[Any]:
    """The values of a parameter that may be given once or several times."""
    return value if isinstance(value, tuple | list) else [value]


def _texts(value: Any) -> Iterator[str | Path]:
    """Texts of a parameter that may name a file: itself, and the parts of `nq=FOLDER`, `a,b` and `mine.py:score`."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, str):
        pieces = re.split("[,=]", value)
        named = [
            value,
            *pieces,
            *(part.rpartition(":")[0] for part in pieces),
            re.sub(r"^sqlite(\+\w+)?:///", "", value),
        ]
        yield from filter(None, named)  # an empty text is no path, though `Path` takes it for the working directory
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    elif is_dataclass(value):
        yield from _texts(list(vars(value).values()))
