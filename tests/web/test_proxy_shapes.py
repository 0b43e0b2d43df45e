"""Every API that the library reads, through the proxy: asked, scored, hidden, withheld; recordings are its replies."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from semtoken import TokenClusters
from semtoken.errors import SemtokenError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.replies import read_reply, score_reply
from semtoken.replies.formats import ProbeQuestion, Shape, known_formats
from tests.replies.recorded import NAMES, STREAMED, recording
from tests.rows import each
from tests.web.asking import blocks_in, events_in, post, without_block
from tests.web.conftest import in_front, proxy_of
from tests.web.servers import Received, Upstream, answering, raw_upstream, said, streamed
from tests.web.test_proxy_calibrator import made

K = 5
"""Log-probabilities a token in the recordings."""
OURS = ("llama-cpp", "sglang", "openai-responses", "vllm-responses")
"""One recording of each API that is not OpenAI's chat or completions."""


@cache
def shape_of(name: str) -> type[Shape]:
    return known_formats()[read_reply(recording(name).reply).format].shape


def path_of(shape: type[Shape]) -> str:
    return ("/v1" if shape.below_v1 else "") + shape.path


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """A server that speaks every API: it sends the recording that a header names."""

    def replay(received: Received) -> bytes:
        recorded = recording((received.header(b"x-recording") or b"").decode())
        if received.json().get("stream"):
            return streamed(recorded.stream.encode(), size=1500)
        return said(recorded.reply)

    with raw_upstream(answering(replay)) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(upstream: Upstream, almanac_clusters: TokenClusters) -> Iterator[str]:
    with proxy_of(upstream.url, almanac_clusters, page=False, hold=30.0) as url:
        yield url


def plain(shape: type[Shape]) -> dict[str, Any]:
    """A request that says nothing of log-probabilities."""
    return shape.body(ProbeQuestion("Where?"))


def asked_for(shape: type[Shape], top: int) -> dict[str, Any]:
    """A request of a client that wants some itself."""
    return shape.body(ProbeQuestion("Where?", top=top))


def ask(url: str, name: str, body: Mapping[str, Any] = MappingProxyType({})) -> httpx.Response:
    """The reply to a request that says nothing of log-probabilities but what is in the body."""
    path = path_of(shape_of(name))
    return post(url, path, json={**plain(shape_of(name)), **body}, headers={"x-recording": name})


def expected(sent: Any, clusters: TokenClusters, request: Mapping[str, Any] | None = None) -> Any:
    try:
        return score_reply(sent, clusters, request=request)
    except SemtokenError as error:
        return str(error)


def check(block: Mapping[str, Any], found: Any, number: int) -> None:
    if isinstance(found, str):
        assert set(block) - {"final"} == {"version", "reason"}, found
    else:
        assert block["sequence_uncertainty"] == found[number].sequence_uncertainty
        assert tuple(block["sequence_uncertainty_interval"]) == found[number].sequence_uncertainty_interval
        assert block["distribution"] == found[number].distribution
        assert block["n_tokens"] == found[number].n_tokens


class TestWholeReplies:
    @each("name", NAMES)
    def test_who_asked_for_nothing_gets_the_score_of_the_library_and_no_other_number(
        self, proxy: str, almanac_clusters: TokenClusters, name: str
    ) -> None:
        answer = ask(proxy, name)
        assert answer.status_code == 200, answer.text
        recorded = recording(name)
        found = expected(recorded.reply, almanac_clusters, plain(shape_of(name)))
        blocks = blocks_in(answer.json())
        assert len(blocks) == len(read_reply(recorded.reply).choices)
        if len(blocks) == 1 or not isinstance(found, str):
            for number, block in enumerate(blocks):
                check(block, found, number)
        shown = json.loads(without_block(answer.content))
        assert shown == recorded.expected.without_numbers(recorded.reply)

    @each("name", NAMES)
    def test_who_asked_for_numbers_gets_every_byte(self, proxy: str, name: str) -> None:
        answer = ask(proxy, name, asked_for(shape_of(name), K))
        assert without_block(answer.content) == json.dumps(recording(name).reply, ensure_ascii=False).encode()

    @pytest.mark.parametrize("name", ["llama-cpp", "sglang", "vllm-responses"])
    def test_fewer_are_shown_if_fewer_were_asked_for(self, proxy: str, name: str) -> None:
        answer = ask(proxy, name, asked_for(shape_of(name), 2)).json()
        steps = [step for choice in read_reply(answer).choices for part in choice.segments for step in part.steps]
        full = [s for c in read_reply(recording(name).reply).choices for part in c.segments for s in part.steps]
        assert [step.top for step in steps] == [step.top[:2] for step in full] and steps
        assert "sequence_uncertainty" in blocks_in(answer)[0]


class TestStreams:
    @each("name", STREAMED)
    def test_who_asked_for_nothing_gets_the_score_of_the_library_and_no_other_number(
        self, proxy: str, almanac_clusters: TokenClusters, name: str
    ) -> None:
        got = ask(proxy, name, {"stream": True}).text
        recorded = recording(name)
        stream = recorded.stream
        ended = {
            place.choice for event in events_in(stream) for place in shape_of(name).places(event) or () if place.ended
        }
        found = expected(stream, almanac_clusters)
        finals: dict[Any, Any] = {}
        for event in events_in(got):
            for place, block in zip(shape_of(name).places(event) or (), blocks_in(event), strict=False):
                assert block["final"] is True
                finals[place.choice] = block
        assert set(finals) == ended
        if len(finals) == 1 or not isinstance(found, str):
            for number, index in enumerate(sorted(finals)):
                check(finals[index], found, number)
        shown = events_in(without_block(got.encode()).decode())
        assert shown == recorded.expected.without_numbers(events_in(stream))

    @each("name", STREAMED)
    def test_who_asked_for_numbers_gets_every_byte(self, proxy: str, name: str) -> None:
        got = ask(proxy, name, asked_for(shape_of(name), K) | {"stream": True, "semtoken": {}}).content
        assert without_block(got) == recording(name).stream.encode()

    @pytest.mark.parametrize("name", ["llama-cpp", "sglang", "vllm-chat-awkward-ids"])
    def test_values_so_far(self, proxy: str, name: str) -> None:
        got = ask(proxy, name, {"stream": True, "semtoken": {"running": True}}).text
        blocks = [block for event in events_in(got) for block in blocks_in(event)]
        running = [block for block in blocks if not block["final"]]
        counts = [block["n_tokens"] for block in running]
        assert running and counts == sorted(counts)
        for block in running:
            low, high = block["sequence_uncertainty_interval"]
            assert 0 <= low <= block["sequence_uncertainty"] <= high <= 1

    @pytest.mark.parametrize("name", ["openai-responses", "vllm-responses"])
    def test_the_last_text_of_a_response_carries_the_final_block(self, proxy: str, name: str) -> None:
        got = events_in(ask(proxy, name, {"stream": True}).text)
        [text] = [event for event in got if event["type"] == "response.output_text.delta"]
        [end] = [event for event in got if event["type"] == "response.completed"]
        assert text["semtoken"] == end["response"]["semtoken"] and end["response"]["semtoken"]["final"] is True
        assert sum(len(blocks_in(event)) for event in got) == 2


class TestRequests:
    """The request that the upstream gets in place of a plain one."""

    @pytest.mark.parametrize(
        ("name", "fields"),
        [
            ("openai-responses", {"include": ["message.output_text.logprobs"], "top_logprobs": 20}),
            ("llama-cpp", {"n_probs": 20}),
            ("sglang", {"return_logprob": True, "top_logprobs_num": 20, "return_text_in_logprobs": True}),
        ],
    )
    def test_log_probabilities_are_asked_for(
        self, proxy: str, upstream: Upstream, name: str, fields: dict[str, Any]
    ) -> None:
        body = plain(shape_of(name))
        ask(proxy, name, body | {"semtoken": {}})
        assert upstream.requests[-1].json() == body | fields

    def test_what_the_client_asked_for_stays(self, proxy: str, upstream: Upstream) -> None:
        body = plain(shape_of("openai-responses"))
        ask(proxy, "openai-responses", body | {"include": ["reasoning.encrypted_content"], "top_logprobs": 2})
        sent = upstream.requests[-1].json()
        assert sent["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
        ask(proxy, "sglang", asked_for(shape_of("sglang"), 30) | {"return_text_in_logprobs": False})
        sent = upstream.requests[-1].json()
        assert (sent["top_logprobs_num"], sent["return_text_in_logprobs"]) == (30, False)

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/api/generate", {"model": "of Ollama", "text": "x"}),
            ("/generate", {"question": "of nobody"}),
            ("/generate", {"text": "x", "return_logprob": [True]}),
            ("/completion", {"n_probs": 3}),
            ("/completion", {"prompt": "x", "n_probs": "3"}),
            ("/v1/responses", {"model": "m"}),
            ("/v1/responses", {"input": "x", "include": "all"}),
        ],
    )
    def test_other_requests_pass_as_they_are(self, proxy: str, upstream: Upstream, path: str, body: Any) -> None:
        reply = post(proxy, path, json=body, headers={"x-recording": "llama-cpp"})
        assert upstream.requests[-1].json() == body
        assert reply.json() == recording("llama-cpp").reply

    def test_a_response_in_the_background_is_left_alone(self, proxy: str, upstream: Upstream) -> None:
        body = plain(shape_of("openai-responses")) | {"background": True}
        reply = ask(proxy, "openai-responses", body).json()
        assert upstream.requests[-1].json() == body and "background" in reply["semtoken"]["reason"]

    def test_a_failed_response_has_a_reason(self, almanac_clusters: TokenClusters) -> None:
        failed = {"id": "r", "error": {"code": "server_error", "message": "out of memory"}, "output": []}
        event = {"type": "response.failed", "response": failed}

        sent = streamed(f"event: response.failed\ndata: {json.dumps(event)}\n\n".encode())
        with in_front(sent, almanac_clusters) as (url, _):
            [got] = events_in(post(url, "/v1/responses", json={"input": "x", "stream": True}).text)
        assert "out of memory" in got["response"].pop("semtoken")["reason"]
        assert got == event


class TestMethods:
    """Scores by further methods of one pass, from the log-probabilities of the upstream."""

    @each("stream", [False, True])
    @each("name", ["vllm-chat-awkward-ids", "llama-cpp", "sglang", "openai-responses"])
    def test_they_stand_beside_the_uncertainty(self, proxy: str, name: str, stream: bool) -> None:
        ours = {"semtoken": {"methods": ["perplexity", "sequence_probability"]}}
        answer = ask(proxy, name, ours | ({"stream": True} if stream else {}))
        events = events_in(answer.text) if stream else [answer.json()]
        *_, block = [one for event in events for one in blocks_in(event) if one.get("final", True)]
        [choice] = read_reply(recording(name).stream if stream else recording(name).reply).choices
        logs = [step.log_probs[0] for step in choice.segments[-1].steps]
        assert block["scores"]["perplexity"] == pytest.approx(-sum(logs) / len(logs), abs=1e-6)
        assert block["scores"]["sequence_probability"] == pytest.approx(-math.expm1(sum(logs)), abs=1e-6)
        assert "scores_refused" not in block

    @pytest.mark.parametrize("by_default", [False, True])
    def test_what_lists_do_not_give_is_refused_in_words(
        self, upstream: Upstream, almanac_clusters: TokenClusters, by_default: bool
    ) -> None:
        """Asked for by the client, or by the proxy itself."""
        methods = ("perplexity", "rauq")
        own: dict[str, Any] = {"methods": methods} if by_default else {}
        ours = {} if by_default else {"semtoken": {"methods": methods}}
        with proxy_of(upstream.url, almanac_clusters, page=False, **own) as url:
            block = ask(url, "llama-cpp", ours).json()["semtoken"]
        assert "rauq" in block["scores_refused"] and "sequence_uncertainty" in block and "scores" not in block

    @pytest.mark.parametrize("methods", [["no_such"], ["semantic_entropy"], "perplexity", [1]])
    def test_what_is_no_method_of_one_pass_is_an_error(self, proxy: str, methods: Any) -> None:
        refused = ask(proxy, "llama-cpp", {"semtoken": {"methods": methods}})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "semtoken"


@contextmanager
def withholding(upstream: Upstream, clusters: TokenClusters, folder: Path, limit: float) -> Iterator[str]:
    """A proxy that shows answers up to an uncertainty, and another text in place of the others."""
    calibrator = made(folder)
    threshold = replace(calibrator.threshold, min_log_score=-limit)  # type: ignore[type-var]
    applied = CalibratorInUse(replace(calibrator, threshold=threshold), abstain_text='I do not "know".')
    with proxy_of(upstream.url, clusters, page=False, calibrator=applied) as url:
        yield url


@pytest.mark.parametrize("name", OURS)
def test_answers_that_are_not_accepted_are_not_shown(
    upstream: Upstream, almanac_clusters: TokenClusters, tmp_path: Path, name: str
) -> None:
    shape, sent = shape_of(name), recording(name).reply
    [said] = read_reply(sent).choices
    body = asked_for(shape, K) | {"semtoken": {"tokens": True}}
    with withholding(upstream, almanac_clusters, tmp_path, 0.0) as url:
        reply = ask(url, name, body)
        stream = ask(url, name, body | {"stream": True})
    [choice] = read_reply(reply.json()).choices
    assert [(part.kind, part.text, part.steps) for part in choice.segments] == [("answer", 'I do not "know".', ())]
    assert said.segments[-1].text.strip() not in reply.text
    assert blocks_in(reply.json())[0]["decision"] == "abstain"
    assert stream.status_code == 400 and "abstain_text" in stream.json()["error"]["message"]
    with withholding(upstream, almanac_clusters, tmp_path / "again", 1e9) as url:
        accepted = ask(url, name, asked_for(shape, K))
    assert blocks_in(accepted.json())[0]["decision"] == "answer"
    assert json.loads(without_block(accepted.content)) == sent
