"""Given text that the model would not have written is not certified, and rivals are seen."""

from __future__ import annotations

import pytest

import semtoken as st
from semtoken.clustering import cache
from semtoken.core import ScoringRules
from semtoken.support.almanac import almanac_clusters_path, almanac_path
from semtoken.support.checkpoints import CATALOG
from semtoken.support.checkpoints.sources import fetched_path


def real(name: str) -> st.ScoredModel:
    """A model that `semtoken fetch` has got, with the clusters that ship with semtoken or were made here."""
    if fetched_path(name) is None:
        pytest.skip(f"{name} is not fetched (semtoken fetch {name})")
    entry = CATALOG[name]
    try:
        clusters = entry.clusters or cache.kept_for(name)
    except st.InvalidInputError as reason:
        pytest.skip(str(reason))
    return st.ScoredModel.from_pretrained(name, clusters=clusters)


def assert_not_certified(stc: st.ScoredModel) -> None:
    """Under `paper` newline, end and function words vouch for it; under `default` its own probability is all it has."""
    stc.rules = ScoringRules("default")
    [scored] = stc.score(["What is the capital of Japan?"], ["Paris"])
    assert scored.confidence < 0.01
    assert scored.borrowed.function_words == scored.borrowed.cluster == 0
    stc.rules = ScoringRules("paper")
    [paper] = stc.score(["What is the capital of Japan?"], ["Paris"])
    assert scored.uncertainty_under("meaning") == pytest.approx(paper.sequence_uncertainty, abs=1e-6)
    if paper.confidence > 0.1:
        assert "carried_by_function_words" in [flag.code for flag in paper.flags]


def test_the_almanac_does_not_certify_paris() -> None:
    stc = st.ScoredModel.from_pretrained(str(almanac_path()), clusters=str(almanac_clusters_path()))
    assert_not_certified(stc)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "gemma3-270m"])
def test_real_models_do_not_certify_paris(name: str) -> None:
    assert_not_certified(real(name))


@pytest.mark.slow
def test_sydney_is_seen_beside_canberra() -> None:
    prompt = (
        "Question: What is the capital of France?\nAnswer: Paris\n\n"
        "Question: What is the capital of Australia?\nAnswer:"
    )
    stc = real("smollm2")
    stc.rules = ScoringRules("default")
    [scored] = stc.score([prompt], [" Canberra"])
    [sydney] = [other for other in scored.tokens[0].alternatives if other.text == " Sydney"]
    assert (sydney.source, sydney.counted) == ("cluster", False)
    assert scored.confidence < sydney.probability
    stc.rules = ScoringRules("paper")
    [paper] = stc.score([prompt], [" Canberra"])
    assert {"carried_by_cluster", "rivals_counted"} <= {flag.code for flag in paper.flags}
    assert any(other.text == " Sydney" and other.counted for other in paper.tokens[0].alternatives)
