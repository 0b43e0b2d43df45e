"""The changes that the program makes: each kind, each once."""

from __future__ import annotations

from tests.mutation.changes import changes


def test_every_kind_of_change_is_made_once() -> None:
    source = "x: int = f(a, -b) + 2 if not c < 1.0 else True  # é\ny += 'é' != z"
    assert [change.source for change in changes(source)] == [
        source.replace(before, after)
        for before, after in [
            ("not c < 1.0", "(c < 1.0)"),
            ("c < 1.0", "(c <= 1.0)"),
            ("1.0", "(0.8)"),
            ("1.0", "(1.2)"),
            ("f(a, -b) + 2", "(f(a, -b) - 2)"),
            ("f(a, -b)", "(f(-b, a))"),
            ("-b", "(+b)"),
            ("2", "(1)"),
            ("2", "(3)"),
            ("True", "(False)"),
            ("y +=", "y -="),
            ("'é' != z", "('é' == z)"),
        ]
    ]


def test_messages_and_annotations_stay() -> None:
    assert not changes('raise ValueError(f"{a + 1}")\nx: Literal[1] = a')


def test_a_change_says_where_it_stands() -> None:
    source = "A = 1\nclass B:\n    def c(self):\n        return d(2)\n"
    first, *_, last = changes(source)
    assert first.place == ("A",)
    assert last.diff("b.py") == "b.py:4 B.c\n-        return d(2)\n+        return d((3))"
