"""Where the vocabulary of a score comes from."""

from __future__ import annotations

from pathlib import Path

from semtoken.clusters import vocabulary_of
from semtoken.scoring.scorer import as_tokens
from tests import tiny


def test_a_file_and_a_folder_with_a_tokenizer_alone_give_its_vocabulary(tmp_path: Path) -> None:
    tokenizer = tiny.byte_level_bpe()
    tokenizer.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    expected = tokenizer.get_vocab()
    for place in (tmp_path, tmp_path / "tokenizer.json", str(tmp_path)):
        found = as_tokens(place, clustering=False)
        assert found.size == len(expected) == vocabulary_of(None, tokenizer).size
