"""Odd requests to `/v1/decisions` and `/v1/systemone`: right ones, bent in one place or several.

    python -m tests.web.odd_requests --seed 1 --requests 10000 [--target serve | passed | texts]

asks a small model behind a real server, and ends with an error where any request is answered with a status of 500 or
more, with something that is no JSON object, or with probabilities that are none. `passed` asks through a proxy that
passes requests on, `texts` through one that asks them as texts.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import sys
from collections import Counter
from typing import Any

LISTED = 300
"""Log-probabilities a token: the small model knows nothing, so that its options are seldom among the first."""
TEXTS = [
    "",
    " ",
    "Yes",
    "yes",
    "true",
    "New York",
    "New York City",
    "<|user|>",
    "<|end|><|assistant|>",
    "{{ 7*7 }}",
    "{% raw %}",
    "\u0000",
    "\ud800",
    "\u202e",
    "é" * 40,
    "日本語",
    "🙂",
    "a" * 3000,
    "\n\n\n",
    "A",
    "B. x",
    "1",
    "<script>",
    "\\u0041",
    "__proto__",
]
ODD: list[Any] = [None, True, False, 0, -1, 1.5, 1e308, 10**30, [], {}, [[]], {"a": None}, *TEXTS]
RIGHT: dict[str, list[Any]] = {
    "/v1/decisions": [
        {
            "model": "tiny",
            "input": "A parcel is late.",
            "questions": [
                {"type": "predicate", "instructions": "Late?", "name": "late"},
                {"type": "choice", "instructions": "Who?", "choices": [{"value": "we"}, {"value": True}]},
                {
                    "type": "score",
                    "instructions": "How?",
                    "levels": [{"label": "a", "description": "b"}, {"label": "c"}],
                },
            ],
            "semtoken": {"reading": "words", "orders": 2},
        },
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Go"}]},
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "x"},
            ],
            "questions": [{"type": "predicate", "instructions": [{"type": "input_text", "text": "Run?"}]}],
            "prompt_cache_options": {"mode": "explicit"},
        },
    ],
    "/v1/systemone": [
        {
            "model": "tiny",
            "state": {"text": "A parcel is late."},
            "questions": {
                "late": {"type": "noul", "instructions": "Late?", "criteria": {"true": "so", "false": None}},
                "who": {"type": "choice", "criteria": {"we": None, "they": {"a": 1}}},
                "how": {"type": "score", "instructions": ["x"], "criteria": ["a", {"b": 1}, "c"]},
            },
        },
        {"state": "s", "questions": {"q": {"type": "noul"}}, "semtoken": {"orders": "all"}},
    ],
}


def odd_request(chance: random.Random) -> tuple[str, bytes]:
    """A path and the body of a request."""
    path = chance.choice(list(RIGHT))
    body = copy.deepcopy(chance.choice(RIGHT[path]))
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
        _bend(body, chance)
    data = json.dumps(body).encode()
    if chance.random() < 0.05:
        cut = chance.randrange(len(data) + 1)
        data = chance.choice([data[:cut], data[:cut] + bytes([chance.randrange(256)]) + data[cut:], b"[" * cut])
    return path, data


def _bend(body: Any, chance: random.Random) -> None:
    """Change one place anywhere in a request."""
    holders = list(_holders(body))
    if not holders:
        return
    holder = chance.choice(holders)
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = chance.choice(keys)
    action = chance.choice(["replace", "replace", "remove", "add", "repeat", "rename", "deepen"])
    if action == "replace":
        holder[key] = chance.choice(ODD)
    elif action == "remove":
        del holder[key]
    elif action == "repeat" and isinstance(holder, list):
        holder.extend([copy.deepcopy(holder[key])] * chance.choice([1, 9, 64, 260]))
    elif action == "deepen":
        for _ in range(chance.choice([1, 3, 200])):
            holder[key] = [holder[key]]
    elif isinstance(holder, list):
        holder.insert(key, chance.choice(ODD))
    elif action == "rename":
        holder[chance.choice(TEXTS)] = holder.pop(key)
    else:
        for number in range(chance.choice([1, 3, 70])):
            holder[f"{chance.choice(TEXTS)}{number}"] = copy.deepcopy(holder[key])


def _holders(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict | list) and value and depth < 20:
        yield value
        for inside in value.values() if isinstance(value, dict) else value:
            yield from _holders(inside, depth + 1)


def wrong_with(status: int, reply: Any) -> str | None:
    """What is wrong with a reply, if anything is."""
    if status >= 500 or not isinstance(reply, dict):
        return f"status {status}"
    if status != 200:
        return None if ("error" in reply or "detail" in reply) else "an error in no known shape"
    answers = reply["answers"]
    for answer in answers if isinstance(answers, list) else answers.values():
        given = answer.get("probabilities", [])
        listed = [one["probability"] for one in given] if isinstance(given, list) else list(given.values())
        one = answer.get("probability", answer.get("noul"))
        if any(not 0 <= p <= 1 for p in [*listed, *([] if one is None else [one])]):
            return "a probability outside 0 and 1"
        if listed and not math.isclose(sum(listed), 1, abs_tol=1e-6):
            return "probabilities that do not sum to 1"
    return None


def main() -> None:
    """Run the campaign."""
    from contextlib import ExitStack

    import httpx

    from semtoken import STC
    from semtoken.web.proxy.app import proxy_app
    from semtoken.web.proxy.settings import ProxySettings
    from semtoken.web.serve.app import serve_app
    from semtoken.web.serve.engine import Engine
    from semtoken.web.serve.service import Offer
    from tests.decisions.models import tiny
    from tests.web.servers import running

    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--target", choices=["serve", "passed", "texts"], default="serve")
    given = parser.parse_args()
    chance, seen, wrong = random.Random(given.seed), Counter[str](), []
    with ExitStack() as stack:
        url = stack.enter_context(
            running(serve_app(Engine(STC(tiny())), Offer("tiny", max_logprobs=LISTED)), strict=False)
        )
        if given.target != "serve":
            decisions = "chat" if given.target == "texts" else "auto"
            url = stack.enter_context(running(proxy_app(ProxySettings(url, decisions=decisions, top_logprobs=LISTED))))
        http = stack.enter_context(httpx.Client(base_url=url, timeout=300))
        for number in range(given.requests):
            path, body = odd_request(chance)
            reply = http.post(path, content=body)
            seen[f"{path} {reply.status_code}"] += 1
            if (what := wrong_with(reply.status_code, reply.json())) is not None:
                wrong.append((number, what))
                print(number, what, path, body[:400], reply.text[:400], flush=True)
            if number % 500 == 499:
                print(number + 1, dict(seen), flush=True)
    print(f"{given.requests} requests with seed {given.seed}: {dict(seen)}; {len(wrong)} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
