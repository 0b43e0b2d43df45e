"""Configurations of transformers made tiny, by what their settings are called.

Every number of a configuration's defaults gets a small one by its name; lists that hold something for each layer are
cut to a few layers of all kinds that are in them. Parts (text, vision, ...) are made small in the same way. Where a
type has conditions of its own, a few variants of the sizes are tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

VOCABULARY = 640
HEADS, HEAD = 4, 8
HIDDEN = HEADS * HEAD
MOST_LAYERS = 4
NUMBERS: list[tuple[str, int]] = [
    (r"num_kv_shared_layers|num_nextn_predict_layers|mtp_num_layers|num_mtp_layers", 0),
    (r"(.*_)?(vocab_size|hash_byte_group_vocab)(_per_layer_input)?|num_embeddings", VOCABULARY),
    (r"codebook_size", 64),
    (r"index_n_heads", 16),  # with few heads, indexers find many tokens equally good, and ties are broken by place
    (r"index_head_dim", 32),
    (r"(num|n)(_\w+)?_groups?|topk_group|num_groups|mamba_n_groups", 1),
    (r"n_shared_experts|(moe_)?num_shared_experts", 1),
    (r"(num|n)_experts_per_tok(en)?|moe_k|moe_topk?|moe_top_k|top_k_experts", 2),
    (r"((moe_)?num|n)(_local|_routed|_zero)?_experts|zero_expert_num|moe_num_experts", 4),
    (r"(num_)?(\w+_)?key_value_heads|kv_n_heads|(\w+_)?num_kv_heads|n_kv_heads|linear_num_key_heads", 2),
    (r"mamba_(n|num)_heads|conf_num_heads", 8),
    (r"(?!qk_head_dim)(\w+_)?head_dim|d_head|\w*_d_head|d_kv|(\w+_)?dim_head|kv_channels|rotary_dim|d_rel", HEAD),
    (r"qk_\w+_dim", HEAD),
    (r"(\w+_)?(n_|num_)?heads?|num_attention_heads|n_head|n_heads", HEADS),
    (r"(\w+_)?(lora_)?rank|\w*state_size|\w*d_state|projector_rank|num_latents|latent_query_num", HEAD),
    (r"n_layers?|num_layers|layers|depth|num_\w+_layers|\w+_layers|\w+_depth|num_blocks|num_dense_layers", 2),
    (r"(first_k_dense_replace|num_dense_layers|insert_layer_id|aligner_num_add_layers)", 1),
    (r"\w*(period|interval|frequency|every|every_n|per_attn_res_block|group_size|step)", 2),
    (r"\w*offset", 1),
    (r"(moe|expert|shared)\w*(intermediate|ffn|hidden)\w*|\w*experts_intermediate_size|moe_hidden_size", 16),
    (r"\w*intermediate_size\w*|(\w+_)?ffn(_hidden)?_(dim|size)|d_ff|ffn_hidden_size|d_inner|mlp_dim|inner_dim", 64),
    (r"mamba_d_ssm|mamba_intermediate", 64),
    (r"\w*hidden_(size|dim)\w*|d_model|n_embd|embed_dim|dim|emb_dim|projection_dim|\w*embed_dim|\w*output_dim", HIDDEN),
    (r"adapter_(in|out|input)_(dim|size)|adapter_out_dim|hidden_channels|conv_output_size|lru_width", HIDDEN),
    (r"word_embed_proj_dim|attention_hidden_size|hidden_units|dim_model_base|embedding_size", HIDDEN),
    (r"base_channels|latent_channels|\w*_channels_size|downsample_hidden_size|nemo_conv_channels", HIDDEN),
    (r"\w*max_position_embeddings|n_positions|n_ctx|max_seq_len\w*|context_length|model_max_length|seq_len(gth)?", 512),
    (r"max_\w+_positions", 512),
    (r"\w*sliding_window\w*|local_attention\w*|\w*attention_window_size|index_topk|window_size", 8),
    (r"\w*chunk_size", 8),
    (r"(\w+_)?image_size|resolution|max_img_size|crop_size", 28),
    (r"num_position_embeddings|position_embedding_size|num_image_tokens|posemb_grid_size|pos_emb_(height|width)", 16),
    (r"patch_size", 14),
]
KEPT = re.compile(
    r"in_channels|num_channels|num_mel_bins|feature_size|\w*(kernel|stride|merge|temporal|pooling|factor|mult|ratio)\w*|"
    r"sampling_rate|hop_length|pretraining_tp|model_parallel_size|expand|vocab_offset|\w*conv\w*|num_classes|\w*_idx|"
    r"type_vocab_size|qk_head_dim|token_type\w*|\w+_query_pre_attn_scalar|num_codebooks|num_hash\w*|\w*_num_buckets|num_buckets|"
    r"mamba_d_conv|d_conv|num_res_blocks"
)
ENDS: dict[str, Any] = {
    "eos_token_id": 0,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
DECODER = {"is_decoder": True, "is_encoder_decoder": False, "use_cache": True}
"""Settings of types that are used as decoders."""
UNSET = {"num_experts": 4, "top_k_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
UNSET |= {"n_routed_experts": 4, "n_shared_experts": 1, "head_dim": HEAD, "sliding_window": 8}
VARIANTS: list[dict[str, Any]] = [
    {"sliding_window": 8},
    {},
    {"num_key_value_heads": HEADS},
    {"mrope_section": [1, 1, 2]},
    {"mrope_section": [0, 1, 1]},
    {"mrope_section": [0, 1, 1], "head_dim": 4},
    {"mrope_section": [2, 3, 3], "head_dim": 16},
    UNSET,
    UNSET | {"num_key_value_heads": HEADS},
    {"head_dim": 16},
    {"num_attention_heads": 2},
]
"""Sizes that are tried one after another, in all parts that have them; `mrope_section` is a rotary setting."""


def small_config(kind: str, own: Mapping[str, Any] | None = None, variant: Mapping[str, Any] | None = None) -> Any:
    """The tiny configuration of a type of model.

    Parameters
    ----------
    kind
        The type's name in transformers.
    own
        Settings that this type needs; those of a part by its name.
    variant
        One of `VARIANTS`.
    """
    config_class = CONFIG_MAPPING[kind]
    try:
        given = config_class().to_dict()
    except Exception:  # a type without defaults
        return config_class(**(own or {}))
    return config_class(**_small(given, own or {}, variant or {}))


def _small(given: Mapping[str, Any], own: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """Small values for the settings of a configuration or of a part of one."""
    found: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    layers = _layers(given)
    ids = iter(range(VOCABULARY - 1, 0, -1))
    for name, value in given.items():
        if name == "per_layer_config":
            if layers and value:
                kept = {str(new): value[key] for new, old in enumerate(layers[1]) for key in value if int(key) == old}
                found[name] = {key: _small(one, {}, variant) for key, one in kept.items()}
        elif isinstance(value, dict) and "model_type" in value:
            parts[name] = {"model_type": value["model_type"]} | _small(value, own.get(name, {}), variant)
        elif name == "rope_parameters" and "mrope_section" in variant and isinstance(value, dict):
            if "rope_theta" in value and value.get("rope_type") != "axial":
                found[name] = value | {"mrope_section": variant["mrope_section"]}
        elif name in variant:
            found[name] = variant[name]
        elif isinstance(value, bool | float | str) or value is None:
            continue
        elif name.endswith(("_token_id", "_token_index", "_patch_id")) or re.fullmatch(r"im_\w+_id", name):
            found[name] = ENDS[name] if name in ENDS else next(ids)
        elif isinstance(value, int):
            number = _number(name, value)
            if name == "head_dim" and value == given.get("qk_nope_head_dim", 0) + given.get("qk_rope_head_dim", 0):
                number = 2 * HEAD
            if number is not None and number < value:
                found[name] = len(layers[1]) if layers and value == layers[0] else number
        elif isinstance(value, list) and layers and len(value) == layers[0]:
            found[name] = [_item(name, value[place]) for place in layers[1]]
        elif isinstance(value, list) and value and all(type(one) is int for one in value):
            found[name] = [_item(name, one) for one in value]
    return found | {name: one for name, one in own.items() if name not in DECODER or name in given} | parts


def _item(name: str, value: Any) -> Any:
    number = _number(name, value) if type(value) is int else None
    return value if number is None else min(number, value)


def _number(name: str, value: int) -> int | None:
    if KEPT.fullmatch(name):
        return None
    for pattern, number in NUMBERS:
        if re.fullmatch(pattern, name):
            return number
    return HIDDEN if value >= 256 else None


def _layers(given: Mapping[str, Any]) -> tuple[int, list[int]] | None:
    """The number of layers by default, and those that are kept: a few, of every kind; None without kinds."""
    count = next(
        (given[name] for name in ("num_hidden_layers", "num_layers", "depth", "n_layer") if name in given), None
    )
    lists = [value for value in given.values() if isinstance(value, list) and value and len(value) == count]
    if not lists or count is None:
        return None
    kinds = list(zip(*([str(one) for one in value] for value in lists), strict=True))
    first = sorted({kind: place for place, kind in reversed(list(enumerate(kinds)))}.values())[:MOST_LAYERS]
    return count, first if len(first) > 1 else [0, 1]


def tiny_model_of(kind: str, make: Any, *, decoder: bool = False, most: int = 30_000_000) -> Any:
    """A tiny model of a type, with the first variant of the sizes that can be made and reads a text, if one does.

    Parameters
    ----------
    kind
        The type's name in transformers.
    make
        Makes the model of a configuration.
    decoder
        Whether types that can be an encoder or a decoder are to be a decoder.
    most
        The most parameters that count as tiny.

    Raises
    ------
    ValueError
        None can be made; the message is the reason.
    """
    reason, reads_none = "", None
    for variant in VARIANTS:
        try:
            config = small_config(kind, (DECODER if decoder else {}) | OWN.get(kind, {}), variant)
            with torch.device("meta"):
                count = sum(weight.numel() for weight in make(config).parameters())
            if count > most:
                reason = reason or f"it stays large ({count:,} weights)"
                continue
            model = make(config).eval()
        except Exception as error:  # each type has conditions of its own on its sizes
            reason = reason or " ".join(f"{type(error).__name__}: {error}".split())[:100]
            continue
        try:
            with torch.no_grad():
                _ = model(input_ids=torch.tensor([[5, 6, 7]])).logits
        except Exception:
            reads_none = model if reads_none is None else reads_none
        else:
            return model
    if reads_none is None:
        raise ValueError(reason)
    return reads_none


_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_KINDS_OF_ROPE = {"full_attention": _ROPE, "sliding_attention": _ROPE}
_IMAGE_WORDS = {"vocabulary_map": {"<image>": 639, "<|extra_200|>": 638, "<|image token|>": 637}}
_QSA = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 8}
_TWICE = {"attention_hidden_size": 2 * HIDDEN, "attention_head_dim": 2 * HEAD}
_QSA |= {"indexer_compress_ratio": 4}
OWN: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "chameleon": _IMAGE_WORDS,
    "dots3_note": {"text_config": {"head_dim": 16}},
    "dots3_note_text": {"head_dim": 16},
    "emu3": _IMAGE_WORDS,
    "cohere_compass": {"text_config": {"rope_parameters": _KINDS_OF_ROPE}},
    "cohere_compass_text": {"rope_parameters": _KINDS_OF_ROPE},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "kv_n_heads": 2, "clip_qkv": 8}},
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense", "sparse"], "num_hidden_layers": 2}},
    "glm5_next": {"text_config": {"index_kpool": 2}},
    "granite4_vision": {
        "deepstack_layer_map": [[0, 0]],
        "downsample_rate": "4/8",
        "vision_config": {"hidden_size": 64},
    },
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"], "mamba_n_heads": 8, "mamba_d_head": 8},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "mistral4": {"rope_parameters": _ROPE | {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 512}},
    "mistral_large4": {"text_config": {"kv_source_layers": [0, 1, 2, 3]}},
    "molmo2": {"adapter_config": {"vision_feature_layer": [1, 0]}},
    "nemotron_h_omni": {"vision_config": {"video_temporal_patch_size": 2}},
    "qwen4_exp": {"text_config": _QSA},
    "qwen4_exp_text": _QSA,
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {"is_decoder": True, "axial_pos_embds_dim": [16, 16], "axial_pos_shape": [16, 32]}
    | {"attention_head_size": 8},
    "xlstm": {"hidden_size": 128, "embedding_dim": 128, "num_heads": 2},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"layers_block_type": ["linear_attention", "hybrid", "hybrid"], "num_hidden_layers": 3} | _TWICE,
    "zamba2": {
        "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
        "num_hidden_layers": 3,
        "hybrid_layer_ids": [1, 2],
        "mamba_headdim": 8,
        "n_mamba_heads": 8,
    }
    | _TWICE,
}
"""Settings of types whose conditions their names do not show."""
