"""Sentence-length answers: questions asked as chat, greedy, at most 64 tokens.

    python research/experiments/long_answers/answer.py MODEL ANSWERS.jsonl QUESTIONS.jsonl.gz [QUESTIONS.jsonl.gz ...] [--each 260]

A random part of each file. One line an answer: id, question, accepted answers, token ids, text, and whether the limit cut it off.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from pathlib import Path

import semtoken as st

TOKENS = 64
BATCH = 20


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("answers", type=Path)
    parser.add_argument("questions", type=Path, nargs="+")
    parser.add_argument("--each", type=int, default=260)
    options = parser.parse_args()
    asked = []
    for path in options.questions:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            asked += random.Random(7).sample([json.loads(line) for line in file], options.each)  # noqa: S311
    asked.sort(key=lambda question: len(question["question"]))  # batches of like lengths
    stc = st.ScoredModel.from_pretrained(options.model)
    with options.answers.open("w", encoding="utf-8") as file:
        for first in range(0, len(asked), BATCH):
            batch = asked[first : first + BATCH]
            prompts = [[{"role": "user", "content": question["question"]}] for question in batch]
            answers = stc.generate(prompts, max_new_tokens=TOKENS, do_sample=False)
            for question, answer in zip(batch, answers, strict=True):
                found = {"ids": [token.id for token in answer.tokens], "text": answer.text, "cut": answer.truncated}
                file.write(json.dumps(question | found, ensure_ascii=False) + "\n")
            file.flush()
            print(f"{first + len(batch):,} of {len(asked):,} questions", flush=True)


if __name__ == "__main__":
    main()
