"""Damaged GGUF files and checkpoints: refused with an error of ours, or read; some hold no checksum."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from semtoken import ScoredModel
from semtoken.clustering.model_vocabulary import vocabulary_of
from semtoken.clustering.tables import token_table
from semtoken.errors import SemtokenError
from tests.gguf_model import small_checkpoint, write_gguf

FOREIGN = (
    *(b"", b"null", b"{}\n", b"[]\n", b"1e400", b"<!DOCTYPE html><html><body>502 Bad Gateway</body></html>"),
    *(b"\x80\x04cbuiltins\nexit\n(tR.", b"\xff\xfe\0\x80" * 64, bytes(4096), b"[" * 100_000),
)
"""What a wrong download, a failed copy or a mistake puts in the place of a file."""
HEADER = 6_000
"""Bytes at the beginning of a file that are damaged more often than its numbers."""


def damages(data: bytes, count: int) -> Iterator[bytes]:
    """A file with one changed byte, cut off, with more at its end, or another in its place."""
    chance = random.Random(0)
    for number in range(count):
        place = chance.randrange(min(len(data), HEADER) if number % 4 else len(data))
        yield data[:place] + bytes([data[place] ^ chance.choice((0x01, 0x20, 0x80))]) + data[place + 1 :]
    yield from (data[: chance.randrange(len(data))], data[:-1], data * 2, data + b"\0", *FOREIGN)


def must_end_well(read: Callable[[Any], Any], place: Path) -> None:
    with suppress(SemtokenError):
        read(place)


def loaded(place: Path) -> object:
    return ScoredModel.from_pretrained(str(place), device="cpu")


def test_a_damaged_gguf_file_is_refused_or_read(tmp_path: Path) -> None:
    whole = write_gguf(small_checkpoint(tmp_path / "checkpoint"), tmp_path / "small.gguf").read_bytes()
    path = tmp_path / "model.gguf"
    for damaged in damages(whole, 40):
        path.write_bytes(damaged)
        must_end_well(token_table, path)
        must_end_well(lambda place: vocabulary_of(str(place), None), path)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_refused_or_read(tmp_path: Path) -> None:
    folder = small_checkpoint(tmp_path / "checkpoint")
    for path in sorted(one for one in folder.iterdir() if one.is_file()):
        whole = path.read_bytes()
        for damaged in damages(whole, 15):
            path.write_bytes(damaged)
            for read in (token_table, lambda place: vocabulary_of(str(place), None), loaded):
                must_end_well(read, folder)
        path.write_bytes(whole)
