"""The confidence of an answer: which number it is, its value, and one sentence that explains it.

Of a short answer it is the probability of what agrees with it. The same product over the tokens of a sentence measures
how the sentence might have been phrased: there it is the geometric mean of the confidence of its least sure phrase and
that of a typical one, of the phrases that the question does not hold. Of JSON it is the confidence of the least sure
field, whatever the question holds: what is taken from a document stands there. docs/results.md, "Which number is the
confidence?", says how this was chosen, and on how little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from semtoken.core.parts.answers import log_product, tokens_touching
from semtoken.core.parts.newness import new_phrases
from semtoken.core.parts.part import Part
from semtoken.core.parts.prose import is_sentence
from semtoken.core.scored_token import ScoredToken, TokenMark
from semtoken.support.text import percent, shortened, with_bounds
from semtoken.support.thinking import thinking_end

RANKS = "Confidence ranks answers; it is not a probability of being right."
"""A sentence for readers where there is no calibrator; a page or an output of a command says it once."""
SHORT_SAID = "Probability of an answer that agrees with this one."
EMPTY_SAID = "There is no answer."
LEAST_SURE = "Its least sure part is \u201c{part}\u201d{share}."
FIELD_SAID = "Its least sure field is {path}, \u201c{text}\u201d."
HELD_BACK = "Its least sure part is held back with it."
ECHO_SAID = "It only repeats the question."
"""Explanations of the confidence of a short answer, of none, of a sentence, of JSON, of either of these that is not
shown, and of a sentence that adds nothing to its question."""
UNASKED = " What was asked is not known."
"""A sentence to add where words of the question could not be set apart from those that the answer adds."""
NEW_PHRASES = "new_phrases"
UNNAMED_PIECES = "unnamed_pieces"
"""The flag of an answer with pieces of characters that its engine does not name, so that its phrases are not known."""
LONGEST_PART = 60


@dataclass(frozen=True)
class Confidence:
    """The confidence of a model in an answer, and how it was found. `ScoredAnswer` shows these fields as its own."""

    value: float
    """The confidence in [0, 1]: higher is surer, and short and long answers can be sorted by it together. It is not a
    probability of being right: a calibrator gives that."""
    interval: tuple[float, float]
    """An interval (low, high) around the exact confidence; both ends are the confidence where it is exact."""
    method: str
    """A key of `semtoken.methods.METHODS`: `stc` or `new_phrases`, which of JSON reads only one field."""
    explanation: str
    """The meaning of the confidence, in one sentence for people."""

    @property
    def summary(self) -> str:
        """The confidence with its interval and what it is, as one line of text."""
        shown = with_bounds(self.value, self.interval, digits=2)
        return f"confidence {shown}: {self.explanation[0].lower()}{self.explanation[1:-1]}"

    @property
    def unquoted(self) -> Confidence:
        """A copy whose explanation quotes nothing, for an answer that is held back."""
        quotes = self.method == NEW_PHRASES and self.explanation != ECHO_SAID
        return replace(self, explanation=HELD_BACK) if quotes else self

    def of_unknown_text(self, log_low: float) -> Confidence:
        """A copy with an interval that holds whatever phrases the text has.

        `log_low` is the least log product of all tokens. No phrase is less sure than all tokens together, and so no
        mean of phrases is.
        """
        return replace(self, interval=(min(self.value, math.exp(log_low)), 1.0))


def confidence_of(
    text: str,
    marks: Callable[[], Sequence[TokenMark | ScoredToken]],
    n_tokens: int,
    log_product_of_all: float,
    interval: tuple[float, float] | None = None,
    question: str | None = None,
) -> Confidence:
    """The confidence of a scored answer: of what follows the thinking, where the text marks any.

    `marks` gives its `n_tokens` tokens; it is not called for a short answer. `log_product_of_all` is the log of the
    product of what agrees with each, -inf for an empty answer and for one that may be impossible; `interval` is around
    the exact one. Phrases that the question holds do not count, and a sentence that only repeats it has the confidence
    0; where it is not known (None), all phrases count, and the explanation says so.
    """
    if thought := thinking_end(text, lambda: (text[token.start : token.end] for token in marks())):
        said = " " * thought + text[thought:]  # characters keep their places
        after = [token for token in marks() if token.start >= len(said) - len(said.lstrip())]
        product, low, high = log_product(after) if said.strip() else (-math.inf,) * 3
        given = None if interval is None else (low, high)
        return confidence_of(said, lambda: after, len(after), product, given, question)
    more = "" if question is not None else UNASKED
    if not text.strip() or not is_sentence(text, n_tokens):
        low, high = interval or (log_product_of_all, log_product_of_all)
        said = SHORT_SAID if text.strip() else EMPTY_SAID
        return Confidence(math.exp(log_product_of_all), (math.exp(low), math.exp(high)), "stc", f"{said}{more}")
    # Short answers may rightly name a thing of the question ("A or B", a misspelling): last, they rank worse.
    if not (places := new_phrases(text, question or "")):
        return Confidence(0.0, (0.0, 0.0), NEW_PHRASES, ECHO_SAID)
    logs = [log_product(touching) for touching in tokens_touching(marks(), places)]
    middle, low, high = map(of_phrases, zip(*logs, strict=True))
    ends = (math.exp(middle),) * 2 if low == high else (math.exp(low), math.exp(high))
    weakest = min(range(len(logs)), key=lambda i: logs[i][0])
    share = f" ({percent(math.exp(logs[weakest][0]))})" if len(logs) > 1 else ""
    part = shortened(" ".join(text[slice(*places[weakest])].split()), LONGEST_PART)
    return Confidence(math.exp(middle), ends, NEW_PHRASES, f"{LEAST_SURE.format(part=part, share=share)}{more}")


def confidence_of_field(field: Part) -> Confidence:
    """The confidence of an answer that is JSON, from its least sure field."""
    confidence = field.confidence or 0.0
    said = FIELD_SAID.format(path=field.path, text=shortened(" ".join(field.text.split()), LONGEST_PART))
    return Confidence(confidence, field.bounds or (confidence, confidence), NEW_PHRASES, said)


def of_phrases(logs: Sequence[float]) -> float:
    """The log confidence of a sentence from those of its new phrases, at least one: the number that ranks sentences.

    Half the sum of the least sure and of a typical one, so that its exponential is their geometric mean.
    """
    return (min(logs) + math.fsum(logs) / len(logs)) / 2
