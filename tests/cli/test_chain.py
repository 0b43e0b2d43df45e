"""Commands read what others wrote: real commands on the almanac, one after another."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from semtoken.support.almanac import is_correct, load_questions
from semtoken.support.files.record_files import read_rows, write_records
from tests.cli.conftest import RunCommand
from tests.json_lines import read_lines

pytest.importorskip("pyarrow")
QUESTIONS = list(islice(load_questions("dev"), 12))
ASKED = [{"id": q.id, "question": q.question, "answers": list(q.answers), "kind": "=1+1"} for q in QUESTIONS]


def rows(path: Path) -> list[dict[str, Any]]:
    return [fields for _, _, fields in read_rows(path)]


FORMATS = (".csv", ".parquet", ".jsonl", ".csv"), (".jsonl", ".csv", ".parquet", ".jsonl")


@pytest.mark.parametrize("formats", [FORMATS[0], pytest.param(FORMATS[1], marks=pytest.mark.slow)])
def test_questions_are_scored_judged_and_scored_again(
    semtoken: RunCommand, tmp_path: Path, formats: tuple[str, ...]
) -> None:
    """Between them the rows read and write each format by `score`."""
    asked, scored, judged, again = (
        (tmp_path / name).with_suffix(end)
        for name, end in zip(("asked", "scored", "judged", "again"), formats, strict=True)
    )
    write_records(asked, ASKED)
    result = semtoken("score", asked, "-o", scored, "--max-tokens", 12)
    assert result.exit_code == 0, result.output
    result = semtoken("bench", "judge", scored, "-o", judged, "--judge", "exact")
    assert result.exit_code == 0, result.output
    found = rows(judged)
    assert [{name: row[name] for name in ASKED[0]} for row in found] == ASKED
    by_hand = [int(is_correct(row["response"] or "", q)) for row, q in zip(found, QUESTIONS, strict=True)]
    assert [row["correct"] for row in found] == by_hand == [int(row["exact"]) for row in found]
    assert 0 < sum(by_hand) < len(by_hand)

    result = semtoken("score", judged, "-o", again, "--max-tokens", 12)
    assert result.exit_code == 0, result.output
    for before, after in zip(found, rows(again), strict=True):
        assert after["response"] == before["response"] and after["correct"] == before["correct"]
        assert after["preset"] == "default" and 0 <= after["sequence_uncertainty"] <= 1


def test_standard_input_and_output(semtoken: RunCommand) -> None:
    asked = semtoken("ask", ASKED[0]["question"], ASKED[1]["question"], "--json")
    assert asked.exit_code == 0, asked.output
    scored = semtoken("score", "-", stdin=asked.stdout)
    assert scored.exit_code == 0, scored.output
    lines = read_lines(scored.stdout)
    assert [line["response"] for line in lines] == [line["response"] for line in read_lines(asked.stdout)]
    known = [{**line, "answers": one["answers"]} for line, one in zip(lines, ASKED, strict=False)]
    judged = semtoken("bench", "judge", "-", stdin="".join(json.dumps(line) + "\n" for line in known))
    assert judged.exit_code == 0, judged.output
    expected = [int(is_correct(line["response"], q)) for line, q in zip(known, QUESTIONS, strict=False)]
    assert [line["correct"] for line in read_lines(judged.stdout)] == expected
