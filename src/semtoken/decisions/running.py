"""Typed questions about every line of a file, by a model in this process or by a server; what is there is kept."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from semtoken.decisions.about import as_question, decide_about
from semtoken.decisions.answers import AnsweredQuestion
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.endpoints import Asker
from semtoken.decisions.options import ReadingOptions
from semtoken.decisions.questions import Question
from semtoken.decisions.records import answer_values, question_fingerprint, records_of
from semtoken.errors import InvalidInput
from semtoken.files.safe_files import dump_json, locked, read_json_lines, reading_errors
from semtoken.support.extras import require

if TYPE_CHECKING:
    from semtoken.stc import STC


def read_questions(path: Path) -> dict[str, Question]:
    """Questions by name from a YAML or JSON file.

    Raises
    ------
    InvalidInput
        It cannot be read, or holds something else.
    """
    yaml = require("yaml", extra="bench")
    with reading_errors(path):
        text = path.read_text(encoding="utf-8")
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path} is not YAML: {error}") from error
    if not isinstance(found, dict) or not found:
        raise InvalidInput(f"{path} must hold questions by their names.")
    return {str(name): as_question(question, str(name)) for name, question in found.items()}


def asker_of_model(stc: STC) -> Asker:
    """Questions to a model in this process."""
    return lambda state, questions, options: dict(decide_about(stc.backend, state, questions, options))  # type: ignore[arg-type]


class DecisionSink(Protocol):
    """Keeps the answers of a run, besides their file."""

    def __call__(
        self, answer: AnsweredQuestion, options: ReadingOptions, block: Mapping[str, Any], *, place: str, state: Any
    ) -> None:
        """Keep one answer: how it was read, what a calibrator said, where the state stands, and the state."""


@dataclass(frozen=True)
class DecisionJob:
    """A file of states, the questions about each, and the file of their answers."""

    source: Path
    target: Path
    questions: Mapping[str, Question]
    options: ReadingOptions
    calibrator: DecisionCalibrator | None = None
    keep: DecisionSink | None = None

    def left(self) -> int:
        """Lines of the input that have no answers yet; an unfinished last line of the output does not count."""
        return max(0, sum(1 for _ in read_json_lines(self.source)) - self._done())

    def _done(self) -> int:
        if not self.target.exists():
            return 0
        with reading_errors(self.target):
            return self.target.read_bytes().count(b"\n")

    def check(self) -> None:
        """Refuse an output that belongs to something else, and cut what a killed run left behind the last whole line.

        Raises
        ------
        InvalidInput
            The output belongs to other items or questions, or another run writes it.
        """
        if self.target.exists():
            with self._alone():
                self._settled()

    def _alone(self) -> AbstractContextManager[Any]:
        return locked(self.target.with_name(self.target.name + ".lock"), "Another run writes this file.", remove=True)

    def _settled(self) -> int:
        self._drop_unfinished()
        done = self._done()
        self._check_beginning(done)
        return done

    def run(self, ask: Asker) -> int:
        """Answer what is left; every line is written at once. Returns how many.

        Raises
        ------
        InvalidInput
            A line cannot be read, or the output belongs to another input. Lines that are written stay.
        BackendError
            The server gave no answers.
        """
        written = 0
        with self._alone():
            done = self._settled()
            with self.target.open("ab") as file:
                for line in islice(read_json_lines(self.source), done, None):
                    if line.fault or not isinstance(line.value, dict) or "state" not in line.value:
                        why = line.fault or 'it needs the field "state".'
                        raise InvalidInput(f"{self.source}, line {line.number}: {why}")
                    file.write(dump_json(self._answered(line.value, ask, line.number)) + b"\n")
                    file.flush()
                    written += 1
        return written

    def _answered(self, item: Mapping[str, Any], ask: Asker, number: int) -> dict[str, Any]:
        answers = ask(item["state"], self.questions, self.options)
        values = {name: answer_values(answer, self.options) for name, answer in answers.items()}
        blocks: dict[str, dict[str, Any]] = {name: {} for name in answers}
        if self.calibrator is not None:
            for record in records_of({"answers": values}):
                blocks[record.name] = self.calibrator.block(record)
        if self.keep is not None:
            for name, answer in answers.items():
                self.keep(answer, self.options, blocks[name], place=f"{self.source}:{number}", state=item["state"])
        return {**item, "answers": {name: values[name] | blocks[name] for name in answers}}

    def _drop_unfinished(self) -> None:
        """Cut what a killed run left behind the last whole line."""
        if self.target.exists():
            data = self.target.read_bytes()
            if data and not data.endswith(b"\n"):
                with self.target.open("r+b") as file:
                    file.truncate(data.rfind(b"\n") + 1)

    def _check_beginning(self, done: int) -> None:
        """Refuse an output that is not the beginning of this job's."""
        if not done:
            return
        pairs = zip(read_json_lines(self.target), islice(read_json_lines(self.source), done), strict=False)
        for there, item in pairs:
            found = there.value if isinstance(there.value, dict) else {}
            same = isinstance(item.value, dict) and found.get("state") == item.value.get("state")
            if not same or not self._are_answers(found.get("answers")):
                raise InvalidInput(
                    f"{self.target}, line {there.number}: the answer is to another item or question, or was read in "
                    "another way. Name another output."
                )

    def _are_answers(self, found: Any) -> bool:
        """Whether these are answers to the questions of this job, read as it reads them; refusals do not say."""
        if not isinstance(found, dict) or set(found) != set(self.questions):
            return False
        expected = {name: question_fingerprint(question, self.options) for name, question in self.questions.items()}
        return all(
            isinstance(one, dict) and one.get("question", expected[n]) == expected[n] for n, one in found.items()
        )
