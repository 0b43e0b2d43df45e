"""Answers in Chinese, which has no blanks between words: 50 questions, and what ranks them.

    python research/experiments/headline/chinese.py MODEL ANSWERS.csv

An answer is right if an accepted answer stands in it. `one_phrase` is the weakest phrase where the words between two punctuation
marks are one, as they were before ICU divided them.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from tables import aurocs, counts_of_resamples, interval

import semtoken as st
from semtoken.core.parts.answers import log_product, tokens_touching
from semtoken.methods.observers.method_scores import new_word_log_probs, phrase_log_probs

QUESTIONS = Path(__file__).with_name("chinese_questions.csv")
STYLE = "请用一句话回答："


def numbers(answer: st.ScoredAnswer, question: str) -> dict[str, float]:
    """What an answer can be ranked by: larger is riskier."""
    phrases, new = phrase_log_probs(answer, question)[0], new_word_log_probs(answer, question)[0]
    runs = [match.span() for match in re.finditer(r"\w+", answer.text)]
    whole = [log_product(tokens)[0] for tokens in tokens_touching(answer.tokens, runs)]
    return {
        "product": -answer.log_confidence,
        "headline": 1 - answer.confidence,
        "one_phrase": -min(whole, default=answer.log_confidence),
        "weakest_phrase": -min(phrases, default=answer.log_confidence),
        "mean_new_word": -float(np.mean(new)) if len(new) else -answer.log_probability / max(answer.n_tokens, 1),
        "weakest_new_word": -min(new, default=answer.log_confidence),
    }


def main() -> None:
    """The command."""
    model, target = sys.argv[1:]
    with QUESTIONS.open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    stc = st.ScoredModel.from_pretrained(model)
    prompts = [[{"role": "user", "content": STYLE + record["question"]}] for record in records]
    answers = stc.generate(prompts, 32, batch_size=len(prompts))
    lines = [
        record
        | {"answer": answer.text, "right": any(one in answer.text for one in record["accepted"].split("|"))}
        | {"confidence": answer.confidence}
        | numbers(answer, record["question"])
        for record, answer in zip(records, answers, strict=True)
    ]
    found = pd.DataFrame(lines)
    found.to_csv(target, index=False)
    right = found["right"].to_numpy(dtype=bool)
    print(f"{len(found)} answers, {right.sum()} right")
    counts = counts_of_resamples(len(found))
    of = {name: aurocs(found[name].to_numpy(), right, counts) for name in numbers(answers[0], "")}
    for name, values in of.items():
        value, low, high = interval(values - of["product"])
        print(f"{name:17} {values[0]:.3f}, minus the product {value:+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
