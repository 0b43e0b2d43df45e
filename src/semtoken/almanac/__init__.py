"""The embedded model `almanac`, its question sets, and how to mark an answer.

A language model of 4.5 million parameters that knows what is popular, guesses what is rare and names many things in
several ways. docs/almanac.md says how it was made. `almanac_path` is a folder that transformers loads:

>>> from semtoken.almanac import almanac_path
>>> (almanac_path() / "config.json").name
'config.json'
"""

from __future__ import annotations

from pathlib import Path

from semtoken.almanac.questions import Question, is_correct, load_questions, normalize_answer

__all__ = [
    "ALMANAC",
    "Question",
    "almanac_clusters_path",
    "almanac_path",
    "is_correct",
    "load_questions",
    "normalize_answer",
]

ALMANAC = "almanac"
"""What stands for the embedded model, its clusters and its questions wherever a path or a hub id may stand."""


def almanac_path() -> Path:
    """The folder of the embedded model inside the package: a checkpoint that `from_pretrained` loads."""
    return Path(__file__).parent / "model"


def almanac_clusters_path() -> Path:
    """The folder of the embedded model's token clusters inside the package."""
    return Path(__file__).parent / "clusters"
