"""Thresholds with a guarantee, and what they decide.

More than one threshold from one set of labels: one for each of a few groups, or one for each end of the ranking.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeAlias, get_args

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
from semtoken.support.inputs import listed, real
from semtoken.support.text import card, heading, note

Level: TypeAlias = Annotated[float, Meta(gt=0, lt=1)]
"""A number in (0, 1), as files are held to it."""


@dataclass(frozen=True, repr=False)
class Threshold:
    """The largest uncertainty at which an answer is still accepted, and the guarantee that this keeps.

    Fit one with `Threshold.fit`. The guarantee holds for future answers of the same model, prompt and kind of question,
    judged in the same way; `CalibratorMismatchError` if an answer was scored in another way than the labeled ones.
    """

    uncertainty: Annotated[float, Meta(ge=0)] | None
    """The threshold in nats: -log_confidence, minus the log of the confidence, or ln(1 + e^U) of another
    method's U. An answer at the threshold is still accepted, unless `strict`. None: no answer may be accepted."""
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
    """Whether answers are accepted only below the threshold, and not at it."""
    start: float | None = None
    """Share of answers that the first threshold of the sequence accepts; None for other guarantees than
    `selective_risk`."""
    tests: tuple[Test, ...] = ()
    """The tests of the fixed sequence, in order."""
    fingerprint: Fingerprint = NOTHING_KNOWN
    """The origin of the labeled answers."""

    def __post_init__(self) -> None:
        if self.n_wrong > self.n:
            raise InvalidInputError(f"A threshold cannot be fitted on {self.n_wrong} wrong answers of {self.n}.")

    def __repr__(self) -> str:
        return f"Threshold({self.statement!r})"

    def _repr_html_(self) -> str:
        place = "No answer is accepted."
        if self.uncertainty is not None:
            side, method = "below" if self.strict else "up to", self.fingerprint.method or PRODUCT
            place = f"Accepted {side} {self.uncertainty:.4g} nats by {method}."
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
            Its `uncertainty` is None where the labels support no guarantee; its `statement` says why.

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
            guarantee=guarantee,
            alpha=claim.alpha,
            delta=claim.delta,
            n=answers.n,
            n_wrong=answers.n - answers.n_correct,
            fingerprint=origin,
            **vars(made),
        )

    @property
    def claim(self) -> Claim:
        """The guarantee as new labels test it (`judge`)."""
        return Claim(KINDS[self.guarantee], self.alpha, self.delta)

    def accepts(self, scored: Any) -> npt.NDArray[np.bool_]:
        """Whether each answer passes; an empty one never does.

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
        uncertainty = -log_confidences(scored, self.fingerprint.method)
        if self.uncertainty is None:
            return np.zeros(uncertainty.shape, dtype=bool)
        inside = uncertainty < self.uncertainty if self.strict else uncertainty <= self.uncertainty
        # A blank answer has an infinite uncertainty, and is never accepted, whatever the limit.
        accepted: npt.NDArray[np.bool_] = inside & np.isfinite(uncertainty)
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
        doubt = "no_threshold" if self.uncertainty is None else "uncertain"
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
    return math.inf if limit.uncertainty is None else limit.uncertainty


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


MOST_GROUPS = 20
"""Most groups that one fit makes a guarantee for: each of them needs labels of its own."""
Band: TypeAlias = Literal["accept", "look", "discard"]


def places_of_groups(groups: Sequence[Any], n: int) -> dict[str, list[int]]:
    """The positions of the answers of each group, groups in alphabetical order.

    `InvalidInputError` if there is not one group for each answer, one is empty, or there are more than `MOST_GROUPS`.
    """
    names = [str(group).strip() if group is not None else "" for group in listed(groups, "groups")]
    if len(names) != n:
        raise InvalidInputError(f"There are {n} answers and {len(names)} groups; every answer needs one.")
    if "" in names:
        raise InvalidInputError(f"The answer at position {names.index('')} has no group.")
    places: dict[str, list[int]] = {name: [] for name in sorted(set(names))}
    if len(places) > MOST_GROUPS:
        raise InvalidInputError(
            f"There are {len(places)} groups, and at most {MOST_GROUPS} can have guarantees. Join those that are alike."
        )
    for place, name in enumerate(names):
        places[name].append(place)
    return places


@dataclass(frozen=True)
class GroupThresholds:
    """A threshold with a guarantee for each of a few groups of answers, such as languages or kinds of document.

    A guarantee over all answers can be broken in a small group and kept on the whole. Here it holds in every group.
    """

    thresholds: Mapping[str, Threshold]
    """The threshold of each group; its `uncertainty` is None where the group's labels support no guarantee."""

    @classmethod
    def fit(
        cls,
        scored: Any,
        correct: Any,
        *,
        groups: Sequence[Any],
        guarantee: Guarantee = "selective_risk",
        alpha: float = 0.1,
        delta: float = 0.1,
        start: float | None = None,
        score: str | None = None,
    ) -> GroupThresholds:
        """Fit a threshold to each group.

        Parameters
        ----------
        scored, correct
            Labeled answers, as for `Threshold.fit`.
        groups : [n]
            The group of each answer, known before it is judged; at most 20 different ones.
        guarantee, alpha, start, score
            As for `Threshold.fit`, in each group.
        delta
            How likely the labels may mislead in any of the groups: each group's test has its share of it, delta divided
            by the number of groups.

        Returns
        -------
        GroupThresholds

        Raises
        ------
        CalibratorMismatchError, InvalidInputError
            As in `Threshold.fit`; also if an answer has no group, or there are too many groups.
        """
        method = chosen_method(scored, score)
        scores, labels = log_confidences(scored, method), np.asarray(correct)
        # Repeated answers are looked for over all groups, which the fits of single groups cannot see.
        labeled(scored, correct, by=method)
        origin = origin_of_labeled(scored, method)
        places = places_of_groups(groups, scores.size)
        share = exact.check_level(delta, "delta") / len(places)
        settings: dict[str, Any] = {"guarantee": guarantee, "alpha": alpha, "delta": share, "start": start}
        fitted = {name: Threshold.fit(scores[own], labels[own], **settings) for name, own in places.items()}
        return cls({name: replace(threshold, fingerprint=origin) for name, threshold in fitted.items()})

    @property
    def statement(self) -> str:
        """The guarantee of each group, a line for each."""
        return "\n".join(f"{name}: {threshold.statement}" for name, threshold in self.thresholds.items())

    def accepts(self, scored: Any, groups: Sequence[Any]) -> npt.NDArray[np.bool_]:
        """Whether each answer passes by the threshold of its group; none of a group that was not fitted does.

        Parameters
        ----------
        scored
            n scored answers or log scores.
        groups : [n]
            The group of each.

        Returns
        -------
        bool array of shape (n,)

        Raises
        ------
        CalibratorMismatchError, InvalidInputError
            As in `Threshold.accepts`; also if an answer has no group, or there are more than 20 groups.
        """
        answers = listed(scored, "scored")
        accepted = np.zeros(len(answers), dtype=bool)
        for name, own in places_of_groups(groups, len(answers)).items():
            if name in self.thresholds:
                accepted[own] = self.thresholds[name].accepts([answers[place] for place in own])
        return accepted

    def decide(self, answer: Any, group: Any, probability_correct: float | None = None) -> Decision:
        """Decide whether to give an answer of a group, as `Threshold.decide` does.

        It abstains on an answer of a group that was not fitted.
        """
        threshold = self.thresholds.get(str(group).strip())
        if threshold is None:
            note = f"Nothing is guaranteed for the group {str(group)!r:.60}: none of the labeled answers belongs to it."
            return Decision("abstain", "no_threshold", probability_correct, note)
        return threshold.decide(answer, probability_correct)


@dataclass(frozen=True)
class Bands:
    """Three bands of answers: those to accept, those to look at, and those to discard, with a guarantee for each
    end.
    """

    accept: Threshold
    """Up to which uncertainty an answer is accepted, and the guarantee on how many of the accepted are wrong."""
    discard_from: float | None
    """The uncertainty in nats from which an answer is discarded; None: none is."""
    discard_statement: str
    """The guarantee on how many of the discarded are right, or why nothing can be guaranteed."""
    fingerprint: Fingerprint = field(default=NOTHING_KNOWN)
    """The origin of the labeled answers."""

    @classmethod
    def fit(
        cls,
        scored: Any,
        correct: Any,
        *,
        alpha: float = 0.1,
        discard_alpha: float = 0.1,
        delta: float = 0.1,
        score: str | None = None,
    ) -> Bands:
        """Fit both ends, each by a fixed sequence of its own (`Threshold.fit`).

        Both guarantees assume that doubtful answers are not more often right than surer ones.

        Parameters
        ----------
        scored, correct, score
            Labeled answers, as for `Threshold.fit`.
        alpha, discard_alpha
            The share of wrong answers among the accepted, and of right ones among the discarded; their sum is below 1.
        delta
            How likely the labels may mislead, for each end.

        Returns
        -------
        Bands

        Raises
        ------
        CalibratorMismatchError, InvalidInputError
            As in `Threshold.fit`; also if the two shares do not leave room for both ends.
        """
        accept = Threshold.fit(scored, correct, alpha=alpha, delta=delta, score=score)
        limit = exact.check_level(discard_alpha, "discard_alpha")
        if limit + accept.alpha >= 1:
            raise InvalidInputError(
                f"alpha and discard_alpha must be below 1 together, got {accept.alpha:g} and {limit:g}: an answer "
                "could else be both accepted and discarded."
            )
        answers = labeled(scored, correct, by=accept.fingerprint.method)
        made = fit(Claim(KINDS["discarded"], limit, accept.delta), answers)
        # The sequence went from the doubtful end, with the signs of all scores turned.
        kept = None if made.uncertainty is None else max(0.0, -made.uncertainty)
        return cls(accept, kept, made.statement, accept.fingerprint)

    def band(self, scored: Any) -> list[Band]:
        """The band of each of n scored answers or log scores: `accept`, `look` or `discard`.

        An empty answer is discarded, and so is one that both ends would take. The errors are those of
        `Threshold.accepts`.
        """
        accepted, uncertainty = self.accept.accepts(scored), -log_confidences(scored, self.fingerprint.method)
        limit = np.inf if self.discard_from is None else self.discard_from
        ends: list[tuple[bool, bool]] = list(zip(accepted.tolist(), (uncertainty >= limit).tolist(), strict=True))
        return ["discard" if discarded else "accept" if passed else "look" for passed, discarded in ends]
