"""From a score to a probability of being right, and the file of a calibrator, `calibrator.json`.

The file holds the fields of `Calibrator` as plain values, no code and nothing pickled; msgspec reads and writes them,
and the types of the fields say what it may hold. It must be, byte for byte, what `save` writes: it holds the SHA-256 of
its other contents, so that any byte that was changed is found.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from semtoken.choices import CurveName, Guarantee
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.core.results import Decision
from semtoken.core.scored_token import Flag
from semtoken.errors import ArtifactError, InvalidInputError
from semtoken.guarantees import measures
from semtoken.guarantees.cross_validation import cross_validated
from semtoken.guarantees.curves import FITS, Curve, VennAbers, fit_venn_abers, maps_of, mean_probability
from semtoken.guarantees.drift import Drift, drift
from semtoken.guarantees.fingerprint import (
    NOTHING_KNOWN,
    Fingerprint,
    clusters_hash,
    fingerprint_of,
    origin_of_labeled,
    require_clusters,
)
from semtoken.guarantees.labels import (
    LabeledScores,
    chosen_method,
    identities,
    labeled,
    list_of,
    log_confidences,
    one_for_each,
    require_enough,
)
from semtoken.guarantees.threshold import Threshold, other_sign
from semtoken.methods.metrics.resampling import numbered
from semtoken.support.arrays import FloatArray
from semtoken.support.files.safe_files import MOST_FITTED, read_file, replacing_file
from semtoken.support.files.strict_json import dump_json, is_sealed, parse_json, seal
from semtoken.support.html_elements import card, heading, note
from semtoken.support.inputs import instance, listed, place, shown, whole
from semtoken.version import __version__

NAME = "calibrator.json"
FORMAT, FORMAT_VERSION = "semtoken.calibrator", 1
CHANGED = "It was changed after it was written: its checksum does not match. Copy the file again."
INFINITY = "inf"
"""Stands in a file for the threshold that accepts everything, since JSON has no infinity."""
CHANCE_REPEATS = 0.1
"""Up to this share of answers may be known ones without being taken for those of the fit: short answers recur."""
ALIKE = 0.02
"""Bare scores this close, in order, are those of the fit, scored again."""


@dataclass(frozen=True, repr=False)
class Calibrator:
    """A map from the score of an answer to the probability that it is right.

    Fit one with `Calibrator.fit`, load one with `Calibrator.load`. A probability is a statement about answers of the
    kind that was labeled, not about others: `CalibratorMismatchError` if an answer was scored in another way than
    those. `InvalidInputError` if the fields do not belong together.
    """

    method: CurveName
    """The kind of map; `blend` is the mean of `beta` and `venn-abers`."""
    curve: Curve | None
    """The map itself, for `blend` its parametric half; None where only Venn-Abers is the map."""
    venn_abers: VennAbers
    """The Venn-Abers map, which is fitted whatever the method, since it gives the bounds."""
    n: int
    """The number of labeled answers that it was fitted on, blank ones left out."""
    n_correct: int
    """The number of right answers among them."""
    scores: tuple[float, ...]
    """The log scores of the labeled answers, ascending, with which recent scores are compared."""
    fingerprint: Fingerprint = NOTHING_KNOWN
    """The origin of the labeled answers."""
    threshold: Threshold | None = None
    """The threshold that decides which answers are accepted; None: nothing is decided."""
    created: str = ""
    """When it was fitted: date and time in UTC."""
    labeled: tuple[str, ...] = ()
    """Hashes by which the labeled answers are known again, ascending; empty where bare scores were given."""

    def __post_init__(self) -> None:
        rising = bool((np.diff(self.scores) >= 0).all())
        if not (0 < self.n_correct < self.n == len(self.scores) and rising and self.scores[-1] <= 0):
            raise InvalidInputError("A calibrator's counts and scores are outside their ranges.")
        if (self.curve is None) != (self.method == "venn-abers"):
            raise InvalidInputError(f"The method {self.method!r} does not go with such a curve.")

    def __repr__(self) -> str:
        guarantee = "no threshold" if self.threshold is None else repr(self.threshold)
        return f"Calibrator({self.method}, {self.n} labeled answers, {self.n_correct} right, {guarantee})"

    def _repr_html_(self) -> str:
        guarantee = "It holds no threshold yet." if self.threshold is None else self.threshold.statement
        return card(
            heading("From a score to the probability that an answer is right"),
            note(f"Fitted on {self.n:,} labeled answers, {self.n_correct:,} of them right."),
            note(guarantee),
            note(f"Method: {self.method}."),
        )

    @property
    def guarantees(self) -> bool:
        """True if there is a threshold that accepts any answers: without one nothing is guaranteed."""
        return self.threshold is not None and self.threshold.min_log_score is not None

    @classmethod
    def fit(
        cls,
        scored: Any,
        correct: Any,
        curve: CurveName = "blend",
        *,
        prompts: Sequence[Any] | None = None,
        clusters: TokenClusters | None = None,
        fingerprint: Fingerprint | None = None,
        score: str | None = None,
        alpha: float | None = None,
        delta: float = 0.1,
        guarantee: Guarantee = "selective_risk",
        unlabeled: Any = None,
    ) -> Calibrator:
        """Fit a calibrator on labeled answers.

        Parameters
        ----------
        scored : list of ScoredAnswer, or log scores [n]
            At least 30 answers that are not blank, each of another question.
        correct : [n] of true and false
            Judged as future answers will be; at least 5 of either kind.
        curve
            How a score becomes a probability. `blend` is never far from the best; the others are there to be compared.
        prompts : [n], optional
            The prompts, by which repeated answers are found.
        clusters
            The clusters, which are checked when the calibrator is loaded.
        fingerprint
            What you know of the scores' origin besides what they tell.
        score
            The method whose scores are calibrated, such as "mean_new_word"; default: the confidence, or the product
            over the tokens for numbers and for answers without one.
        alpha, delta, guarantee, unlabeled
            With an alpha, such as 0.1, the calibrator also holds a threshold with a guarantee: see `Threshold.fit`.

        Returns
        -------
        Calibrator
            A higher score never gets a lower probability.

        Raises
        ------
        CalibratorMismatchError
            An answer has no score by that method.
        InvalidInputError
            Too few labels, one kind only, lengths that differ, NaN, repeated answers, or answers scored in different
            ways; the message says how many are missing.

        Examples
        --------
        >>> log_scores = [-0.01 * i for i in range(100)]  # natural logs, at most 0
        >>> calibrator = Calibrator.fit(log_scores, [i < 60 or i % 3 == 0 for i in range(100)])
        >>> calibrator.n, calibrator.n_correct
        (100, 74)
        >>> bool(calibrator.predict_proba(-0.1) > calibrator.predict_proba(-0.9))
        True
        """
        if not isinstance(curve, str) or curve not in get_args(CurveName):
            raise InvalidInputError(f"curve must be one of {', '.join(get_args(CurveName))}. Got {curve!r} instead.")
        method_of_scores = chosen_method(scored, score)
        prompts = None if prompts is None else listed(prompts, "prompts")
        answers = labeled(scored, correct, prompts, method_of_scores)
        require_enough(answers)
        origin = origin_of_labeled(scored, method_of_scores, fingerprint)
        if clusters is not None:
            origin = replace(origin, clusters=clusters_hash(clusters))
        calibrator = fitted(answers, curve)
        created = datetime.now(UTC).isoformat(timespec="seconds")
        threshold = None
        if alpha is not None:
            levels: dict[str, Any] = {"guarantee": guarantee, "alpha": alpha, "delta": delta, "unlabeled": unlabeled}
            threshold = Threshold.fit(scored, correct, prompts=prompts, fingerprint=origin, score=score, **levels)
        return replace(
            calibrator,
            fingerprint=origin,
            threshold=threshold,
            created=created,
            labeled=tuple(sorted(identities(scored, prompts))),
        )

    @property
    def guarantee(self) -> str:
        """The guarantee on the answers that it accepts, in one sentence; empty without a threshold."""
        return "" if self.threshold is None else self.threshold.statement

    def predict_proba(self, answer: Any) -> Any:
        """The calibrated probability that an answer is right.

        Parameters
        ----------
        answer
            A scored answer or its log score (a natural logarithm, at most 0), or m of either.

        Returns
        -------
        float, or float array of shape (m,) for several answers
            In [1 / (n + 2), (n + 1) / (n + 2)] for n labeled answers (Laplace's rule of succession); NaN for an empty
            answer.

        Raises
        ------
        CalibratorMismatchError
            The answer was scored in another way than the labeled ones, or comes from another model.
        InvalidInputError
            A number that is no log score.
        """
        scores, single = self._scores(answer)
        probabilities = np.where(np.isneginf(scores), np.nan, self._probabilities(scores))
        return float(probabilities[0]) if single else probabilities

    def predict_proba_interval(self, answer: Any) -> Any:
        """Bounds of the probability: the calibrated probabilities if this answer is counted as wrong, and as right.

        It is not a confidence interval: the width shows how much one more labeled answer would move the probability.

        Parameters
        ----------
        answer
            As for `predict_proba`, which also lists the errors.

        Returns
        -------
        (low, high), or float array of shape (m, 2) for several answers
            The two probabilities of Venn-Abers (Vovk and Petej 2014), in [0, 1], widened to hold that of
            `predict_proba`; NaN for an empty answer.
        """
        scores, single = self._scores(answer)
        low, high = self.venn_abers.pair(scores)
        probabilities = self._probabilities(scores)
        bounds = np.stack([np.minimum(low, probabilities), np.maximum(high, probabilities)], axis=1)
        bounds[np.isneginf(scores)] = np.nan
        return (float(bounds[0, 0]), float(bounds[0, 1])) if single else bounds

    def decide(self, answer: Any) -> Decision:
        """Decide by the threshold of this calibrator whether to give an answer.

        Parameters
        ----------
        answer
            One scored answer, or its log score.

        Returns
        -------
        Decision
            To answer or to abstain, with the reason, the probability of being right and the guarantee.

        Raises
        ------
        CalibratorMismatchError
            As in `predict_proba`.
        InvalidInputError
            This calibrator holds no threshold, or this is not one answer.
        """
        if self.threshold is None:
            raise InvalidInputError("This calibrator holds no threshold. Fit one with `Threshold.fit`.")
        probability_correct = self.predict_proba(answer)
        if np.ndim(probability_correct):
            raise InvalidInputError(f"'answer' must be one answer or one score, got {shown(answer)}.")
        return self.threshold.decide(answer, float(probability_correct))

    def flags(self, answer: Any, known: Fingerprint | None = None) -> tuple[Flag, ...]:
        """Flags for what may keep the probabilities from holding for an answer; empty if nothing is known.

        `known` is what you know of the answer's origin besides what it tells. Raises `CalibratorMismatchError` if the
        answer was scored in another way than the labeled ones, or comes from another model.
        """
        other = fingerprint_of(answer, known)
        self.fingerprint.require_same(other)
        self.fingerprint.require_model(answer)
        return self.fingerprint.flags(other)

    def report(
        self, scored: Any, correct: Any, *, prompts: Sequence[Any] | None = None, seed: int = 0
    ) -> measures.Report:
        """Measure the probabilities on labeled answers, against always giving the base rate.

        On the answers that it was fitted on, probabilities come from ten-fold cross-validation. It knows them by
        question and text (by text and tokens without questions), not by their scores, which change with precision and
        batch.

        Parameters
        ----------
        scored, correct
            Labeled answers, as for `fit`.
        prompts : [n], optional
            The question of each answer. Where several answers are to one, intervals come from drawing questions.
            Answers of a file hold their question.
        seed
            The seed of the folds and of the bootstrap.

        Returns
        -------
        Report
            Calibration errors and scores with their intervals, beside those of the base rate.

        Raises
        ------
        CalibratorMismatchError
            The answers were scored in another way than those of the fit.
        InvalidInputError
            All answers are empty or to one question, or some are labeled ones of this calibrator and they are too few
            to cross-validate.
        """
        seed = whole(seed, "seed", low=0)
        method = self.fingerprint.method
        if prompts is None:
            answers = labeled(scored, correct, by=method)
        else:  # answers to one question may be the same
            scores = log_confidences(scored, method)
            answers, prompts = labeled(scores, correct), one_for_each(prompts, scores.size)
        if not answers.n:
            raise InvalidInputError("All answers are empty, so there is no probability to compare with a label.")
        self.fingerprint.require_same(fingerprint_of(scored))
        groups = _question_numbers(scored, prompts, method)
        if seen := self._fitted_on(answers.log_confidence, identities(scored, prompts)):
            _require_folds(answers)
            probabilities, base = cross_validated(answers, self.method, groups=groups, seed=seed)
        else:
            probabilities, base = (
                self._probabilities(answers.log_confidence),
                np.full(answers.n, self.n_correct / self.n),
            )
        return measures.report(probabilities, base, answers.correct, cross_validated=seen, groups=groups, seed=seed)

    def was_fitted_on(self, scored: Any) -> bool:
        """Return True if the calibrator was fitted on these answers, or on more of them than recur by chance.

        They are known by hashes of their texts, and by all scores together where there are no texts. `scored` is what
        `fit` takes. `InvalidInputError` if an answer has no score.
        """
        scores = log_confidences(scored, self.fingerprint.method)
        return self._fitted_on(scores[np.isfinite(scores)], identities(scored))

    def _fitted_on(self, log_scores: FloatArray, known: Sequence[str]) -> bool:
        """True if some of these answers are among those that it was fitted on, by hashes; by scores without hashes."""
        if known and self.labeled:
            return len(set(known) & set(self.labeled)) > CHANCE_REPEATS * len(known)
        # Scores of the same answers differ a little with precision and batch, so they are compared in order, not as a
        # set.
        scores = np.sort(log_scores)
        return scores.size == self.n and bool(np.allclose(scores, self.scores, rtol=ALIKE, atol=ALIKE))

    def drift(self, scores: Any, *, seed: int = 0) -> Drift:
        """Compare recent scores with those of the fit: a distance with an interval, without a verdict.

        Parameters
        ----------
        scores
            Scored answers without labels, or their log scores; empty ones do not count.
        seed : int
            The seed of the bootstrap.

        Returns
        -------
        Drift
            The Kolmogorov-Smirnov distance in [0, 1] with its 95% interval; 0 if nothing has moved.

        Raises
        ------
        CalibratorMismatchError
            The answers were scored in another way than those of the fit.
        InvalidInputError
            A number that is no log score, or no answer that is not empty.
        """
        self.fingerprint.require_same(fingerprint_of(scores))
        recent = log_confidences(scores, self.fingerprint.method)
        return drift(np.array(self.scores), recent[np.isfinite(recent)], seed=seed)

    def save(self, directory: str | Path, threshold: Threshold | None = None) -> Path:
        """Write `calibrator.json` into a directory, which is made if it is missing.

        `threshold` takes the place of the calibrator's own. Returns the path of the file. Raises `InvalidInputError` if
        the place is a file or cannot be written, or this is no threshold.
        """
        if threshold is not None:
            instance(threshold, Threshold, "threshold")
        folder = place(directory, "directory")
        if folder.exists() and not folder.is_dir():
            raise InvalidInputError(f"{folder} is a file; give the name of a directory.")
        path = folder / NAME
        data = to_bytes(replace(self, threshold=threshold or self.threshold))
        with replacing_file(path) as file:
            file.write(data)
        return path

    @classmethod
    def load(
        cls, directory: str | Path, clusters: TokenClusters | None = None, *, rules: str | None = None
    ) -> Calibrator:
        """Read a calibrator from the directory to which `save` wrote it, or from the file itself.

        Give the `clusters` in use, if any, to check that it was fitted on scores with the same ones, and the `rules`
        (`ScoringRules.signature`) alike. Raises `ArtifactError` if the file is missing, was changed, or holds something
        that is no calibrator, and `CalibratorMismatchError` if it was fitted with other clusters or rules.
        """
        calibrator, _ = read_calibrator(directory)
        if rules is not None:
            calibrator.fingerprint.require_rules(rules)
        if clusters is not None:
            require_clusters(calibrator.fingerprint, clusters)
        return calibrator

    def _scores(self, answer: Any) -> tuple[FloatArray, bool]:
        dimensions = getattr(answer, "ndim", 1 if isinstance(answer, Iterable) else 0)
        single = hasattr(answer, "log_confidence") or dimensions == 0
        self.fingerprint.require_same(fingerprint_of(answer))
        self.fingerprint.require_model(answer)
        return log_confidences([answer] if single else answer, self.fingerprint.method), single

    def _probabilities(self, scores: FloatArray) -> FloatArray:
        maps = [] if self.curve is None else [self.curve]
        if "venn-abers" in maps_of(self.method):
            maps.append(self.venn_abers)
        return mean_probability(maps, self.n, scores)


def fitted(answers: LabeledScores, method: CurveName) -> Calibrator:
    """Fit a calibrator to labeled answers that have been checked, without recording where they came from."""
    first, labels = maps_of(method)[0], (answers.log_confidence, answers.correct)
    return Calibrator(
        method=method,
        curve=None if first == "venn-abers" else FITS[first](*labels),
        venn_abers=fit_venn_abers(*labels),
        n=answers.n,
        n_correct=answers.n_correct,
        scores=tuple(np.sort(answers.log_confidence).tolist()),
    )


def _require_folds(answers: LabeledScores) -> None:
    try:
        require_enough(answers)
    except InvalidInputError as error:
        raise InvalidInputError(
            "Some of these answers are among those that the calibrator was fitted on, by their questions and texts, and"
            " they are too few to cross-validate. Give others, with `prompts` if they are alike."
        ) from error


def _question_numbers(scored: Any, prompts: Sequence[Any] | None, method: str | None) -> npt.NDArray[np.intp] | None:
    """The number of the question of each answer that is not blank; None where questions are not known, or differ."""
    if prompts is None:
        prompts = [getattr(answer, "question", None) or "" for answer in list_of(scored) or ()]
    if not len(prompts) or not all(prompts):
        return None
    seen = ~np.isneginf(log_confidences(scored, method))
    numbers = numbered([prompt for prompt, is_seen in zip(prompts, seen, strict=True) if is_seen])
    return numbers if numbers.max() + 1 < numbers.size else None


def read_calibrator(directory: str | Path) -> tuple[Calibrator, bytes]:
    """A calibrator, and the bytes that it was read from, with errors that name its directory or file."""
    if not isinstance(directory, str | os.PathLike):
        raise ArtifactError(f"There is no calibrator: its place is a directory, got {shown(directory)}.")
    path = Path(directory)
    try:
        path = _file_in(path) if path.is_dir() else path
        data = read_file(path, MOST_FITTED)
        return from_bytes(data), data
    except InvalidInputError as error:
        raise ArtifactError(f"There is no calibrator: {error} Make one with `semtoken calibrate`.") from error
    except ArtifactError as error:
        raise ArtifactError(f"{path} cannot be used. {error}") from error
    except ValueError as error:  # no file can have that name
        raise ArtifactError(f"There is no calibrator {shown(str(path))}.") from error


def _file_in(folder: Path) -> Path:
    """The place of the calibrator's file in a folder; `ArtifactError` if only folders in it hold one."""
    others = sorted(folder.glob(f"*/{NAME}"))
    if others and not (folder / NAME).exists():
        raise ArtifactError(f"It holds no calibrator itself, but others: name one, such as {others[0].parent}.")
    return folder / NAME


def to_bytes(calibrator: Calibrator, version: str = __version__) -> bytes:
    """The bytes of a calibrator's file, as a version of the package writes it: plain values with their SHA-256."""
    values: dict[str, Any] = msgspec.to_builtins(calibrator)
    values["threshold"] = _threshold_in_file(values["threshold"])
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "semtoken": version}
    return dump_json(seal({**head, **values}), indent=1) + b"\n"


def _threshold_in_file(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """The plain values of a threshold as a file holds them: an uncertainty in nats, like those that were tested."""
    if values is None:
        return None
    saved = {"uncertainty": other_sign(values.pop("min_log_score")), **values}
    _exchange(saved, math.inf, INFINITY)
    return saved


def _threshold_of_file(saved: dict[str, Any] | None) -> dict[str, Any] | None:
    """The plain values of a threshold from those of a file."""
    if saved is None:
        return None
    _exchange(saved, INFINITY, math.inf)
    uncertainty = msgspec.convert(saved.pop("uncertainty"), float | None)
    return {"min_log_score": other_sign(uncertainty), **saved}


def _exchange(threshold: dict[str, Any], there: Any, wanted: Any) -> None:
    """Exchange one value for another where a threshold in a file may be infinite."""
    for values in (threshold, *threshold["tests"]):
        for name in ("uncertainty", "threshold"):
            if values.get(name) == there:
                values[name] = wanted


def from_bytes(data: bytes) -> Calibrator:
    """Read a calibrator from its file's bytes; `ArtifactError` unless they are exactly what `save` writes."""
    try:
        values = parse_json(data)
    except ValueError as error:
        raise ArtifactError(f"It is {error}. Copy the file again.") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ArtifactError("It holds no calibrator. Make one with `semtoken calibrate`.")
    if values.get("format_version") != FORMAT_VERSION:
        raise ArtifactError(
            f"Its format version is {values.get('format_version')!r}; this release reads version {FORMAT_VERSION}. Use "
            "the release that wrote it, or calibrate again."
        )
    if not is_sealed(values):
        raise ArtifactError(CHANGED)
    try:
        calibrator = msgspec.convert(values | {"threshold": _threshold_of_file(values["threshold"])}, Calibrator)
    except (AttributeError, KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise ArtifactError(f"It holds no calibrator that this release reads: {error}.") from error
    # Also true of fields that no calibrator has, and of numbers that are spelled otherwise.
    if to_bytes(calibrator, str(values.get("semtoken"))) != data:
        raise ArtifactError(CHANGED)
    return calibrator
