"""The records that scoring returns, and their forms for files and frames."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from semtoken import ScoredResponse, TokenClusters, Vocabulary, score_logits, to_frame
from tests import tiny, worked

SCORED = score_logits(worked.logits(*worked.STEPS), worked.ids(*worked.ANSWER), worked.clusters())
IMPOSSIBLE = score_logits(
    worked.logits({" radio": 1.0}), worked.ids("vision"), worked.clusters(), distribution="unknown"
)
BYTE_LEVEL = Vocabulary.from_tokenizer(tiny.byte_level_bpe())


def random_answer(seed: int, steps: int = 6, **switches: Any) -> ScoredResponse:
    random = np.random.default_rng(seed)
    labels = random.integers(0, BYTE_LEVEL.size // 6, BYTE_LEVEL.size).astype(np.int32)
    logits = random.normal(0, 3, (steps, BYTE_LEVEL.size))
    return score_logits(
        logits, random.integers(0, BYTE_LEVEL.size, steps), TokenClusters(labels, BYTE_LEVEL), **switches
    )


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


@pytest.mark.parametrize("switches", [{}, {"function_words": "off"}, {"clustering": False}, {"preset": "paper"}])
@pytest.mark.parametrize("seed", range(3))
def test_the_three_masses_add_up(seed: int, switches: dict[str, Any]) -> None:
    content = [t for t in random_answer(seed, **switches).tokens if not t.neutral]
    assert content
    for token in content:
        total = token.cluster_probability + token.prefix_probability + token.neutral_probability
        assert token.clustered_probability == pytest.approx(total, rel=1e-9)
        assert token.cluster_probability >= token.probability - 1e-12


def test_the_three_masses_of_the_worked_example() -> None:
    tele, _, seventeen = SCORED.tokens[1:4]
    masses = (tele.cluster_probability, tele.prefix_probability, tele.neutral_probability)
    assert masses == pytest.approx((0.60, 0.05, 0.08))
    masses = (seventeen.cluster_probability, seventeen.prefix_probability, seventeen.neutral_probability)
    assert masses == pytest.approx((0.50, 0.10, 0.10))


def test_alternatives_of_the_worked_example() -> None:
    """The strongest five, and why each counts: " radio" (.20) and " The" (.07) do not."""
    found = [(a.text, round(a.probability, 12), a.source) for a in SCORED.tokens[1].alternatives]
    assert found == [
        (" television", 0.30, "cluster"),
        ("TV", 0.20, "cluster"),
        (" the", 0.06, "neutral"),
        ("te", 0.05, "prefix"),
        ("\n", 0.02, "neutral"),
    ]
    found = [(a.text, a.source) for a in SCORED.tokens[3].alternatives]
    assert found[0] == (" 1", "prefix")
    assert sorted(found[1:]) == [(worked.END, "neutral"), ("\n", "neutral")]


@pytest.mark.parametrize("switches", [{}, {"function_words": "off"}, {"prefix_matching": False}])
@pytest.mark.parametrize("seed", range(3))
def test_alternatives_are_the_strongest_consistent_tokens(seed: int, switches: dict[str, Any]) -> None:
    scored = random_answer(seed, **switches)
    for token in scored.tokens:
        found = [a.id for a in token.alternatives]
        probabilities = [a.probability for a in token.alternatives]
        assert token.id not in found
        assert len(set(found)) == len(found)
        assert probabilities == sorted(probabilities, reverse=True)
        by_source = {"cluster": token.cluster_probability, "prefix": token.prefix_probability}
        by_source["neutral"] = token.neutral_probability
        for source, mass in by_source.items():
            listed = math.fsum(a.probability for a in token.alternatives if a.source == source)
            assert listed <= mass + 1e-9
            if source == "neutral" and "function_words" in switches:
                assert listed == mass == 0


def test_alternatives_complete_a_small_cluster() -> None:
    """With fewer than six consistent tokens the list is the whole difference to the token's own probability."""
    vision = SCORED.tokens[2]
    assert vision.probability + sum(a.probability for a in vision.alternatives) == pytest.approx(0.93)


def test_span_uncertainty() -> None:
    start = SCORED.text.index("television")
    assert SCORED.span_uncertainty(start, start + len("television")) == pytest.approx(1 - 0.73 * 0.93)
    assert SCORED.span_uncertainty(start + 5, start + 6) == pytest.approx(1 - 0.93)
    assert SCORED.span_uncertainty(0, len(SCORED.text)) == pytest.approx(SCORED.uncertainty)
    assert SCORED.span_uncertainty(3, 3) == 0


def test_length_normalized_uncertainty_is_of_the_geometric_mean() -> None:
    assert SCORED.length_normalized_uncertainty == pytest.approx(1 - 0.475230 ** (1 / 5))
    assert IMPOSSIBLE.length_normalized_uncertainty == 1


def test_uncertainty_and_confidence_are_two_sides() -> None:
    assert SCORED.uncertainty + SCORED.confidence == pytest.approx(1)
    assert SCORED.confidence == pytest.approx(0.475230)
    assert math.copysign(1, dataclasses.replace(SCORED, log_score=0.0).uncertainty) == 1  # no minus zero


def test_tiny_uncertainties_keep_their_digits() -> None:
    """1 - exp(-1e-20) is 0 in floating point; the uncertainty is 1e-20."""
    assert dataclasses.replace(SCORED, log_score=-1e-20).uncertainty == pytest.approx(1e-20, rel=1e-12, abs=0)


def test_records_cannot_be_changed() -> None:
    for record, name in ((SCORED, "log_score"), (SCORED.tokens[0], "id"), (SCORED.tokens[1].alternatives[0], "text")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, name, 0)


def test_json_round_trip() -> None:
    parsed = json.loads(SCORED.to_json(), parse_constant=pytest.fail)
    assert parsed == json.loads(json.dumps(SCORED.to_dict()))
    assert parsed["text"] == SCORED.text
    assert parsed["uncertainty"] == SCORED.uncertainty
    assert parsed["distribution"] == "raw"
    assert parsed["tokens"][1]["clustered_probability"] == SCORED.tokens[1].clustered_probability
    assert parsed["tokens"][1]["alternatives"][0] == dataclasses.asdict(SCORED.tokens[1].alternatives[0])
    names = {f.name for f in dataclasses.fields(SCORED)} | {"uncertainty", "confidence", "log_probability", "empty"}
    assert names <= set(parsed)


def test_json_has_no_infinity() -> None:
    text = IMPOSSIBLE.to_json(indent=1)
    parsed = json.loads(text, parse_constant=pytest.fail)
    assert parsed["log_score"] is None
    assert parsed["uncertainty"] == 1
    assert parsed["tokens"][0]["log_probability"] is None
    assert parsed["tokens"][0]["probability"] == 0
    assert parsed["distribution"] == "unknown"


def test_json_keeps_letters_readable() -> None:
    assert "é" in dataclasses.replace(SCORED, text="café").to_json()


def test_frame_of_an_answer_has_a_row_a_token() -> None:
    frame = SCORED.to_pandas()
    assert frame["text"].tolist() == list(worked.ANSWER)
    assert frame["clustered_probability"].tolist() == pytest.approx([1, 0.73, 0.93, 0.70, 1])


def test_frame_of_answers_has_a_row_an_answer() -> None:
    frame = to_frame([SCORED, IMPOSSIBLE])
    assert frame["uncertainty"].tolist() == pytest.approx([1 - 0.475230, 1])
    assert frame["text"].tolist() == [SCORED.text, "vision"]
    assert "tokens" not in frame
    assert frame["log_score"].isna().tolist() == [False, True]


def test_signature_tells_scores_apart() -> None:
    assert SCORED.signature.startswith(worked.clusters().signature)
    other = score_logits(
        worked.logits(*worked.STEPS), worked.ids(*worked.ANSWER), worked.clusters(), function_words="off"
    )
    assert other.signature != SCORED.signature
