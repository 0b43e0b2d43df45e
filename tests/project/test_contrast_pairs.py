"""The contrast set is what its experiment says: pairs that differ in nothing but a true and a false completion."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

PAIRS = Path(__file__).parents[2] / "research" / "experiments" / "contrast" / "pairs.jsonl"
CATEGORIES = {"capital", "date", "unit", "negation", "arithmetic", "relation", "pronoun", "grammar", "spelling"}


def pairs() -> list[dict[str, str]]:
    return [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]


def test_there_are_200_pairs_of_every_category() -> None:
    found = Counter(pair["category"] for pair in pairs())
    assert found.total() >= 200
    assert set(found) == CATEGORIES
    assert min(found.values()) >= 10


def test_a_pair_is_a_prompt_and_two_different_completions() -> None:
    for pair in pairs():
        assert set(pair) == {"id", "category", "prompt", "true", "false"}
        assert all(isinstance(text, str) and text and text == text.strip() for text in pair.values()), pair
        assert pair["true"] != pair["false"], pair
        assert pair["id"].rpartition("-")[0] == pair["category"], pair


def test_no_pair_stands_twice() -> None:
    ids = [pair["id"] for pair in pairs()]
    assert len(set(ids)) == len(ids)
    seen = [(pair["prompt"], frozenset((pair["true"], pair["false"]))) for pair in pairs()]
    assert len(set(seen)) == len(seen)


def test_completions_are_of_one_kind() -> None:
    # A completion that is a number faces a number, one that is capitalized faces one that is.
    for pair in pairs():
        true, false = pair["true"], pair["false"]
        assert true.isdigit() == false.isdigit(), pair
        assert true[0].isupper() == false[0].isupper(), pair
        assert abs(len(true.split()) - len(false.split())) <= 1, pair
