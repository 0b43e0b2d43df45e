"""The number on top of an answer: which one it is, its value, and one sentence that explains it.

Of a short answer it is the probability of what agrees with it. The same product over the tokens of a sentence measures
how the sentence might have been phrased: there it is the geometric mean of the confidence of its least sure phrase and
that of a typical one, of the phrases that the question does not hold. Of JSON it is the confidence of the least sure
field, whatever the question holds: what is taken from a document stands there. docs/results.md, "Which number stands
on top?", says how this was chosen, and on how little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from semtoken.core.parts.answers import log_product, tokens_touching
from semtoken.core.parts.newness import new_phrases
from semtoken.core.parts.part import Part
from semtoken.core.parts.prose import is_sentence
from semtoken.core.scored_token import ScoredToken, TokenMark
from semtoken.support.text import percent, shortened, thinking_end, with_bounds

RANKS = "Confidence ranks answers; it is not a probability of being right."
"""What a reader has to know where there is no calibrator; a page or an output of a command says it once."""
SHORT_SAID = "Probability of an answer that agrees with this one."
EMPTY_SAID = "There is no answer."
LEAST_SURE = "Its least sure part is \u201c{part}\u201d{share}."
FIELD_SAID = "Its least sure field is {path}, \u201c{text}\u201d."
HELD_BACK = "Its least sure part is held back with it."
ECHO_SAID = "It only repeats the question."
"""What is said of the confidence of a short answer, of none, of a sentence, of JSON, of either of these that is not
shown, and of a sentence that adds nothing to its question."""
UNASKED = " What was asked is not known."
"""What is said besides where words of the question could not be told from those that the answer adds."""
QUESTION_UNKNOWN = "question:unknown"
"""Ends the signature of such an answer: its headline is another number than with the question."""
NEW_PHRASES = "new_phrases"
UNNAMED_PIECES = "unnamed_pieces"
"""The flag of an answer with pieces of characters that its engine does not name, so that its phrases are not known."""
LONGEST_PART = 60


def without_question(signature: str) -> str:
    """A signature as far as it does not say that the question was not known."""
    return signature.removesuffix(f"|{QUESTION_UNKNOWN}")


@dataclass(frozen=True)
class Headline:
    """The number by which an answer is ranked unless another one is asked for, with a sentence about it."""

    name: str
    """The method, a key of `semtoken.methods.METHODS`: `stc` or `new_phrases`, which of JSON reads one field alone."""
    value: float
    """The answer's uncertainty by that method, as in `ScoredAnswer.scores`; higher is riskier. In [0, 1] for `stc`,
    at least 0 for `new_phrases`."""
    confidence: float
    """The headline's confidence in [0, 1]: higher is surer, and short and long answers can be sorted by it together. It
    is not a probability of being right: a calibrator gives that."""
    sentence: str
    """What the confidence is, in one sentence for people."""
    confidence_interval: tuple[float, float] | None = None
    """An interval around the exact confidence, where only the best tokens of each step are known; None where it is
    exact."""

    @property
    def shown(self) -> str:
        """The confidence as people read it, with bounds where they differ: `0.96 (0.96 to 0.99)`.

        It has no percent sign, which would call it a probability of being right.
        """
        return with_bounds(self.confidence, self.confidence_interval or (self.confidence, self.confidence), digits=2)

    @property
    def line(self) -> str:
        """The confidence and what it is, as one line of text."""
        return f"confidence {self.shown}: {self.sentence[0].lower()}{self.sentence[1:-1]}"

    @property
    def unquoted(self) -> Headline:
        """A copy whose sentence quotes nothing, for an answer that is held back."""
        quotes = self.name == NEW_PHRASES and self.sentence != ECHO_SAID
        return replace(self, sentence=HELD_BACK) if quotes else self

    def of_unknown_text(self, log_low: float) -> Headline:
        """A copy with bounds that hold whatever phrases the text has.

        `log_low` is the least log product of all tokens. No phrase is less sure than all tokens together, and so no
        mean of phrases is.
        """
        return replace(self, confidence_interval=(min(self.confidence, math.exp(log_low)), 1.0))

    @property
    def columns(self) -> dict[str, Any]:
        """The headline as columns of a table, the confidence first; an infinite value as None."""
        value = self.value if math.isfinite(self.value) else None
        cells = {"confidence": self.confidence, "sentence": self.sentence, "name": self.name, "value": value}
        return {f"headline_{name}": cell for name, cell in cells.items()}


def headline_of(
    text: str,
    marks: Callable[[], Sequence[TokenMark | ScoredToken]],
    n_tokens: int,
    log_confidence: float,
    log_confidence_interval: tuple[float, float] | None = None,
    question: str | None = None,
) -> Headline:
    """The headline of a scored answer: of what follows the thinking, where the text marks any.

    `marks` gives its `n_tokens` tokens; it is not called for a short answer. `log_confidence` is the log of the product
    of what agrees with each, -inf for a blank answer and for one that may be impossible; the bounds are around the
    exact one. Phrases that the question holds do not count, and a sentence that only repeats it has the confidence 0;
    where it is not known (None), all phrases count, and the answer's explanation says so.
    """
    if thought := thinking_end(text, lambda: (text[token.start : token.end] for token in marks())):
        said = " " * thought + text[thought:]  # characters keep their places
        after = [token for token in marks() if token.start >= len(said) - len(said.lstrip())]
        product, low, high = log_product(after) if said.strip() else (-math.inf,) * 3
        given = None if log_confidence_interval is None else (low, high)
        return headline_of(said, lambda: after, len(after), product, given, question)
    more = "" if question is not None else UNASKED
    if not text.strip() or not is_sentence(text, n_tokens):
        bounds = (
            None
            if log_confidence_interval is None
            else (math.exp(log_confidence_interval[0]), math.exp(log_confidence_interval[1]))
        )
        said = SHORT_SAID if text.strip() else EMPTY_SAID
        return Headline("stc", -math.expm1(log_confidence) + 0.0, math.exp(log_confidence), f"{said}{more}", bounds)
    # Short answers may rightly name a thing of the question ("A or B", a misspelling): last, they rank worse.
    if not (places := new_phrases(text, question or "")):
        return Headline(NEW_PHRASES, math.inf, 0.0, ECHO_SAID)
    logs = [log_product(touching) for touching in tokens_touching(marks(), places)]
    middle, low, high = map(of_phrases, zip(*logs, strict=True))
    weakest = min(range(len(logs)), key=lambda i: logs[i][0])
    share = f" ({percent(math.exp(logs[weakest][0]))})" if len(logs) > 1 else ""
    part = shortened(" ".join(text[slice(*places[weakest])].split()), LONGEST_PART)
    bounds = None if low == high else (math.exp(low), math.exp(high))
    sentence = LEAST_SURE.format(part=part, share=share)
    return Headline(NEW_PHRASES, -middle + 0.0, math.exp(middle), f"{sentence}{more}", bounds)


def headline_of_field(field: Part) -> Headline:
    """The headline of an answer that is JSON, from its least sure field."""
    confidence = field.confidence or 0.0
    low, high = field.bounds or (confidence, confidence)
    said = FIELD_SAID.format(path=field.path, text=shortened(" ".join(field.text.split()), LONGEST_PART))
    value = -math.log(confidence) + 0.0 if confidence else math.inf
    return Headline(NEW_PHRASES, value, confidence, said, None if low == high else (low, high))


def of_phrases(logs: Sequence[float]) -> float:
    """The log confidence of a sentence from those of its new phrases, at least one: the number that ranks sentences.

    Half the sum of the least sure and of a typical one, so that its exponential is their geometric mean.
    """
    return (min(logs) + math.fsum(logs) / len(logs)) / 2
