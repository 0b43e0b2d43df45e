"""The models and the command of llm, and the tools of MCP, where neither is installed, on what their live tests saw."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import pytest

from semtoken import ScoredModel
from semtoken.core.results.confidence import RANKS
from semtoken.errors import InvalidInputError
from semtoken.support.checkpoints.sources import CATALOG
from tests.integrations.recordings import recorded
from tests.stand_ins import CLOSE, QUESTIONS, Fields, imported


class CommandLine:
    """The listing of llm's log, which keeps how it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.said = ""

    def main(self, words: list[str], standalone_mode: bool) -> None:
        self.asked.append((words, standalone_mode))
        if not self.said:
            raise click.ClickException("there is no log")
        print(self.said)


@pytest.fixture(scope="module")
def llm() -> Iterator[ModuleType]:
    names = {"Model": object, "Options": object, "hookimpl": lambda function: function}
    with imported("semtoken.integrations.llm", llm=names, llm__cli={"cli": CommandLine()}) as module:
        yield module


def test_llm_shows_the_last_answer_of_its_log_as_it_did(llm: ModuleType) -> None:
    run = recorded("llm")
    said: list[Any] = []
    group = click.Group()
    llm.register_commands(group)
    [name] = group.commands
    listing = sys.modules["llm.cli"].cli
    kept = run["logged"] | {"response_json": json.dumps(run["logged"]["response_json"])}
    other = {"response_json": None, "response": "of another model"}
    odd = [other | {"response_json": one} for one in ({"semtoken": 1}, {"semtoken": None}, "[]", {})]
    for rows in ([run["logged"]], [other, *odd, other | {"response_json": {"semtoken": {}}}, kept, other]):
        listing.said = json.dumps(rows)
        assert llm.last_answer() + "\n" == run["shown"]
    assert listing.asked == [(["logs", "list", "--json", "-n", "50"], False)] * 2
    listing.said = ""
    with pytest.raises(click.ClickException, match="llm -m semtoken/almanac 'a question'"):
        group.main([name], standalone_mode=False)
    llm.register_models(said.append)
    names = [one.model_id for one in said]
    assert name == "semtoken" and names[0] == "semtoken/almanac"
    assert sorted(names) == sorted({f"semtoken/{one}" for one in (*CATALOG, "almanac")})


def test_llm_logs_the_score_of_an_answer(llm: ModuleType, almanac: ScoredModel) -> None:
    run = recorded("llm")
    model, options = llm.SemtokenModel("almanac"), llm.SemtokenModel.Options()
    assert (options.max_tokens, options.preset, options.equality, model.can_stream) == (256, "default", None, False)
    loaded: list[Any] = []

    def load(name: str, **given: Any) -> ScoredModel:
        loaded.append((name, given))
        return almanac

    def said(system: str, question: str, **given: Any) -> tuple[str, Any]:
        messages = [Fields(role="system"), Fields(role="user")]
        prompt = Fields(
            prompt=question, system=system, messages=messages, options=Fields(**vars(llm.SemtokenModel.Options) | given)
        )
        response = Fields()
        with patch.object(ScoredModel, "from_pretrained", load), patch.object(llm, "quiet_libraries"):
            [text] = model.execute(prompt, False, response, None)
        return text, response.response_json["semtoken"]

    question = QUESTIONS[run["question"]]
    logged = run["logged"]["response_json"]["semtoken"]
    text, block = said("", question.question)
    assert text == run["logged"]["response"]
    assert block.pop("tokens") == [
        {"text": one["text"], "probability": pytest.approx(one["probability"], abs=CLOSE)} for one in logged["tokens"]
    ]
    for name, value in block.items():
        assert value == (logged[name] if isinstance(value, str | bool) else pytest.approx(logged[name], abs=CLOSE))
    [expected] = almanac.generate([question.prompt().replace(question.question, f"Hello.\n\n{question.question}")], 1)
    _, short = said("Hello.", question.question, max_tokens=1, equality="exact")
    assert short["confidence"] == pytest.approx(expected.confidence, abs=CLOSE) and len(short["tokens"]) == 1
    assert loaded == [("almanac", {"preset": "default", "equality": one}) for one in (None, "exact")]
    with pytest.raises(InvalidInputError, match="leave out -c"):
        list(model.execute(Fields(messages=[Fields(role="assistant")]), False, None, None))


class Tools:
    """A server that keeps the functions that are its tools."""

    def __init__(self, name: str, instructions: str):
        self.name, self.instructions, self.tools = name, instructions, dict[str, Callable[..., Any]]()

    def tool(self) -> Any:
        return lambda function: self.tools.setdefault(function.__name__, function)


@pytest.fixture(scope="module")
def mcp() -> Iterator[ModuleType]:
    names = {"ToolError": type("ToolError", (Exception,), {})}
    with imported(
        "semtoken.integrations.mcp", mcp__server={"MCPServer": Tools}, mcp__server__mcpserver__exceptions=names
    ) as module:
        yield module


def test_the_tools_of_mcp_answer_as_they_did(mcp: ModuleType, almanac: ScoredModel) -> None:
    app = mcp.server(almanac, "almanac")
    run = recorded("mcp")
    assert sorted(app.tools) == sorted(tool["name"] for tool in run["tools"]) and "'almanac'" in app.instructions
    for reply in run["replies"]:
        tool = app.tools[reply["tool"]]
        if reply["is_error"]:
            with pytest.raises(mcp.ToolError):
                tool(**reply["arguments"])
            continue
        found = tool(**reply["arguments"]).model_dump()
        for name in reply["structured"].keys() - {"riskiest"}:
            value = reply["structured"][name]
            number = isinstance(value, float | list)
            assert found[name] == (pytest.approx(value, abs=CLOSE) if number else value), name
        if reply["tool"] == "ask":
            [answer] = almanac.generate([QUESTIONS["test-0000"].prompt()], 24, stop_at_newline=True)
            assert found["confidence"] == pytest.approx(answer.confidence, abs=CLOSE)
            assert found["interval"] == pytest.approx(answer.confidence_interval, abs=CLOSE)
            assert found["explanation"] == answer.explanation
    for most, fits in ((0, False), (1, True), (1024, True), (1025, False)):
        if fits:
            assert app.tools["ask"]("What is the capital of Peru?", max_tokens=most).text
        else:
            with pytest.raises(mcp.ToolError, match="from 1 to 1024"):
                app.tools["ask"]("x", max_tokens=most)
    decided: Any = SimpleNamespace(block=lambda answer: {"probability_correct": 0.7, "decision": "answer"})
    found = mcp.server(almanac, "almanac", decided).tools["score"]("What is the capital of Peru?", "Lima")
    assert (found.probability_correct, found.decision) == (0.7, "answer")
    assert RANKS in mcp.ScoreResult.model_fields["confidence"].description
    with patch.object(mcp, "p_true_log_probs", lambda *_: np.array([[-900.0, -0.1]])):
        assert 0 < app.tools["check"]("x", "y").probability_true < 1e-300
