"""Places of a text among pieces, some of them unknown: as a regular expression finds them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.engine_tokens.placing import SpelledText, find_text, find_texts, pieces_of, place_of_answer
from tests.rows import each


def is_blank(piece: SpelledText) -> bool:
    return piece.text is not None and not piece.text.strip()


def fits(pieces: Sequence[SpelledText], target: str, *, cut: bool) -> bool:
    """Whether pieces spell a text; the last one may say more, blanks or, where the text was cut, anything."""
    texts = [piece.text for piece in pieces]
    parts = [f".{{0,{piece.at_most}}}" if piece.text is None else re.escape(piece.text) for piece in pieces]
    if texts[0] is not None:
        parts[0] = re.escape(texts[0].lstrip())
    if (last := texts[-1]) is not None:
        last = last if len(texts) > 1 else last.lstrip()
        ends = [last[:k] for k in range(1, len(last) + 1) if cut or not last[k:].strip()]
        parts[-1] = f"({'|'.join(map(re.escape, ends))})"
    return not is_blank(pieces[-1]) and re.fullmatch("".join(parts), target) is not None


def spans_by_pattern(pieces: Sequence[SpelledText], target: str, *, cut: bool) -> list[tuple[int, int]]:
    """All steps in a row that can spell a text, and of which some say what they spell."""
    return [
        (start, end)
        for start, end in combinations(range(len(pieces) + 1), 2)
        if not is_blank(pieces[start])
        and not all(piece.text is None or is_blank(piece) for piece in pieces[start:end])
        and fits(pieces[start:end], target, cut=cut)
    ]


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[SpelledText], str]:
    """A text in pieces, with others around it; some of them do not tell what they say."""
    text = draw(st.text("aab ", min_size=1, max_size=24).filter(str.strip))
    places = [0, *sorted(draw(st.sets(st.integers(1, 23), max_size=6))), len(text)]
    around = st.lists(st.text("ab ", min_size=1, max_size=3), max_size=3)
    own = [text[first:last] for first, last in pairwise(places)]
    own[-1] += draw(st.sampled_from(["", "", " ", "b"]))
    texts = [*draw(around), *filter(None, own), *draw(around)]
    unknown = draw(st.sets(st.integers(0, len(texts) - 1), max_size=2))
    width = draw(st.integers(1, 3))
    return [SpelledText(None, width) if i in unknown else SpelledText(one) for i, one in enumerate(texts)], text


@example(([SpelledText(None, 2), *[SpelledText("a")] * 3, SpelledText(None, 2)], "ba"))
@example(([SpelledText("a"), SpelledText(None, 2), SpelledText("ab")], "abba"))  # cut behind a piece that is not known
@given(answers())
def test_a_text_is_found_where_a_pattern_of_its_pieces_fits(answer: tuple[list[SpelledText], str]) -> None:
    pieces, text = answer
    assume(any(piece.text and piece.text.strip() for piece in pieces))
    spans = find_texts(pieces, text)
    uncut, cut = (spans_by_pattern(pieces, text.strip(), cut=cut) for cut in (False, True))
    known, known_cut = (
        [span for span in some if None not in [piece.text for piece in pieces[slice(*span)]]] for some in (uncut, cut)
    )
    known = known or known_cut  # also before steps that do not say what they spell, and would not be cut
    possible = uncut or cut
    assert bool(spans) == bool(possible)
    if known and len(spans) == len(known) and spans[0][0] == known[0][0]:
        assert spans == known
    elif known:  # all but a terminator is the answer
        [(start, end)] = spans
        assert end == known[0][1]
        assert all(piece.text is None or is_blank(piece) for piece in pieces[: known[0][0]])
        assert start <= known[0][0]
    else:  # unknown steps on both sides may belong to it
        for start, end in spans:
            assert any(start <= first and last == end for first, last in possible)
    assert find_text(pieces, text) == (spans[-1] if spans else None)
    assert find_text(pieces, text, last=False) == (spans[0] if spans else None)


@given(st.integers(40, 400), st.booleans())
def test_of_very_many_places_the_first_and_the_last_are_found(times: int, cut: bool) -> None:
    pieces = [SpelledText(" ab")] * times
    spans = find_texts(pieces, "ab ab" + (" a" if cut else ""))
    length = 3 if cut else 2
    assert spans[0] == (0, length)
    assert spans[-1] == (times - length, times)
    assert len(spans) <= 32


def test_pieces_of_a_character_go_on_to_the_last_of_them() -> None:
    halves = "é".encode()
    steps = [TopStep(TopToken(-1.0, bytes=spelled), ()) for spelled in (b"ab" + halves[:1], halves[1:] + b"c")]
    whole = [SpelledText("ab", goes_on=True), SpelledText("éc")]
    assert pieces_of(steps) == whole
    three = pieces_of([TopStep(TopToken(-1.0, bytes=spelled), ()) for spelled in (b"x", halves[:1], halves[1:])])
    assert find_text(three, "é") == (1, 3)
    assert pieces_of([*steps, *steps[:1]]) == [*whole, SpelledText(None, 3, broken=True)]
    assert pieces_of([steps[1], steps[0]]) == [SpelledText(None, 3, broken=True)] * 2


def test_one_unknown_piece_behind_an_answer_may_be_its_terminator() -> None:
    pieces = [*map(SpelledText, ("a ", "yy", " b ", "yy", " ")), SpelledText(None, 1)]
    found = place_of_answer(pieces, "yy", called=False)
    assert (found.start, found.end, found.before, found.behind) == (3, 4, True, False)
    two = place_of_answer([*pieces, SpelledText(None, 1)], "yy", called=False)
    assert two.problem is not None and "fits 2 places" in two.problem


def test_the_last_answer_behind_a_closing_mark_is_taken() -> None:
    pieces = [*map(SpelledText, ("</a>", "yy", " b ", "</a>", "yy", " c ", "yy"))]
    for called in (False, True):
        found = place_of_answer(pieces, "yy", called=called)
        assert (found.start, found.end, found.problem) == (4, 5, None)


@each(
    ("texts", "answer", "place"),
    [
        (["a", 2, "b"], "axyb", (0, 3)),
        (["a", 2, "b"], "axyzb", None),  # it says two characters at most
        (["a", 2], "axyz", None),
        (["x", 1, "éb"], "éb", (1, 3)),  # it may be the first byte
        (["x", 1, "aé"], "aé", (2, 3)),
        (["x", " ", "ba"], "xba", None),
        (["x", 1, " ", "ba"], "xba", None),
        ([1, " ", "ba"], "ba", (2, 3)),
        ([3, "ba", "<eos>"], "ba", (0, 2)),  # all but a terminator is the answer
        ([3, "ba", "<eos>", "<eos>"], "ba", (1, 2)),
        ([1, "bc", "z", 1, "bcd"], "abc", (0, 2)),  # the other place would be cut
        ([1, "bc", "z", 1, "bc"], "abc", (3, 5)),  # of two that unknown steps begin, the last
    ],
)
def test_steps_that_do_not_tell_their_text_belong_to_a_text_where_they_may(
    texts: list[str | int], answer: str, place: tuple[int, int] | None
) -> None:
    pieces = [SpelledText(None, text) if isinstance(text, int) else SpelledText(text) for text in texts]
    assert find_text(pieces, answer) == find_text(pieces, answer, last=False) == place


def test_an_answer_at_the_very_beginning_has_nothing_before_it() -> None:
    found = place_of_answer([*map(SpelledText, ("yy", " b ", "yy", " c"))], "yy", called=False)
    assert (found.start, found.end, found.before, found.behind) == (0, 1, False, True)


@pytest.mark.parametrize(
    ("behind", "stopped"), [("\nc", True), (" \nc", True), ("b\nc", False), ("  c", False), (" ", True)]
)
def test_blanks_at_which_an_engine_stops_follow_directly(behind: str, stopped: bool) -> None:
    found = place_of_answer([SpelledText("yy"), SpelledText(behind)], "yy", ["\n"], called=False)
    assert found.behind is not stopped


def test_a_piece_at_the_end_may_stand_for_its_text_and_one_character_more() -> None:
    half = b"\xc3"
    for texts in ((b"ab",), (b"x", b"y", b"abc")):
        steps = [TopStep(TopToken(-1.0, bytes=text), ()) for text in (*texts[:-1], texts[-1] + half)]
        assert pieces_of(steps)[-1] == SpelledText(None, len(texts[-1]) + 1, broken=True)


def test_an_answer_that_may_begin_in_an_unknown_step_has_one_place_or_none() -> None:
    pieces = [*map(SpelledText, ("x", "éa", " b ")), SpelledText(None, 1), SpelledText("éa")]
    assert place_of_answer(pieces, "éa", called=False)[:2] == (3, 5)
    both = place_of_answer([pieces[0], *pieces[3:], *pieces[2:], pieces[0]], "éa", called=False)
    assert both.problem is not None and "fits 2 places" in both.problem
