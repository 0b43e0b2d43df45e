"""From a score to a chance of being right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, get_args

import numpy as np

from semtoken.calibration import files, measures
from semtoken.calibration.curves import Curve, VennAbers
from semtoken.calibration.drift import Drift, drift
from semtoken.calibration.fingerprint import (
    NOTHING_KNOWN,
    Fingerprint,
    clusters_hash,
    fingerprint_of,
    require_clusters,
)
from semtoken.calibration.fitting import FITS, fit_venn_abers
from semtoken.calibration.labels import FloatArray, Labelled, labelled, log_scores, require_enough
from semtoken.calibration.threshold import Threshold
from semtoken.choices import CurveName
from semtoken.clusters import TokenClusters
from semtoken.errors import InvalidInput
from semtoken.results import Decision
from semtoken.results.flags import Flag

USING_VENN_ABERS = ("blend", "venn-abers")


@dataclass(frozen=True, repr=False)
class Calibrator:
    """A map from `log_score` to the chance that an answer is right.

    Fit one with `Calibrator.fit`, load one with `Calibrator.load`. A chance is a statement about answers of the kind
    that was labelled, not about others.
    """

    method: CurveName
    """Which map; `blend` is the mean of `beta` and `venn-abers`."""
    curve: Curve | None
    """The map, for `blend` its parametric half; None where Venn-Abers alone is the map."""
    venn_abers: VennAbers
    """Fitted whatever the method: it gives the bounds."""
    n: int
    """Labelled answers, blank ones left out."""
    n_correct: int
    """Right ones among them."""
    scores: tuple[float, ...]
    """Their log scores, ascending: what recent scores are compared with."""
    fingerprint: Fingerprint = NOTHING_KNOWN
    """Where they came from."""
    threshold: Threshold | None = None
    """What is decided with it."""
    created: str = ""
    """When it was fitted, UTC."""

    def __repr__(self) -> str:
        promise = "no threshold" if self.threshold is None else repr(self.threshold)
        return f"Calibrator({self.method}, {self.n} labelled answers, {self.n_correct} right, {promise})"

    def _repr_html_(self) -> str:
        from semtoken.display.artifact_cards import calibrator_card

        return calibrator_card(self)

    @classmethod
    def fit(
        cls,
        scored: Any,
        correct: Any,
        method: CurveName = "blend",
        *,
        prompts: Sequence[Any] | None = None,
        clusters: TokenClusters | None = None,
        fingerprint: Fingerprint | None = None,
    ) -> Calibrator:
        """Fit a calibrator on labelled answers.

        Parameters
        ----------
        scored : list of ScoredResponse, or log scores [n]
            At least 30 answers that are not blank, each of another question.
        correct : [n] of true and false
            Judged as future answers will be; at least 5 of either kind.
        method
            `blend` is never far from the best; the others are there to be compared.
        prompts : [n], optional
            To find repeated answers.
        clusters
            To recognise them at loading.
        fingerprint
            What you know of the scores' origin besides what they tell.

        Raises
        ------
        InvalidInput
            Too few labels, one kind only, lengths that differ, NaN, repeated answers, or answers scored in different
            ways; the message says how many are missing.
        """
        if not isinstance(method, str) or method not in get_args(CurveName):
            raise InvalidInput(f"method must be one of {', '.join(get_args(CurveName))}. Got {method!r} instead.")
        answers = labelled(scored, correct, prompts)
        require_enough(answers)
        origin = fingerprint_of(scored, fingerprint)
        if clusters is not None:
            origin = replace(origin, clusters=clusters_hash(clusters))
        found = fitted(answers, method)
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return replace(found, fingerprint=origin, created=created)

    def chance(self, answer: Any) -> Any:
        """Probability that an answer is right, in [1 / (n + 2), (n + 1) / (n + 2)]; NaN for a blank answer.

        Parameters
        ----------
        answer
            A scored answer, its log score, or a list of either.

        Returns
        -------
        float, or an array [n] for a list

        Raises
        ------
        CalibratorMismatch
            The answer was scored in another way than the labelled ones.
        """
        scores, single = self._scores(answer)
        chances = np.where(np.isneginf(scores), np.nan, self._chances(scores))
        return float(chances[0]) if single else chances

    def chance_bounds(self, answer: Any) -> Any:
        """Around the chance: calibrated answers to "what if this one is wrong" and "what if it is right".

        Not a confidence interval: the width says how much one answer more would move the chance. Venn-Abers gives the
        two ends, widened to hold `chance`.

        Returns
        -------
        (low, high), two floats, or an array [n, 2] for a list
        """
        scores, single = self._scores(answer)
        low, high = self.venn_abers.pair(scores)
        chances = self._chances(scores)
        bounds = np.stack([np.minimum(low, chances), np.maximum(high, chances)], axis=1)
        bounds[np.isneginf(scores)] = np.nan
        return (float(bounds[0, 0]), float(bounds[0, 1])) if single else bounds

    def decide(self, answer: Any) -> Decision:
        """What the threshold says of an answer, with its chance.

        Raises
        ------
        InvalidInput
            This calibrator holds no threshold.
        """
        if self.threshold is None:
            raise InvalidInput("This calibrator holds no threshold. Fit one with `Threshold.fit`.")
        return self.threshold.decide(answer, self)

    def flags(self, answer: Any, known: Fingerprint | None = None) -> tuple[Flag, ...]:
        """Why its chances may not hold for an answer, as far as one can tell.

        Raises
        ------
        CalibratorMismatch
            The answer was scored in another way than the labelled ones.
        """
        other = fingerprint_of(answer, known)
        self.fingerprint.require_same(other)
        return self.fingerprint.flags(other)

    def report(self, scored: Any, correct: Any, *, seed: int = 0) -> measures.Report:
        """How good the chances are on labelled answers, against always giving the base rate.

        On the answers that it was fitted on, chances come from ten-fold cross-validation.
        """
        answers = labelled(scored, correct)
        self.fingerprint.require_same(fingerprint_of(scored))
        if tuple(np.sort(answers.log_score).tolist()) == self.scores:
            chances, base = cross_validated(answers, self.method, seed=seed)
            return measures.report(chances, base, answers.correct, cross_validated=True, seed=seed)
        base = np.full(answers.n, self.n_correct / self.n)
        return measures.report(
            self._chances(answers.log_score), base, answers.correct, cross_validated=False, seed=seed
        )

    def compare(self, scores: Any, *, seed: int = 0) -> Drift:
        """How far recent scores are from those that it was fitted on: a distance with an interval, no alarm."""
        self.fingerprint.require_same(fingerprint_of(scores))
        recent = log_scores(scores)
        return drift(np.array(self.scores), recent[np.isfinite(recent)], seed=seed)

    def save(self, directory: str | Path, threshold: Threshold | None = None) -> Path:
        """Write `calibrator.json` into a directory, with the threshold if there is one.

        Returns
        -------
        Path
            The file.
        """
        return files.save(replace(self, threshold=threshold or self.threshold), Path(directory))

    @classmethod
    def load(cls, directory: str | Path, clusters: TokenClusters | None = None) -> Calibrator:
        """Read a calibrator; needs numpy alone.

        Parameters
        ----------
        directory
            Where `save` wrote it, or the file itself.
        clusters
            The clusters in use.

        Raises
        ------
        ArtifactError
            The file is missing, was changed, or holds something that is no calibrator.
        CalibratorMismatch
            It belongs to other clusters.
        """
        found = files.load(Path(directory), cls)
        if clusters is not None:
            require_clusters(found.fingerprint, clusters)
        return found

    def _scores(self, answer: Any) -> tuple[FloatArray, bool]:
        single = hasattr(answer, "log_score") or np.ndim(answer) == 0
        self.fingerprint.require_same(fingerprint_of(answer))
        return log_scores([answer] if single else answer), single

    def _chances(self, scores: FloatArray) -> FloatArray:
        maps = [] if self.curve is None else [self.curve]
        if self.method in USING_VENN_ABERS:
            maps.append(self.venn_abers)
        return _mean_chance(maps, self.n, scores)


def fitted(answers: Labelled, method: CurveName) -> Calibrator:
    """A calibrator of checked answers, without its origin."""
    return Calibrator(
        method=method,
        curve=_fitted_curve(answers, method),
        venn_abers=fit_venn_abers(answers.log_score, answers.correct),
        n=answers.n,
        n_correct=answers.n_correct,
        scores=tuple(np.sort(answers.log_score).tolist()),
    )


def cross_validated(
    answers: Labelled, method: CurveName, *, folds: int = 10, seed: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Chances by calibrators that did not see the answers, and the base rates of the same folds, [n] each."""
    order = np.random.default_rng(seed).permutation(answers.n)
    chances, base = np.empty(answers.n), np.empty(answers.n)
    for held in np.array_split(order, folds):
        rest = np.setdiff1d(order, held)
        part = Labelled(answers.log_score[rest], answers.correct[rest], 0)
        curve = _fitted_curve(part, method)
        maps = [] if curve is None else [curve]
        if method in USING_VENN_ABERS:
            maps.append(fit_venn_abers(part.log_score, part.correct))
        chances[held] = _mean_chance(maps, part.n, answers.log_score[held])
        base[held] = part.n_correct / part.n
    return chances, base


def _fitted_curve(answers: Labelled, method: CurveName) -> Curve | None:
    """The parametric half of a blend, or the method's own map; None where Venn-Abers alone is the map."""
    if method == "venn-abers":
        return None
    return FITS["beta" if method == "blend" else method](answers.log_score, answers.correct)


def _mean_chance(maps: Sequence[Curve], n: int, scores: FloatArray) -> FloatArray:
    """The mean of the maps, within what n labels can show."""
    safe = np.where(np.isneginf(scores), 0.0, scores)
    found = np.mean([one(safe) for one in maps], axis=0)
    chances: FloatArray = np.clip(found, 1 / (n + 2), (n + 1) / (n + 2))
    return chances
