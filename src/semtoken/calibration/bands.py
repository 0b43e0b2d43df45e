"""More than one threshold from one set of labels: one for each of a few groups, or one for each end of the ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.calibration import promises
from semtoken.calibration.fingerprint import NOTHING_KNOWN, Fingerprint, fingerprint_of
from semtoken.calibration.labels import chosen_method, labelled, log_scores
from semtoken.calibration.promises import percent
from semtoken.calibration.threshold import SAME, Threshold
from semtoken.choices import Promise
from semtoken.errors import InvalidInput
from semtoken.results import Decision
from semtoken.support.arrays import FloatArray
from semtoken.support.inputs import listed

MOST_GROUPS = 20
"""Most groups that one fit makes a promise for: each of them needs labels of its own."""
Band: TypeAlias = Literal["accept", "look", "discard"]


def places_of_groups(groups: Sequence[Any], n: int) -> dict[str, list[int]]:
    """The positions of the answers of each group, groups in alphabetical order.

    Raises
    ------
    InvalidInput
        There is not one group for each answer, one is empty, or there are more than `MOST_GROUPS`.
    """
    names = [str(group).strip() if group is not None else "" for group in listed(groups, "groups")]
    if len(names) != n:
        raise InvalidInput(f"There are {n} answers and {len(names)} groups; every answer needs one.")
    if "" in names:
        raise InvalidInput(f"The answer at position {names.index('')} has no group.")
    found: dict[str, list[int]] = {name: [] for name in sorted(set(names))}
    if len(found) > MOST_GROUPS:
        raise InvalidInput(
            f"There are {len(found)} groups, and at most {MOST_GROUPS} can have promises. Join those that are alike."
        )
    for place, name in enumerate(names):
        found[name].append(place)
    return found


@dataclass(frozen=True)
class GroupThresholds:
    """A threshold with a promise for each of a few groups of answers, such as languages or kinds of document.

    A promise over all answers can be broken in a small group and kept on the whole. Here it holds in every group.
    """

    thresholds: Mapping[str, Threshold]
    """The threshold of each group; its `uncertainty` is None where the group's labels support no promise."""

    @classmethod
    def fit(
        cls,
        scored: Any,
        correct: Any,
        *,
        groups: Sequence[Any],
        promise: Promise = "selective",
        alpha: float = 0.1,
        delta: float = 0.1,
        start: float | None = None,
        by: str | None = None,
    ) -> GroupThresholds:
        """Fit a threshold to each group.

        Parameters
        ----------
        scored, correct
            Labelled answers, as for `Threshold.fit`.
        groups : [n]
            The group of each answer, known before it is judged.
        promise, alpha, start, by
            As for `Threshold.fit`, in each group.
        delta
            How likely the labels may mislead in any of the groups: each group's test has its share of it, delta divided
            by the number of groups.

        Raises
        ------
        InvalidInput
            As `Threshold.fit`, or there is not one group for each answer, or there are more than 20.
        """
        method = chosen_method(scored, by)
        scores, labels = log_scores(scored, method), np.asarray(correct)
        labelled(scored, correct, by=method)
        origin = replace(fingerprint_of(scored), method=method)
        places = places_of_groups(groups, scores.size)
        share = promises.check_level(delta, "delta") / len(places)
        settings: dict[str, Any] = {"promise": promise, "alpha": alpha, "delta": share, "start": start}
        fitted = {name: Threshold.fit(scores[own], labels[own], **settings) for name, own in places.items()}
        return cls({name: replace(one, fingerprint=origin) for name, one in fitted.items()})

    @property
    def statement(self) -> str:
        """The promise of each group, a line for each."""
        return "\n".join(f"{name}: {one.statement}" for name, one in self.thresholds.items())

    def accepts(self, scored: Any, groups: Sequence[Any]) -> npt.NDArray[np.bool_]:
        """Which answers pass by the threshold of their group, bool [n]; none of a group that was not fitted does."""
        answers = listed(scored, "scored")
        found = np.zeros(len(answers), dtype=bool)
        for name, own in places_of_groups(groups, len(answers)).items():
            if name in self.thresholds:
                found[own] = self.thresholds[name].accepts([answers[place] for place in own])
        return found

    def decide(self, answer: Any, group: Any, chance: float | None = None) -> Decision:
        """Decide whether to give an answer of a group; see `Threshold.decide`."""
        one = self.thresholds.get(str(group).strip())
        if one is None:
            told = f"Nothing is promised for the group {str(group)!r:.60}: none of the labelled answers belongs to it."
            return Decision("abstain", "no_threshold", chance, told)
        return one.decide(answer, chance)


@dataclass(frozen=True)
class Bands:
    """Three bands of answers: those to accept, those to look at, and those to discard, with a promise for each end."""

    accept: Threshold
    """Up to which uncertainty an answer is accepted, and the promise on how many of the accepted are wrong."""
    discard_from: float | None
    """The uncertainty in nats from which an answer is discarded; None: none is."""
    discard_statement: str
    """The promise on how many of the discarded are right, or why nothing can be promised."""
    fingerprint: Fingerprint = field(default=NOTHING_KNOWN)
    """Where the labelled answers came from."""

    @classmethod
    def fit(
        cls,
        scored: Any,
        correct: Any,
        *,
        alpha: float = 0.1,
        discard_alpha: float = 0.1,
        delta: float = 0.1,
        by: str | None = None,
    ) -> Bands:
        """Fit both ends, each by a fixed sequence of its own (`Threshold.fit`).

        Both promises assume that doubtful answers are not more often right than surer ones.

        Parameters
        ----------
        scored, correct, by
            Labelled answers, as for `Threshold.fit`.
        alpha, discard_alpha
            The share of wrong answers among the accepted, and of right ones among the discarded; their sum is below 1.
        delta
            How likely the labels may mislead, for each end.

        Raises
        ------
        InvalidInput
            As `Threshold.fit`, or the two shares together are 1 or more.
        """
        accept = Threshold.fit(scored, correct, alpha=alpha, delta=delta, by=by)
        limit = promises.check_level(discard_alpha, "discard_alpha")
        if limit + accept.alpha >= 1:
            raise InvalidInput(
                f"alpha and discard_alpha must be below 1 together, got {accept.alpha:g} and {limit:g}: an answer "
                "could else be both accepted and discarded."
            )
        answers = labelled(scored, correct, by=accept.fingerprint.method)
        kept, told = _discarded(answers.uncertainty, answers.correct, limit, float(accept.delta or delta))
        return cls(accept, None if kept is None else max(0.0, -kept), told, accept.fingerprint)

    def band(self, scored: Any) -> list[Band]:
        """The band of each answer, [n]. A blank answer is discarded, and so is one that both ends would take."""
        accepted, uncertainty = self.accept.accepts(scored), -log_scores(scored, self.fingerprint.method)
        limit = np.inf if self.discard_from is None else self.discard_from
        ends: list[tuple[bool, bool]] = list(zip(accepted.tolist(), (uncertainty >= limit).tolist(), strict=True))
        return ["discard" if discarded else "accept" if passed else "look" for passed, discarded in ends]


def _discarded(uncertainty: FloatArray, correct: FloatArray, alpha: float, delta: float) -> tuple[float | None, str]:
    """The fixed sequence from the most doubtful answers on, where right answers count against the promise.

    Returns the threshold in units of minus the uncertainty, and the promise.
    """
    n, least = correct.size, promises.labels_needed(0, alpha, delta)
    claim = f"at most {percent(alpha)} of the discarded answers are right"
    if n < least:
        return None, f"Nothing can be promised: {claim} needs at least {least} labelled answers. There are {n}."
    grid = promises.own_grid(-uncertainty, promises.shares_of_coverage(promises.starting_share(n, alpha, delta)))
    kept, tests = promises.fixed_sequence(-uncertainty, 1 - correct, grid, alpha, delta)
    if kept is None:
        first = tests[0]
        return None, (
            f"Nothing can be promised: of the {first.accepted} most doubtful of {n} labelled answers {first.wrong} are "
            f"right, too many to show that {claim} (p = {first.p_value:.2g})."
        )
    last = [test for test in tests if test.p_value <= delta][-1]
    counts = f"{last.accepted} discarded, {last.wrong} of them right"
    return kept, f"With confidence {percent(1 - delta)}, {claim} (on {n} labelled answers: {counts}), {SAME}."
