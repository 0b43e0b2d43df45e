"""An answer while it is written, and what ends it."""

from __future__ import annotations

from dataclasses import dataclass, field

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.methods.observers.steps import Completion
from semtoken.models.answer_text import AnswerText


@dataclass(eq=False)
class WrittenAnswer:
    """The tokens of an answer so far, and the limits that end it."""

    answer: int
    """The answer's number among all answers of the call."""
    max_new_tokens: int
    stop_ids: frozenset[int]
    """Tokens that end the answer."""
    stop_strings: tuple[str, ...]
    """Texts that end the answer where they are complete."""
    token_ids: list[int] = field(default_factory=list)
    text: AnswerText | None = None
    """The text of the answer, in which stop strings are looked for; None before the first token, or without them."""
    completion: Completion | None = None
    """The whole answer, once it is complete."""

    def completed(self, token: int, vocabulary: Vocabulary, *, ended: bool) -> Completion | None:
        """Add a token, with which the answer has `ended` in any case or goes on; returns the completed answer if it
        ends with this token, else None.
        """
        self.token_ids.append(token)
        stopped = ended or token in self.stop_ids
        if self.stop_strings:
            self.text = self.text or AnswerText(vocabulary, self.stop_strings)
            self.text.add(token)
            stopped = stopped or self.text.stopped
        if stopped or len(self.token_ids) >= self.max_new_tokens:
            self.completion = Completion(self.token_ids, truncated=not stopped)
        return self.completion

    def broken_off(self) -> Completion:
        """Complete the answer as it is, since nothing more is written of it."""
        self.completion = Completion(self.token_ids, truncated=True)
        return self.completion
