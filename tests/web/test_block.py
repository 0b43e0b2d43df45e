"""The `semtoken` block of a model in this process: other meanings that were followed, and parts by the form."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from semtoken import TokenClusters, score_logprobs
from semtoken.core.results import TokensLater
from semtoken.core.results.blocks import without_quotes
from semtoken.core.rules import ScoringRules
from semtoken.core.scorer import scorer_for
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.models.probing import disputed
from semtoken.support.almanac import load_questions
from semtoken.web import block
from semtoken.web.block import BlockOptions, parts_wanted, score_block
from semtoken.web.serve.service import probe
from tests.guarantees.made_up import put
from tests.web.asking import block_of, blocks_in, events_in, post, user
from tests.web.conftest import proxy_of

DOUBTFUL, AGREED = 0.9, 0.85


def asked(url: str, question: str, **options: Any) -> dict[str, Any]:
    return block_of(post(url, json={"messages": user(question), "semtoken": options}))


def test_disputes_are_those_of_the_library_and_doubts_of_form_are_marked(served: str, almanac: Any) -> None:
    marked = disputes = 0
    for question in load_questions("dev")[3:5]:
        [answer] = almanac.generate(question.prompt(), 24, stop_at_newline=True)
        block = asked(served, question.question, tokens=True, parts="phrase", disputes=4)
        found = sorted(disputed(almanac, question.prompt(), answer, n=4), key=lambda one: one.step)
        assert [one["step"] for one in block["disputes"]] == [one.step for one in found]
        for one, expected in zip(block["disputes"], found, strict=True):
            assert one["disagreement"] == pytest.approx(expected.disagreement, abs=1e-4)
            assert [m["continuation"] for m in one["meanings"]] == [c.continuation for c in expected.competitors]
        disagreement = {one["step"]: one["disagreement"] + one["unheard"] for one in block["disputes"]}
        for part in block["parts"]:
            doubtful = [i for i in part["tokens"] if block["tokens"][i]["probability"] < DOUBTFUL]
            agreed = [1 - disagreement.get(step, 0) for step in doubtful]
            if part.get("form_only"):
                marked += 1
                assert agreed and min(agreed) >= AGREED
            elif doubtful and all(step in disagreement for step in doubtful):
                assert min(agreed) < AGREED
        disputes += len(found)
    assert marked == 1 and disputes == 2  # one doubt of form, and one of another meaning


def test_every_number_that_the_page_offers_can_be_asked_for(served: str, almanac_clusters: Any) -> None:
    question = load_questions("dev")[0].question
    with proxy_of(served, almanac_clusters) as proxied:
        offered = {url: httpx.get(f"{url}/semtoken/info").json()["methods"] for url in (served, proxied)}
        assert set(offered[served]) == {*offered[proxied], "self_certainty"}  # which reads all logits
        assert {"trace", "mean_new_word", "epr"} <= offered[proxied].keys() and "confidence" not in offered[proxied]
        for url, methods in offered.items():
            block = asked(url, question, methods=list(methods))
            assert set(block["scores"]) == set(methods) and "scores_refused" not in block


def test_a_stream_ends_with_the_disputes_too(served: str) -> None:
    question = load_questions("dev")[0].question
    body = {"messages": user(question), "stream": True, "semtoken": {"disputes": 4}}
    blocks = blocks_in(events_in(post(served, json=body).text))
    assert all(("disputes" in block) == block["final"] for block in blocks)
    assert blocks[-1]["disputes"] == asked(served, question, disputes=4)["disputes"]


def test_parts_that_need_a_library_leave_the_score(
    served: str, almanac_clusters: TokenClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy may be installed without what finds sentences: the answer and its score come all the same."""
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with proxy_of(served, almanac_clusters) as proxy:
        block = asked(proxy, "What is the capital of Japan?", parts="sentence")
    assert "semtoken[parts]" in block["parts_refused"] and "parts" not in block
    assert 0 <= block["sequence_uncertainty"] <= 1


def test_auto_takes_fields_of_json_and_phrases_of_prose(almanac: Any) -> None:
    prompt = "Question: Is Lima in Peru?\nAnswer:"
    [fields] = almanac.score(prompt, '{"city": "Lima", "in_peru": true}')
    [prose] = almanac.score(prompt, " Lima is in Peru")
    assert [part.path for part in parts_wanted(fields, "auto")] == ["/city", "/in_peru"]
    assert all(part.path is None for part in parts_wanted(prose, "auto"))
    options = BlockOptions(parts="auto", disputes=2)
    ids = almanac.tokenizer(prompt)["input_ids"]
    block = score_block(fields, almanac.scorer, options, probed=probe(options, almanac, ids, fields))
    [city, in_peru] = block["parts"]
    assert city["choices"] is None and set(in_peru["choices"]) == {"true", "false"}
    assert sum(in_peru["choices"].values()) == pytest.approx(1) and np.isfinite(in_peru["option_mass"])


def test_a_tool_call_has_one_number_beside_its_parts() -> None:
    pieces = ['{"', "name", '": "', "send", '", "', "arguments", '": {"', "to", '": "', "Ada", '"}}']
    probabilities = [0.5 if piece == "Ada" else 0.25 if piece == "send" else 0.9 for piece in pieces]
    steps = [{"token": piece, "logprob": math.log(p)} for piece, p in zip(pieces, probabilities, strict=True)]
    answer = score_logprobs([step | {"top_logprobs": [step]} for step in steps], None)
    scorer = scorer_for(None, ScoringRules())
    block = score_block(answer, scorer, BlockOptions(parts="tool_call"))
    assert block["calls"] == [{"call": 0, "name": "send", "confidence": pytest.approx(0.125)}]
    assert "calls" not in score_block(answer, scorer, BlockOptions(parts="field"))


def test_a_block_that_shows_no_tokens_makes_no_records_of_them() -> None:
    """They cost more than all else in it, and the servers make a block for every answer."""
    words = {"The": 0.9, " capital": 0.8, " of": 0.9, " Peru": 0.7, " is": 0.6, " Lima": 0.5, " now": 0.4, ".": 0.9}
    steps = [{"token": word, "logprob": math.log(p), "top_logprobs": []} for word, p in words.items()]
    answer = score_logprobs(steps, None).with_fields(question="What is the capital of Peru?")
    made = score_block(answer, scorer_for(None, ScoringRules()), BlockOptions())
    assert made["new_word_confidence"] == pytest.approx(0.5)  # "now" is a function word
    assert isinstance(vars(answer)["tokens"], TokensLater)


def test_of_a_withheld_answer_the_numbers_stay_and_what_quotes_it_goes(tmp_path: Path) -> None:
    """By the one rule that gates hold a block to that comes from elsewhere."""
    words = {"Cairo": 0.6, " beside": 0.3, " Lima": 0.5, " perhaps": 0.2}
    steps = [{"token": word, "logprob": math.log(p), "top_logprobs": []} for word, p in words.items()]
    answer = score_logprobs(steps, None).with_fields(
        question="Where?", scores={"epr": 0.5}, score_bounds={"epr": (0.4, 0.6)}, proxy_for="m"
    )
    calibrator = put(tmp_path, signature=ScoringRules().signature, scores="top-k", k=20)
    made = [
        score_block(
            answer,
            scorer_for(None, ScoringRules()),
            BlockOptions(tokens=True, parts="word", competing=2, methods=("trace",)),
            CalibratorInUse(calibrator, abstain_text=text),
        )
        for text in (None, "No.")
    ]
    shown, withheld = made
    assert shown["decision"] == "abstain" and "proxy_for" in shown and "probability_correct_at_ends" in shown
    assert shown.keys() - withheld.keys() == {"tokens", "parts", "flags", "competing"}
    assert without_quotes(shown | {"of_a_later_version": "Cairo"}) == without_quotes(withheld)
    assert withheld.keys() - without_quotes(shown).keys() == {"explanation"}
    assert not any(word.strip() in json.dumps(withheld) for word in words)
    assert without_quotes({"version": 1, "reason": "It says Lima."}) == {"version": 1}


def test_a_block_of_too_many_parts_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be a hundred times as long as the answer, and keep other clients waiting."""
    assert block.MOST_PARTS == 10_000
    monkeypatch.setattr(block, "MOST_PARTS", 50)
    for words, listed in ((50, True), (51, False)):
        token = {"token": "1, " * words, "logprob": -0.1, "top_logprobs": []}
        answer = score_logprobs([token], None)
        made = score_block(answer, scorer_for(None, ScoringRules()), BlockOptions(parts="number"))
        assert len(made.get("parts", ())) == (words if listed else 0)
        assert ("more than 50 parts" in made.get("parts_refused", "")) is not listed
