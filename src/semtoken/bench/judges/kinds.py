"""The kinds of judges: those that compare words, one that reads verdicts from a file; files of answers and verdicts."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from semtoken.bench.datasets import question_of_line
from semtoken.bench.judges import AnswerToJudge, JudgeBase, OnJudged, Verdict
from semtoken.bench.judges.llm import LLMJudge
from semtoken.errors import InvalidInputError
from semtoken.support.almanac import is_correct, normalize_answer
from semtoken.support.extras import require
from semtoken.support.files.record_files import VERDICTS, read_rows, write_records
from semtoken.support.files.safe_files import ending_of
from semtoken.support.inputs import first_repeated

require("pydantic", extra="bench")

from pydantic import BaseModel, Field, TypeAdapter, ValidationError  # noqa: E402

if TYPE_CHECKING:
    from semtoken.bench.statistics import SimilarityModel


Threshold: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class _JudgeOfOne(JudgeBase):
    """The base of judges that look at one answer at a time."""

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """One verdict for each item, in the same order."""
        verdicts = []
        for item in items:
            verdicts.append(self._verdict(item))
            if on_judged is not None:
                on_judged(len(verdicts))
        return verdicts

    def _verdict(self, item: AnswerToJudge) -> Verdict:
        raise NotImplementedError


class ExactJudge(_JudgeOfOne):
    """Calls an answer correct if it equals an accepted one, lower-cased and without articles and punctuation."""

    kind: Literal["exact"] = "exact"

    def _verdict(self, item: AnswerToJudge) -> Verdict:
        return Verdict(float(is_correct(item.answer, item.question)))


class ContainsJudge(_JudgeOfOne):
    """Calls an answer correct if the whole words of an accepted one stand in it, normalized as by `ExactJudge`."""

    kind: Literal["contains"] = "contains"

    def _verdict(self, item: AnswerToJudge) -> Verdict:
        # Blanks on both sides of both, so that "art" is not found in "party".
        words = f" {normalize_answer(item.answer)} "
        # An accepted answer of punctuation alone would be found in an empty one.
        accepted = {normalize_answer(answer) for answer in item.question.answers} - {""}
        return Verdict(float(any(f" {answer} " in words for answer in accepted)))


class RougeJudge(_JudgeOfOne):
    """Calls an answer correct if its largest ROUGE-L F1 with an accepted answer, its quality, is above a threshold.

    Uses Google's `rouge_score` without stemming. Its words are runs of the letters a to z and digits after
    lower-casing: a text without any, such as one in Greek, has a ROUGE-L of 0 with everything.
    """

    kind: Literal["rouge"] = "rouge"
    threshold: Threshold = 0.3

    @cached_property
    def _scorer(self) -> Any:
        return require("rouge_score.rouge_scorer", extra="bench").RougeScorer(["rougeL"], use_stemmer=False)

    def _verdict(self, item: AnswerToJudge) -> Verdict:
        quality = float(self._scorer.score_multi(list(item.question.answers), item.answer)["rougeL"].fmeasure)
        return Verdict(float(quality > self.threshold), quality)


CHUNK = 256
"""The number of answers that are compared between two reports of progress."""


class SimilarityJudge(JudgeBase):
    """Calls an answer correct if its largest similarity with an accepted answer is above a threshold.

    Bare texts are compared, without the question. An empty answer has quality 0.
    """

    kind: Literal["similarity"] = "similarity"
    model: str | None = None
    """A directory or a hub id; "almanac" is the small one inside the package. None: `DEFAULT_SIMILARITY`."""
    threshold: Threshold = 0.5
    device: str | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        """The cross-encoder and the threshold of the similarity, which decide the verdicts."""
        return {"kind": self.kind, "model": self._model, "threshold": self.threshold}

    @property
    def _model(self) -> str:
        from semtoken.bench.statistics.pairs import DEFAULT_SIMILARITY

        return self.model or DEFAULT_SIMILARITY

    @cached_property
    def _encoder(self) -> SimilarityModel:
        from semtoken.bench.statistics import SimilarityModel  # torch is loaded only where it is used

        return SimilarityModel.from_pretrained(self._model, device=self.device)

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """Judge answers by similarity to the best accepted answer, which is the quality of each verdict."""
        verdicts: list[Verdict] = []
        for start in range(0, len(items), CHUNK):
            verdicts += self._verdicts(items[start : start + CHUNK])
            if on_judged is not None:
                on_judged(len(verdicts))
        return verdicts

    def _verdicts(self, items: Sequence[AnswerToJudge]) -> list[Verdict]:
        answers = [item.answer.strip() for item in items]
        pairs = {
            (answer, accepted): 0.0
            for item, answer in zip(items, answers, strict=True)
            for accepted in item.question.answers
            if answer
        }
        similarities = dict(zip(pairs, self._encoder.similarities(list(pairs)).tolist(), strict=True))
        best = [
            max((similarities[answer, accepted] for accepted in item.question.answers), default=0.0) if answer else 0.0
            for item, answer in zip(items, answers, strict=True)
        ]
        return [Verdict(float(quality > self.threshold), quality) for quality in best]


@dataclass(frozen=True)
class _Entry:
    """One line of the file."""

    where: str
    correct: float
    answer: str | None


class ImportedJudge(JudgeBase):
    """Gives the verdicts of a file, which has a column `id` and one of verdicts.

    It is read as `semtoken.support.files.record_files` reads. A verdict is 1 or true, 0 or false;
    empty, null or NaN where there is none. A column `response` (or `answer`) is compared with the answers that are
    judged, so that verdicts on another model's answers are found out. Other columns are ignored.
    """

    kind: Literal["imported"] = "imported"
    path: str
    """The file of verdicts. The path may hold `{model}` and `{dataset}`: verdicts are of one model's answers to one
    set."""
    column: str = "correct"
    others: Literal["refuse", "ignore"] = "refuse"
    """The treatment of an id of no judged question by `check`: the file is refused, as one of another set, or the id is
    ignored, as in a file of verdicts on more questions than are judged."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """The column that holds the verdicts, and a hash of the file; `InvalidInputError` if the file cannot be
        read.
        """
        return {"kind": self.kind, "column": self.column, "sha256": hashlib.sha256(self._content).hexdigest()}

    @cached_property
    def _content(self) -> bytes:
        try:
            return Path(self.path).read_bytes()
        except OSError as error:
            raise InvalidInputError(f"The judgments cannot be read from {self.path}: {error.strerror}.") from error

    def check(self, ids: Iterable[str]) -> None:
        """Check the file of verdicts against the ids of all questions that will be judged, before any work is done.

        `InvalidInputError` if the file cannot be read, has a line that cannot be used or an id twice, or (unless
        `others` is "ignore") an id of no question.
        """
        known = set(ids)
        for id, entry in self._entries.items():
            if self.others == "refuse" and id not in known:
                raise InvalidInputError(
                    f"{entry.where}: there is no question with the id {id!r} among the {len(known):,} judged."
                )

    def judge(self, items: Sequence[AnswerToJudge], on_judged: OnJudged | None = None) -> list[Verdict]:
        """The file's verdict for each item; NaN for an unknown id, `InvalidInputError` for one of another answer."""
        verdicts = [self._verdict(item) for item in items]
        if on_judged is not None:
            on_judged(len(items))
        return verdicts

    def _verdict(self, item: AnswerToJudge) -> Verdict:
        entry = self._entries.get(item.question.id)
        if entry is None:
            return Verdict(math.nan)
        if entry.answer is not None and entry.answer != item.answer.strip():
            raise InvalidInputError(
                f"{entry.where}: the verdict on {item.question.id!r} is of the answer {entry.answer!r}, but the answer "
                f"here is {item.answer.strip()!r}."
            )
        return Verdict(entry.correct)

    @cached_property
    def _entries(self) -> Mapping[str, _Entry]:
        entries: dict[str, _Entry] = {}
        for _, where, row in read_rows(Path(self.path)):
            id, entry = self._entry(row, where)
            if id in entries:
                raise InvalidInputError(f"{where}: the id {id!r} stands more than once.")
            entries[id] = entry
        return entries

    def _entry(self, row: Mapping[str, Any], where: str) -> tuple[str, _Entry]:
        missing = [name for name in ("id", self.column) if name not in row]
        if missing:
            raise InvalidInputError(
                f"{where}: the column {missing[0]!r} is missing; there are {', '.join(map(str, row))}."
            )
        value, answer = row[self.column], row.get("response", row.get("answer"))
        spelled = "" if value is None else str(value).strip().lower()
        if spelled not in VERDICTS:
            raise InvalidInputError(f"{where}: {self.column} must be 1 or 0 (true or false), or empty; got {value!r}.")
        known = VERDICTS[spelled]
        verdict = math.nan if known is None else float(known)
        return str(row["id"]), _Entry(where, verdict, answer.strip() if isinstance(answer, str) else None)


KnownJudge: TypeAlias = Annotated[
    ExactJudge | ContainsJudge | RougeJudge | SimilarityJudge | LLMJudge | ImportedJudge, Field(discriminator="kind")
]
"""A judge; a field of this type in a pydantic model takes a mapping with `kind`."""
KINDS = ("exact", "contains", "rouge", "similarity", "llm", "imported")
_ADAPTER: TypeAdapter[KnownJudge] = TypeAdapter(KnownJudge)


def judge_from(
    settings: str | Mapping[str, Any] | KnownJudge,
    *,
    model: str = "",
    dataset: str = "",
    ids: Iterable[str] | None = None,
) -> KnownJudge:
    """Make a judge of its kind ("exact"), of settings such as `{"kind": "rouge", "threshold": 0.5}`, or like another.

    `model` and `dataset` are what `{model}` and `{dataset}` stand for in the path of an imported file, which is checked
    at once against the ids of all questions that will be judged. `InvalidInputError` if the kind or a key is unknown,
    or a value, a file or an address cannot be used.
    """
    # A copy, so that what one judge has loaded goes with it.
    judge = settings.model_copy() if isinstance(settings, BaseModel) else _checked(settings)
    if isinstance(judge, ImportedJudge):
        # Not `str.format`, since a path may hold other braces.
        path = judge.path.replace("{model}", model).replace("{dataset}", dataset)
        judge = judge.model_copy(update={"path": path})
        if ids is not None:
            judge.check(ids)
    if isinstance(judge, LLMJudge):
        _ = judge.url  # an address that cannot be used is refused before other judges have worked
    return judge


def judges_from(
    wanted: Sequence[str | Mapping[str, Any]], options: Mapping[str, Mapping[str, Any]], ids: Sequence[str]
) -> list[KnownJudge]:
    """Make judges of kinds or settings, for answers with these ids.

    `options` has settings by the kind of a judge, None where one is not given: they are for the judge that is wanted by
    its kind alone, and add it where it is not. `InvalidInputError` as in `judge_from`, or if two have one name.
    """
    given = {kind: {k: v for k, v in values.items() if v is not None} for kind, values in options.items()}
    added = [kind for kind, values in given.items() if values and kind not in wanted]
    settings = [{"kind": one, **given.get(one, {})} if isinstance(one, str) else one for one in (*wanted, *added)]
    judges = [judge_from(own, ids=ids) for own in settings]
    if twice := first_repeated(judge.name for judge in judges):
        raise InvalidInputError(f"Two judges have the name {twice!r}; give one another 'name'.")
    return judges


def _checked(settings: str | Mapping[str, Any]) -> KnownJudge:
    given = {"kind": settings} if isinstance(settings, str) else dict(settings)
    if given.get("kind") not in KINDS:
        raise InvalidInputError(f"There is no judge {given.get('kind')!r}; there are {', '.join(KINDS)}.")
    try:
        return _ADAPTER.validate_python(given)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc']) or 'judge'}: {fault['msg']}" for fault in error.errors()
        )
        raise InvalidInputError(f"The judge's settings cannot be used: {faults}.") from error


def read_answers(path: Path) -> list[AnswerToJudge]:
    """Read the answers of a file that `semtoken score` or `ask --json` wrote, as
    `semtoken.support.files.record_files` does.

    Each record has `question` (or `prompt`), `answers` (the accepted ones), `response` (or `answer`) and, if it has a
    name, `id`. Records with an `error`, which could not be scored, are left out. `InvalidInputError` if the file cannot
    be read or holds no answer, a record cannot be used, or an id stands twice.
    """
    answers_by_id: dict[str, AnswerToJudge] = {}
    for number, where, row in read_rows(path):
        if row.get("error"):
            continue
        question = question_of_line(row, where, f"line-{number}")
        answer = row.get("response", row.get("answer"))
        if answer is None and ending_of(path) == ".csv":
            answer = ""  # CSV has no other way to write it
        if not isinstance(answer, str):
            raise InvalidInputError(f"{where}: the answer to judge must be a text in the field 'response'.")
        if question.id in answers_by_id:
            raise InvalidInputError(f"{where}: the id {question.id!r} stands more than once; ids must differ.")
        answers_by_id[question.id] = AnswerToJudge(question, answer, row)
    if not answers_by_id:
        raise InvalidInputError(f"{path} holds no answer.")
    return list(answers_by_id.values())


WRITTEN = ("id", "response", "correct")
"""Fields that every judged record has, so no judge may have such a name."""


def require_free_names(names: Sequence[str], items: Sequence[AnswerToJudge]) -> None:
    """Raise `InvalidInputError` if a column of a judge of one of these names would replace another field of the
    records, or another judge's column.

    Columns by an earlier judge of the name may be replaced: its verdicts, and what stands beside them.
    """
    for name in names:
        if name in WRITTEN:
            raise InvalidInputError(f"The name {name!r} is reserved for a field: give the judge another 'name'.")
        for column in (name, *_measures(name)):
            if any(_is_of_another(item.record, name, column) for item in items):
                raise InvalidInputError(
                    f"The answers have a field {column!r}, which the judge {name!r} would replace: give the judge "
                    "another 'name'."
                )
    if twice := first_repeated(column for name in names for column in (name, *_measures(name))):
        raise InvalidInputError(f"Two judges would write a column {twice!r}; give one another 'name'.")


def _is_of_another(record: Mapping[str, Any], name: str, column: str) -> bool:
    """True if a record has something in a column that no earlier judge of this name wrote."""
    if column != name:
        return name not in record and record.get(column) is not None
    return str(record.get(name, "")).lower() not in VERDICTS


def _measures(judge: str) -> tuple[str, str]:
    """The columns of a judge's qualities and of its replies."""
    return f"{judge}_quality", f"{judge}_reply"


def write_verdicts(path: Path, items: Sequence[AnswerToJudge], verdicts: Mapping[str, Sequence[Verdict]]) -> None:
    """Write every judge's verdicts, a line for each answer, whole or not at all; `InvalidInputError` if that fails.

    Each has the fields of the record that was judged, `id`, `response`, for each judge a column of its name with 1, 0
    or nothing (null in JSON), with `NAME_quality` and `NAME_reply` where the judge gives them, and as `correct` the
    verdict of the first judge, unless the record has one already. `ImportedJudge` reads such a file. The path ends in
    `.jsonl`, `.csv` or `.parquet`, or is "-" for standard output.
    """
    columns: dict[str, list[Any]] = {}
    for judge, said in verdicts.items():
        columns |= _columns(judge, said)
    first = next(iter(verdicts))
    rows = []
    for i, item in enumerate(items):
        own = {"id": item.question.id, **item.record, "response": item.answer}
        if "response" not in item.record:
            own.pop("answer", None)
        if own.get("correct") is None:
            own["correct"] = columns[first][i]
        rows.append(own | {name: values[i] for name, values in columns.items()})
    write_records(path, rows)


def _columns(judge: str, verdicts: Sequence[Verdict]) -> dict[str, list[Any]]:
    quality, reply = _measures(judge)
    measured: dict[str, list[Any]] = {
        quality: [verdict.quality for verdict in verdicts],
        reply: [verdict.reply for verdict in verdicts],
    }
    correct = [None if math.isnan(verdict.correct) else int(verdict.correct) for verdict in verdicts]
    return {judge: correct} | {name: values for name, values in measured.items() if any(v is not None for v in values)}
