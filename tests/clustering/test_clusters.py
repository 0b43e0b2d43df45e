"""Clusters: what they say of their tokens, and that files keep it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.clustering.card import markdown_text
from semtoken.clustering.partition import cluster_tokens
from semtoken.clustering.tables import token_table
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.errors import ArtifactError, InvalidInputError, ModelError, SemtokenError, VocabularyMismatch
from tests import tiny
from tests.artifacts import change_config
from tests.rows import each


@cache
def vocabulary_of(kind: str) -> Vocabulary:
    return Vocabulary.from_tokenizer(tiny.tokenizer_of(kind))


def random_clusters(kind: str = "byte-level", n_clusters: int = 40, **provenance: Any) -> TokenClusters:
    vocabulary = vocabulary_of(kind)
    labels = np.random.default_rng(0).integers(0, n_clusters, vocabulary.size)
    return TokenClusters(labels.astype(np.int32), vocabulary, provenance)


def assert_same(a: TokenClusters, b: TokenClusters) -> None:
    np.testing.assert_array_equal(a.labels, b.labels)
    assert a.vocabulary.texts == b.vocabulary.texts
    assert a.vocabulary.pieces == b.vocabulary.pieces
    np.testing.assert_array_equal(a.vocabulary.neutral, b.vocabulary.neutral)
    np.testing.assert_array_equal(a.vocabulary.byte_tokens, b.vocabulary.byte_tokens)
    assert (a.vocabulary.byte_errors, a.vocabulary.clean_up) == (b.vocabulary.byte_errors, b.vocabulary.clean_up)
    assert a.vocabulary.fingerprint == b.vocabulary.fingerprint
    assert (a.provenance, a.signature, a.n_clusters) == (b.provenance, b.signature, b.n_clusters)


# ---- labels and members


@given(seed=st.integers(0, 1000), n_labels=st.integers(1, 2000))
def test_cluster_ids_are_the_tokens_with_the_same_label(seed: int, n_labels: int) -> None:
    vocabulary = vocabulary_of("byte-level")
    labels = np.random.default_rng(seed).integers(0, n_labels, vocabulary.size, dtype=np.int32)
    clusters = TokenClusters(labels, vocabulary)
    for token in range(0, vocabulary.size, 37):
        ids = clusters.cluster_ids(token)
        assert ids.dtype == np.int64
        np.testing.assert_array_equal(ids, np.flatnonzero(labels == labels[token]))
    assert clusters.n_clusters == len(set(labels.tolist())) == len(clusters.sizes)
    assert clusters.sizes.sum() == vocabulary.size


def test_what_clusters_hold_cannot_be_changed() -> None:
    labels = np.zeros(vocabulary_of("byte-level").size, dtype=np.int64)
    clusters = TokenClusters(labels, vocabulary_of("byte-level"))  # type: ignore[arg-type]
    labels[0] = 7  # the caller's array is the caller's
    assert clusters.labels.dtype == np.int32 and clusters.labels[0] == 0
    for array in (clusters.labels, clusters.cluster_ids(0)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (lambda v: np.zeros(v + 3, int), r"labels but .* tokens.*table\[: vocabulary.size\]"),
        (lambda v: np.zeros(v - 1, int), "each token needs one"),
        (lambda v: np.zeros(v), "integers, got shape .* of float64"),
        (lambda v: np.zeros((v, 1), int), "one-dimensional"),
        (lambda v: np.full(v, -1), "between 0 and .* got -1"),
        (lambda v: np.full(v, 2**40), "between 0 and"),
        (lambda v: ["a"] * v, "integers"),
    ],
)
def test_labels_that_cannot_be_used(labels: Any, message: str) -> None:
    vocabulary = vocabulary_of("byte-level")
    with pytest.raises(InvalidInputError, match=message):
        TokenClusters(labels(vocabulary.size), vocabulary)


def test_members_of_a_token_and_of_a_text() -> None:
    vocabulary = vocabulary_of("byte-level")
    spelled = {text: i for i, text in enumerate(vocabulary.texts)}
    labels = np.arange(vocabulary.size)
    labels[spelled[" Television"]] = labels[spelled[" television"]] = labels[spelled[" TV"]]
    clusters = TokenClusters(labels, vocabulary)
    expected = [vocabulary.texts[i] for i in sorted(spelled[t] for t in (" TV", " Television", " television"))]
    assert clusters.members(spelled[" TV"]) == expected
    assert clusters.members(np.int64(spelled[" TV"])) == expected  # type: ignore[arg-type]
    assert clusters.members(" TV") == expected
    assert clusters.members("TV") == expected  # no token is spelled so: without regard to the blank
    assert clusters.members("tv") == expected  # nor so: without regard to case
    assert clusters.members("\n") == ["\n"]


def test_a_text_of_several_tokens_gives_all_their_members() -> None:
    vocabulary = vocabulary_of("sentencepiece")
    clusters = TokenClusters(np.arange(vocabulary.size), vocabulary)
    assert vocabulary.texts.count("TV") == 2  # inside a word and at its start
    assert clusters.members("TV") == ["TV", "TV"]


@each(
    ("token", "said"),
    [
        ("telvision", r"No single token is spelled 'telvision' \(did you mean 'television'\?\)"),
        ("§§§§§§§§", r"No single token is spelled '[^']*';"),
        (99_999, "id 99999 at step 0 is out of range"),
    ],
)
def test_an_unknown_token_is_refused_with_what_is_similar(token: Any, said: str) -> None:
    with pytest.raises(SemtokenError, match=said):
        random_clusters().members(token)


def test_an_empty_text_is_no_token() -> None:
    vocabulary = Vocabulary(("a", "b"), (b"a", b"b"), np.zeros(2, bool), np.zeros(2, bool))
    with pytest.raises(InvalidInputError, match="No single token is spelled ''"):
        TokenClusters(np.zeros(2, int), vocabulary).members("")


def test_the_signature_names_what_is_known() -> None:
    clusters = random_clusters(embedding="concatenated", algorithm="agglomerative", linkage="complete", metric="cosine")
    fingerprint = clusters.vocabulary.fingerprint
    assert clusters.signature == (
        f"emb:concatenated|algo:agglomerative|link:complete|dist:cosine|k:40|vocab:{fingerprint[:8]}"
    )
    assert random_clusters().signature == f"k:40|vocab:{fingerprint[:8]}"


def test_provenance_holds_plain_values_only() -> None:
    clusters = random_clusters(seconds=np.float32(1.5), cuts=(1, 2))
    assert clusters.provenance == {"seconds": 1.5, "cuts": [1, 2]}
    for odd in (object(), np.float32("nan"), [float("inf")], "\ud800"):
        with pytest.raises(InvalidInputError, match="provenance must hold plain values"):
            random_clusters(model=odd)


# ---- files


@pytest.mark.parametrize(
    "kind",
    [
        *tiny.TOKENIZERS,
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("mistral-sentencepiece", "mistral-tekken")),
    ],
)
def test_files_keep_everything(kind: str, tmp_path: Path) -> None:
    clusters = random_clusters(kind, model="größe", settings={"k": 40})
    clusters.save_pretrained(tmp_path / "clusters")
    assert_same(TokenClusters.from_pretrained(tmp_path / "clusters"), clusters)
    size = (tmp_path / "clusters" / "clusters.safetensors").stat().st_size
    assert size <= 3e6 * max(clusters.vocabulary.size / 152_064, 0.01)


@given(
    tokens=st.lists(
        st.tuples(st.text(max_size=4), st.binary(max_size=5), st.booleans(), st.booleans()), min_size=1, max_size=8
    ),
    errors=st.sampled_from(["replace", "run", "each"]),
    clean_up=st.booleans(),
)
def test_files_keep_any_vocabulary(
    tokens: list[tuple[str, bytes, bool, bool]], errors: Any, clean_up: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    texts, pieces, neutral, byte_tokens = zip(*tokens, strict=True)
    vocabulary = Vocabulary(texts, pieces, np.array(neutral), np.array(byte_tokens), errors, clean_up)
    clusters = TokenClusters(np.arange(len(tokens)), vocabulary)
    folder = tmp_path_factory.mktemp("any") / "clusters"
    clusters.save_pretrained(folder)
    assert_same(TokenClusters.from_pretrained(folder), clusters)


def test_a_piece_longer_than_most_is_kept(tmp_path: Path) -> None:
    long = b"-" * 70_000
    vocabulary = Vocabulary((long.decode(), "b"), (long, b"b"), np.zeros(2, bool), np.zeros(2, bool))
    clusters = TokenClusters([0, 1], vocabulary)  # type: ignore[arg-type]
    clusters.save_pretrained(tmp_path / "clusters")
    assert_same(TokenClusters.from_pretrained(tmp_path / "clusters"), clusters)


def test_loading_checks_the_tokenizer(tmp_path: Path) -> None:
    random_clusters().save_pretrained(tmp_path / "clusters")
    loaded = TokenClusters.from_pretrained(tmp_path / "clusters", tokenizer=tiny.byte_level_bpe())
    loaded.check(vocabulary_of("byte-level"))
    sizes = vocabulary_of("byte-level").size, vocabulary_of("sentencepiece").size
    with pytest.raises(
        VocabularyMismatch, match=r"made for {} tokens .* tokenizer has {} .*: token 2 is".format(*sizes)
    ):
        TokenClusters.from_pretrained(tmp_path / "clusters", tokenizer=tiny.sentencepiece_bpe())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["vocabulary"].update(fingerprint="0" * 64), "inconsistent.*fingerprint 0000"),
        (lambda c: c["vocabulary"].update(clean_up=True), "inconsistent"),
        (lambda c: c["vocabulary"].update(size=3), "3 tokens expected"),
        (lambda c: c.pop("vocabulary"), "'vocabulary' is missing"),
        (lambda c: c.update(provenance=["x"]), "does not hold valid clusters"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    folder = tmp_path / "clusters"
    random_clusters().save_pretrained(folder)
    change_config(folder, change)
    with pytest.raises(ArtifactError, match=message):
        TokenClusters.from_pretrained(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.pop("labels"),
        lambda a: a.update(labels=a["labels"].astype(np.float32)),
        lambda a: a.update(labels=a["labels"][:-1]),
        lambda a: a.update(labels=-a["labels"] - 1),
        lambda a: a.update(classes=a["classes"][:-1]),
        lambda a: a.update(classes=a["classes"].astype(np.float32)),
        lambda a: a.update(piece_lengths=a["piece_lengths"] + 1),
        lambda a: a.update(piece_bytes=a["piece_bytes"][::-1].copy()),
        lambda a: a.update(text_ids=np.array([10**6], np.int32), text_lengths=np.zeros(1, np.uint16)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, change: Any) -> None:
    import hashlib

    from safetensors.numpy import load_file, save_file

    folder = tmp_path / "clusters"
    random_clusters().save_pretrained(folder)
    arrays = load_file(folder / "clusters.safetensors")
    change(arrays)
    save_file(arrays, folder / "clusters.safetensors")
    digest = hashlib.sha256((folder / "clusters.safetensors").read_bytes()).hexdigest()
    change_config(folder, lambda c: c.update(sha256=digest))
    with pytest.raises(ArtifactError, match=r"does not hold valid clusters|inconsistent"):
        TokenClusters.from_pretrained(folder)


# ---- the card


def test_the_card_shows_the_largest_clusters_and_the_model(tmp_path: Path) -> None:
    vocabulary = vocabulary_of("byte-level")
    labels = np.arange(vocabulary.size)
    spelled = [i for i, text in enumerate(vocabulary.texts) if text in ("|", "*", "`", "<tool>", "\n")]
    labels[spelled] = labels[spelled[0]]
    TokenClusters(labels, vocabulary, {"hub_id": "org/model", "model": "org/model"}).save_pretrained(tmp_path / "c")
    card = (tmp_path / "c" / "README.md").read_text(encoding="utf-8")
    front = card.split("---")[1]
    assert "library_name: semtoken" in front and 'base_model: "org/model"' in front
    row = next(line for line in card.splitlines() if line.startswith("| 5 |"))
    assert r"\|" in row and r"\*" in row and r"\`" in row and r"\<tool\>" in row
    assert f"{vocabulary.size - 4:,} clusters of the {vocabulary.size:,} tokens of org/model" in card


def test_markdown_shows_a_text_as_it_is() -> None:
    assert markdown_text("a_b|c") == r"a\_b\|c"
    assert markdown_text("\u202e\n") == r"\\u202e\\n"


# ---- from a model


TOKENIZER = tiny.byte_level_bpe()
SIZE = len(TOKENIZER)


@pytest.mark.parametrize("kind", ["input", "output", "concatenated"])
def test_a_model_is_clustered_by_its_table_without_the_padding(kind: Any) -> None:
    model = tiny.llama(SIZE + 58)
    clusters = TokenClusters.from_model(model, TOKENIZER, n_clusters=50, embedding=kind)
    np.testing.assert_array_equal(clusters.labels, cluster_tokens(token_table(model, kind)[:SIZE], n_clusters=50))
    assert clusters.n_clusters == 50
    assert clusters.signature.startswith(f"emb:{kind}|algo:agglomerative|link:complete|dist:cosine|k:50|vocab:")


def test_a_directory_is_clustered_like_the_model_in_memory(tmp_path: Path) -> None:
    model = tiny.llama(SIZE).bfloat16()
    from_directory = TokenClusters.from_model(tiny.saved(model, tmp_path / "tiny-model"), n_clusters=50)
    in_memory = TokenClusters.from_model(model, TOKENIZER, n_clusters=50)
    np.testing.assert_array_equal(from_directory.labels, in_memory.labels)
    assert from_directory.vocabulary.fingerprint == in_memory.vocabulary.fingerprint
    assert from_directory.provenance["model"] == "tiny-model"
    assert from_directory.provenance["content_hash"] == in_memory.provenance["content_hash"]
    assert str(tmp_path) not in json.dumps(from_directory.provenance)


def test_settings_reach_the_clustering() -> None:
    model = tiny.llama(SIZE)
    chosen: dict[str, Any] = {"algorithm": "agglomerative", "linkage": "average", "metric": "euclidean"}
    clusters = TokenClusters.from_model(model, TOKENIZER, n_clusters=30, **chosen)
    np.testing.assert_array_equal(clusters.labels, cluster_tokens(token_table(model), n_clusters=30, **chosen))
    assert "link:average|dist:euclidean|k:30" in clusters.signature
    kmeans = TokenClusters.from_model(model, TOKENIZER, n_clusters=30, algorithm="kmeans", seed=3)
    assert kmeans.provenance["seed"] == 3 and "link" not in kmeans.signature


def test_stopwords_of_ones_own_reach_the_file(tmp_path: Path) -> None:
    TokenClusters.from_model(tiny.llama(SIZE), TOKENIZER, n_clusters=30, stopwords=["Paris"]).save_pretrained(tmp_path)
    vocabulary = TokenClusters.from_pretrained(tmp_path, tokenizer=TOKENIZER).vocabulary
    assert {vocabulary.texts[i].strip() for i in np.flatnonzero(vocabulary.neutral)} == {"", "Paris"}


@each(
    ("size", "options", "said"),
    [
        (SIZE, {}, rf"the {SIZE} tokens.*got 16,000.*n_clusters={SIZE // 4}"),
        (SIZE, {"n_clusters": 0}, "got 0"),
        (40, {"n_clusters": 10}, r"tokens but the embeddings .* only 40 rows"),
        (40, {"tokenizer": None}, "Give the model's tokenizer"),
    ],
)
def test_what_cannot_be_clusters_of_a_model_is_refused(size: int, options: dict[str, Any], said: str) -> None:
    with pytest.raises((InvalidInputError, ModelError), match=said):
        TokenClusters.from_model(tiny.llama(size), **{"tokenizer": TOKENIZER} | options)


def test_the_embedded_clusters_have_a_name() -> None:
    from semtoken.support.almanac import almanac_clusters_path

    named = TokenClusters.from_pretrained("almanac")
    assert named.signature == TokenClusters.from_pretrained(almanac_clusters_path()).signature
