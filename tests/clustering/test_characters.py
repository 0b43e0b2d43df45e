"""The characters that a token spells, also beside broken ones."""

from __future__ import annotations

import codecs

from hypothesis import given
from hypothesis import strategies as st

from semtoken.clustering.tokenizers import character_ranges
from tests.rows import each


@each(
    ("pieces", "expected"),
    [
        ([b"caf", b"\xc3", b"\xa9"], [(0, 3), (3, 4), (3, 4)]),
        ([b"\xe4\xb8", b"abc", b"d"], [(0, 1), (1, 4), (4, 5)]),  # the broken character is the first token's alone
        ([b"\xf0\x9f", b"\x98", b"!"], [(0, 1), (0, 1), (1, 2)]),
        ([b"a", b"\xe4", b"\xe4\xb8\xad"], [(0, 1), (1, 2), (2, 3)]),
        ([b"\xe4\xb8a", b"b"], [(0, 2), (2, 3)]),
        ([b"\xff", b"", b"x", b"\xe4"], [(0, 1), (1, 1), (1, 2), (2, 3)]),
        ([None, b"ab", None], [(0, 1), (1, 3), (3, 4)]),
        ([], []),
    ],
)
def test_ranges(pieces: list[bytes | None], expected: list[tuple[int, int]]) -> None:
    assert character_ranges(pieces) == expected


@given(st.lists(st.binary(max_size=5) | st.text(max_size=4).map(lambda text: text.encode("utf-8", "replace"))))
def test_ranges_are_those_of_the_whole_text(pieces: list[bytes]) -> None:
    """The decoder says itself where each broken sequence of the whole text ends."""
    broken: dict[int, int] = {}

    def note(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeDecodeError)
        broken[error.start] = error.end
        return "\ufffd", error.end

    codecs.register_error("tests.note", note)
    whole = b"".join(pieces)
    text = whole.decode("utf-8", "tests.note")
    owners: list[int] = []  # the character of each byte
    for number, character in enumerate(text):
        at = len(owners)
        owners += [number] * (broken[at] - at if at in broken else len(character.encode()))
    position = 0
    for piece, (start, end) in zip(pieces, character_ranges(pieces), strict=True):
        if piece:
            assert (start, end) == (owners[position], owners[position + len(piece) - 1] + 1)
        position += len(piece)
