"""The candidates and rules of PROTOCOL-5.md for every recorded answer, one line an answer.

    python research/experiments/headline/first.py MODEL RECORDINGS NAME SCORES.parquet [--without-questions]

The texts of the questions are their authors'; `--without-questions` leaves them out of the file.
RECORDINGS is where `record.py` and `unasked.py` wrote; NAME is a set in it, such as chat-sentence-new.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from candidates import Answer
from recording import Recording
from transformers import AutoTokenizer

from semtoken import Vocabulary
from semtoken.clustering.function_words import is_function_word, plain_word
from semtoken.core.parts.newness import new_phrases, new_words
from semtoken.core.parts.prose import find_phrases

EXPERIMENTS = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(EXPERIMENTS / "default_rule"), str(EXPERIMENTS / "long_answers")]
from rules import Rule  # noqa: E402
from score import verdicts  # noqa: E402
from views import is_right  # noqa: E402

_WORD = re.compile(r"\w[\w'’-]*")
Spans = list[tuple[int, int]]


def spans_of(text: str, question: str) -> tuple[Spans, Spans, Spans]:
    """Phrases, new phrases and new words of an answer; all phrases and content words where none is new."""
    phrases = [(found.start, found.end) for found in find_phrases(text)]
    words = new_words(text, question) or new_words(text, "")
    new = [(a, b) for a, b in phrases if any(a <= start < b for start, _ in words)]
    return phrases, new or phrases, words


def numbers(answer: Answer, question: str, weights: np.ndarray) -> dict[str, float]:
    """Every candidate of one answer: larger is riskier."""
    phrases, new_phrases, words = spans_of(answer.text, question)
    whole = [-math.fsum(answer.agreeing)]
    p, n, w = (answer.surprises(spans) or whole for spans in (phrases, new_phrases, words))
    mean = -math.fsum(answer.log_probs) / len(answer.log_probs)
    average = {"phrase": np.mean(p), "new_phrase": np.mean(n), "new_word": np.mean(w)}
    return {
        "weakest_phrase": max(p),
        "weakest_new_phrase": max(n),
        "mean_phrase": average["phrase"],
        "mean_new_phrase": average["new_phrase"],
        "mean_new_word": average["new_word"],
        "weakest_new_word": max(w),
        "product_new_words": math.fsum(w),
        "product_new_phrases": math.fsum(n),
        "phrase_and_mean": max(p) + mean,
        "mean_new_word_and_weakest_phrase": average["new_word"] + max(p),
        "mean_new_word_and_weakest_new_phrase": average["new_word"] + max(n),
        "mean_new_phrase_and_weakest_new_phrase": average["new_phrase"] + max(n),
        "weighted_by_question": float((weights * -answer.agreeing).sum() / max(weights.sum(), 1e-9)),
    }


def rules(answer: Answer, question: str) -> dict[str, bool]:
    """What counts as a sentence, by each rule."""
    phrases, _, words = spans_of(answer.text, question)
    asked = {plain_word(word) for word in _WORD.findall(question)}
    said = [plain_word(word) for word in _WORD.findall(answer.text)]
    stop, long = answer.text.strip()[-1:] in (".", "!", "?"), len(answer.log_probs) >= 12
    repeats = sum(word in asked or is_function_word(word) for word in said) >= 2
    return {"a": long, "b": stop, "c": long or stop, "d": len(phrases) >= 2, "e": repeats and bool(words), "f": True}


def frame(recording: Recording, unasked: np.ndarray, shuffled: list[str]) -> pd.DataFrame:
    """A line for each answer."""
    steps, arrays = recording.steps, recording.arrays
    agreeing = np.log(np.clip(Rule(steps.spelling, beginnings=None).masses(steps), 1e-30, 1.0)).astype(float)
    lines = []
    for (record, place), other in zip(recording.answers(), shuffled, strict=True):
        answer = Answer(
            text=steps.vocabulary.decode(record["ids"]),
            question=record["question"],
            offsets=steps.vocabulary.offsets(record["ids"]),
            token_texts=[],
            log_probs=np.minimum(arrays["log_prob"][place].astype(float), 0.0),
            agreeing=agreeing[place],
            entropies=np.empty(0),
            mean_log_probs=np.empty(0),
            best=np.empty(0),
            attention=np.empty(0),
            vocabulary=0,
        )
        weights = np.maximum(-unasked[place].astype(float), 0.0)
        found = numbers(answer, record["question"], weights)
        control = numbers(answer, other, weights)
        lines.append(
            verdicts(record)
            | {"question": record["question"], "echo": echoes(record), "n_tokens": len(answer.log_probs)}
            | {"repeats": bool(answer.text.strip()) and not new_phrases(answer.text, record["question"])}
            | {"probability": -math.fsum(answer.log_probs), "default": -math.fsum(answer.agreeing)}
            | found
            | {f"{name} ~ shuffled": control[name] for name in ("weakest_new_phrase", "mean_new_word")}
            | {f"rule {name}": value for name, value in rules(answer, record["question"]).items()}
        )
    return pd.DataFrame(lines)


def echoes(record: dict[str, Any]) -> bool:
    """Whether what is right in an answer stands in its question."""
    said = record["text"].lower()
    return not is_right(record) and any(one.lower() in said for one in record["answers"])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "recordings", "name", "scores"):
        parser.add_argument(name, type=str if name == "name" else Path)
    parser.add_argument("--without-questions", action="store_true")
    options = parser.parse_args()
    vocabulary = Vocabulary.from_tokenizer(AutoTokenizer.from_pretrained(options.model))
    recording = Recording.read(options.recordings, options.name, vocabulary)
    questions = [record["question"] for record in recording.steps.records]
    shuffled = [questions[i] for i in np.random.default_rng(48).permutation(len(questions))]
    path = options.recordings / f"{options.name}-unasked.npy"
    n_steps = len(recording.arrays["log_prob"])
    unasked = np.load(path) if path.exists() else np.full(n_steps, np.nan)  # then weighted_by_question is NaN
    found = frame(recording, unasked, shuffled)
    if options.without_questions:
        found = found.drop(columns="question")
    plain = {name: np.float32 for name in found if found[name].dtype == np.float64}
    found.astype(plain).to_parquet(options.scores, index=False, compression="zstd")
    print(f"{options.scores}: {len(found):,} answers, {int(found['contains'].sum())} right")


if __name__ == "__main__":
    main()
