"""Entries as servers write them, without a model."""

from __future__ import annotations

from typing import Any

from semtoken.journal.entries import JournalEntry, SamplingRule

RULE = SamplingRule("seed", 0.3)


def entry(number: int, **about: Any) -> JournalEntry:
    name = f"entry-{number}"
    values = {
        "id": name,
        "at": 1.7e9 + number,
        "source": "proxy",
        "sampled": RULE.takes(name),
        "seen_twice": RULE.takes(name) and RULE.takes_twice(name),
        "model": "m",
        "prompt": f"p{number}",
        "log_score": -0.01 * (number % 100),
        "log_score_low": -0.01 * (number % 100),
        "log_score_high": -0.01 * (number % 100),
        "method": "exact",
        "signature": "preset:default",
        "distribution": "raw",
        "headline": "stc",
        "confidence": 0.9,
        "question": f"question {number}",
        "answer": f"answer {number}",
        "flags": ("wide",),
        "numbers": {"perplexity": [1.5, 1.0, 2.0]},
    }
    return JournalEntry(**{**values, **about})
