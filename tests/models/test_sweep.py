"""No model of the installed transformers gives wrong numbers: benchmarks/architectures.md, type by type."""

from __future__ import annotations

import re

import pytest
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as IMAGE

from tests.models.sweep import PAGE, outcome_of, sweep

pytestmark = pytest.mark.usefixtures("own_cache")


def listed(outcome: str) -> set[str]:
    """The types in the rows of the table that begin like this."""
    rows = re.findall(rf"^\| {outcome}[^|]*\| ([^|]*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {kind for row in rows for kind in row.split(", ")}


@pytest.mark.parametrize("kind", ["bart", pytest.param("llama", marks=pytest.mark.slow)])
def test_a_few_are_as_the_table_says(kind: str) -> None:
    """Padded batches of the first are not equal; all is equal of the second."""
    state = outcome_of(kind).state
    assert kind in listed({"whole": "correct in all ways", "some": "correct; disabled"}[state])


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({*CAUSAL, *IMAGE}))
def test_no_model_is_worse_than_the_table_says(kind: str) -> None:
    [(_, one)] = sweep([kind])
    assert one.state != "wrong", one.why
    if kind in listed("correct in all ways"):
        assert one.state == "whole", one
    if kind in listed("correct"):
        assert one.state in ("whole", "some"), one
