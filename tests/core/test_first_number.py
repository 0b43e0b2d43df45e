"""The first number of an answer is its confidence, wherever it is shown: the product comes behind it."""

from __future__ import annotations

import csv
import html
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import semtoken as st
from semtoken.core.scorer import scorer_for
from semtoken.display import summary_line
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.integrations.events import evaluation
from semtoken.web.block import BlockOptions, score_block
from tests.guarantees.made_up import put
from tests.replies.test_check import reply, run

QUESTION = "What is the capital of Norway?"
WORDS = [("The", 0.4), (" capital", 0.5), (" of", 0.9), (" Norway", 0.6), (" is", 0.8), (" Oslo", 0.96), (".", 0.9)]
SENTENCE = [
    (text, math.log(p))
    for text, p in [
        *WORDS[:-1],
        (",", 0.7),
        (" which", 0.5),
        (" lies", 0.4),
        (" at", 0.5),
        (" a", 0.9),
        (" fjord", 0.4),
        WORDS[-1],
    ]
]


def answer() -> st.ScoredAnswer:
    """A sentence whose product is next to nothing."""
    [scored] = st.score_reply(reply(SENTENCE))
    assert scored.sequence_uncertainty > 0.98 and scored.confidence > 0.05
    return scored


def block() -> dict[str, Any]:
    """The block that serve and the proxy add to a reply."""
    return score_block(answer(), scorer_for(None, st.ScoringRules()), BlockOptions())


def file_of(folder: Path) -> Path:
    path = folder / "replies.jsonl"
    path.write_text(json.dumps({"id": "a", "question": QUESTION, "reply": reply(SENTENCE)}) + "\n", encoding="utf-8")
    return path


def checked_csv(folder: Path) -> str:
    run("check", file_of(folder), "-o", folder / "checked.csv")
    return (folder / "checked.csv").read_text(encoding="utf-8")


def parsed_reply(folder: Path) -> str:
    (folder / "reply.json").write_text(json.dumps(reply(SENTENCE)), encoding="utf-8")
    return run("check", folder / "reply.json")


def langchain(_: Path) -> str:
    messages = pytest.importorskip("langchain_core.messages", reason="LangChain is not installed")
    from semtoken.integrations.langchain import with_uncertainty

    made = reply(SENTENCE)["choices"][0]
    message = messages.AIMessage(made["message"]["content"], response_metadata={"logprobs": made["logprobs"]})
    return json.dumps(with_uncertainty().invoke(message).response_metadata["semtoken"], ensure_ascii=False)


def mcp(_: Path) -> str:
    pytest.importorskip("mcp", reason="mcp is not installed")
    from semtoken.integrations.mcp import _scored

    return str(_scored(answer(), QUESTION, None).model_dump_json())


PLACES: dict[str, Callable[[Path], str]] = {
    "repr": lambda _: repr(answer()),
    "card": lambda _: answer()._repr_html_(),
    "dict": lambda _: json.dumps(answer().to_dict(), ensure_ascii=False),
    "table": lambda _: st.to_frame([answer()]).to_csv(),
    "ask": lambda _: summary_line(answer()),
    "block of serve and proxy": lambda _: json.dumps(block(), ensure_ascii=False),
    "event": lambda _: json.dumps(evaluation(block())),
    "check": lambda folder: run("check", file_of(folder)),
    "check's table": checked_csv,
    "one reply": parsed_reply,
    "LangChain": langchain,
    "MCP": mcp,
}
LISTS = ("check", "one reply")
"""What prints a list of answers: the line of what is in doubt stands there in place of the explanation."""


@pytest.mark.parametrize("place", PLACES)
def test_the_confidence_and_the_least_sure_part_come_before_the_product(place: str, tmp_path: Path) -> None:
    shown = re.sub(r"<[^>]+>", " ", PLACES[place](tmp_path))
    first = re.search(r"confidence", shown, re.IGNORECASE)
    product = re.search(r"uncertainty", shown, re.IGNORECASE)
    assert first is not None, shown
    assert product is None or first.start() < product.start(), shown
    said = "In doubt: “lies” (40%)." if place in LISTS else "ts least sure part is “lies” (40%)"
    assert place in ("repr", "event") or said in " ".join(html.unescape(shown).split()), shown


def test_of_an_answer_that_is_held_back_nothing_is_quoted(tmp_path: Path) -> None:
    found = put(tmp_path / "calibrator", signature=st.ScoringRules().signature, scores="top-k", distribution="unknown")
    assert found.threshold is not None
    nobody = replace(found, threshold=replace(found.threshold, min_log_score=0.0))
    applied = CalibratorInUse(nobody, abstain_text="I do not know.")
    scorer = scorer_for(None, st.ScoringRules())
    shown = score_block(answer(), scorer, BlockOptions(tokens=True, parts="phrase"), applied)
    assert shown["decision"] == "abstain" and "lies" not in json.dumps(shown), shown
    assert shown["explanation"] == answer().without_quotes().explanation


def test_a_table_of_scored_answers_begins_with_the_confidence(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers, which runs the embedded model, is missing")
    source, target = tmp_path / "in.jsonl", tmp_path / "out.csv"
    record: dict[str, Any] = {"question": QUESTION, "response": "".join(text for text, _ in SENTENCE)}
    source.write_text(json.dumps(record) + "\n", encoding="utf-8")
    run("score", source, "--model", "almanac", "-o", target)
    with target.open(encoding="utf-8", newline="") as file:
        [row] = csv.DictReader(file)
    numbers = [name for name, value in row.items() if re.fullmatch(r"-?\d[\d.e-]*", value or "")]
    assert numbers[0] == "confidence", numbers
    assert float(row["confidence"]) > 1 - float(row["sequence_uncertainty"])


def test_a_number_that_says_nothing_makes_an_interval_and_no_blank_answer() -> None:
    """A zero with an empty list: the answer is there, and so is its least sure part."""
    empty = reply(SENTENCE, others={i: [(" or", -9.0)] for i in range(len(SENTENCE))})
    step = empty["choices"][0]["logprobs"]["content"][5]
    step |= {"logprob": 0.0, "top_logprobs": []}
    [scored] = st.score_reply(empty, question=QUESTION)
    assert scored.explanation.startswith("Its least sure part is “Oslo”")
    low, high = scored.confidence_interval
    assert low == 0 and high > 0.5
