"""Inspect's provider, scorer and metrics where Inspect is not installed, on what it gave in its live test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from semtoken import ScoredModel, TokenClusters, score_reply
from semtoken.core.results.blocks import block_of, numbers_of
from semtoken.errors import InvalidInputError, ModelError
from semtoken.integrations.local import LocalChat
from tests.integrations.recordings import gateway, recorded
from tests.integrations.test_messages import CHOICE, REPLY
from tests.rows import each
from tests.stand_ins import CLOSE, QUESTIONS, Fields, imported, same
from tests.web.servers import running


class Provider:
    """Inspect's base class of providers, which keeps what it is given."""

    def __init__(self, model_name: str, base_url: str | None, api_key: str | None, names: list[str], config: Any):
        self.model_name, self.base_url, self.api_key = model_name, base_url, api_key
        self.names, self.config = names, config


async def graded(state: Any, target: Any) -> Any:
    return None if target is None else Fields(value=target, metadata=state.metadata)


@pytest.fixture(scope="module")
def inspect() -> Iterator[ModuleType]:
    names = ("ChatCompletionChoice", "ChatMessageAssistant", "GenerateConfig", "Logprobs", "ModelOutput", "ModelUsage")
    model = dict.fromkeys(names, Fields) | {"ModelAPI": Provider, "modelapi": same}
    scorer = {"SampleScore": Fields, "accuracy": lambda: None, "metric": same, "scorer": same}
    scorer["value_to_float"] = lambda: {"C": 1.0, "I": 0.0}.__getitem__
    util = {"registry_create": lambda kind, name: (kind, name) == ("scorer", "graded") and graded}
    with imported(
        "semtoken.integrations.inspect_ai", inspect_ai__model=model, inspect_ai__scorer=scorer, inspect_ai__util=util
    ) as module:
        yield module


def scored_by(inspect: ModuleType, output: Any, target: Any, asked: str = "", **options: Any) -> Any:
    """The score of `with_uncertainty` around a scorer that takes the target for its value."""
    state = SimpleNamespace(output=output, metadata={"kept": 1}, messages=[Fields(role="user", text=asked)])
    return asyncio.run(inspect.with_uncertainty("graded", **options)(state, target))


def test_metrics_and_metadata_of_inspect_are_those_of_its_run(inspect: ModuleType) -> None:
    run = recorded("inspect_ai")
    scores = []
    for output, right, metadata in zip(run["outputs"], run["correct"], run["metadata"], strict=True):
        scores.append(Fields(score=scored_by(inspect, Fields(**output), "C" if right else "I")))
        assert scores[-1].score.metadata == {"kept": 1} | metadata
    found = inspect.auroc()(scores) | inspect.prr()(scores) | inspect.risk_coverage()(scores)
    assert found == pytest.approx({name: run["figures"][name] for name in found}) and len(found) == 12
    assert inspect.risk_coverage((0.25,))(scores).keys() >= {"risk_at_25", "risk_at_100"}
    nothing = Fields(score=scored_by(inspect, Fields(metadata=None, choices=[]), "C"))
    assert "brings no score" in nothing.score.metadata["no_uncertainty"]
    assert inspect.without_uncertainty()([*scores, nothing, nothing]) == 2.0
    assert scored_by(inspect, nothing, None) is None  # of a scorer that declines the sample


def test_inspect_scores_other_providers_by_their_log_probabilities(
    inspect: ModuleType, almanac_clusters: TokenClusters
) -> None:
    sent = gateway("serve")["whole"]["choices"][0]
    del sent["logprobs"]["content"][-1]  # the line break that may have ended it: test_messages
    message = Fields(text=sent["message"]["content"], tool_calls=None)
    choice = Fields(message=message, stop_reason="stop", logprobs=Fields(**sent["logprobs"]))
    reply = {"choices": [sent]}
    asked = "What is the capital of Mexico?"
    given: list[tuple[Any, dict[str, Any]]] = [
        (None, {}),
        (None, {"equality": "exact"}),
        (almanac_clusters, {"preset": "paper"}),
    ]
    for vocabulary, options in given:
        [expected] = score_reply(reply, vocabulary, **options, question=asked)
        output = Fields(metadata={}, choices=[choice, None])
        found = scored_by(inspect, output, "C", asked, vocabulary=vocabulary, **options).metadata
        assert found.pop("kept") == 1
        assert found == numbers_of(expected) | {"method": "top-k"}


def test_inspect_leaves_the_tokens_of_a_call_out(inspect: ModuleType) -> None:
    calls = [Fields(function="weather", arguments={})]
    choice = Fields(
        message=Fields(text="Wait.", tool_calls=calls), stop_reason="stop", logprobs=Fields(**CHOICE["logprobs"])
    )
    [expected] = score_reply(REPLY)
    assert inspect.uncertainty_of(Fields(metadata={}, choices=[choice]))["confidence"] == expected.confidence
    unscored = {"semtoken": [{"version": 1, "reason": "no log-probabilities"}, None]}
    assert inspect.uncertainty_of(Fields(metadata=unscored)) == {"no_uncertainty": "no log-probabilities"}


SETTINGS = {"max_tokens": 8, "temperature": 0.0, "stop_seqs": ["x"], "num_choices": 1, "logprobs": True}


def said(text: str, *parts: str, **more: Any) -> Fields:
    """A message of a user, its text alone or one of these parts."""
    content = [Fields(type=kind) for kind in parts] or text
    return Fields(role="user", content=content, text=text, **more)


@each(
    ("message", "settings", "named"),
    [
        (said("What is this?", "text", "image"), {}, "a message of the user has image"),
        (said("Wait.", tool_calls=[1]), {}, "has calls of tools"),
        (said("What?"), {"reasoning_effort": "high", "best_of": 3}, "no setting best_of, reasoning_effort"),
    ],
)
def test_inspect_leaves_nothing_of_a_request_out_unseen(
    inspect: ModuleType, message: Any, settings: dict[str, Any], named: str
) -> None:
    api = inspect.SemtokenAPI("almanac", "http://127.0.0.1:1")
    with pytest.raises(InvalidInputError, match=named):
        asyncio.run(api.generate([message], [], None, Fields(**settings)))


def test_inspect_asks_a_server(inspect: ModuleType) -> None:
    seen: list[Any] = []
    reply = gateway("serve")["whole"]

    async def answer(request: Request) -> JSONResponse:
        seen.append((request.url.path, request.headers["authorization"], await request.json()))
        return JSONResponse(reply if len(seen) == 1 else {"choices": [{"message": {}, "finish_reason": "odd"}]})

    own: dict[str, Any] = {"max_retries": 3, "extra_body": {"semtoken": {"tokens": True}}, "reasoning_effort": None}
    config = Fields(**SETTINGS, **own)
    message = said("What is the capital of Mexico?", "text", "reasoning")

    async def ask(url: str) -> list[Any]:
        api = inspect.semtoken()("almanac", f"{url}/v1/", "sk-1")
        outputs = [await api.generate([message], [], None, config) for _ in range(2)]
        await api.aclose()
        return outputs

    with running(Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])]), wait=False) as url:
        whole, bare = asyncio.run(ask(url))
    sent = {"max_tokens": 8, "temperature": 0.0, "stop": ["x"], "n": 1, "logprobs": True, "model": "almanac"}
    sent |= own["extra_body"]
    sent["messages"] = [{"role": "user", "content": "What is the capital of Mexico?"}]
    assert seen == [("/v1/chat/completions", "Bearer sk-1", sent)] * 2
    [choice], [given] = whole.choices, reply["choices"]
    assert (choice.message.content, choice.stop_reason) == (given["message"]["content"], "stop")
    assert choice.logprobs.content == given["logprobs"]["content"]
    used = reply["usage"]
    assert vars(whole.usage) == {
        "input_tokens": used["prompt_tokens"],
        "output_tokens": used["completion_tokens"],
        "total_tokens": used["total_tokens"],
    }
    assert (whole.model, whole.response_id, whole.metadata) == (
        reply["model"],
        reply["id"],
        {"semtoken": [block_of(given)]},
    )
    assert vars(bare.usage) == {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    assert (bare.model, bare.choices[0].message.content, bare.choices[0].stop_reason) == ("", "", "unknown")
    assert bare.choices[0].logprobs is None and bare.metadata == {"semtoken": [None]}


def test_inspect_asks_a_model_in_this_process_that_is_loaded_once(inspect: ModuleType, almanac: ScoredModel) -> None:
    question = QUESTIONS["test-0000"]
    loaded: list[Any] = []

    def load(name: str, **options: Any) -> LocalChat:
        loaded.append((name, options))
        return LocalChat(almanac, name)

    config = Fields(max_tokens=24)
    one, again, _looked_up = (
        inspect.SemtokenAPI("almanac", **options) for options in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {})
    )
    with patch.object(LocalChat, "load", load):
        outputs = [asyncio.run(api.generate([said(question.question)], [], None, config)) for api in (one, again)]
    assert loaded == [("almanac", {"a": 1, "b": 2})]
    [expected] = almanac.generate([question.prompt()], 24, stop_at_newline=True)
    for output in outputs:
        [block] = output.metadata["semtoken"]
        assert block["confidence"] == pytest.approx(expected.confidence, abs=CLOSE)
    asyncio.run(one.aclose())
    [chat] = inspect._LOADED.values()
    chat.result().close()
    assert (one.names, one.max_connections(), one.should_retry(OSError())) == (["SEMTOKEN_API_KEY"], 64, False)
    with pytest.raises(InvalidInputError, match="calls no tools"):
        asyncio.run(one.generate([], ["think"], None, config))
    with pytest.raises(InvalidInputError, match="leave out dtype, preset"):
        inspect.SemtokenAPI("almanac", "http://127.0.0.1:1", preset="paper", dtype="x")


def test_inspect_loads_models_beside_its_other_work_and_keeps_the_error(
    inspect: ModuleType, almanac: ScoredModel
) -> None:
    """A question that is canceled leaves its model, which waits for another one, to the others."""
    loaded: list[str] = []
    ready = threading.Event()

    def load(name: str, **_: Any) -> LocalChat:
        loaded.append(name)
        # Set by the event loop, which runs on meanwhile.
        if not ready.wait(10):
            raise AssertionError("the event loop stood still")
        if name == "absent":
            raise ModelError("no such model")
        return LocalChat(almanac, name)

    async def ask() -> list[Any]:
        absent, there = (inspect.SemtokenAPI(name) for name in ("absent", "there"))

        def task(api: Any) -> asyncio.Task[Any]:
            return asyncio.create_task(api.generate([said("What?")], [], None, Fields(max_tokens=2)))

        asked = [task(one) for one in (absent, absent, there, there)]
        await asyncio.sleep(0.01)
        asked[2].cancel()
        await asyncio.sleep(0.01)
        ready.set()
        return await asyncio.gather(*asked, task(absent), return_exceptions=True)

    with patch.object(LocalChat, "load", load):
        *errors, canceled, answered, again = asyncio.run(ask())
    assert [str(error) for error in (*errors, again)] == ["no such model"] * 3
    assert isinstance(canceled, asyncio.CancelledError)
    assert answered.metadata["semtoken"][0]["confidence"] > 0
    assert loaded == ["absent", "there"]
    inspect._LOADED["there", "{}"].result().close()
