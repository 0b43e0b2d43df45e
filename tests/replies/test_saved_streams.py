"""Streams as people save them: without the lines between events, with pings, several in one file under one id."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from semtoken import score_reply
from semtoken.replies import ReplyStream
from semtoken.replies.checking import rank_replies
from semtoken.support.sse import EventReader
from tests.replies.made import chat_chunk, chat_reply
from tests.replies.test_ends_of_answers import item
from tests.rows import each

NUMBER = math.log(0.72)
PINGS = (
    'event: ping\ndata: {"type": "ping"}\n\n',
    'data: {"type": "ping", "cost": "0"}\n\n',
    "event: heartbeat\ndata: {}\n\n",
)


def chunks(first: str, second: str) -> list[dict[str, Any]]:
    """Every stream of such a server has the same id."""
    said = [chat_chunk(item(first, 0.8)), chat_chunk(item(second, 0.9)), chat_chunk(finish_reason="stop")]
    return [one | {"id": "c"} for one in said]


def events(*streams: list[dict[str, Any]], between: str = "\n\n") -> str:
    return "".join(
        "".join(f"data: {json.dumps(one)}{between}" for one in s) + f"data: [DONE]{between}" for s in streams
    )


def test_lines_of_a_client_without_blank_ones_between_are_events() -> None:
    for between in ("\n", "\r\n"):
        text = events(chunks("Os", "lo"), between=between)
        for said in (text, text.encode()):
            [found] = score_reply(said)
            assert found.text == "Oslo" and found.log_confidence == pytest.approx(NUMBER, abs=1e-6)
    named = text.replace("data: ", "event: message\ndata: ")
    assert score_reply(named)[0].log_confidence == pytest.approx(NUMBER, abs=1e-6)


def test_data_on_several_lines_stays_one_event() -> None:
    """As the standard has it: the lines of one value."""
    text = "".join(
        "".join(f"data: {line}\n" for line in json.dumps(one, indent=1).splitlines()) + "\n"
        for one in chunks("Os", "lo")
    )
    assert score_reply(text)[0].log_confidence == pytest.approx(NUMBER, abs=1e-6)


@each("ping", PINGS)
@each("place", [0, 1, 3])
def test_pings_say_nothing_wherever_they_come(ping: str, place: int) -> None:
    parts = events(chunks("Os", "lo")).split("\n\n")
    text = "\n\n".join([*parts[:place], ping.rstrip("\n"), *parts[place:]])
    assert score_reply(text)[0].log_confidence == pytest.approx(NUMBER, abs=1e-6)
    assert [event.is_ping for event in EventReader().feed(text)].index(True) == place


def test_pings_of_a_client_say_nothing() -> None:
    stream = ReplyStream()
    for chunk in ({"type": "ping"}, *chunks("Os", "lo"), {"type": "ping"}):
        stream.feed(chunk)
    assert score_reply(stream.finish())[0].log_confidence == pytest.approx(NUMBER, abs=1e-6)


@pytest.mark.parametrize("ending", ["sse", "jsonl"])
def test_several_streams_with_one_id_are_several_answers(tmp_path: Path, ending: str) -> None:
    streams = [chunks("Os", "lo"), chunks("Ber", "gen"), chunks("Os", "lo")]
    lines = "".join(json.dumps(one) + "\n" for stream in streams for one in stream)
    path = tmp_path / f"log.{ending}"
    path.write_text(events(*streams) if ending == "sse" else lines, encoding="utf-8")
    found = rank_replies([str(path)]).answers
    assert sorted(answer.text for answer in found) == ["Bergen", "Oslo", "Oslo"]
    assert all(answer.response.log_confidence == pytest.approx(NUMBER, abs=1e-6) for answer in found)


def test_a_stream_alone_in_its_file_has_the_name_of_the_file(tmp_path: Path) -> None:
    """As any other reply does that is alone in a file, so that a question finds it by that name."""
    lines = [json.dumps(one | {"id": "of-the-server"}) + "\n" for one in chunks("Os", "lo")]
    (tmp_path / "q7.jsonl").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "q8.json").write_text(json.dumps(chat_reply("Oslo", [item("Os", 0.8), item("lo", 0.9)])))
    asked = tmp_path / "asked.csv"
    asked.write_text("id,question\nq7,First?\nq8,Second?\n", encoding="utf-8")
    found = rank_replies([str(tmp_path / "q7.jsonl"), str(tmp_path / "q8.json")], questions=asked)
    assert {answer.id: answer.question for answer in found} == {"q7": "First?", "q8": "Second?"}
    (tmp_path / "q7.jsonl").write_text("".join(lines) + json.dumps(chat_reply("Oslo", [item("Os", 0.8)])))
    assert {one.where for one in rank_replies([str(tmp_path / "q7.jsonl")])} == {str(tmp_path / "q7.jsonl:1")}
