"""`semtoken decide` as people type it, and runs that are interrupted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from semtoken.decisions import Answer, Predicate, Question, ReadingOptions
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.comparing import compare
from semtoken.decisions.records import read_decisions
from semtoken.decisions.running import DecisionJob, in_order
from semtoken.errors import BackendError, InvalidInputError
from tests.cli.run import invoke
from tests.decisions.made_up import ASKED, answers, verdicts_in
from tests.executors import Backwards
from tests.json_lines import read_lines, write_lines
from tests.ray_runs import here_and_by_ray


def semtoken(*words: object) -> tuple[int, str, str]:
    done = invoke(words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_calibrate_audit_and_compare(tmp_path: Path) -> None:
    here, again = answers(tmp_path / "here.jsonl", 1000, 1), answers(tmp_path / "again.jsonl", 1000, 2)
    there = answers(tmp_path / "there.jsonl", 1000, 2, sharpened=20.0)
    code, shown, _ = semtoken("calibrate", here, "-o", tmp_path / "made", "--alpha", "0.2")
    assert (code, shown.count("With confidence 90%, at most 20%")) == (0, 2)
    code, shown, _ = semtoken("audit", there, "--calibrator", tmp_path / "made", "--json")
    verdicts = verdicts_in(shown)
    assert code == 1 and verdicts == {"true": "does not hold", "false": "does not hold", "set": verdicts["set"]}
    [found] = compare(read_decisions(again), read_decisions(there))
    assert "the same choice in 1,000 of 1,000" in found.statement and "rank correlation 1.00" in found.statement
    turned = write_lines(tmp_path / "turned.jsonl", reversed(read_lines(there)))
    for others in (read_decisions(turned), read_decisions(again)[1:]):
        with pytest.raises(InvalidInputError, match="not to the same states in one order"):
            compare(read_decisions(again), others)


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    good, target = answers(tmp_path / "good.jsonl", 5, 1), tmp_path / "made"
    bad_lines: list[list[Any]] = [
        [1],
        [[]],
        [{"answers": []}],
        [{"answers": {"q": 1}}],
        [{"answers": {}, "labels": [1]}],
        [],
    ]
    for content in bad_lines:
        bad = write_lines(tmp_path / "bad.jsonl", content)
        code, _, said = semtoken("calibrate", bad, "-o", target)
        assert code == 2 and said.startswith("Error: ") and "Traceback" not in said, (content, said)
    code, _, said = semtoken("audit", good, "--calibrator", target)
    assert code == 2 and "semtoken calibrate" in said and not target.exists()


class _Interrupted:
    """A model that knows its answers, and that somebody stops."""

    def __init__(self, after: int | None) -> None:
        self.left = after

    def __call__(self, state: Any, questions: Mapping[str, Question], options: ReadingOptions) -> dict[str, Answer]:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left = None if self.left is None else self.left - 1
        return {name: Answer(one, (0.75, 0.25)) for name, one in questions.items()}


def answering() -> _Interrupted:
    """One that nobody stops."""
    return _Interrupted(None)


def job_of(folder: Path, n: int, target: str = "out.jsonl", **further: Any) -> DecisionJob:
    """A job that asks one question about so many items."""
    source = write_lines(folder / "items.jsonl", [{"state": f"{i}"} for i in range(n)])
    return DecisionJob(source, folder / target, {"late": ASKED}, ReadingOptions(), **further)


@pytest.mark.parametrize("kept", [1, 17, 30, -1])
def test_an_interrupted_run_goes_on(kept: int, tmp_path: Path) -> None:
    whole, job = job_of(tmp_path, 7, "whole.jsonl"), job_of(tmp_path, 7, "parts.jsonl")
    assert whole.run(answering()) == 7
    with pytest.raises(KeyboardInterrupt):
        job.run(_Interrupted(3))
    with job.target.open("a") as file:
        file.write(whole.target.read_text().splitlines(keepends=True)[3][:kept])  # killed while it wrote
    assert job.lines_left() == 4
    assert job.run(answering()) == 4
    assert job.target.read_bytes() == whole.target.read_bytes()
    assert len(read_decisions(job.target)) == 7
    write_lines(job.source, [{"state": "0"}])
    assert job.lines_left() == 0  # never fewer


def test_an_output_of_more_items_or_of_none_is_not_called_complete(tmp_path: Path) -> None:
    job = job_of(tmp_path, 3)
    assert job.run(answering()) == 3
    job.check()
    before = job.target.read_bytes()
    write_lines(job.source, read_lines(job.source)[:2])
    for look in (job.check, lambda: job.run(answering())):
        with pytest.raises(InvalidInputError, match=r"holds 3 lines, and .* only 2: it was made from other items"):
            look()
    job.source.write_text("")
    with pytest.raises(InvalidInputError, match="holds no items"):
        job.check()
    assert job.target.read_bytes() == before


def test_an_empty_line_in_the_output_leaves_no_item_out(tmp_path: Path) -> None:
    job = job_of(tmp_path, 3)
    assert job.run(answering()) == 3
    first, *others = job.target.read_bytes().splitlines(keepends=True)
    job.target.write_bytes(first + b"\n")
    assert job.lines_left() == 2 and job.run(answering()) == 2
    assert job.target.read_bytes() == first + b"\n" + b"".join(others)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_shards_give_the_lines_of_one_process(tmp_path: Path, size: int) -> None:
    alone, shared = job_of(tmp_path, 7, "alone.jsonl"), job_of(tmp_path, 7, "shared.jsonl")
    assert alone.run(answering()) == 7
    if size < 7:
        with pytest.raises(BackendError, match="lost"):
            shared.run_in_shards(answering, Backwards(answering, most=1), size)
    there = shared.target.read_bytes() if shared.target.exists() else b""
    assert alone.target.read_bytes().startswith(there)
    left = shared.lines_left()
    assert 0 < left <= 7 and left == 7 - there.count(b"\n")
    assert shared.run_in_shards(answering, Backwards(answering), size) == left
    assert shared.lines_left() == 0
    assert shared.target.read_bytes() == alone.target.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.jsonl", "items.jsonl", "shared.jsonl"]


def test_force_replaces_an_output_once_the_first_answer_is_there(tmp_path: Path) -> None:
    items = write_lines(tmp_path / "items.jsonl", [{"state": "a"}])
    questions, output = tmp_path / "questions.yaml", tmp_path / "out.jsonl"
    command = ["decide", questions, items, "-o", output, "--force"]
    output.write_text("what cost an hour\n")
    for mistaken, said in {"late: {}": "questions.yaml, question 'late'", "late: [": "questions.yaml"}.items():
        questions.write_text(mistaken)
        status, _, error = semtoken(*command)
        assert status == 1 and said in error
    questions.write_text("late: {type: predicate, instructions: Late}")
    for further in (["--model", "no-such-model"], ["--base-url", "http://127.0.0.1:9/v1", "--model", "m"]):
        assert semtoken(*command, *further)[0] == 1
    assert output.read_text() == "what cost an hour\n"
    assert semtoken(*command)[0] == 0
    assert [line["state"] for line in read_lines(output)] == ["a"]


@pytest.mark.parametrize("sharded", [False, True])
def test_a_forced_run_begins_with_the_first_item(sharded: bool, tmp_path: Path) -> None:
    job = job_of(tmp_path, 2, overwrite=True)
    job.target.write_text(3 * "notes\n" + "and more")
    job.check()
    assert job.lines_left() == 2
    assert (job.run_in_shards(answering, Backwards(answering), 1) if sharded else job.run(answering())) == 2
    assert [line["state"] for line in read_lines(job.target)] == ["0", "1"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_nobody_is_asked_where_the_answers_cannot_be_written(overwrite: bool, tmp_path: Path) -> None:
    job = job_of(tmp_path, 2, overwrite=overwrite)
    job.target.mkdir()
    nobody = _Interrupted(0)
    for go_on in (job.check, lambda: job.run(nobody), lambda: job.run_in_shards(lambda: nobody, Backwards(answering))):
        with pytest.raises(InvalidInputError, match="is a folder"):
            go_on()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items.jsonl", "out.jsonl"]


@pytest.mark.slow
def test_ray_answers_the_same_questions(tmp_path: Path) -> None:
    """`semtoken decide --executor.kind ray`, in a network namespace that has only loopback."""
    pytest.importorskip("ray")
    pytest.importorskip("torch")
    items = write_lines(tmp_path / "items.jsonl", [{"state": f"Parcel {i} is {i % 5} days late."} for i in range(600)])
    asked = tmp_path / "q.json"
    asked.write_text('{"late": {"type": "noul", "instructions": "Is the parcel late?"}}')
    here, ray = tmp_path / "here.jsonl", tmp_path / "ray.jsonl"
    here_and_by_ray("decide", asked, items, here=here, by_ray=ray)
    assert "is complete" in semtoken("decide", asked, items, "-o", ray)[2]
    one, other = read_lines(here), read_lines(ray)
    assert [line["state"] for line in other] == [line["state"] for line in one]
    assert [line["answers"]["late"]["probabilities"][0] for line in other] == pytest.approx(
        [line["answers"]["late"]["probabilities"][0] for line in one], abs=1e-5
    )


@pytest.mark.parametrize(
    ("question", "options"),
    [(ASKED, ReadingOptions("words")), (ASKED, ReadingOptions(orders=2)), (Predicate("Is it lost?"), ReadingOptions())],
    ids=["reading", "orders", "question"],
)
def test_a_run_does_not_go_on_with_something_else(tmp_path: Path, question: Question, options: ReadingOptions) -> None:
    job = job_of(tmp_path, 4)
    with pytest.raises(KeyboardInterrupt):
        job.run(_Interrupted(2))
    before = job.target.read_bytes()
    other = replace(job, questions={"late": question}, options=options)
    for go_on in (other.check, lambda: other.run(answering())):
        with pytest.raises(InvalidInputError, match="line 1: the answer is to another"):
            go_on()
    assert job.target.read_bytes() == before


def test_a_run_does_not_go_on_with_answers_of_another_model_calibrator_or_label(tmp_path: Path) -> None:
    """It would call the answers of one model those of another, and an output without decisions complete."""
    calibrator = DecisionCalibrator.fit(read_decisions(answers(tmp_path / "labeled.jsonl", 300, 1)))
    other = DecisionCalibrator.fit(read_decisions(answers(tmp_path / "others.jsonl", 300, 2)))
    assert calibrator.checksum != other.checksum
    plain = job_of(tmp_path, 3, answered_by="small")
    decided = job_of(tmp_path, 3, "decided.jsonl", answered_by="small", calibrator=calibrator)
    for job in (plain, decided):
        assert job.run(answering()) == 3
        job.check()
    assert [line["answered_by"] for line in read_lines(plain.target)] == ["small"] * 3
    kept = plain.target.read_bytes(), decided.target.read_bytes()
    for job, said in [
        (replace(plain, answered_by="large"), "the field 'answered_by' was 'small', now 'large'"),
        (replace(plain, answered_by=""), "the field 'answered_by' was 'small', now missing"),
        (replace(plain, calibrator=calibrator), "the answer has no decision of this calibrator"),
        (replace(decided, calibrator=other), "the answer has no decision of this calibrator"),
        (replace(decided, calibrator=None), "a calibrator decided on it"),
    ]:
        for go_on in (job.check, partial(job.run, answering())):
            with pytest.raises(InvalidInputError, match=f"line 1: {said}"):
                go_on()
    unnamed = job_of(tmp_path, 3, "unnamed.jsonl")
    assert unnamed.run(answering()) == 3
    with pytest.raises(InvalidInputError, match="'answered_by' is missing, so nothing says that 'small' gave"):
        replace(unnamed, answered_by="small").check()
    named = [line | {"answered_by": "small"} for line in read_lines(unnamed.target)]
    write_lines(unnamed.target, named)
    replace(unnamed, answered_by="small").check()
    write_lines(plain.source, [{"state": "0"}, {"state": "1", "labels": {"late": True}}, {"state": "2"}])
    with pytest.raises(InvalidInputError, match="line 2: the field 'labels' was missing, now"):
        plain.check()
    assert kept == (plain.target.read_bytes(), decided.target.read_bytes())


@pytest.mark.parametrize("forced", [[], ["--force"]], ids=["", "forced"])
def test_a_stopped_run_says_how_it_goes_on(forced: list[str], tmp_path: Path) -> None:
    items = write_lines(tmp_path / "items.jsonl", [{"state": "a"}, {"state": "b"}, {}])
    questions, output = tmp_path / "questions.yaml", tmp_path / "out.jsonl"
    questions.write_text("late: {type: predicate, instructions: Late}")
    command = ["decide", questions, items, "-o", output]
    status, _, said = semtoken(*command, *forced)
    again = "the same command without --force" if forced else "the same command"
    assert status == 1 and 'line 3: it needs the field "state"' in said
    assert f"2 lines in {output}: {again} goes on from there." in said
    write_lines(items, [{"state": "a"}, {"state": "b"}, {"state": "c"}])
    assert "1 line written" in semtoken(*command)[2]
    status, _, said = semtoken(*command, "--model", "no-such-model", "--force")
    assert status == 1 and "goes on" not in said, "these lines are not of that model"


def test_questions_without_an_answer_are_counted_and_the_first_is_told(tmp_path: Path) -> None:
    items = write_lines(tmp_path / "items.jsonl", [{"state": "a"}, {"state": "b"}])
    questions, output = tmp_path / "questions.yaml", tmp_path / "out.jsonl"
    late = "late: {type: predicate, instructions: Late}"
    questions.write_text(f'{late}\nalike: {{type: choice, instructions: Which, choices: [Yes!, "yes!"]}}')
    code, _, said = semtoken("decide", questions, items, "-o", output, "--reading", "words")
    assert code == 0 and "2 lines written" in said
    assert "Warning: 2 of 4 questions have no answer. The first is 'alike': The options 'Yes!' and 'yes!'" in said
    assert [[*line["answers"]["alike"]] for line in read_lines(output)] == [["refusal"]] * 2
    questions.write_text(late)
    assert "Warning" not in semtoken("decide", questions, items, "-o", output, "--reading", "words", "--force")[2]


@pytest.mark.parametrize("there", [b"my notes", b'{"state": "another", "answers', b"\xff\x00{["])
def test_a_file_of_somebody_else_keeps_its_unfinished_line(there: bytes, tmp_path: Path) -> None:
    job = job_of(tmp_path, 1, "notes.txt")
    job.target.write_bytes(there)
    with pytest.raises(InvalidInputError, match="ends in a line that is no answer of this job"):
        job.check()
    assert job.target.read_bytes() == there


def test_a_side_or_a_set_alone_ends_an_audit_with_1(tmp_path: Path) -> None:
    def audited(made: Path, found: list[dict[str, Any]]) -> tuple[int, dict[str, str]]:
        audited = write_lines(tmp_path / "audited.jsonl", found)
        code, shown, said = semtoken("audit", audited, "--calibrator", made, "--json")
        assert code in (0, 1, 3), said
        return code, verdicts_in(shown)

    few = answers(tmp_path / "few.jsonl", 60, 1)  # too few of a side to guarantee anything; enough for sets
    semtoken("calibrate", few, "-o", tmp_path / "sets", "--alpha", "0.06")
    nothing = dict.fromkeys(("true", "false"), "nothing was guaranteed")
    alike = read_lines(answers(tmp_path / "alike.jsonl", 60, 4))
    assert audited(tmp_path / "sets", alike) == (3, nothing | {"set": "no difference is shown"})
    turned = [one | {"labels": {"late": not one["labels"]["late"]}} for one in alike]
    assert audited(tmp_path / "sets", turned) == (1, nothing | {"set": "does not hold"})

    semtoken("calibrate", answers(tmp_path / "many.jsonl", 1000, 1), "-o", tmp_path / "made", "--alpha", "0.2")
    read = DecisionCalibrator.load(tmp_path / "made")
    [true] = [side for side in read.sides if side.side == "true"]
    again = answers(tmp_path / "again.jsonl", 2000, 2)
    accepted: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    others = []
    for line, one in zip(read_lines(again), read_decisions(again), strict=True):
        if one.answer.side == "true" and true.accepts(one):
            accepted[bool(one.correct)].append(line)
        elif one.answer.side == "false" and one.correct:
            others.append(line)
    found = accepted[False][:40] + accepted[True][:20] + others[:1000]  # 40 of 60 wrong, 40 of 1,060 outside of the set
    holds = {"true": "does not hold", "false": "holds", "set": "no difference is shown"}
    assert audited(tmp_path / "made", found) == (1, holds)


def test_results_keep_their_order_and_after_a_failure_nothing_further_begins() -> None:
    def work(n: int) -> int:
        begun.append(n)
        time.sleep(0.2 if n == 1 else 0.0)
        if n == failing:
            raise ValueError
        return n * n

    begun, failing = list[int](), -1
    with in_order(work, range(9), 2) as results:
        assert list(results) == [n * n for n in range(9)]
    begun, failing = [], 1  # while it is at work, the other thread does all that wait behind it, which are two
    with pytest.raises(ValueError), in_order(work, range(1, 9), 2) as results:
        list(results)
    assert sorted(begun) == [1, 2, 3, 4]
    begun, failing = [], 0
    with pytest.raises(ValueError), in_order(work, [0, 1, 1, 1], 2) as results:
        list(results)
    assert len(begun) < 4  # one of those that wait is taken up at once, the last one is not
