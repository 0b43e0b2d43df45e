"""`semtoken serve` as the official client sees it."""

from __future__ import annotations

import json
import math
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch
from openai import OpenAI

from semtoken import Calibrator, ScoredAnswer, ScoredModel, TokenClusters, Vocabulary, score_reply
from semtoken.cli.listening import warn_if_open
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.methods.observers.steps import Completion, Observer, Step, finish, readings, show
from semtoken.models.transformers.identity import state_key
from semtoken.support.almanac import PROMPT
from semtoken.web.calibrators import CalibratorSlot
from semtoken.web.running import Address
from semtoken.web.serve.app import ServeLimits
from semtoken.web.serve.engine import Engine
from semtoken.web.serve.orders import RowEnd, RowToken
from semtoken.web.serve.service import Offer
from tests import tiny
from tests.rows import each
from tests.web.asking import (
    ROUNDING,
    added_to,
    assert_bad_request,
    assert_error,
    assert_holds,
    block_of,
    blocks_in,
    client_of,
    events_in,
    post,
    user,
)
from tests.web.conftest import TINY, proxy_of, serving
from tests.web.servers import connected, posted, wait_until

QUESTION = "Which city is the capital of Peru?"
ASKED: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def client(served: str) -> OpenAI:
    return client_of(served)


@pytest.fixture(scope="module")
def expected(almanac: Any) -> Any:
    [result] = almanac.generate(PROMPT.format(question=QUESTION), 24, stop_at_newline=True)
    return result


def text_of(result: Any) -> str:
    return str(result.text).partition("\n")[0]


def check_block(block: Any, expected: Any, *, final: bool | None = None) -> None:
    assert block["sequence_uncertainty"] == pytest.approx(expected.sequence_uncertainty, abs=ROUNDING)
    assert block["sequence_uncertainty_interval"] == [block["sequence_uncertainty"]] * 2
    assert (block["method"], block["distribution"]) == ("exact", "raw")
    assert block["n_tokens"] == len(expected.tokens)
    assert expected.signature == block["signature"]
    assert block.get("final") == final
    assert "reason" not in block


class TestChat:
    def test_answer_and_score_are_those_of_the_library(self, client: OpenAI, expected: Any) -> None:
        reply = client.chat.completions.create(model="almanac", messages=ASKED)
        [choice] = reply.choices
        assert choice.message.content == text_of(expected)
        assert choice.finish_reason == "stop"
        assert choice.logprobs is None
        block = added_to(choice)
        check_block(block, expected)
        assert "tokens" not in block
        assert reply.usage is not None
        assert reply.usage.completion_tokens == len(expected.tokens)

    def test_a_stream_says_the_same(self, client: OpenAI, expected: Any) -> None:
        asked: Any = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(client.chat.completions.create(model="almanac", messages=ASKED, **asked))
        *said, last, usage = chunks
        assert len(said) == 1 + len(expected.tokens)
        blocks = [c.choices[0].semtoken for c in said[1:]]
        with_text = [block for c, block in zip(said[1:], blocks, strict=True) if c.choices[0].delta.content]
        check_block(with_text[-1], expected, final=True)  # gateways lose the block of the chunk that ends the answer
        assert not any(block["final"] for block in with_text[:-1])
        assert "".join(c.choices[0].delta.content or "" for c in said) == text_of(expected)
        assert said[0].choices[0].delta.role == "assistant"
        assert [c.choices[0].finish_reason for c in said] == [None] * len(said)
        assert last.choices[0].finish_reason == "stop"
        check_block(last.choices[0].semtoken, expected, final=True)
        assert usage.choices == []
        assert usage.usage is not None
        assert usage.usage.completion_tokens == len(expected.tokens)
        assert len({c.id for c in chunks}) == 1

    @pytest.mark.parametrize("form", ["chat", "completions"])
    def test_text_that_only_the_end_brings_carries_the_final_score(
        self, client: OpenAI, almanac: Any, form: str
    ) -> None:
        """The last letter may begin a stop text while the answer goes on. It comes by itself once that has ended."""
        prompt = PROMPT.format(question=QUESTION)
        [cut] = almanac.generate(prompt, 1)
        asked: Any = {"model": "almanac", "stop": [cut.text[-1] + "§"], "max_tokens": 1, "stream": True}
        if form == "chat":
            chunks = client.chat.completions.create(messages=ASKED, logprobs=True, **asked)
            opening, *said = [(one.delta.content, one) for one in (chunk.choices[0] for chunk in chunks)]
            assert opening[1].delta.role == "assistant"
        else:
            completed = client.completions.create(prompt=prompt, logprobs=0, **asked)
            said = [(one.text, one) for one in (chunk.choices[0] for chunk in completed)]
        (begun, step), (rest, with_rest), (_, last) = said
        assert (begun, rest) == (cut.text[:-1], cut.text[-1])
        assert step.logprobs is not None and with_rest.logprobs is None
        assert [one.finish_reason for one in (step, with_rest, last)] == [None, None, "length"]
        for one in (with_rest, last):
            check_block(one.semtoken, cut, final=True)

    def test_values_so_far_lead_to_the_final_ones(self, client: OpenAI, almanac: Any) -> None:
        question = "What is the capital of Mexico?"
        [scored] = almanac.generate(PROMPT.format(question=question), 24, stop_at_newline=True)
        asked = client.chat.completions.create(model="almanac", messages=user(question), stream=True)
        blocks = [c.choices[0].semtoken for c in asked if hasattr(c.choices[0], "semtoken")]
        running = [block for block in blocks if not block["final"]]
        assert [block["n_tokens"] for block in running] == [1]  # "Mexico"; " City" is the last text
        assert running[0]["sequence_uncertainty_interval"][0] - ROUNDING <= scored.sequence_uncertainty
        assert blocks == running + [blocks[-1]] * (len(blocks) - 1)
        check_block(blocks[-1], scored, final=True)

    def test_log_probabilities_are_raw_and_name_their_tokens(self, client: OpenAI, almanac: Any) -> None:
        reply = client.chat.completions.create(
            model="almanac", messages=ASKED, logprobs=True, top_logprobs=7, temperature=0.7, seed=3
        )
        choice: Any = reply.choices[0]
        content = choice.logprobs.content
        [scored] = almanac.score(PROMPT.format(question=QUESTION), [[item.id for item in content]])
        expected = [t.log_probability for t in scored.tokens]
        assert [item.logprob for item in content] == pytest.approx(expected, abs=ROUNDING)
        check_block(choice.semtoken, scored)
        spelled = b"".join(bytes(item.bytes or []) for item in content).decode()
        assert spelled.startswith(choice.message.content or "?")
        for item in content:
            best = [t.logprob for t in item.top_logprobs]
            assert len(best) == 7
            assert best == sorted(best, reverse=True)
            assert sum(map(math.exp, best)) <= 1 + ROUNDING

    def test_tokens_on_request(self, client: OpenAI, expected: Any) -> None:
        asked = {"model": "almanac", "messages": ASKED, "extra_body": {"semtoken": {"tokens": True}}}
        reply = client.chat.completions.create(**asked)
        *_, last = client.chat.completions.create(**asked, stream=True)
        agreeing = [t.agreeing_probability for t in expected.tokens]
        for block in (reply.choices[0].semtoken, last.choices[0].semtoken):
            assert [t["id"] for t in block["tokens"]] == expected.token_ids
            assert [t["agreeing_probability"] for t in block["tokens"]] == pytest.approx(agreeing, abs=ROUNDING)

    def test_parts_and_competing_meanings_on_request(self, client: OpenAI, expected: Any, almanac: Any) -> None:
        wanted = {"parts": "word", "competing": 2}
        reply = client.chat.completions.create(model="almanac", messages=ASKED, extra_body={"semtoken": wanted})
        block = added_to(reply.choices[0])
        parts = expected.parts("word")
        assert [part["text"] for part in block["parts"]] == [part.text for part in parts]
        confidences = [part.confidence for part in parts]
        assert [part["confidence"] for part in block["parts"]] == pytest.approx(confidences, abs=ROUNDING)
        doubtful = {i for i, t in enumerate(expected.tokens) if t.probability < 0.9 and t.text.strip()}
        assert {step["step"] for step in block["competing"]} <= doubtful
        assert all(1 <= len(step["meanings"]) <= 2 for step in block["competing"])
        with pytest.raises(openai.BadRequestError, match="semtoken may hold"):
            client.chat.completions.create(model="almanac", messages=ASKED, extra_body={"semtoken": {"parts": "x"}})

    @each("more", [{}, {"disputes": 2}])
    def test_parts_end_with_their_time(self, almanac: Any, more: Any) -> None:
        asked = {"messages": ASKED, "semtoken": {"parts": "word", **more}}
        with serving(almanac, Offer("almanac", part_seconds=0.0)) as url:
            block = block_of(post(url, json=asked))
        assert 0 <= block["sequence_uncertainty"] <= 1
        assert "parts" not in block
        assert "0 seconds" in block["disputes_refused" if more else "parts_refused"]

    def test_chance_is_repeatable_and_differs_between_choices(self, client: OpenAI) -> None:
        asked: Any = {"model": "almanac", "messages": ASKED, "temperature": 1.5, "n": 4}
        first, second, third = (client.chat.completions.create(**asked, seed=seed) for seed in (1, 1, 2))
        texts = [[c.message.content for c in reply.choices] for reply in (first, second, third)]
        assert texts[0] == texts[1] != texts[2]
        assert len(set(texts[0])) > 1
        assert [c.index for c in first.choices] == list(range(4))
        narrow = client.chat.completions.create(**asked, top_p=0.0001)
        assert len({c.message.content for c in narrow.choices}) == 1

    def test_temperatures_next_to_nothing(self, client: OpenAI, expected: Any) -> None:
        for temperature in (5e-324, 1e-300, 1e-30, 1e-9, 0.01):
            reply = client.chat.completions.create(model="almanac", messages=ASKED, temperature=temperature)
            assert reply.choices[0].message.content == text_of(expected)

    def test_parts_of_text(self, client: OpenAI, expected: Any) -> None:
        parts = [{"type": "text", "text": QUESTION[:9]}, {"type": "text", "text": QUESTION[9:]}]
        messages: Any = [{"role": "user", "content": parts}]
        reply = client.chat.completions.create(model="almanac", messages=messages)
        assert reply.choices[0].message.content == text_of(expected)


class TestCompletions:
    PROMPT = PROMPT.format(question=QUESTION)

    def test_prompts_as_texts_and_ids(self, client: OpenAI, almanac: Any, expected: Any) -> None:
        ids = almanac.tokenizer(self.PROMPT).input_ids
        [of_ids] = almanac.generate([ids], 24, stop_at_newline=True)  # whose question is not known
        for prompt in (self.PROMPT, ids, [self.PROMPT, self.PROMPT], [ids]):
            reply = client.completions.create(model="almanac", prompt=prompt, n=2)
            assert len(reply.choices) == 2 * (2 if prompt == [self.PROMPT] * 2 else 1)
            for choice in reply.choices:
                assert choice.text == text_of(expected)
                check_block(added_to(choice), of_ids if prompt in (ids, [ids]) else expected)
            assert reply.usage is not None
            assert reply.usage.prompt_tokens == len(ids) * len(reply.choices) // 2

    def test_log_probabilities(self, client: OpenAI, expected: Any) -> None:
        reply = client.completions.create(model="almanac", prompt=self.PROMPT, logprobs=3)
        lists = reply.choices[0].logprobs
        assert lists is not None
        assert lists.token_logprobs == pytest.approx([t.log_probability for t in expected.tokens], abs=ROUNDING)
        assert "".join(lists.tokens or []) == expected.text
        assert lists.text_offset == [expected.text.index(t.text, t.start) for t in expected.tokens]
        assert all(3 <= len(top) <= 4 for top in lists.top_logprobs or [])

    def test_a_stream_says_the_same(self, client: OpenAI, expected: Any) -> None:
        *said, last = client.completions.create(model="almanac", prompt=self.PROMPT, stream=True, logprobs=0)
        assert "".join(c.choices[0].text for c in said) == text_of(expected)
        assert [c.choices[0].logprobs.text_offset for c in said] == [[t.start] for t in expected.tokens]  # type: ignore[union-attr]
        check_block(added_to(last.choices[0]), expected, final=True)


class TestItsOwnReplies:
    """A reply that is read has the number that the server gave for it, whatever ended the answer."""

    @each("stream", [False, True])
    @each(("stop", "form"), [(None, "chat"), (None, "completions"), ("\n", "completions"), ("im", "completions")])
    def test_of_a_model_that_ends_its_answers_with_a_newline(
        self, served: str, almanac: Any, stop: str | None, form: str, stream: bool
    ) -> None:
        asked = {"messages": ASKED, "logprobs": True, "top_logprobs": 20} if form == "chat" else {"logprobs": 20}
        path = "/v1/chat/completions" if form == "chat" else "/v1/completions"
        asked |= {"stop": stop, "stream": stream, **({} if form == "chat" else {"prompt": TestCompletions.PROMPT})}
        reply = post(served, path, json=asked)
        [read] = score_reply(reply.text if stream else reply.json(), almanac.clusters)
        ends = [one["choices"][0] for one in events_in(reply.text)[-1:]] if stream else reply.json()["choices"]
        newline = almanac.tokenizer.convert_tokens_to_ids("Ċ")
        assert ends[0]["stop_reason"] == (stop if stop == "im" else newline)
        self.assert_same(read, block_of(reply))

    @each("seed", [0, 1, 3])
    def test_no_token_of_a_stop_text_counts(self, seed: int) -> None:
        """The number is that of the tokens which hold the message, as if the model had ended there."""
        stc = small()
        prompt = stc.tokenizer("hi").input_ids
        asked = {"prompt": "hi", "temperature": 1.0, "max_tokens": 24, "seed": seed, "logprobs": 20}
        with serving(stc) as url:
            text = post(url, "/v1/completions", json=asked).json()["choices"][0]["text"]
            stops = {text[at : at + 2] for at in range(2, len(text) - 2, 2)}
            for stop in sorted(one for one in stops if one.isascii() and one.isalnum()):
                reply = post(url, "/v1/completions", json=asked | {"stop": [stop, "zzz"], "return_token_ids": True})
                [choice] = reply.json()["choices"]
                assert choice["stop_reason"] == stop
                n, block = choice["semtoken"]["n_tokens"], choice["semtoken"]
                vocabulary, ids = stc.scorer.vocabulary, choice["token_ids"]
                assert vocabulary.decode(ids[:n]).startswith(choice["text"].rstrip())
                assert not n or not vocabulary.decode(ids[: n - 1]).startswith(choice["text"])
                [own] = stc.score([prompt], [ids[:n]])
                assert block["sequence_uncertainty"] == pytest.approx(own.sequence_uncertainty, abs=ROUNDING)
                if "\ufffd" not in choice["text"] and choice["text"].strip():
                    self.assert_same(score_reply(reply.json(), stc.clusters)[0], block)

    @each("lists", [False, True])
    def test_nor_does_what_an_engine_writes_behind_it(self, lists: bool) -> None:
        """As engines do that answer as a whole, with all logits or with lists of the best tokens."""
        stc, blocks = small(), []
        heedless = ScoredModel(AnswersAsAWhole(stc.backend, lists=lists), clusters=stc.clusters)
        for model in (stc, heedless):
            with serving(model) as url:
                asked = {"prompt": "hi", "max_tokens": 24}
                text = post(url, "/v1/completions", json=asked).json()["choices"][0]["text"]
                reply = post(url, "/v1/completions", json=asked | {"stop": text[12:14]}).json()
                [choice] = reply["choices"]
                blocks.append(choice["semtoken"] | reply["usage"])
                assert (choice["text"], choice["stop_reason"]) == (text[: text.index(text[12:14])], text[12:14])
                assert (choice["finish_reason"], blocks[-1]["truncated"]) == ("stop", False)
        for name in ("n_tokens", "completion_tokens"):
            assert blocks[0][name] == blocks[1][name]
        assert_holds(blocks[1]["sequence_uncertainty_interval"], blocks[0]["sequence_uncertainty"])

    @staticmethod
    def assert_same(read: ScoredAnswer, block: Any) -> None:
        assert read.n_tokens == block["n_tokens"]
        assert_holds(read.sequence_uncertainty_interval, block["sequence_uncertainty"], rounding=1e-6)


class TestOtherPages:
    def test_many_at_once(self, served: str, expected: Any) -> None:
        with ThreadPoolExecutor(12) as pool:
            asked = {"model": "almanac", "messages": ASKED}
            for reply in pool.map(lambda _: post(served, json=asked), range(12)):
                check_block(block_of(reply), expected)


class TestErrors:
    @each(
        ("prompt", "words"),
        [
            (["a"] * 17, "at most 16 items"),
            ([[1]] * 17, "at most 16 items"),
            ([1, "a"], "valid integer"),
            (["a", 1], "valid string"),
            ([], "at least 1 item"),
            ("", ""),
            ([10**6], ""),
            ([7] * 600, "The model reads 512 tokens. The prompt has 600 tokens"),
            ("the capital " * 8000, "The prompt has 96,000 characters, which are more tokens than that"),
        ],
    )
    def test_a_prompt_is_refused_for_what_is_wrong_with_it(self, served: str, prompt: Any, words: str) -> None:
        assert_bad_request(post(served, "/v1/completions", json={"prompt": prompt}), "prompt", words)

    @each(
        ("parts", "place"),
        [
            ([{"type": "image_url"}], "[0].image_url"),
            (
                [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"image_url": 1}}],
                "[1].image_url.url",
            ),
            ([{"type": "text", "text": 7}], "[0].text"),
            ([{"type": "audio"}], "[0]"),
            (["a"], "[0]"),
            (7, ""),
        ],
    )
    def test_the_place_of_an_error_is_that_in_the_request(self, served: str, parts: Any, place: str) -> None:
        asked = {"messages": [*ASKED, {"role": "user", "content": parts}]}
        assert_bad_request(post(served, json=asked), "messages", f"'messages[2].content{place}'")

    @each(("stop", "place"), [(7, "stop"), ([7], "stop[0]"), (["a"] * 17, "stop")])
    def test_so_is_that_of_other_fields_with_several_forms(self, served: str, stop: Any, place: str) -> None:
        assert_bad_request(post(served, "/v1/completions", json={"prompt": "a", "stop": stop}), "stop", f"'{place}'")

    HALF = "\ud800"

    @each("field", [{"messages": user(HALF)}, {"model": HALF}, {"stop": HALF}, {"metadata": {HALF: HALF}}])
    def test_half_a_character_is_refused_wherever_it_is(self, served: str, field: dict[str, Any]) -> None:
        answer = post(served, content=json.dumps({"messages": ASKED, **field}))
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")

    @each(
        ("path", "neutral"),
        [
            ("/v1/chat/completions", {"tools": [], "tool_choice": "auto", "response_format": {"type": "text"}}),
            ("/v1/chat/completions", {"modalities": ["text"], "audio": None, "functions": [], "function_call": "none"}),
            ("/v1/completions", {"echo": False, "suffix": "", "best_of": 1}),
        ],
    )
    def test_settings_are_taken_where_they_change_no_answer(
        self, served: str, path: str, neutral: dict[str, Any]
    ) -> None:
        asked = {"messages": ASKED} if "chat" in path else {"prompt": QUESTION}
        usual = {"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, **neutral}
        assert post(served, path, json={**asked, "max_tokens": 1, **usual}).status_code == 200
        for name in usual:
            assert_error(post(served, path, json={**asked, name: -1}), 400, "unsupported_parameter")

    @each("seed", [2**70, -1])
    def test_extreme_seeds_are_seeds(self, served: str, seed: int) -> None:
        block = block_of(post(served, json={"messages": ASKED, "seed": seed}))
        assert 0 <= block["sequence_uncertainty"] <= 1

    @each("body", [b"", b"{", b"[]", b"[" * 100_000, b'"\xff"', b'{"seed": ' + b"9" * 5000 + b"}"])
    def test_what_is_no_json(self, served: str, body: bytes) -> None:
        answer = post(served, content=body)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")

    def test_a_body_that_is_too_long(self, served: str) -> None:
        answer = post(served, "/v1/completions", content=b" " * (2**25 + 1))
        assert_error(answer, 413, "request_too_large")

    @pytest.mark.slow
    def test_a_long_prompt_keeps_nobody_waiting(self, almanac: Any) -> None:
        class Roomy(Engine):
            room = 10**6

        body = {"prompt": "hello wor \n" * 170_000}
        waited = []
        with serving(Roomy(almanac), Offer("almanac")) as url, ThreadPoolExecutor(1) as pool:
            asking = pool.submit(post, url, "/v1/completions", json=body)
            while not asking.done():
                start = time.monotonic()
                assert httpx.get(url + "/health", timeout=60).status_code == 200
                waited.append(time.monotonic() - start)
        assert asking.result().status_code == 400
        assert len(waited) > 3 and sorted(waited)[len(waited) // 2] < sum(waited) / 3

    def test_what_is_too_much_is_refused_at_once(self) -> None:
        with serving(small(), limits=ServeLimits(requests=2, body_timeout=0.5)) as url:
            held = [connected(url) for _ in range(2)]
            for sock in held:
                sock.sendall(posted("/v1/completions", b"{", length=9))
            time.sleep(0.1)
            refused = post(url, "/v1/completions", json={"prompt": "hi"})
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert httpx.get(url + "/health").status_code == 200
            for sock in held:
                assert sock.recv(100).startswith(b"HTTP/1.1 408")
                sock.close()
            whole = post(url, "/v1/completions", json={"prompt": "hi"}).json()
            assert whole["usage"]["completion_tokens"] == 16, "as many as OpenAI gives whoever names no length"

    def test_too_much_to_read_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        limits = ServeLimits(prepared_inline_bytes=0, prepared_at_once=1, prepared_later=1)
        release = threading.Event()
        stc = small()
        tokenizer = stc.tokenizer

        class Slow:
            """A tokenizer that takes its time."""

            def __call__(self, text: str, **options: Any) -> Any:
                release.wait(20)
                return tokenizer(text, **options)

            def __getattr__(self, name: str) -> Any:
                return getattr(tokenizer, name)

        monkeypatch.setattr(stc.backend, "tokenizer", Slow())
        with serving(stc, limits=limits) as url, ThreadPoolExecutor(3) as pool:
            asking = [pool.submit(post, url, "/v1/completions", json={"prompt": "hi"}) for _ in range(3)]
            refused = next(as_completed(asking)).result()
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            release.set()
            assert sorted(one.result().status_code for one in asking) == [200, 200, 503]


@cache
def small(broken: bool = False) -> ScoredModel:
    """A tiny random model that never ends an answer by itself; broken: it gives NaN."""
    tokenizer = tiny.byte_level_bpe()
    model = tiny.llama(len(tokenizer))
    model.generation_config.eos_token_id = None
    tokenizer_without_end = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, pad_token="<|pad|>")
    if broken:
        with torch.no_grad():
            model.lm_head.weight[7] = float("nan")
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    clusters = TokenClusters(np.random.default_rng(0).integers(0, 100, vocabulary.size).astype(np.int32), vocabulary)
    return ScoredModel(model, tokenizer_without_end, clusters)


class AnswersAsAWhole:
    """A backend that goes on to the limit whatever the observers say, perhaps with lists of the best 20 tokens."""

    joins = False

    def __init__(self, backend: Any, *, lists: bool) -> None:
        self._backend = backend
        self._lists = lists

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def generate(self, prompts: Any, decodings: Any, observers: Any) -> Any:
        def shown(step: Step) -> Step:
            return replace(step, logits=None, rows=(), best=step.best_of(20)) if self._lists else step

        class Heedless(Observer):
            reads = readings(observers)

            def observe(self, step: Step) -> None:
                show(shown(step), observers)

            def finish(self, answer: int, completion: Completion) -> None:
                finish(answer, completion, observers)

        return self._backend.generate(prompts, decodings, [Heedless()])


class FailingEngine(Engine):
    def run(self, orders: Any, more: Any = None) -> None:
        more(1)  # what has joined fails, too
        raise MemoryError("at address 0xsecret")


@pytest.mark.parametrize("broken", [True, False])
def test_a_failure_is_said_without_its_details(broken: bool, caplog: pytest.LogCaptureFixture) -> None:
    said = "NaN" if broken else "MemoryError"
    with serving(small(broken=True) if broken else FailingEngine(small())) as url:
        asked: Any = {"model": "tiny", "messages": ASKED}
        with pytest.raises(openai.InternalServerError, match=said) as caught:
            client_of(url).chat.completions.create(**asked)
        with pytest.raises(openai.APIError, match=said):
            list(client_of(url).chat.completions.create(**asked, stream=True))
    assert "secret" not in str(caught.value) and ("secret" in caplog.text) == (not broken)


class CountingEngine(Engine):
    """Counts the steps that were made, and the ends of answers."""

    steps = 0
    finished = 0

    def run(self, orders: Any, more: Any = lambda running: ()) -> None:
        def counting(emit: Any) -> Any:
            def counted(item: Any) -> None:
                self.steps += isinstance(item, RowToken | RowEnd)
                time.sleep(0.01)
                emit(item)

            return counted

        def counted(orders: Any) -> Any:
            return [replace(order, emit=counting(order.emit)) for order in orders]

        super().run(counted(orders), lambda running: counted(more(running)))
        self.finished += 1


HI = {"messages": user("hi"), "max_tokens": 2}


def test_pages_of_other_sites_cannot_use_the_server() -> None:
    with serving(small()) as url:
        assert_error(post(url, json=HI, headers={"Host": "rebound.example"}), 403, "foreign_host")
        for origin in ("https://page.example", "null"):
            assert_error(post(url, json=HI, headers={"Origin": origin}), 403, "foreign_origin")
        assert post(url, json=HI, headers={"Origin": url}).status_code == 200


@each("strict", [True, False])
def test_a_head_without_an_end_is_not_kept(strict: bool) -> None:
    with serving(small(), strict=strict) as url, connected(url) as sock, suppress(ConnectionError):
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000)
        reply = sock.recv(4096)
        assert not reply or reply.startswith(b"HTTP/1.1 4")


def test_names_that_are_allowed_reach_the_server() -> None:
    with serving(small(), allowed_hosts=("models.example",)) as url:
        assert httpx.get(url + "/health", headers={"Host": "models.example:80"}).status_code == 200
        assert httpx.get(url + "/health").status_code == 403


def streaming(url: str, **fields: Any) -> Any:
    """An answer that is read as it comes."""
    return httpx.stream("POST", url + "/v1/chat/completions", json=HI | {"stream": True} | fields, timeout=60)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_the_generation(stream: bool) -> None:
    engine = CountingEngine(small())
    Engine(engine.stc).warm_up()  # so that the seconds below are not those of a first answer
    with serving(engine) as url:
        if stream:
            with streaming(url, max_tokens=200) as answer:
                next(answer.iter_raw())
        else:
            with pytest.raises(httpx.ReadTimeout):
                post(url, json=HI | {"max_tokens": 200}, timeout=0.3)
        wait_until(lambda: engine.finished)
        assert engine.finished == 1
        assert engine.steps < 200
        assert block_of(post(url, json=HI))["n_tokens"] == 2


def test_a_lone_client_waits_twice_at_most_for_a_look_at_the_state_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look takes milliseconds, which come before the first token."""
    looks = []

    def look(model: Any) -> str:
        looks.append(model)
        return state_key(model)

    with serving(small()) as url:
        post(url, json=HI)
        monkeypatch.setattr("semtoken.models.transformers.model.state_key", look)
        post(url, json=HI)
        assert 1 <= len(looks) <= 2


def calibrated(share: float) -> CalibratorInUse:
    """Gives nearly every answer the same probability."""
    generator = np.random.default_rng(0)
    return CalibratorInUse(Calibrator.fit(-generator.exponential(1000.0, 300), generator.random(300) < share))


def test_an_answer_keeps_the_calibrator_that_it_began_with() -> None:
    """Also where another one comes into use before its end, and behind the proxy as well."""
    low, high = calibrated(0.2), calibrated(0.8)
    engine = CountingEngine(small())
    Engine(engine.stc).warm_up()
    slots = CalibratorSlot(low), CalibratorSlot(low)
    with ExitStack() as stack:
        served = stack.enter_context(serving(engine, replace(TINY, calibrator=slots[0])))
        proxied = stack.enter_context(proxy_of(served, None, page=False, calibrator=slots[1]))
        for url, slot in zip((served, proxied), slots, strict=True):
            probabilities = []
            for _ in range(2):  # the second answer begins when the other calibrator is in use
                with streaming(url, max_tokens=25) as reply:
                    lines = reply.iter_lines()
                    next(lines)
                    slot.current = high
                    blocks = blocks_in(events_in("\n".join(lines)))
                probabilities.append(blocks[-1]["probability_correct"])
            assert probabilities[0] < 0.4 and probabilities[1] > 0.6


def test_waiting_requests_whose_clients_left_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semtoken.web.connections.LOOK_FIRST", 0.0)  # in half a second the tiny model is done
    engine = CountingEngine(small())
    with serving(engine, limits=ServeLimits(together=1)) as url:
        with streaming(url, max_tokens=60) as first:
            lines = first.iter_lines()
            next(lines)
            with pytest.raises(httpx.ReadTimeout):
                post(url, json=HI | {"max_tokens": 60}, timeout=0.1)
            assert events_in("\n".join(lines))[-1]["choices"]
        # Requests are taken in the order in which they came: once this one is answered, the one before had its turn.
        assert post(url, json=HI).status_code == 200
        assert engine.steps == 61 + 3


@pytest.mark.slow
def test_the_command_tells_what_to_try_and_stops_on_a_signal() -> None:
    command = [sys.executable, "-m", "semtoken", "serve", "--port", "0", "--host", "localhost"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        told = [process.stderr.readline() for _ in range(3)]
        found = re.search(r"http://[\d.:]+/v1", told[0])
        assert found is not None
        assert f"curl {found.group()}/chat/completions" in told[1]
        asked = re.search(r"'(\{.*\})'", told[2])
        assert asked is not None
        answer = post(found.group(), "/chat/completions", json=json.loads(asked.group(1)))
        assert block_of(answer)["method"] == "exact"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait(10)
        process.stderr.close()


def test_other_machines_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    for host in ("127.0.0.1", "::1", "127.8.9.1", "localhost"):
        warn_if_open(Address(host, 80))
    assert capsys.readouterr().err == ""
    for host in ("0.0.0.0", "::", "10.1.2.3", "example.org"):
        warn_if_open(Address(host, 80))
        assert "no password" in capsys.readouterr().err


def test_the_example_of_the_client(
    served: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Path(__file__).parents[2] / "examples" / "openai_client.py"
    monkeypatch.setattr(sys, "argv", [str(script), served + "/v1"])
    runpy.run_path(str(script), run_name="__main__")
    told = capsys.readouterr().out
    assert told.count("confidence") == 2 and "sequence_uncertainty" not in told
