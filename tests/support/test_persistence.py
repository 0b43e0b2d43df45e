"""A folder is written whole or not at all, and a damaged one is refused with one clear message."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semtoken.errors import ArtifactError, InvalidInputError
from semtoken.support.files import artifacts
from tests.artifacts import checksum

ARRAYS = {"labels": np.arange(7, dtype=np.int32), "none": np.empty(0, np.uint8)}
CONFIG = {"n_clusters": 7, "provenance": {"model": "größe"}}


def save(path: Path, **config: Any) -> Path:
    return artifacts.save(path, ARRAYS, {**CONFIG, **config}, "# Card\n")


def rewrite(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    folder = save(tmp_path / "deep" / "folder")
    loaded = artifacts.load(folder)
    assert {name: (a.dtype, a.tolist()) for name, a in loaded.arrays.items()} == {
        name: (a.dtype, a.tolist()) for name, a in ARRAYS.items()
    }
    assert loaded.config["provenance"] == {"model": "größe"}
    assert loaded.config["format_version"] == 2
    assert sorted(os.listdir(folder)) == ["README.md", "clusters.safetensors", "config.json"]
    assert (folder / "README.md").read_text() == "# Card\n"


def test_a_folder_of_ours_is_replaced_and_nothing_else_is_left_behind(tmp_path: Path) -> None:
    folder = save(tmp_path / "clusters", n_clusters=1)
    save(folder, n_clusters=2)
    assert artifacts.load(folder).config["n_clusters"] == 2
    assert os.listdir(tmp_path) == ["clusters"]


def test_an_empty_directory_is_used(tmp_path: Path) -> None:
    save(tmp_path)
    assert artifacts.load(tmp_path).config["n_clusters"] == 7


def test_a_failed_write_leaves_the_old_folder_as_it_was(tmp_path: Path) -> None:
    folder = save(tmp_path / "clusters", n_clusters=1)
    with pytest.raises(TypeError):
        save(folder, n_clusters={1})  # JSON has no sets: fails after the arrays are written
    assert artifacts.load(folder).config["n_clusters"] == 1
    assert os.listdir(tmp_path) == ["clusters"]


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InvalidInputError, match=r"thesis\.tex.*would be lost"):
        save(tmp_path)
    folder = save(tmp_path / "clusters")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match=r"notes\.txt"):
        save(folder)
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_config_of_another_program_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(InvalidInputError, match="not written by semtoken"):
        save(tmp_path)
    with pytest.raises(ArtifactError, match="of another kind"):
        artifacts.load(tmp_path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InvalidInputError, match="it is a file"):
        save(file)
    with pytest.raises(InvalidInputError, match=r"Cannot write .*(Not a directory|exists)"):
        save(file / "below")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_a_place_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InvalidInputError, match="Permission denied"):
        save(tmp_path / "clusters")
    tmp_path.chmod(0o700)


def test_writers_at_the_same_time_leave_one_whole_folder(tmp_path: Path) -> None:
    target = tmp_path / "clusters"
    failures: list[Exception] = []

    def write(number: int) -> None:
        try:
            for _ in range(10):
                save(target, n_clusters=number)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert artifacts.load(target).config["n_clusters"] in range(4)
    assert os.listdir(tmp_path) == ["clusters"]


@pytest.mark.parametrize("cut", [0, 5, 60, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, cut: int) -> None:
    folder = save(tmp_path / "clusters")
    file = folder / "clusters.safetensors"
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(ArtifactError, match="damaged or incomplete"):
        artifacts.load(folder)


def test_bytes_that_are_no_safetensors_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "clusters")
    junk = b"\x08\0\0\0\0\0\0\0not json"
    (folder / "clusters.safetensors").write_bytes(junk)
    rewrite(folder, sha256=hashlib.sha256(junk).hexdigest())
    rewrite(folder, config_sha256=checksum(folder))
    with pytest.raises(ArtifactError, match="not a readable safetensors"):
        artifacts.load(folder)


@pytest.mark.parametrize("name", ["clusters.safetensors", "config.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder = save(tmp_path / "clusters")
    (folder / name).unlink()
    with pytest.raises(ArtifactError, match=name):
        artifacts.load(folder)


def test_a_config_that_is_no_json_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "clusters")
    (folder / "config.json").write_text('{"format": ')
    with pytest.raises(ArtifactError, match="not valid JSON"):
        artifacts.load(folder)
    (folder / "config.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ArtifactError, match="not valid JSON"):
        artifacts.load(folder)


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "clusters")
    rewrite(folder, format_version=99)
    with pytest.raises(ArtifactError, match=r"format version 99.*reads version 2"):
        artifacts.load(folder)


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no directory"):
        artifacts.load(tmp_path / "missing")
    with pytest.raises(ArtifactError, match="no directory"):
        artifacts.load("./a/b/c")
    file = tmp_path / "clusters.safetensors"
    file.write_text("")
    with pytest.raises(ArtifactError, match="is a file"):
        artifacts.load(file)


def test_a_hub_id_is_read_from_the_local_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--someone--clusters"
    save(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert artifacts.load("someone/clusters").config["n_clusters"] == 7
    with pytest.raises(ArtifactError, match="the hub did not give it"):
        artifacts.load("someone/else")


def test_a_hub_that_cannot_be_reached_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ArtifactError, match="Cannot upload to 'someone/clusters'"):
        artifacts.push("someone/clusters", ARRAYS, CONFIG, "# Card\n", token="none")


def test_nothing_changes_in_a_config_unseen(tmp_path: Path) -> None:
    folder = save(tmp_path / "clusters")
    assert json.loads((folder / "config.json").read_text())["config_sha256"] == checksum(folder)
    for changes in ({"n_clusters": 8}, {"provenance": {}}, {"more": 1}, {"config_sha256": "0" * 64}):
        folder = save(tmp_path / "clusters")
        rewrite(folder, **changes)
        with pytest.raises(ArtifactError, match=r"config\.json is damaged"):
            artifacts.load(folder)
        with pytest.raises(ArtifactError, match=r"config\.json is damaged"):
            artifacts.read_config(folder)


@pytest.mark.parametrize("text", ['{"format": "semtoken.clusters", "a": "\\ud800"}', "[" * 100_000, '{"a": NaN}'])
def test_json_that_only_python_reads_is_refused(tmp_path: Path, text: str) -> None:
    folder = save(tmp_path / "clusters")
    (folder / "config.json").write_text(text)
    with pytest.raises(ArtifactError, match="not valid JSON"):
        artifacts.load(folder)


def test_a_folder_without_a_config_has_one_error(tmp_path: Path) -> None:
    folder = save(tmp_path / "clusters")
    (folder / "config.json").unlink()
    with pytest.raises(ArtifactError, match=r"^\S+ holds no clusters: the file config\.json is missing\.$"):
        artifacts.read_config(folder)


def test_every_byte_changed_once(tmp_path: Path) -> None:
    """No damaged folder loads as anything else than what was saved."""
    folder = save(tmp_path / "clusters")
    saved = artifacts.load(folder)
    refused = 0
    for name in ("config.json", "clusters.safetensors"):
        whole = (folder / name).read_bytes()
        for place, flip in zip(range(len(whole)), itertools.cycle((0x01, 0x20, 0x80))):
            (folder / name).write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
            try:
                found = artifacts.load(folder)
            except ArtifactError:
                refused += 1
            else:
                assert found.config == saved.config, place
                assert all(np.array_equal(found.arrays[key], saved.arrays[key]) for key in ARRAYS), place
        (folder / name).write_bytes(whole)
    assert refused > 400
