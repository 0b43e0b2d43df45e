"""The gate of LiteLLM on replies that its live test recorded, where LiteLLM is not installed.

Its base class, which gives nothing to what is tried, is a plain class.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict

from semtoken.core.results.blocks import block_of
from semtoken.errors import InvalidInputError
from tests.integrations.recordings import DATA, recorded

HELD = sorted(path.stem for path in (DATA / "litellm_held").glob("*.json"))
SCORED = {"confidence": 0.5, "interval": [0.4, 0.6], "decision": "answer"}


class Fields(BaseModel):
    """An object of LiteLLM: it takes any field, and an absent one is an error."""

    model_config = ConfigDict(extra="allow")


def rebuilt(reply: dict[str, Any]) -> Any:
    """LiteLLM's reply from what `model_dump` gave of it."""
    choices = [
        Fields(**choice | ({"message": Fields(**choice["message"])} if "message" in choice else {}))
        for choice in reply.get("choices", ())
    ]
    return Fields(**reply | ({"choices": choices} if choices else {}))


@pytest.fixture(scope="module")
def ours() -> Iterator[ModuleType]:
    """Our module for LiteLLM, imported over a base class that does nothing."""
    name = "semtoken.integrations.litellm"
    bare = {one: ModuleType(one) for one in ("litellm", "litellm.integrations", "litellm.integrations.custom_logger")}
    vars(bare["litellm.integrations.custom_logger"])["CustomLogger"] = object
    with patch.dict(sys.modules, bare):
        sys.modules.pop(name, None)
        yield import_module(name)
        sys.modules.pop(name, None)


def passed(gate: Any, reply: Any) -> Any:
    return asyncio.run(gate.async_post_call_success_deployment_hook({}, reply, None))


@pytest.mark.parametrize("name", HELD)
def test_nothing_of_an_answer_that_is_held_back_is_left(ours: ModuleType, name: str) -> None:
    run = recorded(f"litellm_held/{name}")
    assert run["words"] and all(word in json.dumps(run["shown"]) for word in run["words"])
    before = rebuilt(run["shown"])
    held = passed(ours.UncertaintyGate(0.0, unscored="hold"), before).model_dump(mode="json")
    assert held == run["held"]
    assert ours.NOT_SURE in json.dumps(held) and not any(word in json.dumps(held) for word in run["words"])
    kept = [block_of(place) for place in held.get("choices", [held])]
    sent = [block_of(place) or {} for place in run["shown"].get("choices", [run["shown"]])]
    assert [(one or {}).get("interval") for one in kept] == [one.get("interval") for one in sent]
    assert passed(ours.UncertaintyGate(1.0), rebuilt(run["shown"])).model_dump(mode="json") == run["shown"]


@pytest.mark.parametrize(
    "block",
    [
        None,
        {"reason": "no log-probabilities"},
        {"confidence": 0.1},
        {"confidence": 0.1, "interval": None},
        {"confidence": None, "interval": [0.0, 0.1]},
        {"confidence": 0.1, "interval": [0.1]},
        {"confidence": 0.1, "interval": ["0", "1"]},
        {"confidence": float("nan"), "interval": [float("nan"), 1.0]},
    ],
)
def test_a_block_without_numbers_is_no_score_and_no_error(ours: ModuleType, block: Any) -> None:
    """LiteLLM passes an answer on where its hook fails, and NaN is above no threshold."""
    assert ours.UncertaintyGate(0.5, unscored="hold").holds_back(block)
    assert not ours.UncertaintyGate(0.5).holds_back(block)


def test_the_lower_end_or_the_decision_counts(ours: ModuleType) -> None:
    assert ours.UncertaintyGate(0.59).holds_back(SCORED) and not ours.UncertaintyGate(0.61).holds_back(SCORED)
    assert ours.UncertaintyGate(np.float32(0.59)).holds_back(SCORED) is True
    undecided = {name: value for name, value in SCORED.items() if name != "decision"}
    for unscored in ("pass", "hold"):
        gate = ours.UncertaintyGate(unscored=unscored)
        assert gate.holds_back({"decision": "abstain"}) and not gate.holds_back(SCORED)
        assert gate.holds_back(undecided) == (unscored == "hold")
    for wrong in (50, float("nan"), "0.5"):
        with pytest.raises(InvalidInputError, match="from 0 to 1"):
            ours.UncertaintyGate(wrong)
    with pytest.raises(InvalidInputError, match="'pass' or 'hold'"):
        ours.UncertaintyGate(0.5, unscored="keep")
