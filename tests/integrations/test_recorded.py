"""What the hosts gave in their live tests, against `STC` on the same answers. No host is needed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from semtoken.almanac import load_questions

if TYPE_CHECKING:
    from semtoken import STC

DATA = Path(__file__).parent / "data"


def recorded(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


@cache
def almanac(preset: Any = "default") -> STC:
    pytest.importorskip("transformers", reason="transformers, which runs the embedded model, is missing")
    from semtoken import STC

    return STC.from_pretrained("almanac", dtype="float32", preset=preset)


@cache
def prompts() -> dict[str, str]:
    return {question.id: question.prompt() for question in load_questions("test")}


def test_lm_polygraph_has_the_numbers_of_stc() -> None:
    run = recorded("lm_polygraph")
    scored = almanac("paper").score([prompts()[name] for name in run["questions"]], run["tokens"])
    estimates = run["estimates"]
    assert len(scored) == len(run["correct"]) == 40
    assert estimates["SemanticTokenClustering"] == pytest.approx([-one.log_score for one in scored], abs=1e-4)
    assert estimates["MaximumSequenceProbability"] == pytest.approx([-one.log_probability for one in scored], abs=1e-4)
