"""Arrays of replies in one file, read piece by piece and in any compression by gzip."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.replies.checking import rank_replies
from semtoken.replies.checking.finding import OpenedReplies
from semtoken.support.files import elements
from semtoken.support.files.elements import Elements
from tests.replies.test_check import SURE, TORN, reply

VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.lists(VALUES, max_size=6), st.sampled_from([None, 1]), st.booleans(), st.integers(1, 9))
def test_elements_are_those_of_the_whole_array(values: list[Any], indent: int | None, plain: bool, size: int) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=plain)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(elements, "PIECE", size)
        found = Elements(io.BytesIO(f" {text}\n".encode()))
        assert [json.loads(one) for one in found] == values and found.is_whole
        broken = Elements(io.BytesIO(text[:-1].encode()))
        known = [json.loads(one) for one in broken]
        assert known == values[: len(known)] and not broken.is_whole


@pytest.mark.parametrize("text", ["[1 2]", "[1,2", "[1,]", "[{]", "[1] 2", "["])
def test_what_is_no_array_is_not_whole(text: str) -> None:
    found = Elements(io.BytesIO(text.encode()))
    assert all(one in "12" for one in found) and not found.is_whole


def test_a_large_array_is_read_in_the_memory_of_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of replies, in pieces of 32 KiB."""
    monkeypatch.setattr(elements, "PIECE", 2**15)
    items = [(f" word{i}", -0.5) for i in range(30)]
    line = json.dumps(reply(items, others={i: [(f" o{i}{k}", -2.0 - k) for k in range(9)] for i in range(30)}))
    count = 1_000_000 // len(line)
    path = tmp_path / "all.json"
    path.write_text(f"[{', '.join([line] * count)}]")
    tracemalloc.start()
    try:
        assert sum(1 for _ in OpenedReplies([str(path)])) == count
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 500_000, f"{peak:,} bytes"


@pytest.mark.parametrize(
    "content", [json.dumps([SURE, TORN]), f"{json.dumps(SURE)}\n{json.dumps(TORN)}\n", json.dumps(SURE)]
)
def test_compressed_files_are_read_as_they_are(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(content.encode()))
    plain = tmp_path / "plain.json"
    plain.write_text(content)
    texts = sorted(one.text for one in rank_replies([str(plain)]).answers)
    found = rank_replies([str(tmp_path)])
    assert sorted(one.text for one in found.answers) == sorted(texts * 2) and not found.passed_over


def test_what_cannot_be_unpacked_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(SURE))
    (tmp_path / "b.json").write_bytes(b"PK\x03\x04rest")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b"x" * 1000)[:-12])
    reasons = {Path(one.where).name: one.reason for one in rank_replies([str(tmp_path)]).refused}
    assert "compressed (zip)" in reasons["b.json"] and "gzip is broken" in reasons["c.jsonl.gz"]


def test_an_array_that_is_cut_off_gives_what_it_holds_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    path.write_text(json.dumps([SURE, TORN, SURE])[:-40])
    found = rank_replies([str(path)])
    assert len(found.answers) == 2 and "after element 2" in found.refused[0].reason
