"""One command from facts to weights: `python -m research.training.almanac --seed 0 --out research/training/out/seed0`."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from research.training.almanac.corpus import build_corpus, count_exposures
from research.training.almanac.export import export_model
from research.training.almanac.exposure import PLAN_SEED, PlannedFact, plan_exposure
from research.training.almanac.facts import all_facts
from research.training.almanac.questions import make_questions, write_questions
from research.training.almanac.sources import load_cities, load_countries, load_elements, load_states
from research.training.almanac.tokenizer import train_tokenizer
from research.training.almanac.train import ROWS, WIDTH, make_stream, train
from research.training.almanac.wordnet import read_wordnet

VOCAB_SIZE = 8192

log = logging.getLogger("research.training.almanac")


def load_plan(wordnet: Path) -> list[PlannedFact]:
    """All facts with their exposure."""
    facts = all_facts(load_countries(), load_states(), load_cities(), load_elements(), read_wordnet(wordnet))
    return plan_exposure(facts)


def main(
    out: Annotated[Path, typer.Option(help="Folder for model, questions, checkpoint and log.")],
    seed: Annotated[int, typer.Option(help="Seed of initial weights, wording, order and loss positions.")] = 0,
    wordnet: Annotated[Path, typer.Option(help="Folder of WordNet 3.0's files.")] = Path("/usr/share/wordnet"),
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
    questions_only: Annotated[bool, typer.Option(help="Write the question sets and stop.")] = False,
) -> None:
    """Train the embedded model. A run that was stopped goes on from its last checkpoint."""
    out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=out / "train.log", level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(threads)
    planned = load_plan(wordnet)
    documents = build_corpus(planned, seed)
    tokenizer = train_tokenizer(build_corpus(planned, PLAN_SEED), planned, VOCAB_SIZE)
    stream = make_stream(documents, tokenizer)
    exposures = count_exposures(documents[: stream.documents_read])
    for split in ("dev", "test"):
        write_questions(make_questions(planned, split, exposures), out / "questions" / f"{split}.jsonl.gz")
    if questions_only:
        return
    log.info("%d facts, %d mentions, %d tokens", len(planned), exposures.total(), len(stream.tokens))
    started = time.monotonic()
    model = train(stream, tokenizer.get_vocab_size(), seed, out)
    export_model(model, tokenizer, out / "model")
    figures = {
        "seed": seed,
        "facts": len(planned),
        "mentions": exposures.total(),
        "contradictions": sum(n for (_, wrong), n in exposures.items() if wrong),
        "tokens": stream.steps_read * ROWS * WIDTH,
        "steps": stream.steps_read,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds_since_last_start": round(time.monotonic() - started),
        "threads": threads,
    }
    (out / "training.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
