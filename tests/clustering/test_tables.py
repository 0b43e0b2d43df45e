"""Token tables against the weights that they were read from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from semtoken import TokenClusters
from semtoken.clustering.partition import cluster_tokens
from semtoken.clustering.tables import origin_of, read_table, token_table
from semtoken.errors import InvalidInputError, ModelError, VocabularyError
from semtoken.models import load_backend
from tests import tiny
from tests.artifacts import COMMIT
from tests.rows import each

torch = pytest.importorskip("torch")
gguf = pytest.importorskip("gguf")


def unit(matrix: Any) -> Any:
    """Rows divided by their norms, by torch and in float64."""
    wide = torch.as_tensor(matrix).detach().double()
    return (wide / wide.norm(dim=1, keepdim=True).clamp_min(1e-300)).float().numpy()


def expected(model: Any, kind: str) -> Any:
    source = unit(model.get_input_embeddings().weight)
    head = unit(model.get_output_embeddings().weight)
    return {"input": source, "output": head, "concatenated": np.concatenate([source, head], axis=1)}[kind]


def checkpoint(folder: Path, tensors: dict[str, Any], **config: Any) -> Path:
    """A directory with one safetensors file of given tensors, by default that of a model with an output head."""
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    save_file({name: torch.as_tensor(t).contiguous() for name, t in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]} | config))
    return folder


def matrix(seed: int, rows: int = 10, columns: int = 4) -> Any:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


INPUT, HEAD = {"model.embed_tokens.weight": matrix(1)}, {"lm_head.weight": matrix(2)}
"""The two matrices by the names of most models."""


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["input", "output", "concatenated"])
def test_a_saved_model_and_one_in_memory(tmp_path: Path, dtype: str, kind: Any) -> None:
    model = tiny.llama(40).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path)
    table = token_table(tmp_path, kind)
    assert table.dtype == np.float32 and table.shape == (40, 32 if kind == "concatenated" else 16)
    np.testing.assert_allclose(table, expected(model, kind), atol=1e-6)
    np.testing.assert_array_equal(token_table(str(tmp_path), kind), table)
    np.testing.assert_array_equal(token_table(model, kind), table)
    assert read_table(model, kind).content_hash == read_table(tmp_path, kind).content_hash


def test_bfloat16_stays_as_it_is_for_clustering(tmp_path: Path) -> None:
    model = tiny.llama(40).bfloat16()
    model.save_pretrained(tmp_path)
    parts = read_table(tmp_path).rows(30).parts
    assert [(part.dtype, part.shape) for part in parts] == [(np.dtype(np.uint16), (30, 16))] * 2
    bits = model.lm_head.weight.detach().view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(parts[1], bits[:30])


def test_the_shards_of_an_index(tmp_path: Path) -> None:
    model = tiny.llama(200)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    shards = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    needed = {shards["model.embed_tokens.weight"], shards["lm_head.weight"]}
    assert len(needed) == 2 < len(set(shards.values()))
    for name in set(shards.values()) - needed:
        (tmp_path / name).unlink()  # the other shards are not touched
    np.testing.assert_allclose(token_table(tmp_path), expected(model, "concatenated"), atol=1e-6)
    (tmp_path / shards["lm_head.weight"]).unlink()
    np.testing.assert_allclose(token_table(tmp_path, "input"), expected(model, "input"), atol=1e-6)
    with pytest.raises(ModelError, match="incomplete: its index names"):
        token_table(tmp_path)
    other = tiny.llama(200, seed=1)
    other.save_pretrained(tmp_path)  # in one file, and the index stays
    assert (tmp_path / "model.safetensors.index.json").exists()
    np.testing.assert_allclose(token_table(tmp_path), expected(other, "concatenated"), atol=1e-6)


def test_tied_embeddings(tmp_path: Path) -> None:
    model = tiny.llama(40, tied=True)
    model.save_pretrained(tmp_path)
    for source in (model, tmp_path):
        np.testing.assert_allclose(token_table(source), expected(model, "input"), atol=1e-6)
        assert read_table(source).tied and not read_table(source, "input").tied
    assert read_table(model).content_hash == read_table(tmp_path).content_hash


def twice_quantized(odd_rows: int = 0) -> Any:
    """A model whose output head is its input matrix as Q4_0 keeps it, but for some rows of its own."""
    model = tiny.llama(40, tied=False, hidden=64)
    source, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    kind = gguf.GGMLQuantizationType.Q4_0
    again = gguf.quants.dequantize(gguf.quants.quantize(source.detach().numpy(), kind), kind)
    with torch.no_grad():
        head[odd_rows:] = torch.from_numpy(again)[odd_rows:]
    return model


def test_one_matrix_that_was_quantized_twice_stands_in_the_table_once() -> None:
    model = twice_quantized()
    table = read_table(model)
    source = model.get_input_embeddings().weight.detach().double()
    head = model.get_output_embeddings().weight.detach().double()
    cosines = torch.nn.functional.cosine_similarity(source, head)[source.norm(dim=1) > 0]  # the padding's row is 0
    assert 0.98 < table.least_cosine == pytest.approx(float(cosines.min()), abs=1e-9)  # type: ignore[operator]
    assert table.tied and len(table.parts) == 1
    np.testing.assert_allclose(token_table(model), expected(model, "output"), atol=1e-6)
    assert read_table(model, "input").least_cosine is None


@pytest.mark.parametrize("odd_rows", [1, 40])
def test_matrices_with_a_row_of_its_own_are_two(odd_rows: int) -> None:
    table = read_table(twice_quantized(odd_rows))
    assert not table.tied and len(table.parts) == 2 and table.least_cosine is None


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("algorithm", ["agglomerative", "kmeans"])
def test_a_tied_table_twice_has_the_partition_of_the_table_once(metric: Any, algorithm: Any) -> None:
    once = token_table(tiny.llama(400, tied=True))
    twice = np.concatenate([once, once], axis=1)
    labels = [cluster_tokens(t, n_clusters=80, metric=metric, algorithm=algorithm) for t in (once, twice)]
    np.testing.assert_array_equal(*labels)


def test_other_architectures_of_transformers(tmp_path: Path) -> None:
    import transformers as t

    sizes = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    configs = [
        t.GPT2Config(vocab_size=30, n_embd=8, n_layer=1, n_head=2),
        t.GPTNeoXConfig(**sizes, intermediate_size=8),
        t.OPTConfig(**sizes, ffn_dim=8, word_embed_proj_dim=8),
        t.BloomConfig(vocab_size=30, hidden_size=8, n_layer=1, n_head=2),
        t.Qwen2Config(**sizes, intermediate_size=8, num_key_value_heads=2),
        t.Gemma2Config(**sizes, intermediate_size=8, num_key_value_heads=2, head_dim=4),
        t.MambaConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, state_size=4),
    ]
    for config in configs:
        model = t.AutoModelForCausalLM.from_config(config)
        folder = tmp_path / config.model_type
        model.save_pretrained(folder)
        tied = model.get_input_embeddings().weight is model.get_output_embeddings().weight
        for kind in ("input", "output", "concatenated"):
            wanted = expected(model, "input" if tied else kind)
            np.testing.assert_allclose(token_table(folder, kind), wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("source", "head"),
    [
        ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
        ("model.language_model.embed_tokens.weight", "lm_head.weight"),
        ("tok_embeddings.weight", "output.weight"),
        ("transformer.embedding.word_embeddings.weight", "transformer.output_layer.weight"),
        ("transformer.wte.weight", "lm_head.weight"),
        ("gpt_neox.embed_in.weight", "embed_out.weight"),
    ],
)
def test_names_in_checkpoints(tmp_path: Path, source: str, head: str) -> None:
    others = {
        "model.vision_tower.vision_model.embeddings.position_embedding.weight": matrix(3),
        "vision_tower.embeddings.word_embeddings.weight": matrix(4),
        "audio_tower.embed_tokens.weight": matrix(5),
        "model.layers.0.self_attn.q_proj.weight": matrix(6),
        "model.layers.61.embed_tokens.weight": matrix(7),
        "model.layers.61.shared_head.head.weight": matrix(8),
        "lm_head.bias": torch.zeros(10),
    }
    folder = checkpoint(tmp_path / "m", {source: matrix(1), head: matrix(2), **others})
    table = token_table(folder)
    np.testing.assert_allclose(table, np.concatenate([unit(matrix(1)), unit(matrix(2))], axis=1), atol=1e-6)


NO_HEAD = r"has no output head.*embedding='input'"
PACKED = torch.zeros(10, 2, dtype=torch.uint8)
TYPES = {torch.int8: "I8", torch.uint8: "U8", torch.float8_e4m3fn: "F8_E4M3"}


@each(
    ("head", "config", "message"),
    [
        ({}, {"architectures": ["LlamaModel"]}, NO_HEAD),
        ({}, {"tie_word_embeddings": False}, NO_HEAD),
        ({}, {"architectures": ["BertForSequenceClassification"]}, NO_HEAD),
        *(
            ({f"lm_head.{end}": PACKED}, {}, r"quantized.*before quantization")
            for end in ("qweight", "weight_packed", "weight.absmax", "weight_scale")
        ),
        *(
            ({"lm_head.weight": torch.ones(10, 4).to(dtype)}, {}, f"stored as {name}: it is quantized")
            for dtype, name in TYPES.items()
        ),
    ],
)
def test_a_checkpoint_whose_output_head_cannot_be_read_still_has_an_input(
    tmp_path: Path, head: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    folder = checkpoint(tmp_path / "m", INPUT | head, **config)
    np.testing.assert_allclose(token_table(folder, "input"), unit(matrix(1)), atol=1e-6)
    for kind in ("output", "concatenated"):
        with pytest.raises(ModelError, match=message):
            token_table(folder, kind)


def test_several_candidates_are_named(tmp_path: Path) -> None:
    several = {f"{part}.model.embed_tokens.weight": matrix(k) for k, part in enumerate(("thinker", "talker"))}
    folder = checkpoint(tmp_path / "m", several | HEAD)
    with pytest.raises(ModelError, match=r"several .* talker\.model\.embed_tokens\.weight, thinker\.model"):
        token_table(folder, "input")
    assert token_table(folder, "output").shape == (10, 4)


def test_a_tied_input_matrix_may_be_the_missing_one(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", HEAD, tie_word_embeddings=True)
    np.testing.assert_allclose(token_table(folder, "input"), unit(matrix(2)), atol=1e-6)


def test_nested_settings_of_multimodal_models_tie(tmp_path: Path) -> None:
    tensors = {"language_model.model.embed_tokens.weight": matrix(1)}
    nested = {"tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True}}
    folder = checkpoint(tmp_path / "m", tensors, architectures=["Gemma3ForConditionalGeneration"], **nested)
    assert token_table(folder).shape == (10, 4)
    assert read_table(folder).tied


def test_a_model_in_memory_without_output_head() -> None:
    from transformers import LlamaModel

    base = LlamaModel(tiny.llama(40).config)
    assert token_table(base, "input").shape == (40, 16)
    for kind in ("output", "concatenated"):
        with pytest.raises(ModelError, match="LlamaModel has no output head"):
            token_table(base, kind)


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_a_quantized_head_in_memory(dtype: str) -> None:
    model = tiny.llama(40)
    model.lm_head.weight = torch.nn.Parameter(torch.ones(40, 16).to(getattr(torch, dtype)), requires_grad=False)
    with pytest.raises(ModelError, match=f"stored as {dtype}: it is quantized"):
        token_table(model)
    assert token_table(model, "input").shape == (40, 16)


def test_a_head_that_holds_no_matrix() -> None:
    model = tiny.llama(40)
    model.lm_head = torch.nn.Sequential(model.lm_head)
    with pytest.raises(ModelError, match="no plain matrix"):
        token_table(model)


def test_a_model_that_is_not_in_memory() -> None:
    from transformers import LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(tiny.llama(40).config)
    with pytest.raises(ModelError, match="device 'meta'"):
        token_table(model)


def test_weights_in_other_formats(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"no safetensors weights.*save_pretrained"):
        token_table(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin.*may hold code"):
        token_table(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"adapter.*Merge"):
        token_table(tmp_path)


def test_a_damaged_checkpoint(tmp_path: Path) -> None:
    tiny.llama(40).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ModelError, match="damaged or incomplete"):
        token_table(tmp_path)
    file.write_bytes(b"junk")
    with pytest.raises(ModelError, match="damaged or incomplete"):
        token_table(tmp_path)
    file.unlink()
    wrong = '{"weight_map": {"model.embed_tokens.weight": 5, "lm_head.weight": 5}}'
    for content in ("{", "[" * 100_000, "[]", "{}", '{"weight_map": []}', wrong):
        (tmp_path / "model.safetensors.index.json").write_text(content)
        with pytest.raises(ModelError, match=r"index.json is damaged"):
            token_table(tmp_path)


def test_only_the_names_that_are_used_are_checked_in_an_index_of_shards(tmp_path: Path) -> None:
    tiny.llama(40).save_pretrained(tmp_path)
    table = token_table(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "one.safetensors")
    used = '"model.embed_tokens.weight": "one.safetensors", "lm_head.weight": "one.safetensors"'
    index = f'\ufeff{{"metadata": {{"total_size": NaN}}, "weight_map": {{"model.norm.weight": null, {used}}}}}'
    (tmp_path / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    assert np.array_equal(token_table(tmp_path), table)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_files_of_a_checkpoint_that_hold_something_else(name: str, tmp_path: Path) -> None:
    """Transformers and tokenizers raise for them what nobody expects: a bare Exception, RecursionError, ..."""
    tiny.saved(tiny.llama(len(tiny.byte_level_bpe())), tmp_path)
    (tmp_path / name).write_text("[" * 100_000)
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_backend("transformers", tmp_path)
    with pytest.raises(VocabularyError, match=r"No tokenizer could be loaded [^\n]*[^.]\. Pass the tokenizer"):
        TokenClusters.from_model(tmp_path, n_clusters=10)


def test_a_checkpoint_without_a_tokenizer_is_one_line(tmp_path: Path) -> None:
    tiny.llama(40).save_pretrained(tmp_path)
    with pytest.raises(
        VocabularyError, match=r"^No tokenizer could be loaded [^\n]*[^.]\. Pass the tokenizer yourself\.$"
    ):
        TokenClusters.from_model(tmp_path, n_clusters=10)


def test_a_checkpoint_without_known_names(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", {"something.else": matrix(1)})
    with pytest.raises(ModelError, match="No embedding matrix was recognized"):
        token_table(folder)


def test_rows_of_zeros_stay_zero_and_unequal_rows_are_cut(tmp_path: Path) -> None:
    source = matrix(1, rows=12)
    source[3] = 0
    folder = checkpoint(tmp_path / "m", {"model.embed_tokens.weight": source} | HEAD)
    table = token_table(folder)
    assert table.shape == (10, 8)
    assert not table[3, :4].any() and table[3, 4:].any()


def test_rows_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    broken = matrix(1)
    broken[7, 2] = float("nan")
    folder = checkpoint(tmp_path / "m", {"model.embed_tokens.weight": broken} | HEAD)
    with pytest.raises(ModelError, match=r"Row 7 .* NaN"):
        token_table(folder)


def test_fewer_rows_than_tokens_are_refused() -> None:
    with pytest.raises(ModelError, match=r"41 tokens but the embeddings .* only 40 rows"):
        read_table(tiny.llama(40)).rows(41)


def test_places_that_are_no_model(tmp_path: Path) -> None:
    for source in (tmp_path / "missing", "./a/b/c"):
        with pytest.raises(ModelError, match="no directory"):
            token_table(source)
    for name, message in (("model.bin", "is a file"), ("model.gguf", "is not a GGUF file")):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(ModelError, match=message):
            token_table(tmp_path / name)
    with pytest.raises(ModelError, match="got SimpleNamespace"):
        token_table(SimpleNamespace())
    with pytest.raises(InvalidInputError, match="one of concatenated, input, output, got 'both'"):
        token_table(tmp_path, "both")  # type: ignore[arg-type]


def test_a_hub_id_is_read_from_the_local_hub_cache(hub_cache: Callable[[str], Path]) -> None:
    model = tiny.llama(40)
    model.save_pretrained(hub_cache("someone/model"))
    np.testing.assert_allclose(token_table("someone/model"), expected(model, "concatenated"), atol=1e-6)
    origin = origin_of("someone/model")
    assert (origin.model, origin.hub_id, origin.commit) == ("someone/model", "someone/model", COMMIT)
    with pytest.raises(ModelError, match="no directory 'someone/else' here, and the hub does not give it"):
        token_table("someone/else")


def test_the_origin_keeps_no_path(tmp_path: Path) -> None:
    tiny.llama(40).save_pretrained(tmp_path / "my-model")
    assert origin_of(tmp_path / "my-model").model == "my-model"
    assert origin_of(tiny.llama(40)).model == "LlamaForCausalLM"
