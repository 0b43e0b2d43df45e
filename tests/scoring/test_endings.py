"""Which values may end at a token, by hand: after what the token before it left."""

from __future__ import annotations

import numpy as np
import pytest

from semtoken.scoring.endings import Endings
from semtoken.tokens.vocabulary import Vocabulary

PIECES = (b"7", b"x", b'"', b"]", b"\n", b",", b"true", b'"]')
NUMBER, STRING, ARRAY = 1, 2, 4


@pytest.mark.parametrize(
    ("before", "token", "ends"),
    [
        (b"7", b"7", 0),  # the number goes on
        (b"7", b"x", NUMBER),
        (b"7", b",", NUMBER),
        (b"x", b",", 0),
        (None, b"]", ARRAY),
        (b"x", b"]", ARRAY),
        (b"7", b"]", NUMBER + ARRAY),
        (b"x", b"\n", 0),  # no value is before the line's end
        (b"7", b"\n", NUMBER + ARRAY),
        (b"true", b"\n", ARRAY),
        (b"x", b'"', STRING),
        (b"7", b'"', NUMBER + STRING),
        (b"x", b'"]', STRING + ARRAY),
    ],
)
def test_what_may_end_at_a_token(before: bytes | None, token: bytes, ends: int) -> None:
    texts = tuple(piece.decode() for piece in PIECES)
    nothing = np.zeros(len(PIECES), dtype=bool)
    endings = Endings(Vocabulary(texts, PIECES, nothing, nothing))
    place = -1 if before is None else PIECES.index(before)
    assert endings.what_may_end(np.array([place]), np.array([PIECES.index(token)])).tolist() == [ends]


@pytest.mark.parametrize("asked", range(8))
def test_only_the_ends_that_are_asked_for_are_given(asked: int) -> None:
    """A digit has .2, a quotation mark .1, a bracket .2, a comma .1; .4 is not listed."""
    texts = tuple(piece.decode() for piece in PIECES)
    nothing = np.zeros(len(PIECES), dtype=bool)
    endings = Endings(Vocabulary(texts, PIECES, nothing, nothing))
    ids = np.array([PIECES.index(b"7"), PIECES.index(b'"'), PIECES.index(b"]"), PIECES.index(b",")])
    found = endings.from_list(asked, ids, np.array([0.2, 0.1, 0.2, 0.1]), 0.4)
    at_an_end = pytest.approx((0.4, 0.8))  # all but the digit
    assert found.number == (at_an_end if asked & NUMBER else None)
    assert found.digits == (at_an_end if asked & NUMBER else None)
    assert found.quote == (pytest.approx((0.1, 0.5)) if asked & STRING else None)
    assert found.array == (pytest.approx((0.2 / 0.7, 0.6 / 0.7)) if asked & ARRAY else None)
