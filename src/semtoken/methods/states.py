"""Methods that read hidden states of samples: EigenScore."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInput
from semtoken.methods.checks import numbers
from semtoken.methods.table import method
from semtoken.support.inputs import one_of, real


@method(
    title="EigenScore",
    family="states",
    needs=("hidden_states",),
    range=(-3.0, math.inf),
    reference="Chen et al., ICLR 2024, arXiv:2402.03744",
    semantic_aware=True,
    single_sample=False,
    overhead="high",
)
def eigenscore(embeddings: npt.ArrayLike, alpha: float = 1e-3, *, variant: str = "cov_over_d_minus_1_log10") -> float:
    """Volume that the samples span in the model's hidden space.

    C is Z with each row centred over its H features, Sigma = C C^T / (H - 1), and
    U = (1/M) sum_i log10(eigenvalue_i(Sigma + alpha I)).

    Parameters
    ----------
    embeddings : array of shape (M, H)
        Z: one hidden state per sample, of the middle layer at the last content token (the state that
        predicts the terminator).
    alpha : float
        Keeps the eigenvalues of identical samples positive.
    variant : {"cov_over_d_minus_1_log10", "gram_no_division_ln"}
        The authors' code, or LM-Polygraph's: C C^T undivided and the natural logarithm. Dividing changes
        the ranks, since it changes how large alpha is beside Sigma.

    Returns
    -------
    float, at least log10(alpha)
        Often negative. One sample works: its value depends on the norm of the state only.

    References
    ----------
    Chen et al. 2024, "INSIDE: LLMs' internal states retain the power of hallucination detection",
    EigenScore. Default as in the function `getEigenIndicator_v0` of its release.

    Notes
    -----
    Eigenvalues come from the singular values of C in float64: they cannot turn negative by rounding, as
    those of the product can when samples are identical.
    """
    one_of("variant", variant, ("cov_over_d_minus_1_log10", "gram_no_division_ln"))
    states = numbers(embeddings, "embeddings", dimensions=2)
    samples, features = states.shape
    if np.isinf(states).any():
        raise InvalidInput("'embeddings' holds infinities; were the states recorded in half precision?")
    if features < 2:
        raise InvalidInput(f"'embeddings' must have at least 2 features per sample, got {features}.")
    alpha = real(alpha, "alpha")
    if not alpha > 0:
        raise InvalidInput(f"'alpha' must be a positive number, got {alpha!r}.")
    centred = states - states.mean(axis=1, keepdims=True)
    if not np.isfinite(np.square(centred).sum()):
        raise InvalidInput("'embeddings' holds numbers whose squares are too large to be added up.")
    squares = np.zeros(samples)
    singular = np.linalg.svd(centred, compute_uv=False)
    squares[: singular.size] = singular**2
    if variant == "gram_no_division_ln":
        return float(np.log(squares + alpha).mean())
    return float(np.log10(squares / (features - 1) + alpha).mean())
