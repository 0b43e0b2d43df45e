"""The check that every command goes through before it runs: nothing that it reads is written over.

What a command writes are its options with `writable=True`; everything else that names a file or folder is read. A
command with --force replaces files that it has not written itself only with this option; others look after that alone.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from semtoken.errors import InvalidInput

FORCE = "force"


def output_names(command: TyperCommand) -> list[str]:
    """The parameters of a command that name what it writes."""
    signature = inspect.signature(command.callback, eval_str=True)  # type: ignore[arg-type]
    annotations = {name: getattr(one.annotation, "__metadata__", ()) for name, one in signature.parameters.items()}
    return [name for name, found in annotations.items() if any(getattr(one, "writable", False) for one in found)]


def check_outputs(command: TyperCommand, values: dict[str, Any], path: str) -> list[Path]:
    """Refuse what would destroy an input or a file of somebody else; returns the files that the command may write.

    Parameters
    ----------
    command
        The command.
    values
        Its parameters, as they were given.
    path
        The name of the command, as in "journal export".

    Raises
    ------
    InvalidInput
        An output is an input or another output, or is a file that the command did not write and --force is not given.
    """
    from semtoken.files.outputs import check_not_read, check_own

    names = output_names(command)
    outputs = [Path(values[name]) for name in names if values.get(name) not in (None, "-", Path("-"))]
    read = [one for name, value in values.items() if name not in names for one in _texts(value)]
    for place, output in enumerate(outputs):
        check_not_read([output], read)
        if any(output.absolute() == other.absolute() for other in outputs[:place]):
            raise InvalidInput(f"{output} is named for two outputs. Give each its own name. Nothing was written.")
        if values.get(FORCE) is False:
            check_own(output, path)
    return outputs


def _texts(value: Any) -> Iterator[str | Path]:
    """Whatever in a parameter may name a file: itself, and the parts of `nq=FOLDER`, `one,two` and `mine.py:score`."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, str):
        pieces = re.split("[,=]", value)
        named = [value, *pieces, *(one.rpartition(":")[0] for one in pieces), re.sub(r"^sqlite(\+\w+)?:///", "", value)]
        yield from filter(None, named)  # an empty text is no path, though `Path` takes it for the working directory
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)
