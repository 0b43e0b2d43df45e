"""Read items with a model, and keep the masses of their options.

    python research/experiments/decisions/read.py items.jsonl MODEL masses.jsonl [--seconds 3600] [--short] [--dtype float32]

Appends; items that are there already are left out, so a run that was ended goes on. With `--short` a choice is read in
fewer orders, and both kinds are read in turn, three predicates for each choice, so that both are there whenever the
run is ended.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import zip_longest
from pathlib import Path
from typing import get_args

import torch

from semtoken.choices import Reading
from semtoken.decisions import Choice, DecisionRequest, Predicate, Question, ReadingOptions
from semtoken.decisions.deciding import prepare, read_masses, run_to_end
from semtoken.models import load_backend
from semtoken.models.base import Backend

BATCH = 24  # predicates; a third as many choices, which have more options and orders


def lines_of(path: Path) -> list[dict]:
    """The objects of a JSON lines file."""
    with path.open(encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]


def question_of(item: dict) -> Question:
    """The question that an item asks."""
    if item["kind"] == "predicate":
        return Predicate("Is the proposed answer correct?")
    return Choice("Which of these is the correct answer?", item["options"])


def options_of(item: dict, reading: Reading, short: bool) -> ReadingOptions:
    """How an item is read: a predicate in both orders, a choice in as many as the README says."""
    if item["kind"] == "predicate":
        return ReadingOptions(reading, None)
    if reading == "labels":
        return ReadingOptions(reading, 2 if short else None)
    return ReadingOptions(reading, 1 if short else 2)


def rows_of(items: list[dict], backend: Backend, short: bool) -> list[dict]:
    """A line for each item and reading: the masses [orders][options], least and greatest."""
    inquiries = [
        (item, reading, DecisionRequest(item["state"], [question_of(item)], options_of(item, reading, short)))
        for item in items
        for reading in get_args(Reading)
    ]
    prepared = [prepare(backend, inquiry) for _, _, inquiry in inquiries]
    found = []
    for (item, reading, _), masses, one in zip(
        inquiries, run_to_end(read_masses(backend, prepared)), prepared, strict=True
    ):
        row = {"item": item["item"], "reading": reading, "low": None, "high": None}
        if not one.refusals:
            row |= {"low": masses[0].low.tolist(), "high": masses[0].high.tolist()}
        found.append(row)
    return found


def batches(items: list[dict], short: bool, size: int) -> list[list[dict]]:
    """Items of one kind together, in the order in which they are read."""
    sizes = {"predicate": size, "choice": max(size // 3, 1)}
    by_kind = {kind: [item for item in items if item["kind"] == kind] for kind in sizes}
    each = [
        [own[first : first + sizes[kind]] for first in range(0, len(own), sizes[kind])] for kind, own in by_kind.items()
    ]
    if short:
        return [batch for pair in zip_longest(*each) for batch in pair if batch]
    return [batch for own in each for batch in own]


def main() -> None:
    """Read what is missing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("items", type=Path)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=BATCH, help="Predicates that are read together.")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    backend = load_backend("transformers", given.model, dtype=given.dtype)
    done = {line["item"] for line in lines_of(given.out)} if given.out.exists() else set()
    left = batches([item for item in lines_of(given.items) if item["item"] not in done], given.short, given.batch)
    began = time.monotonic()
    with given.out.open("a", encoding="utf-8") as file:
        for number, batch in enumerate(left, start=1):
            if time.monotonic() - began >= given.seconds:
                break
            file.writelines(json.dumps(row) + "\n" for row in rows_of(batch, backend, given.short))
            file.flush()
            print(
                batch[-1]["item"], number, "of", len(left), "batches,", round(time.monotonic() - began), "s", flush=True
            )


if __name__ == "__main__":
    main()
