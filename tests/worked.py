"""The worked example of docs/method.md: thirteen tokens, hand-written probabilities, one answer.

The answer is " the television 17\n", five tokens. Under the paper's rules:

    step  token    cluster                                 further prefixes  further neutral         clustered
    1     " the"   neutral                                                                           1
    2     " tele"  .10 + .30 television + .20 TV = .60     .05 te            .06 the + .02 \n = .08  .73
    3     "vision" .90                                     -                 .01 \n + .02 end = .03  .93
    4     " 17"    .50 (a numeral stands alone)            .10 " 1"          .05 \n + .05 end = .10  .70
    5     "\n"     neutral                                                                           1

    S = 1 - .73 x .93 x .70 = 1 - .475230 = .524770

The "7" of step 4 shares the label of " 17" and does not count, " radio" is in nobody's cluster here, and " The" is
no stopword, since the list is compared case-sensitively. The sequence probability is .5 x .1 x .9 x .5 x .4 = .009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from semtoken.clustering.function_words import english_stopwords
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.clustering.vocabulary import Vocabulary, neutral_mask

END = ""
GROUPS: tuple[tuple[str, ...], ...] = (
    (END,),
    ("\n",),
    (" the", " The"),
    ("TV", " television", " tele"),
    ("te",),
    ("vision",),
    (" radio",),
    ("7", " 17", " 1"),
)
TOKENS = tuple(token for group in GROUPS for token in group)
LABELS = np.array([label for label, group in enumerate(GROUPS) for _ in group], dtype=np.int32)

ANSWER = (" the", " tele", "vision", " 17", "\n")
STEPS: tuple[dict[str, float], ...] = (
    {" the": 0.50, " The": 0.20, " tele": 0.15, "TV": 0.10, "\n": 0.05},
    {
        " tele": 0.10,
        " television": 0.30,
        "TV": 0.20,
        "te": 0.05,
        " the": 0.06,
        "\n": 0.02,
        " radio": 0.20,
        " The": 0.07,
    },
    {"vision": 0.90, " radio": 0.04, " 17": 0.03, "\n": 0.01, END: 0.02},
    {" 17": 0.50, "7": 0.25, " 1": 0.10, "\n": 0.05, END: 0.05, "vision": 0.05},
    {"\n": 0.40, END: 0.50, " radio": 0.10},
)


def vocabulary(texts: Sequence[str] = TOKENS) -> Vocabulary:
    """A byte-level vocabulary of these texts; the empty one is a special token."""
    return Vocabulary(
        texts=tuple(texts),
        pieces=tuple(text.encode() for text in texts),
        neutral=neutral_mask(texts, english_stopwords()),
        byte_tokens=np.zeros(len(texts), dtype=bool),
    )


def clusters() -> TokenClusters:
    return TokenClusters(LABELS, vocabulary())


def ids(*tokens: str) -> list[int]:
    return [TOKENS.index(token) for token in tokens]


def logits(*steps: Mapping[str, float]) -> npt.NDArray[np.float64]:
    """Log-probabilities of each step; what is not named has probability 0."""
    rows = np.zeros((len(steps), len(TOKENS)))
    for row, step in zip(rows, steps, strict=True):
        for token, probability in step.items():
            row[TOKENS.index(token)] = probability
    with np.errstate(divide="ignore"):
        return np.log(rows)
