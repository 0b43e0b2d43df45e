"""The end of the thinking before an answer, by the marks that models put around it."""

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
    (r"(?:analysis|commentary)(?=[\s\S]*assistantfinal)", "assistantfinal"),  # the same, its special tokens left out
)
"""The mark that opens the thinking, and the one that ends it. A tag may have a prefix, as `<seed:think>`."""
_OPENING = re.compile("|".join(rf"\s*({opening})" for opening, _ in _MARKS))
_CLOSINGS = tuple(re.compile(closing) for _, closing in _MARKS)
_CLOSING = re.compile("|".join(closing for _, closing in _MARKS))
_ANY_OPENING = re.compile("|".join(opening for opening, _ in _MARKS[:-1]))


def may_hold_marks(text: str) -> bool:
    """Return True if a text holds a sign that marks of thinking begin with; most texts hold none."""
    return any(map(text.__contains__, ("<", "[", "◁", "assistantfinal")))


def thinking_end(text: str, tokens: Callable[[], Iterable[str | None]] = tuple, *, opened: bool = False) -> int:
    """The number of characters that belong to the thinking: 0 without any, all of them where it does not end.

    Marks divide a text if they open it, or if the prompt did. That is known (`opened`), or else likely where a closing
    mark without an opening one ends its line and is a token of its own, of those whose texts `tokens` gives. A text
    that merely mentions the marks is all answer.
    """
    opening = _OPENING.match(text)
    if opening:
        closing = _CLOSINGS[(opening.lastindex or 1) - 1].search(text)
        return closing.end() if closing else len(text)
    closing = _CLOSING.search(text)
    if not closing or _ANY_OPENING.search(text, 0, closing.start()):
        return 0
    if opened or (_ends_line(text, closing.end()) and _is_token(closing, tokens())):
        return closing.end()
    return 0


def unclear_mark(text: str, tokens: Iterable[str | None], *, thought: bool) -> str | None:
    """A mark inside an answer that may belong to thinking; None without one.

    That is a closing one without an opening one, or, behind a text that was `thought`, a further one that opens.
    """
    closing = _CLOSING.search(text)
    opening = _ANY_OPENING.search(text, 0, closing.start() if closing else len(text))
    mark = opening if thought else None if opening else closing
    return mark.group().strip() if mark and _is_token(mark, tokens) else None


def _is_token(mark: re.Match[str], tokens: Iterable[str | None]) -> bool:
    return any(token and mark.group().strip() == token.strip() for token in tokens)


def _ends_line(text: str, end: int) -> bool:
    return text[end:].lstrip(" ")[:1] in ("", "\n", "\r")
