"""A job that scores a file: what it writes, that it goes on where it was, and what it refuses."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.bench.score_file import Item, ScoringJob, read_items, score_items
from semtoken.bench.score_file.lines import RESULT_FIELDS, BadLine, item_of
from semtoken.bench.score_file.output import _open_to_append, append
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core import score_logits
from semtoken.core.results import ScoredAnswer
from semtoken.errors import InvalidInputError, VocabularyError, VocabularyMismatch
from semtoken.support.files.record_files import read_records, write_records
from tests import tiny
from tests.json_lines import read_lines, write_lines
from tests.rows import each


@cache
def some_tokenizer() -> Any:
    return tiny.byte_level_bpe()


@cache
def some_clusters() -> TokenClusters:
    vocabulary = Vocabulary.from_tokenizer(some_tokenizer())
    return TokenClusters(np.arange(vocabulary.size) // 4, vocabulary)


class Drawn:
    """An engine that draws logits from the prompt; like a real one, its numbers depend a little on the batch."""

    def __init__(self) -> None:
        self.clusters = some_clusters()
        self.calls: list[int] = []

    def _score(self, prompt: Any, ids: Sequence[int], batch: int) -> ScoredAnswer:
        random = np.random.default_rng([batch, *str(prompt).encode()])
        logits = random.normal(size=(len(ids), self.clusters.vocabulary.size))
        return score_logits(logits, list(ids), self.clusters)

    def generate(self, prompts: Any, max_new_tokens: int, **options: Any) -> list[ScoredAnswer]:
        self.calls.append(len(prompts))
        ids = [[5 + sum(str(p).encode()) % 250] * max_new_tokens for p in prompts]
        return [self._score(p, i, len(prompts)) for p, i in zip(prompts, ids, strict=True)]

    def score(self, prompts: Any, responses: Any, *, batch_size: int) -> list[ScoredAnswer]:
        self.calls.append(-len(prompts))
        encode = some_tokenizer().encode
        ids = [encode(r) if isinstance(r, str) else r for r in responses]
        for tokens in ids:
            self.clusters.vocabulary.check_ids(tokens)
        return [self._score(p, i, len(prompts)) for p, i in zip(prompts, ids, strict=True)]


@pytest.fixture
def engine() -> Drawn:
    return Drawn()


def run(job: ScoringJob, engine: Drawn, **kwargs: Any) -> None:
    job.run(lambda items: score_items(engine, items, max_new_tokens=3), **kwargs)


RECORDS = [
    {"prompt": f"question {i} naïve", "id": i, "meta": {"tags": ["a", None]}} | ({"response": "Paris"} if i % 3 else {})
    for i in range(11)
]


def job_in(folder: Path, target: str = "out.jsonl", batch_size: int = 4) -> ScoringJob:
    """A job that scores `RECORDS`."""
    source = write_lines(folder / "in.jsonl", RECORDS)
    return ScoringJob(source, folder / target, {"model": "drawn"}, batch_size=batch_size)


@pytest.fixture
def job(tmp_path: Path) -> ScoringJob:
    return job_in(tmp_path)


@pytest.fixture
def table(job: ScoringJob) -> ScoringJob:
    """The same with a table as its output."""
    return replace(job, target=job.target.with_suffix(".parquet"), tokens=True)


def test_every_line_is_carried_through_and_scored(job: ScoringJob, engine: Drawn) -> None:
    run(replace(job, tokens=True), engine)
    written = read_lines(job.target)
    assert len(written) == len(RECORDS)
    for record, out in zip(RECORDS, written, strict=True):
        assert {name: out[name] for name in record} == record
        assert set(RESULT_FIELDS) <= set(out)
        assert np.prod([t["agreeing_probability"] for t in out["tokens"]]) == pytest.approx(
            1 - out["sequence_uncertainty"]
        )
    assert written[0]["response"] and written[1]["response"] == "Paris"


def test_checksums_of_lines_are_as_they_were_before(job: ScoringJob, engine: Drawn) -> None:
    """Sixteen digits of SHA-256 for each line of a batch, so that an output of an earlier release goes on."""
    run(job, engine)
    lines = job.target.read_bytes().splitlines(keepends=True)
    noted = [digest for batch in read_lines(job.lines.settings_path)[1:] for digest in batch]
    assert noted == [hashlib.sha256(line).hexdigest()[:16] for line in lines]


def test_a_line_names_the_model_unless_it_does_already(tmp_path: Path, engine: Drawn) -> None:
    """So that a calibrator of these answers knows whose they are."""
    source = write_lines(tmp_path / "in.jsonl", [{"prompt": "a"}, {"prompt": "b", "response": "c", "model": "another"}])
    job = ScoringJob(source, tmp_path / "out.jsonl", {"model": "drawn"})
    run(job, engine)
    assert [line["model"] for line in read_lines(job.target)] == ["drawn", "another"]


def test_a_line_has_every_field_of_an_answer_that_is_a_column_of_csv(engine: Drawn) -> None:
    fields = engine.generate(["x"], 2)[0].to_dict()
    plain = [name for name, value in fields.items() if name in RESULT_FIELDS or not isinstance(value, list | dict)]
    others = {"text", "model", "proxy_for"} | {name for name in plain if name.endswith("_interval")}  # scores are exact
    assert [name for name in plain if name not in others] == list(RESULT_FIELDS)


def test_a_batch_holds_generated_and_existing_responses_apart(job: ScoringJob, engine: Drawn) -> None:
    run(job, engine)
    assert engine.calls == [-2, 2, -3, 1, -2, 1]


class Killed(BaseException):
    pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ScoringJob:
    """A job that was done without a break."""
    done = job_in(tmp_path_factory.mktemp("whole"))
    run(done, Drawn())
    return done


@given(stops=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200)), max_size=3))
def test_killed_at_any_byte_and_resumed_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, whole: ScoringJob, stops: list[tuple[int, int]]
) -> None:
    engine, job = Drawn(), replace(whole, target=tmp_path_factory.mktemp("job") / "cut.jsonl")
    for batches, cut in stops:

        def die(done: int, left: list[int] = [batches]) -> None:  # noqa: B006
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        try:
            run(job, engine, on_progress=die)
        except Killed:
            with job.target.open("rb+") as file:  # a kill leaves the last write half done
                file.truncate(max(0, file.seek(0, os.SEEK_END) - cut))
    run(job, engine)
    assert job.target.read_bytes() == whole.target.read_bytes()


def test_a_finished_job_is_left_alone(job: ScoringJob, engine: Drawn) -> None:
    run(job, engine)
    before, calls = job.target.read_bytes(), list(engine.calls)
    run(job, engine)
    assert (job.target.read_bytes(), engine.calls) == (before, calls)
    assert job.is_finished(job.check())


def test_other_settings_are_refused_by_name(job: ScoringJob, engine: Drawn) -> None:
    run(job, engine)
    before = job.target.read_bytes()
    other = replace(job, settings={"model": "other"})
    with pytest.raises(InvalidInputError, match=r'model was "drawn", now "other".*--force'):
        run(other, engine)
    with pytest.raises(InvalidInputError, match="batch_size was 4, now 8"):
        replace(job, batch_size=8).check()
    with pytest.raises(InvalidInputError, match='parts was null, now "sentence"'):
        replace(job, parts="sentence").check()
    assert job.target.read_bytes() == before
    run(replace(other, overwrite=True), engine)
    assert {line["model"] for line in read_lines(job.target)} == {"other"}


def test_a_run_that_fails_before_its_first_batch_replaces_nothing(job: ScoringJob, engine: Drawn) -> None:
    run(job, engine)
    kept = {path: path.read_bytes() for path in (job.target, job.lines.settings_path)}

    def failing(items: Sequence[Item]) -> list[ScoredAnswer]:
        raise VocabularyMismatch("The model and its clusters do not fit.")

    with pytest.raises(VocabularyMismatch):
        replace(job, settings={"model": "other"}, overwrite=True).run(failing)
    assert {path: path.read_bytes() for path in kept} == kept
    run(job, engine)  # and the former run is still complete
    assert job.target.read_bytes() == kept[job.target]


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (
            [*RECORDS[:4], RECORDS[4] | {"id": "changed"}, *RECORDS[5:]],
            r"Line 5 of .*out.jsonl was not made from line 5 .* field 'id' differs",
        ),
        (RECORDS[:7], "8 lines or more, the input only 7"),
    ],
    ids=["a record", "fewer"],
)
def test_another_input_is_refused(job: ScoringJob, engine: Drawn, records: list[Any], reason: str) -> None:
    run(job, engine)
    write_lines(job.source, records)
    with pytest.raises(InvalidInputError, match=reason):
        job.check()


def test_lines_that_were_added_to_the_input_are_scored_too(job: ScoringJob, engine: Drawn) -> None:
    run(job, engine)
    before = job.target.read_bytes()
    write_lines(job.source, [*RECORDS, {"prompt": "one more"}])
    run(job, engine)
    assert job.target.read_bytes().startswith(before)
    assert len(read_lines(job.target)) == len(RECORDS) + 1


@each(
    ("name", "reason"),
    [
        ("out.jsonl", "out.jsonl exists, but out.jsonl.settings.jsonl"),
        ("out.parquet", "was not written by such a job"),
    ],
)
def test_an_output_of_unknown_origin_is_refused(job: ScoringJob, engine: Drawn, name: str, reason: str) -> None:
    foreign = replace(job, target=job.target.with_name(name))
    foreign.target.write_text("precious\n")
    with pytest.raises(InvalidInputError, match=reason):
        run(foreign, engine)
    assert foreign.target.read_text() == "precious\n"


def with_another_digit(line: bytes) -> bytes:
    """A line of output whose score begins with another digit."""
    place = line.index(b'"sequence_uncertainty": 0.') + len(b'"sequence_uncertainty": 0.')
    return line[:place] + (b"2" if line[place : place + 1] == b"1" else b"1") + line[place + 1 :]


DAMAGES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "zeros": (lambda lines: [*lines[:2], bytes(20) + b"\n", *lines[3:]], "Line 3 of .* is damaged"),
    "a digit": (
        lambda lines: [*lines[:4], with_another_digit(lines[4]), *lines[5:]],
        "Line 5 .* was changed after it was written",
    ),
    "a line": (lambda lines: [*lines[:4], *lines[5:]], "Line 5 .* was not made from line 5"),
    "the last line but one": (lambda lines: [*lines[:-2], lines[-1]], "Line 10 "),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_lines_that_were_changed_or_removed_do_not_count(job: ScoringJob, engine: Drawn, what: str) -> None:
    damage, reason = DAMAGES[what]
    run(job, engine)
    damaged = b"".join(damage(job.target.read_bytes().splitlines(keepends=True)))
    job.target.write_bytes(damaged)
    with pytest.raises(InvalidInputError, match=reason):
        run(job, engine)
    assert job.target.read_bytes() == damaged


def test_scores_of_an_earlier_command_are_replaced(job: ScoringJob, engine: Drawn) -> None:
    run(replace(job, tokens=True), engine)
    again = replace(job, source=job.target, target=job.target.with_name("again.jsonl"))
    run(again, engine)
    assert all("tokens" not in record for record in read_lines(again.target))
    assert [record["response"] for record in read_lines(again.target)] == [
        record["response"] for record in read_lines(job.target)
    ]
    assert set(engine.calls[6:]) == {-4, -3}  # what was generated before is scored now


def test_a_number_that_lines_had_by_an_earlier_name_is_read_and_not_carried_on(tmp_path: Path) -> None:
    """It is the score of the method `length_normalized` now, and would stand beside it for another answer."""
    write_records(tmp_path / "old.csv", [{"prompt": "a", "length_normalized_uncertainty": 0.25, "mine": "b"}])
    [line] = read_records(tmp_path / "old.csv")
    assert line.fields["length_normalized_uncertainty"] == 0.25
    [item] = read_items(tmp_path / "old.csv")
    assert isinstance(item, Item) and item.record == {"prompt": "a", "mine": "b"}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_of_questions_is_an_input(job: ScoringJob, engine: Drawn, ending: str) -> None:
    records = [{"id": f"q{i}", "question": f"who? =1 {i}", "answers": ["a", "=b"]} for i in range(5)]
    source = job.source.with_suffix(ending)
    write_records(source, records)
    run(replace(job, source=source), engine)
    assert [{name: line[name] for name in records[0]} for line in read_lines(job.target)] == records


def test_two_runs_at_once_are_refused(job: ScoringJob, engine: Drawn) -> None:
    another = job.lines.appending(job.all_settings, overwrite=False)
    with another, pytest.raises(InvalidInputError, match="Another run is writing"):
        run(job, engine)


def test_the_input_is_never_written_over(job: ScoringJob) -> None:
    with pytest.raises(InvalidInputError, match="is the input"):
        replace(job, target=job.source, overwrite=True).check()


@each(
    ("line", "reason"),
    [
        (b"{oops", "not JSON: .* at column 2"),
        (b'"text"', "a JSON object is needed, not text"),
        (b"{}", "'prompt' .* missing; the fields are: none"),
        (b'{"query": "?"}', "'prompt' .* missing; the fields are: 'query'"),
        (b'{"question": ["?"]}', "'question' must be text, not a list"),
        (b'{"prompt": " \\n"}', "prompt is empty"),
        (b'{"prompt": 7}', "must be text, not a number"),
        (b'{"prompt": "a", "messages": []}', "both"),
        (b'{"messages": []}', "one or more"),
        (b'{"messages": [{"content": "no role"}]}', "one or more"),
        (b'{"prompt": "a", "response": {}}', "text or a list of token ids, not an object"),
        (b'{"prompt": "a", "response": [7, true]}', "text or a list of token ids; item 2 is true"),
        (b'{"line": 3, "error": "empty"}', "an earlier command could not use it: empty"),
        (b'{"prompt": "a", "x": NaN}', "NaN is no JSON number"),
        (b'{"prompt": "a", "x": 1e999}', "the number 1e999 is too large"),
        (b'{"prompt": "\\ud800"}', "half a character"),
        (b'{"prompt": "\xff"}', "not UTF-8 at byte 12"),
        (b"[" * 100_000, "nested too deeply|not JSON"),
    ],
)
def test_a_bad_line_says_why(tmp_path: Path, line: bytes, reason: str) -> None:
    (tmp_path / "in.jsonl").write_bytes(line + b"\n")
    [found] = map(item_of, read_records(tmp_path / "in.jsonl"))
    assert isinstance(found, BadLine)
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found.reason)


def test_a_bad_line_is_found_before_anything_is_scored(job: ScoringJob, engine: Drawn) -> None:
    run(job, engine)
    before = job.target.read_bytes()
    write_lines(job.source, [*RECORDS, "{oops\n", "\n", "[]\n"])
    with pytest.raises(InvalidInputError, match=r"Line 12 of .*in.jsonl: not JSON.* 1 more lines"):
        run(job, engine)
    assert job.target.read_bytes() == before


def test_bad_lines_can_be_skipped_and_the_rest_is_what_it_would_be(job: ScoringJob, engine: Drawn) -> None:
    write_lines(job.source, ["{oops\n", *RECORDS[:2], "\n", {"prompt": "x", "response": [10**6]}, *RECORDS[2:]])
    run(replace(job, skip_bad_lines=True), engine)
    written = read_lines(job.target)
    assert [out.get("line") for out in written[:4]] == [1, None, None, 5]
    assert "1000000" in written[3]["error"] and "out of range" in written[3]["error"]
    assert [out["id"] for out in written if "error" not in out] == [r["id"] for r in RECORDS]
    before = job.target.read_bytes()
    job.target.write_bytes(before[: len(before) // 3])
    run(replace(job, skip_bad_lines=True), engine)
    assert job.target.read_bytes() == before


def test_a_line_that_only_the_tokenizer_finds_bad_stops_with_its_number(job: ScoringJob, engine: Drawn) -> None:
    write_lines(job.source, [*RECORDS[:6], {"prompt": "x", "response": [10**6]}, *RECORDS[6:]])
    with pytest.raises(InvalidInputError, match=r"Line 7 of .*in.jsonl: Token id 1000000 .* kept"):
        run(job, engine)
    assert len(read_lines(job.target)) == 4
    run(replace(job, skip_bad_lines=True), engine)
    assert len(read_lines(job.target)) == len(RECORDS) + 1


def test_an_error_that_no_line_has_alone_is_passed_on(job: ScoringJob, engine: Drawn) -> None:
    def fails_together(items: Sequence[Item]) -> list[ScoredAnswer]:
        if len(items) > 1:
            raise VocabularyError("together")
        return engine.generate([items[0].prompt], 2)

    with pytest.raises(VocabularyError, match="together"):
        replace(job, skip_bad_lines=True).run(fails_together)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("nowhere/out.jsonl", "nowhere does not exist"),
        ("in.jsonl/out.jsonl", "cannot be written"),
        ("folder.jsonl", "is a folder"),
        ("out.txt", r"must end in .jsonl, .csv or .parquet"),
    ],
)
def test_an_output_that_cannot_be_written_is_found_first(job: ScoringJob, target: str, reason: str) -> None:
    (job.source.parent / "folder.jsonl").mkdir()
    with pytest.raises(InvalidInputError, match=reason):
        replace(job, target=job.source.parent / target).check()


def test_check_changes_nothing(job: ScoringJob) -> None:
    before = sorted(job.source.parent.iterdir())
    assert (job.check().total, job.check().done) == (len(RECORDS), 0)
    assert sorted(job.source.parent.iterdir()) == before


def test_no_lines_and_no_file(job: ScoringJob) -> None:
    job.source.write_text("\n \n")
    with pytest.raises(InvalidInputError, match="holds no lines"):
        job.check()
    job.source.unlink()
    with pytest.raises(InvalidInputError, match="cannot be read"):
        job.check()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@each("size", [100, 100_000])
def test_a_full_disk_is_one_message(size: int) -> None:
    """A file that still holds what it could not write fails to close, too."""
    with (
        pytest.raises(InvalidInputError, match=r"out\.jsonl cannot be written: No space left"),
        _open_to_append(Path("/dev/full")) as file,
    ):
        append(file, [b"x" * size], Path("out.jsonl"))


class TestTables:
    def test_holds_the_lines_and_leaves_nothing_beside_it(self, table: ScoringJob, engine: Drawn) -> None:
        run(replace(table, target=table.target.with_suffix(".jsonl")), engine)
        expected = read_lines(table.target.with_suffix(".jsonl"))
        table.target.with_suffix(".jsonl").unlink()
        run(table, engine)
        rows = pyarrow.parquet.read_table(table.target).to_pylist()
        assert rows == expected
        left = {path.name for path in table.target.parent.iterdir()}
        assert left == {"in.jsonl", "out.jsonl.settings.jsonl", "out.parquet"}

    def test_resumes_and_knows_when_it_is_complete(self, table: ScoringJob, engine: Drawn) -> None:
        def die(done: int) -> None:
            raise Killed

        with pytest.raises(Killed):
            run(table, engine, on_progress=die)
        assert table.check().done == 4 and not table.target.exists()
        run(table, engine)
        assert table.is_finished(table.check())
        with pytest.raises(InvalidInputError, match="model was"):
            replace(table, settings={"model": "other"}).check()
        write_lines(table.source, [*RECORDS, {"prompt": "one more"}])
        with pytest.raises(InvalidInputError, match="complete with 11 lines, the input now has 12"):
            table.check()

    def test_fields_that_first_come_late_are_columns_too(self, table: ScoringJob, engine: Drawn) -> None:
        write_lines(table.source, [{"prompt": "a"}, {"prompt": "b", "late": 1}, "{oops\n"])
        run(replace(table, skip_bad_lines=True), engine)
        rows = pyarrow.parquet.read_table(table.target).to_pylist()
        assert [row["late"] for row in rows] == [None, 1, None]
        assert [row["line"] for row in rows] == [None, None, 3]

    def test_fields_of_two_kinds_are_found_before_the_work(self, table: ScoringJob, engine: Drawn) -> None:
        write_lines(table.source, [{"prompt": "a", "x": 1}, {"prompt": "b", "x": "one"}])
        with pytest.raises(InvalidInputError, match="must hold values of one kind"):
            run(table, engine)
        assert engine.calls == []
        assert [path.name for path in table.source.parent.iterdir()] == ["in.jsonl"]

    @pytest.mark.parametrize("ending", [".csv", ".parquet"])
    def test_a_finished_table_belongs_to_its_input_and_is_whole(
        self, table: ScoringJob, engine: Drawn, ending: str
    ) -> None:
        table = replace(table, target=table.target.with_suffix(ending))
        run(table, engine)
        assert table.is_finished(table.check())
        whole = table.target.read_bytes()
        for place in range(0, len(whole), max(1, len(whole) // 60)):
            table.target.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            try:
                found = table.check()
            except InvalidInputError:
                continue
            assert found.done == len(RECORDS) and ending == ".parquet", place  # unused bytes of its footer
        table.target.write_bytes(whole)
        write_lines(table.source, [*RECORDS[:-1], {**RECORDS[-1], "id": 99}])
        with pytest.raises(InvalidInputError, match="made from another input"):
            table.check()
