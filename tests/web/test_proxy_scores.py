"""The scores that the proxy adds for the official client, in front of `semtoken serve` and of replies of all kinds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI

from semtoken import TokenClusters, Vocabulary
from semtoken.core import GrowingAnswer
from semtoken.errors import InvalidInputError
from semtoken.support.almanac import PROMPT, Question, load_questions
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.settings import ProxySettings
from tests import tiny
from tests.rows import each
from tests.web import lima
from tests.web.asking import (
    CHAT,
    ROUNDING,
    assert_holds,
    block_of,
    blocks_in,
    client_of,
    final_figure,
    post,
    user,
)
from tests.web.conftest import ALMANAC, Replaying, Start, proxy_of, serving
from tests.web.servers import events, response, streamed


@pytest.fixture(scope="module")
def proxy(served: str, almanac_clusters: TokenClusters) -> Iterator[str]:
    with proxy_of(served, almanac_clusters, hold=30.0) as url:  # however busy the machine is
        yield url


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return load_questions("test")[::500]


def check_interval(block: Any, exact: Any) -> None:
    assert_holds(block["sequence_uncertainty_interval"], exact["sequence_uncertainty"])
    assert_holds(block["sequence_uncertainty_interval"], block["sequence_uncertainty"], 0)
    assert_holds(block["interval"], exact["confidence"])
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
    @pytest.mark.parametrize("form", ["chat", "completions with ids"])
    def test_intervals_contain_the_exact_score(
        self, served: str, almanac_clusters: TokenClusters, questions: list[Question], form: str
    ) -> None:
        def asker(url: str, question: Question) -> tuple[Any, dict[str, Any]]:
            if form == "chat":
                return client_of(url).chat.completions.create, {"messages": user(question.question)}
            return client_of(url).completions.create, {"prompt": PROMPT.format(question=question.question)}

        with proxy_of(served, almanac_clusters, hold=30.0, token_ids=form != "chat") as url:
            for question in questions:
                (direct, asked), (proxied, _) = asker(served, question), asker(url, question)
                [exact], [found] = (ask(model="almanac", **asked).choices for ask in (direct, proxied))
                text = "message" if form == "chat" else "text"
                assert getattr(found, text) == getattr(exact, text) and found.logprobs is None
                check_interval(found.semtoken, exact.semtoken)
                assert found.semtoken["distribution"] == "raw"
                *_, last = proxied(model="almanac", **asked, stream=True)
                check_same(last.choices[0].semtoken, found.semtoken | {"final": True})

    def test_more_log_probabilities_narrow_it(self, served: str, almanac_clusters: TokenClusters) -> None:
        widths = []
        for k in (1, 50):
            with proxy_of(served, almanac_clusters, top_logprobs=k) as url:
                low, high = block_of(post(url))["sequence_uncertainty_interval"]
                widths.append(high - low)
        assert widths[0] > widths[1]

    def test_ids_without_a_tokenizer_are_refused_since_intervals_would_widen(self, served: str) -> None:
        with pytest.raises(InvalidInputError, match="name the upstream's tokenizer with --tokenizer"):
            proxy_app(ProxySettings(served, token_ids=True))

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
        async def ask(client: AsyncOpenAI) -> Any:
            stream: Any = await client.chat.completions.create(**CHAT, stream=True)
            return [chunk async for chunk in stream][-1].choices[0].semtoken

        async def ask_all() -> list[Any]:
            async with AsyncOpenAI(base_url=proxy + "/v1", api_key="none") as client:
                return await asyncio.gather(*(ask(client) for _ in range(10)))

        blocks = asyncio.run(ask_all())
        for block in blocks:
            check_same(block, blocks[0])

    def test_what_the_numbers_are_is_what_the_setting_says(self, served: str, almanac_clusters: TokenClusters) -> None:
        """`semtoken serve` gives raw ones, and says nothing of it in its lists."""
        with proxy_of(served, almanac_clusters, distribution="processed") as url:
            for stream in (False, True):
                assert block_of(post(url, json=CHAT | {"stream": stream}))["distribution"] == "processed"
        with pytest.raises(InvalidInputError, match="distribution"):
            ProxySettings(served, distribution="cooked")  # type: ignore[arg-type]

    def test_the_servers_limit_is_learned(self, almanac: Any, almanac_clusters: TokenClusters) -> None:
        few = replace(ALMANAC, max_logprobs=5)
        with serving(almanac, few) as url, proxy_of(url, almanac_clusters) as proxy:
            assert block_of(post(proxy))["method"] == "top-k"
            assert final_figure(proxy, "scored_answers_total") == 1

    def test_figures(self, served: str, almanac_clusters: TokenClusters) -> None:
        with proxy_of(served, almanac_clusters) as url:
            post(url, json=CHAT | {"n": 3})
            post(url, json=CHAT | {"stream": True})
            client_of(url).models.list()
            for name, expected in (
                ('requests_total{endpoint="chat",status="200"}', 2),
                ('requests_total{endpoint="other",status="200"}', 1),
                ("scored_answers_total", 4),
                ("interval_width_count", 4),
                ("added_seconds_count", 2),
                ("failures_total", 0),
            ):
                assert final_figure(url, name) == expected, name
            assert final_figure(url, "added_seconds_sum") > 0

    @each(("settings", "words"), [({}, ""), ({"proxy_for": "almanac-large"}, "almanac-large")])
    def test_clusters_of_another_tokenizer_give_a_reason(
        self, served: str, settings: dict[str, Any], words: str
    ) -> None:
        vocabulary = Vocabulary.from_tokenizer(tiny.wordpiece())
        other = TokenClusters(np.arange(vocabulary.size), vocabulary)
        with proxy_of(served, other, **settings) as url:
            [choice] = post(url).json()["choices"]
        assert choice["message"]["content"]
        assert set(choice["semtoken"]) == {"version", "reason"}
        assert words in choice["semtoken"]["reason"]
        assert ("another tokenizer" in choice["semtoken"]["reason"]) == bool(words)

    def test_a_proxy_in_front_of_a_proxy_scores_too(self, proxy: str, almanac_clusters: TokenClusters) -> None:
        with proxy_of(proxy, almanac_clusters) as url:
            [block] = blocks_in(post(url).json())
        assert block["method"] == "top-k"

    def test_a_label_for_another_model(self, served: str, almanac_clusters: TokenClusters) -> None:
        with proxy_of(served, almanac_clusters, proxy_for="almanac-large") as url:
            block = block_of(post(url))
        assert block["proxy_for"] == "almanac-large"
        assert "shared_vocabulary" in [flag["code"] for flag in block["flags"]]


PERU = lima.TOKEN | {"top_logprobs": []}


class TestReplies:
    def block(self, replaying: Replaying, message: Any = lima.SAID, logprobs: Any = lima.LIMA) -> Any:
        """The block beside an answer that is the upstream's in all else."""
        body = lima.reply(lima.choice(0, message, logprobs))
        answer = post(replaying(response(body)))
        assert answer.status_code == 200
        found, expected = answer.json(), json.loads(body)
        block = found["choices"][0].pop("semtoken")
        expected["choices"][0]["logprobs"] = None
        assert found == expected
        return block

    def test_an_answer(self, replaying: Replaying) -> None:
        block = self.block(replaying)
        low, high = block["sequence_uncertainty_interval"]
        assert 0 <= low < high <= 1 - np.exp(lima.TOKEN["logprob"]) + ROUNDING
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
            ({"content": "Lima and more"}, lima.LIMA, "do not spell"),
            ({"content": "Lima"}, {"content": [PERU | {"token": "Zyx", "bytes": [1, 255]}]}, ""),
            ({"content": "Lima"}, {"content": 7}, ""),
            ({"content": {"a": 1}}, lima.LIMA, ""),
            ({"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, lima.LIMA, "tool call"),
            ({"content": None, "refusal": "No."}, None, ""),
            ({"content": "", "reasoning_content": "Hm."}, lima.LIMA, ""),
        ],
    )
    def test_what_cannot_be_scored_arrives_with_a_reason(
        self, replaying: Replaying, message: Any, logprobs: Any, words: str
    ) -> None:
        block = self.block(replaying, message, logprobs)
        assert set(block) == {"version", "reason"}
        assert words in block["reason"]
        assert len(block["reason"]) > 20

    def test_an_answer_after_reasoning(self, replaying: Replaying) -> None:
        thought = {"token": "Hm", "logprob": -2.0, "bytes": list(b"Hm"), "top_logprobs": []}
        message = {"content": "Lima", "reasoning_content": "Hm"}
        with_reasoning = self.block(replaying, message, {"content": [thought, *lima.LIMA["content"]]})
        assert with_reasoning["sequence_uncertainty"] == self.block(replaying)["sequence_uncertainty"]
        assert with_reasoning["n_tokens"] == 1

    def test_choices_that_can_and_cannot_be_scored(self, proxied: Start) -> None:
        url, _ = proxied(response(lima.reply(lima.choice(1), lima.choice(0, logprobs=None))))
        scored, unscored = blocks_in(post(url).json())
        assert "sequence_uncertainty" in scored and "reason" in unscored

    def test_echo_is_left_alone(self, proxied: Start) -> None:
        url, upstream = proxied(response(b'{"choices": [{"index": 0, "text": "ab", "logprobs": null}]}'))
        body = {"prompt": "a", "echo": True}
        assert "echo" in block_of(post(url, "/v1/completions", json=body))["reason"]
        assert upstream.requests[0].json() == body

    def test_a_stream_that_reports_an_error(self, proxied: Start) -> None:
        said = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
        stream = events(said, {"error": {"message": "no"}}, done=False)
        url, _ = proxied(streamed(stream))
        assert post(url).content == stream
        assert final_figure(url, 'unscored_answers_total{reason="not_understood"}') == 1

    @each("end", [b"", b"data: {", b"data: [DONE]\n\n", b"data: [DONE]\n\n: bye\n\n"])
    def test_an_answer_whose_stream_ends_without_a_reason_is_counted_once(self, proxied: Start, end: bytes) -> None:
        begun = events(lima.event(), done=False)
        url, _ = proxied(streamed(begun + end))
        whole = post(url, json=CHAT | {"logprobs": True, "top_logprobs": 20}).content
        assert whole.startswith(begun) and whole.endswith(end)
        assert (b"gave no reason of the answer's end" in whole) == (b"DONE" in end)  # else every byte stays
        assert final_figure(url, 'unscored_answers_total{reason="no_end"}') == 1

    def test_a_bug_in_scoring_costs_the_score_only(self, replaying: Replaying, monkeypatch: pytest.MonkeyPatch) -> None:
        def break_down(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError

        monkeypatch.setattr(GrowingAnswer, "finish", break_down)
        assert "ZeroDivisionError" in self.block(replaying)["reason"]
