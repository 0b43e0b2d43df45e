"""The records that scoring returns, and their forms for files and frames."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from semtoken import ScoredAnswer, TokenClusters, Vocabulary, score_logits, to_frame
from semtoken.core import ScoringRules
from semtoken.core.results import Decision, Flag
from semtoken.core.results.generation import HiddenState, state_from
from semtoken.errors import InvalidInputError
from tests import tiny, worked
from tests.core.lists import codes
from tests.known import known
from tests.rows import each

SCORED = score_logits(worked.logits(*worked.STEPS), worked.ids(*worked.ANSWER), worked.clusters(), "paper")
IMPOSSIBLE = score_logits(
    worked.logits({" radio": 1.0}), worked.ids("vision"), worked.clusters(), distribution="unknown"
)
SWITCHES: tuple[dict[str, Any], ...] = (
    {},
    {"preset": "paper"},
    {"equality": "meaning"},
    {"equality": "meaning", "function_words": "off"},
    {"equality": "meaning", "clustering": False},
    {"equality": "surface", "clustering": True, "members": "spelling"},
    {"equality": "exact"},
)
BYTE_LEVEL = Vocabulary.from_tokenizer(tiny.byte_level_bpe())


ROWS = np.random.default_rng(0).normal(0, 3, (6, BYTE_LEVEL.size))


def random_answer(**switches: Any) -> ScoredAnswer:
    random = np.random.default_rng(100)
    labels = random.integers(0, BYTE_LEVEL.size // 6, BYTE_LEVEL.size).astype(np.int32)
    ids = random.integers(0, BYTE_LEVEL.size, len(ROWS))
    return score_logits(ROWS, ids, TokenClusters(labels, BYTE_LEVEL), preset=ScoringRules(**switches))


def test_offsets_cut_the_text_into_its_tokens() -> None:
    assert [SCORED.text[t.start : t.end] for t in SCORED.tokens] == list(worked.ANSWER)


def test_offsets_of_a_real_tokenizer() -> None:
    """Special tokens have an empty range; tokens that share a character share its range."""
    tokenizer = tiny.byte_level_bpe()
    ids = [*tokenizer.encode("The 🙂 TV", add_special_tokens=False), tokenizer.eos_token_id]
    labels = np.zeros(BYTE_LEVEL.size, dtype=np.int32)
    scored = score_logits(np.zeros((len(ids), BYTE_LEVEL.size)), ids, TokenClusters(labels, BYTE_LEVEL))
    assert scored.text == "The 🙂 TV"
    assert scored.token_ids == ids
    assert scored.tokens[-1].start == scored.tokens[-1].end == len(scored.text)
    ranges = list(dict.fromkeys((t.start, t.end) for t in scored.tokens[:-1]))
    assert "".join(scored.text[start:end] for start, end in ranges) == scored.text
    whole = [t for t in scored.tokens[:-1] if "\N{REPLACEMENT CHARACTER}" not in t.text]
    assert len(whole) > 2
    assert all(scored.text[t.start : t.end] == t.text for t in whole)


@each("switches", SWITCHES)
def test_the_three_masses_add_up(switches: dict[str, Any]) -> None:
    content = [t for t in random_answer(**switches).tokens if not t.neutral]
    assert content
    for token in content:
        total = token.cluster_probability + token.prefix_probability + token.neutral_probability
        assert token.agreeing_probability == pytest.approx(total, rel=1e-9)
        assert token.cluster_probability >= token.probability - 1e-12


def test_alternatives_of_the_worked_example() -> None:
    """The likely others, and what they are to the chosen token: " radio" and " The" do not count for " tele"."""
    found = [(a.text, round(a.probability, 12), a.source, a.counted) for a in SCORED.tokens[1].alternatives]
    assert found == [
        (" television", 0.30, "cluster", True),
        ("TV", 0.20, "cluster", True),
        (" radio", 0.20, "other", False),
        (" The", 0.07, "other", False),
        (" the", 0.06, "neutral", True),
        ("te", 0.05, "prefix", True),
        ("\n", 0.02, "neutral", True),
    ]
    seventeen = {a.text: (a.source, a.counted) for a in SCORED.tokens[3].alternatives}
    assert seventeen == {
        "7": ("other", False),
        " 1": ("prefix", True),
        "\n": ("neutral", True),
        worked.END: ("neutral", True),
        "vision": ("other", False),
    }


def test_alternatives_that_do_not_count_are_described_as_the_paper_sees_them() -> None:
    rules = ScoringRules(equality="exact")
    scored = score_logits(worked.logits(*worked.STEPS), worked.ids(*worked.ANSWER), worked.clusters(), preset=rules)
    found = {a.text: a.source for a in scored.tokens[1].alternatives}
    assert found == {a.text: a.source for a in SCORED.tokens[1].alternatives}
    assert not any(a.counted for token in scored.tokens for a in token.alternatives)


@each("switches", SWITCHES)
def test_alternatives_are_the_most_probable_tokens(switches: dict[str, Any]) -> None:
    """The first eight of at least 1%, found by sorting the whole row; those that count are part of its mass."""
    probabilities = np.exp(ROWS) / np.exp(ROWS).sum(1, keepdims=True)
    for row, token in zip(probabilities, random_answer(**switches).tokens, strict=True):
        order = [i for i in np.argsort(-row, kind="stable").tolist() if i != token.id and row[i] >= 0.01][:8]
        assert [a.id for a in token.alternatives] == order
        assert [a.probability for a in token.alternatives] == pytest.approx(row[order])
        by_source = {"cluster": token.cluster_probability, "prefix": token.prefix_probability}
        by_source["neutral"] = token.neutral_probability
        for source, mass in by_source.items():
            counted = math.fsum(a.probability for a in token.alternatives if a.counted and a.source == source)
            assert counted <= mass + 1e-9
        assert all(a.source != "other" for a in token.alternatives if a.counted)


def test_a_token_with_all_but_one_per_cent_has_no_likely_rival() -> None:
    step = {"vision": 0.991, " radio": 0.009}
    scored = score_logits(worked.logits(step), worked.ids("vision"), worked.clusters())
    assert scored.tokens[0].alternatives == ()
    step = {"vision": 0.989, " radio": 0.011}
    scored = score_logits(worked.logits(step), worked.ids("vision"), worked.clusters())
    assert [a.text for a in scored.tokens[0].alternatives] == [" radio"]


# --- three equalities and borrowed mass ------------------------------------------------------------------------------


def test_the_three_equalities_of_the_worked_example() -> None:
    """By hand from the table in `worked`: " The" spells " the"."""
    assert [t.probability for t in SCORED.tokens] == pytest.approx([0.50, 0.10, 0.90, 0.50, 0.40])
    assert [t.surface_probability for t in SCORED.tokens] == pytest.approx([0.70, 0.10, 0.90, 0.50, 0.40])
    assert [t.meaning_probability for t in SCORED.tokens] == pytest.approx([1, 0.73, 0.93, 0.70, 1])
    assert SCORED.uncertainty_under("exact") == pytest.approx(1 - 0.009)
    assert SCORED.uncertainty_under("surface") == pytest.approx(1 - 0.70 * 0.10 * 0.90 * 0.50 * 0.40)
    assert SCORED.uncertainty_under("meaning") == pytest.approx(1 - 0.475230)
    with pytest.raises(InvalidInputError, match="'equality' must be one of 'meaning', 'surface', 'exact'"):
        SCORED.uncertainty_under("same")  # type: ignore[arg-type]


@each("switches", SWITCHES)
def test_rules_change_what_is_counted_and_nothing_else(switches: dict[str, Any]) -> None:
    """Every equality is in every result; the score under it is that of rules that count it."""
    scored, other = random_answer(**switches), random_answer(preset="paper")
    for equality in ("exact", "surface", "meaning"):
        assert scored.uncertainty_under(equality) == pytest.approx(other.uncertainty_under(equality), rel=1e-9)
    for token in scored.tokens:
        assert token.log_probability <= token.log_surface_probability <= 0
        assert token.log_probability <= known(token.log_meaning_probability) <= 0
    surface = random_answer(equality="surface")
    assert surface.sequence_uncertainty == pytest.approx(scored.uncertainty_under("surface"), rel=1e-9)
    assert other.sequence_uncertainty == pytest.approx(scored.uncertainty_under("meaning"), rel=1e-9)


def test_borrowed_mass_of_a_token() -> None:
    tele = SCORED.tokens[1].borrowed
    assert (tele.own, tele.cluster, tele.prefix, tele.function_words) == pytest.approx((0.10, 0.50, 0.05, 0.08))
    assert SCORED.tokens[1].cluster_probability == pytest.approx(0.10 + 0.50)
    the = SCORED.tokens[0].borrowed
    assert (the.own, the.cluster, the.prefix, the.function_words) == pytest.approx((0.50, 0, 0, 0.50))


@each("switches", SWITCHES)
def test_borrowed_mass_adds_up_to_the_confidence(switches: dict[str, Any]) -> None:
    scored = random_answer(**switches)
    borrowed = scored.borrowed
    parts = (borrowed.own, borrowed.cluster, borrowed.prefix, borrowed.function_words)
    assert math.fsum(parts) == pytest.approx(math.exp(scored.log_confidence), rel=1e-9)
    assert min(parts) >= 0
    assert borrowed.own == pytest.approx(math.exp(scored.log_probability), rel=1e-9)
    for token in scored.tokens:
        parts = dataclasses.astuple(token.borrowed)
        assert math.fsum(parts) == pytest.approx(token.agreeing_probability, rel=1e-9)


@each("switches", SWITCHES)
def test_what_each_source_lends_is_its_share_of_what_the_steps_gain_in_logs(switches: dict[str, Any]) -> None:
    scored = random_answer(**switches)
    gains = np.zeros(3)
    for token in scored.tokens:
        masses = [token.cluster_probability - token.probability, token.prefix_probability, token.neutral_probability]
        lent = np.array([0.0, 0.0, 1.0 - token.probability] if token.neutral else masses)
        lent[0] = max(lent[0], 0.0)
        if lent.sum() > 1e-12:
            gains += math.log(1.0 + lent.sum() / token.probability) * lent / lent.sum()
    own, *shares = dataclasses.astuple(scored.borrowed)
    expected = gains / max(gains.sum(), 1e-300) * (math.exp(scored.log_confidence) - own)
    assert shares == pytest.approx(expected.tolist(), rel=1e-6, abs=1e-15)


def test_borrowed_mass_of_a_sentence_is_that_of_the_product() -> None:
    """Sixteen tokens are a sentence, whose confidence is no product: the shares still add up to 1 - uncertainty."""
    unit = [({" tele": 0.45, " television": 0.25, "TV": 0.2, " radio": 0.1}, " tele"), ({" the": 1.0}, " the")] * 8
    rows, texts = zip(*unit, strict=True)
    scored = score_logits(worked.logits(*rows), worked.ids(*texts), worked.clusters(), "paper")
    borrowed = scored.borrowed
    assert scored.confidence > 2 * (1 - scored.sequence_uncertainty)  # of phrases, else the test would say nothing
    assert borrowed.own == pytest.approx(0.45**8)
    assert borrowed.cluster == pytest.approx(0.9**8 - 0.45**8)
    assert math.fsum(dataclasses.astuple(borrowed)) == pytest.approx(1 - scored.sequence_uncertainty)


PAPER = ScoringRules("paper")
CLUSTER, WORDS, RIVALS = "carried_by_cluster", "carried_by_function_words", "rivals_counted"


@each(
    ("step", "rules", "flags"),
    [
        # Half of a confidence of a tenth and more is borrowed.
        ({"TV": 0.25, " television": 0.25}, PAPER, [CLUSTER, RIVALS]),
        ({"TV": 0.251, " television": 0.249}, PAPER, [RIVALS]),
        ({"TV": 0.011, " television": 0.09}, PAPER, [CLUSTER]),
        ({"TV": 0.009, " television": 0.09}, PAPER, []),
        ({"TV": 0.5, " television": 0.5}, PAPER, [CLUSTER, RIVALS]),
        ({"TV": 0.5, " television": 0.5}, ScoringRules(equality="surface"), []),
        ({"TV": 0.25, "\n": 0.05, " the": 0.2}, PAPER, [WORDS]),
        ({"TV": 0.251, "\n": 0.249}, PAPER, []),
        ({"TV": 0.011, "\n": 0.09}, PAPER, [WORDS]),
        ({"TV": 0.009, "\n": 0.09}, PAPER, []),
        ({"TV": 0.25, "\n": 0.25}, ScoringRules(equality="meaning", function_words="off"), []),
        ({" the": 0.08}, PAPER, [WORDS]),
        ({" the": 0.6, " The": 0.4}, PAPER, []),
        # Another word of a tenth is a rival if only its cluster counts it.
        ({"TV": 0.5, " television": 0.1}, PAPER, [RIVALS]),
        ({"TV": 0.5, " television": 0.099}, PAPER, []),
        ({" tele": 0.5, " television": 0.4}, PAPER, []),  # the same word in another form
        ({" tele": 0.6, "te": 0.4}, PAPER, []),
    ],
)
def test_flags_where_borrowed_mass_decides(step: dict[str, float], rules: ScoringRules, flags: list[str]) -> None:
    """The first token of the step was chosen, and nobody's has the rest of it."""
    row = worked.logits({" radio": 1 - math.fsum(step.values())} | step)
    assert codes(score_logits(row, worked.ids(next(iter(step))), worked.clusters(), rules)) == flags


def test_the_likeliest_rival_of_all_steps_is_named_and_shares_two_letters_at_most() -> None:
    clusters = TokenClusters(
        np.array([0, 0, 0, 1, 1]), worked.vocabulary(("Canberra", "Caxton", "Candid", "Rome", "Lima"))
    )
    rows = np.log([[0.5, 0.1, 0.38, 0.01, 0.01], [0.15, 0.08, 0.07, 0.4, 0.3]])
    [flag] = [flag for flag in score_logits(rows, [0, 3], clusters, PAPER).flags if flag.code == RIVALS]
    assert flag.message.startswith("'Lima' (0.300) counted as agreeing with 'Rome'")
    [flag] = [flag for flag in score_logits(rows[:1], [0], clusters, PAPER).flags if flag.code == RIVALS]
    assert flag.message.startswith("'Caxton' (0.100) counted as agreeing with 'Canberra'")


def test_truncation_is_not_known_unless_a_backend_says_so() -> None:
    assert SCORED.truncated is None
    assert dataclasses.replace(SCORED, truncated=True).to_dict()["truncated"] is True


def test_span_uncertainty() -> None:
    start = SCORED.text.index("television")
    assert SCORED.span_uncertainty(start, start + len("television")) == pytest.approx(1 - 0.73 * 0.93)
    assert SCORED.span_uncertainty(start + 5, start + 6) == pytest.approx(1 - 0.93)
    assert SCORED.span_uncertainty(start + len("tele"), start + len("television")) == pytest.approx(1 - 0.93)
    assert SCORED.span_uncertainty(0, len(SCORED.text)) == pytest.approx(SCORED.sequence_uncertainty)
    assert SCORED.span_uncertainty(3, 3) == 0
    for ends in ((2, 1), (-1, 1)):  # which would be another span than Python's text[-1:1]
        with pytest.raises(InvalidInputError):
            SCORED.span_uncertainty(*ends)


def test_the_widest_steps_are_those_whose_bounds_are_furthest_apart_on_the_log_scale() -> None:
    bounds = [(-2.0, -2.0), (-1.0, -0.5), None, (-math.inf, -1.0), (-math.inf, -math.inf), (-0.6, -0.1), (-9.0, -5.0)]
    tokens = [dataclasses.replace(SCORED.tokens[0], log_agreeing_bounds=pair) for pair in bounds]
    assert dataclasses.replace(SCORED, tokens=tuple(tokens)).widest_steps == (3, 6, 1, 5)
    assert SCORED.widest_steps == ()


def test_an_empty_answer_is_uncertain_under_every_equality() -> None:
    empty = dataclasses.replace(SCORED, text=" ")
    assert [empty.uncertainty_under(equality) for equality in empty.equalities] == [1.0] * 3


def test_uncertainty_and_confidence_are_two_sides() -> None:
    assert SCORED.sequence_uncertainty + SCORED.confidence == pytest.approx(1)
    assert SCORED.confidence == pytest.approx(0.475230)
    assert math.copysign(1, dataclasses.replace(SCORED, log_confidence=0.0).sequence_uncertainty) == 1  # no minus zero


def test_tiny_uncertainties_keep_their_digits() -> None:
    """1 - exp(-1e-20) is 0 in floating point; the uncertainty is 1e-20."""
    assert dataclasses.replace(SCORED, log_confidence=-1e-20).sequence_uncertainty == pytest.approx(
        1e-20, rel=1e-12, abs=0
    )


@pytest.mark.parametrize("scored", [SCORED, IMPOSSIBLE], ids=["whole", "impossible"])
def test_a_summary_brings_back_all_but_the_tokens(scored: ScoredAnswer) -> None:
    """`IMPOSSIBLE` has an infinite log score; every other field is given a value here."""
    whole = dataclasses.replace(
        scored,
        log_confidence_interval=(-math.inf, -0.5),
        flags=(Flag("no_alternatives", "Nothing else was listed."),),
        probability_correct=0.5,
        probability_correct_interval=(0.25, 0.75),
        decision=Decision("abstain", "uncertain", 0.5, "At most 10% are wrong."),
        scores={"perplexity": math.inf},
        score_bounds={"perplexity": (0.25, math.inf)},
    )
    found = ScoredAnswer.from_summary(json.loads(json.dumps(whole.to_summary())), "they were left behind")
    for field in dataclasses.fields(ScoredAnswer):
        if field.name != "tokens":
            assert getattr(found, field.name) == getattr(whole, field.name), field.name
    assert found.summary == found.with_fields(probability_correct=None).summary == whole.summary
    assert found.n_tokens == len(whole.tokens)
    with pytest.raises(InvalidInputError, match=r"^There are no tokens: they were left behind\.$"):
        _ = found.tokens


def test_json_round_trip() -> None:
    parsed = json.loads(SCORED.to_json(), parse_constant=pytest.fail)
    assert parsed == json.loads(json.dumps(SCORED.to_dict()))
    assert parsed["text"] == SCORED.text
    assert parsed["sequence_uncertainty"] == SCORED.sequence_uncertainty
    assert parsed["distribution"] == "raw"
    assert parsed["tokens"][1]["agreeing_probability"] == SCORED.tokens[1].agreeing_probability
    assert parsed["tokens"][1]["alternatives"][0] == dataclasses.asdict(SCORED.tokens[1].alternatives[0])
    decided = {"probability_correct", "probability_correct_interval", "decision"}
    assert decided.isdisjoint(parsed) and decided <= set(dataclasses.replace(SCORED, probability_correct=0.5).to_dict())
    names = {f.name for f in dataclasses.fields(SCORED)} - decided - {"question", "state"} | {
        "confidence",
        "confidence_interval",
        "explanation",
        "confidence_method",
        "sequence_uncertainty",
        "log_probability",
        "empty",
    }
    assert names <= set(parsed)


def test_json_has_no_infinity() -> None:
    text = IMPOSSIBLE.to_json(indent=1)
    parsed = json.loads(text, parse_constant=pytest.fail)
    assert parsed["log_confidence"] is None
    assert parsed["sequence_uncertainty"] == 1
    assert parsed["tokens"][0]["log_probability"] is None
    assert parsed["tokens"][0]["probability"] == 0
    assert parsed["distribution"] == "unknown"


def test_json_keeps_letters_readable() -> None:
    assert "é" in dataclasses.replace(SCORED, text="café").to_json()


def test_frame_of_an_answer_has_a_row_a_token() -> None:
    frame = SCORED.to_pandas()
    assert frame["text"].tolist() == list(worked.ANSWER)
    assert frame["agreeing_probability"].tolist() == pytest.approx([1, 0.73, 0.93, 0.70, 1])


def test_frame_of_answers_has_a_row_an_answer() -> None:
    frame = to_frame([SCORED, IMPOSSIBLE])
    assert frame["sequence_uncertainty"].tolist() == pytest.approx([1 - 0.475230, 1])
    assert frame["text"].tolist() == [SCORED.text, "vision"]
    assert "tokens" not in frame
    assert frame["log_confidence"].isna().tolist() == [False, True]
    assert not frame.map(lambda cell: isinstance(cell, list | tuple | dict)).any(axis=None)


def test_signature_tells_scores_apart() -> None:
    assert SCORED.signature.startswith(worked.clusters().signature)
    other = score_logits(
        worked.logits(*worked.STEPS), worked.ids(*worked.ANSWER), worked.clusters(), ScoringRules(function_words="off")
    )
    assert other.signature != SCORED.signature


@pytest.mark.parametrize("read", [str, lambda value: value], ids=["as CSV", "as JSON"])
@pytest.mark.parametrize("given", [True, False])
def test_a_hidden_state_comes_out_as_it_went_in(given: bool, read: Any) -> None:
    state = HiddenState(np.array([0.5, -2.0]), 0.65, "Which?", "w1", "v1", given)
    fields = {name: read(value) for name, value in json.loads(json.dumps(state.to_fields())).items()}
    found = state_from(fields, "line 1")
    assert found is not None and found.values.tolist() == [0.5, -2.0]
    assert {**vars(found), "values": 0} == {**vars(state), "values": 0}
