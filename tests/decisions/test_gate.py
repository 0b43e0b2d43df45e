"""The gate for CI: `semtoken.toml`, exit statuses, and the example workflow, behind a model and behind another one."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from starlette.requests import Request
from starlette.responses import JSONResponse

from semtoken.decisions import Answer, ReadingOptions
from semtoken.decisions.question_files import read_questions
from semtoken.decisions.records import answer_values
from tests.cli.run import invoke_in
from tests.decisions.made_up import verdicts_in
from tests.decisions.servers import answering
from tests.json_lines import write_lines

EXAMPLE = Path(__file__).parents[2] / "examples" / "gate"


@contextmanager
def model(knows: bool, keys: list[str | None]) -> Iterator[str]:
    """A server that tells what the state says, or one that calls everything sure."""

    async def answer(request: Request) -> JSONResponse:
        keys.append(request.headers.get("authorization"))
        p = float((await request.json())["state"].split()[0])
        noul = min(max(p if knows else 0.9 + p / 10, 0.001), 0.999)
        return JSONResponse({"model": "m", "answers": {"may_run": {"type": "noul", "noul": noul}}, "usage": {}})

    with answering(answer, "/v1/systemone") as url:
        yield f"{url}/v1"


def semtoken(folder: Path, command: str, url: str | None = None) -> tuple[int, str, str]:
    environment = {**os.environ, "OPENAI_API_KEY": "secret", "NO_COLOR": "1"}
    environment.pop("OPENAI_BASE_URL", None)
    if url is not None:
        environment["OPENAI_BASE_URL"] = url
    words = [word.strip('"').replace("$OPENAI_BASE_URL", str(url)) for word in command.split()[1:]]  # as a shell does
    done = invoke_in(folder, words, environment)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example's folder with labeled calls, and the answers to others of the server that knows."""
    for name in ("semtoken.toml", "questions.yaml"):
        (tmp_path / name).write_text((EXAMPLE / name).read_text("utf-8"), "utf-8")
    [(name, question)] = read_questions(tmp_path / "questions.yaml").items()
    chance, rows = random.Random(1), []
    for i in range(500):
        p = min(max(round(chance.betavariate(0.6, 0.4), 6), 0.001), 0.999)
        answer = answer_values(Answer(question, (p, 1 - p)), ReadingOptions())
        rows.append({"state": f"{p} {i}", "labels": {name: chance.random() < p}, "answers": {name: answer}})
    write_lines(tmp_path / "answers.jsonl", rows[:320])
    write_lines(tmp_path / "others.jsonl", rows[320:])
    write_lines(tmp_path / "labeled.jsonl", ({"state": row["state"], "labels": row["labels"]} for row in rows[320:]))
    return tmp_path


def test_the_example_workflow_fails_when_the_model_is_exchanged(folder: Path) -> None:
    steps = yaml.safe_load((EXAMPLE / "workflow.yml").read_text("utf-8"))["jobs"]["audit"]["steps"]
    [step] = [step for step in steps if "semtoken audit" in step.get("run", "")]
    assert set(step["env"]) == {"OPENAI_BASE_URL", "OPENAI_API_KEY"}
    keys: list[str | None] = []
    with model(knows=True, keys=keys) as url:
        code, shown, said = semtoken(folder, "semtoken calibrate answers.jsonl -o may-run --require --json")
        assert code == 0, shown + said
        code, shown, said = semtoken(folder, step["run"], url)
        assert (code, verdicts_in(shown)["true"]) == (0, "holds"), shown + said
    assert set(keys) == {"Bearer secret"}
    with model(knows=False, keys=[]) as url:
        code, shown, said = semtoken(folder, step["run"], url)
    assert (code, verdicts_in(shown)["true"]) == (1, "does not hold"), shown + said
    settings = folder / "semtoken.toml"
    settings.write_text(settings.read_text("utf-8").replace("min_accepted = 0.05", "min_accepted = 0.95"), "utf-8")
    code, shown, _ = semtoken(folder, "semtoken audit others.jsonl --calibrator may-run")
    assert code == 1 and "fewer than the limit of 95%" in " ".join(shown.split())
    code, _, said = semtoken(folder, step["run"], url)  # nobody is there any more
    assert code == 2 and f"Sending the labeled items with the key to {url}." in said and "\nError: " in said, said


def test_what_is_required_and_missing_ends_with_1_and_writes_nothing(folder: Path) -> None:
    write_lines(folder / "few.jsonl", ({"answers": {"may_run": {"type": "noul", "noul": n / 100}}} for n in range(80)))
    write_lines(folder / "labels.jsonl", ({"labels": {"may_run": n % 2 == 0}} for n in range(80)))
    code, shown, said = semtoken(folder, "semtoken calibrate few.jsonl --labels labels.jsonl -o may-run --require")
    assert code == 1 and "Nothing was written" in said and not (folder / "may-run").exists(), shown + said
    code, shown, said = semtoken(folder, "semtoken calibrate few.jsonl --labels labels.jsonl -o may-run")
    assert code == 0 and (folder / "may-run").exists(), shown + said


def test_the_example_installs_nothing_unpinned_beside_its_key() -> None:
    text = (EXAMPLE / "workflow.yml").read_text("utf-8")
    (job,) = yaml.safe_load(text)["jobs"].values()
    installs = [step["run"] for step in job["steps"] if "pip install" in step.get("run", "")]
    assert installs and all("--require-hashes" in line for line in installs)
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]) for step in job["steps"] if "uses" in step)
