"""Writes the fixed question sets: facts of the dev and test splits in phrasings that training never uses."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path

from research.training.almanac.exposure import PLAN_SEED, PlannedFact
from research.training.almanac.templates import WORDINGS

SIZES = {"dev": 700, "test": 2000}


def make_questions(
    planned: list[PlannedFact], split: str, exposures: Counter[tuple[str, bool]]
) -> list[dict[str, object]]:
    """One question a fact of this split, at most `SIZES[split]`, drawn evenly from all relations' facts."""
    rng = random.Random(f"{PLAN_SEED}-{split}")
    candidates = [p for p in planned if p.split == split]
    chosen = sorted(rng.sample(range(len(candidates)), min(SIZES[split], len(candidates))))
    rows: list[dict[str, object]] = []
    for number, index in enumerate(chosen):
        fact = candidates[index].fact
        wording = WORDINGS[fact.relation]
        phrasing = rng.choice(wording.dev if split == "dev" else wording.test)
        rows.append(
            {
                "id": f"{split}-{number:04d}",
                "relation": fact.relation,
                "question": phrasing.format(s=fact.subject[0][0]),
                "answers": list(fact.accepted),
                "exposure": exposures[fact.key, False],
                "contradicted": exposures[fact.key, True],
            }
        )
    return rows


def write_questions(rows: list[dict[str, object]], path: Path) -> None:
    """Write JSON lines, gzipped without a time stamp so that the same questions give the same file."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
        file.write(text.encode("utf-8"))
