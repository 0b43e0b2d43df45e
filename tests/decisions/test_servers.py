"""Every server's documented shape is asked and read, and completed by the proxy, whatever the client speaks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from openai import OpenAI
from starlette.requests import Request
from starlette.responses import JSONResponse

from semtoken.decisions import ReadingOptions
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.remote import asker_of_endpoint
from semtoken.decisions.wire import openai
from semtoken.decisions.wire.shapes import QUESTION_SHAPES
from semtoken.errors import BackendError
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from tests.decisions.server_replies import MASSES, PROBABILITIES, QUESTIONS, SERVERS, Documented
from tests.decisions.servers import answering
from tests.rows import each
from tests.web.servers import running

SHAPES = {shape.name: shape for shape in QUESTION_SHAPES}


@contextmanager
def documented(server: Documented, paths: list[str]) -> Iterator[str]:
    async def answer(request: Request) -> JSONResponse:
        paths.append(request.url.path)
        status, found = server.reply(request.url.path, await request.json())
        return JSONResponse(found, status)

    with answering(answer) as url:
        yield url


@each("name", SERVERS)
def test_an_address_of_a_whole_api_is_enough(name: str) -> None:
    server, paths, said = SERVERS[name], list[str](), list[str]()
    with documented(server, paths) as url:
        ask = asker_of_endpoint(f"{url}/v1", "m", say=said.append)
        for _ in range(2):
            found = ask("The card was charged twice.", QUESTIONS, ReadingOptions())
    assert {key: answer.probabilities for key, answer in found.items()} == PROBABILITIES
    assert [answer.option_mass for answer in found.values()] == [
        MASSES[key] if server.masses else None for key in QUESTIONS
    ]
    flags = [flag.code for flag in found["urgent"].flags]
    assert flags == (["off_option_mass"] if server.masses else [])
    assert paths[-1] == paths[-2] and len(said) == (name == "SGLang")
    assert all(one.endswith("the server is asked by SGLang's shape of /v1/decisions.") for one in said)
    assert all(f"/v1{shape.path}" in shape.what for shape in QUESTION_SHAPES)


@each("spoken", SHAPES)
@each("name", SERVERS)
def test_the_proxy_completes_every_server_for_every_client(name: str, spoken: str) -> None:
    server, shape, paths = SERVERS[name], SHAPES[spoken], list[str]()
    calibrator = DecisionCalibrator({}, model="prod")  # the servers name another model
    body = {"model": "m", **shape.body("The card was charged twice.", QUESTIONS)}
    with (
        documented(server, paths) as upstream,
        running(proxy_app(ProxySettings(upstream), page=False, decision_calibrator=calibrator), wait=False) as url,
    ):
        httpx.post(f"{url}/v1{shape.path}", json=body, timeout=60)
        tried = len(paths)
        reply = httpx.post(f"{url}/v1{shape.path}", json=body, timeout=60)
    assert reply.status_code == 200, reply.text
    answers = shape.answers(QUESTIONS, reply.json())
    assert [answer.probabilities for answer in answers] == list(PROBABILITIES.values())
    assert [answer.option_mass for answer in answers] == [MASSES[key] if server.masses else None for key in QUESTIONS]
    assert paths[-1] in server.routes and len(paths) == tried + 1  # what was refused is not asked again
    given = reply.json()["answers"]
    team = given["team"] if isinstance(given, dict) else given[0]
    assert "'m' gave this one" in team["semtoken"]["guarantee"] and team["semtoken"]["decision"] == "abstain"
    if paths[0] == f"/v1{shape.path}" and len(paths) == 2 and server.confidence:
        assert server.confidence in team["semtoken"]["confidence_note"]
        assert team["semtoken"]["confidence"] == pytest.approx(0.625)
    else:
        assert "confidence_note" not in team["semtoken"]


@each("path", ["/api/alpha/decisions", "/client/v4/accounts/1/ai/run/@cf/cloudflare/clef"])
@each("spoken", ["systemone", "decisions"])
@each("wrapped", [True, False])
def test_the_addresses_of_openrouter_and_cloudflare_are_asked_in_their_shape(
    path: str, spoken: str, wrapped: bool
) -> None:
    server = SERVERS["Jev" if spoken == "systemone" else "OpenAI"]
    [(_, reply)] = server.routes.values()
    seen: list[str] = []

    async def answer(request: Request) -> JSONResponse:
        body = await request.json()
        seen.append(request.url.path)
        if ("state" in body) != (spoken == "systemone"):
            return JSONResponse({"error": {"message": "Invalid input: expected string, received undefined"}}, 400)
        return JSONResponse({"result": reply, "success": True} if wrapped else reply)

    with answering(answer, path) as url:
        ask = asker_of_endpoint(f"{url}{path}", "m")
        found = ask("The card was charged twice.", QUESTIONS, ReadingOptions())
    assert {key: one.probabilities for key, one in found.items()} == PROBABILITIES
    assert len(seen) == (1 if spoken == "systemone" else 2)


def test_a_server_that_lists_five_tokens_is_asked_for_five() -> None:
    """As Text Generation Inference says it."""
    asked: list[int] = []

    async def answer(request: Request) -> JSONResponse:
        top = (await request.json())["top_logprobs"]
        asked.append(top)
        if top > 5:
            said = f"Input validation error: `top_n_tokens` must be >= 0 and <= 5. Given: {top}"
            return JSONResponse({"error": said, "error_type": "validation"}, 422)
        tokens = [{"token": text, "logprob": math.log(p)} for text, p in (("Yes", 0.75), ("No", 0.25))]
        content = [{**tokens[0], "top_logprobs": tokens}]
        choice = {"index": 0, "message": {"role": "assistant", "content": "Yes"}, "logprobs": {"content": content}}
        return JSONResponse(
            {"object": "chat.completion", "choices": [choice | {"finish_reason": "length"}], "model": "m"}
        )

    with answering(answer, "/v1/chat/completions") as url:
        ask = asker_of_endpoint(f"{url}/v1/chat/completions", "m")
        for _ in range(2):
            found = ask("x", {"urgent": QUESTIONS["urgent"]}, ReadingOptions())
    assert found["urgent"].probabilities == pytest.approx((0.75, 0.25)) and asked == [20, 5, 5]


def test_a_server_that_lists_no_tokens_is_asked_twice() -> None:
    asked: list[int] = []

    async def answer(request: Request) -> JSONResponse:
        asked.append((await request.json())["top_logprobs"])
        return JSONResponse({"error": "`top_n_tokens` must be 0"}, 422)

    with answering(answer, "/v1/chat/completions") as url, pytest.raises(BackendError, match="must be 0"):
        asker_of_endpoint(f"{url}/v1/chat/completions", "m")("x", QUESTIONS, ReadingOptions())
    assert asked == [20, 5]


def test_openai_client_reads_what_sglang_answered() -> None:
    with (
        documented(SERVERS["SGLang"], []) as upstream,
        running(proxy_app(ProxySettings(upstream), page=False), wait=False) as url,
    ):
        client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        asked: list[Any] = [openai.written_question(one, name) for name, one in QUESTIONS.items()]
        found = client.decisions.create(model="m", input="The card was charged twice.", questions=asked)
    assert found.answers[0].choice == "billing" and found.answers[1].probability == 0.125  # type: ignore[union-attr]


@pytest.mark.parametrize("status", [400, 401, 500])
def test_an_error_that_names_no_fields_is_told_as_it_is(status: int) -> None:
    asked: list[str] = []

    async def answer(request: Request) -> JSONResponse:
        asked.append(request.url.path)
        return JSONResponse({"error": {"message": "The state is too long."}}, status)

    with answering(answer) as url, pytest.raises(BackendError, match="The state is too long"):
        asker_of_endpoint(f"{url}/v1/decisions")("x", QUESTIONS, ReadingOptions())
    assert asked == ["/v1/decisions"], "no other way is tried"
