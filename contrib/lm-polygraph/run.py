"""The embedded model's questions through lm-polygraph's manager: python contrib/lm-polygraph/run.py [QUESTIONS].

Needs lm-polygraph. Prints PRR and AUROC of three estimators on the same answers, with 95 % intervals over questions.
"""

from __future__ import annotations

import sys

from lm_polygraph.defaults.register_default_stat_calculators import register_default_stat_calculators
from lm_polygraph.estimators import MaximumSequenceProbability, Perplexity
from lm_polygraph.generation_metrics import AccuracyMetric
from lm_polygraph.ue_metrics import PredictionRejectionArea
from lm_polygraph.utils.builder_enviroment_stat_calculator import BuilderEnvironmentStatCalculator
from lm_polygraph.utils.dataset import Dataset
from lm_polygraph.utils.generation_parameters import GenerationParameters
from lm_polygraph.utils.manager import UEManager
from lm_polygraph.utils.model import WhiteboxModel

from semtoken import STC, metrics
from semtoken.almanac import is_correct, load_questions
from semtoken.integrations.lm_polygraph import SemanticTokenClustering, stc_calculator


def main() -> None:
    """Run it."""
    questions = load_questions("test")[: int(sys.argv[1]) if len(sys.argv) > 1 else None]
    stc = STC.from_pretrained("almanac", dtype="float32", preset="paper")
    settings = GenerationParameters(stop_strings=["\n"])
    model = WhiteboxModel(stc.model, stc.tokenizer, "almanac", generation_parameters=settings)
    manager = UEManager(
        data=Dataset([q.prompt() for q in questions], [q.answers[0] for q in questions], batch_size=16),
        model=model,
        estimators=[MaximumSequenceProbability(), Perplexity(), SemanticTokenClustering()],
        builder_env_stat_calc=BuilderEnvironmentStatCalculator(model=model),
        available_stat_calculators=[*register_default_stat_calculators("Whitebox"), stc_calculator(stc.clusters)],
        generation_metrics=[AccuracyMetric()],
        ue_metrics=[PredictionRejectionArea()],
        processors=[],
        ignore_exceptions=False,
        verbose=False,
        max_new_tokens=24,
        save_stats=["greedy_texts"],
    )
    manager()
    right = [float(is_correct(text, q)) for text, q in zip(manager.stats["greedy_texts"], questions, strict=True)]
    print(f"{len(questions)} questions, {sum(right) / len(right):.3f} right")
    for (_, name), values in manager.estimations.items():
        found = [metrics.bootstrap(metric, values, right) for metric in ("prr", "auroc")]
        print(name, *(f"{one.value:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in found))
    stc_values = manager.estimations["sequence", "SemanticTokenClustering"]
    for name in ("MaximumSequenceProbability", "Perplexity"):
        difference = metrics.paired_difference("prr", stc_values, manager.estimations["sequence", name], right)
        print(f"PRR, STC minus {name}: {difference.value:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]")


if __name__ == "__main__":
    main()
