"""The changes that the program makes: each kind, each once."""

from __future__ import annotations

from tests.mutation.changes import change_number, count


def test_every_kind_of_change_is_made_once() -> None:
    source = "x: int = f(a, -b) + 2 if not c < 1.0 else True"
    made = [change_number(source, number).source for number in range(count(source))]
    assert sorted(made) == sorted(
        [
            "x: int = f(-b, a) + 2 if not c < 1.0 else True",
            "x: int = f(a, +b) + 2 if not c < 1.0 else True",
            "x: int = f(a, -b) - 2 if not c < 1.0 else True",
            "x: int = f(a, -b) + 1 if not c < 1.0 else True",
            "x: int = f(a, -b) + 3 if not c < 1.0 else True",
            "x: int = f(a, -b) + 2 if not not c < 1.0 else True",
            "x: int = f(a, -b) + 2 if not c <= 1.0 else True",
            "x: int = f(a, -b) + 2 if not c < 0.8 else True",
            "x: int = f(a, -b) + 2 if not c < 1.2 else True",
            "x: int = f(a, -b) + 2 if not c < 1.0 else False",
        ]
    )


def test_messages_and_annotations_stay() -> None:
    assert count('raise ValueError(f"{a + 1}")\nx: Literal[1] = a') == 0
