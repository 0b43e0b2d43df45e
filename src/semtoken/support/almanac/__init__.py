"""The embedded model `almanac`, its question sets, and how to mark an answer.

A language model of 4.5 million parameters that knows what is popular, guesses what is rare and names many things in
several ways; research/training/almanac/README.md says how it was made. `almanac_path` is a folder that transformers
loads:

>>> from semtoken.support.almanac import almanac_path
>>> (almanac_path() / "config.json").name
'config.json'

Two small encoders stand in for large ones: `almanac_nli_path` and `almanac_sts_path`. Both know only facts of the
almanac's kinds; their model cards (README.md in the folders) and docs/almanac.md say what they are good for.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from semtoken.errors import InvalidInputError, MissingExtra
from semtoken.support.inputs import instance, one_of, shown

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
"""The name of the embedded model, its clusters and its questions wherever a path or a hub id may stand."""


def embedded_folder(name: str) -> Path:
    """The folder of an embedded model: `model`, `nli` or `sts`.

    A clone has the weights beside this file. An installation has them in the package `semtoken-almanac`, which keeps
    semtoken's own package small. `MissingExtra` if they are not installed, with the line that installs them.
    """
    beside = Path(__file__).parent / name
    if (beside / WEIGHTS).is_file():
        return beside
    spec = importlib.util.find_spec("semtoken_almanac")
    if spec is None or spec.origin is None:
        raise MissingExtra(
            "The embedded model comes in a package of its own, which is not installed. "
            "Install it with: pip install 'semtoken[demo]', or from a clone: pip install ./packaging/semtoken-almanac"
        )
    return Path(spec.origin).parent / name


def almanac_path() -> Path:
    """The folder of the embedded model: a checkpoint that `from_pretrained` loads; see `embedded_folder`."""
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


QUESTIONS = Path(__file__).parent / "questions"
PROMPT = "Answer these questions:\n\nQuestion:\n{question}\nAnswer:\n"
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Question:
    """A question with everything that counts as a right answer."""

    id: str
    """Its name in its set, such as `test-0042`."""
    question: str
    """The question alone. In the embedded sets, in a phrasing that training never used."""
    answers: tuple[str, ...]
    """The accepted answers, compared as by `is_correct`."""
    relation: str = ""
    """The kind of fact that is asked for: `city_country`, `currency`, `synonym` ... Empty outside the embedded sets."""
    exposure: int = 0
    """The number of times that the training stream said the fact."""
    contradicted: int = 0
    """The number of times that it said a wrong answer instead."""

    def prompt(self) -> str:
        """The question in the paper's prompt format, without an example: the model was trained on this format."""
        return PROMPT.format(question=self.question)


def load_questions(split: Literal["dev", "test"] = "test") -> list[Question]:
    """The fixed question sets: `test` for reported figures only, `dev` for choosing settings. No fact is in both.

    `InvalidInputError` if there is no such set.
    """
    one_of("split", split, ("dev", "test"))
    return read_questions(QUESTIONS / f"{split}.jsonl.gz")


def read_questions(path: Path) -> list[Question]:
    """Read a question set from gzipped JSON lines."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [Question(**{**row, "answers": tuple(row["answers"])}) for row in rows]


def normalize_answer(text: str) -> str:
    r"""Lower case without articles and punctuation, spaces collapsed.

    `InvalidInputError` if it is not a text.

    >>> normalize_answer(" The U.S.A.\n")
    'usa'
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"An answer must be a text, got {shown(text)}.")
    plain = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", plain).split())


def is_correct(answer_text: str, question: Question) -> bool:
    """Return True if an answer equals any accepted one after normalization (`normalize_answer`).

    An answer that is empty after it, such as "the" or "", is wrong. `InvalidInputError` if it is not a text, or the
    question no `Question`.
    """
    answers = instance(question, Question, "question").answers
    answer = normalize_answer(answer_text)
    return answer != "" and answer in {normalize_answer(accepted) for accepted in answers}
