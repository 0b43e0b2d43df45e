"""Random JSON, dumped with random blanks and escapes and cut into random byte pieces."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semtoken.core.parts import parts_of
from semtoken.core.parts.json_values import all_json, find_json
from tests.core.answers import answer_of

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from(["café", 'a"b', "\\", "😀 ok", "2024-05-01", "/", "~"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[Any, str]:
    """A value and one way to write it."""
    value = draw(VALUES)
    style = draw(st.sampled_from([None, 1, 3, "\t"]))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\r\n")]))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=style, separators=separators)
    return value, text


@st.composite
def cut_documents(draw: st.DrawFn) -> tuple[Any, str, list[bytes]]:
    value, text = draw(documents())
    text = draw(st.sampled_from(["", "Sure: ", "```json\n"])) + text if isinstance(value, dict | list) else text
    raw = text.encode()
    cuts = sorted(draw(st.sets(st.integers(0, len(raw)), max_size=len(raw) // 2 + 1)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    return value, text, pieces  # equal cuts cannot be drawn, but an empty first or last piece can: a special token


def leaves(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """Pointer and value of every scalar, by a plain recursion over what was dumped."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, pointer + "/" + key.replace("~", "~0").replace("/", "~1"))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from leaves(inner, f"{pointer}/{i}")
    else:
        yield pointer, value


def touching(pieces: list[bytes], text: str, start: int, end: int) -> list[int]:
    """Tokens that share a byte with the bytes of text[start:end], one by one."""
    low, high = len(text[:start].encode()), len(text[:end].encode())
    found, position = [], 0
    for i, piece in enumerate(pieces):
        first, last = position, position + len(piece)
        position = last
        if (low == high and first < low < last) or (low < high and max(first, low) < min(last, high)):
            found.append(i)
    return found


@given(cut_documents(), st.randoms(use_true_random=False))
def test_every_scalar_is_found_with_its_tokens(drawn: tuple[Any, str, list[bytes]], random: Any) -> None:
    value, text, pieces = drawn
    masses = [-random.random() for _ in pieces]
    answer = answer_of(pieces, masses)
    assert answer.text == text
    parts = parts_of(answer, "field", equality="exact")
    expected = list(leaves(value))
    assert [(part.path, part.value) for part in parts] == expected
    tokens: dict[str, set[int]] = {}
    for part in parts:
        written = f'"{part.text}"' if part.kind == "string" else part.text
        assert json.loads(written) == part.value
        assert list(part.tokens) == touching(pieces, text, part.start, part.end)
        assert part.product == pytest.approx(math.exp(sum(masses[i] for i in part.tokens)), rel=1e-12)
        tokens[part.path or ""] = set(part.tokens)
    shared = [i for i in range(len(pieces)) if sum(i in own for own in tokens.values()) > 1]
    for i in shared:  # a token of two fields holds characters of both
        assert sum(start < end and i in touching(pieces, text, start, end) for start, end in ranges(parts)) > 1 or any(
            part.start == part.end for part in parts
        )
    if not shared:
        union = set().union(*tokens.values()) if tokens else set()
        assert sum(math.log(part.product) for part in parts if part.product) == pytest.approx(
            sum(masses[i] for i in union), abs=1e-9
        )


def ranges(parts: list[Any]) -> list[tuple[int, int]]:
    return [(part.start, part.end) for part in parts]


@given(documents(), st.data())
def test_cut_text_gives_a_beginning_of_the_fields(drawn: tuple[Any, str], data: Any) -> None:
    value, text = drawn
    if not isinstance(value, dict | list):
        return
    length = data.draw(st.integers(1, len(text)))
    whole, cut = find_json(text), find_json(text[:length])
    assert whole.complete
    assert cut.complete == (length == len(text))
    known = [(one.pointer, one.start) for one in cut.scalars]
    assert known == [(one.pointer, one.start) for one in whole.scalars][: len(known)]
    for one, same in zip(cut.scalars, whole.scalars, strict=False):
        assert one == same or (one.kind == "number" and one.end == length)  # a number at the end may go on
    missed = whole.scalars[len(known) :]
    assert all(one.end + (one.kind == "string") > length or one.kind == "number" for one in missed[:1])


@given(st.text(alphabet='{}[]",:\\u0trefalsn1.e- \n`', max_size=60))
def test_any_text_is_read_without_an_error(text: str) -> None:
    document = find_json(text)
    for one in document.values:
        assert 0 <= one.start <= one.end <= len(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    assert document.complete
    assert sorted(map(repr, dict(leaves(value)).items())) == sorted(
        map(repr, {one.pointer: one.value for one in document.scalars}.items())
    ) or has_overwritten_keys(document)


def has_overwritten_keys(document: Any) -> bool:
    pointers = [one.pointer for one in document.values if one.kind == "key"]
    return len(pointers) != len(set(pointers))


def test_a_text_that_ends_inside_a_string_or_an_escape_was_cut_off_and_is_not_broken() -> None:
    text = '{"a": 1, "b": "x\\u00e9\\ud83d\\ude00\\n\\"y"}'
    for end in range(len('{"a": 1,'), len(text) - 1):
        [found] = all_json(text[:end])
        assert [one.value for one in found.scalars] == [1] and not found.complete
    assert [one.value for one in find_json(text).scalars] == [1, 'x\u00e9\U0001f600\n"y']
    assert list(all_json('[1, "\\x", 2, 3]')) == []
