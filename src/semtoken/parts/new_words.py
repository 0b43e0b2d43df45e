"""How sure a model was of the words that its answer adds to the question.

Of 55 ways to sum up the chat answers of a small model this told right from wrong best (docs/results.md, "Long
answers"); on a larger model it was not shown to be better than the product over all tokens.
"""

from __future__ import annotations

import math
import re

from semtoken.parts.answers import AnswerWithTokens, tokens_touching
from semtoken.support.inputs import text
from semtoken.tokens.stopwords import is_function_word, plain_word

LONG = 12
"""Tokens from which on an answer is a sentence, not a short answer."""
_WORD = re.compile(r"\w[\w'’-]*")


def new_words(answer: AnswerWithTokens, question: str = "") -> list[tuple[int, int]]:
    """Character ranges of the words that are no English function words and do not stand in the question."""
    asked = {plain_word(word) for word in _WORD.findall(text(question, "question"))}
    words = ((match.span(), match[0]) for match in _WORD.finditer(answer.text))
    return [span for span, word in words if plain_word(word) not in asked and not is_function_word(word)]


def new_word_confidence(answer: AnswerWithTokens, question: str = "") -> float | None:
    """Geometric mean of the confidences of the new words of an answer.

    Parameters
    ----------
    answer
        A scored answer.
    question
        What was asked: words that stand in it are no news. Without it all content words count.

    Returns
    -------
    float or None
        In [0, 1]; the confidence of a word is the product over its tokens, by the answer's own rules. None for an
        answer without such words. A ranking, not a chance.
    """
    spans = new_words(answer, question)
    if not spans:
        return None
    touching = tokens_touching(answer.tokens, spans)
    logs = [math.fsum(token.log_agreeing_probability for token in tokens) for tokens in touching]
    return math.exp(math.fsum(logs) / len(logs))
