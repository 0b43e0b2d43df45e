from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from semtoken import TokenClusters
from semtoken.cli.cluster import parse_bytes
from semtoken.clustering import cache
from semtoken.clustering.model_vocabulary import vocabulary_of
from semtoken.errors import InvalidInputError
from tests.cli.conftest import RunCommand, assert_told
from tests.json_lines import read_lines


def test_made_kept_and_shown(semtoken: RunCommand, model: str) -> None:
    made = semtoken("cluster", "make", model, "-k", 100)
    assert made.exit_code == 0, made.output
    assert "100 clusters" in made.stdout and "seconds" in made.stdout and "hold one token" in made.stdout
    [entry] = cache.directory().iterdir()
    assert TokenClusters.from_pretrained(entry).n_clusters == 100
    shown = semtoken("cluster", "show", "Paris", "--model", model)
    assert shown.exit_code == 0 and "cluster of" in shown.stdout
    shutil.rmtree(entry)
    assert_told(semtoken("cluster", "show", "Paris", "--model", model), "Make some with: semtoken cluster")


def test_a_cache_that_takes_no_clusters_is_found_before_the_work(
    semtoken: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were made, in up to an hour, and then kept nowhere."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "file"))
    # The model, which would be looked for next, is not there either.
    assert_told(semtoken("cluster", "make", "no-such-model"), "clusters cannot be written: Not a directory.")


def test_several_numbers_go_into_a_folder_each(semtoken: RunCommand, model: str, tmp_path: Path) -> None:
    target = tmp_path / "made"
    result = semtoken("cluster", "make", model, "-o", target, "-k", 50, "-k", 80)
    assert result.exit_code == 0, result.output
    for k in (50, 80):
        assert TokenClusters.from_pretrained(target / f"k{k}").n_clusters == k


def test_only_the_very_same_clusters_are_replaced(semtoken: RunCommand, model: str, tmp_path: Path) -> None:
    """The others took an hour, perhaps."""
    target = tmp_path / "made"
    made = ("cluster", "make", model, "-o", target)
    for _ in range(2):
        assert semtoken(*made, "-k", 50).exit_code == 0
    assert_told(semtoken(*made, "-k", 60), f"{target} holds clusters of another model", "|k:50|")
    assert_told(semtoken("cluster", "make", "almanac", "-o", target, "-k", 50), f"{target} holds clusters of another")
    own = vocabulary_of(model, None)
    respelled = replace(own, texts=("other", *own.texts[1:]))
    for tokenizer in (respelled, vocabulary_of(model, None, stopwords=["Paris"])):
        TokenClusters.from_model(model, tokenizer, n_clusters=50).save_pretrained(target)
        assert_told(semtoken(*made, "-k", 50), f"{target} holds clusters of another model or tokenizer, or made")
        TokenClusters.from_pretrained(target, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "its content does not match its own checksum"),
        ({"format_version": 1}, "has format version 1; this release reads version 2"),
    ],
)
def test_clusters_that_cannot_be_read_stay_and_the_reason_is_said(
    config: dict[str, Any], said: str, semtoken: RunCommand, model: str, clusters: str, tmp_path: Path
) -> None:
    shutil.copytree(clusters, tmp_path / "made")
    file = tmp_path / "made" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"signature": "none"} | config))
    before = file.read_bytes()
    refused = semtoken("cluster", "make", model, "-o", tmp_path / "made", "-k", 50)
    assert_told(refused, said, "Choose another folder, or delete this one. Nothing was written.")
    assert file.read_bytes() == before


def test_no_number_is_worked_at_if_another_is_too_large(semtoken: RunCommand, model: str, tmp_path: Path) -> None:
    refused = semtoken("cluster", "make", model, "-o", tmp_path / "made", "-k", 50, "-k", 16_000)
    assert_told(refused, "n_clusters must be between 1 and", "16,000")
    assert not (tmp_path / "made").exists()


def test_the_preset_default_takes_no_clustering(
    semtoken: RunCommand, model: str, clusters: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is made or kept, and clusters that would have no effect are refused."""
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "cache"))
    asked = ("ask", "who is it", "--model", model, "--json", "--max-tokens", 4)
    [without] = read_lines(semtoken(*asked).stdout)
    assert not (tmp_path / "cache" / "clusters").exists()
    assert set(without["uncertainty_under"]) == {"surface", "exact"}
    refused = semtoken(*asked, "--clusters", clusters)
    assert refused.exit_code == 2 and "--clusters has no effect without --preset paper" in refused.stderr


class TestErrors:
    def test_no_such_clusters(self, semtoken: RunCommand, tmp_path: Path) -> None:
        assert_told(semtoken("cluster", "show", "a", "--clusters", tmp_path / "none"), "none")

    def test_a_target_that_holds_other_things(self, semtoken: RunCommand, model: str, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("precious")
        assert_told(semtoken("cluster", "make", model, "-o", tmp_path), "holds other files")
        assert_told(semtoken("cluster", "make", model, "-o", tmp_path / "thesis.tex"), "is a file")
        assert_told(semtoken("cluster", "make", model, "-o", tmp_path / "thesis.tex" / "x"), "cannot be written")
        assert (tmp_path / "thesis.tex").read_text() == "precious"

    def test_a_file_among_clusters_is_found_before_the_work(
        self, semtoken: RunCommand, clusters: str, tmp_path: Path
    ) -> None:
        """Clustering takes up to an hour; here not even the model is looked for."""
        shutil.copytree(clusters, tmp_path / "mine")
        (tmp_path / "mine" / "notes.txt").write_text("precious")
        assert_told(semtoken("cluster", "make", "no-such-model", "-o", tmp_path / "mine"), "notes.txt", "would be lost")
        assert (tmp_path / "mine" / "notes.txt").read_text() == "precious"

    def test_too_many_clusters(self, semtoken: RunCommand, model: str) -> None:
        assert_told(
            semtoken("cluster", "make", model, "--n-clusters", 16_000), "n_clusters must be between 1 and", "16,000"
        )

    def test_a_table_too_large_for_the_memory(self, semtoken: RunCommand, model: str) -> None:
        assert_told(semtoken("cluster", "make", model, "-k", 50, "--memory-budget", "1K"), "memory")


@pytest.mark.parametrize(
    ("text", "size"), [("8G", 8 * 2**30), ("1.5 GiB", 3 * 2**29), ("512mb", 2**29), ("2T", 2**41), ("100", 100)]
)
def test_sizes_of_memory(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1G", "0G", "8X"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(InvalidInputError, match="must be a size such as 8G"):
        parse_bytes(text)
