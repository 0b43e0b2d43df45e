"""Semantic Token Clustering in lm-polygraph: an estimator, and the calculator of the statistic that it reads.

>>> from semtoken.integrations.lm_polygraph import SemanticTokenClustering, stc_calculator  # doctest: +SKIP
>>> calculators = [*register_default_stat_calculators("Whitebox"), stc_calculator(clusters)]  # doctest: +SKIP
>>> manager = UEManager(data, model, [MaximumSequenceProbability(), SemanticTokenClustering()],
...                     available_stat_calculators=calculators, ...)  # doctest: +SKIP

The calculator takes the place of lm-polygraph's own generation: it generates the same answers and keeps a few numbers a
token, where theirs keeps a row of the whole vocabulary. Estimators that need such rows bring theirs back, beside it.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.choices import Equality
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.core import Preset, score_logits
from semtoken.core.given_tokens import as_clusters
from semtoken.core.rules import as_rules
from semtoken.errors import BackendError
from semtoken.integrations.hosts import require_host
from semtoken.models.prompt_ids import end_ids

require_host("lm_polygraph")

from lm_polygraph.estimators.estimator import Estimator  # noqa: E402
from lm_polygraph.stat_calculators.stat_calculator import StatCalculator  # noqa: E402
from lm_polygraph.utils.factory_stat_calculator import StatCalculatorContainer  # noqa: E402

LOG_SCORES = "stc_log_scores"
"""The statistic: for each answer the log of the product over its steps, a float of at most 0."""
STATISTICS = [
    "input_tokens",
    "greedy_tokens",
    "greedy_texts",
    "greedy_log_likelihoods",
    LOG_SCORES,
]
_NOT_OF_GENERATE = {"presence_penalty", "allow_newlines", "stop_strings", "max_new_tokens"}
_OF_SAMPLING = {"temperature", "top_k", "top_p"}


class SemanticTokenClustering(Estimator):  # type: ignore[misc]
    """STC (Cao et al., EACL 2026) from the statistic of `stc_calculator`.

    The estimate is minus the log of the score, in [0, inf): it orders answers as the uncertainty 1 - score does, and
    does not saturate near 1, where ties would decide the rejection curves.
    """

    def __init__(self) -> None:
        super().__init__([LOG_SCORES], "sequence")

    def __str__(self) -> str:
        return "SemanticTokenClustering"

    def __call__(self, stats: dict[str, Any]) -> npt.NDArray[np.float64]:
        """Estimates [n], higher is riskier."""
        return -np.asarray(stats[LOG_SCORES], dtype=np.float64)


class SemanticTokenClusteringFromArrays(Estimator):  # type: ignore[misc]
    """STC from the log-probabilities of the whole vocabulary that lm-polygraph's own calculator keeps.

    It needs no calculator of ours, at the price of lm-polygraph's memory: answers x tokens x vocabulary. What it scores
    is what was recorded: where newlines are forbidden, or an answer may not end at once, these were masked before.
    `clusters` are those of the model's tokenizer, or a directory or hub id; `preset` and `equality` are as in
    `semtoken.score_logits`.
    """

    def __init__(
        self, clusters: TokenClusters | str | Path, preset: Preset = "paper", equality: Equality | None = None
    ) -> None:
        super().__init__(["greedy_log_probs", "greedy_tokens"], "sequence")
        self.clusters = as_clusters(clusters)
        self.preset = preset
        self.rules = as_rules(preset, equality)

    def __str__(self) -> str:
        counted = "" if self.rules == as_rules(self.preset) else f"_{self.rules.equality}"
        return f"SemanticTokenClusteringFromArrays_{self.preset}{counted}"

    def __call__(self, stats: dict[str, Any]) -> npt.NDArray[np.float64]:
        """Estimates [n], higher is riskier."""
        scored = [
            score_logits(np.asarray(rows, dtype=np.float32), ids, self.clusters, self.rules)
            for rows, ids in zip(stats["greedy_log_probs"], stats["greedy_tokens"], strict=True)
        ]
        return np.array([-answer.log_confidence for answer in scored])


class StcCalculator(StatCalculator):  # type: ignore[misc]
    """Generates the greedy answers and scores them on the way; see `stc_calculator`.

    `clusters` are those of the model's tokenizer, or a directory or hub id; None: those cached for this model, or
    computed and cached. `preset` and `equality` are as in `semtoken.ScoredModel`; "paper" has the published numbers.
    """

    @staticmethod
    def meta_info() -> tuple[list[str], list[str]]:
        """The statistics that it fills, and those that it needs: none."""
        return STATISTICS, []

    def __init__(
        self,
        clusters: TokenClusters | str | Path | None = None,
        preset: Preset = "paper",
        equality: Equality | None = None,
    ) -> None:
        super().__init__()
        self._clusters = clusters
        self._rules = as_rules(preset, equality)
        self._stc: Any = None

    def __call__(
        self, dependencies: dict[str, Any], texts: list[str], model: Any, max_new_tokens: int = 100, **_: Any
    ) -> dict[str, Any]:
        """Answer a batch; `BackendError` if the model is not a causal language model of transformers.

        For each text: the ids of its prompt, ids and text of the answer, the log-probability of each of its tokens, and
        the log score. Log-probabilities are the model's own, before any mask.
        """
        if getattr(model, "model_type", None) != "CausalLM":
            raise BackendError(
                "Semantic Token Clustering in lm-polygraph needs a WhiteboxModel of type CausalLM, got "
                f"{getattr(model, 'model_type', type(model).__name__)}."
            )
        batch = model.tokenize(texts)
        prompts = [
            ids[mask.bool()].tolist() for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
        ]
        answers = self._stc_of(model).generate(prompts, max_new_tokens, batch_size=len(prompts), **_options(model))
        stops = set(end_ids(model.model, model.tokenizer))  # its own calculator knows that of the tokenizer only
        return {
            "input_tokens": prompts,
            "greedy_tokens": [answer.token_ids for answer in answers],
            "greedy_texts": [model.tokenizer.decode(_without_end(answer.token_ids, stops)) for answer in answers],
            "greedy_log_likelihoods": [[token.log_probability for token in answer.tokens] for answer in answers],
            LOG_SCORES: [answer.log_confidence for answer in answers],
        }

    def _stc_of(self, model: Any) -> Any:
        from semtoken.scored_model import ScoredModel

        # A calculator may be handed another model.
        if self._stc is None or self._stc.model is not model.model:
            self._stc = ScoredModel(model.model, model.tokenizer, self._clusters, preset=self._rules)
        return self._stc


def stc_calculator(
    clusters: TokenClusters | str | Path | None = None, preset: Preset = "paper", equality: Equality | None = None
) -> Any:
    """`StcCalculator` for the `available_stat_calculators` of `UEManager`. Put it behind lm-polygraph's own."""
    return StatCalculatorContainer(
        name=StcCalculator.__name__,
        obj=StcCalculator,
        builder=__name__,
        cfg={"clusters": clusters, "preset": preset, "equality": equality},
        stats=STATISTICS,
        dependencies=[],
    )


def load_stat_calculator(config: dict[str, Any], environment: Any) -> StcCalculator:
    """The function that lm-polygraph calls to build the calculator."""
    return StcCalculator(config["clusters"], config["preset"], config["equality"])


def _options(model: Any) -> dict[str, Any]:
    """The settings under which lm-polygraph's own calculator generates, so that the answers are the same."""
    settings = asdict(model.generation_parameters)
    given = {name: value for name, value in settings.items() if name not in _NOT_OF_GENERATE}
    if not given.get("do_sample"):
        # transformers warns of settings of sampling in a greedy generation, once for each call.
        given = {name: value for name, value in given.items() if name not in _OF_SAMPLING}
    # lm-polygraph's own calculator asks for two tokens at least, so an answer may not end at once.
    options = {**given, "min_new_tokens": 2, "stop_strings": tuple(settings["stop_strings"] or ())}
    if not settings["allow_newlines"]:
        tokenizer = model.tokenizer
        options["suppress_tokens"] = [i for i in range(len(tokenizer)) if "\n" in tokenizer.decode([i])]
    return options


def _without_end(ids: list[int], stops: set[int]) -> list[int]:
    return ids[:-1] if ids and ids[-1] in stops else ids
