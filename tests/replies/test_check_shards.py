"""Replies that several processes check give the tables that one process gives."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from semtoken.core import ScoringRules
from semtoken.errors import InvalidInputError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.replies.checking import RankedReplies, rank_replies
from semtoken.replies.checking.answers import CheckSettings
from semtoken.replies.checking.shards import check_in_shards, checker
from semtoken.replies.checking.tables import field_table, markdown, page_rows, rows_of
from tests.cli.run import invoke
from tests.executors import Backwards
from tests.guarantees.made_up import put
from tests.json_lines import write_lines
from tests.replies.test_check import CUT, RECORDED, SURE, TORN, reply

BLANK = reply([(" ", -0.5)])
INVOICE = reply([('{"total": ', -0.01), ("12", -1.2), (', "city": "', -0.1), ("Lima", -0.3), ('"}', -0.01)])
SCHEMA = {"properties": {"total": {"type": "number"}, "city": {"type": "string"}, "due": {"type": "string"}}}


def tables(found: RankedReplies) -> dict[str, Any]:
    """All that the command writes."""
    return {
        "rows": rows_of(found),
        "page": page_rows(found),
        "fields": field_table(found),
        "markdown": markdown(found, found.answers),
        "refused": found.refused,
        "said": (found.joined, found.n_from_block, [one.response.summary for one in found.answers]),
    }


def in_shards(
    sources: Sequence[str], how: CheckSettings, folder: Path, size: int, questions: Path | None = None, **more: Any
) -> RankedReplies:
    load = pickle.loads(pickle.dumps(partial(checker, how)))  # as another process receives it
    return check_in_shards(how, sources, Backwards(load), folder / "shards", size=size, questions=questions, **more)


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """The tables of all recorded replies."""
    return tables(rank_replies([str(RECORDED)]))


def test_recorded_replies_of_every_engine_give_the_same_tables(tmp_path: Path, alone: dict[str, Any]) -> None:
    counts: list[int] = []
    found = in_shards([str(RECORDED)], CheckSettings(), tmp_path, 7, on_checked=counts.append)
    assert tables(found) == alone
    replies = len({one.where for one in found.answers}) + len(found.refused)
    assert counts == [*range(7, replies, 7), replies]
    assert len(alone["rows"]) > 20 and alone["refused"]
    assert not (tmp_path / "shards").exists()


def test_answers_without_their_tokens_give_the_same_tables(alone: dict[str, Any]) -> None:
    found = rank_replies([str(RECORDED)], keep_tokens=False)
    assert tables(found) == alone
    scored = next(one for one in found.answers if not one.from_block)
    with pytest.raises(InvalidInputError, match="There are no tokens: the replies were checked with keep_tokens=False"):
        print(scored.response.tokens)


def test_relative_paths_lines_questions_and_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [{"id": f"{i}", "response": one} for i, one in enumerate([SURE, TORN, CUT, BLANK, INVOICE, {"no": 1}] * 3)]
    write_lines(Path("lines.jsonl"), lines)
    Path("one.json").write_text(json.dumps(TORN, indent=1), "utf-8")
    ids = [*map(str, range(len(lines))), "one"]
    asked = write_lines(Path("questions.jsonl"), ({"id": i, "question": f"{i}?"} for i in ids))
    sources = ["./lines.jsonl", "one.json"]
    for schema in (None, SCHEMA):
        alone = tables(rank_replies(sources, questions=asked, schema=schema))
        assert tables(in_shards(sources, CheckSettings(schema=schema), tmp_path, 4, asked)) == alone
        assert alone["rows"][0]["where"].startswith(("lines.jsonl:", "one.json"))
        assert {row["question"] for row in alone["rows"]} >= {"0?", "one?"}
    assert alone["fields"]


def test_a_line_may_hold_separators_of_lines(tmp_path: Path) -> None:
    """JSON allows U+2028 and its like in texts, and `str.splitlines` cuts there."""
    odd = reply([("one\u2028two\x85three", -0.4)])
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in (odd, SURE)), "utf-8")
    found = tables(rank_replies([str(path)]))
    assert [row["answer"] for row in found["rows"]] == ["one\u2028two\x85three", "Lima"]
    assert tables(in_shards([str(path)], CheckSettings(), tmp_path, 1)) == found


def test_a_calibrator_is_loaded_where_replies_are_checked(tmp_path: Path) -> None:
    lines, made = tmp_path / "lines.jsonl", tmp_path / "calibrator"
    replies = [reply([("It is ", -0.01), (f"X{i}", -i / 10)]) for i in range(1, 20)]
    write_lines(lines, replies)
    put(made, signature=ScoringRules().signature, distribution="unknown", scores="top-k")
    alone = tables(rank_replies([str(lines)], calibrator=CalibratorInUse.load(made)))
    assert tables(in_shards([str(lines)], CheckSettings(calibrator=CalibratorInUse.load(made)), tmp_path, 8)) == alone
    assert {row["decision"] for row in alone["rows"]} == {"answer", "abstain"}


def test_what_processes_cannot_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="standard input"):
        in_shards(["-"], CheckSettings(), tmp_path, 1)
    (tmp_path / "sure.json").write_text(json.dumps(SURE), encoding="utf-8")
    [found] = in_shards([str(tmp_path / "sure.json")], CheckSettings(), tmp_path, 50).answers
    with pytest.raises(InvalidInputError, match="another process"):
        _ = found.response.tokens
    done = invoke(["check", str(RECORDED), "--executor.kind=ray"])
    assert done.exit_code == 2 and "name both" in done.output


@pytest.mark.slow
def test_two_ray_workers_write_the_same_table(tmp_path: Path) -> None:
    """`semtoken check --executor.kind ray`, in a network namespace that has only loopback."""
    pytest.importorskip("ray")
    from tests.ray_runs import here_and_by_ray

    lines = [{"id": f"{i}", "response": one} for i, one in enumerate([SURE, TORN, CUT, INVOICE] * 200)]
    source = write_lines(tmp_path / "lines.jsonl", lines)
    here_and_by_ray("check", source, here=tmp_path / "here.csv", by_ray=tmp_path / "ray.csv")
    assert (tmp_path / "ray.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
