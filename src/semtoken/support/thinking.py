"""Where the thinking ends that a model writes before its answer, as marked in the text: `<think>...</think>`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_NAMES = "(?:[a-z]+:)?(?:think|thinking|thought|reasoning)"
_MARKS = (
    (f"<{_NAMES}>", f"</{_NAMES}>"),
    (r"\[THINK\]", r"\[/THINK\]"),
    ("◁think▷", "◁/think▷"),
    (r"<\|channel>thought\b", r"<channel\|>"),  # Gemma
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>(?:<\|START_RESPONSE\|>)?"),
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>(?:\s*<\|begin_of_solution\|>)?"),
    # gpt-oss: channels, of which the last is the answer
    (r"(?:<\|start\|>assistant)?<\|channel\|>", r"<\|channel\|>final[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>"),
)
"""What opens a thinking, and what ends it. A tag may have a prefix, as `<seed:think>`."""
_OPENING = re.compile("|".join(rf"\s*({opening})" for opening, _ in _MARKS))
_CLOSINGS = tuple(re.compile(closing) for _, closing in _MARKS)
_CLOSING = re.compile("|".join(closing for _, closing in _MARKS))


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
    opening = _OPENING.match(text)
    if opening:
        closing = _CLOSINGS[(opening.lastindex or 1) - 1].search(text)
        return closing.end() if closing else len(text)
    closing = _CLOSING.search(text)
    if closing and any(token and _CLOSING.fullmatch(token.strip()) for token in tokens()):
        return closing.end()
    return 0
