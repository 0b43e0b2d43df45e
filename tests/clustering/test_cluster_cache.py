"""Clusters are made once for a model and found again; what differs is made again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semtoken.clustering import cache
from semtoken.clustering.cache import clusters_for_model
from semtoken.clustering.partition import cluster_table
from semtoken.clustering.token_clusters import ClusterSettings, TokenClusters
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.errors import InvalidInputError
from tests import tiny
from tests.artifacts import COMMIT

K30 = ClusterSettings(n_clusters=30)


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the clusterings that really run."""
    made: list[int] = []

    def counting(table: Any, n_clusters: int, **kwargs: Any) -> Any:
        made.append(n_clusters)
        return cluster_table(table, n_clusters, **kwargs)

    monkeypatch.setattr("semtoken.clustering.token_clusters.cluster_table", counting)
    return made


TOKENIZER = tiny.byte_level_bpe()
SIZE = len(TOKENIZER)


def entries() -> list[Path]:
    return sorted(cache.directory().iterdir())


def clusters_of(model: Any, *, settings: ClusterSettings = K30, **options: Any) -> TokenClusters:
    return clusters_for_model(model, TOKENIZER, settings=settings, **options)


def test_the_second_call_finds_what_the_first_made(runs: list[int], tmp_path: Path) -> None:
    model = tiny.llama(SIZE)
    first = clusters_of(model)
    model.save_pretrained(tmp_path / "saved")
    for same in (tiny.llama(SIZE), tmp_path / "saved"):  # the same weights in another object, and in files
        found = clusters_of(same)
        np.testing.assert_array_equal(found.labels, first.labels)
        assert found.signature == first.signature
    clusters_of(model, settings=ClusterSettings(n_clusters=30, seed=5))  # a hierarchy has no seed
    assert runs == [30]


def test_whatever_differs_is_made_again(runs: list[int]) -> None:
    model = tiny.llama(SIZE)
    calls: list[tuple[Any, dict[str, Any]]] = [
        (model, {}),
        (model, {"settings": ClusterSettings(n_clusters=31)}),
        (model, {"settings": ClusterSettings(n_clusters=30, linkage="average")}),
        (model, {"settings": ClusterSettings(n_clusters=30, embedding="input")}),
        (model, {"stopwords": ["Paris"]}),
        (tiny.llama(SIZE, seed=1), {}),
        (tiny.llama(SIZE + 1), {}),
    ]
    for target, options in calls:
        clusters_of(target, **options)
    assert len(runs) == len(calls) == len(entries())
    expected = Vocabulary.from_tokenizer(TOKENIZER).fingerprint
    assert {clusters_of(target, **options).vocabulary.fingerprint for target, options in calls} == {expected}
    assert len(runs) == len(calls)


def test_a_hub_id_is_found_without_its_weights(runs: list[int], hub_cache: Callable[[str], Path]) -> None:
    snapshot = hub_cache("someone/model")
    tiny.llama(SIZE).save_pretrained(snapshot)
    made = clusters_of("someone/model")
    assert (made.provenance["hub_id"], made.provenance["commit"]) == ("someone/model", COMMIT)
    (snapshot / "model.safetensors").unlink()
    found = clusters_of("someone/model")
    np.testing.assert_array_equal(found.labels, made.labels)
    assert runs == [30]


@pytest.mark.parametrize("name", ["clusters.safetensors", "config.json"])
def test_a_damaged_entry_is_made_again(runs: list[int], name: str, caplog: pytest.LogCaptureFixture) -> None:
    model = tiny.llama(SIZE)
    clusters_of(model)
    [entry] = entries()
    file = entry / name
    file.write_bytes(file.read_bytes()[:50])
    with caplog.at_level(logging.WARNING, logger="semtoken"):
        clusters_of(model)
    assert runs == [30, 30]
    if name == "clusters.safetensors":
        assert "passed over" in caplog.text
    clusters_of(model)
    assert runs == [30, 30]


def test_a_cache_that_cannot_be_written_is_only_warned_about(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    own_cache.write_text("a file where the directory should be")
    with caplog.at_level(logging.WARNING, logger="semtoken"):
        made = clusters_of(tiny.llama(SIZE))
    assert made.n_clusters == 30
    assert "are not kept" in caplog.text


def test_the_clusters_kept_for_a_model_are_its_newest_whole_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = str(tiny.saved(tiny.llama(SIZE), tmp_path / "model"))
    with pytest.raises(InvalidInputError, match="Make some with: semtoken cluster make"):
        cache.kept_for(model)
    kinds = ClusterSettings(30, embedding="input"), ClusterSettings(31, embedding="output")
    made = [clusters_of(model, settings=settings) for settings in kinds]
    for year, clusters in zip((2021, 2020), made, strict=True):
        cache.store(replace(clusters, provenance={**clusters.provenance, "created": str(year)}))
    other = clusters_of(tiny.llama(SIZE, seed=1))
    (cache.directory() / cache.entry_name(other) / "clusters.safetensors").write_bytes(b"cut")
    assert cache.kept_for(model).n_clusters == 30
    assert not caplog.text  # nothing is wrong with what was asked for
    (cache.directory() / cache.entry_name(made[0]) / "clusters.safetensors").write_bytes(b"cut")
    assert cache.kept_for(model).n_clusters == 31
    assert "passed over" in caplog.text


def test_clusters_of_ones_own_can_be_stored() -> None:
    vocabulary = Vocabulary.from_tokenizer(TOKENIZER)
    for seed in (0, 1):
        labels = np.random.default_rng(seed).permutation(vocabulary.size).astype(np.int32)
        cache.store(TokenClusters(labels, vocabulary, {"model": "../my model", "created": f"202{seed}"}))
    assert [path.name[:10] for path in entries()] == ["my-model-k", "my-model-k"]


def test_the_usual_place_is_the_users_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    monkeypatch.delenv("SEMTOKEN_CACHE")
    assert Path(platformdirs.user_cache_dir("semtoken", appauthor=False)) in cache.directory().parents
