"""Faults of real servers in their lists: one property for each kind beside those of the two readings."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken import score_reply
from semtoken.clustering.tokenizers import byte_alphabet
from semtoken.errors import SemtokenError
from semtoken.replies import read_reply
from tests.replies.made import Item, chat_chunk, chat_reply, events, listed

LETTERS = {value: key for key, value in byte_alphabet().items()}


SAID = [listed("Oslo", -0.22314, (" Oslo", -2.99573)), listed(".", -0.10536, ("!", -2.5))]
NUMBER = math.log(0.8 + 0.05) - 0.10536
FAULTS = st.sampled_from([None, math.nan, math.inf, -math.inf, -9999.0, -3.4e38])


def log_of(value: Any, **options: Any) -> float:
    [found] = score_reply(value, **options)
    return found.log_confidence


@given(st.data(), FAULTS)
def test_a_rival_without_a_number_ends_nothing(data: st.DataObject, value: float | None) -> None:
    items = copy.deepcopy(SAID)
    rival = data.draw(st.sampled_from(items))["top_logprobs"][1]
    before = rival.pop("logprob")
    if data.draw(st.booleans()):
        rival["logprob"] = value
    [found] = score_reply(json.loads(json.dumps(chat_reply("Oslo.", items))))
    low, high = found.sequence_uncertainty_interval
    assert low - 1e-4 <= 1 - math.exp(NUMBER) <= high + 1e-4, before


@given(st.integers(0, 1), st.sampled_from([None, math.nan, -9999.0, -1000.0, -100.0, 0.0]))
def test_a_chosen_token_without_a_number_is_never_certain(at: int, value: float | None) -> None:
    items = copy.deepcopy(SAID)
    items[at]["logprob"], items[at]["top_logprobs"] = value, []
    try:
        [found] = score_reply(chat_reply("Oslo.", items))
    except SemtokenError:
        return
    assert found.sequence_uncertainty_interval[1] >= 1 - 1e-6
    assert found.flags


@pytest.mark.parametrize("count", [1, 2, 7])
def test_nothing_but_zeros_without_lists_is_refused(count: int) -> None:
    words = ["Yes", *[" yes"] * (count - 1)]
    items = [listed(word, 0.0) | {"top_logprobs": []} for word in words]
    with pytest.raises(SemtokenError, match="log-probability 0"):
        score_reply(chat_reply("".join(words), items))


@given(st.booleans(), st.sampled_from(["Oslo liegt.", "né à Oslo", "東京", "a b"]))
def test_names_as_in_the_tokenizers_file(with_bytes: bool, text: str) -> None:
    """The same number as for decoded names: blanks are "Ġ", other bytes letters of an alphabet."""
    words = [f" {word}" for word in text.split()]
    plain = [listed(word, -0.30001, (word.upper(), -2.30001)) for word in words]
    spelled = copy.deepcopy(plain)
    for one in [token for each in spelled for token in (each, *each["top_logprobs"])]:
        one["token"] = "".join(LETTERS[byte] for byte in one["token"].encode())
        one["bytes"] = list(one["token"].encode()) if with_bytes else None
    said = "".join(words)
    assert log_of(chat_reply(said, spelled)) == pytest.approx(log_of(chat_reply(said, plain)), abs=1e-9)


@pytest.mark.parametrize("reason", ["error", "abort", "content_filter", "SAFETY", "recitation", "whatever"])
def test_an_end_that_is_not_the_models_own_is_told(reason: str) -> None:
    try:
        [found] = score_reply(chat_reply("Oslo.", SAID, finish_reason=reason))
    except SemtokenError as error:
        assert reason in str(error)
    else:
        assert any(reason in flag.message for flag in found.flags)


@pytest.mark.parametrize("place", ["reply", "choice"])
def test_an_error_beside_an_answer_refuses_it(place: str) -> None:
    value = chat_reply("Oslo.", SAID)
    (value if place == "reply" else value["choices"][0])["error"] = {"message": "Provider gone"}
    with pytest.raises(SemtokenError, match="Provider gone"):
        read_reply(value)
    stream = {"choices": [], "error": {"message": "Provider gone"}}
    with pytest.raises(SemtokenError, match="Provider gone"):
        read_reply([chat_chunk(*SAID[:1]), stream])


WORD = st.text("abcde", min_size=1, max_size=4)
SHORT = st.integers(-40, 0).map(lambda tenths: tenths / 10)


def streamed(chunks: list[list[Item]]) -> list[Any]:
    return [*(chat_chunk(*items) for items in chunks), chat_chunk(finish_reason="stop")]


@given(st.lists(st.tuples(WORD, SHORT), min_size=2, max_size=8, unique_by=lambda one: one[0]), st.data())
def test_chunks_that_repeat_what_came_before_give_no_number(
    words: list[tuple[str, float]], data: st.DataObject
) -> None:
    items = [listed(f" {word}", number, ("?", -5.0)) for word, number in words]
    inside = sorted(data.draw(st.sets(st.integers(1, len(items) - 1), min_size=1)))
    ends = [*inside, len(items)]
    parts = [items[a:b] for a, b in zip([0, *inside], ends, strict=True)]
    whole = chat_reply("".join(one["token"] for one in items), items)
    if any(number < 0 for _, number in words):
        assert log_of(streamed(parts)) == log_of(whole)
    for repeating in ([items[:end] for end in ends], [*parts, items]):
        with pytest.raises(SemtokenError, match="repeat the tokens before them"):
            score_reply(streamed(repeating))


@pytest.mark.parametrize("stop", [[], ["elsewhere"], [" "], "\n"])
def test_another_stop_string_explains_nothing(stop: Any) -> None:
    items = [*SAID, listed("###", -0.4), listed(" more", -0.5)]
    [found] = score_reply(chat_reply("Oslo.", items), request={"messages": [], "stop": stop})
    assert any("not in the message" in flag.message for flag in found.flags)


@given(st.lists(SHORT.filter(bool), min_size=1, max_size=5), st.data())
def test_a_zero_without_a_list_among_lists_of_one_says_nothing(numbers: list[float], data: st.DataObject) -> None:
    """As servers send it that were asked for one alternative and give the chosen token itself."""
    items = [listed(f" w{i}", number) for i, number in enumerate(numbers)]
    at = data.draw(st.integers(0, len(items)))
    items.insert(at, listed(" zero", 0.0) | {"top_logprobs": []})
    [found] = score_reply(chat_reply("".join(one["token"] for one in items), items))
    assert found.sequence_uncertainty_interval[1] == 1
    assert any("says nothing" in flag.message for flag in found.flags)


@given(st.data())
def test_a_character_whose_pieces_are_missing_is_told(data: st.DataObject) -> None:
    """Every character comes in pieces, each with its bytes. Without some of them there is a flag, or no number."""
    text = data.draw(st.text("aé日本😊", min_size=2, max_size=5)) + "b"
    steps: list[dict[str, Any]] = [
        {"token": "\ufffd", "logprob": -0.31 - 0.01 * i, "bytes": [byte], "top_logprobs": []}
        for i, byte in enumerate(text.encode())
    ]
    [whole] = score_reply(chat_reply(text, steps))
    assert whole.log_confidence == pytest.approx(sum(step["logprob"] for step in steps), abs=1e-4)
    assert not any("character" in flag.message for flag in whole.flags)
    lost = data.draw(st.integers(0, len(steps) - 2))
    try:
        [found] = score_reply(chat_reply(text, steps[:lost] + steps[lost + 1 :]))
    except SemtokenError:
        return
    assert any("make no character" in flag.message for flag in found.flags)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"logprobs": {"content": SAID}, "message": {"content": "Lima."}}, "part of a reply"),
        ({"content": SAID, "refusal": None}, "part of a reply"),
        (SAID, "part of a reply"),
        ([chat_reply("Oslo.", SAID)] * 2, "several whole replies"),
        ({"id": "c", "choices": None}, "choices must be a list"),
        ({"id": "r", "object": "response", "status": "completed"}, "output must be a list"),
        ({"text": "Oslo.", "token_ids": [1, 2], "logprobs": None}, "object of an engine"),
        ({"text": "Oslo.", "logprobs": [{"1": -0.5, "2": -2.5}, {"2": -0.5, "1": -2.5}]}, "not which"),
        (str(chat_reply("Oslo.", SAID)), "Python prints"),
        ("ChatCompletion(id='c', choices=[])", "Python prints"),
        (f"{json.dumps(chat_reply('Oslo.', SAID))}\n" * 2, "on each line"),
        (chat_reply("", [], finish_reason="load"), "is empty"),
        ({"choices": [{"text": "Oslo.", "logprobs": {"top_logprobs": [{"Oslo": -0.1}, {".": -0.2}]}}]}, "not which"),
    ],
)
def test_what_is_no_reply_is_called_by_its_name(value: Any, told: str) -> None:
    with pytest.raises(SemtokenError, match=told):
        score_reply(value)


@pytest.mark.parametrize(("end", "flagged"), [(1, False), ("FinishReason.STOP", False), (3, True), ("SAFETY", True)])
def test_reasons_of_an_end_as_pythons_clients_save_them(end: Any, flagged: bool) -> None:
    chosen = [{"token": "Oslo", "log_probability": -0.1}]
    candidate = {"content": {"parts": [{"text": "Oslo"}]}, "finish_reason": end}
    [found] = score_reply({"candidates": [candidate | {"logprobs_result": {"chosen_candidates": chosen}}]})
    assert any("SAFETY" in flag.message for flag in found.flags) is flagged
    assert found.log_confidence == pytest.approx(-0.1, abs=1e-4)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("end", ["stop", None, "", "null"])
def test_a_stream_without_a_reason_of_its_end_is_flagged_or_refused(done: bool, end: str | None) -> None:
    chunks = [*map(chat_chunk, SAID), chat_chunk(finish_reason=end)]
    sent = events(*chunks, done=done)
    said = end not in (None, "", "null")
    if not said and not done:
        with pytest.raises(SemtokenError, match="ended before"):
            score_reply(sent)
        return
    [found] = score_reply(sent)
    assert found.log_confidence == pytest.approx(NUMBER, abs=1e-4)
    assert any("finish_reason" in flag.message for flag in found.flags) is not said
