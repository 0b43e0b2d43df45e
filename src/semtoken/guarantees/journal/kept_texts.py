"""The texts of questions and answers in the journal: none, or those in which what a rule names is withheld."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from semtoken.errors import InvalidInputError

Withhold: TypeAlias = Callable[[str], str]
"""Takes a text and returns what may be kept of it."""
WITHHELD = "[withheld]"
FAILED = "[withheld: the rule failed]"


@dataclass(frozen=True)
class TextRule:
    """A rule of what the journal keeps of questions and answers. Without arguments: nothing."""

    keep: bool = False
    patterns: tuple[re.Pattern[str], ...] = ()
    """Regular expressions; what they match is replaced by `[withheld]`."""
    function: Withhold | None = None
    """A user's function, applied before the patterns."""

    def apply(self, text: str | None) -> str | None:
        """The text as the journal keeps it, None if it keeps no texts. A user's function that fails withholds all."""
        if not self.keep or text is None:
            return None
        if self.function is not None:
            try:
                text = str(self.function(text))
            except Exception:  # whatever it raises, the text must not get through
                return FAILED
        for pattern in self.patterns:
            text = pattern.sub(WITHHELD, text)
        return storable(text)


def text_rule(keep: bool, patterns: Sequence[str] = (), function: str | None = None) -> TextRule:
    """Make the rule that the options of the command line describe: what the regular expressions match is withheld, and
    `function`, a `module:name`, returns what may be kept of a text. `InvalidInputError` if one cannot be used.
    """
    if not keep and (patterns or function):
        raise InvalidInputError("withhold under [journal] says what to leave out of texts: set texts = true as well.")
    return TextRule(keep, tuple(map(_compiled, patterns)), None if function is None else _imported(function))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidInputError(f"--journal.withhold: {pattern!r} is no regular expression: {error}.") from error


def _imported(name: str) -> Withhold:
    module, _, attribute = name.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)  # at the end, so that a file in this folder stands in for nothing that is installed
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the user's module raises
        raise InvalidInputError(
            f"--journal.withhold-with: there is no function {name!r} ({type(error).__name__}: {error}). Write it as "
            "module:function; the module is installed or in the current folder."
        ) from error
    if not callable(function):
        raise InvalidInputError(f"--journal.withhold-with: {name!r} is no function.")
    return function  # type: ignore[no-any-return]


def storable(text: str) -> str:
    """A text that every database accepts: lone surrogates and the character NUL are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
