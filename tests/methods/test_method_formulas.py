"""Methods against the plain formula, against SciPy, and against each other where they must agree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from semtoken import methods
from semtoken.errors import InvalidInputError
from tests.rows import each

log_probability = st.floats(-12, 0)
answers = st.lists(st.lists(log_probability, min_size=1, max_size=6), min_size=1, max_size=6)
seeds = st.integers(0, 2**32 - 1)


def affinities(seed: int, size: int) -> np.ndarray:
    matrix = np.random.default_rng(seed).uniform(size=(size, size))
    np.fill_diagonal(matrix, 1.0)
    return matrix


@given(answers)
def test_likelihood_methods_agree_on_one_sample(samples: list[list[float]]) -> None:
    row = samples[0]
    assert methods.ln_entropy([row]) == pytest.approx(methods.perplexity(row))
    assert methods.predictive_entropy([row]) == pytest.approx(methods.perplexity(row) * len(row))
    assert methods.sequence_probability(row) == pytest.approx(1 - math.prod(math.exp(p) for p in row))
    assert methods.sequence_probability(row, variant="negative_logprob") == pytest.approx(-sum(row))
    assert methods.stc(sum(row)) == pytest.approx(methods.sequence_probability(row))


def test_certain_answers_score_a_positive_zero() -> None:
    for value in (
        methods.perplexity([0.0, 0.0]),
        methods.sequence_probability([0.0]),
        methods.predictive_entropy([[0.0], [0.0]]),
        methods.ln_entropy([[0.0]]),
        methods.token_sar([0.0], [0.5]),
        methods.p_true([0.0, -math.inf], 0),
        methods.stc(0.0),
    ):
        assert value == 0.0
        assert math.copysign(1, value) == 1


def test_a_token_of_probability_zero_is_infinitely_surprising() -> None:
    assert methods.perplexity([-0.1, -math.inf]) == math.inf
    assert methods.predictive_entropy([[-math.inf], [-1.0]]) == math.inf
    assert methods.sequence_probability([-math.inf]) == 1.0


@given(hnp.arrays(float, st.integers(2, 30), elements=st.floats(-30, 30)), st.data())
def test_p_true_is_a_log_softmax(logits: np.ndarray, data: st.DataObject) -> None:
    true, false = data.draw(st.permutations(range(len(logits))))[:2]
    expected = scipy.special.log_softmax(logits)
    assert methods.p_true(logits, true) == pytest.approx(-expected[true], abs=1e-9)
    assert methods.p_true(logits, [true, false]) == pytest.approx(
        -scipy.special.logsumexp(expected[[true, false]]), abs=1e-9
    )
    assert methods.p_true(logits, true, false, variant="two_way_softmax") == pytest.approx(
        scipy.special.expit(logits[false] - logits[true])
    )


@given(answers, st.floats(0.01, 0.99))
def test_equal_relevance_gives_the_plain_mean(samples: list[list[float]], similarity: float) -> None:
    equal = [[similarity] * len(row) for row in samples]
    assert methods.token_sar(samples[0], equal[0]) == pytest.approx(methods.perplexity(samples[0]))
    assert methods.token_sar_of_samples(samples, equal) == pytest.approx(methods.ln_entropy(samples))


@given(answers, seeds)
def test_sentence_sar_is_its_formula(samples: list[list[float]], seed: int) -> None:
    count = len(samples)
    support = affinities(seed, count)
    symmetric = 0.5 * (support + support.T)
    p = [math.exp(sum(row)) for row in samples]
    for t, matrix, is_symmetric in ((0.001, symmetric, True), (0.5, support, False)):
        entropies = [
            -math.log(p[i] + sum(matrix[i, j] * p[j] for j in range(count) if j != i) / t) for i in range(count)
        ]
        value = methods.sentence_sar(samples, support, t=t, symmetric=is_symmetric)
        assert value == pytest.approx(sum(entropies) / count, rel=1e-9, abs=1e-9)


@given(answers, seeds)
def test_sar_is_sentence_sar_of_shifted_probabilities(samples: list[list[float]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    token_similarity = [rng.uniform(size=len(row)) for row in samples]
    shifted = [[-methods.token_sar(row, sim)] for row, sim in zip(samples, token_similarity, strict=True)]
    support = affinities(seed, len(samples))
    expected = methods.sentence_sar(shifted, support)
    assert methods.sar(samples, support, token_similarity) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7))
def test_all_rules_agree_when_meaning_is_an_equivalence(meanings: list[int]) -> None:
    labels = [[2 if a == b else 0 for b in meanings] for a in meanings]
    expected = [list(dict.fromkeys(meanings)).index(m) for m in meanings]
    for variant in (
        "first_member_strict_bidirectional",
        "farquhar_strict",
        "farquhar_loose",
        "uqlm_either_direction",
        "uqnlg_no_contradiction",
    ):
        assert methods.semantic_clusters(labels, variant=variant) == expected, variant


def test_rules_differ_where_implementations_differ() -> None:
    one_way = [[2, 0, 2], [0, 2, 2], [2, 2, 2]]
    assert methods.semantic_clusters(one_way) == [0, 1, 0]
    assert methods.semantic_clusters(one_way, variant="farquhar_strict") == [0, 1, 1]
    assert methods.semantic_clusters(one_way, variant="uqnlg_no_contradiction") == [0, 1, 1]
    neutral_one_way = [["entailment", "neutral"], ["entailment", "entailment"]]
    assert methods.semantic_clusters(neutral_one_way) == [0, 1]
    assert methods.semantic_clusters(neutral_one_way, variant="uqlm_either_direction") == [0, 0]
    assert methods.semantic_clusters(neutral_one_way, variant="farquhar_loose") == [0, 0]


@given(answers, st.data())
def test_semantic_entropy_by_plain_sums(samples: list[list[float]], data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, 3), min_size=len(samples), max_size=len(samples)))
    for variant, exponent in (
        ("rao_normalised_length_mean", [sum(row) / len(row) for row in samples]),
        ("rao_normalised_sum", [sum(row) for row in samples]),
        ("discrete", [0.0] * len(samples)),
    ):
        weight = [math.exp(a) for a in exponent]
        shares = [sum(w for w, c in zip(weight, ids, strict=True) if c == k) / sum(weight) for k in set(ids)]
        expected = -sum(share * math.log(share) for share in shares if share > 0)
        assert methods.semantic_entropy(samples, ids, variant=variant) == pytest.approx(expected, abs=1e-9)


@given(seeds, st.integers(1, 7))
def test_graph_methods_by_a_general_eigensolver(seed: int, size: int) -> None:
    one_way = affinities(seed, size)
    weights = 0.5 * (one_way + one_way.T)
    walk = weights / weights.sum(axis=1, keepdims=True)  # I - D^-1 W has the eigenvalues of the normalized Laplacian
    eigenvalues = 1 - scipy.linalg.eigvals(walk).real
    assert methods.eigv(one_way) == pytest.approx(np.maximum(0, 1 - eigenvalues).sum(), abs=1e-7)
    assert methods.deg(one_way) == pytest.approx(1 - one_way.mean(), abs=1e-9)


@given(seeds, st.integers(2, 7))
def test_eccentricity_is_the_norm_of_centered_rows(seed: int, size: int) -> None:
    one_way = affinities(seed, size)
    weights = 0.5 * (one_way + one_way.T)
    root = np.diag(weights.sum(axis=1) ** -0.5)
    eigenvalues, vectors = scipy.linalg.eigh(np.eye(size) - root @ weights @ root)
    rows = vectors[:, eigenvalues < 0.9]
    expected = np.linalg.norm(rows - rows.mean(axis=0))
    assert methods.ecc(one_way) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_graph_methods_at_their_ends(size: int) -> None:
    agree, differ = np.ones((size, size)), np.eye(size)
    assert (methods.eigv(agree), methods.deg(agree), methods.ecc(agree)) == (1.0, 0.0, 0.0)
    assert methods.eigv(differ) == size
    assert methods.deg(differ) == pytest.approx(1 - 1 / size)
    assert methods.ecc(differ) == pytest.approx(math.sqrt(size - 1), abs=1e-6)


def test_jaccard_affinity_counts_lower_cased_words() -> None:
    overlap = methods.jaccard_affinity(["The red fox", "the fox", "dog", ""])
    np.testing.assert_allclose(overlap[0], [1, 2 / 3, 0, 0])
    assert overlap[3, 3] == 1.0
    assert methods.deg(overlap) == pytest.approx(1 - overlap.mean())


def test_conu_with_two_equal_classes_and_at_its_ends() -> None:
    pairs = np.kron(np.eye(2), np.ones((2, 2))) * 0.8 + 0.2
    assert methods.conu(pairs) == pytest.approx(0.6)
    assert methods.conu(np.ones((5, 5))) == 0.0
    assert methods.conu(pairs, lambda_=1.0) == 0.5
    assert methods.conu(pairs, lambda_=0.0) == pytest.approx(1 - (0.5 + 0.2 * 0.5) / 2)


@given(seeds, st.integers(1, 6), st.integers(2, 12))
def test_eigenscore_is_a_log_determinant(seed: int, size: int, features: int) -> None:
    states = np.random.default_rng(seed).normal(size=(size, features))
    centered = states - states.mean(axis=1, keepdims=True)
    gram = centered @ centered.T
    _, divided = np.linalg.slogdet(gram / (features - 1) + 1e-3 * np.eye(size))
    _, undivided = np.linalg.slogdet(gram + 1e-3 * np.eye(size))
    assert methods.eigenscore(states) == pytest.approx(divided / size / math.log(10), abs=1e-9)
    assert methods.eigenscore(states, variant="gram_no_division_ln") == pytest.approx(undivided / size, abs=1e-9)


@each(("ahead", "back"), list(itertools.product(range(3), repeat=2)))
def test_ccp_of_one_alternative(ahead: int, back: int) -> None:
    """p = (.6, .3): the alternative agrees, contradicts or is left out."""
    combined = 1 if {ahead, back} == {0, 2} else ahead if back == 1 else back
    expected = {0: -0.6 / 0.9, 1: -1.0, 2: -1.0}[combined]
    assert methods.ccp([np.log([0.6, 0.3])], [[2, ahead]], [[2, back]]) == pytest.approx(expected)
    only_ahead = {0: -0.6 / 0.9, 1: -1.0, 2: -1.0}[ahead]
    value = methods.ccp([np.log([0.6, 0.3])], [[2, ahead]], [[2, back]], directions="chosen_to_alternative")
    assert value == pytest.approx(only_ahead)


def test_similarities_of_half_precision_may_be_a_little_beyond_one() -> None:
    for beyond, exact in ((1.0009, 1.0), (-1.0009, 0.0)):
        assert methods.token_sar([-1.0, -2.0], [0.5, beyond]) == methods.token_sar([-1.0, -2.0], [0.5, exact])


@each(
    ("call", "message"),
    [
        (lambda: methods.perplexity([]), "'greedy_logprobs' is empty"),
        (lambda: methods.perplexity([[-1.0]]), r"'greedy_logprobs' must have 1 dimension\(s\), got the shape \(1, 1\)"),
        (lambda: methods.perplexity([0.5]), "'greedy_logprobs' holds 0.5, but the logarithm"),
        (lambda: methods.perplexity(["a"]), "'greedy_logprobs' must hold numbers"),
        (lambda: methods.predictive_entropy([]), "'sample_logprobs' is empty"),
        (lambda: methods.predictive_entropy([[-1.0], []]), r"'sample_logprobs\[1\]' is empty"),
        (lambda: methods.ln_entropy([[-1.0, math.nan]]), r"'sample_logprobs\[0\]' holds NaN, first at \(1,\)"),
        (lambda: methods.ln_entropy([[-1.0]], variant="lm_polygraph_eos_in_sum_not_in_count"), "terminators only"),
        (lambda: methods.p_true([0.0, 1.0], 2), r"'true_index' is \[2\], which is no token of a vocabulary of 2"),
        (lambda: methods.p_true([0.0, 1.0], 0, variant="two_way_softmax"), "'false_index' is needed"),
        (lambda: methods.p_true([0.0, 1.0], 0, variant="best"), "'variant' must be one of 'neg_logprob_true'"),
        (lambda: methods.p_true([math.inf, 1.0], 0), r"holds \+inf"),
        (lambda: methods.token_sar([-1.0], [0.5, 0.5]), "'similarity_to_full_without_token' has 2 entries and"),
        (lambda: methods.token_sar([-1.0], [4.2]), "must lie in .-1, 1., got 4.2; are these raw model outputs"),
        (lambda: methods.token_sar([-1.0], [1.0011]), "must lie in .-1, 1., got 1.0011"),
        (lambda: methods.token_sar([-1.0], [-1.0011]), "must lie in .-1, 1., got -1.0011"),
        (lambda: methods.sentence_sar([[-1.0]], [[1.0, 0.5]]), "'similarity' must be square"),
        (lambda: methods.sentence_sar([[-1.0]], np.eye(2)), "'similarity' has 2 entries and 'sample_logprobs' has 1"),
        (lambda: methods.sentence_sar([[-1.0]], [[-1.1]]), "'similarity' must lie in .-1, 1., got -1.1"),
        (lambda: methods.sentence_sar([[-1.0]], [[1.0]], t=0), "'t' must be a positive number, got 0"),
        (lambda: methods.sar([[-1.0]], [[1.0]], [[0.5], [0.5]]), "'token_similarity' has 2 entries"),
        (lambda: methods.semantic_clusters([[2, 3], [2, 2]]), "holds 3; an NLI class is 0 or 'contradiction'"),
        (lambda: methods.semantic_clusters([[2, 1]]), "must be square"),
        (lambda: methods.semantic_clusters([[math.nan]]), "holds nan; an NLI class"),
        (lambda: methods.semantic_clusters([]), "must be square"),
        (lambda: methods.semantic_clusters([[2]], [0, 1]), "holds 1, but there are only 1 texts"),
        (lambda: methods.semantic_entropy([[-1.0]]), "'cluster_ids' is needed"),
        (lambda: methods.semantic_entropy(cluster_ids=[0]), "'sample_logprobs' is needed"),
        (lambda: methods.semantic_entropy([[-1.0]], [0, 1]), "'cluster_ids' has 2 entries"),
        (lambda: methods.semantic_entropy([[-1.0]], [0.5]), "must hold whole numbers"),
        (lambda: methods.semantic_entropy([[-math.inf]], [0]), "gives every sample the probability 0"),
        (lambda: methods.eigv(), "Give either 'entail_prob_row_premise' or"),
        (lambda: methods.ecc([[1.0, 2.0], [0.0, 1.0]]), "'entail_prob_row_premise' must lie in .0, 1., got 2"),
        (lambda: methods.deg(np.eye(2), affinity="non_contradiction"), "needs the NLI logits"),
        (
            lambda: methods.deg(nli_logits_unique_contra_neutral_entail=np.zeros((2, 2, 3)), temperature=0),
            "'temperature' must be a positive number",
        ),
        (
            lambda: methods.ecc(nli_logits_unique_contra_neutral_entail=np.ones((2, 2, 3)), temperature=1e-320),
            "divided by a temperature of 1e-320, has no largest finite logit",
        ),
        (
            lambda: methods.eigv(nli_logits_unique_contra_neutral_entail=np.zeros((2, 2, 2))),
            r"must have the shape \(U, U, 3\), got \(2, 2, 2\)",
        ),
        (lambda: methods.conu(np.eye(2), lambda_=1.5), "'lambda_' must be a finite number from 0 to 1"),
        (lambda: methods.eigenscore([1.0, 2.0]), r"'embeddings' must have 2 dimension\(s\)"),
        (lambda: methods.eigenscore([[1.0], [2.0]]), "at least 2 features"),
        (lambda: methods.eigenscore([[1.0, math.inf]]), "half precision"),
        (lambda: methods.eigenscore([[1.0, 2.0]], alpha=0), "'alpha' must be a positive number"),
        (lambda: methods.ccp([], [], []), "give at least one step"),
        (lambda: methods.ccp([[-0.1]], [[2]], []), "'nli_alternative_to_chosen' has 0 entries"),
        (lambda: methods.ccp([[-0.1, -3.0]], [[2]], [[2, 2]]), r"'nli_chosen_to_alternative\[0\]' has 1 entries"),
        (lambda: methods.ccp([[-0.1]], [["maybe"]], [[2]]), "holds 'maybe'; an NLI class"),
        (lambda: methods.ccp([[-math.inf]], [[2]], [[2]]), "gives the chosen token the probability 0"),
    ],
)
def test_bad_input_is_refused_by_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()
