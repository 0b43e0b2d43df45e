"""Names, calls and literals of program text, as Pygments' lexers see them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from semtoken.parts.budget import Budget
from semtoken.parts.lexers import DEFAULT_LANGUAGE, check_language, lexer_name, tokens_of
from semtoken.parts.lexing import Token
from semtoken.parts.part import Found

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+#.-]*)", re.M)
_CALL = re.compile(r"\s*\(")


def find_identifiers(text: str, language: str | None = None, budget: Budget | None = None) -> Iterator[Found]:
    """Names, calls and literals of the fenced code in a text, or of all of it; each name once, where it is first used.

    Parameters
    ----------
    text
        The answer.
    language
        The language of the code, by a name that Pygments knows. Default: what each fence says, else Python.
    budget
        What the work may cost.

    Raises
    ------
    InvalidInput
        Pygments does not know the language that you asked for, or fails on this code.
    OverBudget
        The lexer takes too long over this text.
    """
    budget = budget or Budget(text)
    if language is not None:
        check_language(language)
    fences = _fenced(text) or [(0, len(text), "")]
    pieces = [(language or _known(named), text[start:end]) for start, end, named in fences]
    seen: set[str] = set()
    for (start, _, _), tokens in zip(fences, tokens_of(pieces, budget), strict=True):
        yield from _of_code(text, start, tokens, seen)


def _known(named: str) -> str:
    """The language of a fence, which may say anything."""
    return named if named and lexer_name(named) is not None else DEFAULT_LANGUAGE


def _fenced(text: str) -> list[tuple[int, int, str]]:
    """Beginning, end and language of the code in each fence; the last fence may be open."""
    found: list[tuple[int, int, str]] = []
    fences = _FENCE.finditer(text)
    for opening in fences:
        start = text.find("\n", opening.end()) + 1
        if not start:
            break
        closing = next(fences, None)
        found.append((start, len(text) if closing is None else closing.start(), opening[1]))
    return found


def _of_code(text: str, start: int, tokens: Iterable[Token], seen: set[str]) -> Iterator[Found]:
    for offset, kind, value in tokens:
        stripped = value.strip()
        if not any(map(str.isalnum, stripped)):
            continue
        first = start + offset + value.index(stripped)
        end = first + len(stripped)
        if kind == "literal":
            yield Found(first, end, "literal", "exact")
        elif stripped not in seen:
            seen.add(stripped)
            called = _CALL.match(text, end) is not None
            yield Found(first, end, "call" if called else "identifier", "exact")
