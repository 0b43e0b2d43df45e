"""Folders of strangers: what would fill the memory or never end is refused in a sentence, and soon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as some

import semtoken as st
from semtoken.bench.statistics.pairs import EntailmentModel
from semtoken.clustering.tables import token_table
from semtoken.errors import ModelError
from semtoken.support.checkpoints.strangers import check_template, growth
from tests import tiny
from tests.models.plain_pass import with_adapter

DOUBLING = {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 30}
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{{ messages[0]['content'] }}"
DOUBLES = "{% set n = namespace(x='x') %}{% for a in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}"


def folder(where: Path, name: str, change: Callable[[dict[str, Any]], None]) -> str:
    """A tiny Llama in a folder one of whose files was changed."""
    tokenizer = tiny.byte_level_bpe()
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    tiny.saved(tiny.llama(640), where, tokenizer)
    (where / "chat_template.jinja").unlink(missing_ok=True)
    content = json.loads((where / name).read_text())
    change(content)
    (where / name).write_text(json.dumps(content))
    return str(where)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("config.json", {"num_hidden_layers": 10**9}, "num_hidden_layers = 1,000,000,000"),
        ("config.json", {"hidden_size": 2**20, "intermediate_size": 2**20}, "belong to another model"),
        ("config.json", {"vocab_size": 10**10}, "belong to another model"),
        ("config.json", {"id2label": None, "num_labels": 10**9}, "num_labels"),
        ("tokenizer.json", {"normalizer": DOUBLING}, "1,073,741,824 times longer"),
        ("tokenizer_config.json", {"chat_template": DOUBLES}, "1 GiB of memory"),
        ("tokenizer_config.json", {"chat_template": LOOPS}, "2 seconds"),
    ],
)
def test_a_folder_that_would_fill_the_memory_is_refused(
    name: str, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    began = time.process_time()
    with pytest.raises(ModelError, match=said):
        st.ScoredModel.from_pretrained(folder(tmp_path, name, lambda content: content.update(changes)))
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    "template",
    ["{{ 'x' * 10**10 }}", "{{ 'x'.center(10**10) }}", "{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}"],
)
def test_a_template_that_writes_too_much_is_refused(template: str) -> None:
    with pytest.raises(ModelError, match="takes more than"):
        check_template("here", {"default": "fine", "tools": template})


@pytest.mark.parametrize(
    "template", ["{{ raise_exception('no system') }}", "{% generation %}a{% endgeneration %}", "{%"]
)
def test_a_template_that_refuses_the_messages_is_no_stranger(template: str) -> None:
    check_template("here", template)


REPLACED = some.builds(
    lambda pattern, put: {"type": "Replace", "pattern": pattern, "content": put},
    some.sampled_from(
        [
            {"String": "a"},
            {"String": "ab"},
            {"Regex": "a*"},
            {"Regex": "b"},
            {"Regex": "(?=a)"},
            {"Regex": r"\s+"},
            {"Regex": r"\b"},
        ]
    ),
    some.text("ab ", max_size=3),
)


@given(some.lists(REPLACED, max_size=4), some.text("ab ", min_size=1, max_size=20))
def test_no_text_grows_more_than_was_computed(steps: list[dict[str, Any]], text: str) -> None:
    chain = {"type": "Sequence", "normalizers": steps}
    held = tokenizers.Tokenizer(tokenizers.models.BPE())
    state = json.loads(held.to_str()) | {"normalizer": chain}
    grown = tokenizers.Tokenizer.from_str(json.dumps(state)).normalizer.normalize_str(text)
    # A pattern that matches nothing matches once more, at the end of the text.
    assert len(grown) + 1 <= growth(chain) * (len(text) + 1)


def test_encoders_of_meaning_are_bounded_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "num_hidden_layers": 1000000000}')
    with pytest.raises(ModelError, match="num_hidden_layers"):
        EntailmentModel.from_pretrained(str(tmp_path))


def long_header(path: Path) -> None:
    """A whole safetensors file whose header is 20 MB of metadata."""
    text = json.dumps({"__metadata__": {"note": "x" * 20_000_000}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)


@pytest.mark.parametrize("read", [lambda path: st.ScoredModel.from_pretrained(path), token_table])
def test_a_header_of_weights_that_fills_the_memory_is_refused(tmp_path: Path, read: Callable[[str], Any]) -> None:
    path = folder(tmp_path, "config.json", lambda content: None)
    long_header(tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors has a header of 20,000,\d\d\d bytes; at most 16 MiB"):
        read(path)


def test_an_adapter_or_its_base_with_such_a_header_is_refused(tmp_path: Path) -> None:
    base = folder(tmp_path / "base", "config.json", lambda content: None)
    adapted = with_adapter(tiny.llama(640), r=2, target_modules=["q_proj"], base_model_name_or_path=base)
    adapted.peft_config["default"].base_model_name_or_path = base
    tiny.saved(adapted, tmp_path / "adapter")
    for file in (tmp_path / "base" / "model.safetensors", tmp_path / "adapter" / "adapter_model.safetensors"):
        whole = file.read_bytes()
        long_header(file)
        with pytest.raises(ModelError, match="has a header of 20,000"):
            st.ScoredModel.from_pretrained(tmp_path / "adapter")
        file.write_bytes(whole)
    assert st.ScoredModel.from_pretrained(tmp_path / "adapter").score("a", ["b"])
