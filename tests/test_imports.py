"""Modules that importing semtoken loads, and names that its modules share."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

import semtoken
from tests.sources import SOURCE, texts

HEAVY = (
    *("torch", "transformers", "pandas", "scipy", "numba", "sklearn", "vllm", "matplotlib", "pyarrow"),
    *("fastapi", "httpx", "openai", "pydantic", "ray"),
)

CORE = """
import tokenizers
import numpy as np
import semtoken as st

words = ["<eos>", "TV", "television", "the", "t", "17"]
model = tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<eos>")
tokenizer = tokenizers.Tokenizer(model)
tokenizer.add_special_tokens(["<eos>"])
vocabulary = st.Vocabulary.from_tokenizer(tokenizer)
clusters = st.TokenClusters(np.array([0, 1, 1, 2, 3, 4], dtype=np.int32), vocabulary)
scored = st.score_logits(np.zeros((2, 6), dtype=np.float32), [1, 0], clusters, preset="paper")
assert round(scored.tokens[0].agreeing_probability, 6) == round(5 / 6, 6), scored  # TV television; t; <eos> the
"""


def loaded_by(code: str) -> set[str]:
    """Top-level modules of a fresh interpreter after some code."""
    code += "\nimport sys, json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_core_loads_nothing_heavy() -> None:
    assert loaded_by(CORE).isdisjoint(HEAVY)


def test_clustering_waits_for_its_libraries_until_it_begins() -> None:
    assert loaded_by("import semtoken.clustering.partition").isdisjoint(HEAVY)


def test_plans_and_reports_of_runs_do_not_wait_for_torch() -> None:
    assert loaded_by("import semtoken.bench.run, semtoken.bench.report.content").isdisjoint({"torch", "transformers"})


def test_import_alone_loads_not_even_numpy() -> None:
    assert loaded_by("import semtoken").isdisjoint((*HEAVY, "numpy"))


def test_the_help_of_every_command_loads_nothing_heavy() -> None:
    code = """
from semtoken.cli.commands import leaves
from semtoken.cli.help import help_of
for place in leaves(): help_of(place)
"""
    assert loaded_by(code).isdisjoint((*HEAVY, "numpy", "rich"))


def test_every_public_name_is_there() -> None:
    for name in semtoken.__all__:
        assert getattr(semtoken, name) is not None
    assert set(dir(semtoken)) >= set(semtoken.__all__)
    with pytest.raises(AttributeError, match="no attribute 'score_logit'"):
        _ = semtoken.score_logit


NAME_OF_TYPE = re.compile(r"^ *class (\w+)|^(\w+)(?:: \w+)? = (?:npt\.)?NDArray\[", re.MULTILINE)
"""A class, or a name of an array as in `FloatArray = npt.NDArray[np.float64]`."""


def test_a_name_stands_for_one_type() -> None:
    """Two ideas under one name are hard to tell apart in a search, a traceback or a conversation."""
    homes: dict[str, list[str]] = {}
    for path, text in texts().items():
        for names in NAME_OF_TYPE.findall(text):
            homes.setdefault("".join(names), []).append(str(path.relative_to(SOURCE)))
    assert len(homes) > 500 and "FloatArray" in homes
    shared = {name: found for name, found in homes.items() if len(found) > 1}
    assert not shared, f"name one of them otherwise: {shared}"


def test_no_module_hides_a_public_function() -> None:
    """`semtoken.core` once imported would hide a function of that name."""
    modules = {path.stem if path.is_file() else path.name for path in SOURCE.iterdir()}
    functions = {name for name in semtoken.__all__ if not isinstance(getattr(semtoken, name), type(semtoken))}
    assert modules.isdisjoint(functions - {"__version__"})
