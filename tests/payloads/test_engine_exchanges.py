"""Exchanges with a real llama-server, each number beside the one that transformers gave for the same weights.

`scripts/record_engines.py` recorded them. `model` was computed by transformers when they were recorded, and `sum` and
`furthest` from the reply as it came, so a reply that is altered by one digit no longer agrees with them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semtoken.payloads import read_payload

EXCHANGES = sorted((Path(__file__).parent / "engines").glob("llama-server-*.json"))
FURTHEST = 0.8
"""Nats between the server's Q4_1 arithmetic and float32 on the same dequantised weights, at any token seen so far."""


def load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def held(exchange: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any], list[float]]]:
    """The choices whose numbers were held against the model's own, and the numbers in the reply."""
    for index, choice in enumerate(exchange["choices"]):
        if choice["model"] is not None:
            items = exchange["reply"]["choices"][index]["logprobs"]["content"]
            yield index, choice, [item["logprob"] for item in items]


def agrees(exchange: dict[str, Any]) -> None:
    for _, choice, numbers in held(exchange):
        assert len(numbers) == len(choice["model"])
        assert sum(numbers) == pytest.approx(choice["sum"], abs=1e-12)
        differences = [abs(number - own) for number, own in zip(numbers, choice["model"], strict=True)]
        assert max(differences) == pytest.approx(choice["furthest"], abs=1e-12)
        assert max(differences) < FURTHEST


@pytest.mark.parametrize("path", EXCHANGES, ids=lambda path: path.stem)
def test_numbers_are_those_that_were_held_against_the_model(path: Path) -> None:
    agrees(load(path))


@pytest.mark.parametrize("path", EXCHANGES, ids=lambda path: path.stem)
def test_numbers_are_read_as_they_stand(path: Path) -> None:
    exchange = load(path)
    payload = read_payload(exchange["reply"])
    for index, _, numbers in held(exchange):
        read = [step.chosen.log_prob for part in payload.choices[index].segments for step in part.steps]
        assert read == numbers[: len(read)]
        terminators = exchange["reply"]["choices"][index]["logprobs"]["content"][len(read) :]
        assert len(terminators) <= 1 and all(item["token"] in ("", "<|im_end|>") for item in terminators)


@pytest.mark.parametrize("path", EXCHANGES, ids=lambda path: path.stem)
def test_one_altered_digit_is_noticed(path: Path) -> None:
    exchange = load(path)
    for index, choice, _ in held(exchange):
        for place in range(len(choice["model"])):
            altered = copy.deepcopy(exchange)
            item = altered["reply"]["choices"][index]["logprobs"]["content"][place]
            item["logprob"] -= 1e-4
            with pytest.raises(AssertionError):
                agrees(altered)


@pytest.mark.parametrize("path", EXCHANGES, ids=lambda path: path.stem)
def test_probabilities_after_the_samplers_are_processed(path: Path) -> None:
    exchange = load(path)
    after = exchange["request"].get("post_sampling_probs", False)
    assert read_payload(exchange["reply"]).distribution == ("processed" if after else "raw")
