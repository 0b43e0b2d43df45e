"""Reads code with Pygments: in this process, or as a program of its own that can be ended at any moment.

code.py starts the program with the text of this module, so that it imports nothing else of semtoken.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

Token = tuple[int, str, str]
"""Place, `name` or `literal`, and text of a token."""


def tokens(language: str, code: str) -> Iterator[Token | None]:
    """The names and literals of some code; None for any other token. Lexers raise what they like."""
    from pygments.token import Literal, Name, Punctuation, String

    for offset, kind, text in _lexer_class(language)(stripnl=False, ensurenl=False).get_tokens_unprocessed(code):
        if kind in Name:
            yield offset, "name", text
        elif kind in Literal and kind not in String.Doc and kind not in Punctuation:
            yield offset, "literal", text
        else:
            yield None


@lru_cache(maxsize=256)
def _lexer_class(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name

    return type(get_lexer_by_name(language))


def main() -> None:
    """Read `{"path": [...], "memory": bytes, "pieces": [[language, code], ...]}`; write the tokens of each piece."""
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (request["memory"], request["memory"]))
    except (ImportError, ValueError, OSError):
        pass  # a system without such limits
    token_lists: list[Any] = []
    for language, code in request["pieces"]:
        try:
            token_lists.append([token for token in tokens(language, code) if token is not None])
        except Exception as error:
            token_lists.append(type(error).__name__)
    json.dump(token_lists, sys.stdout)


if __name__ == "__main__":
    main()
