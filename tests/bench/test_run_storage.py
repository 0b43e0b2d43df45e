"""Shards and JSON of a run: whole or not at all, damaged ones are as good as missing; what is in them comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.bench.plan import PlannedClustering
from semtoken.bench.read_results import _examples
from semtoken.bench.run import LOG
from semtoken.bench.statistics.steps import STEPS
from semtoken.bench.storage import (
    columns_of,
    generations_of,
    is_prepared,
    is_shard,
    locked,
    pack_states,
    prepare_clustering,
    read_shard,
    remove_leftovers,
    shard_path,
    table_of,
    unpack_states,
    write_json,
    write_shard,
)
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.core.results.generation import Generation
from semtoken.errors import InvalidInputError
from semtoken.methods import eigenscore
from semtoken.support.files.temporary import WORKING
from tests import worked
from tests.bench.runs import same, start
from tests.known import known
from tests.methods.method_records import scattered
from tests.rows import each

KEY = "ab" * 32
TABLE = pyarrow.table({"id": ["a", "b", "c"], "log_probs": [[-0.5, -1.25], [], [-3.0]]})


def write(folder: Path) -> Path:
    write_shard(folder, 7, KEY, TABLE, {"greedy": 1.5, "likelihoods": 0.25})
    return shard_path(folder, 7)


def test_a_shard_comes_back_with_its_seconds(tmp_path: Path) -> None:
    write(tmp_path / "greedy")
    found = read_shard(tmp_path / "greedy", 7, KEY, 3)
    assert found is not None
    assert found.columns == TABLE.to_pydict()
    assert found.seconds == {"greedy": 1.5, "likelihoods": 0.25}
    assert [path.name for path in (tmp_path / "greedy").iterdir()] == ["00007.parquet"]


def test_a_shard_of_something_else_is_none(tmp_path: Path) -> None:
    write(tmp_path)
    assert read_shard(tmp_path, 7, "cd" * 32, 3) is None
    assert read_shard(tmp_path, 7, KEY, 4) is None
    assert read_shard(tmp_path, 6, KEY, 3) is None
    shard_path(tmp_path, 7).rename(shard_path(tmp_path, 6))  # copied to the place of another
    assert not is_shard(tmp_path, 6, KEY, 3)


def test_a_shard_cut_off_anywhere_is_none(tmp_path: Path) -> None:
    content = write(tmp_path).read_bytes()
    for length in range(0, len(content), 13):
        shard_path(tmp_path, 7).write_bytes(content[:length])
        assert not is_shard(tmp_path, 7, KEY, 3), length
    shard_path(tmp_path, 7).write_bytes(content)
    assert is_shard(tmp_path, 7, KEY, 3)


@each("garbage", [b"", b"PAR1", b"\0" * 4096, b"PAR1" + os.urandom(400) + b"PAR1"])
def test_garbage_is_none(tmp_path: Path, garbage: bytes) -> None:
    shard_path(tmp_path, 7).write_bytes(garbage)
    assert not is_shard(tmp_path, 7, KEY, 3)


NUMBERS = pyarrow.table({"id": [str(i) for i in range(200)], "value": np.random.default_rng(0).normal(size=200)})


@pytest.mark.parametrize(
    ("table", "damaged", "share"),
    [(NUMBERS, slice(None, None, 11), 0.5), (TABLE, slice(200, 700), 0.3)],
    ids=["numbers", "texts"],
)
def test_a_flipped_bit_never_gives_other_values(
    tmp_path: Path, table: pyarrow.Table, damaged: slice, share: float
) -> None:
    """Nor of another type: types of columns stand behind the pages, whose checksums do not cover them."""
    write_shard(tmp_path, 0, KEY, table, {})
    content = shard_path(tmp_path, 0).read_bytes()
    places, refused = range(len(content))[damaged], 0
    for place in places:
        flipped = content[place] ^ 1 << place % 8
        shard_path(tmp_path, 0).write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
        found = read_shard(tmp_path, 0, KEY, len(table))
        assert found is None or found.columns == table.to_pydict(), place
        refused += found is None
    assert refused > share * len(places)


def test_a_writer_that_fails_leaves_the_former_file(tmp_path: Path) -> None:
    write_json(tmp_path / "plan.json", {"a": 1})
    before = (tmp_path / "plan.json").read_bytes()
    with pytest.raises(TypeError):
        write_json(tmp_path / "plan.json", {"a": object()})
    assert (tmp_path / "plan.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_half_written_files_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    write(tmp_path / "stages" / "greedy-1")
    left = tmp_path / "stages" / "greedy-1" / f"{WORKING}0123-00001.parquet"
    left.write_bytes(b"PAR1")
    remove_leftovers(tmp_path)
    assert not left.exists()
    assert is_shard(tmp_path / "stages" / "greedy-1", 7, KEY, 3)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"00007\.parquet cannot be written"):
        write(tmp_path / "file" / "greedy")


def test_a_second_process_is_told_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from semtoken.bench.storage import locked\n"
    code += "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    try:
        with pytest.raises(InvalidInputError, match="Another run is at work"), locked(tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with locked(tmp_path):
        pass


# ---- records ----------------------------------------------------------------------------------------------------


def answer(seed: int) -> Generation:
    """A record of every field, with what is hard to keep: parts of characters, empty texts, -inf and tiny numbers."""
    return replace(
        scattered(),
        text="a naïve\nanswer 東",
        question="who?",
        distribution="raw",
        token_texts=["a", "\ufffd"],
        top_texts=[["a", ""], ["\ufffd"]],
        top_ids=[np.array([5, 1]), np.array([6])],
        top_log_probs=[np.array([-0.5, -np.inf]), np.array([-1e-300])],
        sample_texts=["x", "", " Bonn", " Nice", " Graz"],
        nli_logits=np.where(np.eye(5)[:, :, None] > 0, [-np.inf, -np.inf, 0.0], known(scattered().nli_logits)),
        hidden_states=np.random.default_rng(seed).normal(size=(5, 30)),
        stc_log_score=-np.inf,
    )


def test_every_field_comes_back_as_it_was(tmp_path: Path) -> None:
    before = [answer(seed) for seed in range(3)]
    names = {field.name for field in fields(Generation)} - {"question", "prompt", "distribution", "further"}
    assert before[0].recorded >= names
    groups = [columns_of(artifact) for artifact in dict.fromkeys(step.artifact for step in STEPS)]
    assert set().union(*groups) == names
    shards = []
    for number, group in enumerate(groups):
        table = table_of(["a", "b", "c"], [{name: getattr(one, name) for name in group} for one in before])
        write_shard(tmp_path, number, KEY, table, {})
        found = read_shard(tmp_path, number, KEY, 3)
        assert found is not None
        shards.append(found.columns)
    for one, two in zip(before, generations_of(["who?"] * 3, shards), strict=True):
        for name in names - {"hidden_states"}:
            assert same(getattr(one, name), getattr(two, name)), name
        assert two.hidden_states is not None and two.hidden_states.shape == (5, 30)
        for variant in ("cov_over_d_minus_1_log10", "gram_no_division_ln"):
            expected = eigenscore(known(one.hidden_states), variant=variant)
            assert eigenscore(two.hidden_states, variant=variant) == pytest.approx(expected, rel=1e-12)


def test_samples_alone_are_a_record() -> None:
    columns: dict[str, list[Any]] = {
        "id": ["a"],
        "sample_texts": [["x"]],
        "sample_token_ids": [[[1]]],
        "sample_log_probs": [[[-1.0]]],
    }
    (found,) = generations_of(["q"], [columns])
    assert found.sample_texts == ["x"] and found.hidden_states is None


@given(
    samples=st.integers(1, 7),
    features=st.integers(2, 40),
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
    repeated=st.booleans(),
    seed=st.integers(0, 99),
)
def test_packed_states_have_the_same_products_and_few_numbers(
    samples: int, features: int, scale: float, repeated: bool, seed: int
) -> None:
    states = scale * np.random.default_rng(seed).normal(loc=3.0, size=(1 if repeated else samples, features))
    states = np.repeat(states, samples, axis=0) if repeated else states
    packed = pack_states(states)
    assert packed.size <= samples * samples
    centered = states - states.mean(axis=1, keepdims=True)
    unpacked = unpack_states(packed, features)
    assert unpacked.shape == states.shape
    np.testing.assert_allclose(unpacked.mean(axis=1), 0.0, atol=1e-10 * scale)
    np.testing.assert_allclose(unpacked @ unpacked.T, centered @ centered.T, rtol=1e-8, atol=1e-8 * scale**2)
    assert eigenscore(unpacked) == pytest.approx(eigenscore(states), abs=1e-9)


@each("config", [b"", b"{", b"[]", b'{"format": "another"}'])
def test_a_clustering_of_the_run_whose_config_is_damaged_is_made_again(tmp_path: Path, config: bytes) -> None:
    saved = tmp_path / "saved"
    worked.clusters().save_pretrained(saved)
    planned = PlannedClustering("main", {"of": "this test"}, str(saved), {})
    prepare_clustering(tmp_path, None, planned)  # type: ignore[arg-type]
    (planned.folder(tmp_path) / "config.json").write_bytes(config)
    assert not is_prepared(tmp_path, planned)
    prepare_clustering(tmp_path, None, planned)  # type: ignore[arg-type]
    assert is_prepared(tmp_path, planned)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_log_that_a_full_disk_does_not_take_stops_no_run_and_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (run := tmp_path / "run").mkdir()
    (run / LOG).symlink_to("/dev/full")
    settings = {"models": ["almanac"], "datasets": ["almanac"], "methods": ["perplexity"], "limit": 2}
    assert start(settings, run) == []
    assert "Traceback" not in capfd.readouterr().err


def test_the_clusters_that_are_shown_hold_other_tokens_too() -> None:
    assert list(_examples(worked.clusters())) == [("TV", " television", " tele")]
    alone = np.arange(len(worked.TOKENS), dtype=np.int32)
    assert list(_examples(TokenClusters(alone, worked.vocabulary()))) == []
