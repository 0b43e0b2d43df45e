"""A small model first, a larger one where the small one is not sure enough, with one guarantee for the pair.

Copy this module beside your own; `small_model_first.py` uses it:

    threshold = CascadeThreshold.fit(small, small_correct, large, large_correct, unlabeled=(more_small, more_large))
    cascade = Cascade(small_model, large_model, threshold)
    for found in cascade.answer(prompts): print(found.model, found.decision.action, found.response.text)

The guarantee is that of `Threshold.fit`: with confidence 1 - delta over the labeled questions, at most alpha of the
answers that the pair lets through are wrong. Answers are ranked by their confidence; with `score="stc"` by the product
over their tokens, and then `stop_early=True` can end generations that can only be rejected, and `stop_when_rejected`
does so in `model.generate` of your own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from semtoken.core.results import Decision, ScoredAnswer
from semtoken.errors import InvalidInputError
from semtoken.guarantees import exact
from semtoken.guarantees.exact import Test, binomial_p_value, percent
from semtoken.guarantees.fingerprint import NOTHING_KNOWN, Fingerprint, fingerprint_of
from semtoken.guarantees.fitting import FEWEST_UNLABELED
from semtoken.guarantees.judge import SAME
from semtoken.guarantees.labels import PRODUCT, chosen_method, log_confidences, scores_and_labels
from semtoken.guarantees.threshold import product_limit
from semtoken.support.arrays import FloatArray
from semtoken.support.inputs import listed, one_of, shown

if TYPE_CHECKING:
    from transformers import StoppingCriteria

    from semtoken.guarantees import Threshold
    from semtoken.models.transformers import Recorder

MODELS = ("first", "second")


class Generator(Protocol):
    """A model that answers and scores: `semtoken.ScoredModel`, or any object with such a `generate`."""

    def generate(self, prompts: Any, max_new_tokens: int = ..., **options: Any) -> list[ScoredAnswer]:
        """One scored answer for each prompt."""


@dataclass(frozen=True)
class CascadeThreshold:
    """The largest uncertainties at which each of two models may answer, and the guarantee that this keeps."""

    first: float | None
    """Largest uncertainty at which the first model answers, in nats as `Threshold`'s. None: no guarantee."""
    second: float | None
    """Largest uncertainty at which the second model answers the questions that the first one did not, in nats."""
    alpha: float
    """The share of wrong answers that is guaranteed not to be exceeded."""
    delta: float
    """How likely the labeled answers may mislead."""
    statement: str
    """The guarantee in one sentence with its numbers, or why nothing can be guaranteed."""
    n: int
    """How many labeled questions it was fitted on."""
    tests: tuple[Test, ...] = ()
    """The fixed sequence; `threshold` is that of the first model."""
    fingerprints: tuple[Fingerprint, Fingerprint] = (NOTHING_KNOWN, NOTHING_KNOWN)
    """Where the scores of the two models came from."""

    @classmethod
    def fit(
        cls,
        first: Any,
        first_correct: Any,
        second: Any,
        second_correct: Any,
        *,
        unlabeled: tuple[Any, Any],
        alpha: float = 0.1,
        delta: float = 0.1,
        start: float | None = None,
        score: str | None = None,
    ) -> CascadeThreshold:
        """The loosest pair of thresholds on a path that was fixed beforehand.

        Both models answer with the same share of their surest answers, from a small share up to all of them. For each
        pair the number of wrong answers among the accepted is binomial, so the test is exact, and the walk stops at the
        first pair that fails (learn-then-test, as in `Threshold.fit`).

        Parameters
        ----------
        first, second : lists of ScoredAnswer, or log scores [n]
            Answers of the two models to the same questions, in the same order.
        first_correct, second_correct : [n] of true and false
            The labels of the answers.
        unlabeled : two lists of ScoredAnswer, or log scores, at least 200 each
            Answers of the two models without labels: they place the thresholds.
        alpha, delta
            The level and one minus the confidence, each in (0, 1).
        start : float in (0, 1], optional
            Share of answers that either model gives at the strictest pair. Default: from n, alpha and delta.
        score
            The method whose scores decide, such as "stc"; default as in `Calibrator.fit`: confidence, and "stc" where
            numbers are given.

        Raises
        ------
        InvalidInputError
            Labels or scores that cannot be used, or too few scores without labels.
        CalibratorMismatchError
            The unlabeled answers were scored in another way than the labeled ones.
        """
        alpha, delta = exact.check_level(alpha, "alpha"), exact.check_level(delta, "delta")
        method = _method_of(first, second, score)
        one, one_correct = scores_and_labels(first, first_correct, None, method)
        other, other_correct = scores_and_labels(second, second_correct, None, method)
        if one.size != other.size:
            raise InvalidInputError(
                f"There are {one.size} answers of the first model and {other.size} of the second; both must answer the "
                "same questions."
            )
        origins = replace(fingerprint_of(first), method=method), replace(fingerprint_of(second), method=method)
        pair = listed(unlabeled, "unlabeled")
        if len(pair) != len(MODELS):
            raise InvalidInputError(
                f"'unlabeled' must be the scores of both models, two lists, got {shown(unlabeled)}."
            )
        for origin, scores in zip(origins, pair, strict=True):
            origin.require_same(replace(fingerprint_of(scores), method=method))
        n, least = one.size, exact.labels_needed(0, alpha, delta)
        if n < least:
            missing = f"There are {n}: {least - n} are missing."
            return cls(None, None, alpha, delta, f"A guarantee needs at least {least} labeled questions. {missing}", n)
        share = 1 - math.sqrt(1 - exact.starting_share(n, alpha, delta)) if start is None else start
        shares = exact.shares_of_coverage(share)
        grid = list(zip(*(_quantiles(scores, shares, method) for scores in pair), strict=True))
        kept, tests = _walk(-one, one_correct, -other, other_correct, grid, alpha, delta)
        statement = _statement(tests, kept is not None, n, alpha, delta)
        low, high = kept or (None, None)
        return cls(low, high, alpha, delta, statement, n, tests, origins)

    @property
    def method(self) -> str | None:
        """The name of the method whose scores decide; None for the product of the token probabilities."""
        return self.fingerprints[0].method

    def decide(self, answer: ScoredAnswer, model: Literal["first", "second"]) -> Decision:
        """Decide whether an answer of one of the two models may be given.

        Raises
        ------
        CalibratorMismatchError
            The answer was scored with other rules or clusters than the labeled ones.
        InvalidInputError
            There is no such model.
        """
        one_of("model", model, MODELS)
        place = MODELS.index(model)
        own = self.fingerprints[place]
        own.require_same(replace(fingerprint_of(answer), method=own.method))
        limit, uncertainty = (self.first, self.second)[place], -float(log_confidences([answer], own.method)[0])
        accepted = limit is not None and uncertainty <= limit and math.isfinite(uncertainty)
        doubt = "empty" if math.isinf(uncertainty) else "no_threshold" if limit is None else "uncertain"
        return Decision("answer" if accepted else "abstain", "accepted" if accepted else doubt, None, self.statement)


@dataclass(frozen=True)
class CascadeAnswer:
    """The answer of a cascade to one prompt, with the model that gave it."""

    response: ScoredAnswer
    """The answer of the model that decided, the second one's where both abstained."""
    model: Literal["first", "second"]
    """The model whose answer it is."""
    decision: Decision


@dataclass(frozen=True)
class Cascade:
    """A small model, a large model, and the thresholds by which the large one is asked."""

    first: Generator
    """The small model: it answers every prompt."""
    second: Generator
    """The large model: it answers where the small one abstains."""
    threshold: CascadeThreshold

    def answer(
        self, prompts: Sequence[Any], max_new_tokens: int = 256, *, stop_early: bool = False, **options: Any
    ) -> list[CascadeAnswer]:
        """Answers of the pair, in the order of the prompts.

        Parameters
        ----------
        prompts, max_new_tokens, **options
            As `generate` of both models takes them.
        stop_early
            Whether to end answers that can only be rejected (`stop_above_product` of `ScoredModel.generate`). Decisions
            stay the same; what the second model wrote of a rejected answer is then not the whole of it.

        Raises
        ------
        InvalidInputError
            `stop_early` with a threshold that was not fitted with `score="stc"`.
        """
        if stop_early and (method := self.threshold.method) is not None:
            raise InvalidInputError(
                f"This cascade decides by the method {method}, and a generation can only be ended by the product over "
                f'its tokens. Fit its threshold with score="{PRODUCT}", or leave out stop_early.'
            )

        def limits(limit: float | None) -> dict[str, Any]:
            return options | ({"stop_above_product": limit} if stop_early else {})

        found: list[CascadeAnswer] = []
        for response in self.first.generate(list(prompts), max_new_tokens, **limits(self.threshold.first)):
            found.append(CascadeAnswer(response, "first", self.threshold.decide(response, "first")))
        doubtful = [i for i, one in enumerate(found) if one.decision.action == "abstain"]
        if doubtful:
            again = [prompts[i] for i in doubtful]
            further = self.second.generate(again, max_new_tokens, **limits(self.threshold.second))
            for i, response in zip(doubtful, further, strict=True):
                found[i] = CascadeAnswer(response, "second", self.threshold.decide(response, "second"))
        return found


def stop_when_rejected(recorder: Recorder, threshold: Threshold) -> StoppingCriteria:
    """A stopping criterion for `model.generate`: end an answer once the threshold can no longer accept it.

    The running lower bound of the uncertainty is never taken back, so no answer that would have been accepted is
    stopped, and the guarantee stays as it is. Scores of stopped answers are those of what was written.

    Parameters
    ----------
    recorder
        The recorder that is given to the same `generate` as a logits processor.
    threshold
        A threshold that was fitted with `score="stc"`.

    Raises
    ------
    InvalidInputError
        The threshold is one of another method.
    """
    import torch
    from transformers import StoppingCriteria

    limit = product_limit(threshold)

    class StopWhenRejected(StoppingCriteria):  # type: ignore[misc]
        """Ends answers of the small model once they are sure to be rejected."""

        def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
            rejected = [one.exceeds(limit) for one in recorder.running(input_ids)]
            return torch.tensor(rejected, dtype=torch.bool, device=input_ids.device)

    return StopWhenRejected()


def _method_of(first: Any, second: Any, score: str | None) -> str | None:
    """The method by which both models' answers are ranked: one that both have."""
    found = {chosen_method(scored, score) for scored in (first, second)}
    return found.pop() if len(found) == 1 else None


def _quantiles(scores: Any, shares: FloatArray, method: str | None) -> list[float]:
    """Thresholds at these shares of the answers that are not blank."""
    uncertainty = -log_confidences(scores, method)
    uncertainty = uncertainty[np.isfinite(uncertainty)]
    if uncertainty.size < FEWEST_UNLABELED:
        raise InvalidInputError(
            f"The thresholds to try are placed by at least {FEWEST_UNLABELED} scores without labels of either model. "
            f"There are {uncertainty.size}: {FEWEST_UNLABELED - uncertainty.size} are missing."
        )
    return [float(value) for value in np.quantile(uncertainty, shares)]


def _walk(
    first: FloatArray,
    first_correct: FloatArray,
    second: FloatArray,
    second_correct: FloatArray,
    grid: Sequence[tuple[float, float]],
    alpha: float,
    delta: float,
) -> tuple[tuple[float, float] | None, tuple[Test, ...]]:
    """`exact.fixed_sequence` for pairs of thresholds."""
    kept: tuple[float, float] | None = None
    tests: list[Test] = []
    for low, high in grid:
        own = first <= low
        passed_on = ~own & (second <= high)
        accepted = int(own.sum() + passed_on.sum())
        wrong = accepted - int(first_correct[own].sum() + second_correct[passed_on].sum())
        tests.append(Test(low, accepted, wrong, binomial_p_value(wrong, accepted, alpha)))
        if tests[-1].p_value > delta:
            break
        kept = (low, high)
    return kept, tuple(tests)


def _statement(tests: Sequence[Test], passed: bool, n: int, alpha: float, delta: float) -> str:
    if not passed:
        first = tests[0]
        if not first.accepted:
            surer = "the scores that place the thresholds are surer than all labeled answers"
            return f"Nothing can be guaranteed: {surer}. Place the thresholds by others."
        few = first.wrong < alpha * first.accepted
        return (
            f"Nothing can be guaranteed: of {first.accepted} answers that the strictest pair of thresholds accepts "
            f"{first.wrong} are wrong (p = {first.p_value:.2g}). Give {'more labels' if few else 'a larger alpha'}."
        )
    last = [test for test in tests if test.p_value <= delta][-1]
    return (
        f"With confidence {percent(1 - delta)}, at most {percent(alpha)} of the answers that the two models give are "
        f"wrong (on {n} labeled questions: {last.accepted} answered, {last.wrong} of them wrong), {SAME}."
    )
