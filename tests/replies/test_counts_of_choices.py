"""In a reply that repeats its prompts, the tokens that its counts leave to the answers belong to them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from semtoken import score_reply
from semtoken.errors import SemtokenError

PROMPTS = (["The", " sum", " is"], ["A", " cat", " is", " an"])
ANSWERS = ([" four"], [" animal"])
LONGER = ([" four", "."], [" animal", ".", " It"])


def number(token: str) -> float:
    """A log-probability of a token of its own."""
    return -0.1 - sum(map(ord, token)) % 97 / 100


def choice(prompt: list[str], answer: list[str], index: int = 0, end: str = "length") -> dict[str, Any]:
    tokens = prompt + answer
    numbers = [None, *map(number, tokens[1:])]
    logprobs = {"tokens": tokens, "token_logprobs": numbers, "top_logprobs": None}
    return {"index": index, "text": "".join(tokens), "logprobs": logprobs, "finish_reason": end}


def reply(*choices: dict[str, Any], read: int | None = None, written: int | None = None) -> dict[str, Any]:
    counts = {"prompt_tokens": read, "completion_tokens": written}
    usage = {name: count for name, count in counts.items() if count is not None}
    return {"object": "text_completion", "choices": list(choices), "usage": usage}


def logs(value: Any, **options: Any) -> list[float]:
    return [found.log_confidence for found in score_reply(value, **options)]


def log_of(answer: list[str]) -> float:
    return math.fsum(map(number, answer))


def test_one_token_behind_each_of_two_prompts() -> None:
    both = [choice(prompt, answer, i) for i, (prompt, answer) in enumerate(zip(PROMPTS, ANSWERS, strict=True))]
    for read in (7, None):
        assert logs(reply(*both, read=read, written=2)) == pytest.approx([log_of(answer) for answer in ANSWERS])


def test_answers_of_two_prompts_that_all_end_at_the_limit_are_equally_long() -> None:
    words = [[" four", "."], [" animal", "."]]
    both = [choice(prompt, answer, i) for i, (prompt, answer) in enumerate(zip(PROMPTS, words, strict=True))]
    assert logs(reply(*both, read=7, written=4)) == pytest.approx([log_of(answer) for answer in words])


def test_several_answers_to_one_prompt_begin_where_the_prompt_ends() -> None:
    both = [choice(PROMPTS[0], answer, i, "stop") for i, answer in enumerate(LONGER)]
    assert logs(reply(*both, read=3, written=5)) == pytest.approx([log_of(answer) for answer in LONGER])


@pytest.mark.parametrize("answer", [[" four"], [" four", "."], [" four", ".", " It", "s"]])
def test_a_terminator_that_is_listed_and_neither_counted_nor_in_the_text_counts(answer: list[str]) -> None:
    one = choice(PROMPTS[0], [*answer, "<eos>"], end="stop")
    one["text"] = one["text"].removesuffix("<eos>")
    [found] = score_reply(reply(one, read=3, written=len(answer)))
    assert found.text == "".join(answer)
    assert found.log_confidence == pytest.approx(log_of([*answer, "<eos>"]))
    without_first = choice(PROMPTS[0][1:], answer)
    assert logs(reply(without_first, read=3, written=len(answer))) == pytest.approx([log_of(answer)])


def test_what_the_counts_leave_open_is_refused() -> None:
    both = [choice(prompt, answer, i, "stop") for i, (prompt, answer) in enumerate(zip(PROMPTS, LONGER, strict=True))]
    with pytest.raises(SemtokenError, match="counts the tokens of all choices together"):
        score_reply(reply(*both, read=7, written=5))
    with pytest.raises(SemtokenError, match="does not say where the answer begins"):
        score_reply(reply(*both))
    with pytest.raises(SemtokenError, match="a token less than it counts"):
        score_reply(reply(choice(PROMPTS[0], LONGER[0], end="stop"), read=4, written=2))


@pytest.mark.parametrize("end", ["length", "stop"])
@pytest.mark.parametrize("prompts", [1, 2])
def test_a_reply_of_prompts_alone_says_that_nothing_was_written(prompts: int, end: str) -> None:
    both = [choice(prompt, [], i, end) for i, prompt in enumerate(PROMPTS[:prompts])]
    with pytest.raises(SemtokenError, match="counts 0 tokens of an answer"):
        score_reply(reply(*both, read=sum(map(len, PROMPTS[:prompts])), written=0))


@pytest.mark.parametrize(
    ("read", "written", "request_of"), [(9, 2, None), (None, 2, None), (3, 2, {"prompt": "x", "echo": False})]
)
def test_a_first_number_that_is_missing_is_no_prompt(read: int | None, written: int, request_of: Any) -> None:
    """The list holds three tokens, the last of them the terminator."""
    whole = reply(choice([], ["Os", "lo", "</s>"], end="stop"), read=read, written=written)
    with pytest.raises(SemtokenError, match="1 of 3 steps have no log-probability"):
        score_reply(whole, request=request_of)
