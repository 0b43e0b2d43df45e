"""Meaning classes of samples: the entropy over them, and how often the most frequent one was sampled (ConU)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInputError
from semtoken.methods.table import (
    CONTRADICTION,
    ENTAILMENT,
    NEUTRAL,
    Rows,
    indices,
    log_sum_exp,
    mean,
    method_on_samples,
    nli_classes,
    numbers,
    same_count,
    sample_log_probs,
    square,
    total,
)
from semtoken.support.arrays import BoolArray, FloatArray, IntArray
from semtoken.support.inputs import one_of, real

_ENTROPIES = (
    "rao_normalised_length_mean",
    "rao_normalised_sum",
    "discrete",
    "lm_polygraph_monte_carlo",
    "kuhn_release",
    "uqnlg_unnorm",
)


def nli_labels(nli_logits_contra_neutral_entail: npt.ArrayLike) -> IntArray:
    """Class of every ordered pair: the largest of the three logits, the first of equal ones.

    Parameters
    ----------
    nli_logits_contra_neutral_entail : array of shape (U, U, 3)
        Row: premise. Column: hypothesis. Order of the last axis: contradiction, neutral, entailment.

    Returns
    -------
    int array of shape (U, U)
        0 contradiction, 1 neutral, 2 entailment.
    """
    logits = pair_logits(nli_logits_contra_neutral_entail, "nli_logits_contra_neutral_entail")
    return np.asarray(logits.argmax(axis=2), dtype=np.int64)


def pair_logits(values: npt.ArrayLike, name: str) -> FloatArray:
    """The three NLI logits of every ordered pair of texts, [U, U, 3]; `InvalidInputError` for NaN, +inf or no finite
    one.
    """
    logits = numbers(values, name, dimensions=3)
    if logits.shape[0] != logits.shape[1] or logits.shape[2] != 3:
        raise InvalidInputError(f"'{name}' must have the shape (U, U, 3), got {logits.shape}.")
    if (logits == np.inf).any() or (logits.max(axis=2) == -np.inf).any():
        raise InvalidInputError(f"'{name}' holds +inf, or a pair without a finite logit.")
    return logits


def semantic_clusters(
    labels_row_premise_col_hypothesis: npt.ArrayLike,
    unique_text_index_per_sample: npt.ArrayLike | None = None,
    *,
    variant: str = "first_member_strict_bidirectional",
) -> list[int]:
    """Put samples that mean the same into one class, comparing with one representative per class.

    All rules are greedy over the given order; where entailment is not transitive, the order matters.

    Parameters
    ----------
    labels_row_premise_col_hypothesis : array of shape (U, U)
        NLI class of every ordered pair: 0 contradiction, 1 neutral, 2 entailment, or these names. The diagonal
        is not used.
    unique_text_index_per_sample : int array of shape (M,), optional
        Row of each sample's text: samples with the same row share a class whatever the labels say. None:
        every row is one sample.
    variant : str
        "first_member_strict_bidirectional" (LM-Polygraph): entailment in both directions; a sample joins
        the first class whose first member matches. "farquhar_strict": the same rule, but every new class
        claims all later matches, also those of earlier classes. "farquhar_loose": as that, with no
        contradiction in either direction and not both neutral. "uqlm_either_direction": entailment in one
        direction is enough. "uqnlg_no_contradiction" (also Kuhn's release): no contradiction in either
        direction, the last match wins and classes chain.

    Returns
    -------
    list of M ints
        Class of each sample, numbered in order of first appearance.

    References
    ----------
    Kuhn et al. 2023, "Semantic uncertainty", bidirectional entailment clustering; Farquhar et al. 2024,
    "Detecting hallucinations in large language models using semantic entropy". Default as in LM-Polygraph's
    `SemanticClassesCalculator`.

    Examples
    --------
    >>> semantic_clusters([[2, 2, 1], [2, 2, 2], [1, 2, 2]])
    [0, 0, 1]
    """
    labels = _label_grid(labels_row_premise_col_hypothesis, "labels_row_premise_col_hypothesis")
    rules = _rules(labels)
    one_of("variant", variant, rules)
    traverse, same = rules[variant]
    if unique_text_index_per_sample is None:
        rows = list(range(len(labels)))
    else:
        rows = indices(unique_text_index_per_sample, "unique_text_index_per_sample", below=len(labels)).tolist()
    texts = list(dict.fromkeys(rows))  # each text once, in order of first appearance
    class_of = dict(zip(texts, traverse(texts, same), strict=True))
    classes = [class_of[row] for row in rows]
    number = {c: n for n, c in enumerate(dict.fromkeys(classes))}
    return [number[c] for c in classes]


def _classes(g: Any) -> dict[str, Any]:
    return {
        "sample_logprobs": g.sample_log_probs,
        "cluster_ids": semantic_clusters(nli_labels(g.nli_logits), g.sample_text_index),
    }


@method_on_samples(
    title="Semantic entropy",
    family="semantic",
    needs=("sample_texts", "sample_log_probs", "nli_logits"),
    arguments=_classes,
    reference="Kuhn et al., ICLR 2023, arXiv:2302.09664; Farquhar et al., Nature 2024",
)
def semantic_entropy(
    sample_logprobs: Rows | None = None,
    cluster_ids: npt.ArrayLike | None = None,
    *,
    variant: str = "rao_normalised_length_mean",
) -> float:
    """Entropy over the meaning classes of sampled answers, by default at least 0; higher is less certain.

    Default: w_m = exp(mean log-probability of m) / sum of these, P_c = sum of w in class c,
    U = -sum_c P_c log P_c.

    Parameters
    ----------
    sample_logprobs : M arrays of shapes (T_m,)
        Natural logs, terminators included. Only "discrete" does without.
    cluster_ids : int array of shape (M,)
        Meaning class of each sample, as `semantic_clusters` gives.
    variant : str
        "rao_normalised_length_mean" (Farquhar et al.'s code), in [0, log M]. "rao_normalised_sum": the same
        with the sums of log-probabilities. "discrete": P_c is the share of samples. The rest is for parity,
        not normalized: "lm_polygraph_monte_carlo", mean over samples of -log of their class' mass, may be
        negative; "kuhn_release", mean over classes with the shift of 5 that the release adds;
        "uqnlg_unnorm", minus the log of the mean class mass.

    Returns
    -------
    float
        For the first three: exactly 0.0 with one class, rounded to 12 decimals so that rounding noise does
        not break ties.

    References
    ----------
    Farquhar et al. 2024, "Detecting hallucinations in large language models using semantic entropy",
    the definitions of semantic and of discrete semantic entropy; Kuhn et al. 2023, "Semantic uncertainty".

    Examples
    --------
    >>> round(semantic_entropy([[-0.1], [-0.1]], [0, 1]), 6)
    0.693147
    """
    one_of("variant", variant, _ENTROPIES)
    if cluster_ids is None:
        raise InvalidInputError("'cluster_ids' is needed: the meaning class of each sample, see semantic_clusters.")
    ids = indices(cluster_ids, "cluster_ids")
    if variant == "discrete":
        return _entropy(np.unique(ids, return_counts=True)[1] / ids.size)
    if sample_logprobs is None:
        raise InvalidInputError(f"'sample_logprobs' is needed for variant={variant!r}.")
    rows = sample_log_probs(sample_logprobs)
    same_count("cluster_ids", ids.size, "sample_logprobs", len(rows))
    length_normalized = variant in ("rao_normalised_length_mean", "kuhn_release")
    log_p = np.array([mean(row) if length_normalized else total(row) for row in rows])
    log_mass = {int(c): log_sum_exp(log_p[ids == c]) for c in np.unique(ids)}
    classes = np.array(list(log_mass.values()))
    if variant == "lm_polygraph_monte_carlo":
        return -mean([log_mass[int(c)] for c in ids]) + 0.0
    if variant == "kuhn_release":
        # The release of Kuhn et al. subtracts 5 from the log-likelihoods, which moves all answers alike.
        return -mean(classes - 5.0) + 0.0
    if variant == "uqnlg_unnorm":
        return math.log(classes.size) - log_sum_exp(classes) + 0.0
    whole = log_sum_exp(classes)
    if whole == -math.inf:
        raise InvalidInputError("'sample_logprobs' gives every sample the probability 0: no class has a share.")
    return _entropy(np.exp(classes - whole))


def _label_grid(values: npt.ArrayLike, name: str) -> IntArray:
    """NLI classes of all ordered pairs, [U, U]."""
    try:
        grid = np.array(values, dtype=object)
    except Exception as error:  # objects convert themselves, and raise what they like
        raise InvalidInputError(f"'{name}' must hold NLI classes: {error}.") from error
    if grid.ndim != 2 or grid.shape[0] != grid.shape[1] or grid.size == 0:
        raise InvalidInputError(f"'{name}' must be square, one row and column per text, got the shape {grid.shape}.")
    return nli_classes(grid.ravel().tolist(), name).reshape(grid.shape)


def _entropy(probabilities: FloatArray) -> float:
    present = probabilities[probabilities > 0]
    # A single class has exactly 0: a rounding error in its share would order answers that tie.
    if present.size == 1:
        return 0.0
    # The order of equal classes moves the last digits, and AUROC would count that as a difference.
    return round(-total(present * np.log(present)), 12) + 0.0


def _rules(labels: IntArray) -> dict[str, tuple[Callable[[Sequence[int], BoolArray], list[int]], BoolArray]]:
    """The walk of each published implementation over the texts, and the pairs that it calls the same [U, U]."""
    entails, contradicts, neutral = (labels == label for label in (ENTAILMENT, CONTRADICTION, NEUTRAL))
    both_entail, no_contradiction = entails & entails.T, ~(contradicts | contradicts.T)
    return {
        "first_member_strict_bidirectional": (_join_first_match, both_entail),
        "farquhar_strict": (_claim_later_matches, both_entail),
        "farquhar_loose": (_claim_later_matches, no_contradiction & ~(neutral & neutral.T)),
        "uqlm_either_direction": (_join_first_match, entails | entails.T),
        "uqnlg_no_contradiction": (_last_match_wins, no_contradiction),
    }


def _join_first_match(texts: Sequence[int], same: BoolArray) -> list[int]:
    first_members: list[int] = []
    classes = []
    for text in texts:
        joined = next((c for c, first in enumerate(first_members) if same[first, text]), len(first_members))
        if joined == len(first_members):
            first_members.append(text)
        classes.append(joined)
    return classes


def _claim_later_matches(texts: Sequence[int], same: BoolArray) -> list[int]:
    classes = [-1] * len(texts)
    for i, text in enumerate(texts):
        if classes[i] == -1:
            classes[i] = i
            for j in range(i + 1, len(texts)):
                if same[text, texts[j]]:
                    classes[j] = i
    return classes


def _last_match_wins(texts: Sequence[int], same: BoolArray) -> list[int]:
    classes = list(range(len(texts)))
    for i, text in enumerate(texts):
        for j in range(i + 1, len(texts)):
            if same[text, texts[j]]:
                classes[j] = classes[i]
    return classes


@method_on_samples(
    title="ConU",
    family="frequency",
    needs=("similarity",),
    range=(0.0, 1.0),
    reference="Wang et al., Findings of EMNLP 2024, arXiv:2407.00499",
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
    classes = _join_first_match(range(len(alike)), alike >= threshold)
    # `np.unique` gives the first place of each class: its first member.
    _, firsts, sizes = np.unique(classes, return_index=True, return_counts=True)
    shares = sizes / len(alike)
    top = int(shares.argmax())
    diversity = total(alike[firsts[top], firsts] * shares) / len(firsts)
    return round(1.0 - lambda_ * float(shares[top]) - (1.0 - lambda_) * diversity, 12) + 0.0
