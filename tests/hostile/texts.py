"""Hostile texts into the finders of parts: they refuse or answer, and their work grows as the text does."""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

from semtoken.choices import PartKind
from semtoken.core.parts import AnswerTokens, parts_of
from tests.core.answers import answer_of
from tests.hostile.endings import fault_of
from tests.hostile.outcomes import Outcome, case_random

PIECES = (
    *("1", "a1", "a.a.", "a.", "1,", "1.", "1 ", "1,111", "111 ", "$", "$1", "EUR ", "1e1", "-", "+-", "May ", "May 1"),
    *("1:", "1/", "v1.", "10 a.m. ", "1945 in ", "[", "{", "]", "}", "[[", '{"a":', '{"a":1,', "[1,", "[1],", "[],"),
    *('"', '["', '["[', '"[', "\\", '["\\', '\\"', '{"a":"b"},', '{"name":"f","arguments":{"a":1}},', '{"name":"f",'),
    *("/", "/-", "/.", "/a", "a@", "@", "a@b.", "a@a", "..", "~/", "http://", "http://.", "doi:10.1000/.", "[1,1,"),
    *("C:\\", "`", "```", "```json", "```\n", "```\na\n", "```q\n", "```python\n", "```c\n", "```html\n"),
    *(" ", "\t", "\n", " \n", "\r\n", "\u2028", "東", "タ", "ー", "ก", "é", "\u0301", "\u200d", "a\u0301"),
    *("\U0001f468\u200d", "\U0001f1e6", "\u00ad", "한", "_", "_the_", "don’t ", "not ", "a b. ", "Dr. ", "?! "),
    *("(", "a(", "'", "…", "the ", "\0", "\ufffd", "true", "null", "<a ", "</", "/*", "//", "#", "0x", "u'"),
    *("'''", '"""', "def ", "0" * 40, "x" * 40),
)
SHORT, LONG = 4_000, 16_000
"""Characters of the two texts of a case."""
FACTOR = 2.5
"""How much more than in proportion the longer text may take: machines are not even."""
LEAST = 0.1
"""Seconds of the processor below which growth says nothing."""


def hostile_text(rng: random.Random, length: int) -> str:
    """One to three pieces again and again, between others."""
    unit = "".join(rng.choice(PIECES) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    before, after = (rng.choice(("", rng.choice(PIECES))) for _ in range(2))
    return before + unit * (length // len(unit)) + after


def seconds_of(work: Callable[[], Any]) -> tuple[float, str | None]:
    """Time of the processor that some work takes in this thread, and what is wrong with how it ended."""

    def done() -> None:
        work()

    gc.collect()
    start = time.thread_time()
    fault = fault_of(done)
    return time.thread_time() - start, fault


def judge(short: Callable[[], Any], long: Callable[[], Any], times: float) -> str | None:
    """The fault of a finder with a text and one that is some times as long; None: there is none."""
    first = second = 0.0
    for _ in range(3):  # what a busy machine did once it will not do again
        (first, fault), (second, other) = seconds_of(short), seconds_of(long)
        if fault or other:
            return fault or other
        if second <= max(LEAST, FACTOR * times * first):
            return None
    return f"took {first:.3f} s, and {second:.3f} s for {times:g} times the characters"


def answer(text: str) -> AnswerTokens:
    """An answer whose tokens are four characters long, without a number worth looking at."""
    pieces = [text[at : at + 4].encode("utf-8", "replace") for at in range(0, len(text), 4)]
    return answer_of(pieces, [-0.1] * len(pieces))


def attack(seed: int, texts: int) -> Outcome:
    """Put so many pairs of texts through the finders, each through all of them."""
    outcome = Outcome("texts", "hostile texts into every finder of parts: work grows as the text does, and ends")
    start = time.monotonic()
    for number in range(texts):
        short, long = (hostile_text(case_random(seed, "texts", number), length) for length in (SHORT, LONG))
        answers = answer(short), answer(long)
        for by in get_args(PartKind):
            options: dict[str, Any] = {"keys": True, "containers": True} if by == "field" else {}
            quick, slow = (partial(parts_of, one, by, **options) for one in answers)
            fault = judge(quick, slow, len(long) / len(short))
            outcome.count(fault, f"{by}, text {number} of --seed {seed} {short[:60]!a}")
    outcome.notes.append(f"{math.ceil(time.monotonic() - start)} s")
    return outcome
