"""Small image-text models of many kinds with their processors, weights and tokens at random."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import transformers

from tests import tiny
from tests.backends.plain_pass import with_wide_weights

TEXT = {
    "vocab_size": 480,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "head_dim": 8,
    "pad_token_id": 1,
    "eos_token_id": 0,
    "bos_token_id": None,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 14,
}
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}:{% for p in m['content'] %}"
    "{% if p['type'] == 'image' %}IMAGE{% else %}{{ p['text'] }}{% endif %}{% endfor %}\n{% endfor %}assistant:"
)


def tokenizer(*names: str) -> Any:
    """A tokenizer with these special tokens for images."""
    found = tiny.byte_level_bpe()
    found.add_special_tokens({"additional_special_tokens": list(names)})
    return found


def _llava(kind: str = "Llava", **more: Any) -> tuple[Any, Any]:
    words = tokenizer("<image>")
    config = getattr(transformers, f"{kind}Config")(
        text_config=transformers.LlamaConfig(**TEXT),
        vision_config=transformers.CLIPVisionConfig(**VISION),
        image_token_id=words.convert_tokens_to_ids("<image>"),
        image_token_index=words.convert_tokens_to_ids("<image>"),
        **more,
    )
    size = {"height": 28, "width": 28}
    pixels = transformers.CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size=size)
    processor = transformers.LlavaProcessor(
        pixels,
        words,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=TEMPLATE.replace("IMAGE", "<image>"),
    )
    return config, processor


def _gemma3() -> tuple[Any, Any]:
    words = tokenizer("<start_of_image>", "<end_of_image>", "<image_soft_token>")
    words.boi_token, words.eoi_token, words.image_token = "<start_of_image>", "<end_of_image>", "<image_soft_token>"
    for name in ("boi", "eoi", "image"):
        setattr(words, f"{name}_token_id", words.convert_tokens_to_ids(getattr(words, f"{name}_token")))
    config = transformers.Gemma3Config(
        text_config=transformers.Gemma3TextConfig(**TEXT, sliding_window=8),
        vision_config=transformers.SiglipVisionConfig(**VISION),
        mm_tokens_per_image=4,
        boi_token_index=words.boi_token_id,
        eoi_token_index=words.eoi_token_id,
        image_token_index=words.image_token_id,
    )
    pixels = transformers.Gemma3ImageProcessorPil(size={"height": 28, "width": 28})
    template = TEMPLATE.replace("IMAGE", "<start_of_image>")
    return config, transformers.Gemma3Processor(pixels, words, image_seq_length=4, chat_template=template)


def _paligemma() -> tuple[Any, Any]:
    words = tokenizer("<image>")
    config = transformers.PaliGemmaConfig(
        text_config=transformers.GemmaConfig(**TEXT | {"vocab_size": 1700}),  # the processor adds tokens for places
        vision_config=transformers.SiglipVisionConfig(**VISION, vision_use_head=False),
        image_token_index=words.convert_tokens_to_ids("<image>"),
        projection_dim=32,
        hidden_size=32,
    )
    pixels = transformers.SiglipImageProcessorPil(size={"height": 28, "width": 28})
    pixels.image_seq_length = 4
    words.bos_token = "<|end|>"
    template = TEMPLATE.replace("IMAGE", "<image>")
    return config, transformers.PaliGemmaProcessor(pixels, words, chat_template=template)


def _idefics3(kind: str) -> tuple[Any, Any]:
    words = tokenizer("<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>")
    config = getattr(transformers, f"{kind}Config")(
        text_config=transformers.LlamaConfig(**TEXT),
        vision_config=VISION,
        image_token_id=words.convert_tokens_to_ids("<image>"),
        scale_factor=2,
    )
    pixels = getattr(transformers, f"{kind}ImageProcessorPil")(
        size={"longest_edge": 28}, max_image_size={"longest_edge": 28}, do_image_splitting=False
    )
    template = TEMPLATE.replace("IMAGE", "<image>")
    made = getattr(transformers, f"{kind}Processor")
    return config, made(pixels, words, image_seq_len=1, chat_template=template)


def _with_grid() -> tuple[Any, Any]:
    """LlavaNext: an image whole and in pieces."""
    words = tokenizer("<image>")
    grid = [[28, 28], [28, 56]]
    config = transformers.LlavaNextConfig(
        text_config=transformers.LlamaConfig(**TEXT),
        vision_config=transformers.CLIPVisionConfig(**VISION),
        image_token_index=words.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=grid,
    )
    pixels = transformers.LlavaNextImageProcessorPil(
        size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}, image_grid_pinpoints=grid
    )
    settings = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    template = TEMPLATE.replace("IMAGE", "<image>")
    return config, transformers.LlavaNextProcessor(pixels, words, **settings, chat_template=template)


def _aya() -> tuple[Any, Any]:
    words = tokenizer("<|IMG_PATCH|>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<image>", "TILE", "TILE_GLOBAL")
    config = transformers.AyaVisionConfig(
        text_config=transformers.Cohere2Config(**TEXT, sliding_window=8),
        vision_config=transformers.SiglipVisionConfig(**VISION),
        image_token_index=words.convert_tokens_to_ids("<|IMG_PATCH|>"),
        downsample_factor=2,
        adapter_layer_norm_eps=1e-6,
        vision_feature_layer=-1,
    )
    pixels = transformers.GotOcr2ImageProcessorPil(size={"height": 28, "width": 28}, crop_to_patches=False)
    made = transformers.AyaVisionProcessor(
        pixels,
        words,
        patch_size=14,
        img_size=28,
        downsample_factor=2,
        chat_template=TEMPLATE.replace("IMAGE", "<image>"),
    )
    return config, made


KINDS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "Llava": _llava,
    "VipLlava": lambda: _llava("VipLlava", vision_feature_layers=[-2, -1]),
    "Gemma3": _gemma3,
    "PaliGemma": _paligemma,
    "Idefics3": lambda: _idefics3("Idefics3"),
    "LlavaNext": _with_grid,
    "AyaVision": _aya,
}


def that_writes(*pieces: str, sure: float = 12.0) -> tuple[Any, Any]:
    """A Llava that answers everything with these pieces, each a token of its own, and its processor.

    `sure` is the logit of the next piece; those of all other tokens are 0.
    """
    config, processor = _llava()
    processor.tokenizer.add_tokens(list(pieces))
    model = transformers.AutoModelForImageTextToText.from_config(config).float()
    model.resize_token_embeddings(len(processor.tokenizer))
    chain = [":", *pieces, processor.tokenizer.eos_token]  # ":" ends the prompt
    ids = processor.tokenizer.convert_tokens_to_ids(chain)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight", "embed_tokens.weight", "lm_head.weight")):
                weight.zero_()  # a token is read alone
        for place, (token, following) in enumerate(itertools.pairwise(ids)):
            model.get_input_embeddings().weight[token, place] = 1.0
            model.get_output_embeddings().weight[following, place] = sure / TEXT["hidden_size"] ** 0.5
    return model.eval(), processor


def image_model(kind: str) -> tuple[Any, Any]:
    """A model of this kind, and its processor."""
    config, processor = KINDS[kind]()
    model = with_wide_weights(transformers.AutoModelForImageTextToText.from_config(config))
    names = [name for name in processor.tokenizer.get_added_vocab() if name != "<tool>"]
    model.generation_config.suppress_tokens = processor.tokenizer.convert_tokens_to_ids(names)  # a trained one, too
    return model, processor
