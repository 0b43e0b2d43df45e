"""All of transformers' ways of decoding in which tokens are not chosen from the model's own logits are refused."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from transformers import GenerationConfig
from transformers.generation.utils import GenerationMixin

import semtoken as st
from semtoken.errors import BackendError, InvalidInputError
from tests import tiny
from tests.models.plain_pass import PROMPTS, tiny_model
from tests.rows import each

DRAFTING: dict[str, Any] = {"assistant_early_exit": 1, "prompt_lookup_num_tokens": 2, "use_mtp": True}
"""Settings by which tokens are proposed by something else than a step of the model."""
OTHERS: dict[str, Any] = {
    "num_beams": 2,
    "constraints": [1],
    "force_words_ids": [[1]],
    "penalty_alpha": 0.6,
    "dola_layers": "low",
}
"""Further settings that choose another way of decoding."""
HARMLESS = {"do_sample", "top_k", "num_beam_groups"}
"""Settings that the way of decoding depends on, and that alone choose none that is refused."""
DRAFTED = {"speculation_type", "assistant_ensemble_weight", "do_sample"}
"""Settings that say how drafts are made and taken; alone they let nothing draft."""


@pytest.fixture(scope="module")
def stc() -> st.ScoredModel:
    return st.ScoredModel(tiny_model("Llama"), tiny.byte_level_bpe())


def with_settings(settings: dict[str, Any]) -> GenerationConfig:
    """A config that holds settings, whatever transformers says of them."""
    config = GenerationConfig()
    for name, value in settings.items():
        setattr(config, name, value)
    return config


@each("where", ["options", "config", "model"])
@each("name", [*DRAFTING, *OTHERS])
def test_every_other_way_of_decoding_is_refused(stc: st.ScoredModel, name: str, where: str) -> None:
    settings = {name: (DRAFTING | OTHERS)[name]} | ({"top_k": 4} if name == "penalty_alpha" else {})
    before = stc.model.generation_config
    try:
        if where == "options":
            given: dict[str, Any] = settings
        elif where == "config":
            given = {"generation_config": with_settings(settings)}
        else:
            stc.model.generation_config, given = with_settings(settings), {}
        with pytest.raises((BackendError, InvalidInputError), match=r"reject(s|ed)"):
            stc.generate(PROMPTS[:1], max_new_tokens=4, **given)
    finally:
        stc.model.generation_config = before


def test_an_assistant_model_is_refused(stc: st.ScoredModel) -> None:
    with pytest.raises(BackendError, match="Assisted decoding is rejected"):
        stc.generate(PROMPTS[:1], max_new_tokens=4, assistant_model=tiny_model("Llama", seed=1))


def test_the_lists_above_hold_all_that_the_installed_transformers_has() -> None:
    """A release that lets something else draft tokens, or decodes in another way, makes this fail."""
    drafting = inspect.getsource(GenerationMixin._get_candidate_generator)
    asked = set(re.findall(r"(?:if|elif) generation_config\.(\w+)", drafting))
    assert asked == {*DRAFTING, *DRAFTED}
    chosen = set(re.findall(r"self\.(\w+)", inspect.getsource(GenerationConfig.get_generation_mode)))
    assert chosen <= {*DRAFTING, *OTHERS, *HARMLESS}, chosen - {*DRAFTING, *OTHERS, *HARMLESS}
