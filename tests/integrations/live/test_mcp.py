"""The Model Context Protocol itself: its client starts `semtoken serve --mcp` and calls the tools."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server.mcpserver.exceptions import ToolError

from semtoken import ScoredModel
from semtoken.integrations.mcp import server
from semtoken.support.almanac import Question


def test_an_agent_asks_scores_and_checks(
    stc: ScoredModel, questions: list[Question], record: Callable[[str, Any], None]
) -> None:
    calls = [
        ("ask", {"question": questions[0].question, "max_tokens": 24}),
        ("score", {"question": questions[0].question, "answer": "Peru"}),
        ("check", {"question": questions[0].question, "answer": "Nigeria"}),
        ("ask", {"question": "  "}),
        ("ask", {"question": "x", "max_tokens": 0}),
    ]

    async def run() -> tuple[list[dict[str, Any]], list[Any]]:
        command = ["-c", "from semtoken.cli import main; main()", "serve", "--mcp", "--model.dtype", "float32"]
        async with (
            stdio_client(StdioServerParameters(command=sys.executable, args=command)) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            tools = [tool.model_dump(mode="json", exclude_none=True) for tool in (await session.list_tools()).tools]
            return tools, [await session.call_tool(name, arguments) for name, arguments in calls]

    tools, (asked, scored, checked, blank, nothing) = asyncio.run(run())
    assert sorted(tool["name"] for tool in tools) == ["ask", "check", "score"]
    prompt = questions[0].prompt()
    [answer] = stc.generate([prompt], 24, stop_at_newline=True)
    [other] = stc.score([prompt], ["Peru"])
    assert asked.structured_content["sequence_uncertainty"] == pytest.approx(answer.sequence_uncertainty, abs=1e-5)
    assert asked.structured_content["text"].strip() == answer.text.strip()
    assert scored.structured_content["sequence_uncertainty"] == pytest.approx(other.sequence_uncertainty, abs=1e-5)
    assert 0 < checked.structured_content["probability_true"] < 1
    assert blank.is_error and "empty" in blank.content[0].text
    assert nothing.is_error and "from 1 to 1024" in nothing.content[0].text
    replies = [
        {
            "tool": name,
            "arguments": arguments,
            "is_error": bool(reply.is_error),
            "structured": reply.structured_content,
            "text": reply.content[0].text,
        }
        for (name, arguments), reply in zip(calls, (asked, scored, checked, blank, nothing), strict=True)
    ]
    record("mcp", {"question": questions[0].id, "version": version("mcp"), "tools": tools, "replies": replies})


@pytest.mark.parametrize("question", ["word " * 3000, "x" * 100_000, "\N{EARTH GLOBE ASIA-AUSTRALIA}" * 100_000])
def test_what_is_longer_than_the_models_context_is_refused_by_all_tools(stc: ScoredModel, question: str) -> None:
    app = server(stc, "almanac")
    calls = {"ask": {}, "score": {"answer": "Peru"}, "check": {"answer": "Peru"}}
    for name, more in calls.items():
        with pytest.raises(ToolError, match="the model reads 512 at most"):
            asyncio.run(app.call_tool(name, {"question": question, **more}))
