"""The question sets of the embedded model: loading them, asking them, marking the answers."""

from __future__ import annotations

import gzip
import json
import re
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from semtoken.errors import InvalidInput
from semtoken.support.inputs import one_of, shown

QUESTIONS = Path(__file__).parent / "questions"
PROMPT = "Answer these questions:\n\nQuestion:\n{question}\nAnswer:\n"
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Question:
    """A question with everything that counts as a right answer.

    Attributes
    ----------
    id : str
        Name of the question in its set, such as ``test-0042``.
    question : str
        The question alone. In the embedded sets, in a phrasing that training never used.
    answers : tuple of str
        All accepted answers.
    relation : str
        What is asked for: ``city_country``, ``currency``, ``synonym`` ... Empty outside the embedded sets.
    exposure : int
        How often the training stream said the fact.
    contradicted : int
        How often it said a wrong answer instead.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    relation: str = ""
    exposure: int = 0
    contradicted: int = 0

    def prompt(self) -> str:
        """The question in the paper's prompt format, without an example: the model was trained on this format."""
        return PROMPT.format(question=self.question)


def load_questions(split: Literal["dev", "test"] = "test") -> list[Question]:
    """The fixed question sets: `test` for reported figures only, `dev` for choosing settings.

    No fact is in both.

    Raises
    ------
    InvalidInput
        There is no such split.
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

    >>> normalize_answer(" The U.S.A.\n")
    'usa'
    """
    if not isinstance(text, str):
        raise InvalidInput(f"An answer must be a text, got {shown(text)}.")
    plain = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", plain).split())


def is_correct(answer_text: str, question: Question) -> bool:
    """Whether an answer equals any accepted one after normalisation (`normalize_answer`).

    An answer that is empty after it, such as "the" or "", is wrong.
    """
    answer = normalize_answer(answer_text)
    return answer != "" and answer in {normalize_answer(accepted) for accepted in question.answers}
