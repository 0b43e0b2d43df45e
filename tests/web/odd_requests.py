"""Odd requests to `/v1/decisions` and `/v1/systemone`: right ones, bent in one place or several."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

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
WORDS = ["we", "they", "New York", "true", "maybe"]
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


def odd_request(chance: random.Random, model: str = "tiny") -> tuple[str, bytes]:
    """A path and the body of a request to a model of this name."""
    path = chance.choice(list(RIGHT))
    body = copy.deepcopy(chance.choice(RIGHT[path])) | {"model": model}
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
        bend(body, chance)
    data = json.dumps(body).encode()
    if chance.random() < 0.05:
        cut = chance.randrange(len(data) + 1)
        data = chance.choice([data[:cut], data[:cut] + bytes([chance.randrange(256)]) + data[cut:], b"[" * cut])
    return path, data


def right_request(chance: random.Random, model: str) -> tuple[str, bytes]:
    """A path and the body of a request that its format allows, with one to four questions."""
    path = chance.choice(list(RIGHT))
    how = {"reading": chance.choice(["labels", "labels", "words"]), "orders": chance.choice([1, 1, 2, 3, "all"])}
    kinds = [chance.choice(["predicate", "choice", "score"]) for _ in range(chance.randint(1, 4))]
    counts = [chance.choice([2, 3, 3, 5, 10, 26, 30]) if kind == "choice" else chance.randint(2, 10) for kind in kinds]
    texts = [[f"{chance.choice(WORDS)} {i}" if count > 5 else WORDS[i] for i in range(count)] for count in counts]
    body: dict[str, Any] = {"model": model, **chance.choice([{}, {"semtoken": how}])}
    if path == "/v1/decisions":
        fields = {"choice": ("choices", "value"), "score": ("levels", "label")}
        questions: list[dict[str, Any]] = [{"type": kind, "instructions": "Which?"} for kind in kinds]
        for question, kind, options in zip(questions, kinds, texts, strict=True):
            if kind != "predicate":
                listed, name = fields[kind]
                question[listed] = [{name: option} for option in options]
        return path, json.dumps(body | {"input": "A parcel is late.", "questions": questions}).encode()
    criteria: dict[str, Any] = {"predicate": None}
    by_name = {}
    for number, (kind, options) in enumerate(zip(kinds, texts, strict=True)):
        criteria |= {"choice": dict.fromkeys(options), "score": options}
        by_name[f"q{number}"] = {"type": "noul" if kind == "predicate" else kind, "criteria": criteria[kind]}
    return path, json.dumps(body | {"state": {"text": "A parcel is late."}, "questions": by_name}).encode()


def bend(body: Any, chance: random.Random, odd: Sequence[Any] = ODD) -> None:
    """Change one place anywhere in a request."""
    holders = list(_holders(body))
    if not holders:
        return
    holder = chance.choice(holders)
    keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    key = chance.choice(keys)
    action = chance.choice(["replace", "replace", "remove", "add", "repeat", "rename", "deepen"])
    if action == "replace":
        holder[key] = copy.deepcopy(chance.choice(odd))
    elif action == "remove":
        del holder[key]
    elif action == "repeat" and isinstance(holder, list):
        holder.extend([copy.deepcopy(holder[key])] * chance.choice([1, 9, 64, 260]))
    elif action == "deepen":
        for _ in range(chance.choice([1, 3, 200])):
            holder[key] = [holder[key]]
    elif isinstance(holder, list):
        holder.insert(key, copy.deepcopy(chance.choice(odd)))
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
