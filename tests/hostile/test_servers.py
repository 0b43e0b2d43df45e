"""The campaigns against servers find what is planted."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.hostile import apis, serving, traffic, watch


def test_another_clients_bytes_are_found() -> None:
    plan = traffic.Plan(5)
    of = {how: next(n for n in range(500) if plan.how(n) == how) for how in ("bytes", "stream", "dies", "damaged")}
    number = of["bytes"]
    assert traffic.judge(plan, number, 200, plan.body(number), True) is None
    assert traffic.judge(plan, number, 200, plan.body(number)[:-1], True)
    assert traffic.judge(plan, number, 200, plan.body(number + 1), True)
    assert traffic.judge(plan, of["dies"], 200, plan.half(of["dies"], shown=False), False) is None
    assert traffic.judge(plan, of["dies"], 200, plan.half(of["dies"], shown=False), True)
    assert traffic.judge(plan, of["stream"], 200, b"".join(plan.events(of["stream"])), True)
    numbered = b'data: {"semtoken": {"sequence_uncertainty": 0.1, "final": true}}\n'
    assert traffic.judge(plan, of["damaged"], 200, numbered, True)


SERVER = "import os, signal, sys, time; print('on', flush=True); input(); {}; print('on', flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("pass", None),
        ("print('Traceback', file=sys.stderr, flush=True)", "a traceback in the log"),
        ("found = [open(os.devnull) for _ in range(9)]", "files open"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "it did not stop"),
    ],
    ids=["well", "traceback", "files", "stays"],
)
def test_how_a_server_is_left_is_found(code: str, fault: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PATIENCE", 1)
    monkeypatch.setattr(watch, "SETTLING", 0)
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", SERVER.format(code)], text=True, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        server = watch.WatchedServer("it", process, 2)
        print(file=process.stdin, flush=True)
        process.stdout.readline()
        found = server.stopped()
        process.kill()
    assert [fault in one for one in found] == [True] if fault else not found


def test_a_text_in_an_event_is_found() -> None:
    plan = traffic.Plan(5)
    told = {"gen_ai.response.id": "chat-3", "semtoken.sequence_uncertainty": 0.5, "semtoken.flags": ["masked", "top_k"]}
    assert traffic.event_fault(plan, {"attributes": told}) is None
    said = apis.text_of(plan.items(3))
    assert "quotes" in str(traffic.event_fault(plan, {"attributes": told | {"semtoken.model": said}}))
    assert "holds" in str(traffic.event_fault(plan, {"attributes": told | {"semtoken.reason": "It is so."}}))
    shown = '{"attributes": {"a": 1}}\n{"attributes": {"a": 2}}\n'
    assert [event["attributes"]["a"] for event in traffic.events_of(shown)] == [1, 2]


def answered(text: str, number: float, *best: float) -> serving.MarkedAnswer:
    items = [{"token": letter, "logprob": best[0], "best": [*best]} for letter in text]
    return serving.MarkedAnswer(200, [text], [number], [items])


def test_another_answer_among_others_is_found() -> None:
    asked = serving.Asked("/v1/completions", {}, None)
    alone = answered("abc", 0.5, -0.1, -3.0)
    assert serving.judge(asked, alone, answered("abc", 0.500001, -0.1, -3.0)) == (None, "")
    for other in (
        answered("abd", 0.5, -0.1, -3.0),
        answered("abc", 0.501, -0.1, -3.0),
        answered("ab", 0.5, -0.1, -3.0),
    ):
        assert serving.judge(asked, alone, other)[0] is not None
    assert "503" in str(serving.judge(asked, alone, serving.MarkedAnswer(503))[0])
    tied = answered("abc", 0.5, -0.7, -0.70001)
    assert serving.judge(asked, tied, answered("abd", 0.6, -0.7, -0.70001)) == (None, "tie")
    drawing = serving.Asked("/v1/completions", {"temperature": 1.0}, None)
    assert serving.judge(drawing, alone, answered("abd", 0.6, -0.1, -3.0)) == (None, "draw")


def test_requests_come_again_and_are_mixed() -> None:
    plan = serving.Plan(1)
    asked = [plan.asked(number) for number in range(200)]
    prompts = [str(one.body.get("prompt") or one.body["messages"]) for one in asked]
    assert len(set(prompts)) < 180 and max(map(len, prompts)) > 10 * min(map(len, prompts))
    assert any(one.leaves_after for one in asked) and any(one.draws for one in asked)
    assert asked[7] == plan.asked(7)
