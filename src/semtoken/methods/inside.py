"""Methods that read what stands inside the answering model: RAUQ (attention weights) and EigenScore (hidden states)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.methods.table import log_probs, mean, method, numbers, same_count
from semtoken.support.arrays import FloatArray, real_numbers
from semtoken.support.inputs import listed, one_of, real, whole

ALPHA = 0.2
"""Weight of a token's own probability against what it takes over from the token before."""


def _attention_without_first(g: Any) -> dict[str, Any]:
    """The recorded array [n, L, heads] without the first token, which has none before it, as [L, heads, n - 1]."""
    return {
        "greedy_logprobs": g.log_probs,
        "attention_to_previous": np.moveaxis(np.asarray(g.attention_to_previous)[1:], 0, -1),
    }


@method(
    title="RAUQ",
    family="attention",
    needs=("log_probs", "attention_to_previous"),
    arguments=_attention_without_first,
    reference="Vazhentsev et al., ICML 2026, arXiv:2505.20045",
    monotone=False,
)
def rauq(
    greedy_logprobs: npt.ArrayLike,
    attention_to_previous: npt.ArrayLike,
    *,
    alpha: float = ALPHA,
    layers: Iterable[int] | None = None,
) -> float:
    """Recurrent attention-based uncertainty: confidence is passed on from token to token along attention.

    In each layer l the head is chosen that attends most to the token before, on average. With its weights att_t,
    c_1 = p_1(y_1) and c_t = a p_t(y_t) + (1 - a) att_t c_{t-1}; u_l = -(1/T) sum_t ln c_t, and U = max_l u_l.

    Parameters
    ----------
    greedy_logprobs : array of shape (T,)
        Natural logs under the raw distribution, the terminator included.
    attention_to_previous : array of shape (L, heads, T - 1)
        Attention weights in [0, 1] of answer token t to answer token t - 1, for t = 2 .. T. Recorded is what the
        position where token t is chosen gives to the newest token, as in lm-polygraph.
    alpha
        a in [0, 1].
    layers
        Which layers to look at, from 0; by default the middle third, L/3 <= l < 2L/3.

    Returns
    -------
    float in [0, inf]
        Nats. Of one token -ln p. lm-polygraph adds 1 and looks at one or two further layers (n // 3 to ceil(2n / 3)).

    References
    ----------
    Vazhentsev et al. 2025, "Uncertainty-Aware Attention Heads: Efficient Unsupervised Uncertainty Quantification for
    LLMs"; lm-polygraph's `RAUQ`.
    """
    logs = log_probs(greedy_logprobs, "greedy_logprobs")
    own = real(alpha, "alpha", low=0.0, high=1.0)
    # No token stands before the first one, so there is no attention to read and only its probability counts.
    if len(logs) == 1:
        return -float(logs[0]) + 0.0
    attended = _weights(attention_to_previous)
    same_count("attention_to_previous", attended.shape[2], "greedy_logprobs[1:]", len(logs) - 1)
    chosen = middle_third(len(attended)) if layers is None else _layers(layers, len(attended))
    return max(_of_layer(np.exp(logs), attended[layer], own) for layer in chosen)


def _layers(given: Any, count: int) -> list[int]:
    layers = [whole(layer, f"layers[{i}]", low=0, high=count - 1) for i, layer in enumerate(listed(given, "layers"))]
    if not layers:
        raise InvalidInputError("'layers' is empty: name at least one.")
    return layers


def middle_third(layers: int) -> list[int]:
    """The layers l with L/3 <= l < 2L/3; the only one of a model with one."""
    return [layer for layer in range(layers) if layers <= 3 * layer < 2 * layers] or list(range(layers))


def _of_layer(probabilities: FloatArray, attended: FloatArray, own: float) -> float:
    """-mean ln c of one layer, whose heads' weights are [heads, T - 1]."""
    weights = attended[int(attended.mean(axis=1).argmax())]
    confidence = float(probabilities[0])
    confidences = [confidence]
    for probability, weight in zip(probabilities[1:].tolist(), weights.tolist(), strict=True):
        confidence = own * probability + (1 - own) * weight * confidence
        confidences.append(confidence)
    return -mean([math.log(c) if c > 0 else -math.inf for c in confidences]) + 0.0


def _weights(values: npt.ArrayLike) -> FloatArray:
    array = real_numbers(values, "attention_to_previous").astype(np.float64)
    if array.ndim != 3 or not array.size:
        raise InvalidInputError(f"'attention_to_previous' must be [layers, heads, T - 1], got the shape {array.shape}.")
    # The softmax of half precision may give 1.0005. Written so that NaN, too, is refused.
    if not (array.min() >= -1e-6 and array.max() <= 1 + 1e-3):
        raise InvalidInputError("'attention_to_previous' must hold weights in [0, 1], and no NaN.")
    return np.clip(array, 0.0, 1.0)


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

    C is Z with each row centered over its H features, Sigma = C C^T / (H - 1), and
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
    # float16 ends at 65504, and the middle layers of some models give more.
    if np.isinf(states).any():
        raise InvalidInputError("'embeddings' holds infinities; were the states recorded in half precision?")
    if features < 2:
        raise InvalidInputError(f"'embeddings' must have at least 2 features per sample, got {features}.")
    alpha = real(alpha, "alpha")
    if not alpha > 0:
        raise InvalidInputError(f"'alpha' must be a positive number, got {alpha!r}.")
    centered = states - states.mean(axis=1, keepdims=True)
    # The squares of its singular values would be infinite, and the volume with them.
    if not np.isfinite(np.square(centered).sum()):
        raise InvalidInputError("'embeddings' holds numbers whose squares are too large to be added up.")
    squares = np.zeros(samples)
    singular = np.linalg.svd(centered, compute_uv=False)
    # With fewer features than samples the other eigenvalues of C C^T are 0.
    squares[: singular.size] = singular**2
    if variant == "gram_no_division_ln":
        return float(np.log(squares + alpha).mean())
    return float(np.log10(squares / (features - 1) + alpha).mean())
