"""Scores of recorded replies: between the bounds lies what transformers computes from the whole distribution."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import semtoken as st
from semtoken.choices import Preset
from semtoken.core.growing import GrowingAnswer
from semtoken.core.rules import ScoringRules
from semtoken.core.scorer import scorer_for
from semtoken.errors import BackendError, InvalidInputError, InvalidLogits, SemtokenError, VocabularyMismatch
from semtoken.replies import read_reply
from semtoken.replies.score import score_choice
from semtoken.support.almanac import PROMPT, almanac_clusters_path, almanac_path
from tests.replies.made import chat_reply, entry, listed
from tests.replies.recorded import clusters, recording
from tests.rows import each

PLAIN = PROMPT.format(question="Mumbai lies in what country?")
PROMPT_OF = {"vllm-completions-prompt": "Answer:\n", "vllm-completions-echo": "Answer:\n"}
RAW = (
    *("vllm-chat", "vllm-chat-ids", "vllm-chat-stop", "vllm-chat-two", "vllm-chat-chosen-only", "vllm-completions"),
    *("vllm-completions-ids", "vllm-completions-prompt", "vllm-completions-echo"),
    *("openai-chat", "openai-chat-awkward", "openai-completions-awkward", "openai-responses", "deepseek-chat"),
    *("sglang", "sglang-no-text", "llama-cpp", "llama-cpp-chat"),
)
"""Recorded without a grammar, after the plain prompt: vLLM renders it otherwise for Responses."""


@pytest.fixture(scope="module")
def exact() -> st.ScoredModel:
    return st.ScoredModel.from_pretrained(str(almanac_path()), clusters=clusters())


@each("name", RAW)
def test_the_interval_holds_the_exact_uncertainty(name: str, exact: st.ScoredModel) -> None:
    for result in st.score_reply(recording(name).reply, clusters()):
        [expected] = exact.score(PROMPT_OF.get(name, PLAIN), [result.token_ids])
        low, high = result.sequence_uncertainty_interval
        assert low - 1e-3 <= expected.sequence_uncertainty <= high + 1e-3  # llama.cpp and vLLM round differently
        assert result.log_probability == pytest.approx(expected.log_probability, abs=5e-3)


def test_a_payload_that_was_read_may_be_scored() -> None:
    reply = recording("vllm-chat-two").reply
    assert st.score_reply(read_reply(reply), clusters()) == st.score_reply(reply, clusters())


@pytest.mark.parametrize("named", [str, Path])
def test_a_reply_may_be_named_by_its_file(named: Callable[[Path], Any], tmp_path: Path) -> None:
    reply = recording("vllm-chat").reply
    (tmp_path / "reply.json").write_text(json.dumps(reply), encoding="utf-8")
    assert st.score_reply(named(tmp_path / "reply.json")) == st.score_reply(reply)


def test_clusters_may_be_named() -> None:
    reply = recording("vllm-chat-two").reply
    for preset in get_args(Preset):
        expected = st.score_reply(reply, clusters() if preset == "paper" else clusters().vocabulary, preset)
        assert st.score_reply(reply, "almanac", preset) == expected
        assert st.score_reply(reply, almanac_clusters_path(), preset) == expected


def test_settings_reach_the_result() -> None:
    reply = recording("openai-chat").reply
    [result] = st.score_reply(
        reply, clusters(), st.ScoringRules("paper", clustering=False), distribution="raw", proxy_for="m"
    )
    assert (result.preset, result.distribution, result.proxy_for) == ("paper", "raw", "m")
    assert "clustering" in result.signature or "off" in result.signature
    [plain] = st.score_reply(reply, clusters(), "paper")
    assert plain.sequence_uncertainty < result.sequence_uncertainty


def test_other_segments() -> None:
    [refusal] = st.score_reply(recording("openai-chat-refusal").reply, clusters(), segment="refusal")
    assert refusal.text == "The capital is Delhi"
    with pytest.raises(InvalidInputError, match=r"it holds refusal. In Python .*segment=.refusal"):
        st.score_reply(recording("openai-chat-refusal").reply, clusters())


@each("reply", [recording("openai-chat-refusal").reply, "no JSON", "missing.json"])
def test_a_segment_that_does_not_exist_is_refused_before_the_reply_is_read(reply: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"'segment' must be one of .*, got 'anwser'"):
        st.score_reply(reply, segment="anwser")  # type: ignore[arg-type]


@each("names", [["perplexity"], "perplexity", np.array(["perplexity"])])
def test_methods_are_named_by_whatever_holds_names(names: Any) -> None:
    [answer] = st.score_reply(recording("vllm-chat").reply, methods=names)
    logs = [token.log_probability for token in answer.tokens]
    assert answer.scores["perplexity"] == pytest.approx(-math.fsum(logs) / len(logs))
    none: Any = np.array([], dtype=str)
    [plain] = st.score_reply(recording("vllm-chat").reply, methods=none)
    assert plain.scores == {}


@each("items", [np.array([]), np.array([1.0, 2.0])])
def test_an_array_in_place_of_the_list_of_tokens_is_named(items: Any) -> None:
    reply = reply_of("India", ["India"])
    reply["choices"][0]["logprobs"]["content"] = items
    with pytest.raises(InvalidInputError, match=r"choices\[0\]\.logprobs\.content must be a list\. Got ndarray"):
        st.score_reply(reply)


def test_flags_of_the_reply_are_in_the_result() -> None:
    [result] = st.score_reply(recording("hidden-reasoning-chat").reply, clusters())
    [flag] = [flag for flag in result.flags if flag.code == "reply"]
    assert "taken as reasoning" in flag.message


def test_silence_is_refused() -> None:
    with pytest.raises(BackendError, match="Choice 0: The reply holds no log-probabilities"):
        st.score_reply(recording("transformers-chat").reply, clusters())


def test_pieces_of_characters_without_names_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="token ids"):
        st.score_reply(recording("vllm-chat-awkward").reply, clusters())


def reply_of(text: str, tokens: list[str], *, reasoning: str | None = None) -> dict[str, Any]:
    """A chat reply in which every token has the probability 0.5 and a name."""
    items = [entry(token, math.log(0.5)) for token in tokens]
    return chat_reply(text, items, message={"role": "assistant", "content": text, "reasoning_content": reasoning})


def test_a_named_end_token_is_a_step_and_costs_what_the_rules_say() -> None:
    with_end, without = reply_of("India", ["India", "<|im_end|>"]), reply_of("India", ["India"])
    [ended], [cut] = (st.score_reply(reply, clusters(), "paper") for reply in (with_end, without))
    assert ended.sequence_uncertainty == cut.sequence_uncertainty  # neutral
    assert ended.log_probability == pytest.approx(2 * math.log(0.5))
    [ended], [cut] = (st.score_reply(reply, clusters()) for reply in (with_end, without))
    assert (cut.sequence_uncertainty, ended.sequence_uncertainty) == pytest.approx((1 - 0.5, 1 - 0.5 * 0.5))
    [empty] = st.score_reply(reply_of("", ["<|im_end|>"]), clusters())
    assert empty.empty and empty.sequence_uncertainty == 1


def test_markup_in_the_message_is_no_special_token() -> None:
    """A tokenizer that has "<div>" as a token, and clusters of one that has not."""
    with pytest.raises(VocabularyMismatch, match="belongs to another model"):
        st.score_reply(reply_of("India<div>", ["India", "<div>"]), clusters())
    with pytest.raises(InvalidInputError, match=r"step 1.*not in the vocabulary"):
        st.score_reply(reply_of("India<div>India", ["India", "<div>", "India"]), clusters())


def test_a_proxy_is_refused_by_its_reasoning_too() -> None:
    reply = reply_of("India", ["Zyzzyvas", "</think>", "India"], reasoning="Zyzzyvas")
    assert st.score_reply(reply, clusters())[0].text == "India"
    with pytest.raises(VocabularyMismatch, match=r"Choice 0: 1 of 2 tokens of m are not.*Zyzzyvas"):
        st.score_reply(reply, clusters(), proxy_for="m")


def test_clusters_of_another_model() -> None:
    import numpy as np

    from tests import tiny

    vocabulary = st.Vocabulary.from_tokenizer(tiny.byte_level_bpe())
    other = st.TokenClusters(np.zeros(vocabulary.size, dtype=np.int32), vocabulary)
    with pytest.raises(SemtokenError, match="Choice 0: "):
        st.score_reply(recording("openai-chat").reply, other)
    with pytest.raises(VocabularyMismatch, match="belongs to another model"):
        st.score_reply(recording("sglang-no-text").reply, other)


@pytest.mark.parametrize(
    ("end", "cut"),
    [("length", True), ("stop", False), ("FINISH_REASON_MAX_TOKENS", True), ("content", False), (None, None)],
)
def test_an_answer_says_whether_the_token_limit_cut_it_off(end: str | None, cut: bool | None) -> None:
    [answer] = st.score_reply(chat_reply("Os", [entry("Os", -0.1)], finish_reason=end))
    assert answer.truncated is cut


@each("streamed", [-0.1, -0.5])
def test_an_answer_that_came_piece_by_piece_is_finished_only_if_it_holds_what_the_reply_holds(streamed: float) -> None:
    """The last event of some streams brings other numbers or names than the events before it."""
    scorer = scorer_for(None, ScoringRules())
    [choice] = read_reply(chat_reply("Oslo", [entry("Oslo", -0.1)])).choices
    [part] = read_reply(chat_reply("Oslo", [entry("Oslo", streamed)])).choices[0].segments
    written = GrowingAnswer(scorer)
    written.add(*part.steps)
    scored = score_choice(choice, scorer, "raw", written=written)
    assert scored.log_probability == pytest.approx(-0.1) and scored == score_choice(choice, scorer, "raw")


def test_an_answer_that_refused_a_step_as_it_came_is_not_finished() -> None:
    """The refused token is a blank, so that the text of the other steps is that of the message."""
    scorer, blank = scorer_for(None, ScoringRules()), listed("\n", -0.1, (" ", -0.1))
    [choice] = read_reply(chat_reply("Oslo\n", [entry("Oslo", -0.1), blank])).choices
    written = GrowingAnswer(scorer)
    written.add(choice.segments[0].steps[0])
    with pytest.raises(InvalidLogits, match=r"add up to 1\.81"):
        written.add(choice.segments[0].steps[1])
    with pytest.raises(InvalidLogits, match=r"add up to 1\.81"):
        score_choice(choice, scorer, "raw", written=written)
