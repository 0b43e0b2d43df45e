"""Puts the chosen model into the package: `python -m training.almanac.publish training/out`, after `evaluate`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer
from training.almanac.card import model_card
from training.almanac.evaluate import RESULTS

from semtoken.almanac import almanac_path
from semtoken.almanac.questions import QUESTIONS


def main(out: Annotated[Path, typer.Argument(help="Folder that holds the outputs of all seeds.")]) -> None:
    """Copy weights, tokenizer and questions of the shipped seed, and write the model card."""
    report = json.loads((RESULTS / "report.json").read_text(encoding="utf-8"))
    source = out / report["shipped"]
    shutil.copytree(source / "model", almanac_path(), dirs_exist_ok=True)
    shutil.copytree(source / "questions", QUESTIONS, dirs_exist_ok=True)
    card = model_card(report, almanac_path() / "model.safetensors")
    (almanac_path() / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
