"""The scores that the proxy adds for the official client, in front of `semtoken serve` and of replies of all kinds."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from openai import AsyncOpenAI, OpenAI

from semtoken import TokenClusters, Vocabulary
from semtoken.errors import InvalidInputError
from semtoken.support.almanac import PROMPT, Question, load_questions
from semtoken.web.proxy import scoring
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.serve.app import serve_app
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.service import Offer
from tests import tiny
from tests.rows import each
from tests.web.conftest import Replaying, proxy_of
from tests.web.servers import Upstream, answering, response, running, streamed
from tests.web.test_proxy_transport import final_figure, without_block

Start = Callable[..., tuple[str, Upstream]]
ROUNDING = 1e-5
CHAT = {"model": "almanac", "messages": [{"role": "user", "content": "What is the capital of Peru?"}]}


def messages(question: str) -> Any:
    return [{"role": "user", "content": question}]


def client_of(url: str) -> OpenAI:
    return OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def proxy(served: str, almanac_clusters: TokenClusters) -> Iterator[str]:
    with proxy_of(served, almanac_clusters, hold=30.0) as url:  # however busy the machine is
        yield url


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return load_questions("test")[::500]


def check_interval(block: Any, exact: Any) -> None:
    low, high = block["sequence_uncertainty_interval"]
    assert low - ROUNDING <= exact["sequence_uncertainty"] <= high + ROUNDING
    assert low <= block["sequence_uncertainty"] <= high
    low, high = block["interval"]
    assert low - ROUNDING <= exact["confidence"] <= high + ROUNDING
    assert exact["confidence_method"] == block["confidence_method"]
    assert (block["method"], block["n_tokens"]) == ("top-k", exact["n_tokens"])


def check_same(block: Any, other: Any) -> None:
    """Two blocks of one answer, up to the rounding of its numbers."""
    numbers = {name: value for name, value in other.items() if isinstance(value, float)}
    assert {name: block[name] for name in numbers} == pytest.approx(numbers, abs=ROUNDING)
    assert block.keys() == other.keys()
    for name in ("interval", "sequence_uncertainty_interval"):
        assert block[name] == pytest.approx(other[name], abs=ROUNDING), name
    for name in block.keys() - numbers.keys() - {"interval", "sequence_uncertainty_interval"}:
        assert block[name] == other[name], name


class TestInFrontOfServe:
    def test_intervals_contain_the_exact_score(self, served: str, proxy: str, questions: list[Question]) -> None:
        direct, proxied = client_of(served), client_of(proxy)
        for question in questions:
            asked: Any = {"model": "almanac", "messages": messages(question.question)}
            exact = direct.chat.completions.create(**asked).choices[0]
            found = proxied.chat.completions.create(**asked).choices[0]
            assert found.message.content == exact.message.content
            assert found.logprobs is None
            check_interval(found.semtoken, exact.semtoken)
            assert found.semtoken["distribution"] == "raw"
            *_, last = proxied.chat.completions.create(**asked, stream=True)
            check_same(last.choices[0].semtoken, found.semtoken | {"final": True})

    def test_more_log_probabilities_narrow_it(self, served: str, almanac_clusters: TokenClusters) -> None:
        widths = []
        for k in (1, 50):
            with proxy_of(served, almanac_clusters, top_logprobs=k) as url:
                block = client_of(url).chat.completions.create(**CHAT).choices[0].semtoken
                low, high = block["sequence_uncertainty_interval"]
                widths.append(high - low)
        assert widths == sorted(widths, reverse=True)
        assert widths[0] > widths[-1]

    def test_completions_with_ids(
        self, served: str, almanac_clusters: TokenClusters, questions: list[Question]
    ) -> None:
        with proxy_of(served, almanac_clusters, token_ids=True) as url:
            for question in questions[:2]:
                asked: Any = {"model": "almanac", "prompt": PROMPT.format(question=question.question)}
                exact = client_of(served).completions.create(**asked).choices[0]
                found = client_of(url).completions.create(**asked).choices[0]
                assert (found.text, found.logprobs) == (exact.text, None)
                check_interval(found.semtoken, exact.semtoken)
                *_, last = client_of(url).completions.create(**asked, stream=True)
                check_same(last.choices[0].semtoken, found.semtoken | {"final": True})

    def test_ids_without_a_tokenizer_are_refused_since_intervals_would_widen(self, served: str) -> None:
        with pytest.raises(InvalidInputError, match="name the upstream's tokenizer with --tokenizer"):
            proxy_app(ProxySettings(served, token_ids=True))

    @each(
        ("path", "stream", "logprobs"),
        [
            ("chat/completions", False, None),
            ("chat/completions", True, 3),
            ("chat/completions", True, 0),
            ("completions", True, None),
            ("completions", False, 20),
            ("completions", False, 0),
        ],
    )
    def test_every_other_byte_is_the_upstreams(
        self, served: str, proxy: str, path: str, stream: bool, logprobs: int | None
    ) -> None:
        asked: dict[str, Any] = {"model": "almanac", "stream": stream, "n": 2, "temperature": 0.9, "seed": 5}
        asked |= {"max_tokens": 6}
        asked |= {"stream_options": {"include_usage": True}} if stream else {}
        if path == "completions":
            asked |= {"prompt": PROMPT.format(question="Who?")} | ({} if logprobs is None else {"logprobs": logprobs})
        else:
            asked |= {"messages": messages("Who?")}
            asked |= {} if logprobs is None else {"logprobs": True, "top_logprobs": logprobs}
        urls = (served, served, proxy)  # once beforehand: a prompt that was read last rounds in another way
        replies = [unnamed(httpx.post(f"{url}/v1/{path}", json=asked, timeout=30).content) for url in urls]
        assert replies[1] == replies[2]

    def test_tokens_on_request(self, proxy: str) -> None:
        asked: Any = {**CHAT, "extra_body": {"semtoken": {"tokens": True}}}
        whole = client_of(proxy).chat.completions.create(**asked).choices[0]
        *running, last = client_of(proxy).chat.completions.create(**asked, stream=True)
        assert "".join(t["text"] for t in whole.semtoken["tokens"]).startswith(whole.message.content)
        for token in whole.semtoken["tokens"]:
            low, high = token["log_agreeing_bounds"]
            assert low <= token["log_agreeing_probability"] <= high
        assert len(last.choices[0].semtoken["tokens"]) == len(whole.semtoken["tokens"])
        assert all("tokens" not in (getattr(c.choices[0], "semtoken", None) or {}) for c in running)

    def test_many_at_once_with_the_asynchronous_client(self, proxy: str) -> None:
        async def ask_all() -> list[Any]:
            async with AsyncOpenAI(base_url=proxy + "/v1", api_key="none") as client:

                async def streamed() -> Any:
                    stream = await client.chat.completions.create(**CHAT, stream=True)  # type: ignore[call-overload]
                    return [c async for c in stream][-1].choices[0].semtoken

                return await asyncio.gather(*(streamed() for _ in range(10)))

        blocks = asyncio.run(ask_all())
        for block in blocks:
            check_same(block, blocks[0])

    def test_what_the_numbers_are_is_what_the_setting_says(self, served: str, almanac_clusters: TokenClusters) -> None:
        """`semtoken serve` gives raw ones, and says nothing of it in its lists."""
        with proxy_of(served, almanac_clusters, distribution="processed") as url:
            found = client_of(url).chat.completions.create(**CHAT).choices[0].semtoken
            *_, last = client_of(url).chat.completions.create(**CHAT, stream=True)
        assert found["distribution"] == last.choices[0].semtoken["distribution"] == "processed"
        with pytest.raises(InvalidInputError, match="distribution"):
            ProxySettings(served, distribution="cooked")  # type: ignore[arg-type]

    def test_the_servers_limit_is_learned(self, almanac: Any, almanac_clusters: TokenClusters) -> None:
        app = serve_app(Engine(almanac), Offer("almanac", PROMPT, stop_at_newline=True, max_logprobs=5))
        with running(app) as url, proxy_of(url, almanac_clusters) as proxy:
            block = client_of(proxy).chat.completions.create(**CHAT, extra_body={"semtoken": {"tokens": True}})
            assert block.choices[0].semtoken["method"] == "top-k"
            assert final_figure(proxy, "semtoken_proxy_scored_answers_total") == 1

    def test_figures(self, served: str, almanac_clusters: TokenClusters) -> None:
        with proxy_of(served, almanac_clusters) as url:
            client_of(url).chat.completions.create(**CHAT, n=3)
            list(client_of(url).chat.completions.create(**CHAT, stream=True))
            client_of(url).models.list()
            assert final_figure(url, 'semtoken_proxy_requests_total{endpoint="chat",status="200"}') == 2
            assert final_figure(url, 'semtoken_proxy_requests_total{endpoint="other",status="200"}') == 1
            assert final_figure(url, "semtoken_proxy_scored_answers_total") == 4
            assert final_figure(url, "semtoken_proxy_interval_width_count") == 4
            assert final_figure(url, "semtoken_proxy_added_seconds_count") == 2
            assert final_figure(url, "semtoken_proxy_added_seconds_sum") > 0
            assert final_figure(url, "semtoken_proxy_failures_total") == 0

    def test_clusters_of_another_tokenizer_give_a_reason(self, served: str) -> None:
        vocabulary = Vocabulary.from_tokenizer(tiny.wordpiece())
        other = TokenClusters(np.arange(vocabulary.size), vocabulary)
        with proxy_of(served, other) as url:
            found = client_of(url).chat.completions.create(**CHAT).choices[0]
            assert found.message.content
            assert set(found.semtoken) == {"version", "reason"}

    def test_another_model_must_share_the_tokenizer(self, served: str) -> None:
        vocabulary = Vocabulary.from_tokenizer(tiny.wordpiece())
        other = TokenClusters(np.arange(vocabulary.size), vocabulary)
        with proxy_of(served, other, proxy_for="almanac-large") as url:
            block = client_of(url).chat.completions.create(**CHAT).choices[0].semtoken
        assert "almanac-large" in block["reason"] and "another tokenizer" in block["reason"]

    def test_a_proxy_in_front_of_a_proxy_scores_too(self, proxy: str, almanac_clusters: TokenClusters) -> None:
        with proxy_of(proxy, almanac_clusters) as url:
            outer = httpx.post(url + "/v1/chat/completions", json=CHAT).content
        assert outer.count(b'"semtoken"') == 1
        assert json.loads(outer)["choices"][0]["semtoken"]["method"] == "top-k"

    def test_a_label_for_another_model(self, served: str, almanac_clusters: TokenClusters) -> None:
        with proxy_of(served, almanac_clusters, proxy_for="almanac-large") as url:
            block = client_of(url).chat.completions.create(**CHAT).choices[0].semtoken
        assert block["proxy_for"] == "almanac-large"
        assert "shared_vocabulary" in [flag["code"] for flag in block["flags"]]


def unnamed(data: bytes) -> bytes:
    """A reply without blocks, ids and times of its own; log-probabilities to five places, as batches round."""
    data = re.sub(rb'"id":"[^"]*"|"created":\d+', b"", without_block(data))
    return re.sub(rb"-?\d+\.\d+(e-?\d+)?", lambda number: b"%.4f" % float(number.group()), data)


PERU = {"token": "Lima", "logprob": -0.4999123456, "bytes": list(b"Lima"), "top_logprobs": []}
LIMA = {"content": [PERU | {"top_logprobs": [{k: PERU[k] for k in ("token", "logprob", "bytes")}]}]}


def reply(message: Any, logprobs: Any, **fields: Any) -> bytes:
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}
    return json.dumps({"object": "chat.completion", "model": "m", "choices": [choice | fields]}).encode()


class TestReplies:
    def block(self, replaying: Replaying, body: bytes) -> Any:
        answer = httpx.post(replaying(response(body)) + "/v1/chat/completions", json=CHAT)
        assert answer.status_code == 200
        expected = json.loads(body)
        found = json.loads(answer.content)
        [block] = [choice.pop("semtoken") for choice in found["choices"]]
        for choice in expected["choices"]:
            choice["logprobs"] = None
        assert found == expected
        return block

    def test_an_answer(self, replaying: Replaying) -> None:
        block = self.block(replaying, reply({"content": "Lima"}, LIMA))
        assert (
            0
            <= block["sequence_uncertainty_interval"][0]
            < block["sequence_uncertainty_interval"][1]
            <= 1 - np.exp(PERU["logprob"]) + ROUNDING
        )
        assert block["distribution"] == "unknown"

    @each(
        ("message", "logprobs", "words"),
        [
            ({"content": "Lima"}, None, "no log-probabilities"),
            ({"content": "Lima"}, {"content": []}, "no log-probabilities"),
            ({"content": "Lima"}, {"content": [PERU | {"logprob": None}]}, ""),
            ({"content": "Lima"}, {"content": [PERU | {"logprob": "much"}]}, ""),
            ({"content": "Lima"}, {"content": [PERU | {"logprob": 3.5}]}, "at most 0"),
            ({"content": "Lima"}, {"content": [PERU | {"logprob": -9999.0}]}, ""),
            ({"content": "Lima and more"}, LIMA, "do not spell"),
            ({"content": "Lima"}, {"content": [PERU | {"token": "Zyx", "bytes": [1, 255]}]}, ""),
            ({"content": "Lima"}, {"content": 7}, ""),
            ({"content": {"a": 1}}, LIMA, ""),
            ({"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, LIMA, "tool call"),
            ({"content": None, "refusal": "No."}, None, ""),
            ({"content": "", "reasoning_content": "Hm."}, LIMA, ""),
        ],
    )
    def test_what_cannot_be_scored_arrives_with_a_reason(
        self, replaying: Replaying, message: Any, logprobs: Any, words: str
    ) -> None:
        block = self.block(replaying, reply(message, logprobs))
        assert set(block) == {"version", "reason"}
        assert words in block["reason"]
        assert len(block["reason"]) > 20

    def test_an_answer_after_reasoning(self, replaying: Replaying) -> None:
        thought = {"token": "Hm", "logprob": -2.0, "bytes": list(b"Hm"), "top_logprobs": []}
        message = {"content": "Lima", "reasoning_content": "Hm"}
        with_reasoning = self.block(replaying, reply(message, {"content": [thought, *LIMA["content"]]}))
        alone = self.block(replaying, reply({"content": "Lima"}, LIMA))
        assert with_reasoning["sequence_uncertainty"] == alone["sequence_uncertainty"]
        assert with_reasoning["n_tokens"] == 1

    def test_choices_that_can_and_cannot_be_scored(self, proxied: Start) -> None:
        choices = [
            {"index": 1, "message": {"content": "Lima"}, "logprobs": LIMA},
            {"index": 0, "message": {"content": "Lima"}, "logprobs": None},
        ]
        url, _ = proxied(answering(response(json.dumps({"choices": choices}).encode())))
        found = httpx.post(url + "/v1/chat/completions", json=CHAT).json()["choices"]
        assert "sequence_uncertainty" in found[0]["semtoken"]
        assert "reason" in found[1]["semtoken"]

    def test_echo_is_left_alone(self, proxied: Start) -> None:
        url, upstream = proxied(answering(response(b'{"choices": [{"index": 0, "text": "ab", "logprobs": null}]}')))
        body = {"prompt": "a", "echo": True}
        found = httpx.post(url + "/v1/completions", json=body).json()
        assert "echo" in found["choices"][0]["semtoken"]["reason"]
        assert upstream.requests[0].json() == body

    def test_a_stream_that_reports_an_error(self, proxied: Start) -> None:
        items = [
            b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n',
            b'data: {"error":{"message":"no"}}\n\n',
        ]
        url, _ = proxied(answering(streamed(b"".join(items))))
        assert httpx.post(url + "/v1/chat/completions", json=CHAT).content == b"".join(items)

    def test_a_bug_in_scoring_costs_the_score_only(self, replaying: Replaying, monkeypatch: pytest.MonkeyPatch) -> None:
        def break_down(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(scoring.GrowingAnswer, "finish", break_down)
        block = self.block(replaying, reply({"content": "Lima"}, LIMA))
        assert "ZeroDivisionError" in block["reason"]
