"""The published rule whole: Semantic Token Clustering (Cao et al., EACL 2026), to be read beside the paper.

The package scores by faster code (`score_logits` under the preset `paper`), which is tested to agree with this file.
Here one answer at a time is scored by sets and sums: which tokens agree with the chosen one at each step, and with what
probability did the model mean any of them? Nothing here knows a model. It takes the logits of the steps, a function
that decodes token ids, and the label of every token's cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from semtoken.clustering.function_words import english_stopwords

Decode = Callable[[Sequence[int]], str]
"""Text of some token ids; special tokens have none."""


def uncertainty(logits: npt.ArrayLike, token_ids: Sequence[int], labels: Sequence[int], decode: Decode) -> float:
    """S = 1 - prod_i p(tokens that agree with token i): the paper's equation for the uncertainty of an answer.

    In [0, 1], higher is riskier; 1 for an empty answer. `logits` [n, columns >= V] are raw, of the n steps of a greedy
    or sampled answer; `token_ids` [n] are its tokens, its terminator included; `labels` [V] are the clusters of all
    tokens, from the embeddings of the model; `decode` is the tokenizer's own.
    """
    # The published code gives a blank answer the log score -inf.
    if not decode(token_ids).strip():
        return 1.0
    texts = [decode([token]) for token in range(len(labels))]
    # Heads of models are padded: columns behind the last token are no tokens.
    chances = softmax(np.asarray(logits, dtype=np.float64)[:, : len(labels)])
    product = 1.0
    for step, chosen in enumerate(token_ids):
        if not is_neutral(texts[chosen]):  # a function word says nothing about the answer: its probability is 1
            rest = decode(token_ids[step:])
            product *= math.fsum(chances[step, token] for token in agreeing(chosen, rest, texts, labels))
    # Sums of floating-point numbers may exceed 1 by rounding, and no uncertainty is negative.
    return 1.0 - min(product, 1.0)


def agreeing(chosen: int, rest: str, texts: Sequence[str], labels: Sequence[int]) -> list[int]:
    """The ids of the tokens that agree with the chosen one, itself included.

    They are of three sets: its cluster, unless it holds a digit; what begins `rest`, the answer's text from it on; and
    neutral tokens.
    """
    numeral = any(map(str.isdigit, texts[chosen]))  # 1926 and 1927 are neighbors and do not mean the same
    return [
        token
        for token, text in enumerate(texts)
        if token == chosen
        or (labels[token] == labels[chosen] and not numeral)  # the same cluster
        or (normalized(text) != "" and normalized(rest).startswith(normalized(text)))  # begins what was written
        or is_neutral(text)  # says nothing
    ]


def is_neutral(text: str) -> bool:
    """Return True if a token is a function word, white space or a special token; compared with its case."""
    return text.strip() == "" or text.strip() in english_stopwords()


def normalized(text: str) -> str:
    """A text as the rule compares it: in lower case, without blanks around it."""
    return text.strip().lower()


def softmax(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Next-token probabilities of each row, at temperature 1."""
    weights = np.exp(rows - rows.max(axis=1, keepdims=True))
    chances: npt.NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return chances
