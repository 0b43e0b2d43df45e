"""Lists read without a vocabulary: the short way for clear lists against the long one for any."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from semtoken.clustering.vocabulary import normalize
from semtoken.core.engine_tokens.checked_list import ListedStep
from semtoken.core.engine_tokens.listed_names import NameReader
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


def named(text: str, number: float, token: int | None = None) -> TopToken:
    return TopToken(number, token, text, text.encode())


ALIKE = TopStep(named(" a", -0.5), [named(" a", -0.5), named("A", -2.0), named("b", -3.0)])
UNKNOWN = TopStep(named(" a", -100.0), [named("b", -3.0)])
NOT_ALL = TopStep(named(" a", -0.5), [named("b", NOT_GIVEN)])
SOME_IDS = TopStep(named(" a", -0.5, 7), [named(" a", -2.0), named("b", -3.0, 8)])
MARKUP = TopStep(named("<s>", -0.5), [named(" <S>", -2.0)])


@given(st.lists(steps, min_size=1, max_size=4), st.booleans())
@example([ALIKE, UNKNOWN], True)
@example([NOT_ALL], True)
@example([SOME_IDS, ALIKE], True)
@example([MARKUP], True)
def test_a_clear_list_is_read_as_any_list_is(answer: list[TopStep], same_spelling: bool) -> None:
    found = []
    for reader in (NameReader, LongWay):
        one = reader(normalize if same_spelling else None)
        try:
            for step in answer:
                one.add([step])
        except SemtokenError as error:
            found.append(str(error))
            continue
        found.append([by_spelling(one, step) for step in one.steps])
    assert found[0] == found[1]


def by_spelling(reader: NameReader, step: ListedStep) -> ListedStep:
    """The step with the spellings of its tokens for their numbers, which the two ways give in another order."""
    step, spelled = reader.names.with_others(step, 0.0), reader.names.spellings.__getitem__
    return step._replace(
        token=spelled(step.token),
        ids=list(map(spelled, step.ids)),
        spelled=list(map(spelled, step.spelled)),
        ambiguous=[(list(map(spelled, tokens)), probability) for tokens, probability in step.ambiguous],
    )


def test_another_spelling_in_a_clear_list_counts() -> None:
    reader = NameReader(normalize)
    reader.add([ALIKE])
    [step] = reader.steps
    assert step.others is not None, "the short way was taken"
    assert [reader.names.spellings[number].text for number in step.spelled] == ["A"]
    assert step.probabilities == [math.exp(-0.5), math.exp(-2.0)] and step.perhaps == 0.0


def test_most_lists_are_clear() -> None:
    reader = NameReader(normalize)
    for own in (" Lima", " Quito"):
        top = [TopToken(-0.2, None, own, own.encode()), TopToken(-2.0, None, " Paris", b" Paris")]
        assert reader._clear(TopStep(top[0], top), reader.names.number(TopStep(top[0], top).names[0]), 0) is not None
