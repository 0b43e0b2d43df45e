"""`/v1/decisions` and `/v1/systemone` of `semtoken proxy`: passed on, and asked as texts of a plain upstream."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
import openai
import pytest
from starlette.responses import JSONResponse

from semtoken import ScoredModel
from semtoken.decisions import Answer, Predicate, ReadingOptions
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import DecisionRecord, answer_values, records_of
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.serve.app import serve_app
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.service import Offer
from tests.decisions.models import tiny
from tests.rows import each
from tests.web import lima
from tests.web.asking import added_to, assert_error, client_of, post
from tests.web.conftest import in_front, proxy_of
from tests.web.servers import Received, answering, response, running, silent
from tests.web.test_serve_decisions import DECISIONS, STATE, SYSTEM_ONE

BODIES: dict[str, Any] = {
    "/v1/decisions": {"model": "tiny", "input": STATE, "questions": DECISIONS},
    "/v1/systemone": {"model": "tiny", "state": STATE, "questions": SYSTEM_ONE},
}


def plain(app: Any, *hidden: str) -> Any:
    """A server without the routes of decisions, as most are."""

    async def without(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].endswith(("/decisions", "/systemone", *hidden)):
            await JSONResponse({"detail": "Not Found"}, 404)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return without


def without_usage(app: Any) -> Any:
    """A server whose replies tell no counts of tokens."""

    async def changed(scope: Any, receive: Any, send: Any) -> None:
        async def pass_on(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [h for h in message["headers"] if h[0] != b"content-length"]
            elif message.get("body"):
                reply = json.loads(message["body"])
                reply.pop("usage", None)
                message = message | {"body": json.dumps(reply).encode()}
            await send(message)

        await app(scope, receive, pass_on if scope["type"] == "http" else send)

    return changed


@cache
def stc() -> ScoredModel:
    return ScoredModel(tiny())


def app() -> Any:
    return serve_app(Engine(stc()), Offer("tiny", max_logprobs=1000))


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with running(app(), strict=False) as url:
        yield url


@pytest.fixture(scope="module")
def passing(served: str) -> Iterator[str]:
    with proxy_of(served, None, page=False) as url:
        yield url


@pytest.fixture(scope="module")
def texts(served: str) -> Iterator[str]:
    """A proxy that asks the same server as texts."""
    with proxy_of(served, None, page=False, decisions="chat") as url:
        yield url


def ask(url: str, path: str, body: Any = None) -> httpx.Response:
    """The reply to the body, or to the usual one of the path."""
    return post(url, path, json=BODIES[path] if body is None else body, timeout=300)


@contextmanager
def before(upstream: Any, **settings: Any) -> Iterator[str]:
    """A proxy in front of an application."""
    with running(upstream, strict=False) as server, proxy_of(server, None, page=False, **settings) as url:
        yield url


def probabilities(answer: Any) -> list[float]:
    if "probability" in answer or "noul" in answer:
        p = answer.get("probability", answer.get("noul"))
        return [p, 1 - p]
    given = answer["probabilities"]
    return [one["probability"] for one in given] if isinstance(given, list) else list(given.values())


NOUL = {"state": "x", "questions": {"refund": {"type": "noul"}}}
NO_ANSWERS = (
    b"nothing",
    b"[]",
    b'{"answers": {}}',
    b'{"answers": {"refund": {"type": "noul", "noul": 7}}}',
    b'{"answers": {"refund": {"type": "noul", "noul": NaN}}}',
    b'{"answers": {"refund": [1]}}',
    b'{"answers": {"refund": {"type": "choice", "noul": 0.5}}}',
)
LEVELS = [{"value": 0, "probability": 0.25}, {"value": 1, "probability": 0.75}]
OF_A_CHOICE = {"type": "choice", "name": None, "probabilities": LEVELS}
SCORE = {
    "input": "x",
    "questions": [{"type": "score", "instructions": "How?", "levels": [{"label": "a"}, {"label": "b"}]}],
}


class TestPassedOn:
    @each("path", BODIES)
    def test_the_block_of_an_upstream_that_has_one_stays(self, served: str, path: str) -> None:
        recorded = ask(served, path).content
        with in_front(response(recorded)) as (url, _):
            assert ask(url, path).json() == json.loads(recorded)

    def test_every_byte_stays_and_a_block_is_added(self) -> None:
        raw = b'{"model":"m", "answers": {"refund" : {"type":"noul","noul":0.250}} ,"usage":{"input_tokens":1e1}}'
        with in_front(response(raw, b"X-Own: 1")) as (url, upstream):
            found = ask(url, "/v1/systemone?a=1", NOUL)
            [received] = upstream.requests
        assert received.json() == NOUL
        assert b"/v1/systemone?a=1" in received.line
        assert found.headers["x-own"] == "1"
        block = rb', ?"semtoken": ?{"option_mass": ?null, ?"bounds": ?\[[^{}]*\]}'
        without, blocks = re.subn(block, b"", found.content)
        assert (without, blocks) == (raw, 1)
        assert found.json()["answers"]["refund"]["semtoken"]["bounds"] == [[0.245, 0.255], [0.745, 0.755]]

    @each(
        ("path", "body", "answered"),
        [
            *(("/v1/systemone", NOUL, answered) for answered in NO_ANSWERS),
            # levels as the values of a choice are no answer to a score
            ("/v1/decisions", SCORE, json.dumps({"answers": [OF_A_CHOICE]}).encode()),
        ],
    )
    def test_what_is_no_answer_passes_untouched(self, path: str, body: Any, answered: bytes) -> None:
        with in_front(response(answered)) as (url, _):
            found = ask(url, path, body)
        assert found.content == answered
        assert found.headers["semtoken-unscored"] == "not_understood"

    @each("status", [b"401 Who", b"422 No", b"429 Slow", b"500 Oh"])
    def test_errors_pass_unchanged(self, status: bytes) -> None:
        error = b'{"detail" : [{"loc": ["body"]}]}'
        with in_front(response(error, status=status)) as (url, upstream):
            found = ask(url, "/v1/systemone", {"state": "x", "questions": {}})
            assert len(upstream.requests) == 1
        assert found.status_code == int(status[:3])
        assert found.content == error

    def test_an_unknown_model_is_no_missing_route(self, passing: str) -> None:
        with pytest.raises(openai.NotFoundError, match="another"):
            client_of(passing).decisions.create(model="another", input=STATE, questions=DECISIONS)

    def test_the_official_client(self, passing: str) -> None:
        reply = client_of(passing).decisions.create(model="tiny", input=STATE, questions=DECISIONS)
        assert [one.type for one in reply.answers] == ["predicate", "choice", "score"]
        assert 0 < added_to(reply.answers[0])["option_mass"] < 1

    def test_a_calibrator_adds_what_it_knows(self, served: str) -> None:
        asked = {"model": "tiny", "state": "x", "questions": {"late": {"type": "noul", "instructions": "Late?"}}}
        p = ask(served, "/v1/systemone", asked).json()["answers"]["late"]["noul"]
        records: list[DecisionRecord] = []
        for number in range(200):
            share = max(p, 1 - p) if number % 2 else 0.6
            yes = share if p >= 0.5 else 1 - share
            given = answer_values(Answer(Predicate("Late?"), (yes, 1 - yes)), ReadingOptions())
            right = number % 10 != 0
            records += records_of(
                {"state": str(number), "answers": {"late": given}, "labels": {"late": right == (yes >= 0.5)}}
            )
        calibrator = DecisionCalibrator.fit(records, alpha=0.3)
        offer = Offer("tiny", decision_calibrator=calibrator)
        for app, strict in (
            (proxy_app(ProxySettings(served), page=False, decision_calibrator=calibrator), True),
            (serve_app(Engine(stc()), offer), False),
        ):
            with running(app, strict=strict) as url:
                block = ask(url, "/v1/systemone", asked).json()["answers"]["late"]["semtoken"]
                others = [asked | {"semtoken": {"reading": "words"}}, asked | {"semtoken": {"orders": 2}}]
                others.append(asked | {"questions": {"late": {"type": "noul", "instructions": "Is it late?"}}})
                for other in others:  # another reading, other orders, other words: it does not belong
                    unknown = ask(url, "/v1/systemone", other).json()["answers"]["late"]["semtoken"]
                    assert (unknown["decision"], unknown["labels"]) == ("abstain", 0)
                    assert "probability_correct" not in unknown
            assert 0.5 < block["probability_correct"] <= 1
            assert block["decision"] in ("answer", "abstain")
            assert block["labels"] == 200


class TestAskedAsTexts:
    @pytest.mark.parametrize(
        ("path", "how", "k"),
        [
            ("/v1/decisions", {"reading": "labels"}, 300),
            pytest.param("/v1/systemone", {"reading": "labels"}, 20, marks=pytest.mark.slow),
            ("/v1/decisions", {"reading": "words", "orders": 2}, 20),
            pytest.param("/v1/systemone", {"reading": "words", "orders": 2}, 300, marks=pytest.mark.slow),
        ],
    )
    def test_the_exact_answer_lies_within_the_bounds(self, served: str, path: str, how: Any, k: int) -> None:
        body = BODIES[path] | {"semtoken": how}
        must_know = k == 300 and how["reading"] == "labels"  # words take several tokens that this model never says
        exact = ask(served, path, body).json()["answers"]
        with proxy_of(served, None, page=False, decisions="chat", top_logprobs=k) as url:
            reply = ask(url, path, body)
        if not must_know and reply.status_code == 400:  # systemone has no word for one question that is refused
            assert "surely among the tokens that the server lists" in reply.text
            return
        found = reply.json()["answers"]
        for key in range(3) if isinstance(found, list) else found:
            if not must_know and found[key]["type"] == "refusal":
                continue
            bounds = found[key]["semtoken"].get("bounds") or [(p, p) for p in probabilities(found[key])]
            for p, (low, high) in zip(probabilities(exact[key]), bounds, strict=True):
                assert low - 1e-4 <= p <= high + 1e-4
            assert found[key]["semtoken"]["option_mass"] <= exact[key]["semtoken"]["option_mass"] + 1e-4

    def test_the_official_client(self, texts: str) -> None:
        same = {"type": "choice", "instructions": "Which?", "choices": [{"value": "Yes"}, {"value": "yes"}]}
        reply = client_of(texts).decisions.create(
            model="tiny",
            input=[{"role": "user", "content": STATE}],
            questions=[*DECISIONS, same],  # type: ignore[list-item]
            extra_body={"semtoken": {"reading": "words"}},
        )
        assert reply.model == "tiny"
        assert reply.answers[3].type == "refusal"
        assert "cannot be told apart" in added_to(reply.answers[3])["refusal"]
        assert reply.usage.input_tokens > 0

    @pytest.mark.parametrize(
        "hidden", [pytest.param((), marks=pytest.mark.slow), ("/chat/completions",)], ids=["chat", "completions"]
    )
    def test_where_the_upstream_has_no_such_route(self, hidden: tuple[str, ...]) -> None:
        with before(plain(app(), *hidden), top_logprobs=50) as url:
            for path in (*BODIES, "/v1/decisions"):  # the last time it is known
                assert ask(url, path).status_code in (200, 400)
            figures = httpx.get(url + "/metrics").text
        assert 'endpoint="decisions"' in figures

    def test_an_upstream_that_does_not_count_has_read_nothing(self) -> None:
        """The tokens that it has read are the sum over its replies, of which none gives any."""
        with before(without_usage(plain(app())), top_logprobs=50) as url:
            reply = ask(url, "/v1/decisions").json()
        assert reply["answers"] and reply["usage"]["input_tokens"] == 0

    def test_an_upstream_with_no_route_at_all(self) -> None:
        with before(plain(app(), "/completions")) as url:
            assert_error(ask(url, "/v1/decisions"), 502, "no_route")
            assert "no route" in ask(url, "/v1/systemone").json()["detail"]

    def test_bad_requests_are_refused_in_each_formats_shape(self, texts: str) -> None:
        assert ask(texts, "/v1/systemone", {"state": 1}).status_code == 422
        wrong = ask(texts, "/v1/decisions", {"input": "x", "questions": []})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "questions")

    def test_an_unknown_model(self, texts: str) -> None:
        found = ask(texts, "/v1/decisions", BODIES["/v1/decisions"] | {"model": "another"})
        assert found.status_code == 404
        assert found.json()["error"]["message"].startswith("Question 'refund': the upstream answered with status 404")
        detail = ask(texts, "/v1/systemone", BODIES["/v1/systemone"] | {"model": "another"}).json()["detail"]
        assert "Question 'refund'" in detail


def chat_reply(*listed: tuple[str, float]) -> bytes:
    top = [{"token": text, "logprob": math.log(p), "bytes": list(text.encode())} for text, p in listed]
    said = lima.choice(0, {"content": listed[0][0]}, {"content": [{**top[0], "top_logprobs": top}]}, "length")
    return response(lima.reply(said))


class TestRecordedUpstream:
    def test_by_hand(self) -> None:
        """Three requests of one token each, whose lists are known; B is not listed and may have what is left."""
        with in_front(chat_reply(("A", 0.5), ("C", 0.2), ("x", 0.1)), decisions="chat") as (url, upstream):
            choice = {"type": "choice", "instructions": "Which?", "choices": [{"value": v} for v in ("p", "q", "r")]}
            answer = client_of(url).decisions.create(model="m", input="x", questions=[choice]).answers[0]  # type: ignore[list-item]
            [request] = upstream.requests
        block = added_to(answer)
        assert [one.probability for one in answer.probabilities] == pytest.approx([5 / 7, 0, 2 / 7])  # type: ignore[union-attr]
        assert block["option_mass"] == pytest.approx(0.7)
        assert block["bounds"][1] == pytest.approx([0, 0.1 / 0.8])
        assert block["bounds"][0] == pytest.approx([0.5 / 0.8, 0.5 / 0.7])
        assert request.json() == {
            "messages": [{"role": "user", "content": request.json()["messages"][0]["content"]}],
            "max_tokens": 1,
            "model": "m",
            "temperature": 1.0,
            "logprobs": True,
            "top_logprobs": 20,
        }
        assert "A. p\nB. q\nC. r" in request.json()["messages"][0]["content"]

    @each(("status", "depth"), [(b"200 OK", 600), (b"200 OK", 5000), (b"400 Bad", 5000)])
    def test_a_reply_that_is_nested_deeply_is_no_answer(self, status: bytes, depth: int) -> None:
        deep = b'{"error": {"message": %s}}' % (b"[" * depth + b"]" * depth)
        with in_front(response(deep, status=status), decisions="chat") as (url, _):
            found = ask(url, "/v1/decisions")
        assert found.status_code in ((502,) if status == b"200 OK" else (400, 502))
        assert found.json()["error"]["message"].startswith("Question 'refund': ")

    def test_mass_elsewhere_is_flagged(self) -> None:
        with in_front(chat_reply(("Well", 0.8), ("Yes", 0.1), ("No", 0.05)), decisions="chat") as (url, _):
            reply = client_of(url).decisions.create(model="m", input="x", questions=DECISIONS[:1])
        assert "off_option_mass" in added_to(reply.answers[0])["flags"]

    def test_nothing_is_made_of_lists_without_an_option(self) -> None:
        with in_front(chat_reply(("Well", 0.9)), decisions="chat") as (url, _):
            reply = client_of(url).decisions.create(model="m", input="x", questions=DECISIONS[:1])
            assert reply.answers[0].type == "refusal"
            found = ask(url, "/v1/systemone", {"state": "x", "questions": {"q": {"type": "noul"}}})
        assert (found.status_code, found.json()["detail"][:12]) == (400, "Question 'q'")

    def test_requests_are_few_at_a_time_and_a_failure_ends_all(self) -> None:
        most = now = 0

        async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.02)
            now -= 1
            last = "number 17?" in received.body.decode()
            warm = response(b'{"error": {"message": "too warm"}}', status=b"429 Hot")
            writer.write(warm if last else YES)
            await writer.drain()

        questions = [{"type": "predicate", "instructions": f"number {i}?"} for i in range(18)]
        with in_front(behave, decisions="chat", decision_requests=3) as (url, _):
            good = ask(url, "/v1/decisions", {"input": "x", "questions": questions[:17]})
            assert good.status_code == 200
            assert 2 <= most <= 3
            bad = ask(url, "/v1/decisions", {"input": "x", "questions": questions})
        assert bad.status_code == 429
        assert bad.json()["error"]["message"] == "Question 17: the upstream answered with status 429: too warm"
        assert bad.json()["error"]["param"] == "questions[17]"

    def test_an_upstream_that_is_silent_is_not_waited_for(self) -> None:
        with in_front(silent, decisions="chat", read_timeout=0.2) as (url, _):
            found = ask(url, "/v1/systemone")
        assert found.status_code == 504
        assert "did not answer in time" in found.json()["detail"]

    @each("raw", [b"nothing", b"[]", b'{"choices": []}', b'{"choices": [{"message": {"content": "Yes"}}]}'])
    def test_replies_without_lists_are_the_upstreams_failure(self, raw: bytes) -> None:
        with in_front(response(raw), decisions="chat") as (url, _):
            assert ask(url, "/v1/decisions").status_code == 502

    def test_an_upstream_that_refuses_log_probabilities(self) -> None:
        error = response(b'{"error": {"message": "logprobs are not supported"}}', status=b"400 Bad")

        def answer(received: Received) -> bytes:
            return error if b"logprobs" in received.body else YES

        with in_front(answering(answer), decisions="chat") as (url, _):
            found = ask(url, "/v1/decisions")
        assert found.status_code == 502
        assert "does not give log-probabilities" in found.json()["error"]["message"]

    def test_further_fields_are_sent(self) -> None:
        fields = {"chat_template_kwargs": {"enable_thinking": False}}
        with in_front(YES, decisions="chat", decision_fields=fields) as (url, upstream):
            ask(url, "/v1/decisions")
        assert upstream.requests[0].json()["chat_template_kwargs"] == {"enable_thinking": False}


YES = chat_reply(("Yes", 0.7), ("A", 0.1), ("No", 0.1))
