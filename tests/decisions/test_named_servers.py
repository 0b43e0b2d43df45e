"""Texts and keys go only to a server that the command, or the settings of this folder, name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from tests.cli.run import invoke
from tests.decisions.servers import answering
from tests.json_lines import read_lines, write_lines

Runs = Callable[..., tuple[int, str]]
Seen = list[tuple[str | None, bytes]]


@pytest.fixture
def server() -> Iterator[tuple[str, Seen]]:
    """The address of a server that answers yes, and the keys and bodies that it was sent."""
    seen: Seen = []

    async def answer(request: Request) -> JSONResponse:
        seen.append((request.headers.get("authorization"), await request.body()))
        return JSONResponse({"model": "m", "answers": {"late": {"type": "noul", "noul": 0.75}}, "usage": {}})

    with answering(answer, "/v1/systemone") as url:
        yield f"{url}/v1", seen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "questions.yaml").write_text('late: {type: predicate, instructions: "Is it late?"}\n', "utf-8")
    write_lines(tmp_path / "items.jsonl", [{"state": "private"}])
    return tmp_path


@pytest.fixture
def semtoken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Runs a command in a folder, with a key and some variables; returns its exit status and what it said."""

    def run(*words: str, within: Path = folder, **variables: str) -> tuple[int, str]:
        with monkeypatch.context() as patched:
            patched.chdir(within)
            for name in ("OPENAI_BASE_URL", "SEMTOKEN_JOURNAL_URL"):
                patched.delenv(name, raising=False)
            for name, value in ({"OPENAI_API_KEY": "sk-secret"} | variables).items():
                patched.setenv(name, value)
            done = invoke(list(words))
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert "sk-secret" not in done.output
        return done.exit_code, " ".join(done.stderr.split())

    return run


RUN = ("decide", "questions.yaml", "items.jsonl", "-o", "answers.jsonl")


def test_a_variable_of_another_tool_names_no_server(folder: Path, server: tuple[str, Seen], semtoken: Runs) -> None:
    url, seen = server
    code, said = semtoken(*RUN, OPENAI_BASE_URL=url)
    assert code == 0 and not seen, said
    [answered] = read_lines(folder / "answers.jsonl")
    assert answered["answers"]["late"]["probabilities"] != [0.75, 0.25]  # the built-in model's
    code, said = semtoken("doctor", "--model", "almanac", OPENAI_BASE_URL=url)
    assert code == 0 and not seen, said


def test_a_server_that_is_typed_gets_the_key_and_is_named_first(
    folder: Path, server: tuple[str, Seen], semtoken: Runs
) -> None:
    url, seen = server
    code, said = semtoken(*RUN, "--base-url", url)
    assert code == 0 and said.startswith(f"Sending the items with the key to {url}."), said
    assert {key for key, _ in seen} == {"Bearer sk-secret"} and b"private" in seen[-1][1]


def test_settings_of_this_folder_take_texts_but_no_key(folder: Path, server: tuple[str, Seen], semtoken: Runs) -> None:
    url, seen = server
    (folder / "semtoken.toml").write_text(f'[endpoint]\nbase_url = "{url}"\n', "utf-8")
    code, said = semtoken(*RUN)
    assert code == 0 and f"Sending the items to {url}. No key goes to a server that only" in said, said
    assert seen and {key for key, _ in seen} == {None}
    (folder / "answers.jsonl").unlink()
    code, said = semtoken(*RUN, "--config", "semtoken.toml")
    assert code == 0 and seen[-1][0] == "Bearer sk-secret", said


def test_settings_of_another_folder_send_nothing(folder: Path, server: tuple[str, Seen], semtoken: Runs) -> None:
    url, seen = server
    (folder / "semtoken.toml").write_text(f'[endpoint]\nbase_url = "{url}"\n', "utf-8")
    elsewhere = folder / "work"
    elsewhere.mkdir()
    code, said = semtoken("decide", "../questions.yaml", "../items.jsonl", "-o", "a.jsonl", within=elsewhere)
    assert code == 2 and "was found above this folder: nothing is sent" in said and not seen
    code, said = semtoken("proxy", "--port", "0", "--calibrator", "../fitted", within=elsewhere)
    assert code == 2 and "was found above this folder: nothing is sent" in said and "--config" in said


def test_a_variable_names_no_journal_of_a_command(folder: Path, semtoken: Runs) -> None:
    journal, replies = folder / "servers.db", str(Path(__file__).parents[2] / "examples" / "replies")
    code, said = semtoken("check", replies, SEMTOKEN_JOURNAL_URL="servers.db")
    assert code == 0 and not journal.exists(), said
    code, said = semtoken("check", replies, "--journal", "servers.db")
    assert code == 0 and journal.exists(), said
    code, said = semtoken("journal", "show", SEMTOKEN_JOURNAL_URL="servers.db")
    assert code == 0, said


def test_an_audit_that_was_stopped_goes_on(folder: Path, semtoken: Runs) -> None:
    """The server is lost after some answers and comes back: it is asked only what has no answer yet."""
    asked: list[str] = []
    lost_after = [1000]

    async def answer(request: Request) -> Response:
        body = await request.body()
        if len(asked) == lost_after[0]:
            return HTMLResponse("<html>Bad gateway</html>", 502)
        asked.append(json.loads(body)["state"])
        return JSONResponse({"model": "m", "answers": {"late": {"type": "noul", "noul": 0.75}}, "usage": {}})

    states = [f"item {i}" for i in range(40)]
    labels = [{"state": state, "labels": {"late": bool(i % 2)}} for i, state in enumerate(states)]
    write_lines(folder / "items.jsonl", labels)
    with answering(answer, "/v1/systemone") as url:
        there = ("--base-url", f"{url}/v1/systemone")
        assert semtoken("decide", "questions.yaml", "items.jsonl", "-o", "answers.jsonl", *there)[0] == 0
        assert semtoken("calibrate", "answers.jsonl", "-o", "made")[0] == 0
        asked.clear()
        lost_after[0] = 5
        before = set(folder.iterdir())
        code, said = semtoken("audit", "items.jsonl", "--calibrator", "made", *there)
        assert code == 2 and "HTTP 502: a web page" in said
        [kept] = set(folder.iterdir()) - before
        written = kept.read_text("utf-8").count("\n")
        assert 0 < written <= 5
        lost_after[0] = 1000
        asked.clear()
        code, said = semtoken("audit", "items.jsonl", "--calibrator", "made", *there)
        assert code != 2, said
        assert sorted(asked) == sorted(states[written:])
    assert set(folder.iterdir()) == before
