"""The text of an answer as its tokens come: whole characters only, and nothing from a stop text on."""

from __future__ import annotations

from collections.abc import Sequence

from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.clustering.vocabulary import Vocabulary


class AnswerText:
    """Decodes one answer token by token, and holds back what may turn out to be the beginning of a text of `stops`."""

    def __init__(self, vocabulary: Vocabulary, stops: Sequence[str] = ()) -> None:
        self.stop: str | None = None
        """The stop text that has come; None so far."""
        self._vocabulary = vocabulary
        self._stops = tuple(stops)
        self._ids: list[int] = []
        self._context = 0  # tokens from here to `_read` are decoded again, as the look of a token depends on them
        self._read = 0
        self._held = ""
        self._n_shown = 0

    @property
    def stopped(self) -> bool:
        """True if a stop text has come."""
        return self.stop is not None

    @property
    def n_tokens(self) -> int:
        """The number of tokens up to the last one that has some of the text; those behind it spell a stop text, after a
        blank perhaps.
        """
        decode, ids, n = self._vocabulary.decode, self._ids, len(self._ids)
        shown = decode(ids)[: self._n_shown]
        while n and decode(ids[: n - 1]).startswith(shown):
            n -= 1
        if not n:
            return 0
        before = decode(ids[: n - 1])
        has_a_blank_only = before.startswith(shown.rstrip()) and bool(decode(ids[:n])[len(before) :].strip())
        return n - has_a_blank_only

    def add(self, token: int) -> str:
        """Add the next token; returns the text that can be shown now and was not shown before."""
        self._ids.append(token)
        return self._show(self._decoded(complete=False), complete=False)

    def finish(self) -> str:
        """End the answer; returns the last text, which was not shown while a character might have been incomplete."""
        return "" if self.stopped else self._show(self._decoded(complete=True), complete=True)

    def _decoded(self, *, complete: bool) -> str:
        before = self._vocabulary.decode(self._ids[self._context : self._read])
        now = self._vocabulary.decode(self._ids[self._context :])
        if not complete and (now.endswith(REPLACEMENT) or self._in_run()):  # perhaps a piece of a character
            return ""
        if len(now) > len(before):
            self._context, self._read = self._read, len(self._ids)
        return now[len(before) :]

    def _in_run(self) -> bool:
        """A later byte may break the run of byte tokens that the last one is in, and with it all of its text."""
        if self._vocabulary.byte_errors != "run":
            return False
        parts = self._vocabulary.parts(self._ids[self._context :])
        return bool(parts) and bool(self._vocabulary.byte_tokens[parts[-1]])

    def _show(self, gained: str, *, complete: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + gained
        stop_places = [(text.find(stop), stop) for stop in self._stops if stop in text]
        shown, self.stop = min(stop_places, default=(len(text), None))
        if self.stop is None and not complete:
            shown -= self._doubtful(text)
        self._held = text[shown:]
        self._n_shown += shown
        return text[:shown]

    def _doubtful(self, text: str) -> int:
        """Characters at the end that may be the beginning of a stop text."""
        longest = max(map(len, self._stops), default=1) - 1
        ends = range(min(longest, len(text)), 0, -1)
        return next((n for n in ends if any(stop.startswith(text[-n:]) for stop in self._stops)), 0)
