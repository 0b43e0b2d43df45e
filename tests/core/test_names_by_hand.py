"""Lists of a few tokens with a vocabulary of a few words, or without one: what each entry adds to the interval."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest

from semtoken import Vocabulary, score_logprobs
from semtoken.core import ScoringRules
from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.errors import BackendError, InvalidInputError, VocabularyMismatch
from tests.core.lists import CITIES, EXACT, HALVES, agreeing, codes, in_bytes, step, token, words
from tests.rows import each


@pytest.mark.parametrize(
    ("vocabulary", "half"),
    [
        (HALVES, token(0.2, "\ufffd")),
        (words("Oslo", "Rome", "Lima", "Lima", "Cairo"), in_bytes(0.2, "Lima")),
        (words("Oslo", "Rome", "Lima", "Cairo", "Lima"), in_bytes(0.2, "Lima")),
    ],
)
def test_one_unclear_name_is_no_token_of_the_vocabulary(vocabulary: Vocabulary, half: TopToken) -> None:
    """It may be either of two tokens."""
    own, other = token(0.5, "Oslo"), token(0.1, "Rome")
    scored = score_logprobs([step(own, half, other)], vocabulary)
    assert [(one.text, one.id) for one in scored.tokens[0].alternatives] == [("Rome", 1)]
    # Neither half of a character is spelled as another token is.
    assert codes(scored) == ([] if half.bytes is None else ["ambiguous_names"])
    for listed in ((own, other), (half,)):
        with pytest.raises(InvalidInputError, match="may be any of 2 tokens"):
            score_logprobs([TopStep(half, listed)], vocabulary)


@pytest.mark.parametrize("special", ["chosen", "last"])
def test_the_name_of_a_special_token_stands_for_any_where_it_was_chosen(special: str) -> None:
    vocabulary = words("Oslo", "", "", "Rome")
    end, city = token(0.3, "<|end|>"), token(0.2, "Oslo")
    if special == "chosen":
        scored = score_logprobs([step(end, city)], vocabulary)
        assert (codes(scored), scored.token_ids) == (["special_names"], [1])
    else:
        scored = score_logprobs([step(city, end), step(token(0.6, "Rome"))], vocabulary)
        assert (scored.text, "special_names" in codes(scored)) == ("OsloRome", False)
    only = score_logprobs([step(city), step(end, city)], words("Oslo", "", "Rome"))
    assert (only.token_ids, "special_names" in codes(only)) == ([0, 1], False)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_name_of_two_tokens_of_one_spelling_is_told_wherever_they_stand(place: int) -> None:
    pieces = ["Rome", "Rome"]
    pieces.insert(place, "Lima")
    assert codes(score_logprobs([step(token(0.6, "Lima"), token(0.3, "Rome"))], words(*pieces))) == ["ambiguous_names"]


@pytest.mark.parametrize("row", [3, 7])
def test_what_lies_beyond_the_vocabulary_is_shared_out_among_its_tokens(row: int) -> None:
    padding = token(0.008, id=row)
    [one] = score_logprobs([step(token(0.6, id=0), token(0.2, id=1), padding)], CITIES).tokens
    assert one.probability == pytest.approx(0.6 / 0.992, rel=1e-9)
    assert one.alternatives[0].probability == pytest.approx(0.2 / 0.992, rel=1e-9)
    sure = score_logprobs([step(token(0.999, id=0), token(0.0005, id=1), padding)], CITIES)
    assert (sure.tokens[0].log_probability, codes(sure)) == (0.0, [])


def test_a_list_of_the_whole_vocabulary_and_padding_adds_up_to_one() -> None:
    cities = [token(probability, id=i) for i, probability in enumerate((0.6, 0.2, 0.19))]
    [one] = score_logprobs([step(*cities, token(0.009, id=3))], CITIES, EXACT).tokens
    assert one.agreeing_probability == pytest.approx(0.6 / 0.99, rel=1e-9)


@pytest.mark.parametrize(("beyond", "refused"), [(0.0099, False), (0.0101, True)])
def test_more_than_one_percent_beyond_the_vocabulary_is_of_another_model(beyond: float, refused: bool) -> None:
    with pytest.raises(VocabularyMismatch, match="another model") if refused else nullcontext():
        score_logprobs([step(token(0.6, id=0), token(beyond, id=7))], CITIES)


@pytest.mark.parametrize("times", [0, 1, 2])
def test_an_unlisted_token_has_no_more_than_the_least_of_the_list(times: int) -> None:
    """Without a list, or one of the chosen token alone, it may have all."""
    own, other = in_bytes(0.1, "Oslo"), in_bytes(0.05, "Rome")
    assert agreeing(score_logprobs([TopStep(own, [own] * times)], CITIES)) == pytest.approx((0.1, 1.0), abs=1e-4)
    listed = score_logprobs([TopStep(own, [other, *[own] * times])], CITIES)
    assert agreeing(listed) == pytest.approx((0.1, 0.15), abs=1e-4)


@pytest.mark.parametrize("vocabulary", [CITIES, None])
def test_a_number_above_zero_by_rounding_is_zero(vocabulary: Vocabulary | None) -> None:
    own, other = (TopToken(number, None, text, text.encode()) for number, text in ((0.0009, "Oslo"), (-7.0, "Rome")))
    for one in (step(own, other), step(own, other, own)):
        assert score_logprobs([one], vocabulary).tokens[0].log_probability == 0.0
    [rival] = score_logprobs([TopStep(other, (own,))], vocabulary).tokens[0].alternatives
    assert rival.probability == 1.0


def test_a_log_probability_may_be_off_by_a_hundred_thousandth() -> None:
    [one] = score_logprobs([step(token(0.6, id=0), token(0.2, id=1))], CITIES, EXACT).tokens
    assert one.log_agreeing_bounds == pytest.approx((math.log(0.6) - 1e-5, math.log(0.6) + 1e-5), abs=1e-7)


@each("vocabulary", [CITIES, None])
@each("spelled", [None, b"Oslo"])
@each("preset", [ScoringRules(), EXACT])
def test_the_text_of_the_chosen_token_with_another_number(
    preset: ScoringRules, spelled: bytes | None, vocabulary: Vocabulary | None
) -> None:
    """A list by texts has lost a token that is spelled alike. Where there are bytes, nobody knows what it means."""
    listed = [token(0.6, "Oslo", spelled), token(0.2, "Oslo", spelled), token(0.2, "Rome")]
    for first, last in ((0, 2), (0, 3), (1, 2), (1, 3)):
        order = 1 if first else -1
        scored = score_logprobs([TopStep(listed[0], listed[first:last][::order])], vocabulary, preset)
        counts = spelled is None and preset != EXACT
        most = 0.8 if preset == EXACT or (counts and last == 3) else 1.0
        assert agreeing(scored) == pytest.approx((0.8 if counts else 0.6, most), abs=1e-4)
        assert "two_numbers" in codes(scored) and ("no_alternatives" not in codes(scored) or spelled is not None)


# --- without a vocabulary --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "said"), [(["a", "</s>", " "], "a "), (["a", "</s>", "\n"], "a\n"), (["a", "</s>", "b"], "a</s>b")]
)
def test_markup_is_text_where_more_than_blanks_follow(texts: list[str], said: str) -> None:
    assert score_logprobs([step(token(0.6, text)) for text in texts]).text == said


def test_names_as_in_the_files_of_a_tokenizer_are_read_as_text() -> None:
    """Beside them may stand pieces of a character, by their bytes."""
    for name in ("ĠParis", "▁Paris"):
        steps = [step(token(0.6, name)), *(step(token(0.6, spelled=half)) for half in (b"\xc3", b"\xa9"))]
        assert score_logprobs(steps).text == " Parisé"
    decoded = score_logprobs([step(token(0.6, " a")), step(token(0.6, "Ġb"))])  # no file has a blank
    assert (decoded.text, [one.text for one in decoded.tokens]) == (" aĠb", [" a", "Ġb"])


def test_a_function_word_is_known_by_its_text() -> None:
    steps = [step(token(0.6, text)) for text in ("Oslo", " the")]
    assert [one.function_word for one in score_logprobs(steps).tokens] == [False, True]


def test_an_id_alone_at_the_end_is_a_special_token_where_the_list_has_texts() -> None:
    listed = [step(token(0.6, "a", id=5), token(0.2, "b", id=6)), step(token(0.6, id=7), token(0.3, "b", id=8))]
    assert [score_logprobs(listed, text=said).text for said in ("a", None)] == ["a", "a"]


@each(
    "listed",
    [
        (token(0.6, "\n", b"\n", id=5), token(0.6, "\n", b"\n"), token(0.3, "a", b"a", id=6)),
        (in_bytes(0.6, "Oslo"), token(0.6, "Oslo"), token(0.3, "Rome")),
        (token(0.6, "Oslo"), in_bytes(0.6, "Oslo"), token(0.3, "Rome")),
        (token(0.6, "Oslo"), token(0.6, "Oslo", id=0), token(0.3, "Rome", id=1)),
        (token(0.6, "Oslo", id=0), token(0.6, "Oslo"), token(0.3, "Rome")),
        (in_bytes(0.6, "Oslo"), token(0.6, "Oslo", b"Oslo", id=0), token(0.3, "Rome", id=1)),
    ],
)
@each("vocabulary", [words("Oslo", "Rome", " Oslo", "", "", "\n", "a"), None])
def test_a_list_may_name_the_chosen_token_in_another_way(
    listed: tuple[TopToken, ...], vocabulary: Vocabulary | None
) -> None:
    scored = score_logprobs([step(in_bytes(0.9, "a")), TopStep(listed[0], listed[1:])], vocabulary, EXACT)
    assert agreeing(scored) == pytest.approx((0.54, 0.54), abs=1e-4)
    assert "two_numbers" not in codes(scored)


@pytest.mark.parametrize("listed", [("oslo",), ("oslo", "oslO"), ("Rome", "oslo"), ("Rome",)])
def test_a_list_without_the_chosen_token_may_hold_what_is_spelled_alike(listed: tuple[str, ...]) -> None:
    own, others = in_bytes(0.6, "Oslo"), [in_bytes(0.2 / 2**k, text) for k, text in enumerate(listed)]
    scored = score_logprobs([TopStep(own, others)])
    assert score_logprobs([TopStep(own, [*others, own])]) == scored
    alike = math.fsum(0.2 / 2**k for k, text in enumerate(listed) if text != "Rome")
    rome = math.fsum(0.2 / 2**k for k, text in enumerate(listed) if text == "Rome")
    assert agreeing(scored) == pytest.approx((0.6 + alike, 1 - rome), abs=1e-4)
    assert not scored.flags


@pytest.mark.parametrize("vocabulary", [words("Oslo", "Rome", "Lima"), None])
@pytest.mark.parametrize("named", [token, in_bytes])
def test_a_list_of_the_chosen_token_alone_is_no_alternative_but_a_list(
    named: Any, vocabulary: Vocabulary | None
) -> None:
    bare = score_logprobs([step(named(0.6, "Oslo"))], vocabulary)
    assert codes(bare) == ["no_alternatives"]
    zero, other = named(1.0, "Oslo"), step(named(0.6, "Rome"), named(0.3, "Lima"))
    listed, alone = (score_logprobs([TopStep(zero, top), other], vocabulary) for top in ([zero], []))
    assert (listed.sequence_uncertainty, listed.tokens[0].log_probability) == (pytest.approx(0.4), 0.0)
    assert (alone.sequence_uncertainty, alone.tokens[0].log_probability) == (1.0, -math.inf)  # a zero that says nothing


@pytest.mark.parametrize("known", ["bytes", "texts", "ids"])
def test_pieces_of_a_character_and_what_completes_it_belong_to_its_word(known: str) -> None:
    """vLLM calls the first pieces by nothing, and the last one by the whole character."""
    said = [
        ("ب", -0.5),
        ("", -0.25),
        ("ش", -0.125),
        ("ر", -1.0),
        (" قل", -0.75),
        ("", -0.0625),
        ("", -0.5),
        ("東", -2.0),
    ]
    steps = []
    for number, (text, log_prob) in enumerate(said):
        item: dict[str, Any] = {"token": text, "logprob": log_prob}
        other = {"token": "the", "logprob": -4.0}
        if known == "bytes":
            item["bytes"], other["bytes"] = list(text.encode()), list(b"the")
        if known == "ids":
            item["id"], other["id"] = number, 100
        steps.append({**item, "top_logprobs": [item, other]})
    answer = score_logprobs(steps)
    assert answer.text == "بشر قل東"
    first = answer.parts("word")[0]
    assert first.text == "بشر" and first.confidence == pytest.approx(math.exp(-0.5 - 0.25 - 0.125 - 1.0))
    assert math.exp(answer.log_confidence) == pytest.approx(math.exp(sum(log_prob for _, log_prob in said)))


def test_phrases_of_pieces_without_names_are_not_known_and_the_bounds_hold_all_of_them() -> None:
    """The text has two phrases; how the six pieces are spelled decides which of them are in the second one."""
    said, piece = "The old town of \u6771\u4eac", token(0.5, "\ufffd")
    names = [step(token(probability, text)) for text, probability in (("The old town", 0.9), (" of ", 0.8))]
    steps = [*names, *[step(piece)] * 6]
    scored = score_logprobs(steps, text=said)
    assert "unnamed_pieces" in codes(scored)
    low, high = scored.confidence_interval
    assert low == pytest.approx(0.9 * 0.8 * 0.5**6, rel=1e-3) and high == 1.0
    bytes_known = [*names, *[step(token(0.5, None, bytes([one]))) for one in "\u6771\u4eac".encode()]]
    exact = score_logprobs(bytes_known, text=said)
    assert "unnamed_pieces" not in codes(exact) and exact.text == said
    assert low < exact.confidence < high


@pytest.mark.parametrize("n", [1, 2])
def test_one_last_token_without_a_name_is_no_text_if_the_others_spell_the_answer(n: int) -> None:
    """It is a terminator, or the first piece of a character that was cut off; of several a stream may have lost one."""
    own = [step(token(0.9, "It is")), step(token(0.8, " in Oslo.")), *[step(token(0.7, "\ufffd"))] * n]
    ended, open_ended = score_logprobs(own, text="It is in Oslo."), score_logprobs(own, text="It is in Oslo.\u6771")
    lost = "\ufffd" * n * (n > 1)
    assert (ended.text, "unnamed_pieces" in codes(ended)) == (f"It is in Oslo.{lost}", bool(lost))
    assert (open_ended.text, "unnamed_pieces" in codes(open_ended)) == ("It is in Oslo." + "\ufffd" * n, True)


def test_a_last_piece_without_the_pieces_before_it_is_the_fault_of_the_list() -> None:
    """vLLM names the last piece of a character by all of it: behind the first piece it is one, elsewhere it is none."""
    first, last = token(0.5, "", b"", id=2), token(0.6, "\u00e9", "\u00e9".encode(), id=3)
    assert score_logprobs([step(first), step(last)], HALVES).text == "\u00e9"
    for steps in ([step(last)], [step(last), step(first)], [step(token(0.5, "Oslo", id=0)), step(last)]):
        with pytest.raises(BackendError, match="the pieces before it are missing or out of order"):
            score_logprobs(steps, HALVES)
    with pytest.raises(VocabularyMismatch):
        score_logprobs([step(token(0.5, "Rome", b"Rome", id=3))], HALVES)


def test_the_last_piece_of_a_character_is_known_by_that_character() -> None:
    """Brute force over three-byte characters: of all pieces in the vocabulary those that end it behind the others."""
    pieces = [b"\xe6", b"\x9d", b"\xb1", b"\x9d\xb1", b"\xe6\x9d", b"\x8f", b"\x8f\xb0", b"\xb0", b"a"]
    vocabulary = words(*pieces)
    for character in "\u6771\u53f0":
        spelled = character.encode()
        ends = [i for i, piece in enumerate(pieces) if spelled != piece and spelled.endswith(piece)]
        steps = [step(token(0.5, "\ufffd", id=0)), step(token(0.6, character))]
        if len(ends) == 1:
            assert score_logprobs(steps, vocabulary).token_ids[-1] == ends[0]
        else:
            with pytest.raises(InvalidInputError, match=f"may be any of {len(ends)} tokens"):
                score_logprobs(steps, vocabulary)


@pytest.mark.parametrize("name", ["Oslo\ufffd", "O\ufffdslo", "Lima \ufffd", "\ufffdx\ufffd"])
def test_a_text_with_a_broken_character_is_no_token_that_begins_alike(name: str) -> None:
    vocabulary = words("O", "L", "Oslo", "Lima", b"\xc3", b"\xa9")
    with pytest.raises(InvalidInputError, match="is not in the vocabulary"):
        score_logprobs([step(token(0.5, name))], vocabulary)
