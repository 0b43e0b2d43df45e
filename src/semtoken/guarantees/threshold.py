"""Thresholds with a guarantee, and what they decide; and the choice of a share of a finished batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from semtoken.choices import Guarantee
from semtoken.core.results import Decision
from semtoken.errors import InvalidInputError
from semtoken.guarantees import exact
from semtoken.guarantees.exact import Test
from semtoken.guarantees.fingerprint import NOTHING_KNOWN, Fingerprint, fingerprint_of, origin_of_labeled
from semtoken.guarantees.fitting import fit
from semtoken.guarantees.judge import KINDS, Claim
from semtoken.guarantees.labels import PRODUCT, chosen_method, labeled, log_confidences
from semtoken.support.html_elements import card, heading, note
from semtoken.support.inputs import real

Level: TypeAlias = Annotated[float, Meta(gt=0, lt=1)]
"""A number in (0, 1), as files are held to it."""


@dataclass(frozen=True, repr=False)
class Threshold:
    """The least score at which an answer is still accepted, and the guarantee that this keeps.

    Fit one with `Threshold.fit`. The guarantee holds for future answers of the same model, prompt and kind of question,
    judged in the same way; `CalibratorMismatchError` if an answer was scored in another way than the labeled ones.
    `InvalidInputError` for a threshold above 0, and for more wrong answers than labeled ones.
    """

    min_log_score: Annotated[float, Meta(le=0)] | None
    """The threshold as a log score, which is what `accepts` and `decide` take as a number: at most 0, up is surer. By
    the method that decides it is the log of the confidence, `ScoredAnswer.log_confidence` for the product over the
    tokens, or -ln(1 + e^U) of another method's U. An answer at the threshold is still accepted, unless `strict`. None:
    no answer may be accepted."""
    guarantee: Guarantee
    """`selective_risk`, `miss_rate` or `joint_risk`; see `fit`."""
    alpha: Level
    """The share that is guaranteed not to be exceeded."""
    delta: Level
    """The largest probability that the labeled answers mislead."""
    statement: str
    """The guarantee in one sentence with its numbers, or why nothing can be guaranteed."""
    n: int
    """The number of labeled answers that it was fitted on."""
    n_wrong: Annotated[int, Meta(ge=0)]
    """The number of wrong answers among them."""
    strict: bool = False
    """True if answers are accepted only above the threshold, and not at it."""
    start: float | None = None
    """Share of answers that the first threshold of the sequence accepts; None for other guarantees than
    `selective_risk`."""
    tests: tuple[Test, ...] = ()
    """The tests of the fixed sequence, in order."""
    fingerprint: Fingerprint = NOTHING_KNOWN
    """The origin of the labeled answers."""

    def __post_init__(self) -> None:
        if self.min_log_score is not None and self.min_log_score > 0:
            raise InvalidInputError(f"A log score is at most 0, and the threshold {self.min_log_score:g} is above it.")
        if self.n_wrong > self.n:
            raise InvalidInputError(f"A threshold cannot be fitted on {self.n_wrong} wrong answers of {self.n}.")

    def __repr__(self) -> str:
        return f"Threshold({self.statement!r})"

    def _repr_html_(self) -> str:
        place = "No answer is accepted."
        if self.min_log_score is not None:
            side, method = "above" if self.strict else "from", self.fingerprint.method or PRODUCT
            place = f"Accepted {side} a log score of {self.min_log_score:.4g} by {method}."
        source = f"From {self.n:,} labeled answers, {self.n_wrong:,} of them wrong."
        return card(heading(self.statement), note(place), note(source))

    @classmethod
    def fit(
        cls,
        scored: Any,
        correct: Any,
        *,
        guarantee: Guarantee = "selective_risk",
        alpha: float = 0.1,
        delta: float = 0.1,
        unlabeled: Any = None,
        start: float | None = None,
        prompts: Sequence[Any] | None = None,
        fingerprint: Fingerprint | None = None,
        score: str | None = None,
    ) -> Threshold:
        """The loosest threshold for which a guarantee can be given.

        Parameters
        ----------
        scored : list of ScoredAnswer, or log scores [n]
            Labeled answers, each of another question.
        correct : [n] of true and false
            Judged as future answers will be.
        guarantee
            `selective_risk`: of the accepted answers at most alpha are wrong. `miss_rate`: at most alpha of the wrong
            answers are accepted. `joint_risk`: of all questions at most alpha get a wrong answer. Each holds with
            confidence 1 - delta over the labeled answers.
        alpha, delta
            The level and one minus the confidence, each in (0, 1).
        unlabeled : list of ScoredAnswer, or log scores, at least 200
            Answers without labels, for `selective_risk`: they place the thresholds that are tried. The answers that you
            want to decide on will do. Without them the scores of the labeled answers place them, and the guarantee also
            assumes that doubtful answers are not more often right than surer ones.
        start : float in (0, 1], optional
            For `selective_risk`: the share of answers that the first threshold accepts, fixed before you see the
            labels. Default: several starts, each with a part of delta, from n, alpha and delta
            (`exact.FixedSequences`). A threshold that accepts fewer answers than any guarantee takes is not tried.
        prompts : [n], optional
            The prompts, by which repeated questions are found.
        fingerprint
            What you know of the scores' origin besides what they tell.
        score
            The method whose scores decide, such as "mean_new_word"; default as in `Calibrator.fit`.

        Returns
        -------
        Threshold
            Its `min_log_score` is None where the labels support no guarantee; its `statement` says why.

        Raises
        ------
        CalibratorMismatchError
            An answer has no score by that method, or the unlabeled ones were scored in another way.
        InvalidInputError
            Labels or scores that cannot be used, repeated answers, levels outside (0, 1), too few unlabeled scores, a
            start outside (0, 1] or for another guarantee than `selective_risk`.

        Examples
        --------
        >>> log_scores = [-0.01 * i for i in range(100)]  # the surest 60 are right, and a third of the others
        >>> threshold = Threshold.fit(log_scores, [i < 60 or i % 3 == 0 for i in range(100)], alpha=0.2)
        >>> threshold.accepts([-0.05, -0.95]).tolist()
        [True, False]
        """
        if not isinstance(guarantee, str) or guarantee not in get_args(Guarantee):
            raise InvalidInputError(
                f"guarantee must be one of {', '.join(get_args(Guarantee))}. Got {guarantee!r} instead."
            )
        claim = Claim(KINDS[guarantee], exact.check_level(alpha, "alpha"), exact.check_level(delta, "delta"))
        method = chosen_method(scored, score)
        answers = labeled(scored, correct, prompts, method)
        origin = origin_of_labeled(scored, method, fingerprint)
        placing = None
        if unlabeled is not None:
            origin.require_same(fingerprint_of(unlabeled))
            placing = -log_confidences(unlabeled, method)
        made = fit(claim, answers, placing=placing, start=start)
        return cls(
            min_log_score=other_sign(made.uncertainty),
            guarantee=guarantee,
            alpha=claim.alpha,
            delta=claim.delta,
            statement=made.statement,
            n=answers.n,
            n_wrong=answers.n - answers.n_correct,
            strict=made.strict,
            start=made.start,
            tests=made.tests,
            fingerprint=origin,
        )

    @property
    def claim(self) -> Claim:
        """The guarantee as new labels test it (`judge`)."""
        return Claim(KINDS[self.guarantee], self.alpha, self.delta)

    def accepts(self, scored: Any) -> npt.NDArray[np.bool_]:
        """For each answer, True if it passes; an empty one never does.

        Parameters
        ----------
        scored
            n scored answers or log scores. They are taken as scored like the labeled ones; `decide` checks it.

        Returns
        -------
        bool array of shape (n,)

        Raises
        ------
        CalibratorMismatchError
            An answer has no score by the threshold's method.
        InvalidInputError
            A number that is no log score.
        """
        scores = log_confidences(scored, self.fingerprint.method)
        if self.min_log_score is None:
            return np.zeros(scores.shape, dtype=bool)
        inside = scores > self.min_log_score if self.strict else scores >= self.min_log_score
        # A blank answer has a log score of minus infinity, and is never accepted, whatever the limit.
        accepted: npt.NDArray[np.bool_] = inside & np.isfinite(scores)
        return accepted

    def decide(self, answer: Any, probability_correct: float | None = None) -> Decision:
        """Decide whether to give an answer.

        Parameters
        ----------
        answer
            One scored answer, or its log score.
        probability_correct
            Its calibrated probability of being right (`Calibrator.predict_proba`), for the decision to hold; it does
            not affect what is decided.

        Returns
        -------
        Decision

        Raises
        ------
        CalibratorMismatchError
            The answer was scored in another way than the labeled ones, or comes from another model.
        InvalidInputError
            A number that is no log score, or more than one answer.
        """
        self.fingerprint.require_same(fingerprint_of(answer))
        self.fingerprint.require_model(answer)
        # A number is its own score, while an answer is read by the method that the threshold is about.
        score = log_confidences(answer if hasattr(answer, "__float__") else [answer], self.fingerprint.method)
        if score.size != 1:
            raise InvalidInputError(f"Give one answer; here are {score.size}.")
        blank = bool(np.isneginf(score[0]))
        accepted = bool(self.accepts(score)[0])
        doubt = "no_threshold" if self.min_log_score is None else "uncertain"
        return Decision(
            action="answer" if accepted else "abstain",
            reason="accepted" if accepted else "empty" if blank else doubt,
            probability_correct=None if blank else probability_correct,
            guarantee=self.statement,
        )


def product_limit(limit: Threshold | float) -> float:
    """The -log_confidence in nats beyond which a running answer can be ended, for thresholds on the product; it only
    rises.

    No other number is known before the answer ends: the mean in the confidence of a sentence may fall again. `limit`
    is a threshold that was fitted with `score="stc"`, or the number itself, from 0 on; else `InvalidInputError`.
    """
    if not isinstance(limit, Threshold):
        return real(limit, "stop_above_product", low=0.0)
    if (method := limit.fingerprint.method) is not None:
        raise InvalidInputError(
            f"This threshold is one of the method {method}, and a generation can only be ended by the product over its "
            f'tokens: no other number is sure to stay above a limit. Fit the threshold with score="{PRODUCT}".'
        )
    uncertainty = other_sign(limit.min_log_score)
    return math.inf if uncertainty is None else uncertainty


def other_sign(limit: float | None) -> float | None:
    """A log score as an uncertainty in nats, or one as a log score; 0.0 rather than -0.0, and None for None."""
    return None if limit is None else 0.0 - limit


def select(labeled_answers: Any, correct: Any, new: Any, alpha: float = 0.1, *, score: str | None = None) -> list[int]:
    """Choose from a finished batch so that the expected share of wrong answers among the chosen is at most alpha.

    Conformal selection (Jin and Candes 2023): valid for one use on a batch without labels; the share is guaranteed on
    average, not for each batch.

    Parameters
    ----------
    labeled_answers, correct
        Labeled answers: scored answers or log scores, and whether each is right.
    new
        The batch: scored answers or log scores.
    alpha
        The level, in (0, 1).
    score
        The method whose scores choose, such as "mean_new_word"; default as in `Calibrator.fit`.

    Returns
    -------
    list of int
        Positions in `new`, ascending. Blank answers are never among them.

    Raises
    ------
    InvalidInputError
        Labels or scores that cannot be used, or an alpha outside (0, 1).
    CalibratorMismatchError
        The labeled answers and the batch were scored in different ways.
    """
    alpha = exact.check_level(alpha, "alpha")
    method = chosen_method(labeled_answers, score)
    answers = labeled(labeled_answers, correct, by=method)
    fingerprint_of(labeled_answers).require_same(fingerprint_of(new))
    uncertainty = -log_confidences(new, method)
    # A blank answer has no place in the order, so it is never chosen.
    finite = np.flatnonzero(np.isfinite(uncertainty))
    _, chosen = exact.batch_selection(answers.uncertainty, answers.correct, uncertainty[finite], alpha)
    return [int(finite[i]) for i in chosen]
