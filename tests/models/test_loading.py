"""Models that are loaded are whole: folders that lack weights, hold others, or belong to another kind of model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import semtoken as st
from semtoken.errors import ModelError
from tests import tiny
from tests.rows import each

SMALL = {"vocab_size": 640, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
BART = SMALL | {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}


ONE = "model.layers.1.mlp.up_proj.weight"


def rename(weights: dict[str, torch.Tensor]) -> None:
    for name in [name for name in weights if name.startswith("model.layers.1")]:
        weights[f"other.{name}"] = weights.pop(name)


@each(
    ("change", "said"),
    [
        (lambda weights: weights.pop(ONE), f"lack {re.escape(ONE)}"),
        (rename, r"lack model\.layers\.1\..* and \d more and hold besides other\.model"),
        (lambda weights: weights.update({"model.norm.weight": torch.ones(3)}), r"another shape model\.norm\.weight"),
    ],
)
def test_a_folder_of_other_weights_is_refused_by_their_names(tmp_path: Path, change: Any, said: str) -> None:
    """Also where transformers was asked to ignore shapes that do not match."""
    folder = tiny.saved(tiny.llama(640), tmp_path)
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=said):
        st.ScoredModel.from_pretrained(folder, ignore_mismatched_sizes=True)


T5 = {"vocab_size": 640, "d_model": 8, "d_ff": 8, "num_layers": 1, "num_heads": 1}
TROCR = {"vocab_size": 640, "d_model": 16, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 16}
VIT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 32}


def scans_to_text() -> Any:
    encoder = transformers.ViTModel(transformers.ViTConfig(**VIT))
    decoder = transformers.TrOCRForCausalLM(transformers.TrOCRConfig(**TROCR))
    return transformers.VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)


@pytest.mark.parametrize(
    "make",
    [
        lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(**BART)),
        lambda: transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**BART, pad_token_id=1)),
        lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)),
        scans_to_text,
    ],
)
def test_an_encoder_decoder_is_refused_in_one_sentence(tmp_path: Path, make: Any) -> None:
    model = make()
    with pytest.raises(ModelError, match=r"is an encoder-decoder.*semtoken scores decoder-only") as of_object:
        st.ScoredModel(model, tiny.byte_level_bpe())
    with pytest.raises(ModelError, match=r"is an encoder-decoder.*semtoken scores decoder-only") as of_folder:
        st.ScoredModel.from_pretrained(tiny.saved(model, tmp_path))
    assert str(of_object.value).count(".") == 1
    assert str(of_folder.value).count(".") == 1 + str(tmp_path).count(".")


def test_a_model_that_generates_no_text_is_refused_in_one_sentence(tmp_path: Path) -> None:
    config = transformers.DistilBertConfig(vocab_size=640, dim=8, hidden_dim=8, n_layers=1, n_heads=1)
    with pytest.raises(
        ModelError, match=r"transformers 5.* has no class that generates text for models of the type 'distilbert'"
    ):
        st.ScoredModel.from_pretrained(tiny.saved(transformers.DistilBertModel(config), tmp_path))


def test_a_class_that_is_listed_and_not_found_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "evolla"}')
    tiny.byte_level_bpe().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"no class that generates text for models of the type 'evolla'\.$"):
        st.ScoredModel.from_pretrained(str(tmp_path))


def test_a_tied_head_that_was_not_saved_is_not_missing(tmp_path: Path) -> None:
    model = tiny.llama(640, tied=True)
    assert "lm_head.weight" not in load_file(Path(tiny.saved(model, tmp_path)) / "model.safetensors")
    st.ScoredModel.from_pretrained(str(tmp_path))
