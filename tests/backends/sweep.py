"""Every causal and image-text model of the installed transformers, made tiny: what works, what is refused and why.

`python -m tests.backends.sweep` writes the table of docs/models.md. A model whose numbers differ from a plain pass in
any way of asking is an error.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as IMAGE

from semtoken.backends.transformers import TransformersBackend
from semtoken.backends.transformers.proof import Proof
from semtoken.errors import ModelError, SemtokenError
from tests import tiny
from tests.backends.plain_pass import SIZES, off, ways, with_wide_weights

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- made by tests/backends/sweep.py -->", "<!-- end -->"
DECODER = {"is_decoder": True, "is_encoder_decoder": False, "use_cache": True}
SIZES_OF_OTHERS = """
head_dim 8 n_embd 32 n_layer 2 n_head 4 d_model 32 n_heads 4 n_layers 2 decoder_layers 2 decoder_attention_heads 4
decoder_ffn_dim 64 encoder_layers 2 d_inner 64 attention_hidden_size 32 ffn_dim 64 word_embed_proj_dim 32 num_layers 2
num_heads 4 num_local_experts 2 num_experts 2 n_routed_experts 2 num_experts_per_tok 1 n_group 1 topk_group 1
moe_intermediate_size 16 shared_expert_intermediate_size 16 n_shared_experts 1 q_lora_rank 8 kv_lora_rank 8
qk_rope_head_dim 8 qk_nope_head_dim 8 v_head_dim 8 state_size 8 mamba_n_heads 8 mamba_d_head 8 mamba_d_state 8
mamba_d_ssm 64 lru_width 32 linear_num_value_heads 4 linear_num_key_heads 2 linear_key_head_dim 8
linear_value_head_dim 8 max_seq_len 512 max_source_positions 64 max_target_positions 512 sliding_window 8
"""
NUMBERS = SIZES_OF_OTHERS.split()
SMALL = SIZES | dict(zip(NUMBERS[::2], map(int, NUMBERS[1::2]), strict=True)) | {"use_mamba_kernels": False}
IMAGE_SIZES = {"depth": 2, "embed_dim": 32, "image_size": 28, "patch_size": 14, "out_hidden_size": 32}
OF_KIND: dict[str, dict[str, Any]] = {
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "mamba2": {"num_heads": 8, "n_groups": 1, "expand": 2},
    "moshi": {"sliding_window": 512},  # the plain passes of these three have no window
    "qwen3_vl_moe": {"sliding_window": None},
    "minimax": {"sliding_window": None, "layer_types": ["linear_attention", "full_attention"]},
    "recurrent_gemma": {"num_hidden_layers": 3, "attention_window_size": 8},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "bamba": {"attn_layer_indices": [1]},
    "llama4_text": {"intermediate_size_mlp": 64, "attention_chunk_size": 8},
}
LARGEST = 30_000_000
"""Parameters of a model that is tried; a larger one was not made tiny by these sizes."""


@dataclass(frozen=True)
class Outcome:
    """What became of one kind of model."""

    state: str
    """`whole`: all ways are used; `some`: those that are equal; `refused`; `unmade`: not made tiny here; `wrong`."""
    why: str = ""


def outcome_of(kind: str) -> Outcome:
    """Make a model of this type tiny, and ask it in all ways."""
    try:
        with torch.device("meta"):
            if sum(weight.numel() for weight in made(kind).parameters()) > LARGEST:
                return Outcome("unmade", "it stays large with these sizes")
        model = made(kind)
    except Exception as error:  # each type has conditions of its own on its sizes
        return Outcome("unmade", f"{type(error).__name__}: {error}".splitlines()[0][:100])
    try:
        with torch.no_grad():
            with_wide_weights(model)(input_ids=torch.tensor([[5, 6, 7]]))
    except Exception as error:
        return Outcome("unmade", f"a plain pass fails: {type(error).__name__}: {error}".splitlines()[0][:100])
    try:
        backend = TransformersBackend(model, tiny.byte_level_bpe())
        proof = backend.proof
    except ModelError as error:
        return Outcome("refused", "it sees tokens to come" if "that follow" in str(error) else str(error)[:100])
    try:
        for name, way in ways(backend, tokens=12, lengths=(38, 5, 17)).items():
            if (far := off(backend, way)) > 2e-3:
                return Outcome("wrong", f"{name}: {far:.2g} nats")
    except SemtokenError as error:
        return Outcome("refused", str(error))
    except Exception as error:
        return Outcome("wrong", f"{type(error).__name__}: {error}".splitlines()[0][:100])
    return Outcome(*_used(proof))


def made(kind: str) -> Any:
    """A tiny model of this type, with the sizes that its configuration has."""
    config_class = CONFIG_MAPPING[kind]
    if kind in IMAGE:
        given = config_class().to_dict()
        own = OF_KIND.get(kind, {})
        parts = {
            name: _shrunk(part) | {key: own[key] for key in own if key in part}
            for name, part in given.items()
            if isinstance(part, dict) and "config" in name
        }
        return transformers.AutoModelForImageTextToText.from_config(config_class(**_shrunk(given) | parts))
    known = set(config_class().to_dict())
    sizes = {name: value for name, value in (SMALL | DECODER | OF_KIND.get(kind, {})).items() if name in known}
    return transformers.AutoModelForCausalLM.from_config(config_class(**sizes))


def _shrunk(given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a part of a configuration, with the small sizes among them."""
    sizes = SMALL | IMAGE_SIZES
    found = {"model_type": given.get("model_type")} | {name: sizes[name] for name in given if name in sizes}
    if "mrope_section" in (rope := given.get("rope_parameters") or {}):
        found["rope_parameters"] = rope | {"mrope_section": [1, 1, 2]}
    return found


def _used(proof: Proof) -> tuple[str, str]:
    if proof.padded and proof.continued and proof.generates == "padded":
        return "whole", ""
    without = [
        *([] if proof.padded else ["padding"]),
        *([] if proof.continued else ["continuing a cache"]),
        *(
            {"padded": [], "equal": ["padding in generate"], "alone": ["batches in generate"]}.get(
                proof.generates, ["generate"]
            )
        ),
    ]
    return "some", " and ".join(without)


def sweep(kinds: Any = (*CAUSAL, *IMAGE)) -> Iterator[tuple[str, Outcome]]:
    """The outcome of every type of model, by name."""
    for kind in sorted(set(kinds)):
        with _quiet():
            yield kind, outcome_of(kind)


@contextmanager
def _quiet() -> Iterator[None]:
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(before)


def table(outcomes: dict[str, Outcome]) -> str:
    """The outcomes as a Markdown table, types with the same outcome in one row."""
    said = {
        "whole": "right in all ways",
        "some": "right; not used, since not equal: ",
        "refused": "refused: ",
        "unmade": "not tried: no tiny model was made",
        "wrong": "**wrong**: ",
    }
    rows: dict[str, list[str]] = defaultdict(list)
    for kind, one in outcomes.items():
        rows[said[one.state] + ("" if one.state in ("whole", "unmade") else one.why)].append(kind)
    order = sorted(rows, key=lambda row: (list(said).index(next(k for k in said if row.startswith(said[k]))), row))
    lines = [f"| {row} ({len(rows[row])}) | {', '.join(rows[row])} |" for row in order]
    return "\n".join([f"| transformers {transformers.__version__} | types |", "| --- | --- |", *lines])


def main(kinds: list[str]) -> None:
    """Write the table; exit with 1 if a model is wrong."""
    found = {}
    for kind, one in sweep(kinds or (*CAUSAL, *IMAGE)):
        found[kind] = one
        print(f"{kind}: {one.state} {one.why}", flush=True)
    if not kinds:
        page = PAGE.read_text(encoding="utf-8")
        block = f"{BEGIN}\n{table(found)}\n{END}"
        PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: block, page, flags=re.DOTALL), encoding="utf-8")
    if any(one.state == "wrong" for one in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
