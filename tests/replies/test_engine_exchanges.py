"""Exchanges with real engines, replayed: each number beside the one that transformers gave for the same weights.

`python -m tests.engines.held` recorded them and wrote benchmarks/engines-held.md. The model's own numbers were computed
by transformers then, and the largest differences from the reply as it came, so a reply that is altered by one digit no
longer agrees with them.
"""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from semtoken.core.engine_tokens.token_names import bytes_in_files
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.replies import score_reply
from tests.engines.held.exchanges import (
    SUMS,
    Exchange,
    differences,
    listed_in,
    load,
    numbers_read,
    reading,
    recorded,
    sum_of,
)
from tests.engines.held.requests import KILLED
from tests.engines.held.table import CLOSE, TABLE, flags_of, furthest, table
from tests.rows import each

EXCHANGES = recorded()
HELD = [path for path in EXCHANGES if any(choice.ids for choice in load(path).choices)]
SILENT_ABOUT_PROCESSING = "vllm-processed"
"""An engine that is set to give processed numbers and does not say so."""
CLOSE_BY_NAMES = 1e-5
DRAFTS = "llama-server-draft"
"""An engine that gives a 0 for each token that it takes from a draft."""


def agrees(exchange: Exchange) -> None:
    parsed_reply, problem = reading(exchange.reply)
    assert parsed_reply is not None and not problem
    listed = listed_in(exchange.reply)
    for index, choice in enumerate(exchange.choices):
        assert differences(parsed_reply, index, listed[index], choice.own) == pytest.approx(choice.furthest, abs=1e-12)


@each("path", HELD, ids=lambda path: path.stem)
def test_numbers_are_those_that_were_held_against_the_model(path: Path) -> None:
    agrees(load(path))


def by_names(reply: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """The reply as gateways pass it on that keep only names, or only the text that each token has alone."""
    reply = copy.deepcopy(reply)
    for choice in reply["choices"]:
        for item in choice["logprobs"]["content"]:
            for token in (item, *item.get("top_logprobs", ())):
                token.pop("id", None)
                spelled = bytes_in_files(token["token"]) if token.get("bytes") is None else bytes(token["bytes"])
                if not whole and spelled is not None:
                    token |= {"token": spelled.decode("utf-8", "replace"), "bytes": None}
    return reply


@each("path", HELD, ids=lambda path: path.stem)
def test_bounds_by_names_hold_the_number_by_ids(path: Path) -> None:
    """A token that is a piece of a character has no text of its own, and the terminator of an answer has none."""
    reply = load(path).reply
    try:
        exact = score_reply(reply)
    except SemtokenError:
        return
    if not isinstance(reply, dict) or '"content": [{' not in json.dumps(reply.get("choices")):
        return  # a stream, or another shape
    for whole in (True, False):
        try:
            named = score_reply(by_names(reply, whole=whole))
        except SemtokenError:
            continue
        for one, other in zip(exact, named, strict=True):
            (low, high), (least, most) = one.confidence_interval, other.confidence_interval
            assert least <= high + CLOSE_BY_NAMES and low - CLOSE_BY_NAMES <= most
            assert least <= other.confidence <= most
            wide = any(flag.code == "unnamed_pieces" for flag in other.flags)
            assert wide or other.confidence == pytest.approx(one.confidence, abs=CLOSE_BY_NAMES)


def end_of_read(exchange: Exchange, text: str) -> int:
    """The place where the tokens of a stop string begin in the text of a reply that lists them."""
    parsed_reply, _ = reading(exchange.reply)
    assert parsed_reply is not None
    behind = (
        listed_in(exchange.reply)[0][len(numbers_read(parsed_reply, 0)) :] if exchange.name.startswith("stop") else []
    )
    return text.index(repr(behind[0])) if behind else len(text)


_NUMBER = re.compile(r'(\\?"logprob\\?": ?-\d\.\d\d)(\d)')


@each("path", HELD, ids=lambda path: path.stem)
def test_any_one_digit_that_is_altered_is_noticed(path: Path) -> None:
    """Whole replies and streams, the chosen tokens' numbers and their rivals': one of each exchange.

    Tokens behind the message, those of a stop string, belong to no answer, so their digits change nothing.
    """
    exchange = load(path)
    recorded_sum = json.loads(SUMS.read_text(encoding="utf-8"))[path.stem]
    assert sum_of(exchange.reply) == pytest.approx(recorded_sum, abs=1e-9)
    text = exchange.reply if isinstance(exchange.reply, str) else json.dumps(exchange.reply)
    places = list(_NUMBER.finditer(text, 0, end_of_read(exchange, text)))
    for place in random.Random(path.stem).sample(places, min(1, len(places))):
        digit = str((int(place[2]) + 1) % 10)
        altered = text[: place.start(2)] + digit + text[place.end(2) :]
        try:
            found = sum_of(altered)
        except AssertionError:  # a reply that is refused is noticed, too
            continue
        assert abs(found - recorded_sum) > 1e-9


@each("path", HELD, ids=lambda path: path.stem)
def test_numbers_are_what_semtoken_calls_them(path: Path) -> None:
    exchange = load(path)
    parsed_reply, _ = reading(exchange.reply)
    assert parsed_reply is not None
    if exchange.engine == DRAFTS and "zero_log_probabilities" in flags_of(exchange):
        bounds = [scored.confidence_interval for scored in score_reply(exchange.reply)]
        assert all(found is not None and found[0] == 0 for found in bounds)
        return
    far = furthest(exchange, parsed_reply.distribution)
    if exchange.engine == SILENT_ABOUT_PROCESSING:
        far = furthest(exchange, "processed")
    if parsed_reply.distribution == "unknown":
        known = (furthest(exchange, kind) for kind in ("raw", "processed"))
        far = min(value for value in known if value is not None)
    if far is None:  # a grammar that was not applied to the model
        raw = furthest(exchange, "raw")
        assert parsed_reply.distribution == "processed" and raw is not None and raw > CLOSE[exchange.engine]
    else:
        assert far <= CLOSE[exchange.engine]


@each("path", HELD, ids=lambda path: path.stem)
def test_the_score_s_log_probability_is_the_model_s_own(path: Path) -> None:
    exchange = load(path)
    parsed_reply, _ = reading(exchange.reply)
    assert parsed_reply is not None
    if any(choice.segment("answer") is None for choice in parsed_reply.choices):
        return
    far = furthest(exchange, parsed_reply.distribution)
    for index, scored in enumerate(score_reply(parsed_reply)):
        read, own = numbers_read(parsed_reply, index), exchange.choices[index].own.get(parsed_reply.distribution, [])
        answer = parsed_reply.choices[index].segment("answer")
        assert answer is not None
        if len(read) == len(own) and far is not None and far <= CLOSE[exchange.engine]:
            expected = sum(own[-len(answer.steps) :])  # what stands before it is reasoning
            assert scored.log_probability == pytest.approx(expected, abs=len(own) * CLOSE[exchange.engine])


@each("path", sorted(set(EXCHANGES) - set(HELD)), ids=lambda path: path.stem)
def test_replies_that_do_not_tell_all_tokens_get_no_number(path: Path) -> None:
    """Characters of several tokens in llama-server's lists, the best tokens in place of the chosen ones, drafts that
    streams leave out, engines that were killed, and no list at all in the replies of `transformers serve`.
    """
    exchange = load(path)
    _, problem = reading(exchange.reply)
    if exchange.status != 200:
        return
    if exchange.name == KILLED:
        assert "stream ended before" in problem or "no log-probabilities" in problem
    elif exchange.engine == "llama-cpp-python":  # lists each piece of a character, without a name
        assert not problem
        try:
            assert score_reply(exchange.reply)[0].flags
        except InvalidInputError as error:  # the stream leaves the whole answer out
            assert path.stem == "llama-cpp-python-emoji-stream" and "no answer" in str(error)
    else:
        reasons = ("numbers are missing", "no log-probabilities", "do not spell", "steps are missing")
        assert any(reason in problem for reason in reasons)


def test_the_page_is_what_the_exchanges_say() -> None:
    assert TABLE.read_text(encoding="utf-8") == table()


def test_recordings_are_json_of_modest_size() -> None:
    for path in EXCHANGES:
        json.loads(path.read_text(encoding="utf-8"))
        assert path.stat().st_size < 8_000
