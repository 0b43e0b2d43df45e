"""Saved replies of our own servers: `semtoken check` takes the numbers of their block where that is all there is."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from semtoken.errors import InvalidInputError
from semtoken.replies.checking import rank_replies
from semtoken.support.almanac import load_questions
from tests.cli.run import invoke
from tests.rows import each
from tests.web.asking import blocks_in, post, user

QUESTIONS = [question.question for question in load_questions("dev")[:4]]


GONE = object()
"""In place of the value of a field that is missing."""


def replied(url: str, question: str, **body: Any) -> httpx.Response:
    return post(url, json={"messages": user(question), **body})


def saved(folder: Path, **replies: Any) -> str:
    folder.mkdir(exist_ok=True)
    for name, reply in replies.items():
        text = reply if isinstance(reply, str) else json.dumps(reply)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return str(folder)


@pytest.fixture(scope="module")
def replies(served: str) -> list[dict[str, Any]]:
    return [replied(served, question, semtoken={"parts": "phrase"}).json() for question in QUESTIONS]


@pytest.mark.parametrize("stream", [pytest.param(False, marks=pytest.mark.slow), True])
def test_numbers_are_those_of_the_server(served: str, almanac: Any, tmp_path: Path, stream: bool) -> None:
    sent = {str(i): replied(served, question, stream=stream).text for i, question in enumerate(QUESTIONS)}
    found = {one.id: one for one in rank_replies([saved(tmp_path, **sent)]).answers}
    assert len(found) == len(QUESTIONS) and all(one.from_block for one in found.values())
    for i, question in enumerate(load_questions("dev")[:4]):
        [expected] = almanac.generate(question.prompt(), 64, stop_at_newline=True)
        response = found[str(i)].response
        assert response.text.strip() == expected.text.strip()
        assert response.confidence == pytest.approx(expected.confidence, abs=1e-4)
        assert response.explanation == expected.explanation
        assert response.sequence_uncertainty_interval == pytest.approx(expected.sequence_uncertainty_interval, abs=1e-4)
        assert (response.n_tokens, response.truncated) == (expected.n_tokens, expected.truncated)
        assert found[str(i)].explanation == "Which words are in doubt was not saved with the reply."


def test_log_probabilities_come_before_the_block(served: str, tmp_path: Path) -> None:
    reply = replied(served, QUESTIONS[0], logprobs=True, top_logprobs=20).json()
    reply["choices"][0]["semtoken"]["sequence_uncertainty"] = 2.0  # not even looked at
    [one] = rank_replies([saved(tmp_path, a=reply)]).answers
    assert not one.from_block and one.response.tokens


def test_parts_of_the_block_are_the_doubts(replies: list[dict[str, Any]], tmp_path: Path) -> None:
    answers = rank_replies([saved(tmp_path, **{str(i): reply for i, reply in enumerate(replies)})]).answers
    blocks = blocks_in(replies)
    assert [one.response.confidence for one in answers] == sorted(block["confidence"] for block in blocks)
    worst = min((part["confidence"], part["text"]) for block in blocks for part in block["parts"])
    assert f"In doubt: “{worst[1]}”" in answers[0].explanation


@each(
    ("damage", "said"),
    [
        ({"version": 2}, "has the version 2, and this release reads 1"),
        ({"version": GONE}, "has the version None"),
        ({"confidence": GONE}, "damaged: it has no 'confidence'"),
        ({"sequence_uncertainty": 1.5}, "'sequence_uncertainty' must be a finite number from 0 to 1"),
        ({"sequence_uncertainty": "0.5"}, "damaged: 'sequence_uncertainty' must be a number"),
        ({"sequence_uncertainty_interval": [1.0, 1.0]}, "lies outside its interval"),
        ({"confidence": 0.123456, "interval": [0, 1]}, "does not belong to the sequence uncertainty"),
        ({"interval": [0.1]}, "damaged"),
        ({"explanation": [1]}, "damaged: 'explanation'"),
        ({"flags": [1]}, "damaged: 'flags' must be a list of mappings"),
        ({"parts": {"start": "0"}}, "damaged: 'start' must be a whole number"),
        ({"parts": {"text": GONE}}, "damaged: a part has no 'text'"),
        ({"confidence": GONE, "sequence_uncertainty": GONE, "reason": "No log-probabilities."}, "gave the answer no"),
    ],
)
def test_a_damaged_block_is_refused(
    replies: list[dict[str, Any]], tmp_path: Path, damage: dict[str, Any], said: str
) -> None:
    reply = copy.deepcopy(replies[0])
    block = reply["choices"][0]["semtoken"]
    if "parts" in damage:
        block, damage = block["parts"][0], damage["parts"]
    block |= damage
    for name in [name for name, value in block.items() if value is GONE]:
        del block[name]
    with pytest.raises(InvalidInputError, match=said):
        rank_replies([saved(tmp_path, a=reply)])


def test_a_running_block_is_no_final_one(served: str, tmp_path: Path) -> None:
    text = replied(served, QUESTIONS[0], stream=True).text
    running = text.replace('"final":true', '"final":false')
    assert running != text
    with pytest.raises(InvalidInputError, match="None of 1 replies can be scored"):
        rank_replies([saved(tmp_path, a=running)])


def test_the_command_says_whose_numbers_it_shows(replies: list[dict[str, Any]], tmp_path: Path) -> None:
    folder = saved(tmp_path / "replies", **{str(i): reply for i, reply in enumerate(replies)})

    def run(*words: object) -> Any:
        return invoke(["check", folder, *map(str, words)])

    for name in ("page.html", "ranked.csv", "ranked.jsonl", "ranked.md"):
        done = run("-o", tmp_path / name)
        assert done.exit_code == 0, done.output
        assert "4 of them hold no log-probabilities, but numbers that semtoken serve or proxy had put" in done.stderr
    rows = [json.loads(line) for line in (tmp_path / "ranked.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {row["numbers_from"] for row in rows} == {"the reply's semtoken block"}
    (tmp_path / "schema.json").write_text('{"type": "object"}', encoding="utf-8")
    done = run("--schema", tmp_path / "schema.json")
    assert done.exit_code == 1 and "no log-probabilities" in done.stderr
    done = run("--journal", tmp_path / "journal.db")
    assert done.exit_code == 1 and "cannot be kept in the journal" in done.stderr
