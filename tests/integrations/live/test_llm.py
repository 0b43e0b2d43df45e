"""The tool `llm` itself, with the plug-in that packaging/llm-semtoken registers."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llm
import pytest
from click.testing import CliRunner
from llm.cli import cli

from semtoken import ScoredModel
from semtoken.errors import InvalidInputError
from semtoken.support.almanac import Question


@pytest.fixture(autouse=True)
def own_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))


def test_the_log_has_the_score_of_stc_and_the_command_shows_it(
    stc: ScoredModel, questions: list[Question], record: Callable[[str, Any], None]
) -> None:
    runner = CliRunner()
    nothing = runner.invoke(cli, ["semtoken"])
    assert nothing.exit_code == 1 and "no answer of semtoken" in nothing.output
    [answer] = stc.generate([questions[0].prompt()], 24, stop_at_newline=True)
    asked = runner.invoke(cli, ["-m", "semtoken/almanac", questions[0].question, "-o", "max_tokens", "24"])
    assert asked.exit_code == 0, asked.output
    assert asked.output.strip() == answer.text.strip()
    [logged] = json.loads(runner.invoke(cli, ["logs", "--json"]).output)
    block = (
        json.loads(logged["response_json"])["semtoken"]
        if isinstance(logged["response_json"], str)
        else logged["response_json"]["semtoken"]
    )
    assert block["sequence_uncertainty"] == pytest.approx(answer.sequence_uncertainty, abs=1e-5)
    shown = runner.invoke(cli, ["semtoken"])
    assert shown.output.startswith(f"{answer.text.strip()}\nconfidence {1 - answer.sequence_uncertainty:.2f}: ")
    more = runner.invoke(cli, ["-c", "And of Peru?"])
    assert more.exit_code == 1 and "leave out -c" in more.output
    kept = {name: logged[name] for name in ("model", "prompt", "response", "response_json")}
    record("llm", {"question": questions[0].id, "version": version("llm"), "logged": kept, "shown": shown.output})


def test_in_python(stc: ScoredModel, questions: list[Question]) -> None:
    response = llm.get_model("semtoken/almanac").prompt(questions[1].question)
    response.text()
    [answer] = stc.generate([questions[1].prompt()], 24, stop_at_newline=True)
    assert response.response_json["semtoken"]["sequence_uncertainty"] == pytest.approx(
        answer.sequence_uncertainty, abs=1e-5
    )
    conversation = llm.get_model("semtoken/almanac").conversation()
    conversation.prompt(questions[1].question).text()
    with pytest.raises(InvalidInputError, match="single questions"):
        conversation.prompt("And of Peru?").text()
