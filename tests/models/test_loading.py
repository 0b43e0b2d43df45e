"""What is loaded is whole: folders that lack weights, hold others, or belong to another kind of model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import semtoken as st
from semtoken.errors import ModelError
from tests import tiny

SMALL = {"vocab_size": 640, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
BART = SMALL | {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}


def saved(model: Any, folder: Path) -> str:
    model.save_pretrained(folder)
    tiny.byte_level_bpe().save_pretrained(folder)
    return str(folder)


def changed(folder: Path, change: Any) -> str:
    """A folder of a tiny Llama whose weights were changed after they had been saved."""
    where = saved(tiny.llama(640), folder)
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return where


def test_a_folder_that_lacks_a_weight_is_refused_by_the_name_of_it(tmp_path: Path) -> None:
    lacking = changed(tmp_path, lambda weights: weights.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(ModelError, match=r"lack model\.layers\.1\.mlp\.up_proj\.weight"):
        st.ScoredModel.from_pretrained(lacking)


def test_a_folder_whose_weights_were_renamed_is_refused(tmp_path: Path) -> None:
    def rename(weights: dict[str, torch.Tensor]) -> None:
        for name in [name for name in weights if name.startswith("model.layers.1")]:
            weights[f"other.{name}"] = weights.pop(name)

    with pytest.raises(ModelError, match=r"lack model\.layers\.1\..* and \d more and hold besides other\.model"):
        st.ScoredModel.from_pretrained(changed(tmp_path, rename))


def test_weights_of_another_shape_are_refused_though_transformers_was_asked_to_ignore_them(tmp_path: Path) -> None:
    def shrink(weights: dict[str, torch.Tensor]) -> None:
        weights["model.norm.weight"] = torch.ones(3)

    with pytest.raises(ModelError, match=r"another shape model\.norm\.weight"):
        st.ScoredModel.from_pretrained(changed(tmp_path, shrink), ignore_mismatched_sizes=True)


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
        st.ScoredModel.from_pretrained(saved(model, tmp_path))
    assert str(of_object.value).count(".") == 1
    assert str(of_folder.value).count(".") == 1 + str(tmp_path).count(".")


def test_a_model_that_generates_no_text_is_refused_in_one_sentence(tmp_path: Path) -> None:
    config = transformers.DistilBertConfig(vocab_size=640, dim=8, hidden_dim=8, n_layers=1, n_heads=1)
    with pytest.raises(
        ModelError, match=r"transformers 5.* has no class that generates text for models of the type 'distilbert'"
    ):
        st.ScoredModel.from_pretrained(saved(transformers.DistilBertModel(config), tmp_path))


def test_a_class_that_is_listed_and_not_found_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "evolla"}')
    tiny.byte_level_bpe().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"no class that generates text for models of the type 'evolla'\.$"):
        st.ScoredModel.from_pretrained(str(tmp_path))


def test_a_tied_head_that_was_not_saved_is_not_missing(tmp_path: Path) -> None:
    model = tiny.llama(640, tied=True)
    assert "lm_head.weight" not in load_file(Path(saved(model, tmp_path)) / "model.safetensors")
    st.ScoredModel.from_pretrained(str(tmp_path))
