"""Methods that read a graph of how far samples entail each other: Ecc, EigV and Deg."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.methods.semantic import pair_logits
from semtoken.methods.table import CONTRADICTION, ENTAILMENT, indices, method_on_samples, square, total
from semtoken.support.arrays import FloatArray
from semtoken.support.inputs import listed, one_of, real, text

_SMALLEST_DEGREE = 1e-12


def affinity_matrix(
    entail_prob_row_premise: npt.ArrayLike | None = None,
    nli_logits_unique_contra_neutral_entail: npt.ArrayLike | None = None,
    unique_text_index_per_sample: npt.ArrayLike | None = None,
    *,
    temperature: float = 1.0,
    affinity: str = "entailment",
) -> FloatArray:
    """The agreement of every two samples: the symmetric matrix W, (M, M), that `ecc`, `eigv` and `deg` read.

    Give either probabilities, used as they are with their diagonal, or NLI logits; from logits the affinity
    of a text with itself is exactly 1.

    Parameters
    ----------
    entail_prob_row_premise : array of shape (M, M), optional
        Probability that the row's text entails the column's, or any other affinity in [0, 1].
    nli_logits_unique_contra_neutral_entail : array of shape (U, U, 3), optional
        NLI logits of every ordered pair of texts; the diagonal is not used.
    unique_text_index_per_sample : int array of shape (M,), optional
        Row of each sample's text; samples of one row have the affinity 1. None: every row is one sample.
    temperature : float
        The logits are divided by it before the softmax (LM-Polygraph: 1, UQ-NLG: 3).
    affinity : {"entailment", "non_contradiction"}
        W = (E + E^T) / 2 with the probability of entailment, or 1 - (C + C^T) / 2 with that of contradiction.

    Returns
    -------
    float array of shape (M, M)
        Values in [0, 1]; higher means more agreement.

    Raises
    ------
    InvalidInputError
        Neither or both of probabilities and logits, or values that cannot be used.

    References
    ----------
    Lin et al. 2024, "Generating with confidence", the similarities by NLI.
    """
    one_of("affinity", affinity, ("entailment", "non_contradiction"))
    if (entail_prob_row_premise is None) == (nli_logits_unique_contra_neutral_entail is None):
        raise InvalidInputError(
            "Give either 'entail_prob_row_premise' or 'nli_logits_unique_contra_neutral_entail', one of the two."
        )
    if entail_prob_row_premise is not None:
        if affinity != "entailment":
            raise InvalidInputError("affinity='non_contradiction' needs the NLI logits, not entailment probabilities.")
        one_way = square(entail_prob_row_premise, "entail_prob_row_premise", low=0.0, high=1.0)
    else:
        one_way = _agreement(nli_logits_unique_contra_neutral_entail, temperature, affinity)
    if unique_text_index_per_sample is not None:
        name = "unique_text_index_per_sample"
        rows = indices(unique_text_index_per_sample, name, below=len(one_way))
        # A model may give a text less than 1 with itself. The release (UQ-NLG) counts equal texts as the same.
        one_way = np.where(rows[:, None] == rows, 1.0, one_way[np.ix_(rows, rows)])
    # Entailment has a direction; the graph of Lin et al. has none.
    return 0.5 * (one_way + one_way.T)


def jaccard_affinity(texts: Sequence[str]) -> FloatArray:
    """Overlap of the lower-cased words of any two texts, (M, M) in [0, 1]; needs no NLI model.

    Two texts without a word have the affinity 1. Give it to `ecc`, `eigv` or `deg` as their first argument.

    References
    ----------
    Lin et al. 2024, "Generating with confidence", Jaccard similarity.
    """
    words = [frozenset(text(sample, "texts").lower().split()) for sample in listed(texts, "texts")]
    return np.array([[len(a & b) / len(a | b) if a | b else 1.0 for b in words] for a in words], dtype=np.float64)


def _graph(g: Any) -> dict[str, Any]:
    return {
        "nli_logits_unique_contra_neutral_entail": g.nli_logits,
        "unique_text_index_per_sample": g.sample_text_index,
    }


_of_graphs = partial(
    method_on_samples,
    family="graph",
    needs=("sample_texts", "nli_logits"),
    arguments=_graph,
    reference="Lin et al., TMLR 2024, arXiv:2305.19187",
)


@_of_graphs(title="EigV", range=(1.0, math.inf))
def eigv(
    entail_prob_row_premise: npt.ArrayLike | None = None,
    *,
    nli_logits_unique_contra_neutral_entail: npt.ArrayLike | None = None,
    unique_text_index_per_sample: npt.ArrayLike | None = None,
    temperature: float = 1.0,
    affinity: str = "entailment",
) -> float:
    """The number of meanings of the samples, as a real number: U = sum_k max(0, 1 - lambda_k).

    lambda_k are the eigenvalues of the normalized Laplacian L = I - D^(-1/2) W D^(-1/2).

    Parameters
    ----------
    entail_prob_row_premise, nli_logits_unique_contra_neutral_entail
        One of the two, as in `affinity_matrix`.
    unique_text_index_per_sample, temperature, affinity
        As in `affinity_matrix`.

    Returns
    -------
    float in [1, M]
        1 if all samples agree, M if none does. Rounded to 10 decimals, so that rounding noise does not
        break ties.

    References
    ----------
    Lin et al. 2024, "Generating with confidence", U_EigV. Pairs of equal texts as in its release
    (UQ-NLG), temperature 1 as in LM-Polygraph's `EigValLaplacian`.
    """
    weights = affinity_matrix(
        entail_prob_row_premise,
        nli_logits_unique_contra_neutral_entail,
        unique_text_index_per_sample,
        temperature=temperature,
        affinity=affinity,
    )
    eigenvalues, _ = _laplacian_spectrum(weights)
    return round(total(np.maximum(0.0, 1.0 - eigenvalues)), 10)


@_of_graphs(title="Ecc")
def ecc(
    entail_prob_row_premise: npt.ArrayLike | None = None,
    threshold: float = 0.9,
    *,
    nli_logits_unique_contra_neutral_entail: npt.ArrayLike | None = None,
    unique_text_index_per_sample: npt.ArrayLike | None = None,
    temperature: float = 1.0,
    affinity: str = "entailment",
) -> float:
    """Eccentricity: how far the samples lie from their center in the space of the Laplacian's eigenvectors.

    With the K eigenvectors v_k of eigenvalue below `threshold`, U is the Frobenius norm of their centered
    rows, computed as sqrt(K - (1/M) sum_k (1^T v_k)^2), which does not depend on the basis that the solver
    chooses inside a repeated eigenvalue.

    Parameters
    ----------
    entail_prob_row_premise, nli_logits_unique_contra_neutral_entail
        One of the two, as in `affinity_matrix`.
    unique_text_index_per_sample, temperature, affinity
        As in `affinity_matrix`.
    threshold : float
        Eigenvectors with a smaller eigenvalue are kept (strictly).

    Returns
    -------
    float in [0, sqrt(M - 1)]
        0 if all samples agree. Rounded to 6 decimals: most values lie within noise of sqrt(K - 1).

    References
    ----------
    Lin et al. 2024, "Generating with confidence", U_Ecc. The same number as in UQ-NLG and in
    LM-Polygraph's `Eccentricity`; TruthTorchLM adds row norms instead.
    """
    weights = affinity_matrix(
        entail_prob_row_premise,
        nli_logits_unique_contra_neutral_entail,
        unique_text_index_per_sample,
        temperature=temperature,
        affinity=affinity,
    )
    eigenvalues, vectors = _laplacian_spectrum(weights)
    kept = vectors[:, eigenvalues < real(threshold, "threshold")]
    spread = kept.shape[1] - total(kept.sum(axis=0) ** 2) / len(weights)
    # Rounding can leave the difference below 0 where all samples agree.
    return round(math.sqrt(max(spread, 0.0)), 6)


@_of_graphs(title="Deg", range=(0.0, 1.0))
def deg(
    entail_prob_row_premise: npt.ArrayLike | None = None,
    *,
    nli_logits_unique_contra_neutral_entail: npt.ArrayLike | None = None,
    unique_text_index_per_sample: npt.ArrayLike | None = None,
    temperature: float = 1.0,
    affinity: str = "entailment",
    scale: str = "mean",
) -> float:
    """Mean disagreement of two samples, U = 1 - mean of all entries of W = sum_i (M - d_i) / M^2.

    Parameters
    ----------
    entail_prob_row_premise, nli_logits_unique_contra_neutral_entail
        One of the two, as in `affinity_matrix`.
    unique_text_index_per_sample, temperature, affinity
        As in `affinity_matrix`.
    scale : {"mean", "sum"}
        "sum" is M times the mean, as UQ-NLG reports it.

    Returns
    -------
    float in [0, 1 - 1/M] with a diagonal of 1
        0 if all samples agree. Rounded to 12 decimals.

    References
    ----------
    Lin et al. 2024, "Generating with confidence", U_Deg. As LM-Polygraph's `DegMat`.
    """
    one_of("scale", scale, ("mean", "sum"))
    weights = affinity_matrix(
        entail_prob_row_premise,
        nli_logits_unique_contra_neutral_entail,
        unique_text_index_per_sample,
        temperature=temperature,
        affinity=affinity,
    )
    disagreement = total((1.0 - weights).ravel()) / weights.size
    # Adding 0.0 turns -0.0 into 0.0.
    return round(disagreement * (len(weights) if scale == "sum" else 1), 12) + 0.0


def _agreement(nli_logits: npt.ArrayLike | None, temperature: float, affinity: str) -> FloatArray:
    """Probability of entailment, or of anything but contradiction, with 1 on the diagonal."""
    divisor = real(temperature, "temperature")
    if not divisor > 0:
        raise InvalidInputError(f"'temperature' must be a positive number, got {temperature!r}.")
    name = "nli_logits_unique_contra_neutral_entail"
    with np.errstate(over="ignore", invalid="ignore"):
        logits = pair_logits([] if nli_logits is None else nli_logits, name) / divisor
        shifted = np.exp(logits - logits.max(axis=2, keepdims=True))
    if np.isnan(shifted).any():
        raise InvalidInputError(f"'{name}', divided by a temperature of {temperature!r}, has no largest finite logit.")
    probabilities = shifted / shifted.sum(axis=2, keepdims=True)
    one_way: FloatArray = (
        probabilities[:, :, ENTAILMENT] if affinity == "entailment" else 1.0 - probabilities[:, :, CONTRADICTION]
    )
    np.fill_diagonal(one_way, 1.0)
    return one_way


def _laplacian_spectrum(weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues ascending and orthonormal eigenvectors (columns) of the normalized Laplacian."""
    # Where the diagonal comes from a model, a row can be all 0; elsewhere it is 1 at least.
    scale = 1.0 / np.sqrt(np.maximum(weights.sum(axis=1), _SMALLEST_DEGREE))
    laplacian = np.eye(len(weights)) - scale[:, None] * weights * scale
    # `eigh`, since W is symmetric: `eig` may return complex numbers, and vectors that are not orthogonal.
    eigenvalues, vectors = np.linalg.eigh(laplacian)
    return eigenvalues, vectors
