"""One command an encoder: `python -m research.training.encoders nli --seed 0 --out src/semtoken/support/almanac/nli`."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import transformers
import typer
from research.training.encoders.card import write_card
from research.training.encoders.encoder import encode, new_model, predict, train, train_tokenizer
from research.training.encoders.evaluation import judge_labels, judge_similarities, write_pairs
from research.training.encoders.export import export_encoder
from research.training.encoders.pairs import Pair, make_pairs
from research.training.encoders.things import World, load_worlds
from transformers import AutoModelForSequenceClassification

HELD_OUT = 800  # pairs with names never seen, and as many with names seen, in wordings never seen
HELD_OUT_SEED = 2026


class Task(StrEnum):
    """The two encoders."""

    nli = "nli"
    sts = "sts"


def held_out_pairs(worlds: dict[str, World], trained: list[Pair]) -> dict[str, list[Pair]]:
    """Pairs for the final figures: of held-out names, and of trained names in untrained pairs."""
    seen = {frozenset((pair.first, pair.second)) for pair in trained}
    known = make_pairs(worlds["train"], 4 * HELD_OUT, HELD_OUT_SEED, wordings="test")
    fresh = [pair for pair in known if frozenset((pair.first, pair.second)) not in seen]
    return {
        "unseen": make_pairs(worlds["test"], HELD_OUT, HELD_OUT_SEED, wordings="test"),
        "known": fresh[:HELD_OUT],
    }


def main(
    task: Annotated[Task, typer.Argument(help="Which encoder to train.")],
    out: Annotated[Path, typer.Option(help="Folder for model, tokenizer, card, figures and held-out pairs.")],
    seed: Annotated[int, typer.Option(help="Seed of the pairs, the initial weights and the order.")] = 0,
    pairs: Annotated[int, typer.Option(help="Training pairs.")] = 60_000,
    epochs: Annotated[int, typer.Option(help="Passes over the pairs.")] = 4,
    wordnet: Annotated[Path, typer.Option(help="Folder of WordNet 3.0's files.")] = Path("/usr/share/wordnet"),
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 1,
) -> None:
    """Train one of the small encoders, measure it on held-out pairs and write its folder."""
    torch.set_num_threads(threads)
    worlds = load_worlds(wordnet)
    trained = make_pairs(worlds["train"], pairs, seed)
    tokenizer = train_tokenizer(trained, worlds["train"])
    model = new_model(len(tokenizer), task.value, seed)
    busy = time.process_time()
    train(model, encode(trained, tokenizer, task.value), seed, epochs)
    cpu_seconds = round(time.process_time() - busy)
    digest = export_encoder(model, tokenizer, out)
    held_out = held_out_pairs(worlds, trained)
    write_pairs(held_out, out / "heldout.jsonl.gz")
    figures: dict[str, object] = {
        "task": task.value,
        "seed": seed,
        "pairs": pairs,
        "epochs": epochs,
        "parameters": sum(p.numel() for p in model.parameters()),
        "layers": model.config.num_hidden_layers,
        "width": model.config.hidden_size,
        "tokens": len(tokenizer),
        "cpu_seconds": cpu_seconds,
        "threads": threads,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "sha256": digest,
    }
    stored = AutoModelForSequenceClassification.from_pretrained(out).eval()  # what is measured is what is shipped
    judge = judge_labels if task is Task.nli else judge_similarities
    for names, chosen in held_out.items():
        figures[names] = judge(chosen, predict(stored, encode(chosen, tokenizer, task.value)).numpy())
    (out / "figures.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    write_card(figures, out / "README.md")


if __name__ == "__main__":
    typer.run(main)
