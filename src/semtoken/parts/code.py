"""Names, calls and literals of program text, as Pygments' lexers see them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Literal, Name, Punctuation, String
from pygments.util import ClassNotFound

from semtoken.errors import InvalidInput
from semtoken.parts.records import Found

_FENCE = re.compile(r"^[ \t]*```[ \t]*(?P<language>[\w+#.-]*)[^\n]*\n(?P<code>.*?)(?:^[ \t]*```|\Z)", re.M | re.S)
_CALL = re.compile(r"\s*\(")
DEFAULT_LANGUAGE = "python"


def find_identifiers(text: str, language: str | None = None) -> Iterator[Found]:
    """Names, calls and literals of the fenced code in a text, or of all of it; each name once, where it is first used.

    Parameters
    ----------
    text
        The answer.
    language
        The language of the code, by a name that Pygments knows. Default: what each fence says, else Python.

    Raises
    ------
    InvalidInput
        Pygments does not know the language that you asked for.
    """
    if language is not None:
        _lexer(language)
    fences = [(m.start("code"), m.group("code"), m.group("language")) for m in _FENCE.finditer(text)]
    seen: set[str] = set()
    for start, code, named in fences or [(0, text, "")]:
        yield from _of_code(text, start, code, language or named or DEFAULT_LANGUAGE, seen, strict=language is not None)


def _of_code(text: str, start: int, code: str, language: str, seen: set[str], *, strict: bool) -> Iterator[Found]:
    for offset, kind, value in _lexer(language, strict=strict).get_tokens_unprocessed(code):
        stripped = value.strip()
        if not stripped or not any(map(str.isalnum, stripped)):
            continue
        first = start + offset + value.index(stripped)
        end = first + len(stripped)
        if kind in Name:
            if stripped in seen:
                continue
            seen.add(stripped)
            called = _CALL.match(text, end) is not None
            yield Found(first, end, "call" if called else "identifier", "exact")
        elif kind in Literal and kind not in String.Doc and kind not in Punctuation:
            yield Found(first, end, "literal", "exact")


def _lexer(language: str, *, strict: bool = True) -> Lexer:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound as error:
        if not strict:  # a fence may say anything
            return get_lexer_by_name(DEFAULT_LANGUAGE, stripnl=False, ensurenl=False)
        raise InvalidInput(
            f"Pygments knows no language {language!r}. Use one of the names in its list of lexers."
        ) from error
