"""Names, calls and literals of program text, as Pygments' lexers see them, such that reading code can be ended.

A lexer's patterns were written to color programs, not to withstand hostile text: some take a time that grows with the
square of the text or faster, in `re`, which nothing can interrupt and which lets no other thread run. So only short
code in languages whose lexers withstood a trial of repeated pieces is read in this process. All other code is read in a
process of its own, which is ended when the time is over.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from semtoken.core.parts import lexing
from semtoken.core.parts.budget import Budget
from semtoken.core.parts.lexing import Token
from semtoken.core.parts.part import FoundPart
from semtoken.errors import BudgetExceededError, InvalidInputError

DEFAULT_LANGUAGE = "python"
LONGEST_HERE = 2_000
"""The most characters of code that are read in this process; more are worth the tenth of a second that another one
takes."""
WITHSTOOD = frozenset(
    (
        *("Bash", "C", "C++", "CSS", "Dart", "Go", "HTML", "Haskell", "JSON", "Java", "JavaScript", "JSX", "Julia"),
        *("Kotlin", "Lua", "Matlab", "PHP", "Perl", "PowerShell", "Python", "S", "Ruby", "Rust", "SQL", "Scala"),
        *("Swift", "TOML", "TSX", "TypeScript", "XML", "YAML"),
    )
)
"""Lexers that read hostile text of that length in less than half a second."""
MEMORY = 2**30
"""Bytes of memory that the process which reads code may use."""


@lru_cache(maxsize=256)
def lexer_name(language: str) -> str | None:
    """The name of Pygments' lexer for a language; None if Pygments does not know it."""
    try:
        return str(get_lexer_by_name(language).name)
    except ClassNotFound:
        return None


def check_language(language: str) -> None:
    """Raise `InvalidInputError` for a language that Pygments does not know."""
    if not isinstance(language, str) or lexer_name(language) is None:
        raise InvalidInputError(f"Pygments knows no language {language!r}. Use one of the names in its list of lexers.")


def tokens_of(pieces: Sequence[tuple[str, str]], budget: Budget) -> Iterator[Iterator[lexing.Token]]:
    """The names and literals of pieces of code, each with its language; `InvalidInputError` if a lexer fails on it."""
    elsewhere = [
        number
        for number, (language, code) in enumerate(pieces)
        if len(code) > LONGEST_HERE or lexer_name(language) not in WITHSTOOD
    ]
    read = dict(zip(elsewhere, _elsewhere([pieces[number] for number in elsewhere], budget), strict=True))
    for number, (language, code) in enumerate(pieces):
        yield iter(read[number]) if number in read else _here(language, code, budget)


def _here(language: str, code: str, budget: Budget) -> Iterator[lexing.Token]:
    tokens = lexing.tokens(language, code)
    while True:
        budget.spend()
        try:
            token = next(tokens)
        except StopIteration:
            return
        except Exception as error:
            raise _lexer_error(language, type(error).__name__) from error
        if token is not None:
            yield token


def _elsewhere(pieces: Sequence[tuple[str, str]], budget: Budget) -> list[list[lexing.Token]]:
    if not pieces:
        return []
    request = {"path": sys.path, "memory": MEMORY, "pieces": pieces}
    program = Path(lexing.__file__).read_text(encoding="utf-8")
    try:
        done = subprocess.run(  # noqa: S603  (our own program)
            # Isolated (-I): nothing of the environment or the current folder is imported.
            [sys.executable, "-I", "-c", program],
            # JSON escapes half characters, which UTF-8 refuses to encode.
            input=json.dumps(request).encode("ascii"),
            capture_output=True,
            timeout=budget.seconds_left,
            check=False,
        )
    except subprocess.TimeoutExpired:
        budget.timed_out()
    except OSError as error:
        raise BudgetExceededError(
            f"Code like this is read in a process of its own, which cannot start: {error}."
        ) from error
    token_lists: list[list[lexing.Token] | str] = [] if done.returncode else json.loads(done.stdout)
    if done.returncode or "MemoryError" in token_lists:
        raise BudgetExceededError("Reading its code takes too much memory.")
    for (language, _), tokens in zip(pieces, token_lists, strict=True):
        if isinstance(tokens, str):
            raise _lexer_error(language, tokens)
    return [tokens for tokens in token_lists if not isinstance(tokens, str)]


def _lexer_error(language: str, error: str) -> InvalidInputError:
    return InvalidInputError(f"Pygments' lexer of {lexer_name(language)} fails on this code: {error}.")


_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+#.-]*)", re.M)
_CALL = re.compile(r"\s*\(")


def find_identifiers(text: str, language: str | None = None, budget: Budget | None = None) -> Iterator[FoundPart]:
    """Names, calls and literals of the fenced code in a text, or of all of it; each name once, where it is first used.

    `language` is one that Pygments knows (else `InvalidInputError`); default: what each fence says, else Python.
    """
    budget = budget or Budget(text)
    if language is not None:
        check_language(language)
    fences = _fenced(text) or [(0, len(text), "")]
    pieces = [(language or _fence_language(named), text[start:end]) for start, end, named in fences]
    seen: set[str] = set()
    for (start, _, _), tokens in zip(fences, tokens_of(pieces, budget), strict=True):
        yield from _of_code(text, start, tokens, seen)


def _fence_language(named: str) -> str:
    """The language of a fence, which may say anything."""
    return named if named and lexer_name(named) is not None else DEFAULT_LANGUAGE


def _fenced(text: str) -> list[tuple[int, int, str]]:
    """Beginning, end and language of the code in each fence; the last fence may be open."""
    blocks: list[tuple[int, int, str]] = []
    fences = _FENCE.finditer(text)
    for opening in fences:
        start = text.find("\n", opening.end()) + 1
        if not start:
            break
        closing = next(fences, None)
        blocks.append((start, len(text) if closing is None else closing.start(), opening[1]))
    return blocks


def _of_code(text: str, start: int, tokens: Iterable[Token], seen: set[str]) -> Iterator[FoundPart]:
    for offset, kind, value in tokens:
        stripped = value.strip()
        if not any(map(str.isalnum, stripped)):
            continue
        first = start + offset + value.index(stripped)
        end = first + len(stripped)
        if kind == "literal":
            yield FoundPart(first, end, "literal", "exact")
        elif stripped not in seen:
            seen.add(stripped)
            called = _CALL.match(text, end) is not None
            yield FoundPart(first, end, "call" if called else "identifier", "exact")
