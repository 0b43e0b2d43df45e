"""The gate of LiteLLM on replies that its live test recorded, where LiteLLM is not installed.

Its base class, which gives nothing to what is tried, is a plain class.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict

from semtoken.core.results.blocks import block_of
from semtoken.errors import InvalidInputError
from tests.integrations.recordings import DATA, recorded
from tests.stand_ins import imported

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
    with imported(
        "semtoken.integrations.litellm", litellm__integrations__custom_logger={"CustomLogger": object}
    ) as module:
        yield module


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


@pytest.mark.parametrize("name", ["vllm-chat-tool", "vllm-completions", "vllm-responses"])
def test_without_a_block_none_is_put_in(ours: ModuleType, name: str) -> None:
    shown = recorded(f"litellm_held/{name}")["shown"]
    for place in shown.get("choices", [shown]):
        place.pop("semtoken", None)
        place.pop("provider_specific_fields", None)
    held = passed(ours.UncertaintyGate(unscored="hold"), rebuilt(shown)).model_dump_json()
    assert ours.NOT_SURE in held and "semtoken" not in held


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
    for wrong in (50, -0.01, float("nan"), "0.5"):
        with pytest.raises(InvalidInputError, match="'threshold' must be a"):
            ours.UncertaintyGate(wrong)
    with pytest.raises(InvalidInputError, match="'pass', 'hold'"):
        ours.UncertaintyGate(0.5, unscored="keep")


def test_a_number_at_the_threshold_is_let_through(ours: ModuleType) -> None:
    for threshold, least, held in ((0.5, 0.5, False), (0.5, 0.49, True), (0.0, 1.0, False), (1.0, 0.0, False)):
        block = {"confidence": least, "interval": [least, 1.0]}
        assert ours.UncertaintyGate(threshold).holds_back(block) is held


def test_every_score_is_logged(ours: ModuleType) -> None:
    said: list[Any] = []
    log = ours.ScoreLog(lambda block, call: said.append((block["confidence"], call)))
    reply = rebuilt({"choices": [{"semtoken": SCORED}, {}]})
    asyncio.run(log.async_log_success_event({"model": 1}, reply, None, None))
    log.log_success_event({"model": 2}, reply, None, None)
    log.log_success_event({"model": 3}, None, None, None)
    assert said == [(0.5, {"model": 1}), (0.5, {"model": 2})]
