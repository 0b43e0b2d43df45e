"""`equality` beside every preset: under `exact` the score of an answer is the probability of its very tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import semtoken as st
from semtoken.bench.settings import check_settings
from semtoken.cli.model import ModelOptions
from semtoken.cli.settings import ScoringSection, Settings
from semtoken.core.api import LogitsStream, LogprobsStream
from semtoken.errors import InvalidInputError
from semtoken.support.almanac import load_questions
from tests import worked
from tests.replies.made import chat_reply
from tests.rows import each

IDS = worked.ids(*worked.ANSWER)
ROWS = worked.logits(*worked.STEPS)
LISTS = [
    (IDS[i], {worked.ids(text)[0]: math.log(p) for text, p in step.items()}) for i, step in enumerate(worked.STEPS)
]
SEQUENCE = 0.5 * 0.1 * 0.9 * 0.5 * 0.4


def of_stream(stream: Any, steps: Any) -> st.ScoredAnswer:
    for step in steps:
        stream.add(*step)
    finished: st.ScoredAnswer = stream.finish()
    return finished


def of_reply(**how: Any) -> st.ScoredAnswer:
    items = [
        {"token": worked.TOKENS[chosen] or "<end>", "logprob": step[chosen], "top_logprobs": []}
        for chosen, step in LISTS
    ]
    text = "".join(worked.ANSWER)
    return st.score_reply(chat_reply(text, items), worked.clusters(), **how)[0]


DOORS: dict[str, Callable[..., st.ScoredAnswer]] = {
    "logits": lambda **how: st.score_logits(ROWS, IDS, worked.clusters(), **how),
    "logits stream": lambda **how: of_stream(LogitsStream(worked.clusters(), **how), zip(ROWS, IDS, strict=True)),
    "lists": lambda **how: st.score_logprobs(LISTS, worked.clusters(), **how),
    "lists stream": lambda **how: of_stream(LogprobsStream(worked.clusters(), **how), [[step] for step in LISTS]),
    "reply": of_reply,
}


@each("preset", ["default", "paper"])
@each("door", DOORS)
def test_exact_is_the_probability_of_the_very_tokens(door: str, preset: Any) -> None:
    exact = DOORS[door](preset=preset, equality="exact")
    assert math.exp(exact.log_confidence) == pytest.approx(SEQUENCE)
    assert exact.signature == DOORS[door](preset=st.ScoringRules(preset, equality="exact")).signature
    assert exact.signature != DOORS[door](preset=preset).signature
    with pytest.raises(InvalidInputError, match="have an equality already"):
        DOORS[door](preset=st.ScoringRules(preset), equality="exact")
    with pytest.raises(InvalidInputError, match="equality"):
        DOORS[door](preset=preset, equality="same")


def test_a_model_and_a_benchmark_take_it() -> None:
    stc = st.ScoredModel.from_pretrained("almanac", equality="exact")
    [answer] = stc.generate([load_questions("test")[0].prompt()], 24, stop_at_newline=True)
    assert answer.log_confidence == pytest.approx(answer.log_probability, abs=1e-9) and stc.rules.equality == "exact"
    assert ModelOptions().with_settings(Settings(scoring=ScoringSection(equality="exact"))).rules == stc.rules
    given = {"models": ["almanac"], "datasets": ["almanac"], "equality": "exact", "preset": "default"}
    assert check_settings(given, "the settings").rules == stc.rules
    with pytest.raises(InvalidInputError, match="without an equality"):
        check_settings(given | {"preset": "paper", "controls": True}, "the settings")
