"""Several thresholds from one set of labels: one for each of a few groups, or one for each end of the ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.choices import Guarantee
from semtoken.core.results import Decision
from semtoken.errors import InvalidInputError
from semtoken.guarantees import exact
from semtoken.guarantees.fingerprint import NOTHING_KNOWN, Fingerprint, origin_of_labeled
from semtoken.guarantees.fitting import fit
from semtoken.guarantees.group_names import group_name
from semtoken.guarantees.judge import KINDS, Claim
from semtoken.guarantees.labels import chosen_method, labeled, log_confidences, scores_and_labels
from semtoken.guarantees.threshold import Threshold
from semtoken.support.inputs import instance, listed, shown

MOST_GROUPS = 20
"""Most groups that one fit makes a guarantee for: each of them needs labels of its own."""
Band: TypeAlias = Literal["accept", "look", "discard"]


def places_of_groups(groups: Sequence[Any], n: int) -> dict[str, list[int]]:
    """The positions of the answers of each group, groups in alphabetical order.

    `InvalidInputError` if there is not one group for each answer, one is empty, or there are more than `MOST_GROUPS`.
    """
    names = [group_name(group) for group in listed(groups, "groups")]
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
    Groups are named as JSON spells their values: `true`, `1`, `de`. `InvalidInputError` for two of the same name.
    """

    thresholds: Mapping[str, Threshold] = field(hash=False)
    """The threshold of each group; its `min_log_score` is None where the group's labels support no guarantee."""

    def __post_init__(self) -> None:
        given = instance(self.thresholds, Mapping, "thresholds")  # type: ignore[type-abstract]
        named = {group_name(group): threshold for group, threshold in given.items()}
        if len(named) < len(given):
            raise InvalidInputError(f"Several of the groups {shown(list(given))} have the same name; join them.")
        object.__setattr__(self, "thresholds", named)

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
        # Repeated answers are looked for over all groups, which the fits of single groups cannot see.
        scores, labels = scores_and_labels(scored, correct, None, method)
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
        """For each answer, True if it passes by the threshold of its group; none of a group that was not fitted does.

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
        threshold = self.thresholds.get(group_name(group))
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
    """The score from which an answer is accepted, and the guarantee on how many of the accepted are wrong."""
    discard_from: float | None
    """The uncertainty in nats, minus the log score, from which an answer is discarded; None: none is."""
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
