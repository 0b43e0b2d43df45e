"""Typed questions about every line of a file, answered by a model in this process or by a server.

Answers that the output holds already are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

from semtoken.decisions.calibrating import DecisionCalibrator, blocks_of
from semtoken.decisions.deciding import decide_about
from semtoken.decisions.questions import Question, ReadingOptions
from semtoken.decisions.records import AskedQuestion, answer_values, first_line, records_of
from semtoken.decisions.remote import Asker
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.models.base import Backend
from semtoken.support.executors import LINES_IN_SHARD, Executor, InputLines, LinesWork, append_in_order
from semtoken.support.files.safe_files import (
    check_rereadable,
    check_writable,
    ending_of,
    locked,
    reading_errors,
    replace_text,
)
from semtoken.support.files.strict_json import JsonLine, dump_json, parse_json, read_json_lines
from semtoken.support.text import with_noun


def are_items(source: Path) -> bool:
    """Return True if a file holds states that nobody has answered yet."""
    first = first_line(source) if source.is_file() and ending_of(source) != ".json" else None
    return first is not None and "state" in first and "answers" not in first


def asker_of_model(backend: Backend) -> Asker:
    """A function that asks a model in this process questions."""
    return lambda state, questions, options: dict(decide_about(backend, state, questions, options))  # type: ignore[arg-type]


@dataclass(frozen=True)
class DecisionJob:
    """A file of states, the questions about each, and the file of their answers.

    With a `calibrator` each answer gets its probability and decision.
    """

    source: Path
    target: Path
    questions: Mapping[str, Question]
    options: ReadingOptions
    calibrator: DecisionCalibrator | None = None
    most: int | None = None
    """The number of items, from the first on, that are asked about; None: all."""
    overwrite: bool = False
    """True to begin with the first item, whatever the output holds: the first new line takes the place of that."""
    answered_by: str = ""
    """The name of the model, or the address of the server, that is asked: each line holds it, where there is one."""

    def items(self, first: int = 0) -> Iterator[JsonLine]:
        """The lines of the input from one on, counted from 0; `InvalidInputError` if they can be read only once."""
        check_rereadable(self.source)
        return islice(read_json_lines(self.source), first, self.most)

    def lines_left(self) -> int:
        """The number of lines of the input without an answer; a cut-off last line of the output does not count."""
        return max(0, sum(1 for _ in self.items()) - self._count_lines())

    def kept(self) -> int:
        """The number of lines that a stopped run of this job left in the output; 0 where that is another job's."""
        job = replace(self, overwrite=False)
        with suppress(SemtokenError, OSError):
            job.check()
            return sum(1 for _ in job.items()) - job.lines_left()
        return 0

    @property
    def warning(self) -> str:
        """A sentence on the questions of a finished output that have no answer, such as those whose options a server
        does not list; empty where all have one.
        """
        asked, refused = 0, list[tuple[str, str]]()
        for line in read_json_lines(self.target):
            asked += len(answers := line.value["answers"])
            refused += [(name, answer["refusal"]) for name, answer in answers.items() if "refusal" in answer]
        if not refused:
            return ""
        name, why = refused[0]
        return f"{len(refused):,} of {asked:,} questions have no answer. The first is {name!r:.60}: {why}"

    def _count_lines(self) -> int:
        if self.overwrite or not self.target.exists():
            return 0
        with reading_errors(self.target), self.target.open("rb") as file:
            return sum(line.endswith(b"\n") and not line.isspace() for line in file)

    def check(self) -> None:
        """Remove a cut-off last line; `InvalidInputError` if there are no items, or the output belongs to another job,
        cannot be written, or is written by another run.
        """
        if next(self.items(), None) is None:
            raise InvalidInputError(f"{self.source} holds no items.")
        if self.target.exists():
            with self._alone():
                self._settled()

    def _alone(self) -> AbstractContextManager[Any]:
        return locked(self.target.with_name(self.target.name + ".lock"), "Another run writes this file.", remove=True)

    def _settled(self) -> int:
        """The number of lines that stay, once it is known that others can be written behind or in place of them."""
        check_writable(self.target)  # the file is opened for the first answer, which may have taken long by then
        done = self._count_lines()
        if not self.overwrite:
            self._check_beginning(done)
            self._drop_unfinished(done)
        return done

    @contextmanager
    def _appending(self) -> Iterator[Callable[[Iterable[bytes]], None]]:
        """Yield a function that appends lines to the output, which are kept whatever happens next.

        The output is opened, or replaced, for the first of them: what fails before it changes nothing.
        """
        with ExitStack() as opened:
            file: IO[bytes] | None = None

            def append(lines: Iterable[bytes]) -> None:
                nonlocal file
                if file is None:
                    file = opened.enter_context(self.target.open("wb" if self.overwrite else "ab"))
                file.writelines(lines)
                file.flush()

            yield append

    def run(self, ask: Asker, at_once: int = 1) -> int:
        """Answer the remaining lines, `at_once` at a time, writing each one at once and in order; returns how many.

        Lines that are written stay. `InvalidInputError` if a line cannot be read or the output is another input's,
        `BackendError` if the server gives none.
        """
        written = 0
        with self._alone():
            done = self._settled()
            with (
                self._appending() as append,
                in_order(partial(self.answered, ask), self.items(done), at_once) as lines,
            ):
                for line in lines:
                    append([line])
                    written += 1
        return written

    def run_by(self, executor: Executor | None, load: Callable[[], Asker], at_once: int) -> int:
        """Run the job by an executor, or without one in this process, as `run_in_shards` and `run` do."""
        return self.run(load(), at_once) if executor is None else self.run_in_shards(load, executor)

    def run_in_shards(self, load: Callable[[], Asker], executor: Executor, size: int = LINES_IN_SHARD) -> int:
        """Run the job in several processes or on machines that see the files at the same paths; returns how many lines.

        Raises as `run`; what another process raised comes as `BackendError`. Written lines stay.
        """
        with self._alone():
            done = self._settled()
            total = done + self.lines_left()
            with self._appending() as append:
                work = DecisionWork(self.target.with_name(self.target.name + ".shards"), size, load, self)
                append_in_order(work, executor, done, total, append)
        return total - done

    def answered(self, ask: Asker, line: JsonLine) -> bytes:
        """The output line with the answers about the state in an input line; `InvalidInputError` if that cannot be
        read.
        """
        if line.fault or not isinstance(line.value, dict) or "state" not in line.value:
            why = line.fault or 'it needs the field "state".'
            raise InvalidInputError(f"{self.source}, line {line.number}: {why}")
        answers = ask(line.value["state"], self.questions, self.options)
        blocks = blocks_of(self.calibrator, list(answers.values()), self.options)
        written = {
            name: {**answer_values(answer, self.options), **block}
            for (name, answer), block in zip(answers.items(), blocks, strict=True)
        }
        return dump_json(self._line(line.value, written)) + b"\n"

    def _line(self, item: Mapping[str, Any], answers: Any) -> dict[str, Any]:
        """The line of the output for an item, whose own fields come first."""
        by = {"answered_by": self.answered_by} if self.answered_by else {}
        return {**item, **by, "answers": answers}

    def _drop_unfinished(self, done: int) -> None:
        """Cut what a killed run left behind the last whole line; a text of somebody else is refused."""
        if not self.target.exists():
            return
        data = self.target.read_bytes()
        kept = data.rfind(b"\n") + 1
        if rest := data[kept:]:
            item = next((line.value for line in self.items(done)), None)
            own = b""
            if isinstance(item, dict):
                with suppress(ValueError):  # it holds half a character, and is refused when it is asked about
                    own = dump_json(self._line(item, 0)).partition(b'"answers": 0')[0]
            # What a killed run left begins as this line would; any other text is somebody's data.
            if not own or not (own.startswith(rest) or rest.startswith(own)):
                raise InvalidInputError(
                    f"{self.target} ends in a line that is no answer of this job. Name another output."
                )
            with self.target.open("r+b") as file:
                file.truncate(kept)

    def _check_beginning(self, done: int) -> None:
        """Refuse an output that is not the beginning of this job's."""
        if not done:
            return
        if (n := sum(1 for _ in islice(read_json_lines(self.source), done))) < done:
            raise InvalidInputError(
                f"{self.target} holds {with_noun(done, 'line')}, and {self.source} only {n:,}: it was made "
                "from other items. Name another output."
            )
        asked = {name: AskedQuestion(question, self.options) for name, question in self.questions.items()}
        for there, item in zip(islice(read_json_lines(self.target), done), self.items(), strict=False):
            if fault := self._fault(there.value, item.value, asked):
                raise InvalidInputError(f"{self.target}, line {there.number}: {fault}. Name another output.")

    def _fault(self, written: Any, item: Any, asked: Mapping[str, AskedQuestion]) -> str:
        """The reason why a line of the output is not what this job would write for an item; empty if it is."""
        same = isinstance(written, dict) and isinstance(item, dict) and written.get("state") == item.get("state")
        if not same or not _are_answers(written.get("answers"), asked):
            return "the answer is to another item or question, or was read in another way"
        expected = {"answered_by": None, **self._line(item, written["answers"])}
        if self.answered_by and written.get("answered_by") is None:
            return f"the field 'answered_by' is missing, so nothing says that {self.answered_by!r:.60} gave the answer"
        if changed := [name for name, value in expected.items() if written.get(name) != value]:
            return f"the field {changed[0]!r:.60} was {_shown(written, changed[0])}, now {_shown(expected, changed[0])}"
        if not self._has_blocks(written):
            return "the answer has no decision of this calibrator" if self.calibrator else "a calibrator decided on it"
        return ""

    def _has_blocks(self, written: Mapping[str, Any]) -> bool:
        """True if the answers of a line have what the calibrator says of them, and nothing of one if there is none."""
        if self.calibrator is None:
            return not any("decision" in answer for answer in written["answers"].values())
        try:
            records = list(records_of(written))
        except (AttributeError, KeyError, TypeError, ValueError):  # its answers were changed
            return False
        blocks = blocks_of(self.calibrator, [record.answer for record in records], self.options)
        return all(
            written["answers"][record.name].items() >= parse_json(dump_json(block)).items()
            for record, block in zip(records, blocks, strict=True)
        )


def _shown(record: Mapping[str, Any], name: str) -> str:
    """A field of a record for a message."""
    return f"{record[name]!r:.60}" if record.get(name) is not None else "missing"


def _are_answers(record: Any, asked: Mapping[str, AskedQuestion]) -> bool:
    """Return True if these are answers to these questions; refusals do not say how they were read."""
    return (
        isinstance(record, dict)
        and record.keys() == asked.keys()
        and all(
            isinstance(answer, dict) and answer.get("question", asked[name].fingerprint) == asked[name].fingerprint
            for name, answer in record.items()
        )
    )


T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def in_order(work: Callable[[T], R], items: Iterable[T], at_once: int) -> Iterator[Iterator[R]]:
    """The results of `work` for some items, in their order, made `at_once` at a time; an error of one ends all."""
    if at_once == 1:
        yield map(work, items)
        return
    with ThreadPoolExecutor(at_once) as pool:

        def results() -> Iterator[R]:
            waiting: deque[Future[R]] = deque()
            for item in items:
                waiting.append(pool.submit(work, item))
                # Twice as many as threads, so that none waits for the slowest; not all, since the input may be long.
                if len(waiting) == 2 * at_once:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

        try:
            yield results()
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class DecisionWork(LinesWork):
    """The shards of a job: one line of output for each line of input."""

    job: DecisionJob

    def resolved(self) -> DecisionWork:
        """A copy with absolute paths, so that another process can do the work."""
        job = replace(self.job, source=self.job.source.resolve(), target=self.job.target.resolve())
        return replace(self, job=job, folder=self.folder.resolve())

    def open(
        self, loader: Callable[[], Asker], answered: Callable[[int], None] = lambda count: None
    ) -> Callable[[int], None]:
        """Load the model; returns the function that answers the lines of one shard."""
        ask = loader()
        source = InputLines(partial(read_json_lines, self.job.source))

        def make(shard: int) -> None:
            lines: list[bytes] = []
            for line in source.lines(shard * self.size, self.size):
                lines.append(self.job.answered(ask, line))
                answered(len(lines))
            replace_text(self.file(shard), b"".join(lines).decode())

        return make
