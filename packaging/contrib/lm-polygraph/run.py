"""The embedded model's questions through lm-polygraph's manager.

    python packaging/contrib/lm-polygraph/run.py [QUESTIONS]

Needs lm-polygraph. Prints PRR and AUROC of the estimators on the same answers, with 95 % intervals over questions, and
how wide the bounds from the listed tokens are and whether they hold the exact estimate.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
from lm_polygraph.defaults.register_default_stat_calculators import register_default_stat_calculators
from lm_polygraph.estimators import MaximumSequenceProbability, Perplexity
from lm_polygraph.generation_metrics import AccuracyMetric
from lm_polygraph.ue_metrics import PredictionRejectionArea
from lm_polygraph.utils.builder_enviroment_stat_calculator import BuilderEnvironmentStatCalculator
from lm_polygraph.utils.dataset import Dataset
from lm_polygraph.utils.generation_parameters import GenerationParameters
from lm_polygraph.utils.manager import UEManager
from lm_polygraph.utils.model import WhiteboxModel

from semtoken import ScoredModel, metrics
from semtoken.integrations.lm_polygraph import (
    SemanticTokenClustering,
    SemanticTokenClusteringFromArrays,
    stc_calculator,
)
from semtoken.support.almanac import Question, is_correct, load_questions


def listed_tokens_bound() -> Any:
    """The class `ListedTokensBound` of the file beside this one, as a module of lm-polygraph."""
    file = Path(__file__).with_name("listed_tokens_bound.py")
    spec = importlib.util.spec_from_file_location("lm_polygraph.estimators.listed_tokens_bound", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ListedTokensBound


def print_widths(exact: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
    """How wide the bounds are, as uncertainties in [0, 1], and for how many answers they hold the exact value."""
    width = np.exp(-lower) - np.exp(-upper)
    inside = (lower <= exact + 1e-4) & (exact <= upper + 1e-4)
    print(f"bounds: mean width {width.mean():.4f}, median {np.median(width):.4f}")
    print(f"they hold the exact value of {inside.sum()} of {len(exact)} answers")


def managed(stc: ScoredModel, questions: list[Question], estimators: list[Any], calculators: list[Any]) -> UEManager:
    """Their manager after a run of these estimators."""
    settings = GenerationParameters(stop_strings=["\n"])
    model = WhiteboxModel(stc.model, stc.tokenizer, "almanac", generation_parameters=settings)
    theirs = register_default_stat_calculators("Whitebox", output_attentions=False, output_hidden_states=False)
    manager = UEManager(
        data=Dataset([q.prompt() for q in questions], [q.answers[0] for q in questions], batch_size=16),
        model=model,
        estimators=estimators,
        builder_env_stat_calc=BuilderEnvironmentStatCalculator(model=model),
        available_stat_calculators=[*theirs, *calculators],
        generation_metrics=[AccuracyMetric()],
        ue_metrics=[PredictionRejectionArea()],
        processors=[],
        ignore_exceptions=False,
        verbose=False,
        max_new_tokens=24,
        save_stats=["greedy_texts"],
    )
    manager()
    return manager


def print_ranking(manager: UEManager, right: list[float]) -> None:
    """PRR and AUROC of every estimator of a run."""
    for (_, name), values in manager.estimations.items():
        found = [metrics.bootstrap(metric, values, right) for metric in ("prr", "auroc")]
        print(name, *(f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in found))


def main() -> None:
    """A run with semtoken's calculator, and one whose estimators read the arrays that lm-polygraph keeps."""
    questions = load_questions("test")[: int(sys.argv[1]) if len(sys.argv) > 1 else None]
    stc = ScoredModel.from_pretrained("almanac", dtype="float32", preset="paper")
    single = [MaximumSequenceProbability(), Perplexity(), SemanticTokenClustering()]
    manager = managed(stc, questions, single, [stc_calculator(stc.clusters)])
    right = [float(is_correct(text, q)) for text, q in zip(manager.stats["greedy_texts"], questions, strict=True)]
    print(f"{len(questions)} questions, {sum(right) / len(right):.3f} right")
    print_ranking(manager, right)
    stc_values = manager.estimations["sequence", "SemanticTokenClustering"]
    for name in ("MaximumSequenceProbability", "Perplexity"):
        difference = metrics.paired_difference("prr", stc_values, manager.estimations["sequence", name], right)
        print(f"PRR, STC minus {name}: {difference.value:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]")
    bound = listed_tokens_bound()
    bounds = [bound(end, stc.clusters) for end in ("lower", "upper")]
    spelling = [bound(end, vocabulary=stc.clusters.vocabulary) for end in ("lower", "upper")]
    of_arrays, of_spelling = (
        SemanticTokenClusteringFromArrays(stc.clusters, preset) for preset in ("paper", "default")
    )
    manager = managed(stc, questions, [of_arrays, of_spelling, *bounds, *spelling], [])
    print_ranking(manager, right)
    for exact, ends in ((of_arrays, bounds), (of_spelling, spelling)):
        print_widths(*(np.asarray(manager.estimations["sequence", str(one)]) for one in (exact, *ends)))


if __name__ == "__main__":
    main()
