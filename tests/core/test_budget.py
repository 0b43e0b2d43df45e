"""Finding parts is linear in the text, and ends where it takes too much."""

from __future__ import annotations

import inspect
import json
import time
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from semtoken.core.parts import budget as budgets
from semtoken.core.parts import parts_of
from semtoken.core.parts.budget import Budget
from semtoken.core.parts.code import find_identifiers
from semtoken.core.parts.fields import ToolCall, find_fields, find_given_calls, find_tool_calls
from semtoken.core.parts.json_values import find_json
from semtoken.core.parts.lexing import tokens
from semtoken.errors import BudgetExceededError, InvalidInputError
from tests.core.answers import answer_of
from tests.rows import each

PATIENCE = 600.0  # the machine may be busy
CALL = '{"name": "f", "arguments": {"a": 1}}'


class Counted(Budget):
    """A budget that counts what is spent."""

    spent = 0

    def spend(self, steps: int = 1) -> None:
        self.spent += steps


def fields_of(text: str, budget: Budget) -> Iterable[Any]:
    return find_fields(text, find_json(text, budget), keys=True, containers=True, budget=budget)


@each(
    ("find", "text"),
    [
        (fields_of, lambda n: "[" * n),
        (fields_of, lambda n: "[" * n + "x"),
        (fields_of, lambda n: '{"a":' * n + "x"),
        (fields_of, lambda n: "[1]," * n),
        (fields_of, lambda n: "[" + "[1]," * n + "x"),
        (fields_of, lambda n: '["[' * n + "x"),
        (fields_of, lambda n: '["' + "[[x," * n + '"x'),
        (fields_of, lambda n: "[" + '{"a": [1]},' * n + "0]"),
        (lambda text, budget: find_tool_calls(text, budget), lambda n: "[" + ",".join([CALL] * n) + "]"),
        (lambda text, budget: find_tool_calls(text, budget), lambda n: "[" * n + CALL + "]" * n),
        (lambda text, budget: find_identifiers(text, None, budget), lambda n: "```" + " " * n),
        (lambda text, budget: find_identifiers(text, None, budget), lambda n: "```\nab\n```\n" * (n // 10)),
    ],
)
def test_work_grows_as_the_text_does(find: Callable[[str, Budget], Iterable[Any]], text: Callable[[int], str]) -> None:
    work = []
    for n in (250, 1000):
        counted = Counted(text(n))
        for _ in find(text(n), counted):
            pass
        work.append(counted.spent + len(text(n)))
    assert work[1] < 5 * work[0]


def test_deep_nesting_takes_little_memory() -> None:
    tracemalloc.start()
    text = "[" * 10_000 + "1" + "]" * 10_000
    [value] = find_json(text, Budget(text, max_seconds=PATIENCE)).scalars
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert value.pointer == "/0" * 10_000
    assert peak < 20e6  # the pointers of all 10,000 arrays would take 100 MB


@pytest.mark.parametrize(
    "text",
    [
        "[" * 800 + "]" * 800,  # every array holds all the others
        json.dumps({"k" * 1_000: [0] * 1000}),  # every item carries the long key in its path
        "[" * 300 + "1," * 1000 + "1" + "]" * 300,
    ],
)
def test_what_would_grow_faster_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "STEPS", 10_000)
    answer = answer_of([text.encode()], [-0.1])
    with pytest.raises(BudgetExceededError, match="too many or too deeply nested"):
        parts_of(answer, "field", containers=True, max_seconds=PATIENCE)


def test_values_that_a_server_respelled_are_not_looked_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "STEPS", 10_000)
    text = "1" * 1_000
    calls = [ToolCall("f", json.dumps([int("1" * 9)] * 500))]
    with pytest.raises(BudgetExceededError, match="too many"):
        list(find_given_calls(text, calls, Budget(text, max_seconds=PATIENCE)))


@each("by", ["word", "phrase", "sentence", "number", "reference", "field", "identifier", "tool_call"])
def test_limits_hold_for_every_kind(by: Any) -> None:
    answer = answer_of([b'[{"name": "f1", "arguments": {"a": 1}}]. See /a/b'], [-0.1])
    assert parts_of(answer, by)
    with pytest.raises(BudgetExceededError, match="has 49 characters; parts are looked for in 48"):
        parts_of(answer, by, max_characters=48)
    with pytest.raises(BudgetExceededError, match="within 0 seconds"):
        parts_of(answer, by, max_seconds=0)


@pytest.mark.parametrize("limits", [{"max_seconds": -1}, {"max_seconds": "soon"}, {"max_characters": 1.5}])
def test_limits_that_are_none_are_refused(limits: Any) -> None:
    with pytest.raises(InvalidInputError, match="'max_"):
        parts_of(answer_of([b"abc"], [-0.1]), "word", **limits)


def test_a_lexer_that_takes_too_long_is_ended() -> None:
    code = "a\n" * 20_000  # minutes for Pygments' lexer of C#
    start = time.monotonic()
    with pytest.raises(BudgetExceededError, match=r"within 0\.3 seconds"):
        list(find_identifiers(f"```csharp\n{code}\n```", None, Budget(code, max_seconds=0.3)))
    assert time.monotonic() - start < 20


def test_another_process_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    code, languages = "<b>x</b> def f(a): return 'y' # z\nRUN echo 1\n" * 3, ("python", "html", "ruby", "docker")
    expected = [[token for token in tokens(language, code) if token is not None] for language in languages]
    from semtoken.core.parts import code as finding_code

    monkeypatch.setattr(finding_code, "WITHSTOOD", frozenset())
    found = finding_code.tokens_of([(language, code) for language in languages], Budget(code))
    assert [[tuple(token) for token in one] for one in found] == expected


def test_a_lexer_that_fails_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(language: str, code: str) -> Any:
        yield None
        raise IndexError

    monkeypatch.setattr("semtoken.core.parts.code.lexing.tokens", failing)
    with pytest.raises(InvalidInputError, match="lexer of Python fails on this code: IndexError"):
        list(find_identifiers("a = 1"))


def test_the_clock_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("semtoken.core.parts.budget.time.monotonic", lambda: now[0])
    budget = Budget("abc", max_seconds=2)
    budget.spend()
    assert budget.seconds_left == 2
    now[0] = 2.5
    with pytest.raises(BudgetExceededError, match="within 2 seconds"):
        budget.spend()
    assert budget.seconds_left > 0


def test_the_number_of_parts_is_bounded() -> None:
    answer = answer_of([b"1 "] * 30, [-0.1] * 30)
    assert len(parts_of(answer, "number", max_parts=30)) == 30
    with pytest.raises(BudgetExceededError, match="more than 29 parts"):
        parts_of(answer, "number", max_parts=29)
    with pytest.raises(InvalidInputError, match="max_parts"):
        parts_of(answer, "number", max_parts=-1)


def test_the_usual_limits_are_those_that_the_manual_names() -> None:
    """docs: half a million characters, ten seconds, a hundred thousand parts."""
    usual = {name: one.default for name, one in inspect.signature(parts_of).parameters.items() if "max_" in name}
    assert usual == {"max_characters": 500_000, "max_seconds": 10.0, "max_parts": 100_000}
    with pytest.raises(BudgetExceededError, match="500,001 characters"):
        Budget("x" * 500_001)
    Budget("x" * 500_000)
