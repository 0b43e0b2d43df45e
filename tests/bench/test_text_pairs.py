"""NLI, similarity, relevance and alternatives against direct loops over the same real, tiny models."""

from __future__ import annotations

import copy
import string
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from semtoken.bench.statistics import (
    EntailmentModel,
    SimilarityModel,
    UniquePairs,
    alternative_classes,
    entailment_matrices,
    similarity_matrices,
    token_similarities,
)
from semtoken.bench.statistics.pairs import IDENTICAL, ONLY_TOKEN, label_columns, special_token_ids
from semtoken.errors import InvalidInputError, ModelError
from tests import tiny
from tests.bench import statistics_models as models
from tests.rows import each

TEXTS = ["the capital", " Paris", "Paris\n", "a television set", ""]
PAIRS = [(a, b) for a, b in product(["the capital of France", "Paris", "who is it , a TV"], repeat=2) if a != b]


def direct_logits(model: Any, pairs: list[tuple[str, str]]) -> np.ndarray:
    """One pair at a time, without padding."""
    with torch.no_grad():
        rows = [model(**tiny.wordpiece()(a, b, return_tensors="pt")).logits[0] for a, b in pairs]
    return torch.stack(rows).double().numpy()


@pytest.fixture(scope="module")
def nli() -> EntailmentModel:
    return EntailmentModel(models.encoder(models.LABELS), tiny.wordpiece(), batch_size=2)


@pytest.fixture(scope="module")
def sts(tmp_path_factory: pytest.TempPathFactory) -> SimilarityModel:
    pytest.importorskip("sentence_transformers")
    folder = models.saved_encoder(tmp_path_factory.mktemp("sts"))
    return SimilarityModel.from_pretrained(folder, device="cpu", batch_size=2)


@pytest.mark.parametrize(("size", "side"), [(2, "right"), (1, "right"), (4, "left")])
def test_batches_equal_pairs_one_by_one(nli: EntailmentModel, size: int, side: str) -> None:
    """Also with a tokenizer that pads on the left."""
    tokenizer = copy.deepcopy(tiny.wordpiece())
    tokenizer.padding_side = side
    found = EntailmentModel(nli.model, tokenizer, batch_size=size)
    np.testing.assert_allclose(found.logits(PAIRS), direct_logits(nli.model, PAIRS), atol=1e-4)
    assert found.logits([]).shape == (0, 3)


@each("make", [partial(EntailmentModel, None, None), partial(SimilarityModel, None)])
def test_a_batch_holds_at_least_one_pair(make: Any) -> None:
    with pytest.raises(InvalidInputError, match="batch_size must be positive, got 0"):
        make(batch_size=0)


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["entailment", "neutral", "contradiction"], [2, 1, 0]),
        (["Neutral", "ENTAILMENT", "Contradiction"], [1, 2, 0]),
        (["contra", "entail", "neutral"], [0, 2, 1]),
        ([" Entails", "contradicts", "NEUTRAL"], [2, 0, 1]),
    ],
)
def test_the_order_of_the_labels_in_the_config_does_not_matter(
    nli: EntailmentModel, names: list[str], order: list[int]
) -> None:
    permuted = models.encoder(dict(enumerate(names)))
    with torch.no_grad():  # the same classifier, its outputs in another order
        permuted.classifier.weight.copy_(nli.model.classifier.weight[order])
        permuted.classifier.bias.copy_(nli.model.classifier.bias[order])
    found = EntailmentModel(permuted, tiny.wordpiece()).logits(PAIRS)
    np.testing.assert_allclose(found, nli.logits(PAIRS), atol=1e-4)


@pytest.mark.parametrize(
    "labels",
    [
        {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"},
        {0: "entailment", 1: "not_entailment"},
        {0: "entailment", 1: "neutral", 2: "entailment"},
        {0: "entailment", 1: "neutral", 2: "contradiction", 3: "other"},
    ],
)
def test_other_labels_are_refused(labels: dict[int, str]) -> None:
    with pytest.raises(ModelError, match="must be named contradiction, neutral and entailment"):
        EntailmentModel(models.encoder(labels), tiny.wordpiece())


def test_labels_may_come_as_the_strings_of_json() -> None:
    class Config:
        id2label = {"2": "contradiction", "0": "neutral", "1": "entailment"}  # noqa: RUF012

    assert label_columns(Config()) == [2, 0, 1]


def test_long_texts_are_cut_at_what_the_model_reads(nli: EntailmentModel) -> None:
    assert np.isfinite(nli.logits([("Paris " * 300, "France " * 300)])).all()


def test_entailment_of_every_ordered_pair_of_samples(nli: EntailmentModel) -> None:
    (matrix,) = entailment_matrices(nli.logits, [("who is it", TEXTS)])
    full = [f"who is it {text.strip()}".strip() for text in TEXTS]
    for (i, a), (j, b) in product(enumerate(full), repeat=2):
        expected = IDENTICAL if a == b else direct_logits(nli.model, [(a, b)])[0]
        np.testing.assert_allclose(matrix[i, j], expected, atol=1e-4)
    assert matrix[1, 2].tolist() == list(IDENTICAL)  # equal once stripped
    (bare,) = entailment_matrices(nli.logits, [(None, TEXTS[:2])])
    np.testing.assert_allclose(bare[0, 1], direct_logits(nli.model, [("the capital", "Paris")])[0], atol=1e-4)


def test_the_model_reads_each_different_pair_once(nli: EntailmentModel) -> None:
    rows = 0

    def count(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        nonlocal rows
        rows += len(kwargs["input_ids"])

    handle = nli.model.register_forward_hook(count, with_kwargs=True)
    ask = UniquePairs(nli.logits)
    samples = [("who is it", TEXTS), ("who is it", TEXTS[::-1]), ("the capital", ["Paris"] * 5)]
    entailment_matrices(ask, samples)
    handle.remove()
    different = len({f"who is it {text.strip()}".strip() for text in TEXTS})
    assert rows == ask.asked == different * (different - 1)


def test_similarity_is_one_sigmoid_of_the_logit(sts: SimilarityModel) -> None:
    logits = direct_logits(models.encoder(), PAIRS)[:, 0]
    np.testing.assert_allclose(sts.similarities(PAIRS), 1 / (1 + np.exp(-logits)), atol=1e-5)
    assert sts.similarities([]).shape == (0,)


def test_an_activation_in_the_checkpoint_changes_nothing(sts: SimilarityModel, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    folder = models.saved_encoder(tmp_path)
    for activation in (torch.nn.Identity(), torch.nn.Sigmoid()):
        model = SimilarityModel(CrossEncoder(folder, device="cpu", activation_fn=activation))
        np.testing.assert_allclose(model.similarities(PAIRS), sts.similarities(PAIRS), atol=1e-6)


def test_similarity_matrices_are_the_mean_of_both_directions(sts: SimilarityModel) -> None:
    matrices = similarity_matrices(UniquePairs(sts.similarities), [("who is it", TEXTS), (None, ["Paris"])])
    full = [f"who is it {text.strip()}".strip() for text in TEXTS]
    for i, j in product(range(len(full)), repeat=2):
        both = [float(sts.similarities([pair])[0]) for pair in ((full[i], full[j]), (full[j], full[i]))]
        assert matrices[0][i, j] == pytest.approx(1.0 if i == j else np.mean(both), abs=1e-5)
    assert matrices[1].tolist() == [[1.0]]


@pytest.mark.parametrize("kind", [EntailmentModel, SimilarityModel])
def test_what_cannot_be_loaded_is_told(kind: type[EntailmentModel | SimilarityModel], tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ModelError, match=r"model cannot be loaded: there is no directory .*/nowhere\."):
        kind.from_pretrained(str(tmp_path / "nowhere"))
    saved = Path(models.saved_encoder(tmp_path, models.LABELS))
    (saved / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ModelError, match=r"model .* cannot be loaded: .*header"):
        kind.from_pretrained(str(saved), device="cpu")


def test_a_model_with_several_outputs_is_no_similarity(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ModelError, match="3 outputs"):
        SimilarityModel.from_pretrained(models.saved_encoder(tmp_path, models.LABELS), device="cpu")


def test_relevance_takes_out_one_position_at_a_time(sts: SimilarityModel) -> None:
    tokenizer = tiny.byte_level_bpe()
    vocabulary = models.answering().clusters.vocabulary
    end = tokenizer.eos_token_id
    first = [*tokenizer(" the capital of France\n")["input_ids"], end]
    answers = [("who is it", first), (None, [first[0]]), ("who is it", [end])]
    special = special_token_ids(tokenizer)
    found = token_similarities(UniquePairs(sts.similarities), answers, vocabulary.decode, special)

    def text(ids: list[int]) -> str:
        return f"who is it {tokenizer.decode(ids, skip_special_tokens=True).strip()}".strip()

    for t, token in enumerate(first):
        pair = (text(first), text(first[:t] + first[t + 1 :]))
        expected = 1.0 if token in special else float(sts.similarities([pair])[0])
        assert found[0][t] == pytest.approx(expected, abs=1e-5)
    assert found[0][-1] == 1.0 and (found[0][:-1] < 1.0).all()
    assert found[1].tolist() == found[2].tolist() == [ONLY_TOKEN]


def test_a_token_that_occurs_twice_is_taken_out_once(sts: SimilarityModel) -> None:
    tokenizer = tiny.byte_level_bpe()
    asked: list[tuple[str, str]] = []

    def ask(pairs: Any) -> np.ndarray:
        asked.extend(pairs)
        return sts.similarities(pairs)

    ids = tokenizer("TV TV")["input_ids"]
    token_similarities(ask, [(None, ids)], models.answering().clusters.vocabulary.decode)
    assert {whole for whole, _ in asked} == {"TV TV"}
    assert all("TV" in rest for _, rest in asked) and len(asked) == len(ids)


def test_alternatives_are_classified_in_both_directions(nli: EntailmentModel) -> None:
    steps = [[" Paris", "France", " paris.", "Paris,", "\n"], ["\n", " ", "the"]]
    ((ahead, back),) = alternative_classes(UniquePairs(nli.logits), [steps])
    for texts, forward, backward in zip(steps, ahead, back, strict=True):
        bare = [text.strip(string.punctuation + string.whitespace) for text in texts]
        for text, one, other in zip(bare, forward, backward, strict=True):
            if text == bare[0]:
                assert one == other == 2
            else:
                assert one == direct_logits(nli.model, [(bare[0], text)])[0].argmax()
                assert other == direct_logits(nli.model, [(text, bare[0])])[0].argmax()


def test_alternatives_that_are_all_equal_ask_nothing() -> None:
    def never(pairs: Any) -> np.ndarray:
        raise AssertionError(pairs)

    assert alternative_classes(never, [[["a", " a"]], []])[0][0][0].tolist() == [2, 2]
