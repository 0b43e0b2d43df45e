"""Two ways to read one reply may not contradict each other: a tokenizer's number lies within the interval without it.

That needs no known answer, so it is tested on recorded replies and on made-up ones whose lists are damaged as those of
servers are: entries doubled, copied from the step before, overwritten, missing, null, or a number that stands for none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken.errors import SemtokenError
from tests.replies.recorded import NAMES, STREAMED, clusters, recording
from tests.rows import each

NEAR = 1e-4
VOCABULARY = clusters().vocabulary
WORDS = [
    i for i, text in enumerate(VOCABULARY.texts) if text.strip() and not (VOCABULARY.special[i] or VOCABULARY.broken[i])
]
Rng = np.random.Generator
Entry = dict[str, Any]
STAND_INS = (-9999.0, -1000.0, -100.0, -3.4e38, -math.inf, None, math.nan)


def scored(reply: Any, vocabulary: Any, rules: Any) -> list[st.ScoredAnswer] | None:
    try:
        return list(st.score_reply(reply, vocabulary, rules))
    except SemtokenError:
        return None


def check_readings(reply: Any) -> bool:
    """Whether both readings gave a number; they must not contradict each other under any rule."""
    both = False
    for rules in ("default", st.ScoringRules(equality="exact")):
        without, named = scored(reply, None, rules), scored(reply, VOCABULARY, rules)
        if without is None or named is None:
            continue
        both = True
        for open_ended, one in zip(without, named, strict=True):
            low, high = open_ended.sequence_uncertainty_interval
            shown = json.dumps(reply)[:3000] if isinstance(reply, dict | list) else str(reply)[:3000]
            assert low - NEAR <= one.sequence_uncertainty <= high + NEAR, (rules, open_ended, one, shown)
            assert low - NEAR <= one.sequence_uncertainty_interval[0], (rules, open_ended, one, shown)
            assert one.sequence_uncertainty_interval[1] <= high + NEAR, (rules, open_ended, one, shown)
    return both


@each("name", NAMES)
def test_recorded_replies(name: str) -> None:
    check_readings(recording(name).reply)


@each("name", STREAMED)
def test_recorded_streams(name: str) -> None:
    check_readings(recording(name).stream)


def entry(token: int, log_prob: float, form: str) -> Entry:
    piece = VOCABULARY.pieces[token]
    found: Entry = {"token": VOCABULARY.texts[token], "logprob": log_prob}
    if form != "texts":
        found["bytes"] = list(piece)
    return found | ({"id": token} if form == "ids" else {})


def made_up(rng: Rng, form: str) -> tuple[str, list[Entry]]:
    """An answer of up to six tokens as a server lists it, before anything goes wrong."""
    items, text = [], b""
    for _ in range(rng.integers(1, 7)):
        tokens = [int(i) for i in rng.choice(WORDS, size=rng.integers(1, 7), replace=False)]
        related = [
            i for i in WORDS if VOCABULARY.texts[i].strip().lower() == VOCABULARY.texts[tokens[0]].strip().lower()
        ]
        tokens = list(dict.fromkeys([*tokens[:1], *related[:2], *tokens[1:]]))
        shares = np.sort(rng.dirichlet(np.full(len(tokens) + 1, 0.5)))[::-1]
        logs = [float(np.log(max(share, 1e-12))) for share in shares[: len(tokens)]]
        best = [entry(token, log, form) for token, log in zip(tokens, logs, strict=True)]
        chosen = dict(best[0 if rng.random() < 0.7 else rng.integers(len(best))])
        text += bytes(VOCABULARY.pieces[VOCABULARY.texts.index(chosen["token"])])
        items.append(chosen | {"top_logprobs": best})
    return text.decode("utf-8", "replace"), items


def doubled(rng: Rng, items: list[Entry]) -> None:
    best = items[rng.integers(len(items))]["top_logprobs"]
    best.insert(0, dict(best[rng.integers(len(best))]))


def doubled_with_another_number(rng: Rng, items: list[Entry]) -> None:
    doubled(rng, items)
    best = items[rng.integers(len(items))]["top_logprobs"]
    best[0]["logprob"] = float(-rng.exponential(3.0))


def copied(rng: Rng, items: list[Entry]) -> None:
    if len(items) > 1:
        at = int(rng.integers(1, len(items)))
        items[at]["top_logprobs"] = [dict(one) for one in items[at - 1]["top_logprobs"]]


def overwritten(rng: Rng, items: list[Entry]) -> None:
    item = items[rng.integers(len(items))]
    for one in item["top_logprobs"]:
        if one["token"] == item["token"]:
            one["logprob"] = float(-rng.exponential(4.0))


def missing(rng: Rng, items: list[Entry]) -> None:
    item = items[rng.integers(len(items))]
    item["top_logprobs"] = [one for one in item["top_logprobs"] if rng.random() < 0.5]


def stood_in(rng: Rng, items: list[Entry]) -> None:
    best = items[rng.integers(len(items))]["top_logprobs"]
    best[rng.integers(len(best))]["logprob"] = STAND_INS[rng.integers(len(STAND_INS))]


def own_stood_in(rng: Rng, items: list[Entry]) -> None:
    items[rng.integers(len(items))]["logprob"] = STAND_INS[rng.integers(len(STAND_INS))]


def silent_zeros(rng: Rng, items: list[Entry]) -> None:
    items[rng.integers(len(items))].update(logprob=0.0, top_logprobs=[])


DAMAGES: tuple[Callable[[Rng, list[Entry]], None], ...] = (
    doubled,
    doubled_with_another_number,
    copied,
    overwritten,
    missing,
    stood_in,
    own_stood_in,
    silent_zeros,
)


def reply_of(rng: Rng, text: str, items: list[Entry], form: str) -> Entry:
    usage = {"prompt_tokens": 3, "completion_tokens": len(items)}
    if form == "texts" and rng.random() < 0.5:
        logprobs = {
            "tokens": [one["token"] for one in items],
            "token_logprobs": [one["logprob"] for one in items],
            "top_logprobs": [{one["token"]: one["logprob"] for one in item["top_logprobs"]} for item in items],
        }
        choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": "stop"}
        return {"object": "text_completion", "choices": [choice], "usage": usage}
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "logprobs": {"content": items}, "finish_reason": "stop"}
    return {"object": "chat.completion", "choices": [choice], "usage": usage}


def check_made_up(count: int, seed: int) -> None:
    rng, both = np.random.default_rng(seed), 0
    for _ in range(count):
        form = ("texts", "bytes", "ids")[rng.integers(3)]
        text, items = made_up(rng, form)
        for _ in range(rng.integers(0, 3)):
            damage = DAMAGES[rng.integers(len(DAMAGES))]
            if all(item["top_logprobs"] for item in items):
                damage(rng, items)
        both += check_readings(reply_of(rng, text, items, form))
    assert both > count / 3  # refusals prove nothing


def test_made_up_replies() -> None:
    check_made_up(20, seed=0)


@pytest.mark.slow
def test_ten_thousand_made_up_replies() -> None:
    check_made_up(10_000, seed=1)
