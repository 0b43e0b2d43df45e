"""What the hosts gave in their live tests, against `ScoredModel` on the same answers. No host is needed."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from semtoken import TokenClusters, score_reply
from semtoken.integrations.events import ReplyWatch
from semtoken.integrations.selective import selective_figures
from semtoken.models.probing.p_true import p_true_log_probs
from semtoken.support.almanac import load_questions

if TYPE_CHECKING:
    from semtoken import ScoredModel

DATA = Path(__file__).parent / "data"


def recorded(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


@cache
def almanac(preset: Any = "default") -> ScoredModel:
    pytest.importorskip("transformers", reason="transformers, which runs the embedded model, is missing")
    from semtoken import ScoredModel

    return ScoredModel.from_pretrained("almanac", dtype="float32", preset=preset)


@cache
def prompts() -> dict[str, str]:
    return {question.id: question.prompt() for question in load_questions("test")}


def test_lm_polygraph_has_the_numbers_of_stc() -> None:
    run = recorded("lm_polygraph")
    scored = almanac("paper").score([prompts()[name] for name in run["questions"][:16]], run["tokens"][:16])
    estimates = {name: values[:16] for name, values in run["estimates"].items()}
    assert len(run["questions"]) == len(run["tokens"]) == len(run["correct"]) == 40
    assert estimates["SemanticTokenClustering"] == pytest.approx([-one.log_confidence for one in scored], abs=1e-4)
    assert estimates["MaximumSequenceProbability"] == pytest.approx([-one.log_probability for one in scored], abs=1e-4)


def test_inspect_has_the_numbers_of_stc() -> None:
    run = recorded("inspect_ai")
    answers = almanac().generate([prompts()[name] for name in run["questions"][:16]], 24, stop_at_newline=True)
    blocks = [output["metadata"]["semtoken"][0] for output in run["outputs"][:16]]
    assert [block["sequence_uncertainty"] for block in blocks] == pytest.approx(
        [a.sequence_uncertainty for a in answers], abs=1e-4
    )
    assert [one["sequence_uncertainty"] for one in run["metadata"][:16]] == [
        block["sequence_uncertainty"] for block in blocks
    ]
    confidences = [block["confidence"] for block in blocks]
    assert confidences == pytest.approx([a.confidence for a in answers], abs=1e-4)


def test_figures_of_inspect_are_those_of_its_answers() -> None:
    run = recorded("inspect_ai")
    uncertainty = [one["sequence_uncertainty"] for one in run["metadata"]]
    figures = selective_figures(uncertainty, run["correct"])
    for name in ("auroc", "auroc_low", "prr", "aurc", "risk_at_50", "risk_at_100"):
        assert figures[name] == pytest.approx(run["figures"][name])


def test_lm_eval_has_the_numbers_of_stc() -> None:
    run = recorded("lm_eval")
    asked = [sample["arguments"][0][0] for sample in run["samples"]]
    answers = almanac().generate(asked, 24, stop_strings=("\n", ","))
    right = [float(sample["exact_match"]) for sample in run["samples"]]
    figures = selective_figures([a.sequence_uncertainty for a in answers], right)
    for name in ("n", "auroc", "auroc_high", "prr", "risk_at_80"):
        assert figures[name] == pytest.approx(run["figures"][name], abs=1e-4)


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
    answers = almanac().generate([prompts()[name] for name in run["questions"]], 24, stop_at_newline=True)
    values = [event["gen_ai.evaluation.score.value"] for event in run["events"]]
    assert values == pytest.approx([a.confidence for a in answers], abs=1e-4)
    products = [event["semtoken.sequence_uncertainty"] for event in run["events"]]
    assert products == pytest.approx([a.sequence_uncertainty for a in answers], abs=1e-4)


def test_the_log_of_llm_has_the_numbers_of_stc() -> None:
    run = recorded("llm")
    [answer] = almanac().generate([prompts()[run["question"]]], 24, stop_at_newline=True)
    kept = run["logged"]["response_json"]
    block = (json.loads(kept) if isinstance(kept, str) else kept)["semtoken"]
    assert run["logged"]["response"] == answer.text.strip()
    assert block["confidence"] == pytest.approx(answer.confidence, abs=1e-4)
    assert (block["sequence_uncertainty"], block["sequence_uncertainty_interval"][0]) == pytest.approx(
        (answer.sequence_uncertainty, answer.sequence_uncertainty), abs=1e-4
    )
    assert [one["text"] for one in block["tokens"]] == [token.text for token in answer.tokens]
    assert [one["probability"] for one in block["tokens"]] == pytest.approx(
        [token.agreeing_probability for token in answer.tokens], abs=1e-4
    )
    first, second, *tokens, last = run["shown"].splitlines()
    assert first == answer.text.strip()
    assert second.startswith(f"confidence {answer.confidence:.2f}: ")
    assert len(tokens) == len(answer.tokens)
    assert last == "Confidence ranks answers; it is not a probability of being right."


def test_the_tools_of_mcp_have_the_numbers_of_stc() -> None:
    run = recorded("mcp")
    prompt = prompts()[run["question"]]
    asked, scored, checked, *refused = run["replies"]
    [answer] = almanac().generate([prompt], 24, stop_at_newline=True)
    [given] = almanac().score([prompt], [scored["arguments"]["answer"]])
    for reply, result in ((asked, answer), (scored, given)):
        fields = reply["structured"]
        assert fields["text"] == result.text
        assert (fields["sequence_uncertainty"], fields["sequence_uncertainty_interval"][1]) == pytest.approx(
            (result.sequence_uncertainty,) * 2, abs=1e-4
        )
    true, false = p_true_log_probs(almanac(), [checked["arguments"]["question"]], [checked["arguments"]["answer"]])[0]
    right = math.exp(true) / (math.exp(true) + math.exp(false))
    assert checked["structured"]["probability_true"] == pytest.approx(right, abs=1e-4)
    for reply in (asked, scored, checked):
        assert json.loads(reply["text"]) == reply["structured"] and not reply["is_error"]
    assert all(reply["is_error"] and reply["structured"] is None for reply in refused)
    for tool in run["tools"]:  # agents see what they may send, and that they get fields
        assert set(tool["input_schema"]["required"]) <= {"question", "answer"}
        assert tool["output_schema"]["type"] == "object" and tool["description"]


def test_log_probabilities_that_langchain_keeps_give_an_interval_around_the_exact_score() -> None:
    kept, sent = recorded("gateways/langchain")["whole"], recorded("gateways/serve")["whole"]
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
