"""Numbers of the hosts in their live tests, against `ScoredModel` on the same answers. No host is needed."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from semtoken import TokenClusters, score_reply
from semtoken.integrations.events import ReplyWatch
from semtoken.integrations.selective import selective_figures
from semtoken.models.probing.p_true import p_true_log_probs
from semtoken.support.almanac import load_questions
from tests.integrations.recordings import gateway, recorded

if TYPE_CHECKING:
    from semtoken import ScoredAnswer, ScoredModel

CLOSE = 1e-4


@cache
def almanac(preset: Any = "default") -> ScoredModel:
    pytest.importorskip("transformers", reason="transformers, which runs the embedded model, is missing")
    from semtoken import ScoredModel

    return ScoredModel.from_pretrained("almanac", dtype="float32", preset=preset)


@cache
def prompts() -> dict[str, str]:
    return {question.id: question.prompt() for question in load_questions("test")}


def answers_to(ids: list[str]) -> list[ScoredAnswer]:
    """The twin's answers to questions, in the almanac's own format."""
    return almanac().generate([prompts()[name] for name in ids], 24, stop_at_newline=True)


def uncertainties(answers: list[ScoredAnswer]) -> Any:
    return pytest.approx([one.sequence_uncertainty for one in answers], abs=CLOSE)


def confidences(answers: list[ScoredAnswer]) -> Any:
    return pytest.approx([one.confidence for one in answers], abs=CLOSE)


def test_lm_polygraph_has_the_numbers_of_stc() -> None:
    run = recorded("lm_polygraph")
    scored = almanac("paper").score([prompts()[name] for name in run["questions"][:16]], run["tokens"][:16])
    estimates = {name: values[:16] for name, values in run["estimates"].items()}
    assert len(run["questions"]) == len(run["tokens"]) == len(run["correct"]) == 40
    assert estimates["SemanticTokenClustering"] == pytest.approx([-one.log_confidence for one in scored], abs=CLOSE)
    assert estimates["MaximumSequenceProbability"] == pytest.approx([-one.log_probability for one in scored], abs=CLOSE)


def test_inspect_has_the_numbers_of_stc() -> None:
    run = recorded("inspect_ai")
    answers = answers_to(run["questions"][:16])
    blocks = [output["metadata"]["semtoken"][0] for output in run["outputs"][:16]]
    assert [block["sequence_uncertainty"] for block in blocks] == uncertainties(answers)
    assert [block["confidence"] for block in blocks] == confidences(answers)
    for one, block in zip(run["metadata"][:16], blocks, strict=True):
        assert one["sequence_uncertainty"] == block["sequence_uncertainty"]


def test_lm_eval_has_the_numbers_of_stc() -> None:
    run = recorded("lm_eval")
    asked = [sample["arguments"][0][0] for sample in run["samples"]]
    answers = almanac().generate(asked, 24, stop_strings=("\n", ","))
    right = [float(sample["exact_match"]) for sample in run["samples"]]
    figures = selective_figures([a.sequence_uncertainty for a in answers], right)
    for name in ("n", "auroc", "auroc_high", "prr", "risk_at_80"):
        assert figures[name] == pytest.approx(run["figures"][name], abs=CLOSE)


@pytest.mark.parametrize("name", ["opentelemetry", "opentelemetry_stream"])
@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_opentelemetry_events_are_those_of_the_replies_cut_anywhere(name: str, size: int) -> None:
    run = recorded(name)
    for reply, event in zip(run["replies"], run["events"], strict=True):
        raw = reply.encode()
        watch = ReplyWatch(streamed=name.endswith("stream"))
        found = [one for start in range(0, len(raw), size) for one in watch.take(raw[start : start + size])]
        assert found + watch.end() == [event]
        assert not any("answer" in key for key in event)


def test_opentelemetry_events_have_the_numbers_of_stc() -> None:
    run = recorded("opentelemetry")
    answers = answers_to(run["questions"])
    assert [event["gen_ai.evaluation.score.value"] for event in run["events"]] == confidences(answers)
    assert [event["semtoken.sequence_uncertainty"] for event in run["events"]] == uncertainties(answers)


def test_the_log_of_llm_has_the_numbers_of_stc() -> None:
    run = recorded("llm")
    [answer] = answers_to([run["question"]])
    kept = run["logged"]["response_json"]
    block = (json.loads(kept) if isinstance(kept, str) else kept)["semtoken"]
    assert run["logged"]["response"] == answer.text.strip()
    assert [block["confidence"]] == confidences([answer])
    low, high = block["sequence_uncertainty_interval"]
    assert [low, block["sequence_uncertainty"], high] == uncertainties([answer] * 3)
    assert [one["text"] for one in block["tokens"]] == [token.text for token in answer.tokens]
    probabilities = [token.agreeing_probability for token in answer.tokens]
    assert [one["probability"] for one in block["tokens"]] == pytest.approx(probabilities, abs=CLOSE)
    first, second, *tokens, last = run["shown"].splitlines()
    assert first == answer.text.strip()
    assert second.startswith(f"confidence {answer.confidence:.2f}: ")
    assert len(tokens) == len(answer.tokens)
    assert last == "Confidence ranks answers; it is not a probability of being right."


def test_the_tools_of_mcp_have_the_numbers_of_stc() -> None:
    run = recorded("mcp")
    asked, scored, checked, *refused = run["replies"]
    [answer] = answers_to([run["question"]])
    [given] = almanac().score([prompts()[run["question"]]], [scored["arguments"]["answer"]])
    for reply, result in ((asked, answer), (scored, given)):
        fields = reply["structured"]
        assert fields["text"] == result.text
        low, high = fields["sequence_uncertainty_interval"]
        assert [low, fields["sequence_uncertainty"], high] == uncertainties([result] * 3)
    true, false = p_true_log_probs(almanac(), [checked["arguments"]["question"]], [checked["arguments"]["answer"]])[0]
    right = math.exp(true) / (math.exp(true) + math.exp(false))
    assert checked["structured"]["probability_true"] == pytest.approx(right, abs=CLOSE)
    for reply in (asked, scored, checked):
        assert json.loads(reply["text"]) == reply["structured"] and not reply["is_error"]
    assert all(reply["is_error"] and reply["structured"] is None for reply in refused)
    for tool in run["tools"]:  # agents see what they may send, and that they get fields
        assert set(tool["input_schema"]["required"]) <= {"question", "answer"}
        assert tool["output_schema"]["type"] == "object" and tool["description"]


def test_log_probabilities_that_langchain_keeps_give_an_interval_around_the_exact_score() -> None:
    kept, sent = gateway("langchain")["whole"], gateway("serve")["whole"]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": kept["content"]},
        "logprobs": kept["response_metadata"]["logprobs"],
        "finish_reason": kept["response_metadata"]["finish_reason"],
    }
    reply = {"object": "chat.completion", "choices": [choice]}
    [scored] = score_reply(reply, TokenClusters.from_pretrained("almanac"))
    exact = sent["choices"][0]["semtoken"]["sequence_uncertainty"]
    assert scored.sequence_uncertainty_interval[0] - 1e-9 <= exact <= scored.sequence_uncertainty_interval[1] + 1e-9
