"""Servers' answers to typed questions, by their documents of autumn 2026: the same three questions, figures made up.

vLLM 0.32 (`docs/serving/online_serving/structured_decisions.md`, `decisions.md`), SGLang (`serving_decisions.py`,
`decision_models`), Ollama 0.40 (`api/systemone`), llama.cpp (October 2026), transformers 5.23, OpenAI and TypeSafe Jev.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from semtoken.decisions import Choice, Predicate, Question, Score

QUESTIONS: dict[str, Question] = {
    "team": Choice("Which team?", ["billing", "shipping", "security"], "team"),
    "urgent": Predicate("Is it urgent?", name="urgent"),
    "tone": Score("How upset?", ["calm", "annoyed", "furious"], "tone"),
}
TEAM, URGENT, TONE = (0.75, 0.05, 0.2), (0.125, 0.875), (0.5, 0.3, 0.2)
PROBABILITIES = {"team": TEAM, "urgent": URGENT, "tone": TONE}
MASSES = {"team": 0.875, "urgent": 0.25, "tone": 0.75}
"""Allowed mass, where a server tells it."""
LEVELS = {"0": "calm", "1": "annoyed", "2": "furious"}
BY_OPTION = dict(zip(("billing", "shipping", "security"), TEAM, strict=True))
BY_LEVEL = dict(zip("012", TONE, strict=True))
LISTED = [{"value": value, "probability": p} for value, p in BY_OPTION.items()]
LISTED_LEVELS = [{"value": int(k), "label": LEVELS[k], "probability": p} for k, p in BY_LEVEL.items()]


def entropy_confidence(probabilities: tuple[float, ...]) -> float:
    """As Ollama has it."""
    return 1 + sum(p * math.log(p) for p in probabilities) / math.log(len(probabilities))


def system_one(team: float, tone: float, **more: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "answers": {
            "team": {"type": "choice", "choice": "billing", "probabilities": BY_OPTION, "confidence": team},
            "urgent": {"type": "noul", "noul": URGENT[0]},
            "tone": {"type": "score", "score": 0.7, "legend": LEVELS, "probabilities": BY_LEVEL, "confidence": tone},
        },
        "usage": {"input_tokens": 142, "output_tokens": 3},
        **more,
    }


def decisions(team: float, tone: float) -> dict[str, Any]:
    return {
        "model": "m",
        "answers": [
            {"type": "choice", "name": "team", "choice": "billing", "probabilities": LISTED, "confidence": team},
            {"type": "predicate", "name": "urgent", "probability": URGENT[0]},
            {"type": "score", "name": "tone", "score": 0.7, "probabilities": LISTED_LEVELS, "confidence": tone},
        ],
        "usage": {
            "input_tokens": 142,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 145,
        },
    }


VLLM = system_one(TEAM[0] * MASSES["team"], TONE[0] * MASSES["tone"], id="decision-1", object="structured_decision")
VLLM["created"] = 1790000000
VLLM["answers"]["urgent"] |= {"probabilities": {"yes": 0.125, "no": 0.875}, "confidence": 0.875 * MASSES["urgent"]}
VLLM["diagnostics"] = {name: {"label_mass": mass, "argmax_is_label": True} for name, mass in MASSES.items()}
SGLANG = {
    "object": "decisions",
    "model": "m",
    "prompt_format_version": 1,
    "answers": {
        "team": {"type": "choice", "probabilities": BY_OPTION, "label_mass": MASSES["team"], "choice": "billing"},
        "urgent": {"type": "yes_no", "probabilities": {"yes": 0.125, "no": 0.875}, "label_mass": MASSES["urgent"]},
        "tone": {"type": "score", "probabilities": BY_LEVEL, "label_mass": MASSES["tone"], "score": 0.7},
    },
    "usage": {"prompt_tokens": 142, "total_tokens": 142},
}
NO_ROUTE = (404, {"detail": "Not Found"})
NO_FIELDS = {
    "object": "error",
    "message": "1 validation error: {'type': 'missing', 'loc': ('body', 'questions', 0, 'choice', 'id'), 'msg': "
    "'Field required'}; {'type': 'extra_forbidden', 'loc': ('body', 'questions', 0, 'choice', 'instructions'), "
    "'msg': 'Extra inputs are not permitted'}",
    "code": 400,
}


@dataclass(frozen=True)
class Documented:
    """A server's routes for decisions: what it replies, by path and by a field that the first question must have."""

    routes: dict[str, tuple[str, dict[str, Any]]]
    confidence: str | None
    """What its confidence is, in the note; None where it is the package's own or there is none."""
    masses: bool = False

    def reply(self, path: str, body: Any) -> tuple[int, Any]:
        if path not in self.routes:
            return NO_ROUTE
        field, found = self.routes[path]
        asked = body["questions"]
        first = asked[0] if isinstance(asked, list) else next(iter(asked.values()))
        return (200, found) if field in first and "semtoken" not in body else (400, NO_FIELDS)


VOCABULARY, ENTROPY = "whole vocabulary", "entropy"
SERVERS = {
    "vLLM": Documented({"/v1/systemone": ("type", VLLM)}, VOCABULARY, masses=True),
    "vLLM, OpenAI's shape": Documented({"/v1/decisions": ("instructions", decisions(0.66, 0.38))}, "not said"),
    "SGLang": Documented({"/v1/decisions": ("id", SGLANG)}, None, masses=True),
    "SGLang, a decision model": Documented({"/v1/systemone": ("type", system_one(0.625, 0.25))}, None),
    "llama.cpp": Documented({"/v1/systemone": ("type", system_one(0.625, 0.25))}, None),
    "Ollama": Documented(
        {"/v1/systemone": ("type", system_one(entropy_confidence(TEAM), entropy_confidence(TONE)))}, ENTROPY
    ),
    "transformers": Documented({"/v1/systemone": ("type", system_one(0.625, 0.25))}, None),
    "OpenAI": Documented({"/v1/decisions": ("instructions", decisions(0.9, 0.8))}, "not said"),
    "Jev": Documented({"/v1/systemone": ("type", system_one(0.9, 0.8))}, "not said"),
}
