"""Labeled predicates and choices from question sets, without a judge.

    python research/experiments/decisions/items.py DATA items.jsonl

DATA holds triviaqa_validation.jsonl.gz, nq_open_dev.jsonl.gz and webquestions_test.jsonl.gz: lines with `id`,
`question` and `answers`. The questions are not ours to pass on, so items are made anew and not kept here.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

SEED = 20261123
SETS = ("triviaqa_validation", "nq_open_dev", "webquestions_test")
EACH = 2000
LONGEST = 40
WORDS = ("how many", "who", "when", "where", "which", "what")


@dataclass(frozen=True)
class Source:
    """A question of a set."""

    set: str
    id: str
    question: str
    answers: tuple[str, ...]

    @property
    def answer(self) -> str:
        """The accepted answer that items use."""
        return self.answers[0]

    @property
    def kind(self) -> tuple[str, str, str]:
        """Set, question word and shape of the answer."""
        asked = self.question.lower()
        found = [(at, word) for word in WORDS if (at := asked.find(word)) >= 0]
        return self.set, min(found)[1] if found else "other", shape(self.answer)


def shape(answer: str) -> str:
    """The shape of an answer: a year, other digits, or its number of words."""
    if re.fullmatch(r"[12]\d{3}", answer):
        return "year"
    if re.search(r"\d", answer):
        return "digits"
    return ("one word", "two words", "more")[min(len(answer.split()), 3) - 1]


def norm(text: str) -> str:
    """A text in lower case without punctuation."""
    return " ".join(re.sub(r"[^\w\s]", " ", text.lower()).split())


def is_other(candidate: str, source: Source) -> bool:
    """Whether an answer is none of the question's own, and neither holds one nor is held by one."""
    mine, given = norm(candidate), [norm(answer) for answer in source.answers]
    return bool(mine) and all(one and mine not in one and one not in mine for one in given)


def sources(data: Path) -> list[Source]:
    """The questions of all sets whose first answer is short enough."""
    found = []
    for name in SETS:
        with gzip.open(data / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                one = Source(name, row["id"], row["question"].strip(), tuple(row["answers"]))
                if norm(one.answer) and len(one.answer) <= LONGEST:
                    found.append(one)
    return found


def others(
    source: Source, by_kind: dict[tuple[str, str, str], list[Source]], n: int, chance: random.Random
) -> list[str]:
    """Answers of other questions of the kind; fewer where there are not so many different ones."""
    found: list[str] = []
    pool = by_kind[source.kind]
    for one in chance.sample(pool, len(pool)):
        if is_other(one.answer, source) and norm(one.answer) not in map(norm, found):
            found.append(one.answer)
            if len(found) == n:
                break
    return found


def items(data: Path) -> list[dict[str, object]]:
    """Predicates and choices in turn."""
    chance = random.Random(SEED)  # noqa: S311  # a sample, no secret
    pool = sources(data)
    by_kind: dict[tuple[str, str, str], list[Source]] = defaultdict(list)
    for one in pool:
        by_kind[one.kind].append(one)
    found: list[dict[str, object]] = []
    counts = {"predicate": 0, "choice": 0}
    for source in chance.sample(pool, len(pool)):
        kind = "predicate" if counts["predicate"] <= counts["choice"] else "choice"
        number = counts[kind]
        if number == EACH:
            break
        made = (
            predicate(source, by_kind, number, chance)
            if kind == "predicate"
            else choice(source, by_kind, number, chance)
        )
        if made is None:
            continue
        counts[kind] += 1
        split = ("fit", "check")[number // 2 % 2] if kind == "predicate" else ("fit", "check")[number // 4 % 2]
        found.append({"item": f"{kind}-{number:04}", "question_id": source.id, "split": split, "kind": kind, **made})
    return found


def predicate(source: Source, by_kind: dict, number: int, chance: random.Random) -> dict[str, object] | None:
    """A question with its own answer or another one; None where there is no other."""
    wrong = others(source, by_kind, 1, chance)
    if not wrong:
        return None
    label = number % 2 == 0
    proposed = source.answer if label else wrong[0]
    return {"state": f"Question: {source.question}\nProposed answer: {proposed}", "label": label}


def choice(source: Source, by_kind: dict, number: int, chance: random.Random) -> dict[str, object] | None:
    """A question with its answer among three others; None where there are not so many."""
    wrong = others(source, by_kind, 3, chance)
    if len(wrong) < 3:
        return None
    place = number % 4
    options = [*wrong[:place], source.answer, *wrong[place:]]
    return {"state": f"Question: {source.question}", "options": options, "label": source.answer}


if __name__ == "__main__":
    made = items(Path(sys.argv[1]))
    Path(sys.argv[2]).write_text(
        "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in made), encoding="utf-8"
    )
    print(len(made), "items")
