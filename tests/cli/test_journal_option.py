"""`score` and `check` with --journal: every answer has one entry, also where the command is given again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from semtoken.guarantees.journal.store import Journal
from tests.cli.run import invoke
from tests.json_lines import write_lines


def kept(database: Path) -> list[dict[str, Any]]:
    journal = Journal.open(str(database), create=False)
    rows = list(journal.entries())
    journal.close()
    return rows


def run(*arguments: str) -> None:
    done = invoke(list(arguments))
    assert done.exit_code == 0, done.output


def test_checked_replies_are_kept_once_and_without_texts_by_default(tmp_path: Path) -> None:
    replies, database, table = tmp_path / "replies.jsonl", tmp_path / "journal.db", tmp_path / "out.jsonl"
    logprob = {"token": "Lima", "logprob": -0.1, "top_logprobs": [{"token": "Lima", "logprob": -0.1}]}
    choice = {"index": 0, "message": {"content": "Lima"}, "logprobs": {"content": [logprob]}, "finish_reason": "stop"}
    write_lines(replies, ({"id": f"r{i}", "choices": [choice]} for i in range(3)))
    for _ in range(2):
        run("check", str(replies), "-o", str(table), "--journal", str(database))
    rows = kept(database)
    assert len(rows) == len(table.read_text().splitlines()) == 3
    assert all(row["source"] == "check" and row["answer"] is None and row["method"] == "top-k" for row in rows)


def test_checked_replies_are_kept_in_the_order_in_which_they_were_read(tmp_path: Path) -> None:
    """Not by rank: the newest entries would be the surest answers, and a distance found where there is none."""
    replies, database, table = tmp_path / "replies.jsonl", tmp_path / "journal.db", tmp_path / "out.jsonl"
    shares, lines = [-0.1, -3.0, -0.5, -2.0, -0.2, -1.0], []
    for i, share in enumerate(shares):
        logprob = {"token": "Lima", "logprob": share, "top_logprobs": [{"token": "Lima", "logprob": share}]}
        choice = {"index": 0, "message": {"content": "Lima"}, "logprobs": {"content": [logprob]}}
        lines.append(json.dumps({"id": f"r{i}", "choices": [choice | {"finish_reason": "stop"}]}))
    replies.write_text("\n".join(lines))
    run("check", str(replies), "-o", str(table), "--journal", str(database))
    ranked = [json.loads(line)["log_confidence"] for line in table.read_text().splitlines()]
    assert [row["log_confidence"] for row in kept(database)] == pytest.approx(shares)
    assert ranked == pytest.approx(sorted(shares))


def test_a_file_of_scored_answers_has_no_tokens_for_a_journal(tmp_path: Path) -> None:
    scored, database = tmp_path / "scored.jsonl", tmp_path / "journal.db"
    scored.write_text(json.dumps({"question": "Who?", "response": "Ann", "sequence_uncertainty": 0.5}))
    for more in ([], ["-o", str(tmp_path / "page.html")]):
        done = invoke(["check", str(scored), "--journal", str(database), *more])
        assert done.exit_code == 2 and "scored answers has none: give the saved replies themselves" in done.output
    assert not database.exists() and not (tmp_path / "page.html").exists()


def test_a_journal_of_the_settings_is_the_servers_alone(tmp_path: Path) -> None:
    """`check` records only where --journal is typed."""
    replies, database = tmp_path / "replies.jsonl", tmp_path / "journal.db"
    logprob = {"token": "Lima", "logprob": -0.1, "top_logprobs": [{"token": "Lima", "logprob": -0.1}]}
    choice = {"index": 0, "message": {"content": "Lima"}, "logprobs": {"content": [logprob]}, "finish_reason": "stop"}
    replies.write_text(json.dumps({"id": "r", "choices": [choice]}))
    run("check", str(replies), "--journal.url", str(database))
    assert not database.exists()
