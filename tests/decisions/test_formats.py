"""Requests of both formats, right and odd ones: read where the packages whose formats they are allow them."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from semtoken.decisions.wire import openai, systemone
from semtoken.decisions.wire.extension import WireError
from tests.decisions.formats import KNOWN, permitted
from tests.rows import each
from tests.web.odd_requests import odd_request, right_request

PARSERS = {"/v1/decisions": openai.parse, "/v1/systemone": systemone.parse}


def test_a_request_is_read_if_its_format_allows_it_and_refused_with_words_if_not() -> None:
    chance, seen = random.Random(1), Counter[tuple[bool | None, bool]]()
    for number in range(1200):
        path, data = odd_request(chance) if number % 4 else right_request(chance, "tiny")
        allowed, said = permitted(path, data), ""
        try:
            PARSERS[path](data)
        except WireError as error:
            said = str(error)
            assert len(said) > 10
        seen[allowed, not said] += 1
        if allowed is False:
            assert said, (path, data[:500])
        elif allowed:
            assert not said or KNOWN.search(said), (said, path, data[:500])
    assert min(seen[True, True], seen[False, False]) > 200


@each(
    ("kind", "count", "allowed"),
    [("choice", 255, True), ("choice", 256, False), ("score", 10, True), ("score", 11, False)],
)
def test_a_question_has_as_many_options_as_its_format_allows(kind: str, count: int, allowed: bool) -> None:
    listed, name = {"choice": ("choices", "value"), "score": ("levels", "label")}[kind]
    question = {"type": kind, "instructions": "Which?", listed: [{name: f"option {i}"} for i in range(count)]}
    data = json.dumps({"input": "x", "questions": [question]}).encode()
    assert permitted("/v1/decisions", data) is allowed
    if allowed:
        openai.parse(data)
    else:
        with pytest.raises(WireError, match=f"at most {count - 1}"):
            openai.parse(data)
