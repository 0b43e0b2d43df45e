"""The kept predicates of a model as lines of `semtoken decide`, for its other commands.

python research/experiments/decisions/lines.py model.parquet fit|check answers.jsonl [N]

With N only the first N lines, without what no command needs, and probabilities with four digits: those of
`examples/decisions` are 500 each.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from figures import Setting, answers_of, items_of
from read import question_of

from semtoken.decisions import ReadingOptions
from semtoken.decisions.records import answer_values

NEEDED = ("question", "asked", "kind", "options", "probabilities", "value")

if __name__ == "__main__":
    source, split, target = sys.argv[1:4]
    most = int(sys.argv[4]) if len(sys.argv) > 4 else None
    pairs = answers_of(Setting("", "predicate", "labels", "1"), items_of(Path(source))["labels"])
    asked = question_of({"kind": "predicate"})
    own = [(item, answer) for item, answer in pairs if item.split == split]
    with Path(target).open("w", encoding="utf-8") as file:
        for item, answer in own[:most]:
            values = answer_values(replace(answer, question=asked), ReadingOptions())
            if most is not None:
                values = {name: values[name] for name in NEEDED}
                values["probabilities"] = [round(p, 4) for p in values["probabilities"]]
            line = {"state": item.name, "labels": {"correct": item.label == 0}, "answers": {"correct": values}}
            file.write(json.dumps(line) + "\n")
