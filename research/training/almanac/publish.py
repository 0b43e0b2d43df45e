"""Puts the chosen model and its clusters into the package: `python -m research.training.almanac.publish research/training/out`.

Comes after `evaluate`, which chooses the seed, the token table and the number of clusters on the dev questions.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from research.training.almanac.card import model_card
from research.training.almanac.evaluate import RESULTS
from transformers import AutoTokenizer

from semtoken import TokenClusters
from semtoken.choices import Embedding
from semtoken.support.almanac import QUESTIONS, almanac_clusters_path, almanac_path


def main(out: Annotated[Path, typer.Argument(help="Folder that holds the outputs of all seeds.")]) -> None:
    """Copy weights, tokenizer and questions of the shipped seed, and write the model card."""
    report = json.loads((RESULTS / "report.json").read_text(encoding="utf-8"))
    source = out / report["shipped"]
    shutil.copytree(source / "model", almanac_path(), dirs_exist_ok=True)
    shutil.copytree(source / "questions", QUESTIONS, dirs_exist_ok=True)
    card = model_card(report, almanac_path() / "model.safetensors")
    (almanac_path() / "README.md").write_text(card, encoding="utf-8")
    publish_clusters(**report["clusters"])


def publish_clusters(embedding: Embedding, divisor: int) -> None:
    """Cluster the shipped model's tokens, V / `divisor` clusters."""
    tokenizer = AutoTokenizer.from_pretrained(almanac_path())
    clusters = TokenClusters.from_model(
        almanac_path(), tokenizer, embedding=embedding, n_clusters=len(tokenizer) // divisor
    )
    named = replace(clusters, provenance={**clusters.provenance, "model": "almanac"})
    named.save_pretrained(almanac_clusters_path())


if __name__ == "__main__":
    typer.run(main)
