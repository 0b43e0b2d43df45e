"""A folder is written whole or not at all, and a damaged one is refused with one clear message."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semtoken.errors import ArtifactError, InvalidInputError
from semtoken.support.files import artifacts
from tests.artifacts import change_config, checksum

ARRAYS: dict[str, np.ndarray[Any, Any]] = {"labels": np.arange(7, dtype=np.int32), "none": np.empty(0, np.uint8)}
CONFIG = {"n_clusters": 7, "provenance": {"model": "größe"}}


def save(path: Path, **config: Any) -> Path:
    return artifacts.save(path, ARRAYS, {**CONFIG, **config}, "# Card\n")


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    folder = save(tmp_path / "deep" / "folder")
    loaded = artifacts.load(folder)
    assert {name: (a.dtype, a.tolist()) for name, a in loaded.arrays.items()} == {
        name: (a.dtype, a.tolist()) for name, a in ARRAYS.items()
    }
    assert loaded.config["provenance"] == {"model": "größe"}
    assert loaded.config["format_version"] == 2 and loaded.config["config_sha256"] == checksum(folder)
    assert sorted(os.listdir(folder)) == ["README.md", "clusters.safetensors", "config.json"]
    assert (folder / "README.md").read_text() == "# Card\n"


def test_an_empty_folder_and_one_of_ours_are_replaced_unless_that_fails(tmp_path: Path) -> None:
    folder = tmp_path / "clusters"
    folder.mkdir()
    for n in (1, 2):
        save(folder, n_clusters=n)
        assert artifacts.load(folder).config["n_clusters"] == n
    with pytest.raises(TypeError):
        save(folder, n_clusters={1})  # JSON has no sets: fails after the arrays are written
    assert artifacts.load(folder).config["n_clusters"] == 2
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


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InvalidInputError, match="it is a file"):
        save(file)
    with pytest.raises(InvalidInputError, match=r"Cannot write .*(Not a directory|exists)"):
        save(file / "below")


@pytest.mark.parametrize("there", [False, True], ids=["new", "empty"])
def test_a_place_without_permission_is_found_before_the_work(there: bool, tmp_path: Path) -> None:
    """A folder that is there is replaced as a whole, which takes writing beside it."""
    target = tmp_path / "clusters"
    if there:
        target.mkdir()
    tmp_path.chmod(0o500)
    try:
        if os.access(tmp_path, os.W_OK):
            pytest.skip("permissions do not bind this user")
        for attempt in (artifacts.check_target, save):
            with pytest.raises(InvalidInputError, match="clusters cannot be written: Permission denied"):
                attempt(target)
    finally:
        tmp_path.chmod(0o700)


def test_writers_at_the_same_time_leave_one_whole_folder(tmp_path: Path) -> None:
    target = tmp_path / "clusters"

    def write(number: int) -> None:
        for _ in range(10):
            save(target, n_clusters=number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert artifacts.load(target).config["n_clusters"] in range(4)
    assert os.listdir(tmp_path) == ["clusters"]


def test_bytes_that_are_no_safetensors_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "clusters")
    junk = b"\x08\0\0\0\0\0\0\0not json"
    (folder / "clusters.safetensors").write_bytes(junk)
    change_config(folder, lambda config: config.update(sha256=hashlib.sha256(junk).hexdigest()))
    with pytest.raises(ArtifactError, match="not a readable safetensors"):
        artifacts.load(folder)


NO_JSON = ('{"format": ', b"\xff\xfe", '{"format": "semtoken.clusters", "a": "\\ud800"}', "[" * 100_000, '{"a": NaN}')
CHANGES: list[dict[str, Any]] = [{"n_clusters": 8}, {"provenance": {}}, {"more": 1}, {"config_sha256": "0" * 64}]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *((content, "not valid JSON") for content in NO_JSON),
        *((content, r"config\.json is damaged") for content in CHANGES),
        ({"format_version": 99}, r"format version 99.*reads version 2"),
        ('{"model_type": "llama"}', "of another kind"),
        (None, r"^\S+ holds no clusters: the file config\.json is missing\.$"),
    ],
)
def test_a_config_that_is_another_is_refused(tmp_path: Path, content: Any, said: str) -> None:
    folder = save(tmp_path / "clusters")
    file = folder / "config.json"
    if isinstance(content, dict):
        content = json.dumps(json.loads(file.read_text()) | content)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    for read in (artifacts.load, artifacts.read_config):
        with pytest.raises(ArtifactError, match=said):
            read(folder)


def test_a_folder_without_its_arrays_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "clusters")
    (folder / "clusters.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"the file clusters\.safetensors is missing"):
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


def test_a_hub_id_is_read_from_the_local_hub_cache(hub_cache: Callable[[str], Path]) -> None:
    save(hub_cache("someone/clusters"))
    assert artifacts.load("someone/clusters").config["n_clusters"] == 7
    with pytest.raises(ArtifactError, match="the hub did not give it"):
        artifacts.load("someone/else")


def test_a_hub_that_cannot_be_reached_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ArtifactError, match="Cannot upload to 'someone/clusters'"):
        artifacts.push("someone/clusters", ARRAYS, CONFIG, "# Card\n", token="none")


def test_every_byte_changed_once_and_cut_off_files(tmp_path: Path) -> None:
    """No damaged folder loads as anything else than what was saved."""
    folder = save(tmp_path / "clusters")
    saved = artifacts.load(folder)
    refused = 0
    for name in ("config.json", "clusters.safetensors"):
        whole = (folder / name).read_bytes()
        flips = zip(range(len(whole)), itertools.cycle((0x01, 0x20, 0x80)))
        changed = [whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :] for place, flip in flips]
        for damaged in [*changed, *(whole[:length] for length in (0, 5, 60, -1))]:
            (folder / name).write_bytes(damaged)
            try:
                found = artifacts.load(folder)
            except ArtifactError as error:
                assert re.search("damaged or incomplete|of another kind|format version", str(error))
                refused += 1
            else:
                assert found.config == saved.config
                assert all(np.array_equal(found.arrays[key], saved.arrays[key]) for key in ARRAYS)
        (folder / name).write_bytes(whole)
    assert refused > 400
