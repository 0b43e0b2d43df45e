"""Small image-text models of many kinds with their processors, weights and tokens at random."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
import transformers

from tests import tiny
from tests.models.plain_pass import with_wide_weights

HIDDEN = 32
TEXT = {
    "vocab_size": 480,
    "hidden_size": HIDDEN,
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


def _idefics3(kind: str = "Idefics3") -> tuple[Any, Any]:
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


def _without_videos(made: Any) -> Any:
    """A processor that takes no processor of videos, which needs torchvision."""
    return type(made.__name__, (made,), {"check_argument_for_proper_class": lambda self, name, given: None})


ROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10_000.0, "partial_rotary_factor": 1.0}
GRID = {"depth": 2, "hidden_size": 32, "num_heads": 4, "patch_size": 14}
WIDER = {"out_hidden_size": 32, "intermediate_size": 64}


def _grid(kind: str, vision: dict[str, Any], names: str = "<|vision_start|> <|image_pad|> <|vision_end|>") -> Any:
    """Qwen's models and GLM4V: positions of images have a time, a row and a column."""
    words = tokenizer(*names.split(), "<|video_pad|>", "<|video|>", "<|begin_of_video|>", "<|end_of_video|>")
    start, image, end = (words.convert_tokens_to_ids(name) for name in names.split())
    config = getattr(transformers, f"{kind}Config")(
        text_config=TEXT | {"rope_parameters": ROPE},
        vision_config=GRID | vision,
        image_token_id=image,
        video_token_id=words.convert_tokens_to_ids("<|video_pad|>"),
        vision_start_token_id=start,
        vision_end_token_id=end,
        image_start_token_id=start,
        image_end_token_id=end,
    )
    pixels = getattr(transformers, f"{'Glm4v' if kind == 'Glm4v' else 'Qwen2VL'}ImageProcessorPil")(
        patch_size=14, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 1568, "longest_edge": 12_544}
    )
    made = _without_videos(getattr(transformers, f"{kind}Processor"))
    return config, made(pixels, words, None, chat_template=TEMPLATE.replace("IMAGE", names.replace(" ", "")))


def _llama4() -> tuple[Any, Any]:
    class OneTile(transformers.CLIPImageProcessorPil):  # that of Llama 4 needs torchvision
        def preprocess(self, images: Any, **options: Any) -> Any:
            found = super().preprocess(images, **options)
            return type(found)({**found, "aspect_ratios": torch.ones(len(found["pixel_values"]), 2, dtype=torch.long)})

    names = ("<|image_start|>", "<|image_end|>", "<|patch|>")
    words = tokenizer(*names, "<|image|>", "<|tile_x_separator|>", "<|tile_y_separator|>")
    start, end, patch = map(words.convert_tokens_to_ids, names)
    wide = {"vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32, "intermediate_size": 128}
    config = transformers.Llama4Config(
        text_config=TEXT | {"intermediate_size_mlp": 64, "num_local_experts": 2},
        vision_config=VISION | wide | {"pixel_shuffle_ratio": 0.5},
        boi_token_index=start,
        eoi_token_index=end,
        image_token_index=patch,
    )
    pixels = OneTile(size={"height": 28, "width": 28}, crop_size={"height": 28, "width": 28})
    template = TEMPLATE.replace("IMAGE", "<|image|>")
    return config, transformers.Llama4Processor(pixels, words, patch_size=14, chat_template=template)


def _internvl() -> tuple[Any, Any]:
    names = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    words = tokenizer(*names.values(), "<video>")
    for name, token in (names | {"video_token": "<video>"}).items():
        setattr(words, name, token)
        setattr(words, f"{name}_id", words.convert_tokens_to_ids(token))
    config = transformers.InternVLConfig(
        text_config=transformers.Qwen2Config(**TEXT),
        vision_config=VISION | {"image_size": [28, 28], "patch_size": [14, 14]},
        image_token_id=words.context_image_token_id,
    )
    pixels = transformers.GotOcr2ImageProcessorPil(size={"height": 28, "width": 28})
    made = _without_videos(transformers.InternVLProcessor)
    return config, made(
        pixels, words, None, image_seq_length=1, chat_template=TEMPLATE.replace("IMAGE", "<IMG_CONTEXT>")
    )


def _idefics2() -> tuple[Any, Any]:
    words = tokenizer("<image>", "<fake_token_around_image>", "<end_of_utterance>")
    heads = {"resampler_n_heads": 2, "resampler_head_dim": 8, "num_key_value_heads": 1}
    config = transformers.Idefics2Config(
        text_config=transformers.MistralConfig(**TEXT),
        vision_config=VISION,
        perceiver_config=heads | {"resampler_n_latents": 2, "resampler_depth": 1, "hidden_size": 32},
        image_token_id=words.convert_tokens_to_ids("<image>"),
    )
    pixels = transformers.Idefics2ImageProcessorPil(
        size={"shortest_edge": 28, "longest_edge": 28}, do_image_splitting=False
    )
    template = TEMPLATE.replace("IMAGE", "<image>")
    return config, transformers.Idefics2Processor(pixels, words, image_seq_len=2, chat_template=template)


def _mllama() -> tuple[Any, Any]:
    """Text attends to images in layers of their own, by a mask with a row for each token."""
    words = tokenizer("<|image|>", "<|python_tag|>")
    words.bos_token = "<|end|>"
    text = {name: value for name, value in TEXT.items() if name != "head_dim"}
    rope = {"rope_type": "default", "rope_theta": 10_000.0}
    tiles = {"max_num_tiles": 1, "supported_aspect_ratios": [[1, 1]], "intermediate_layers_indices": [0]}
    config = transformers.MllamaConfig(
        text_config=text | {"bos_token_id": 0, "cross_attention_layers": [1], "rope_parameters": rope},
        vision_config=VISION | tiles | {"attention_heads": 4, "num_global_layers": 1, "vision_output_dim": 64},
        image_token_index=words.convert_tokens_to_ids("<|image|>"),
    )
    pixels = transformers.MllamaImageProcessorPil(size={"height": 28, "width": 28}, max_image_tiles=1)
    return config, transformers.MllamaProcessor(pixels, words, chat_template=TEMPLATE.replace("IMAGE", "<|image|>"))


QUICK: dict[str, Callable[[], tuple[Any, Any]]] = {
    "Gemma3": _gemma3,
    "PaliGemma": _paligemma,
    "Qwen2VL": lambda: _grid("Qwen2VL", {"embed_dim": 32}),
}
"""Kinds for the default tests; the others are tried in the slow ones."""
KINDS = QUICK | {
    "Llava": _llava,
    "Llama4": _llama4,
    "VipLlava": lambda: _llava("VipLlava", vision_feature_layers=[-2, -1]),
    "Idefics2": _idefics2,
    "Idefics3": _idefics3,
    "LlavaNext": _with_grid,
    "AyaVision": _aya,
    "InternVL": _internvl,
    "Mllama": _mllama,
    "Qwen2_5_VL": lambda: _grid("Qwen2_5_VL", {**WIDER, "fullatt_block_indexes": [1], "window_size": 56}),
    "Qwen3VL": lambda: _grid("Qwen3VL", {**WIDER, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}),
    "Glm4v": lambda: _grid("Glm4v", {**WIDER, "image_size": 28}, "<|begin_of_image|> <|image|> <|end_of_image|>"),
}


def that_writes(*pieces: str, sure: float = 12.0) -> tuple[Any, Any]:
    """A Llava that answers everything with these pieces, each a token of its own, and its processor.

    `sure` is the logit of the next piece; those of all other tokens are 0.
    """
    config, processor = _llava()
    processor.tokenizer.add_tokens(list(pieces))
    model = transformers.AutoModelForImageTextToText.from_config(config).float()
    model.resize_token_embeddings(len(processor.tokenizer), mean_resizing=False)
    chain = [":", *pieces, processor.tokenizer.eos_token]  # ":" ends the prompt
    ids = processor.tokenizer.convert_tokens_to_ids(chain)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight", "embed_tokens.weight", "lm_head.weight")):
                weight.zero_()  # a token is read alone
        for place, (token, following) in enumerate(itertools.pairwise(ids)):
            model.get_input_embeddings().weight[token, place] = 1.0
            model.get_output_embeddings().weight[following, place] = sure / math.sqrt(HIDDEN)
    return model.eval(), processor


def image_model(kind: str) -> tuple[Any, Any]:
    """A model of this kind, and its processor."""
    config, processor = KINDS[kind]()
    model = with_wide_weights(transformers.AutoModelForImageTextToText.from_config(config))
    names = [name for name in processor.tokenizer.get_added_vocab() if name != "<tool>"]
    model.generation_config.suppress_tokens = processor.tokenizer.convert_tokens_to_ids(names)  # a trained one, too
    return model, processor
