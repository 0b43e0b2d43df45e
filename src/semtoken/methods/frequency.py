"""Methods built on how often the most frequent meaning was sampled: ConU."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semtoken.methods.checks import FloatArray, square, total
from semtoken.methods.table import method
from semtoken.support.inputs import one_of, real


@method(
    title="ConU",
    family="frequency",
    needs=("similarity",),
    range=(0.0, 1.0),
    reference="Wang et al., Findings of EMNLP 2024, arXiv:2407.00499",
    semantic_aware=True,
    single_sample=False,
    external_model_free=False,
    overhead="high",
)
def conu(
    similarity: npt.ArrayLike,
    lambda_: float = 0.5,
    threshold: float = 0.7,
    *,
    variant: str = "talk_formula",
) -> float:
    """One minus how often the most frequent meaning was sampled and how similar the others are to it.

    With the samples in K classes of shares F_k and the most frequent class s,
    U = 1 - lambda F_s - (1 - lambda) (1/K) sum_k S(y_s, y_k) F_k, y_k being the first member of class k.

    Parameters
    ----------
    similarity : array of shape (M, M)
        S in [0, 1]; the mean of both directions is used, the diagonal counts as 1.
    lambda_ : float in [0, 1]
        Weight of the frequency. 1 gives 1 - F_s, which has few values and ties often. The publication
        states none that we know of, so report 0, 0.5 and 1.
    threshold : float
        A sample joins the first class whose first member has at least this similarity to it.
    variant : {"talk_formula", "released_code_one_minus_frequency"}
        The second is 1 - max_i f_i / sum_j f_j with f_i the share of samples at least `threshold` similar
        to i: what the released script computes, without the reference answer it asks for.

    Returns
    -------
    float in [0, 1]
        0 if all samples are in one class. Rounded to 12 decimals. Ties for the most frequent class go to
        the one met first, so the order of samples can matter.

    References
    ----------
    Wang et al. 2024, "ConU: conformal uncertainty in large language models with correctness coverage
    guarantees". The formula of the authors' talk; classes by first match and lambda = 0.5 are our choices.

    Examples
    --------
    >>> conu([[1.0, 0.2], [0.2, 1.0]])
    0.6
    """
    one_of("variant", variant, ("talk_formula", "released_code_one_minus_frequency"))
    real(lambda_, "lambda_", low=0.0, high=1.0)
    real(threshold, "threshold")
    one_way = np.clip(square(similarity, "similarity", low=-1.0, high=1.0), 0.0, 1.0)
    alike = 0.5 * (one_way + one_way.T)
    np.fill_diagonal(alike, 1.0)
    if variant == "released_code_one_minus_frequency":
        frequency = (alike >= threshold).mean(axis=1)
        return round(1.0 - float(frequency.max()) / total(frequency), 12) + 0.0
    firsts, sizes = _classes(alike, threshold)
    shares = np.array(sizes) / len(alike)
    top = int(shares.argmax())
    diversity = total(alike[firsts[top], firsts] * shares) / len(firsts)
    return round(1.0 - lambda_ * float(shares[top]) - (1.0 - lambda_) * diversity, 12) + 0.0


def _classes(alike: FloatArray, threshold: float) -> tuple[list[int], list[int]]:
    """First member and size of every class, in order of first appearance."""
    firsts: list[int] = []
    sizes: list[int] = []
    for i in range(len(alike)):
        found = next((c for c, first in enumerate(firsts) if alike[first, i] >= threshold), None)
        if found is None:
            firsts.append(i)
            sizes.append(1)
        else:
            sizes[found] += 1
    return firsts, sizes
