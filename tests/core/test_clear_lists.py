"""Lists read without a vocabulary: the short way for clear lists against the long one for any."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from semtoken.clustering.vocabulary import normalize
from semtoken.core.engine_tokens.listed_names import ListedNames, NameReader
from semtoken.core.engine_tokens.top_steps import NOT_GIVEN, TopStep, TopToken
from semtoken.errors import SemtokenError

TEXTS = ["a", "A", " a", "Ġa", "▁a", "b", " b", "B ", "é", "Ã©", "<s>", "\n", " ", "\N{REPLACEMENT CHARACTER}"]


class LongWay(NameReader):
    """Takes no list for clear."""

    def _clear(self, step: TopStep, chosen: int, position: int) -> None:
        return None


NUMBERS = [-1.5, -2.0, -2.0004, -3.0, -4.5, -5.0, -6.0]
WITH_BYTES = st.builds(
    TopToken,
    st.sampled_from(NUMBERS),
    st.none(),
    st.sampled_from(TEXTS),
    st.sampled_from([*(text.encode() for text in TEXTS), b"\xc3"]),
)
ANY = st.builds(
    TopToken,
    st.sampled_from([*NUMBERS, 0.0, -math.inf, NOT_GIVEN]),
    st.sampled_from([None, None, 7, 8]),
    st.sampled_from(TEXTS),
    st.sampled_from([None, b"\xc3", b"a"]),
)


def step_of(chosen: TopToken, top: list[TopToken], *, lists_itself: bool) -> TopStep:
    return TopStep(chosen, [*top, chosen] if lists_itself else top)


steps = st.one_of(
    st.builds(step_of, tokens, st.lists(tokens, max_size=5), lists_itself=st.booleans())
    for tokens in (WITH_BYTES, WITH_BYTES | ANY)
)


@given(st.lists(steps, min_size=1, max_size=4), st.booleans())
def test_a_clear_list_is_read_as_any_list_is(answer: list[TopStep], same_spelling: bool) -> None:
    found = []
    for reader in (NameReader, LongWay):
        names, read = ListedNames(normalize if same_spelling else None), []
        one = reader(names)
        try:
            for position, step in enumerate(answer):
                read.append(names.with_others(one.read(step, position), 0.0))
        except SemtokenError as error:
            read.append(str(error))
        found.append((read, None if isinstance(read[-1], str) else names.spellings))
    assert found[0] == found[1]


def test_most_lists_are_clear() -> None:
    names = ListedNames(normalize)
    reader = NameReader(names)
    for own in (" Lima", " Quito"):
        top = [TopToken(-0.2, None, own, own.encode()), TopToken(-2.0, None, " Paris", b" Paris")]
        assert reader._clear(TopStep(top[0], top), names.number(TopStep(top[0], top).names[0]), 0) is not None
