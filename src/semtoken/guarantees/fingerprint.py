"""The origin of labeled answers, which decides whether a calibrator belongs to other answers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from semtoken.clustering.token_clusters import TokenClusters
from semtoken.core.results import ScoredAnswer
from semtoken.core.results.on_demand import without_question
from semtoken.core.scored_token import Flag
from semtoken.errors import CalibratorMismatchError, InvalidInputError
from semtoken.guarantees.group_names import Group, group_name
from semtoken.guarantees.labels import several
from semtoken.support.inputs import instance, text, whole

ELSEWHERE = "calibrated_elsewhere"
"""Code of the flags that say that answers may not be of the kind that was labeled."""


@dataclass(frozen=True)
class Fingerprint:
    """The model, clusters, rules and distribution that scores came from. A field is None where that is not known."""

    method: str | None = None
    """The method whose scores were labeled, a key of `ScoredAnswer.scores`; None: the product over the tokens."""
    signature: str | None = None
    """Rules, and the clusters that they read, as in `ScoredAnswer.signature`."""
    clusters: str | None = None
    """Hash of the labels of the clusters that were read."""
    distribution: str | None = None
    """`raw`, `processed` or `unknown`."""
    scores: Literal["exact", "top-k"] | None = None
    """`exact` if all probabilities of a step were seen, `top-k` if only the best; None where it is not known."""
    k: int | None = None
    """The number of tokens that were seen of each step, if only the best were."""
    model: str | None = None
    """The model's id or directory name, with its revision if that is known."""
    dtype: str | None = None
    """Precision or quantization of the weights."""
    engine: str | None = None
    """The engine that ran the model, with its version."""
    template: str | None = None
    """Hash of the prompt template."""
    judge: str | None = None
    """The person or the judge that said which answers are right."""
    task: str | Group | None = None
    """A label that you choose, such as the kind of question; the group, where answers were divided into groups."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not (name == "task" and isinstance(value, Group)):
                (whole if name == "k" else text)(value, name)

    def require_same(self, other: Fingerprint) -> None:
        """Raise `CalibratorMismatchError` for scores of another method, other clusters or rules, another distribution,
        k or exactness than the labeled ones, as far as both are known.
        """
        instance(other, Fingerprint, "other")
        for name, what in _MUST_AGREE.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if name == "signature":
                mine, theirs = self._as_read(mine), self._as_read(theirs)
            if mine is not None and theirs is not None and mine != theirs:
                raise CalibratorMismatchError(
                    f"This calibrator was fitted on scores with {what} {mine!r}; these have {theirs!r}. Use the "
                    "calibrator of these settings, or make one with `semtoken calibrate`."
                )

    def require_rules(self, rules: str) -> None:
        """Raise `CalibratorMismatchError` for rules (`ScoringRules.signature`, the end of the signature of an answer)
        other than those of the labeled answers, before any answer is scored.
        """
        text(rules, "rules")
        signature = self._as_read(self.signature)
        if signature is not None and not f"|{signature}".endswith(f"|{rules}"):
            mine = signature[max(signature.find("preset:"), 0) :]
            raise CalibratorMismatchError(
                f"This calibrator was fitted on scores with the rules {mine!r}; these would have {rules!r}. Choose its "
                "--preset, or make a calibrator of these rules with `semtoken calibrate`."
            )

    def _as_read(self, signature: str | None) -> str | None:
        """A signature as far as these scores depend on it: whether the question was known matters only to some."""
        if signature is None or self.method in READING_QUESTIONS:
            return signature
        return without_question(signature)

    def require_model(self, scored: Any) -> None:
        """Raise `CalibratorMismatchError` for an answer, or several, whose reply names another model than the one that
        the labeled answers came from, as far as both are known.
        """
        others = [name for name in models_named(scored) if self.model not in (None, name)]
        if others:
            raise CalibratorMismatchError(
                f"This calibrator was fitted on answers of the model {self.model!r}; {others[0]!r} gave this one. "
                "Label answers of that model, and make a calibrator of them with `semtoken calibrate`."
            )

    def group_of(self, line: Mapping[str, Any]) -> Group | None:
        """The group of a line of a file, where the labeled answers are one group by a field that the line has; else
        None.
        """
        instance(line, Mapping, "line")  # type: ignore[type-abstract]
        if not isinstance(self.task, Group):
            return None
        name = group_name(line.get(self.task.by))
        return Group(self.task.by, name) if name else None

    def flags(self, other: Fingerprint) -> tuple[Flag, ...]:
        """Flags for answers of another origin (`other`), to which probabilities and guarantees may not apply.

        Known differences come first, then what is unknown; empty if there is neither.
        """
        reasons: list[str] = []
        instance(other, Fingerprint, "other")
        for name, what in _SHOULD_AGREE.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is None or theirs is None or mine == theirs:
                continue
            if not (isinstance(mine, Group) and isinstance(theirs, Group)):
                reasons.append(f"{what} was {str(mine)!r} and is {str(theirs)!r}")
            elif mine.by != "model" or None in (self.model, other.model) or self.model == other.model:
                # else the flag of another model says it
                another = mine.unlike([str(theirs)])
                reasons.append(f"the answer is of {another}: use the calibrator of that group")
        unknown = [w for n, w in _MUST_AGREE.items() if n in ("signature", "distribution") and getattr(self, n) is None]
        if unknown:
            reasons.append(f"it does not say with which {' and '.join(unknown)} it was fitted")
        return tuple(Flag(ELSEWHERE, f"The calibrator may not fit: {reason}.") for reason in reasons)


_MUST_AGREE = {
    "method": "the method",
    "signature": "clusters and rules",
    "clusters": "cluster labels",
    "distribution": "distribution",
    "scores": "probabilities",
    "k": "k",
}
_SHOULD_AGREE = {
    "model": "the model",
    "dtype": "the precision",
    "engine": "the engine",
    "template": "the prompt template",
    "task": "the task",
}


READING_QUESTIONS = ("confidence", "new_phrases", "mean_new_word")
"""The methods that are other numbers where it is not known what was asked."""
NOTHING_KNOWN = Fingerprint()
"""The fingerprint of scores of which nothing is known: it fits all others."""


def fingerprint_of(scored: Any, known: Fingerprint | None = None) -> Fingerprint:
    """The fingerprint of scored answers, from the answers themselves and from what the caller knows.

    `InvalidInputError` if they were scored in different ways, `CalibratorMismatchError` if in another way than `known`
    says.
    """
    fingerprint = Fingerprint() if known is None else instance(known, Fingerprint, "known")
    origins = {_origin_of(answer) for answer in several(scored) if hasattr(answer, "log_confidence_interval")}
    if len(origins) > 1:
        first, second = sorted(origins, key=str)[:2]
        raise InvalidInputError(
            f"These answers were scored in different ways: {first} and {second}. Score all of them alike."
        )
    for signature, distribution, scores in origins:
        own = Fingerprint(signature=signature, distribution=distribution, scores=scores)
        fingerprint.require_same(own)
        fingerprint = replace(
            fingerprint,
            signature=signature or fingerprint.signature,
            distribution=distribution or fingerprint.distribution,
            scores=scores,
        )
    return fingerprint


def origin_of_labeled(scored: Any, method: str | None, known: Fingerprint | None = None) -> Fingerprint:
    """The fingerprint of labeled answers whose scores by a method count, with the model that gave all of them.

    The errors are those of `fingerprint_of` and `one_model`.
    """
    origin = replace(fingerprint_of(scored, known), method=method)
    return replace(origin, model=one_model(scored) or origin.model)


def models_named(scored: Any) -> list[str]:
    """The models that gave some answers, as their replies or files name them, in order; empty where none is named."""
    names = [getattr(answer, "model", None) for answer in several(scored)]
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def one_model(scored: Any, *, remedy: str = "each, such as with `semtoken calibrate --group-by model`") -> str | None:
    """The model that gave all labeled answers, None where it is not known.

    `InvalidInputError` if several did; its message ends with what to fit a calibrator for.
    """
    names = models_named(scored)
    if len(names) > 1:
        raise InvalidInputError(
            f"These answers were given by different models: {names[0]!r} and {names[1]!r}. The probabilities of one "
            f"are not those of another: fit a calibrator for {remedy}."
        )
    return names[0] if names else None


def clusters_hash(clusters: TokenClusters) -> str:
    """A hash of cluster labels, sixteen hex digits; `InvalidInputError` for what is no clusters."""
    instance(clusters, TokenClusters, "clusters")
    return hashlib.sha256(clusters.labels.astype("<i4").tobytes()).hexdigest()[:16]


def require_clusters(fingerprint: Fingerprint, clusters: TokenClusters) -> None:
    """Raise `CalibratorMismatchError` if the labeled answers are known to have been scored with other clusters."""
    instance(clusters, TokenClusters, "clusters")
    signature = fingerprint.signature
    if signature is not None and signature.startswith("preset:"):
        return  # its rules read none
    fingerprint.require_same(Fingerprint(clusters=clusters_hash(clusters)))
    if signature is not None and not f"{signature}|".startswith(f"{clusters.signature}|"):
        raise CalibratorMismatchError(
            f"This calibrator was fitted on scores with clusters {signature!r}; these are {clusters.signature!r}. Use "
            "the calibrator of these clusters, or make one with `semtoken calibrate`."
        )


def known_values(fingerprint: Fingerprint) -> dict[str, Any]:
    """The fields of a fingerprint that are known, for people."""
    return {name: value for name, value in vars(fingerprint).items() if value is not None}


def _origin_of(answer: ScoredAnswer) -> tuple[str | None, str | None, Literal["exact", "top-k"]]:
    return answer.signature, answer.distribution, "exact" if answer.log_confidence_interval is None else "top-k"


def models_sentence(fitted: str | None, models: Mapping[str, int], answers: str) -> str:
    """A sentence on answers that other models gave than they should have; "" if none did.

    `fitted` is the model that a calibrator was fitted on, as far as that is known, `models` how many answers each model
    gave, and `answers` names these answers: "newest answers".
    """
    others = {name: n for name, n in models.items() if name != fitted}
    listed = ", ".join(f"{n:,} from {name!r}" for name, n in others.items())
    if fitted is None and len(models) > 1:
        return f"The calibrator does not say which model it was fitted on, and answers came from several: {listed}."
    if fitted is None or not others:
        return ""
    return (
        f"{sum(others.values()):,} of the {sum(models.values()):,} {answers} came from another model than the "
        f"calibrator's, {fitted!r}: {listed}."
    )
