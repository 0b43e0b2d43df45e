"""Question sets: the paper's three from the hub or from local copies, the almanac's, users' own files."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from semtoken.errors import InvalidInputError, one_line_of
from semtoken.models.prompts import PROMPTS, PromptFormat
from semtoken.support.almanac import Question, load_questions
from semtoken.support.extras import DATASETS, installed, require
from semtoken.support.files.record_files import read_rows

if TYPE_CHECKING:
    from semtoken.models.base import Prompt

LINE_FORM = '{"id": "...", "question": "...", "answers": ["...", ...]}'


@dataclass(frozen=True)
class Dataset:
    """Questions with accepted answers, and how a model is asked them."""

    label: str
    """Its name in tables: "NQ", "TQA", "WQ", "almanac", "almanac-dev" or the stem of a file."""
    questions: tuple[Question, ...]
    format: PromptFormat
    source: str
    """The source that it was read from: a hub id, a path, or the name of an embedded set."""
    notes: tuple[str, ...] = ()
    """Notes for readers of figures: repeated ids that were left out, an unusual number of questions."""

    def prompts(self) -> list[Prompt]:
        """One prompt for each question."""
        return [self.format.prompt(question.question) for question in self.questions]

    @cached_property
    def asked_hash(self) -> str:
        """A hash (SHA-256) of everything that answers depend on: ids, questions, prompts, and where answers stop."""
        asked = [[question.id, question.question] for question in self.questions]
        return _hash([asked, self.prompts(), self.format.stop_at_newline])

    @cached_property
    def content_hash(self) -> str:
        """A hash (SHA-256) of all that `asked_hash` covers and of the accepted answers, on which judgments depend."""
        return _hash([self.asked_hash, [question.answers for question in self.questions]])


def _hash(content: Any) -> str:
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True)
class KnownSet:
    """A question set that semtoken knows by name: its place on the hub, and the reader of its rows."""

    label: str
    prompt: str
    hub: str
    config: str | None
    split: str
    count: int
    """The number of questions of the whole set, each with an id of its own."""
    question_of: Callable[[int, Mapping[str, Any]], Question]
    """Makes a question of a row's number and the row."""


def _nq_question(number: int, row: Mapping[str, Any]) -> Question:
    return Question(f"nq_open_validation_{number:04d}", row["question"], tuple(row["answer"]))


def _tqa_question(number: int, row: Mapping[str, Any]) -> Question:
    """The canonical answer is nearly always an alias; where it is not, it comes first."""
    answers = dict.fromkeys(row["answer"]["aliases"])
    value = row["answer"]["value"]
    accepted = tuple(answers) if value in answers or not value else (value, *answers)
    return Question(row["question_id"], row["question"], accepted)


def _wq_question(number: int, row: Mapping[str, Any]) -> Question:
    return Question(f"wqs{number:06d}", row["question"], tuple(row["answers"]))


_NQ = KnownSet("NQ", "nq", "google-research-datasets/nq_open", None, "validation", 3_610, _nq_question)
_TQA = KnownSet("TQA", "tqa", "mandarjoshi/trivia_qa", "rc.nocontext", "validation", 9_960, _tqa_question)
_WQ = KnownSet("WQ", "wq", "stanfordnlp/web_questions", None, "test", 2_032, _wq_question)
_KNOWN = {"nq": _NQ, "tqa": _TQA, "triviaqa": _TQA, "wq": _WQ, "webquestions": _WQ}
_ALMANAC: Mapping[str, Literal["dev", "test"]] = {"almanac": "test", "almanac-dev": "dev"}


def known_sets() -> dict[str, KnownSet]:
    """Name -> question set. Those of installed packages, which may import this module, are loaded by the call."""
    return {**_KNOWN, **installed(DATASETS)}


def read_dataset(
    name: str | Path,
    *,
    path: str | Path | None = None,
    format: PromptFormat | None = None,
    label: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Read a question set, by name or from a file, with the prompts that it is asked with.

    A name is "nq", "tqa" (or "triviaqa"), "wq" (or "webquestions"): NQ-open dev, TriviaQA rc.nocontext validation
    without repeated question ids, WebQuestions test; or "almanac", "almanac-dev", the sets of the embedded model.
    Everything else is a file of JSON lines, `.gz` or not. `path` is a local copy of a set of the hub, such a file or a
    folder with the layout of the hub repository. Without `format` a set has its own prompt and a user's file that of
    TriviaQA. The `limit` questions are chosen at random and stay in the order of the set.

    `InvalidInputError` if the set is missing or empty, a line or row cannot be used (named), or an id of a user's file
    stands twice.
    """
    if limit is not None and limit < 1:
        raise InvalidInputError(f"limit must be positive, got {limit}.")
    dataset = _whole(name, path)
    questions = dataset.questions
    if limit is not None and limit < len(questions):
        chosen = np.random.default_rng(seed).choice(len(questions), size=limit, replace=False)
        questions = tuple(questions[i] for i in sorted(chosen.tolist()))
    return replace(dataset, label=label or dataset.label, questions=questions, format=format or dataset.format)


def _whole(name: str | Path, path: str | Path | None) -> Dataset:
    if known := known_sets().get(str(name)):
        return _known_dataset(known, path)
    if path is not None:
        raise InvalidInputError(f"A path can be given for {', '.join(known_sets())} only, not for {str(name)!r}.")
    if split := _ALMANAC.get(str(name)):
        return Dataset(str(name), tuple(load_questions(split)), PROMPTS["almanac"], str(name))
    file = Path(name)
    if not file.exists():
        known_names = ", ".join((*known_sets(), *_ALMANAC))
        raise InvalidInputError(f"There is no question set {str(name)!r}: neither one of {known_names} nor a file.")
    questions = read_questions(file)
    if twice := [id for id, count in Counter(question.id for question in questions).items() if count > 1]:
        raise InvalidInputError(f"{file}: the id {twice[0]!r} stands more than once; ids must differ.")
    return Dataset(_stem(file), tuple(questions), PROMPTS["tqa"], str(file))


def _stem(file: Path) -> str:
    return file.name.removesuffix(".gz").rpartition(".")[0] or file.name


def _known_dataset(known: KnownSet, path: str | Path | None) -> Dataset:
    source = known.hub if path is None else str(path)
    if path is not None and not Path(path).is_dir():
        questions = read_questions(Path(path))
    else:
        questions = _hub_questions(known, source)
    questions_by_id: dict[str, Question] = {}
    for question in questions:
        # TriviaQA (rc) has one question in several rows: counted twice, it would narrow every interval.
        questions_by_id.setdefault(question.id, question)
    unique = tuple(questions_by_id.values())
    notes = []
    if repeated := len(questions) - len(unique):
        notes.append(f"{known.label}: rows with a repeated question id, left out: {repeated:,}.")
    if len(unique) != known.count:
        notes.append(f"{known.label}: {len(unique):,} questions in {source}, not the {known.count:,} of the full set.")
    return Dataset(known.label, unique, PROMPTS[known.prompt], source, tuple(notes))


def _hub_questions(known: KnownSet, source: str) -> list[Question]:
    """The rows of a hub repository, or of a folder with its layout."""
    library = require("datasets", extra="bench")
    try:
        rows = library.load_dataset(*_place(known, source), split=known.split)
    except Exception as error:  # whatever the network, the hub and the readers of files raise
        reason = one_line_of(error)
        raise InvalidInputError(
            f"The question set {known.label} cannot be loaded from {source}: {reason.rstrip('.')}. A local copy can be "
            "named instead, a file of JSON lines or a folder with the layout of the hub repository: "
            "`semtoken bench run --dataset NAME=FILE`, or `path` in a file of settings."
        ) from error
    return [_question_of_row(known, number, row, source) for number, row in enumerate(rows)]


def _place(known: KnownSet, source: str) -> tuple[str, str | None]:
    """Repository and configuration. In a folder, with its card or without, a configuration is a folder of its files."""
    if not Path(source).is_dir():
        return source, known.config
    part = Path(source) / (known.config or "")
    return str(part if part.is_dir() else source), None


def _question_of_row(known: KnownSet, number: int, row: Mapping[str, Any], source: str) -> Question:
    where = f"{source}, row {number}"
    try:
        question = known.question_of(number, row)
    except (KeyError, TypeError) as error:
        raise InvalidInputError(f"{where} is not of the form that {known.hub} has: it has {', '.join(row)}.") from error
    return _checked(question.id, question.question, list(question.answers), where)


def read_questions(path: Path) -> list[Question]:
    """Read the questions of a file; those without an id get one from file and line.

    `InvalidInputError` if the file is missing or empty, or a line cannot be used.
    """
    questions = [question_of_line(row, where, f"{_stem(path)}:{number}") for number, where, row in read_rows(path)]
    if not questions:
        raise InvalidInputError(f"{path} holds no question.")
    return questions


def question_of_line(row: Mapping[str, Any], where: str, default_id: str) -> Question:
    """Make a question from the fields of a record; `prompt` stands in for `question`, and `answers` may be one text."""
    asked = next((row[name] for name in ("question", "prompt") if row.get(name) is not None), None)
    if asked is None or "answers" not in row:
        raise InvalidInputError(f"{where}: expected {LINE_FORM}.")
    answers, id = row["answers"], row.get("id")
    return _checked(default_id if id is None else id, asked, [answers] if isinstance(answers, str) else answers, where)


def _checked(id: Any, question: Any, answers: Any, where: str) -> Question:
    if isinstance(id, bool) or not isinstance(id, str | int) or id == "":
        raise InvalidInputError(f"{where}: the id must be a text or a whole number.")
    if not isinstance(question, str) or not question.strip():
        raise InvalidInputError(f"{where}: the question must be a text that is not empty.")
    if not isinstance(answers, list) or not answers or not all(isinstance(answer, str) for answer in answers):
        raise InvalidInputError(f"{where}: answers must be a list of at least one text.")
    if not any(map(str.strip, answers)):
        raise InvalidInputError(
            f"{where}: the accepted answers are blank, and every reply would count as wrong. Leave the question out."
        )
    return Question(str(id), question, tuple(answers))
