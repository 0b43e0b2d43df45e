"""Sources of the vocabulary of a score."""

from __future__ import annotations

from pathlib import Path

import pytest

from semtoken import ScoredModel
from semtoken.clustering.model_vocabulary import vocabulary_of
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.given_tokens import as_clusters, as_tokens
from semtoken.errors import ArtifactError, InvalidInputError, ModelError, SemtokenError
from tests import tiny, worked


def test_a_file_and_a_folder_with_a_tokenizer_alone_give_its_vocabulary(tmp_path: Path) -> None:
    tokenizer = tiny.byte_level_bpe()
    tokenizer.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    expected = tokenizer.get_vocab()
    for place in (tmp_path, tmp_path / "tokenizer.json", str(tmp_path)):
        found = as_tokens(place, clustering=False)
        assert isinstance(found, Vocabulary) and found.size == len(expected) == vocabulary_of(None, tokenizer).size


def test_a_tokenizer_and_a_shipped_name_give_a_vocabulary_and_clusters_only_where_they_are_asked_for() -> None:
    tokenizer = tiny.byte_level_bpe()
    found = as_tokens(tokenizer)
    assert isinstance(found, Vocabulary) and found.fingerprint == vocabulary_of(None, tokenizer).fingerprint
    named, clusters = as_tokens("almanac"), as_tokens("almanac", clustering=True)
    assert isinstance(named, Vocabulary) and isinstance(clusters, TokenClusters)
    assert named.fingerprint == clusters.vocabulary.fingerprint
    other = as_tokens("smollm2", clustering=True)
    assert isinstance(other, TokenClusters) and other.vocabulary.size != named.size


@pytest.mark.parametrize("odd", [b"almanac", bytearray(b"almanac"), 5, ["almanac"]])
def test_what_names_no_tokens_is_refused(odd: object) -> None:
    with pytest.raises(
        InvalidInputError, match="A vocabulary is a Vocabulary, TokenClusters, a tokenizer, or the name"
    ):
        as_tokens(odd)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_folder_without_clusters_is_refused_and_so_is_one_of_an_unreadable_model(kind: type, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError):
        as_clusters(kind(tmp_path))
    with pytest.raises(ArtifactError):
        as_clusters(tmp_path / "nothing")
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SemtokenError):
        as_clusters(kind(tmp_path))


def test_clusters_are_taken_as_they_are_and_numbers_are_none() -> None:
    clusters = worked.clusters()
    assert as_clusters(clusters) is clusters and as_tokens(clusters) is clusters
    with pytest.raises(InvalidInputError, match="clusters"):
        as_clusters(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "told"),
    [("smolm2", r"neither a directory here nor found .*did you mean 'smollm2'"), ("./smollm3", "no directory")],
)
def test_a_name_that_is_nowhere_is_refused_before_transformers_looks_for_it(
    name: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would ask for a minute, and print each try."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda *_, **__: pytest.fail("it was asked"))
    for asked in (as_tokens, ScoredModel.from_pretrained):
        with pytest.raises(ModelError, match=told):
            asked(name)
