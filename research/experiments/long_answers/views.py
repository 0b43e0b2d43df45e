"""Which number tells whether a long answer is right? One line an answer, one column for each way to sum it up.

    python research/experiments/long_answers/views.py MODEL ANSWERS.jsonl VIEWS.parquet

ANSWERS is what `answer.py` wrote. An answer is right if an accepted answer stands in it and not in the question. All columns but
the first five are log confidences: larger is more confident.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import semtoken as st
from semtoken.clustering.function_words import english_stopwords
from semtoken.support.almanac import normalize_answer

WORD = re.compile(r"\w[\w'’-]*")
MASSES: dict[str, Callable[[Any], float]] = {
    "probability": lambda token: token.log_probability,
    "default": lambda token: token.log_agreeing_probability,
    "surface": lambda token: token.log_surface_probability,
    "paper": lambda token: token.log_meaning_probability,
}


def stands_in(accepted: str, text: str) -> bool:
    """Whether the words of an accepted answer stand in a text, one after another."""
    words = normalize_answer(accepted)
    return bool(words) and f" {words} " in f" {normalize_answer(text)} "


def is_right(record: dict[str, Any]) -> bool:
    """An accepted answer stands in the answer, and is no echo of the question."""
    accepted = [text for text in record["answers"] if not stands_in(text, record["question"])]
    return any(stands_in(text, record["text"]) for text in accepted)


def content_words(answer: st.ScoredAnswer, question: str) -> list[tuple[int, int]]:
    """Where the words stand that are no function words and do not repeat the question."""
    asked = {word.lower() for word in WORD.findall(question)}
    words = [match for match in WORD.finditer(answer.text) if match[0].lower() not in english_stopwords()]
    return [match.span() for match in words if match[0].lower() not in asked]


def views(answer: st.ScoredAnswer, question: str) -> dict[str, float]:
    """Every way to sum up one answer."""
    found: dict[str, float] = {}
    spans = content_words(answer, question)
    named = [span for span in spans if answer.text[span[0]].isupper() or answer.text[span[0]].isdigit()]
    for name, mass in MASSES.items():
        logs = [mass(token) for token in answer.tokens]
        found[f"product, {name}"] = math.fsum(logs)
        found[f"geometric mean, {name}"] = math.fsum(logs) / max(len(logs), 1)
        found[f"weakest token, {name}"] = min(logs, default=-math.inf)
        words = [_log_mass(answer, span, mass) for span in spans]
        found |= {f"{key}, {name}": value for key, value in _summed_up(words, "new word").items()}
        names = [_log_mass(answer, span, mass) for span in named]
        found |= {f"{key}, {name}": value for key, value in _summed_up(names, "new name or number").items()}
    for equality in ("exact", "surface", "meaning"):
        phrases = [part.product for part in answer.parts("phrase", equality=equality) if part.product is not None]
        logs = [math.log(max(product, 1e-30)) for product in phrases]
        found |= {f"{key}, {equality}": value for key, value in _summed_up(logs, "phrase").items()}
    return found


def _summed_up(logs: Sequence[float], what: str) -> dict[str, float]:
    # An answer without such a part says nothing: it comes last.
    return {
        f"weakest {what}": min(logs, default=-100.0),
        f"mean {what}": sum(logs) / len(logs) if logs else -100.0,
        f"first {what}": logs[0] if logs else -100.0,
        f"all of {what}": math.fsum(logs) if logs else -100.0,
    }


def _log_mass(answer: st.ScoredAnswer, span: tuple[int, int], mass: Callable[[Any], float]) -> float:
    return math.fsum(mass(token) for token in answer.tokens if token.start < span[1] and token.end > span[0])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("answers", type=Path)
    parser.add_argument("views", type=Path)
    parser.add_argument("--clusters")
    options = parser.parse_args()
    stc = st.ScoredModel.from_pretrained(options.model, clusters=options.clusters)
    records = [json.loads(line) for line in options.answers.read_text(encoding="utf-8").splitlines()]
    prompts = [[{"role": "user", "content": record["question"]}] for record in records]
    answers = stc.score(prompts, [record["ids"] for record in records])
    lines = []
    for record, answer in zip(records, answers, strict=True):
        known = {"id": record["id"], "right": is_right(record), "tokens": len(record["ids"]), "cut": record["cut"]}
        lines.append(known | {"text": record["text"]} | views(answer, record["question"]))
    pd.DataFrame(lines).to_parquet(options.views, index=False, compression="zstd")


if __name__ == "__main__":
    main()
