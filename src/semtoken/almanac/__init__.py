"""The embedded model `almanac`, its question sets, and how to mark an answer.

A language model of 4.5 million parameters that knows what is popular, guesses what is rare and names many things in
several ways. docs/almanac.md says how it was made. `almanac_path` is a folder that transformers loads:

>>> from semtoken.almanac import almanac_path
>>> (almanac_path() / "config.json").name
'config.json'

Two small encoders stand in for large ones: `almanac_nli_path` and `almanac_sts_path`. Both know only facts of the
almanac's kinds; their model cards (README.md in the folders) and docs/encoders.md say what they are good for.

questions.py   the question sets, and marking
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from semtoken.almanac.questions import Question, is_correct, load_questions, normalize_answer
from semtoken.errors import MissingExtra

__all__ = [
    "ALMANAC",
    "Question",
    "almanac_clusters_path",
    "almanac_nli_path",
    "almanac_path",
    "almanac_sts_path",
    "embedded_folder",
    "is_correct",
    "load_questions",
    "normalize_answer",
]

WEIGHTS = "model.safetensors"
ALMANAC = "almanac"
"""What stands for the embedded model, its clusters and its questions wherever a path or a hub id may stand."""


def embedded_folder(name: str) -> Path:
    """The folder of an embedded model: `model`, `nli` or `sts`.

    A clone has the weights beside this file. An installation has them in the package `semtoken-almanac`, which keeps
    semtoken's own package small.

    Raises
    ------
    MissingExtra
        The weights are not installed. The message holds the install line.
    """
    beside = Path(__file__).parent / name
    if (beside / WEIGHTS).is_file():
        return beside
    found = importlib.util.find_spec("semtoken_almanac")
    if found is None or found.origin is None:
        raise MissingExtra(
            "The embedded model comes in a package of its own, which is not installed. "
            "Install it with: pip install 'semtoken[demo]', or from a clone: pip install ./packaging/semtoken-almanac"
        )
    return Path(found.origin).parent / name


def almanac_path() -> Path:
    """The folder of the embedded model: a checkpoint that `from_pretrained` loads.

    Raises
    ------
    MissingExtra
        The weights are not installed; see `embedded_folder`.
    """
    return embedded_folder("model")


def almanac_clusters_path() -> Path:
    """The folder of the embedded model's token clusters inside the package."""
    return Path(__file__).parent / "clusters"


def almanac_nli_path() -> Path:
    """The folder of the embedded NLI model.

    `AutoModelForSequenceClassification.from_pretrained` and `AutoTokenizer.from_pretrained` load it. Three labels, read
    them from the configuration: CONTRADICTION, NEUTRAL, ENTAILMENT.
    """
    return embedded_folder("nli")


def almanac_sts_path() -> Path:
    """The folder of the embedded cross-encoder for similarity.

    `sentence_transformers.CrossEncoder` loads it and gives similarities in [0, 1]. With transformers alone the one
    logit needs a sigmoid.
    """
    return embedded_folder("sts")
