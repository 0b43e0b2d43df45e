"""Whether the alternatives of each step would have said the same: NLI classes between tokens, for CCP."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from semtoken.methods import token_text
from semtoken.statistics.pairs import AskPairs, Pair

IntArray = npt.NDArray[np.int64]
ENTAILMENT = 2


def alternative_classes(
    ask: AskPairs, answers: Sequence[Sequence[Sequence[str]]]
) -> list[tuple[list[IntArray], list[IntArray]]]:
    """NLI classes of (chosen token, alternative) and of (alternative, chosen token), for every step of some answers.

    Texts are stripped of white space and punctuation at both ends; equal ones entail each other without being asked.

    Parameters
    ----------
    ask
        `EntailmentModel.logits`, or `UniquePairs` of it: pairs -> logits [n, 3].
    answers
        Of each answer, of each step: the best tokens decoded alone, the chosen one first.

    Returns
    -------
    list of two lists of int arrays of shapes (k_t,)
        0 contradiction, 1 neutral, 2 entailment; premise the chosen token, then premise the alternative.

    References
    ----------
    Fadeeva et al. 2024, claim-conditioned probability. Choices as in LM-Polygraph's `GreedyAlternativesNLICalculator`.
    """
    ahead = [[_with_chosen(texts) for texts in steps] for steps in answers]
    back = [[[(b, a) for a, b in pairs] for pairs in steps] for steps in ahead]
    listed = (pair for steps in (*ahead, *back) for pairs in steps for pair in pairs)
    asked = list(dict.fromkeys(pair for pair in listed if pair[0] != pair[1]))
    known: dict[Pair, int] = dict(zip(asked, ask(asked).argmax(axis=-1).tolist(), strict=True)) if asked else {}

    def classes(steps: list[list[Pair]]) -> list[IntArray]:
        return [np.array([known.get(pair, ENTAILMENT) for pair in pairs], dtype=np.int64) for pairs in steps]

    return [(classes(one), classes(other)) for one, other in zip(ahead, back, strict=True)]


def _with_chosen(texts: Sequence[str]) -> list[Pair]:
    stripped = [token_text(text) for text in texts]
    return [(stripped[0], text) for text in stripped]
