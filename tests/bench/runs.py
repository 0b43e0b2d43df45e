"""Small runs for the tests: a random Llama of six hundred tokens or the almanac, on a handful of questions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

from semtoken.bench.run import Failure, run_benchmark
from semtoken.bench.settings import check_settings
from tests import tiny
from tests.json_lines import write_lines

TINY_QUESTIONS = [
    ("who is it", ["the TV"]),
    ("The capital of France", ["Paris"]),
    ("television", ["A TV", "a television set"]),
    ("is it the same no", ["no", "not the same"]),
    ("who is New York", ["Washington"]),
    ("what is the naïve café", ["Größe"]),
    ("a set of", ["42"]),
]


def start(settings: Mapping[str, Any], run: Path, **options: Any) -> list[Failure]:
    """Run a benchmark with these settings; returns what failed."""
    return run_benchmark(check_settings(settings, "the test"), run, **options)


def tiny_model(folder: Path) -> Path:
    """A checkpoint of a random Llama whose answers end now and then."""
    import torch

    tokenizer = tiny.byte_level_bpe()
    model = tiny.llama(len(tokenizer))
    with torch.no_grad():
        model.lm_head.weight[tokenizer.eos_token_id] += 0.5
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_questions(path: Path) -> Path:
    """A file of `TINY_QUESTIONS`."""
    rows = [{"id": f"q{i}", "question": q, "answers": a} for i, (q, a) in enumerate(TINY_QUESTIONS)]
    return write_lines(path, rows)


def tiny_settings(folder: Path) -> dict[str, Any]:
    """Settings of a run of that model on those questions, all of it made in a folder."""
    return {
        "models": [
            {"name": str(tiny_model(folder / "tiny")), "clusters": {"n_clusters": 60}, "batch_size": 2, "device": "cpu"}
        ],
        "datasets": [{"name": str(tiny_questions(folder / "questions.jsonl")), "prompt": "Q: {question}\nA:"}],
        "decoding": {"max_new_tokens": 6, "n_samples": 3},
        "judges": ["exact", "contains"],
        "nli": "almanac",
        "similarity": "almanac",
        "sensitivity": {"n_clusters": [20, 60], "linkage": ["average"]},
        "shard_size": 4,
    }


def shards(run: Path) -> dict[str, dict[str, list[Any]]]:
    """Every shard of a run, by its path in the folder, as columns; what they say of seconds is left out."""
    found = sorted(run.rglob("*.parquet"))
    return {str(path.relative_to(run)): pyarrow.parquet.read_table(path).to_pydict() for path in found}


def same(one: Any, two: Any) -> bool:
    """Equality in which a NaN equals another."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple | np.ndarray):
        return len(one) == len(two) and all(same(a, b) for a, b in zip(one, two, strict=True))
    return bool(one == two or (one != one and two != two))
