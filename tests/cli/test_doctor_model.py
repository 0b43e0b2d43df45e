"""`semtoken doctor --model`: which ways of reading a model of this machine are equal to a plain pass."""

from __future__ import annotations

import json
from pathlib import Path

from tests import tiny
from tests.cli.conftest import RunCommand


def test_a_model_of_this_machine_is_examined(semtoken: RunCommand, tmp_path: Path) -> None:
    tiny.llama(640).save_pretrained(tmp_path)
    tiny.byte_level_bpe().save_pretrained(tmp_path)
    found = json.loads(semtoken("doctor", "--model", tmp_path, "--json").stdout)
    assert found["padded"] and found["generates"] == "padded" and found["tokens"] <= 60
    shown = semtoken("doctor", "--model", tmp_path).stdout
    assert "transformers' generate: in batches of any lengths" in shown
    assert "images in messages: not read" in shown
