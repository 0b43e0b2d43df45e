"""The proxy in front of a server that gives no log-probabilities: the model of `--read-with` reads the answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import semtoken as st
from semtoken import STC, TokenClusters
from semtoken.almanac import PROMPT, Question, load_questions
from semtoken.calibration import Fingerprint
from semtoken.calibration.apply import CalibratorInUse
from semtoken.payloads import PayloadChoice, Segment
from semtoken.payloads.formats.openai_choices import OpenAIChat, OpenAICompletions
from semtoken.tokens.rules import ScoringRules
from semtoken.web.block import BlockOptions
from semtoken.web.proxy.app import proxy_app
from semtoken.web.proxy.asking import AnswerRequest
from semtoken.web.proxy.reading import Reader
from semtoken.web.proxy.relay import SHORT_REPLY
from semtoken.web.proxy.settings import ProxySettings
from tests.web.conftest import proxy_of
from tests.web.servers import Received, answering, chunk, raw_upstream, response, running, stream_head
from tests.web.test_proxy_transport import figure, final_figure

LAST = b"0\r\n\r\n"
PERU = "What is the capital of Peru?"


@contextmanager
def silent(served: str, *, refusing: bool = False) -> Iterator[str]:
    """A server that answers as the one behind it and gives no log-probabilities: asked for some, it leaves them out.

    `refusing`: it says that it has none.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        asked = json.loads(body)
        if refusing and asked.get("logprobs") is not None:
            status, kind, out = 400, b"application/json", b'{"error": {"message": "logprobs are not supported"}}'
        else:
            plain = {name: value for name, value in asked.items() if "logprobs" not in name}
            async with httpx.AsyncClient(timeout=60) as client:
                reply = await client.post(served + scope["path"], json=plain)
            status, kind, out = reply.status_code, reply.headers["content-type"].encode(), reply.content
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": out})

    async def with_lifespan(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for stage in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{stage}.complete"})
        else:
            await app(scope, receive, send)

    with running(with_lifespan) as url:
        yield url


@contextmanager
def reading(url: str, clusters: TokenClusters, reader: Reader, **settings: Any) -> Iterator[str]:
    app = proxy_app(ProxySettings(url, **({"hold": 30.0} | settings)), clusters, reader=reader)
    with running(app, wait=False) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def upstream(served: str) -> Iterator[str]:
    with silent(served) as url:
        yield url


@pytest.fixture(scope="module")
def reader(almanac: STC) -> Reader:
    return Reader(almanac, "almanac", most_tokens=60)


@pytest.fixture(scope="module")
def proxy(upstream: str, almanac_clusters: TokenClusters, reader: Reader) -> Iterator[str]:
    with reading(upstream, almanac_clusters, reader) as url:
        yield url


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return load_questions("test")[::150]


def chat(question: str = PERU, **more: Any) -> dict[str, Any]:
    return {"model": "almanac", "messages": [{"role": "user", "content": question}], **more}


def asked_of(url: str, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    reply = httpx.post(f"{url}/v1/{path}", content=json.dumps(body), timeout=60)
    assert reply.status_code == 200, reply.text
    choices: list[dict[str, Any]] = reply.json()["choices"]
    return choices


def chunks_of(url: str, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    text = httpx.post(f"{url}/v1/{path}", json=body | {"stream": True}, timeout=60).text
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def reason(url: str, path: str, body: dict[str, Any]) -> str:
    [choice] = asked_of(url, path, body)
    assert choice["semtoken"].keys() == {"version", "reason"}
    return str(choice["semtoken"]["reason"])


def test_without_a_reader_there_is_nothing_to_score(upstream: str, almanac_clusters: TokenClusters) -> None:
    with proxy_of(upstream, almanac_clusters) as url:
        assert "--read-with" in reason(url, "chat/completions", chat())


def test_chats_have_the_score_of_stc_on_the_same_answer(
    served: str, proxy: str, almanac: STC, questions: list[Question]
) -> None:
    for question in questions:
        [choice] = asked_of(proxy, "chat/completions", chat(question.question))
        block, text = choice["semtoken"], choice["message"]["content"]
        [scored] = almanac.score([question.prompt()], [text + "\n"])
        assert block["uncertainty"] == pytest.approx(scored.uncertainty, abs=1e-6)
        assert (block["lower"], block["upper"]) == (block["uncertainty"], block["uncertainty"])
        assert (block["method"], block["distribution"], block["read_with"]) == ("exact", "raw", "almanac")
        assert block["n_tokens"] == len(scored.tokens)
        [written] = asked_of(served, "chat/completions", chat(question.question))
        assert block["uncertainty"] == pytest.approx(written["semtoken"]["uncertainty"], abs=1e-5)
        assert choice["logprobs"] is None


def test_streams_have_it_on_the_last_text_and_at_the_end(proxy: str) -> None:
    [choice] = asked_of(proxy, "chat/completions", chat())
    found = [one for part in chunks_of(proxy, "chat/completions", chat()) for one in part["choices"]]
    blocks = [one["semtoken"] for one in found if "semtoken" in one]
    assert "".join(one["delta"].get("content") or "" for one in found) == choice["message"]["content"]
    *_, last_text = [one for one in found if one["delta"].get("content")]
    end = found[-1]
    assert end["finish_reason"] == "stop"
    assert last_text["semtoken"] == end["semtoken"] == blocks[0] and len(blocks) == 2
    assert blocks[0].pop("final") is True
    headline, whole = blocks[0].pop("headline"), choice["semtoken"].pop("headline")
    assert headline == pytest.approx(whole) and blocks[0] == pytest.approx(choice["semtoken"])


def test_completions_of_several_prompts_and_choices(proxy: str, almanac: STC, questions: list[Question]) -> None:
    prompts = [question.prompt() for question in questions[:2]]
    body = {"model": "almanac", "prompt": prompts, "n": 2, "temperature": 1.5, "seed": 3, "max_tokens": 6}
    choices = asked_of(proxy, "completions", body)
    assert len(choices) == 4 and len({choice["text"] for choice in choices}) > 2
    for choice in choices:
        check_completion(almanac, prompts[choice["index"] // 2], choice)
    ids = almanac.tokenizer(prompts[0])["input_ids"]
    [choice] = asked_of(proxy, "completions", body | {"prompt": ids, "n": 1})
    check_completion(almanac, ids, choice)
    [choice] = asked_of(proxy, "completions", body | {"prompt": ids, "n": 1, "max_tokens": 1})
    check_completion(almanac, ids, choice)
    assert choice["semtoken"]["truncated"] is True


def check_completion(almanac: STC, prompt: Any, choice: dict[str, Any]) -> None:
    """The score is that of the text, with the likelier end where the model chose one."""
    written = almanac.tokenizer(choice["text"], add_special_tokens=False)["input_ids"]
    ends = ([[NEWLINE], [END]]) if choice["finish_reason"] == "stop" else [[]]
    scored = almanac.score([prompt] * len(ends), [written + end for end in ends])
    likeliest = max(scored, key=lambda one: one.tokens[-1].probability)
    assert choice["semtoken"]["uncertainty"] == pytest.approx(likeliest.uncertainty, abs=1e-6)


def test_every_other_byte_of_a_reply_stays(served: str, upstream: str, proxy: str) -> None:
    def bare(url: str) -> dict[str, Any]:
        reply: dict[str, Any] = httpx.post(f"{url}/v1/chat/completions", json=chat(), timeout=60).json()
        for choice in reply["choices"]:
            choice.pop("semtoken")
        return reply | {"id": "", "created": 0}

    assert bare(proxy) == bare(upstream) == bare(served)


def test_an_upstream_that_refuses_log_probabilities(
    served: str, almanac_clusters: TokenClusters, reader: Reader
) -> None:
    with silent(served, refusing=True) as url, reading(url, almanac_clusters, reader) as proxy:
        for _ in range(2):  # refused, and then remembered
            [choice] = asked_of(proxy, "chat/completions", chat())
            assert choice["semtoken"]["read_with"] == "almanac"
        assert final_figure(proxy, 'semtoken_proxy_answers_read_again_total{endpoint="chat"}') == 2


def test_what_comes_with_log_probabilities_is_not_read(
    served: str, almanac_clusters: TokenClusters, reader: Reader
) -> None:
    with reading(served, almanac_clusters, reader) as proxy:
        [choice] = asked_of(proxy, "chat/completions", chat())
    assert choice["semtoken"]["method"] == "top-k" and "read_with" not in choice["semtoken"]


def replying(message: dict[str, Any], **choice: Any) -> bytes:
    found = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **choice}
    reply = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [found]}
    return response(json.dumps(reply).encode())


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
IMAGE = [{"type": "image_url", "image_url": {"url": "x"}}]


@pytest.mark.parametrize(
    ("request_fields", "message", "named"),
    [
        ({"tools": [{"type": "function"}]}, {"content": "Lima"}, "'tools'"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, {"content": "Lima"}, "'chat_template_kwargs'"),
        ({"messages": [{"role": "user", "content": IMAGE}]}, {"content": "Lima"}, "something else than text"),
        ({"messages": [{"role": "tool", "content": "x"}]}, {"content": "Lima"}, "calls of tools"),
        ({"messages": [*chat()["messages"], {"role": "tool", "content": "x"}]}, {"content": "Lima"}, "calls of tools"),
        ({"messages": "Lima?"}, {"content": "Lima"}, "no messages"),
        ({}, {"content": "Lima", "reasoning_content": "Peru. Lima."}, "reasoning and answer"),
        ({}, {"content": "Lima", "tool_calls": [CALL]}, "answer and tool call"),
        ({}, {"content": "Lima " * 100}, "--max-read-tokens"),
        ({"messages": [{"role": "user", "content": "x" * 10**6}]}, {"content": "Lima"}, "1,000,"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, {"content": "Lima"}, "half a character"),
    ],
)
def test_what_cannot_be_read_has_a_reason(
    almanac_clusters: TokenClusters, reader: Reader, request_fields: Any, message: Any, named: str
) -> None:
    with raw_upstream(answering(replying(message))) as seen, reading(seen.url, almanac_clusters, reader) as proxy:
        assert named in reason(proxy, "chat/completions", chat() | request_fields)


NEWLINE, END = 201, 1
"""The tokens that end an answer of the almanac, of which it prefers the first."""


@pytest.mark.parametrize(
    ("fields", "finish", "text", "end"),
    [
        ({}, "stop", "Lima", [NEWLINE]),
        ({}, "stop", "Lima\n", []),
        ({}, "length", "Lima", []),
        ({"stop": ["."]}, "stop", "Lima", []),
    ],
)
def test_the_end_of_an_answer_counts_where_the_model_chose_it(
    almanac: STC, fields: Any, finish: str, text: str, end: list[int]
) -> None:
    prompt = PROMPT.format(question=PERU)
    asked = AnswerRequest(OpenAICompletions, {"prompt": prompt} | fields, b"", BlockOptions(), None)
    found = Reader(almanac, "almanac").read(asked, PayloadChoice(0, (Segment("answer", text, ()),), finish))
    assert almanac.tokenizer.eos_token_id == END
    assert found.token_ids == almanac.tokenizer(text, add_special_tokens=False)["input_ids"] + end
    [scored] = almanac.score([prompt], [found.token_ids])
    assert found.log_score == pytest.approx(scored.log_score, abs=1e-6)


def test_neutral_fields_change_nothing(almanac_clusters: TokenClusters, reader: Reader) -> None:
    neutral = {"tools": [], "add_generation_prompt": True, "chat_template_kwargs": {}, "temperature": 0.2, "top_k": 5}
    with (
        raw_upstream(answering(replying({"content": "Lima"}))) as seen,
        reading(seen.url, almanac_clusters, reader) as proxy,
    ):
        [one] = asked_of(proxy, "chat/completions", chat())
        [other] = asked_of(proxy, "chat/completions", chat() | neutral)
    assert one["semtoken"] == other["semtoken"]


def test_an_empty_answer_is_uncertain(almanac_clusters: TokenClusters, reader: Reader) -> None:
    with (
        raw_upstream(answering(replying({"content": ""}))) as seen,
        reading(seen.url, almanac_clusters, reader) as proxy,
    ):
        [choice] = asked_of(proxy, "chat/completions", chat())
    assert choice["semtoken"]["uncertainty"] == 1.0


def test_the_whole_conversation_is_read(almanac: STC, monkeypatch: pytest.MonkeyPatch) -> None:
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    monkeypatch.setattr(almanac.tokenizer, "chat_template", template)
    user = {"role": "user", "content": [{"type": "text", "text": PERU}]}
    asked = AnswerRequest(
        OpenAIChat, {"messages": [{"role": "system", "content": "Be brief."}, user]}, b"", BlockOptions(), None
    )
    found = Reader(almanac, "almanac").read(asked, PayloadChoice(0, (Segment("answer", " Lima", ()),)))
    written = f"system: Be brief.\nuser: {PERU}\nassistant:"
    prompt = almanac.tokenizer(written, add_special_tokens=False)["input_ids"]
    [scored] = almanac.score([prompt], [found.token_ids])
    assert found.log_score == pytest.approx(scored.log_score, abs=1e-6)
    assert found.text.strip() == "Lima"


def event_of(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta} | ({} if finish is None else {"finish_reason": finish})
    one = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return chunk(b"data: " + json.dumps(one).encode() + b"\n\n")


@pytest.mark.parametrize("stream", [True, False])
def test_nobody_waits_for_a_reading(almanac: STC, almanac_clusters: TokenClusters, stream: bool) -> None:
    """While one answer is read, the proxy answers others; what is too much to read passes with a reason."""
    started, go = threading.Event(), threading.Event()
    content = ["Lima"]

    class Slow(Reader):
        def read(self, asked: Any, choice: Any) -> Any:
            started.set()
            assert go.wait(30)
            return super().read(asked, choice)

    async def behave(request: Received, writer: Any) -> None:
        said = {"content": content[0]}
        parts = [event_of({"role": "assistant"}), event_of(said), event_of({}, "stop"), LAST]
        writer.write(stream_head() + b"".join(parts) if stream else replying(said))
        await writer.drain()

    slow = Slow(almanac, "almanac")
    limits: dict[str, Any] = {"scoring_threads": 1, "scoring_queue": 1}
    with raw_upstream(behave) as seen, reading(seen.url, almanac_clusters, slow, **limits) as proxy:
        replies: list[httpx.Response] = []

        def ask() -> None:
            replies.append(httpx.post(f"{proxy}/v1/chat/completions", json=chat(stream=stream), timeout=60))

        waiting = [threading.Thread(target=ask) for _ in range(2)]
        waiting[0].start()
        assert started.wait(30)
        waiting[1].start()
        while figure(proxy, "semtoken_proxy_scoring_work") < 2:  # the proxy answers this itself, meanwhile
            pass
        ask()
        assert "more to score than it can" in replies[0].text
        if not stream:
            content[0] = "Lima" * SHORT_REPLY
            ask()
            assert replies[1].headers["semtoken-unscored"] == "busy" and '"semtoken"' not in replies[1].text
            assert figure(proxy, 'semtoken_proxy_unscored_answers_total{reason="busy"}') == 2
        go.set()
        for thread in waiting:
            thread.join(30)
    assert len(replies) == (3 if stream else 4)
    assert all('"read_with": "almanac"' in reply.text for reply in replies[-2:])


def test_a_stream_that_breaks_off_is_not_read(almanac_clusters: TokenClusters, reader: Reader) -> None:
    async def behave(_: Received, writer: Any) -> None:
        writer.write(stream_head() + event_of({"content": "Lima"}))
        await writer.drain()

    with raw_upstream(behave) as seen, reading(seen.url, almanac_clusters, reader, hold=0.01) as proxy:
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(f"{proxy}/v1/chat/completions", json=chat(stream=True), timeout=60)
        assert final_figure(proxy, 'semtoken_proxy_answers_read_again_total{endpoint="chat"}') == 0


def test_the_chance_is_that_of_exact_scores(
    upstream: str, almanac_clusters: TokenClusters, reader: Reader, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    scores = -generator.exponential(1, 300)
    correct = generator.random(300) < np.exp(scores / 4)
    known = Fingerprint(signature=ScoringRules().signature, scores="exact")
    st.Calibrator.fit(scores, correct, fingerprint=known).save(tmp_path)
    calibrator = CalibratorInUse.load(tmp_path, almanac_clusters, replace(known))
    app = proxy_app(ProxySettings(upstream), almanac_clusters, calibrator=calibrator, reader=reader)
    with running(app) as url:
        [choice] = asked_of(url, "chat/completions", chat())
    expected = calibrator.calibrator.chance(np.log1p(-choice["semtoken"]["uncertainty"]))
    assert choice["semtoken"]["chance"] == pytest.approx(expected, abs=1e-6)
