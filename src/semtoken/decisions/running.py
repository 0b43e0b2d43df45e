"""Typed questions about every line of a file, by a model in this process or by a server; what is there is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from semtoken.decisions.about import as_question, decide_about
from semtoken.decisions.answers import AnsweredQuestion, refused
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.options import ReadingOptions
from semtoken.decisions.questions import Question
from semtoken.decisions.records import answer_values, question_fingerprint, records_of
from semtoken.errors import BackendError, InvalidInput
from semtoken.files.safe_files import dump_json, locked, read_json_lines, reading_errors
from semtoken.support.extras import require

if TYPE_CHECKING:
    from semtoken.stc import STC

Asker: TypeAlias = Callable[[Any, Mapping[str, Question], ReadingOptions], dict[str, AnsweredQuestion]]
"""From a state and questions by name to their answers."""
TIMEOUT = 600.0


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


def asker_of_endpoint(url: str, model: str | None) -> Asker:
    """Questions to a server, at the address of its `/v1/decisions` or `/v1/systemone`.

    Raises
    ------
    InvalidInput
        The address ends otherwise.
    """
    from semtoken.decisions.wire import openai, systemone

    httpx = require("httpx", extra="serve")
    path = url.rstrip("/").rpartition("/")[2]
    if path not in ("decisions", "systemone"):
        raise InvalidInput(f"An endpoint ends with /v1/decisions or /v1/systemone, got {url!r:.80}.")

    def ask(state: Any, questions: Mapping[str, Question], options: ReadingOptions) -> dict[str, AnsweredQuestion]:
        how = {} if options == ReadingOptions("labels", 1) else {"reading": options.reading}
        if options.orders != 1:
            how["orders"] = "all" if options.orders is None else options.orders  # type: ignore[assignment]
        body: dict[str, Any] = {"semtoken": how} if how else {}
        if model is not None:
            body["model"] = model
        if path == "decisions":
            content = state if isinstance(state, str) else dump_json(state).decode()
            body |= {"input": content, "questions": [openai.written_question(q, n) for n, q in questions.items()]}
        else:
            body |= {"state": state, "questions": {n: systemone.written_question(q) for n, q in questions.items()}}
        try:
            reply = httpx.post(url, json=body, timeout=TIMEOUT)
            reply.raise_for_status()
            given = reply.json()["answers"]
            listed = given if path == "decisions" else [given[name] for name in questions]
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            detail = getattr(getattr(error, "response", None), "text", "")
            raise BackendError(f"{url} gave no answers: {error} {detail:.200}".rstrip()) from error
        read = openai.read_answer if path == "decisions" else systemone.read_answer
        found = {}
        for (name, question), one in zip(questions.items(), listed, strict=True):
            probabilities = read(question, one)
            known = probabilities is not None
            found[name] = (
                AnsweredQuestion(question, tuple(probabilities)) if known else refused(question, "The server refused.")  # type: ignore[arg-type]
            )
        return found

    return ask


@dataclass(frozen=True)
class DecisionJob:
    """A file of states, the questions about each, and the file of their answers."""

    source: Path
    target: Path
    questions: Mapping[str, Question]
    options: ReadingOptions
    calibrator: DecisionCalibrator | None = None

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
                    file.write(dump_json(self._answered(line.value, ask)) + b"\n")
                    file.flush()
                    written += 1
        return written

    def _answered(self, item: Mapping[str, Any], ask: Asker) -> dict[str, Any]:
        answers = ask(item["state"], self.questions, self.options)
        values = {name: answer_values(answer, self.options) for name, answer in answers.items()}
        if self.calibrator is not None:
            for record in records_of({"answers": values}):
                values[record.name] |= self.calibrator.block(record)
        return {**item, "answers": values}

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
