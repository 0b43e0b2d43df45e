"""Texts that a rule withholds are nowhere in an entry: not whole, not in pieces."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken.errors import InvalidInputError
from semtoken.guarantees.journal.entries import AnswerOrigin, Recording, SamplingRule
from semtoken.guarantees.journal.kept_texts import TextRule, text_rule


def scored(pieces: list[str]) -> st.ScoredAnswer:
    """An answer of tokens each of which has a probability of 0.1 and a rival."""
    top = [{"token": "x", "logprob": math.log(0.6), "bytes": list(b"x")}]
    items = []
    for piece in pieces:
        own = {"token": piece, "logprob": math.log(0.1), "bytes": list(piece.encode())}
        items.append({**own, "top_logprobs": [*top, own]})
    message = {"role": "assistant", "content": "".join(pieces)}
    choice = {"index": 0, "message": message, "logprobs": {"content": items}, "finish_reason": "stop"}
    return st.score_reply({"object": "chat.completion", "model": "m", "choices": [choice]})[0]


def recorded(rule: TextRule, pieces: list[str]) -> str:
    recording = Recording(AnswerOrigin("proxy"), SamplingRule("seed", 1), b"salt", rule)
    question = "Is 4111-1111 my card?"
    entry = recording.entry(scored(pieces), {}, prompt=question, question=question)
    return json.dumps(json.loads(entry.line()))


def test_parts_in_doubt_give_nothing_away_that_a_rule_withholds() -> None:
    pieces = ["Yes", " ", "41", "11", "-", "11", "11"]
    open_rule, withheld = text_rule(True), text_rule(True, [r"\d{4}-\d{4}"])
    kept = recorded(open_rule, pieces)
    assert '"text": "41"' in kept and "Yes 4111-1111" in kept
    told = recorded(withheld, pieces)
    assert "Yes [withheld]" in told and "Is [withheld] my card?" in told
    assert "41" not in json.dumps([one.get("text") for one in json.loads(told)["doubts"]])
    assert len(json.loads(told)["doubts"]) == len(json.loads(kept)["doubts"]) > 0  # where, if not what
    assert "Yes" not in recorded(TextRule(), pieces)


def test_a_function_of_the_users_and_one_that_fails() -> None:
    assert text_rule(True, ["b"], None).apply("abc") == "a[withheld]c"
    assert TextRule(True, (), str.upper).apply("abc") == "ABC"

    def fails(text: str) -> str:
        raise RuntimeError(text)

    assert TextRule(True, (), fails).apply("abc") == "[withheld: the rule failed]"
    assert TextRule(False, (), str.upper).apply("abc") is None


def test_a_function_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules_of_mine.py").write_text("def hide(text):\n    return text.replace('France', 'a country')\n")
    (tmp_path / "broken_rules.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])  # as the command starts
    assert text_rule(True, (), "rules_of_mine:hide").apply("to France") == "to a country"
    for name in ("rules_of_mine:nothing", "broken_rules:hide", "no_such_module:hide", "rules_of_mine", ""):
        with pytest.raises(InvalidInputError, match="no function"):
            text_rule(True, (), name)


@pytest.mark.parametrize(("keep", "patterns"), [(False, ["a"]), (True, ["("])])
def test_rules_that_make_no_sense_are_refused(keep: bool, patterns: list[str]) -> None:
    with pytest.raises(InvalidInputError):
        text_rule(keep, patterns)


def test_an_entry_is_a_line_of_json_whatever_texts_and_numbers_come() -> None:
    """Half characters, NUL, NaN, infinities and NumPy's scalars: the standard library reads all of it back."""
    recording = Recording(AnswerOrigin("score"), SamplingRule("seed", 1), b"salt", TextRule(True))
    block = {"probability_correct": math.nan, "reason": "half \ud83d", "decision": "answer"}
    answer = scored(["a\0", "b"]).with_fields(scores={"own": np.float32(0.5), "none": -math.inf})
    about: dict[str, Any] = {
        "prompt": "\udc00 half",
        "question": "\udc00 half",
        "identifier": "line \ud83d",
        "model": "m\ud83d",
    }
    line = recording.entry(answer, block, **about).line()
    read = json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert (
        read["numbers"] == {"own": [0.5, None, None], "none": [None, None, None]}
        and read["probability_correct"] is None
    )
    assert (read["id"], read["model"], read["reason"]) == ("line ?", "m?", "half ?")
    assert (
        read["answer"] == "a\N{REPLACEMENT CHARACTER}b" and read["question"] == "? half" and len(read["prompt"]) == 16
    )
