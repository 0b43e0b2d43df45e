"""The LLM judge against a real server that fails, and kills for real."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semtoken.bench.judges import AnswerToJudge, Verdict
from semtoken.bench.judges.llm import GIVE_UP_AFTER, LLMJudge, Usage, user_message, verdict_of
from semtoken.errors import BackendError, InvalidInputError
from semtoken.support.almanac import Question
from tests.bench.unreliable import KEY, Unreliable, completion, running
from tests.json_lines import read_lines, write_lines
from tests.rows import each

SYSTEM = """# Task
Evaluate whether the proposed answer to the question is correct based on real-world factual knowledge. Reference answers are provided to assist in your evaluation.

# Output
Respond strictly with a single token:
- `True' if the proposed answer is correct.
- `False' if the proposed answer is incorrect or only partially correct."""  # noqa: E501
USER = """Question:
who is it

Reference Answer(s):
Ann
Anna

Proposed Answer:
Bob

True/False:"""


@pytest.fixture
def server() -> Iterator[Unreliable]:
    with running(Unreliable()) as server:
        yield server


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path / "user"))


def items(count: int) -> list[AnswerToJudge]:
    """Right, wrong, odd and empty answers in turn."""
    answers = ("Ann {}", "Bob", "odd {}", "")
    return [
        AnswerToJudge(Question(str(i), f"who is number {i}", (f"Ann {i}", "Anna")), answers[i % 4].format(i))
        for i in range(count)
    ]


def expected(count: int) -> list[float]:
    return [(1.0, 0.0, math.nan, 0.0)[i % 4] for i in range(count)]


def judge(server: Unreliable, cache: Path, *, model: str = "judge-1", **options: Any) -> LLMJudge:
    return LLMJudge(model=model, base_url=server.url, key_env="MY_KEY", cache=cache, **options)


def correct(verdicts: list[Verdict]) -> list[Any]:
    return [pytest.approx(verdict.correct, nan_ok=True) for verdict in verdicts]


def test_every_verdict_arrives_and_a_second_run_asks_nothing(server: Unreliable, tmp_path: Path) -> None:
    one = judge(server, tmp_path, concurrency=16)
    seen: list[int] = []
    verdicts = one.judge(items(60), seen.append)
    assert correct(verdicts) == expected(60)
    assert [v.reply for v in verdicts[:3]] == ["`True'", " False.", "I would say that it is True."]
    assert len(server.bodies) > 80  # one in three failed, in three ways
    assert seen[0] == 0 and seen[-1] == 60 and seen == sorted(seen)
    assert one.spent == one.relied_on == Usage(60, 6000, 3600, 120)

    count = len(server.bodies)
    again = judge(server, tmp_path)
    repeated = again.judge(items(60))
    assert correct(repeated) == expected(60) and [v.reply for v in repeated] == [v.reply for v in verdicts]
    assert len(server.bodies) == count
    assert again.spent == Usage() and again.relied_on == one.spent


def test_the_request_is_the_papers(server: Unreliable, tmp_path: Path) -> None:
    server.fail_every = 0
    judge(server, tmp_path).judge([AnswerToJudge(Question("1", "who is it", ("Ann", "Anna")), " Bob\n")])
    [body] = server.bodies
    assert body == {
        "model": "judge-1",
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": USER}],
        "temperature": 0.0,
        "max_tokens": 16,
    }
    assert len(SYSTEM) == 335 and server.keys == {f"Bearer {KEY}"}


def test_no_more_requests_at_a_time_than_allowed(server: Unreliable, tmp_path: Path) -> None:
    server.delay, server.fail_every = 0.02, 0
    judge(server, tmp_path, concurrency=3).judge(items(20))
    assert server.most_under_way == 3


def test_no_more_requests_a_minute_than_allowed_and_retries_count(server: Unreliable, tmp_path: Path) -> None:
    start = time.monotonic()
    judge(server, tmp_path, concurrency=16, requests_per_minute=1200).judge(items(8))
    assert time.monotonic() - start >= (len(server.bodies) - 1) * 0.05 * 0.95
    assert len(server.bodies) > 8


def test_what_is_asked_decides_what_is_asked_again(server: Unreliable, tmp_path: Path) -> None:
    server.fail_every = 0
    same = items(4) + items(4)
    assert correct(judge(server, tmp_path).judge(same)) == expected(8)
    assert len(server.bodies) == 4
    others = [
        judge(server, tmp_path, model="other"),
        judge(server, tmp_path, temperature=None),
        judge(server, tmp_path, extra={"seed": 1}),
    ]
    for i, other in enumerate(others, 2):
        other.judge(items(4))
        assert len(server.bodies) == 4 * i
    assert "temperature" not in server.bodies[-5] and server.bodies[-1]["seed"] == 1
    assert len({json.dumps(dict(one.settings), sort_keys=True) for one in [judge(server, tmp_path), *others]}) == 4


def test_one_answer_that_always_fails_loses_no_other(server: Unreliable, tmp_path: Path) -> None:
    server.fail_every, server.poisoned = 0, "number 7\n"
    with pytest.raises(BackendError, match=r"poisoned.*19 of 20 replies came.*asks for the rest"):
        judge(server, tmp_path, max_retries=1).judge(items(20))
    assert len(server.answered) == 19
    server.poisoned = ""
    one = judge(server, tmp_path)
    assert correct(one.judge(items(20))) == expected(20)
    assert one.spent.replies == 1 and len(server.answered) == 20


def test_a_dead_server_is_given_up(server: Unreliable, tmp_path: Path) -> None:
    server.refuse = (503, {"error": {"message": "down"}})
    with pytest.raises(BackendError, match="down"):
        judge(server, tmp_path, max_retries=1, concurrency=2).judge(items(100))
    assert len(server.bodies) <= 2 * (GIVE_UP_AFTER + 1)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refused_key_stops_at_once_and_is_not_shown(server: Unreliable, tmp_path: Path, status: int) -> None:
    server.refuse = (status, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
    with pytest.raises(BackendError, match=r"Incorrect API key provided: \[key\]") as caught:
        judge(server, tmp_path, concurrency=2).judge(items(100))
    assert len(server.bodies) <= 2
    assert KEY not in str(caught.value)


def test_the_key_is_in_no_file(server: Unreliable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.fail_every = 0
    monkeypatch.setattr("tests.bench.unreliable.verdict", lambda message: f"your key is {KEY}")
    one = judge(server, tmp_path / "cache")
    [verdict] = one.judge(items(1))
    assert verdict.reply == "your key is [key]" and math.isnan(verdict.correct)
    assert server.keys == {f"Bearer {KEY}"}
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "cache.db" for path in written)
    for path in written:
        assert KEY.encode() not in path.read_bytes()
    assert KEY not in repr(one) + json.dumps(dict(one.settings))


def test_content_filters_give_no_verdict_and_are_not_asked_again(server: Unreliable, tmp_path: Path) -> None:
    server.refuse = (400, {"error": {"message": "filtered", "code": "content_filter"}})
    for _ in range(2):
        [verdict] = judge(server, tmp_path).judge(items(1))
        assert math.isnan(verdict.correct) and verdict.reply == ""
    assert len(server.bodies) == 1
    server.refuse = (400, {"error": {"message": "no such model", "code": "model_not_found"}})
    with pytest.raises(BackendError, match="no such model") as caught:
        judge(server, tmp_path, model="other").judge(items(1))
    assert "model_not_found" not in str(caught.value)  # the server's reason, not its reply


@pytest.mark.parametrize("body", [{"error": {"message": "upstream"}}, {**completion("x", "m"), "choices": []}])
def test_a_reply_without_an_answer_is_a_failure(server: Unreliable, tmp_path: Path, body: dict[str, Any]) -> None:
    server.refuse = (200, body)
    with pytest.raises(BackendError, match="A reply without an answer came"):
        judge(server, tmp_path).judge(items(1))
    server.refuse = None
    assert correct(judge(server, tmp_path).judge(items(1))) == [1.0]


def test_replies_without_text_or_usage_are_no_verdict(server: Unreliable, tmp_path: Path) -> None:
    body = completion("", "m")
    del body["usage"]
    body["choices"][0]["message"]["content"] = None
    server.refuse = (200, body)
    one = judge(server, tmp_path)
    [verdict] = one.judge(items(1))
    assert math.isnan(verdict.correct) and one.spent == Usage(replies=1)


def test_it_works_where_an_event_loop_runs(server: Unreliable, tmp_path: Path) -> None:
    async def in_a_notebook() -> list[Verdict]:
        return judge(server, tmp_path).judge(items(4))

    assert correct(asyncio.run(in_a_notebook())) == expected(4)


def test_openai_needs_a_key_but_replies_on_disk_do_not(server: Unreliable, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="needs a key: put it into the environment variable OPENAI_API_KEY"):
        LLMJudge(cache=tmp_path).judge(items(1))
    local = LLMJudge(model="judge-1", base_url=server.url, cache=tmp_path)
    assert correct(local.judge(items(4))) == expected(4)
    assert server.keys == {None}


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/v1", "http://me:pass@host/v1", "https://host/v1?key=abc"])
def test_addresses_that_cannot_be_or_hold_secrets_are_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="address of the endpoint") as caught:
        _ = LLMJudge(base_url=url).url
    assert not {"pass@", "abc"} & set(str(caught.value).split())


def test_the_environment_may_name_the_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert LLMJudge().url == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1/")
    assert LLMJudge().url == "http://localhost:1/v1"
    assert LLMJudge().folder == tmp_path / "user" / "verdicts"


@each(
    ("reply", "value"),
    [
        *((reply, 1.0) for reply in ("True", " true\n", "`True'", '"TRUE".', "'True',")),
        *((reply, 0.0) for reply in ("False", "false.", "`False'")),
        *((reply, math.nan) for reply in ("", "Yes", "True or False", "**True**", "Tr ue", "1", "True/False: True")),
    ],
)
def test_only_true_and_false_are_verdicts(reply: str, value: float) -> None:
    assert verdict_of(reply) == pytest.approx(value, nan_ok=True)


def test_texts_with_braces_go_through_unchanged() -> None:
    item = AnswerToJudge(Question("1", "{answer} {0}", ("{question}",)), "{references}")
    assert "{answer} {0}" in user_message(item) and "\n{question}\n" in user_message(item)


def test_a_damaged_or_pickled_folder_is_told(server: Unreliable, tmp_path: Path) -> None:
    server.fail_every = 0
    judge(server, tmp_path / "a").judge(items(1))
    with sqlite3.connect(tmp_path / "a" / "cache.db") as database:
        database.execute("UPDATE Cache SET mode = 4")  # what diskcache would unpickle
    with pytest.raises(InvalidInputError, match="holds a pickled entry"):
        judge(server, tmp_path / "a").judge(items(1))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "cache.db").write_bytes(b"no database" * 1000)
    with pytest.raises(InvalidInputError, match=r"folder of replies .*b cannot be used"):
        judge(server, tmp_path / "b").judge(items(1))
    (tmp_path / "c").write_text("a file")
    with pytest.raises(InvalidInputError, match=r"folder of replies .*c cannot be used"):
        judge(server, tmp_path / "c").judge(items(1))


def command(server: Unreliable, folder: Path) -> list[str]:
    """`semtoken bench judge` on a file of answers in a folder."""
    settings = {"kind": "llm", "model": "judge-1", "base_url": server.url, "key_env": "MY_KEY"}
    judge = json.dumps(settings | {"cache": str(folder / "cache"), "concurrency": 2})
    # A shell starts background jobs with SIGINT ignored, and children inherit that.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = (sys.executable, "-c", f"{heeding}; from semtoken.cli import main; main()")
    return [*program, "bench", "judge", str(folder / "answers.jsonl"), "-j", judge]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_stopped_run_keeps_what_came_and_asks_only_for_the_rest(
    server: Unreliable, tmp_path: Path, stop: signal.Signals
) -> None:
    count, concurrency = 60, 2
    server.delay, server.fail_every = 0.02, 0
    write_lines(
        tmp_path / "answers.jsonl",
        (
            {"id": i.question.id, "question": i.question.question, "answers": i.question.answers, "answer": i.answer}
            for i in items(count)
        ),
    )
    target = tmp_path / "answers.judged.jsonl"
    started = subprocess.Popen(command(server, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(server.answered) < 20:
        assert started.poll() is None, started.communicate()
        time.sleep(0.005)
    started.send_signal(stop)
    assert started.wait(60) == (130 if stop is signal.SIGINT else -stop)
    assert "Traceback" not in started.communicate()[1]
    assert not target.exists()
    time.sleep(0.1)  # requests that were under way end
    before = len(server.answered)
    assert before < count
    done = subprocess.run(command(server, tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert count - before <= len(server.answered) - before <= count - before + concurrency
    assert set(server.answered) == {user_message(item) for item in items(count)}
    assert [w["llm"] for w in read_lines(target)] == [None if math.isnan(e) else int(e) for e in expected(count)]
    for text in (done.stdout, done.stderr, target.read_text()):
        assert KEY not in text
    assert "15" in done.stdout  # odd answers are counted
