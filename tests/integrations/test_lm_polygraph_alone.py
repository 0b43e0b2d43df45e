"""lm-polygraph's estimators and calculator where it is not installed, on what it gave in its live test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from semtoken import ScoredModel, TokenClusters, score_logits
from semtoken.errors import BackendError
from tests.integrations.recordings import recorded
from tests.stand_ins import CLOSE, QUESTIONS, Fields, imported


class Estimator:
    """Its base class of estimators."""

    def __init__(self, stats: list[str], level: str):
        self.stats_dependencies, self.level = stats, level


@pytest.fixture(scope="module")
def polygraph() -> Iterator[ModuleType]:
    with imported(
        "semtoken.integrations.lm_polygraph",
        lm_polygraph__estimators__estimator={"Estimator": Estimator},
        lm_polygraph__stat_calculators__stat_calculator={"StatCalculator": object},
        lm_polygraph__utils__factory_stat_calculator={"StatCalculatorContainer": Fields},
    ) as module:
        yield module


@dataclass
class GenerationParameters:
    """Its settings, with its defaults."""

    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    do_sample: bool = False
    num_beams: int = 1
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop_strings: list[str] | None = field(default_factory=lambda: ["\n"])
    allow_newlines: bool = True


def whitebox(almanac: ScoredModel, **settings: Any) -> Any:
    tokenizer = almanac.tokenizer
    return SimpleNamespace(
        model=almanac.model,
        tokenizer=tokenizer,
        model_type="CausalLM",
        generation_parameters=GenerationParameters(**settings),
        tokenize=lambda texts: tokenizer(texts, padding=True, return_tensors="pt"),
    )


def test_lm_polygraph_gets_the_answers_and_estimates_of_its_run(
    polygraph: ModuleType, almanac: ScoredModel, almanac_clusters: TokenClusters
) -> None:
    run = recorded("lm_polygraph")
    prompts = [QUESTIONS[name].prompt() for name in run["questions"][:8]]
    container = polygraph.stc_calculator(almanac_clusters)
    calculator = polygraph.load_stat_calculator(container.cfg, None)
    model = whitebox(almanac)
    stats = calculator({}, prompts, model, 12)
    assert (stats["greedy_tokens"], list(stats)) == (run["tokens"][:8], container.stats)
    assert stats["input_tokens"] == [almanac.tokenizer(prompt)["input_ids"] for prompt in prompts]
    ends = almanac.model.generation_config.eos_token_id
    for text, tokens in zip(stats["greedy_texts"], run["tokens"], strict=False):
        assert text == almanac.tokenizer.decode([token for token in tokens if token not in ends])
    sums = [-sum(values) for values in stats["greedy_log_likelihoods"]]
    assert sums == pytest.approx(run["estimates"]["MaximumSequenceProbability"][:8], abs=1e-3)
    estimator = polygraph.SemanticTokenClustering()
    assert estimator(stats) == pytest.approx(np.array(run["estimates"][str(estimator)][:8]), abs=CLOSE)
    assert (estimator.stats_dependencies, estimator.level) == (["stc_log_scores"], "sequence")
    assert polygraph.StcCalculator.meta_info() == (container.stats, []) and container.dependencies == []
    assert (container.name, container.obj.__name__, container.builder) == ("StcCalculator",) * 2 + (polygraph.__name__,)
    assert calculator._stc_of(model) is calculator._stc_of(model)
    with pytest.raises(BackendError, match="type CausalLM, got vLLM"):
        calculator({}, prompts, SimpleNamespace(model_type="vLLM"))


def test_settings_of_lm_polygraph_are_kept_as_they_are_needed(polygraph: ModuleType, almanac: ScoredModel) -> None:
    plain = {
        "do_sample": False,
        "num_beams": 1,
        "repetition_penalty": 1.0,
        "min_new_tokens": 2,
        "stop_strings": ("\n",),
    }
    sampling = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}
    assert polygraph._options(whitebox(almanac)) == plain
    assert polygraph._options(whitebox(almanac, do_sample=True)) == plain | sampling | {"do_sample": True}
    masked = polygraph._options(whitebox(almanac, allow_newlines=False, stop_strings=None))
    [*ids] = masked.pop("suppress_tokens")
    assert masked == plain | {"stop_strings": ()}
    assert ids == [id for id in range(len(almanac.tokenizer)) if "\n" in almanac.tokenizer.decode([id])] != []


def test_lm_polygraph_scores_the_rows_that_it_kept(polygraph: ModuleType, almanac_clusters: TokenClusters) -> None:
    random, size = np.random.default_rng(3), almanac_clusters.vocabulary.size
    rows = [random.normal(size=(steps, size)) for steps in (2, 3)]
    tokens = [[5, 9], [7, 8, 9]]
    given: list[tuple[dict[str, Any], str]] = [
        ({}, "paper"),
        ({"preset": "default", "equality": "exact"}, "default_exact"),
    ]
    for options, name in given:
        estimator = polygraph.SemanticTokenClusteringFromArrays(almanac_clusters, **options)
        assert str(estimator) == f"SemanticTokenClusteringFromArrays_{name}"
        assert (estimator.stats_dependencies, estimator.level) == (["greedy_log_probs", "greedy_tokens"], "sequence")
        expected = [
            -score_logits(np.float32(one), ids, almanac_clusters, **{"preset": "paper"} | options).log_confidence
            for one, ids in zip(rows, tokens, strict=True)
        ]
        assert estimator({"greedy_log_probs": rows, "greedy_tokens": tokens}).tolist() == expected
