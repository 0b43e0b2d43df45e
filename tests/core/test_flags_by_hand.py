"""Flags of answers, at the numbers from which on they stand there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from semtoken.core.flags import borrowed_flags, text_flags
from tests.rows import each


def answer(confidence: float, cluster: float = 0.0, words: float = 0.0, tokens: tuple[Any, ...] = ()) -> Any:
    borrowed = SimpleNamespace(cluster=cluster, function_words=words)
    return SimpleNamespace(sequence_uncertainty=1 - confidence, borrowed=borrowed, tokens=tokens)


@each("source", ["cluster", "function_words"])
@each(
    ("confidence", "mass", "flagged"),
    [(0.5, 0.25, True), (0.5, 0.249, False), (0.101, 0.09, True), (0.099, 0.09, False), (1.0, 0.5, True)],
)
def test_half_of_a_confidence_of_a_tenth_and_more_from_elsewhere_is_told(
    source: str, confidence: float, mass: float, flagged: bool
) -> None:
    one = answer(confidence, **{{"cluster": "cluster", "function_words": "words"}[source]: mass})
    assert [flag.code for flag in borrowed_flags(one)] == ([f"carried_by_{source}"] if flagged else [])


def token(text: str, *rivals: tuple[str, float], neutral: bool = False, **further: Any) -> Any:
    others = [
        SimpleNamespace(**{"text": other, "probability": p, "source": "cluster", "counted": True, **further})
        for other, p in rivals
    ]
    return SimpleNamespace(text=text, probability=0.5, neutral=neutral, alternatives=others)


def test_the_likeliest_rival_of_all_steps_is_told() -> None:
    tokens = (token("Canberra", ("Sydney", 0.12), ("Perth", 0.1)), token("Rome", ("Lima", 0.3)), token("so"))
    [flag] = borrowed_flags(answer(0.05, tokens=tokens))
    assert flag.code == "rivals_counted" and flag.message.startswith("'Lima' (0.300) counted as agreeing with 'Rome'")


@pytest.mark.parametrize(
    ("one", "flagged"),
    [
        (token("Canberra", ("Sydney", 0.1)), True),
        (token("Canberra", ("Sydney", 0.099)), False),
        (token("Canberra", ("Sydney", 0.4), neutral=True), False),
        (token("Canberra", ("Sydney", 0.4), counted=False), False),
        (token("Canberra", ("Sydney", 0.4), source="prefix"), False),
        (token("Canberra", (" CANdid", 0.4)), False),
        (token("Canberra", ("Caxton", 0.4)), True),
    ],
)
def test_another_word_of_a_tenth_is_a_rival_if_only_its_cluster_counts_it(one: Any, flagged: bool) -> None:
    assert bool(borrowed_flags(answer(0.05, tokens=(one,)))) == flagged


def test_a_text_that_the_steps_do_not_spell_is_told_from_where_it_differs() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    assert text_flags("it is \ufffd here", "it ishere") == ()
    [flag] = text_flags(f"the same {letters}", f"the same X{letters}")
    assert (
        flag.message
        == f"The steps spell {letters[:30]!r} where the answer says {'X' + letters[:29]!r}: some are missing."
    )
