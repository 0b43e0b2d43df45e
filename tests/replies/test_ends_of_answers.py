"""An answer has the tokens that its message holds, and its terminator, whatever else the list holds."""

from __future__ import annotations

import copy
import json
import math
import time
from typing import Any

import pytest

from semtoken import score_reply
from semtoken.errors import SemtokenError
from tests.replies.made import Item, chat_chunk, chat_reply, entry, events
from tests.replies.recorded import NAMES, recording
from tests.rows import each

SAID = (("Os", 0.8), ("lo", 0.9))
NUMBER = math.log(0.8) + math.log(0.9)
PAST = (("\n", 0.9), ("Q", 0.8), (":", 0.99), (" What", 0.2), (" is", 0.5), (" it", 0.4))


def item(text: str, probability: float, token: int | None = None) -> Item:
    """A token with one rival, which has half of the rest; both have ids if one is given."""
    known, next_one = ({}, {}) if token is None else ({"id": token}, {"id": token + 1})
    own = entry(text, math.log(probability), **known)
    return own | {"top_logprobs": [own, entry("zzz", math.log((1 - probability) / 2), **next_one)]}


def streamed(whole: dict[str, Any]) -> str:
    """The same reply as a stream: a chunk for each token, the last one with all that came behind the answer."""
    choice = whole["choices"][0]
    items, text = choice["logprobs"]["content"], choice["message"]["content"]
    chunks = []
    while text:
        first, *items = items
        text = text[len(first["token"]) :]
        chunks.append(chat_chunk(first))
    end = {name: choice[name] for name in ("finish_reason", "stop_reason") if name in choice}
    return events(*chunks, chat_chunk(*items, text="", **end), done=True)


@each("past", range(1, 7))
@each("told", ["by the reply", "by the request", "by nobody"])
@each("in_chunks", [False, True])
def test_tokens_past_a_stop_string_do_not_count(past: int, told: str, in_chunks: bool) -> None:
    """The number is the same whoever names the stop string; a flag says so while it is not known."""
    stop = "\nQ:"[:past]
    whole = chat_reply("Oslo", [item(*one) for one in SAID + PAST[:past]])
    if told == "by the reply":
        whole["choices"][0]["stop_reason"] = stop
    request = {"messages": [], "stop": [stop]} if told == "by the request" else None
    [found] = score_reply(streamed(whole) if in_chunks else whole, request=request)
    assert found.text == "Oslo"
    assert found.log_confidence == pytest.approx(NUMBER, abs=1e-6)
    named = any("stop string" in flag.message for flag in found.flags)
    assert named == (told == "by nobody" and past > 1)  # a blank may have been stripped


@each("past", range(1, 4))
def test_an_answer_that_its_stop_string_opens_is_empty_and_has_no_number(past: int) -> None:
    """The tokens of the stop string are no answer, be they one or several."""
    whole = chat_reply("", [item(*one) for one in SAID[:1] + PAST[1:past]], stop_reason="Os")
    with pytest.raises(SemtokenError, match="answer is empty"):
        score_reply(whole)


@pytest.mark.parametrize("field", ["stop_reason", "matched_stop"])
def test_a_token_that_ended_the_answer_counts_whatever_it_spells(field: str) -> None:
    whole = chat_reply("Oslo", [item(*one) for one in (*SAID, *PAST[:1])], **{field: 201})
    [found] = score_reply(whole)
    assert found.log_confidence == pytest.approx(NUMBER + math.log(0.9), abs=1e-6)


def test_a_request_without_a_stop_string_leaves_a_token_as_the_only_end() -> None:
    whole = chat_reply("Oslo", [item(*one) for one in (*SAID, *PAST[:1])])
    asked: dict[str, Any] = {"messages": []}
    for request, ends in ((asked, 0.9), (asked | {"stop": ["\n"]}, 1.0), (None, 1.0)):
        [found] = score_reply(whole, request=request)
        assert found.log_confidence == pytest.approx(NUMBER + math.log(ends), abs=1e-6)


def test_a_message_that_holds_its_stop_string_is_scored_with_it() -> None:
    whole = chat_reply("Oslo\nQ:", [item(*one) for one in SAID + PAST[:3]], stop_reason="\nQ:")
    [found] = score_reply(whole)
    assert found.text == "Oslo\nQ:"
    assert found.log_confidence == pytest.approx(NUMBER + math.log(0.9 * 0.8 * 0.99), abs=1e-6)


def scores(value: Any, **options: Any) -> list[float] | None:
    try:
        return [answer.log_confidence for answer in score_reply(value, **options)]
    except SemtokenError:
        return None


CHATS = [name for name in NAMES if "choices" in recording(name).reply]


@each(("place", "name"), enumerate(CHATS))
def test_tokens_added_to_a_recorded_reply_change_nothing(place: int, name: str) -> None:
    whole = copy.deepcopy(recording(name).reply)
    before = scores(whole)
    added = [item(f" +{i}{text}", probability) for i, (text, probability) in enumerate(PAST[: 1 + place % 6])]
    for choice in whole["choices"]:
        listed = (choice.get("logprobs") or {}).get("content")
        if before is None or not listed or choice["message"].get("tool_calls") or choice.get("token_ids"):
            return
        listed += added
    after = scores(whole)
    assert after is None or after == pytest.approx(before, abs=1e-6)


@each("stop", [" ", "\n", "\n\nQ:"])
@each("text", ["", " "])
def test_a_blank_stop_string_opens_an_answer_as_others_do(stop: str, text: str) -> None:
    whole = chat_reply(text, [item(f"{stop} DC", 0.5)], stop_reason=stop)
    with pytest.raises(SemtokenError, match="answer is empty, since its stop string opens it"):
        score_reply(whole)


ITEMS = [item(*one) for one in SAID]
BARE = [{"text": one["token"], "logprob": one["logprob"]} for one in ITEMS]


@each("cut", [True, False])
def test_the_end_of_an_answer_is_found_wherever_it_stands(cut: bool) -> None:
    watsonx = {"generated_text": "Oslo", "generated_tokens": BARE, "stop_reason": "max_tokens" if cut else "eos_token"}
    text = {"text": "Oslo", "tokens": [{"generatedToken": one} for one in ITEMS]}
    ai21 = {"data": text, "finishReason": {"reason": "length" if cut else "endoftext"}}
    llama_rn = {"text": "Oslo", "completion_probabilities": ITEMS, "stopped_limit": cut, "stopped_eos": not cut}
    for reply in ({"results": [watsonx]}, {"completions": [ai21], "finish_reason": "error"}, llama_rn):
        [found] = score_reply(reply)
        assert found.truncated is cut and "reply" not in [flag.code for flag in found.flags]


# --- a beginning that the model was given


GIVEN = "The capital is"
REST = ((" Paris", 0.9, 70), (",", 0.7, 28), (" France", 0.5, 46), (".", 0.8, 30))
END = item("", 0.5, 2) | {"bytes": []}
TOLD = {"messages": [{"role": "user", "content": "Capital?"}, {"role": "assistant", "content": GIVEN}]}


@pytest.mark.parametrize("given", [GIVEN, '{"capital":', "Aux é, c'est bien ça :"])
@pytest.mark.parametrize("ended", [True, False])
def test_a_prefill_in_the_message_does_not_count(given: str, ended: bool) -> None:
    items = [item(*one) for one in REST] + [END] * ended
    request = {"messages": [*TOLD["messages"][:1], {"role": "assistant", "content": given}]}
    text = f"{given} Paris, France."
    for options in ({"request": request}, {}):
        [found] = score_reply(chat_reply(text, items, usage=len(items)), **options)  # type: ignore[arg-type]
        assert found.text.startswith(" Paris, France.")
        wanted = math.log(0.9 * 0.7 * 0.5 * 0.8 * (0.5 if ended else 1))
        assert found.log_confidence == pytest.approx(wanted, abs=1e-6)
        assert any("prefill" in flag.message for flag in found.flags)


@each("text", [f"{GIVEN} Paris, France.", '{"capital": "Uruguay"}', "29 wrong tokens, and more"])
@each("count", [0, 1, 2])
def test_an_answer_never_rests_on_its_terminator_alone(text: str, count: int) -> None:
    """Neither where the message begins with what the list lacks, nor where the list is another message's."""
    items = [item(*one) for one in REST[:count]] + [END]
    with pytest.raises(SemtokenError, match="do not spell the message"):
        score_reply(chat_reply(text, items))


def test_an_answer_whose_first_token_is_lost_is_no_prefill() -> None:
    items = [item(*one) for one in REST[1:]] + [END]
    with pytest.raises(SemtokenError, match="do not spell the message"):
        score_reply(chat_reply("Paris, France.", items, usage=5))


# --- time


def seconds(times: int) -> float:
    items = [item(" ab", 0.9)] * times
    text = json.dumps(chat_reply((" ab" * times)[: 3 * times // 2], items))
    start = time.process_time()
    with pytest.raises(SemtokenError, match="fits 2 places"):
        score_reply(text)
    return time.process_time() - start


def test_repeated_tokens_take_time_in_proportion_to_their_number() -> None:
    seconds(500)
    assert min(seconds(4_000) for _ in range(2)) < 20 * max(min(seconds(500) for _ in range(3)), 0.005)


@pytest.mark.parametrize("ends", [True, False])
def test_a_token_whose_bytes_are_an_empty_list_has_its_text(ends: bool) -> None:
    items = [item("Hi", 0.8), item(" you", 0.7), item("<|end|>", 0.6)][: 2 + ends]
    plain = [{**one, "bytes": None} for one in items]
    [wanted] = score_reply(chat_reply("Hi you", plain))
    for k in range(len(items)):
        listed = [{**one, "bytes": []} if i == k else one for i, one in enumerate(items)]
        [scored] = score_reply(chat_reply("Hi you", listed))
        assert scored.n_tokens == len(items) and scored.log_confidence == pytest.approx(wanted.log_confidence, abs=1e-9)
