"""Read items with a model, and keep the masses of their options.

    python experiments/decisions/read.py items.jsonl MODEL masses.jsonl [--seconds 3600] [--orders 1] [--dtype float32]

Appends; items that are there already are left out, so a run that was ended goes on. With `--orders` no more orders are
read, and predicates and choices are read in turn, so that few of both are there soon.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import get_args

import torch

from semtoken import STC
from semtoken.choices import Reading
from semtoken.decisions import Choice, Inquiry, Predicate, Question, ReadingOptions
from semtoken.decisions.deciding import completed, prepare, read_masses

BATCH = {"predicate": 8, "choice": 2}
ORDERS = {("choice", "words"): 2}
"""Where not all orders are read."""


def lines_of(path: Path) -> list[dict]:
    """The objects of a JSON lines file."""
    with path.open(encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]


def question_of(item: dict) -> Question:
    """The question that an item asks."""
    if item["kind"] == "predicate":
        return Predicate("Is the proposed answer correct?")
    return Choice("Which of these is the correct answer?", item["options"])


def options_of(item: dict, reading: Reading, orders: int | None) -> ReadingOptions:
    """How an item is read."""
    return ReadingOptions(reading, orders or ORDERS.get((item["kind"], reading)))


def rows_of(items: list[dict], stc: STC, orders: int | None = None) -> list[dict]:
    """A line for each item and reading: the masses [orders][options], least and greatest."""
    inquiries = [
        (item, reading, Inquiry(item["state"], [question_of(item)], options_of(item, reading, orders)))
        for item in items
        for reading in get_args(Reading)
    ]
    prepared = [prepare(stc.backend, inquiry) for _, _, inquiry in inquiries]
    found = []
    for (item, reading, _), masses, one in zip(
        inquiries, completed(read_masses(stc.backend, prepared)), prepared, strict=True
    ):
        row = {"item": item["item"], "reading": reading, "low": None, "high": None}
        if not one.refusals:
            row |= {"low": masses[0].low.tolist(), "high": masses[0].high.tolist()}
        found.append(row)
    return found


def number_of(item: dict) -> int:
    """The number of an item among those of its kind."""
    return int(item["item"].rpartition("-")[2])


def main() -> None:
    """Read what is missing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("items", type=Path)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--orders", type=int)
    parser.add_argument("--dtype", default="bfloat16")
    given = parser.parse_args()
    torch.set_num_threads(1)
    stc = STC.from_pretrained(given.model, dtype=given.dtype)
    items = lines_of(given.items)
    done = {line["item"] for line in lines_of(given.out)} if given.out.exists() else set()
    left = [item for item in items if item["item"] not in done]
    left.sort(key=lambda item: (number_of(item) // 8 if given.orders else 0, item["kind"] == "choice"))
    began = time.monotonic()
    with given.out.open("a", encoding="utf-8") as file:
        while left and time.monotonic() - began < given.seconds:
            batch, left = left[: BATCH[left[0]["kind"]]], left[BATCH[left[0]["kind"]] :]
            file.writelines(json.dumps(row) + "\n" for row in rows_of(batch, stc, given.orders))
            file.flush()
            print(len(left), "left after", round(time.monotonic() - began), "s", flush=True)


if __name__ == "__main__":
    main()
