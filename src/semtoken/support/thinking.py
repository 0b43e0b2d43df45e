"""Where the thinking ends that a model writes before its answer, as marked in the text: `<think>...</think>`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_OPENING = re.compile(r"\s*(?:<(?:think|thinking|thought|reasoning)>|\[THINK\]|◁think▷)")
_CLOSING = re.compile(r"</(?:think|thinking|thought|reasoning)>|\[/THINK\]|◁/think▷")


def thinking_end(text: str, tokens: Callable[[], Iterable[str | None]] = tuple) -> int:
    """The number of characters that belong to the thinking: 0 without any, all of them where it does not end.

    Parameters
    ----------
    text
        What the model wrote.
    tokens
        Gives the texts of its tokens. If the opening mark was a part of the prompt, the closing one counts only if it
        is a token of its own, so that a text about these marks is none that was thought.
    """
    opening, closing = _OPENING.match(text), _CLOSING.search(text)
    if opening and not closing:
        return len(text)
    if closing and (opening or any(token and _CLOSING.fullmatch(token.strip()) for token in tokens())):
        return closing.end()
    return 0
