"""The kept predicates of a model as lines of `semtoken decide run`, for its other commands.

python research/experiments/decisions/lines.py model.parquet fit|check answers.jsonl
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from figures import Setting, answers_of, items_of
from read import question_of

from semtoken.decisions import ReadingOptions
from semtoken.decisions.answers import answer_values

if __name__ == "__main__":
    source, split, target = sys.argv[1:]
    pairs = answers_of(Setting("", "predicate", "labels", "1"), items_of(Path(source))["labels"])
    asked = question_of({"kind": "predicate"})
    with Path(target).open("w", encoding="utf-8") as file:
        for item, answer in pairs:
            if item.split == split:
                values = answer_values(replace(answer, question=asked), ReadingOptions())
                line = {"state": item.name, "labels": {"correct": item.label == 0}, "answers": {"correct": values}}
                file.write(json.dumps(line) + "\n")
