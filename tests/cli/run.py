"""A command line run in this process: what it prints, its exit status, what it raised."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from semtoken.cli import console, run


@dataclass(frozen=True)
class Result:
    """The result of a command line."""

    exit_code: int
    stdout: str
    stderr: str
    output: str
    """Both, in the order in which they were written."""
    exception: BaseException | None
    """The error that was raised; SystemExit if it ended with a status other than 0."""


class Written(io.TextIOWrapper):
    """A stream whose text is also written to another one."""

    def __init__(self, both: io.StringIO) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="", write_through=True)
        self._both = both

    def write(self, text: str) -> int:
        self._both.write(text)
        return super().write(text)

    @property
    def text(self) -> str:
        return self.buffer.getvalue().decode("utf-8")  # type: ignore[attr-defined,no-any-return]


def invoke(words: Iterable[object], stdin: str | None = None) -> Result:
    """Run `semtoken` with these words."""
    both = io.StringIO()
    out, err = Written(both), Written(both)
    for kept in (console.out, console.err):  # a console keeps the width that the terminal had when it was made
        kept.cache_clear()
    given = io.TextIOWrapper(io.BytesIO((stdin or "").encode("utf-8")), encoding="utf-8")
    status, raised = 0, None
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "stdin", given):
        try:
            status = run([str(word) for word in words])
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        except BaseException as error:
            status, raised = 1, error
    if status and raised is None:
        raised = SystemExit(status)
    return Result(status, out.text, err.text, both.getvalue(), raised)


def invoke_in(
    folder: Path, words: Iterable[object], environment: Mapping[str, str], stdin: str | None = None
) -> Result:
    """Run `semtoken` with these words as if it were started in a folder with these variables and no others."""
    with chdir(folder), patch.dict(os.environ, environment, clear=True):
        return invoke(words, stdin)
