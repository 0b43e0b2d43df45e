"""lm-polygraph's own manager with our estimators beside theirs."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lm_polygraph.defaults.register_default_stat_calculators import register_default_stat_calculators
from lm_polygraph.estimators import RAUQ, MaximumSequenceProbability, MeanTokenEntropy, Perplexity, SelfCertainty
from lm_polygraph.generation_metrics import AccuracyMetric
from lm_polygraph.ue_metrics import PredictionRejectionArea
from lm_polygraph.utils.builder_enviroment_stat_calculator import BuilderEnvironmentStatCalculator
from lm_polygraph.utils.dataset import Dataset
from lm_polygraph.utils.generation_parameters import GenerationParameters
from lm_polygraph.utils.manager import UEManager
from lm_polygraph.utils.model import WhiteboxModel
from lm_polygraph.utils.processor import Processor

from semtoken import ScoredModel, TokenClusters, methods, metrics, score_logits
from semtoken.integrations.lm_polygraph import (
    SemanticTokenClustering,
    SemanticTokenClusteringFromArrays,
    stc_calculator,
)
from semtoken.methods.observers.table import AttentionToPrevious
from semtoken.support.almanac import Question

STATS = ["greedy_tokens", "greedy_texts", "greedy_log_likelihoods"]


class Seen(Processor):
    """A processor that keeps what the manager held for each batch."""

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []

    def on_batch(self, batch_stats: Any, batch_gen_metrics: Any, batch_estimations: Any) -> None:
        self.batches.append(dict(batch_stats))

    def on_eval(self, metrics: Any, total_bad_estimators: Any) -> None:
        pass


def run(
    stc: ScoredModel, questions: list[Question], estimators: list[Any], calculators: list[Any], **settings: Any
) -> Any:
    """A run of their manager; returns it with what it held."""
    model = WhiteboxModel(
        stc.model, stc.tokenizer, "almanac", generation_parameters=GenerationParameters(stop_strings=["\n"])
    )
    seen = Seen()
    manager = UEManager(
        data=Dataset([q.prompt() for q in questions], [q.answers[0] for q in questions], batch_size=7),
        model=model,
        estimators=estimators,
        builder_env_stat_calc=BuilderEnvironmentStatCalculator(model=model),
        available_stat_calculators=[
            *register_default_stat_calculators("Whitebox", output_attentions=False, output_hidden_states=False),
            *calculators,
        ],
        generation_metrics=[AccuracyMetric()],
        ue_metrics=[PredictionRejectionArea()],
        processors=[seen],
        ignore_exceptions=False,
        verbose=False,
        max_new_tokens=12,
        save_stats=STATS,
        **settings,
    )
    manager()
    return manager, seen.batches


def test_estimates_are_those_of_stc_and_no_array_of_the_vocabulary_is_kept(
    stc: ScoredModel, clusters: TokenClusters, questions: list[Question], record: Callable[[str, Any], None]
) -> None:
    ours, msp, perplexity = SemanticTokenClustering(), MaximumSequenceProbability(), Perplexity()
    manager, batches = run(stc, questions, [msp, perplexity, ours], [stc_calculator(clusters)])
    estimates = {name: values for (_, name), values in manager.estimations.items()}

    tokens = manager.stats["greedy_tokens"]
    twin = ScoredModel(stc.model, stc.tokenizer, clusters, preset="paper")
    scored = twin.score([q.prompt() for q in questions], tokens)
    assert estimates[str(ours)] == pytest.approx([-one.log_confidence for one in scored], rel=1e-5, abs=1e-5)
    assert estimates[str(msp)] == pytest.approx([-one.log_probability for one in scored], rel=1e-5, abs=1e-5)

    size = clusters.vocabulary.size
    assert not any(size in np.shape(value) for batch in batches for kept in batch.values() for value in leaves(kept))

    correct = manager.gen_metrics["sequence", "Accuracy"]
    assert 0 < sum(correct) < len(correct)
    theirs = manager.metrics["sequence", str(ours), "Accuracy", "prr_normalized"]
    assert theirs == pytest.approx(metrics.prr(estimates[str(ours)], correct, ties="stable"), abs=0.05)
    record(
        "lm_polygraph",
        {
            "questions": [q.id for q in questions],
            "tokens": tokens,
            "correct": correct,
            "estimates": estimates,
            "prr": {name: manager.metrics["sequence", name, "Accuracy", "prr_normalized"] for name in estimates},
        },
    )


def test_answers_are_those_of_their_own_calculator(
    stc: ScoredModel, clusters: TokenClusters, questions: list[Question]
) -> None:
    with_ours, _ = run(stc, questions, [SemanticTokenClustering()], [stc_calculator(clusters)])
    from_arrays = SemanticTokenClusteringFromArrays(clusters)
    with_theirs, batches = run(stc, questions, [from_arrays, MaximumSequenceProbability()], [])
    # Theirs ends an answer at the tokenizer's end of sequence only, and keeps the padding of a model that has others.
    theirs = [text.replace(stc.tokenizer.pad_token, "").strip() for text in with_theirs.stats["greedy_texts"]]
    assert [text.strip() for text in with_ours.stats["greedy_texts"]] == theirs
    # The check above sees such arrays where there are some:
    size = clusters.vocabulary.size
    assert any(size in np.shape(value) for batch in batches for kept in batch.values() for value in leaves(kept))
    # An answer may not end at once, so theirs have the ends masked in the first two steps; nothing else differs.
    tokens = with_ours.stats["greedy_tokens"]
    expected = [masked_score(stc, q.prompt(), ids, clusters) for q, ids in zip(questions, tokens, strict=True)]
    assert with_theirs.estimations["sequence", str(from_arrays)] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_what_is_proposed_upstream_gives_the_same_numbers(
    stc: ScoredModel, clusters: TokenClusters, questions: list[Question]
) -> None:
    """The files of packaging/contrib/lm-polygraph, as modules of lm-polygraph."""
    calculator = proposed("stat_calculators", "stc_log_scores").StcLogScoresCalculator(clusters)
    estimator = proposed("estimators", "semantic_token_clustering").SemanticTokenClustering()
    from_arrays = SemanticTokenClusteringFromArrays(clusters)
    manager, batches = run(stc, questions[:14], [from_arrays], [])
    found = [value for batch in batches for value in estimator(calculator(batch, [], None)).tolist()]
    exact = np.asarray(manager.estimations["sequence", str(from_arrays)])
    assert found == pytest.approx(exact, abs=1e-9)
    bound = proposed("estimators", "listed_tokens_bound").ListedTokensBound
    lower, upper = (
        np.concatenate([bound(end, clusters)(batch) for batch in batches]) for end in ("lower", "upper")
    )  # of the ten best tokens that their calculator keeps
    assert (lower <= exact + 1e-4).all() and (exact <= upper + 1e-4).all() and (lower < upper).any()


def proposed(package: str, name: str) -> Any:
    file = Path(__file__).parents[3] / "packaging" / "contrib" / "lm-polygraph" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"lm_polygraph.{package}.{name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def masked_score(stc: ScoredModel, prompt: str, ids: list[int], clusters: TokenClusters) -> float:
    """Minus the log score where the model's ends are impossible in the first two steps."""
    before = stc.tokenizer(prompt)["input_ids"]
    with torch.no_grad():
        logits = stc.model(torch.tensor([before + ids])).logits[0, len(before) - 1 : -1].clone()
    logits[:2, stc.model.generation_config.eos_token_id] = -torch.inf
    return -score_logits(logits.numpy(), ids, clusters, "paper").log_confidence


def test_both_run_beside_an_estimator_that_needs_the_whole_distribution(
    stc: ScoredModel, clusters: TokenClusters, questions: list[Question]
) -> None:
    manager, _ = run(stc, questions[:14], [MeanTokenEntropy(), SemanticTokenClustering()], [stc_calculator(clusters)])
    assert {len(values) for values in manager.estimations.values()} == {14}
    assert all(np.isfinite(values).all() for values in manager.estimations.values())


def leaves(value: Any) -> list[Any]:
    """Arrays and scalars inside lists."""
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)] or [np.empty(0)]
    return [value] if hasattr(value, "shape") else [np.empty(0)]


def statistics_of(stc: ScoredModel, question: Question, answer: list[int]) -> dict[str, Any]:
    """The statistics that lm-polygraph's calculators keep of an answer, from transformers' own generation of it."""
    ids = torch.tensor([stc.tokenizer(question.prompt())["input_ids"]])
    before = stc.model.config._attn_implementation
    stc.model.set_attn_implementation("eager")
    given = stc.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=len(answer),
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        output_logits=True,
        output_attentions=True,
        return_dict_in_generate=True,
    )
    stc.model.set_attn_implementation(before)
    assert given.sequences[0, ids.shape[1] :].tolist() == answer
    logs = torch.stack(given.logits, 1)[0].double().log_softmax(-1).numpy()
    attended = np.zeros((stc.model.config.num_hidden_layers * stc.model.config.num_attention_heads, *[len(answer)] * 2))
    for step in range(1, len(answer)):  # as in its GreedyProbsCalculator
        heads = [one for layer in given.attentions[step] for one in layer[0]]
        attended[:, step, :step] = torch.vstack([head[0][-step:] for head in heads]).numpy()
    return {
        "attention_all": [attended],
        "greedy_log_likelihoods": [logs[np.arange(len(answer)), answer]],
        "greedy_log_probs": [list(logs)],
        "entropy": [[-(np.exp(row) * row).sum() for row in logs]],
    }


def test_rauq_entropies_and_self_certainty_are_theirs(stc: ScoredModel, questions: list[Question]) -> None:
    layers = stc.model.config.num_hidden_layers
    twin = ScoredModel(stc.model, stc.tokenizer, methods=["mean_token_entropy", "self_certainty", "rauq"])
    for question in questions[:8]:
        [answer] = twin.generate(question.prompt(), 8, stop_at_newline=True)
        theirs = statistics_of(stc, question, answer.token_ids)
        assert answer.scores["mean_token_entropy"] == pytest.approx(MeanTokenEntropy()(theirs)[0], rel=1e-4, abs=1e-5)
        assert answer.scores["self_certainty"] == pytest.approx(SelfCertainty()(theirs)[0], rel=1e-4)
        watch = AttentionToPrevious()
        twin.backend.read([question.prompt()], [answer.token_ids], [watch])
        theirs_rauq = RAUQ(n_layers=layers, n_heads=stc.model.config.num_attention_heads)(theirs)[0]
        ours = methods.rauq(
            theirs["greedy_log_likelihoods"][0],
            np.moveaxis(watch.of(0)[1:], 0, -1),
            layers=range(layers // 3, math.ceil(layers / 3 * 2) + 1),  # it looks at a layer or two more
        )
        assert ours + 1 == pytest.approx(theirs_rauq, rel=1e-5)  # and adds 1
