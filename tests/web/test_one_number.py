"""One answer has one confidence, whichever way it comes in: the replies of examples/replies, and the proxy."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import semtoken as st
from semtoken.errors import CalibratorMismatchError
from semtoken.guarantees import Calibrator
from semtoken.replies import ReplyStream, read_reply
from semtoken.replies.checking import rank_replies
from tests.cli.run import invoke
from tests.rows import each
from tests.web.asking import block_of, post
from tests.web.conftest import in_front
from tests.web.servers import response

FOLDER = Path(__file__).parents[2] / "examples" / "replies"
LINES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
CLOSE = 1e-12
Line = Mapping[str, Any]
Number = tuple[float, tuple[float, float], str, str]
"""Confidence, interval, explanation and method."""


def of_answer(answer: st.ScoredAnswer) -> Number:
    return answer.confidence, answer.confidence_interval, answer.explanation, answer.confidence_method


def user(question: str, content: Any = None) -> list[dict[str, Any]]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content or question}]


REQUESTS: Mapping[str, Callable[[str], dict[str, Any]]] = {
    "chat": lambda q: {"messages": user(q)},
    "chat with parts": lambda q: {"messages": user(q, [{"type": "text", "text": q}])},
    "Responses": lambda q: {"input": q, "instructions": "Be brief."},
    "Responses with items": lambda q: {"input": user(q, [{"type": "input_text", "text": q}])},
    "Gemini": lambda q: {"contents": [{"role": "user", "parts": [{"text": q}]}]},
    "Gemini's client": lambda q: {"model": "m", "contents": q},
    "Bedrock": lambda q: {"recordId": "1", "modelInput": {"messages": user(q, [{"text": q}])}},
    "MLflow": lambda q: {"inputs": {"messages": user(q)}},
    "a gateway's log": lambda q: {"request_body": {"messages": user(q)}},
    "a gateway's log as text": lambda q: {"request_body": json.dumps({"messages": user(q)})},
    "a batch file": lambda q: {"custom_id": "1", "body": {"messages": user(q)}},
    "a trace": lambda q: {"inputs": {"messages": [[{"type": "human", "content": q}]]}},
    "completions": lambda q: {"prompt": f"Question:\nWho?\nAnswer:\nMe.\n\nQuestion:\n{q}\nAnswer:\n"},
}


def by_request(made: Callable[[str], dict[str, Any]], line: Line, tmp_path: Path) -> Number:
    return of_answer(st.score_reply(line["reply"], request=made(line["question"]))[0])


def by_saved_line(made: Callable[[str], dict[str, Any]], line: Line, tmp_path: Path) -> Number:
    return of_answer(st.score_reply({**made(line["question"]), "response": line["reply"]})[0])


def ranked(folder: Path, **files: Any) -> Number:
    """The number of `check` for saved files, of which one may have the questions of the replies."""
    for name, value in files.items():
        (folder / f"{name.replace('_', '.')}.json").write_text(json.dumps(value) + "\n", encoding="utf-8")
    asked = folder / "questions.json"
    [found] = rank_replies([str(folder / "a.json")], questions=asked if asked.exists() else None).answers
    return of_answer(found.response)


def by_check(line: Line, tmp_path: Path) -> Number:
    return ranked(tmp_path, a=line)


def by_questions_file(line: Line, tmp_path: Path) -> Number:
    return ranked(tmp_path, a=line["reply"], questions={"messages": user(line["question"])})


def by_request_beside(line: Line, tmp_path: Path) -> Number:
    return ranked(tmp_path, a=line["reply"], a_request={"messages": user(line["question"])})


def by_command(line: Line, tmp_path: Path) -> Number:
    (tmp_path / "line.json").write_text(json.dumps(line), encoding="utf-8")
    done = invoke(["check", str(tmp_path / "line.json"), "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    return said["confidence"], tuple(said["confidence_interval"]), said["explanation"], said["confidence_method"]


def by_stream(line: Line, tmp_path: Path) -> Number:
    stream = ReplyStream(request={"messages": user(line["question"])})
    [choice] = line["reply"]["choices"]
    delta = {**choice, "delta": choice["message"]}
    del delta["message"]
    stream.feed({**line["reply"], "object": "chat.completion.chunk", "choices": [delta]})
    return of_answer(st.score_reply(stream.finish())[0])


def by_proxy(line: Line, tmp_path: Path) -> Number:
    block = proxied(line)
    return block["confidence"], tuple(block["interval"]), block["explanation"], block["confidence_method"]


def journalled(tmp_path: Path) -> dict[str, float]:
    """The confidence of each question's answer that `semtoken check` puts into a journal."""
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy, which the journal needs, is missing")
    database, table = tmp_path / "journal.db", tmp_path / "table.csv"
    command = ["check", str(FOLDER), "-o", str(table), "--journal", f"sqlite:///{database}", "--journal.texts=true"]
    done = invoke(command)
    assert done.exit_code == 0, done.output
    with sqlite3.connect(database) as connection:
        return dict(connection.execute("SELECT question, confidence FROM entries").fetchall())


def proxied(line: Line) -> dict[str, Any]:
    """The block that the proxy adds to a reply."""
    body = json.dumps(line["reply"]).encode()
    with in_front(response(body)) as (url, _):
        asked = {"model": "m", "messages": user(line["question"]), "logprobs": True, "top_logprobs": 5}
        return block_of(post(url, json=asked))


WAYS: Mapping[str, Callable[[Line, Path], Number]] = {
    "the line": lambda line, _: of_answer(st.score_reply(line)[0]),
    "the line as text": lambda line, _: of_answer(st.score_reply(json.dumps(line))[0]),
    "what was read of it": lambda line, _: of_answer(st.score_reply(read_reply(line))[0]),
    "a stream": by_stream,
    "check": by_check,
    "check with a file of questions": by_questions_file,
    "check with the request beside": by_request_beside,
    "check --json": by_command,
    "the proxy": by_proxy,
    **{f"request: {name}": partial(by_request, made) for name, made in REQUESTS.items()},
    **{f"saved: {name}": partial(by_saved_line, made) for name, made in REQUESTS.items()},
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_has_the_number_of_the_question_as_an_argument(way: str, tmp_path: Path) -> None:
    """Each way with one of the lines, which come in turn."""
    for name, line in list(LINES.items())[list(WAYS).index(way) % 6 :: 6]:
        [scored] = st.score_reply(line["reply"], question=line["question"])
        (tmp_path / name).mkdir()
        confidence, interval, *said = WAYS[way](line, tmp_path / name)
        assert said == [scored.explanation, scored.confidence_method]
        assert confidence == pytest.approx(scored.confidence, rel=CLOSE)
        assert interval == pytest.approx(scored.confidence_interval, rel=CLOSE)
        assert scored.question == line["question"] and scored.facts()["question_known"]


def test_the_journal_keeps_the_same_number(tmp_path: Path) -> None:
    expected = {line["question"]: st.score_reply(line)[0].confidence for line in LINES.values()}
    assert journalled(tmp_path) == pytest.approx(expected, rel=CLOSE)


@each("name", LINES)
def test_without_the_question_the_answer_says_so(name: str) -> None:
    with_it, without = st.score_reply(LINES[name])[0], st.score_reply(LINES[name]["reply"])[0]
    assert without.question is None and without.facts()["question_known"] is False
    assert without.to_dict()["question_known"] is False
    assert without.explanation.endswith("What was asked is not known.")
    assert without.signature != with_it.signature and without.rules == with_it.rules == with_it.signature
    assert with_it.confidence != without.confidence


def test_a_calibrator_of_the_one_kind_refuses_the_other() -> None:
    """Twelve times six answers are enough to fit one; which are right does not matter here."""
    known = [st.score_reply(line)[0] for line in LINES.values()]
    unknown = [st.score_reply(line["reply"])[0] for line in LINES.values()]
    right = [True, False] * (len(LINES) // 2)
    of_known, of_unknown, of_product = (
        Calibrator.fit(answers * 12, right * 12, prompts=list(range(12 * len(LINES))), score=by)
        for answers, by in ((known, None), (unknown, None), (known, "stc"))
    )
    assert of_known.predict_proba(known[0]) > 0 and of_unknown.predict_proba(unknown[0]) > 0
    for calibrator, answer in ((of_known, unknown[0]), (of_unknown, known[0])):
        with pytest.raises(CalibratorMismatchError, match="question:unknown"):
            calibrator.predict_proba(answer)
    assert of_product.predict_proba(known[0]) == of_product.predict_proba(unknown[0])  # the product reads no question
