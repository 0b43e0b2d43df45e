"""Inspect itself: our provider and scorer in `eval`, in this process, over HTTP, and behind its own OpenAI provider."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inspect_ai import Task, eval, score
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ChatMessageUser,
    ContentImage,
    ContentText,
    Logprobs,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.scorer import match
from inspect_ai.solver import generate
from inspect_ai.tool import ToolCall
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from semtoken import ScoredModel, TokenClusters, metrics, score_reply
from semtoken.integrations.inspect_ai import uncertainty_of, with_uncertainty
from semtoken.support.almanac import Question
from tests.integrations.live.serving import served
from tests.integrations.test_messages import CHOICE, REPLY
from tests.web.servers import running


@pytest.fixture(scope="module")
def address(stc: ScoredModel) -> Iterator[str]:
    with served(stc) as url:
        yield f"{url}/v1"


def samples(questions: list[Question]) -> MemoryDataset:
    return MemoryDataset([Sample(id=q.id, input=q.question, target=list(q.answers)) for q in questions])


def run(questions: list[Question], scorer: Any, folder: Path, model: Any, **settings: Any) -> Any:
    solver = generate(logprobs=True, top_logprobs=20) if settings.pop("logprobs", False) else generate()
    task = Task(dataset=samples(questions), solver=solver, scorer=scorer)
    [log] = eval(task, model=model, log_dir=str(folder), display="none", max_tokens=24, **settings)
    assert log.status == "success", log.error
    return log


def metadata(log: Any) -> list[dict[str, Any]]:
    [name] = log.samples[0].scores
    return [sample.scores[name].metadata for sample in sorted(log.samples, key=lambda one: one.id)]


def figures(log: Any) -> dict[str, float]:
    return {name: each.value for scores in log.results.scores for name, each in scores.metrics.items()}


def expected(stc: ScoredModel, questions: list[Question]) -> list[Any]:
    return stc.generate([q.prompt() for q in questions], 24, stop_at_newline=True)


def test_provider_in_this_process_has_the_numbers_of_stc(
    stc: ScoredModel, questions: list[Question], tmp_path: Path, record: Callable[[str, Any], None]
) -> None:
    log = run(
        questions,
        with_uncertainty(match(location="exact")),
        tmp_path,
        "semtoken/almanac",
        model_args={"dtype": "float32"},
    )
    answers = expected(stc, questions)
    found = metadata(log)
    assert [one["sequence_uncertainty"] for one in found] == pytest.approx(
        [a.sequence_uncertainty for a in answers], abs=1e-5
    )
    ordered = sorted(log.samples, key=lambda one: one.id)
    assert [one.output.completion.strip() for one in ordered] == [a.text.strip() for a in answers]

    right = [one.scores["with_uncertainty"].value == "C" for one in ordered]
    assert 0 < sum(right) < len(right)
    shown = figures(log)
    uncertainty = [a.sequence_uncertainty for a in answers]
    assert shown["auroc"] == pytest.approx(metrics.auroc(uncertainty, right), abs=1e-5)
    assert shown["auroc_low"] < shown["auroc"] < shown["auroc_high"]
    assert shown["prr"] == pytest.approx(metrics.prr(uncertainty, right), abs=1e-5)
    assert shown["risk_at_100"] == pytest.approx(1 - np.mean(right))
    assert shown["aurc"] == pytest.approx(metrics.aurc(uncertainty, right), abs=1e-5)
    assert shown["without_uncertainty"] == 0
    record(
        "inspect_ai",
        {
            "questions": [one.id for one in ordered],
            "outputs": [one.output.model_dump(mode="json", exclude_none=True) for one in ordered],
            "metadata": found,
            "correct": [float(value) for value in right],
            "figures": shown,
        },
    )


def test_provider_over_http_has_the_same_numbers(
    stc: ScoredModel, questions: list[Question], address: str, tmp_path: Path
) -> None:
    log = run(
        questions[:12], with_uncertainty(match(location="exact")), tmp_path, "semtoken/almanac", model_base_url=address
    )
    exact = [a.sequence_uncertainty for a in expected(stc, questions[:12])]
    assert [one["sequence_uncertainty"] for one in metadata(log)] == pytest.approx(exact, abs=1e-5)
    assert {one["method"] for one in metadata(log)} == {"exact"}


def test_a_busy_server_is_waited_for_and_the_key_is_never_shown(questions: list[Question], tmp_path: Path) -> None:
    """The one client of all commands is at work: 503 is waited out, nothing is asked twice, and 401 repeats the key."""
    asked: list[str] = []

    async def answer(request: Request) -> Response:
        asked.append(request.url.path)
        if len(asked) == 1:
            return JSONResponse({"error": {"message": "loading"}}, 503)
        return JSONResponse({"error": {"message": f"Incorrect key {request.headers['authorization']}"}}, 401)

    app = Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])])
    with running(app, wait=False, strict=False) as url:
        model = get_model("semtoken/almanac", base_url=f"{url}/v1", api_key="sk-secret-1234")
        task = Task(dataset=samples(questions[:1]), solver=generate(), scorer=match())
        [log] = eval(task, model=model, log_dir=str(tmp_path), display="none", max_tokens=4)
    assert asked == ["/v1/chat/completions"] * 2
    assert log.status == "error" and "HTTP 401: Incorrect key Bearer [key]" in log.error.message
    assert "sk-secret" not in log.error.model_dump_json()


def test_other_providers_give_intervals_that_hold_the_exact_score(
    stc: ScoredModel,
    clusters: TokenClusters,
    questions: list[Question],
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEARBY_API_KEY", "none")
    monkeypatch.setenv("NEARBY_BASE_URL", address)
    log = run(questions[:12], with_uncertainty("match", clusters), tmp_path, "openai-api/nearby/almanac", logprobs=True)
    exact = [a.sequence_uncertainty for a in expected(stc, questions[:12])]
    for one, value in zip(metadata(log), exact, strict=True):
        assert one["sequence_uncertainty_interval"][0] - 1e-5 <= value <= one["sequence_uncertainty_interval"][1] + 1e-5
        assert one["method"] == "top-k"


def test_an_answer_without_a_score_keeps_its_judgment_and_says_why(questions: list[Question], tmp_path: Path) -> None:
    said = [ModelOutput.from_content("mockllm", "Atlantis") for _ in range(3)]
    for one in said:
        one.usage = ModelUsage()  # counting tokens would ask the network
    log = run(questions[:3], with_uncertainty(match()), tmp_path, get_model("mockllm/model", custom_outputs=said))
    assert all("brings no score" in one["no_uncertainty"] for one in metadata(log))
    shown = figures(log)
    assert shown["accuracy"] == 0 and shown["without_uncertainty"] == 3
    assert math.isnan(shown.get("auroc", math.nan))


def test_scorer_and_provider_go_by_name(questions: list[Question], tmp_path: Path) -> None:
    """As `inspect score log --scorer semtoken/with_uncertainty -S base=match` does, from the extension group."""
    from inspect_ai.util import registry_create

    log = run(questions[:3], match(), tmp_path, "semtoken/almanac")
    again = score(
        log, registry_create("scorer", "semtoken/with_uncertainty", base="match"), action="append", display="none"
    )
    assert all("sequence_uncertainty" in sample.scores["with_uncertainty"].metadata for sample in again.samples)


def test_tools_are_refused(questions: list[Question], tmp_path: Path) -> None:
    from inspect_ai.solver import use_tools
    from inspect_ai.tool import think

    task = Task(dataset=samples(questions[:1]), solver=[use_tools(think()), generate()], scorer=match())
    [log] = eval(task, model="semtoken/almanac", log_dir=str(tmp_path), display="none")
    assert log.status == "error" and "calls no tools" in log.error.message


def test_an_image_and_a_setting_that_would_be_lost_are_refused(tmp_path: Path) -> None:
    picture = ContentImage(image="data:image/png;base64,iVBORw0KGgo=")
    asked = ChatMessageUser(content=[ContentText(text="What is this?"), picture])
    for sample, settings, named in (
        (Sample(input=[asked], target="x"), {}, "has image"),
        (Sample(input="x", target="x"), {"reasoning_effort": "high"}, "no setting reasoning_effort"),
    ):
        task = Task(dataset=MemoryDataset([sample]), solver=generate(), scorer=match())
        [log] = eval(task, model="semtoken/almanac", log_dir=str(tmp_path), display="none", **settings)
        assert log.status == "error" and named in log.error.message


def test_the_tokens_of_a_call_are_no_part_of_the_answer() -> None:
    call = ToolCall(id="1", function="weather", arguments={})
    choice = ChatCompletionChoice(
        message=ChatMessageAssistant(content="Wait.", tool_calls=[call]),
        stop_reason="tool_calls",
        logprobs=Logprobs(content=CHOICE["logprobs"]["content"]),
    )
    [expected] = score_reply(REPLY)
    found = uncertainty_of(ModelOutput(model="m", choices=[choice]))
    assert found["confidence"] == expected.confidence
