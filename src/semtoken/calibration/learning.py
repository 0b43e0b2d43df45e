"""Learning a number from labels: what is read of the answers, the fit, and whether the number may be used.

The recipe was chosen on one model and one question set and is fixed: the states are standardised, rotated to at most 64
principal components (an eighth of the labels), standardised again, and a logistic regression with C = 0.01 makes one
number of them; its out-of-fold values (5 folds) and the answer's own numbers go into another one with C = 1. Fitting
needs scikit-learn.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.calibration.labels import AnswerRecord, chosen_method, given_score, labelled, log_scores
from semtoken.calibration.learned_number import DISTANCE, LEARNED, LearnedFrom, LearnedNumber, Readings, distances
from semtoken.errors import HOW_TO_SCORE, ArtifactError, CalibratorMismatch, InvalidInput
from semtoken.metrics.resampling import Difference, resample
from semtoken.support.arrays import FloatArray, real_numbers
from semtoken.support.extras import require
from semtoken.support.inputs import listed, whole
from semtoken.tokens.scored_token import Flag

FEWEST_TO_LEARN, FEWEST_OF_EITHER_TO_LEARN = 150, 30
"""Fewest labels, and fewest right and wrong ones among them, from which a number is learned."""
FOLDS = 5
MOST_COMPONENTS, LABELS_A_COMPONENT = 64, 8
PROBE_C, STACK_C = 0.01, 1.0
ONE_SIDED = 0.9
"""The gain must be above 0 with a one-sided interval of this confidence."""
LEAST_VARIANCE = 1e-8
"""A component with less than this share of the largest one's variance is taken for rounding error."""

Places = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Learning:
    """The result of learning from labels: the number, whether it passed the gate, and the figures that decided it."""

    learned: LearnedNumber | None
    """The number, fitted on all labels; None where the headline is kept."""
    risk: FloatArray
    """[n] log-odds of being wrong of each labelled answer, by a fit that did not see it; [0] with too few labels."""
    gain: Difference | None
    """AUROC of `risk` minus that of the headline, with the two-sided 80 % interval whose lower end is the one-sided
    90 % bound; None with too few labels."""
    statement: str
    """What came of it, as a clause: "kept the headline: ..." or "uses the learned number: ..."."""


def learn(
    names: Sequence[str],
    readings: Readings,
    headline: FloatArray,
    correct: FloatArray,
    origin: LearnedFrom = LearnedFrom(),  # noqa: B008  (it is frozen)
    *,
    seed: int = 0,
) -> Learning:
    """Learn a number from labelled answers, and keep it only if it ranks answers it did not see better.

    `readings` are of n answers to different questions; the learned number would replace `headline` [n], where higher is
    riskier; `correct` [n] is 1 or 0.
    """
    n, right = correct.size, int(correct.sum())
    either = min(right, n - right)
    if n < FEWEST_TO_LEARN or either < FEWEST_OF_EITHER_TO_LEARN:
        return Learning(
            None,
            np.empty(0),
            None,
            f"kept the headline: learning takes at least {FEWEST_TO_LEARN} labels, {FEWEST_OF_EITHER_TO_LEARN} of them "
            f"right and {FEWEST_OF_EITHER_TO_LEARN} wrong; you have {n}, {right} right and {n - right} wrong",
        )
    unseen = cross_fitted(readings, correct, seed=seed)
    risk = unseen.risk
    gain = gain_over(headline, risk, correct, seed=seed)
    told = f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    if not gain.low > 0:
        return Learning(None, risk, gain, f"kept the headline: your labels do not show a gain ({told})")
    learned = fit(names, readings, correct, origin, seed=seed)
    return Learning(
        replace(learned, expected=unseen.expected(learned.risk(readings))),
        risk,
        gain,
        f"uses the learned number: it ranks labelled answers that it did not see better than the headline ({told})",
    )


def gain_over(headline: FloatArray, risk: FloatArray, correct: FloatArray, *, seed: int = 0) -> Difference:
    """The AUROC of a risk minus the headline's; the two-sided interval's lower end is a one-sided 90 % bound."""
    other = resample("auroc", headline, correct, seed=seed)
    level = 1 - 2 * (1 - ONE_SIDED)
    return resample("auroc", risk, correct, seed=seed).minus(other, level)


def fit(
    names: Sequence[str],
    readings: Readings,
    correct: FloatArray,
    origin: LearnedFrom = LearnedFrom(),  # noqa: B008  (it is frozen)
    *,
    seed: int = 0,
) -> LearnedNumber:
    """Fit a number on all labels, without testing whether it ranks answers better."""
    weights, intercept, state_weights = _fitted(readings, correct, seed)
    centre = spread = far = np.empty(0)
    if readings.states is not None:
        n = len(readings)
        centre, spread = readings.states.mean(axis=0), readings.states.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        # Each from the centre of the others: its own share in the centre makes it look nearer than new ones are.
        far = np.sort(distances(readings.states, centre, spread) * (n / (n - 1)) ** 2)
    return LearnedNumber(tuple(names), weights, intercept, state_weights, centre, spread, far, origin)


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """The risks of answers by the whole recipe, each from a fit on the folds that do not contain it."""

    risk: FloatArray
    """[n] log-odds of being wrong."""
    standing: FloatArray
    """[n] the same in standard deviations from the mean of the answers that the fold's fit had seen."""

    def expected(self, seen: FloatArray) -> FloatArray:
        """The risks of new answers like the labelled ones, [n], ascending; `seen` are the risks of the labelled ones.

        The fits on four fifths of the labels spread new answers less than that on all of them does, by 5 % with 400
        labels. Taking `risk` itself for this would call answers of the same world moved two or three times too often.
        """
        return np.sort(seen.mean() + self.standing * seen.std())


def cross_fitted(readings: Readings, correct: FloatArray, *, seed: int = 0) -> CrossFitted:
    """Score every answer by the whole recipe fitted on the folds that do not contain it."""
    risk, standing = np.empty(correct.size), np.empty(correct.size)
    for rest, held in _folds(correct, seed):
        model = fit((), readings.part(rest), correct[rest], seed=seed)
        seen, unseen = (model.risk(readings.part(places)) for places in (rest, held))
        risk[held], standing[held] = unseen, (unseen - seen.mean()) / (seen.std() or 1.0)
    return CrossFitted(risk, standing)


def _fitted(readings: Readings, correct: FloatArray, seed: int) -> tuple[FloatArray, float, FloatArray]:
    """Weights of the numbers, intercept, and weights of the states, for the log-odds of being wrong."""
    wrong = 1 - correct
    if readings.states is None:
        numbers = readings.numbers
        mean, spread = numbers.mean(axis=0), numbers.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        slopes, intercept = _logistic((numbers - mean) / spread, wrong, STACK_C)
        return slopes / spread, intercept - float(slopes @ (mean / spread)), np.empty(0)
    unseen = np.empty(wrong.size)
    for rest, held in _folds(correct, seed + 1):
        weights, intercept = _probe(readings.states[rest], wrong[rest], seed)
        unseen[held] = readings.states[held] @ weights + intercept
    slopes, last = _logistic(np.column_stack([unseen, readings.numbers]), wrong, STACK_C)
    if slopes[0] <= 0:  # out of fold, noise ranks answers the wrong way round
        slopes, last = _logistic(readings.numbers, wrong, STACK_C)
        return slopes, last, np.zeros(readings.states.shape[1])
    weights, intercept = _probe(readings.states, wrong, seed)
    return slopes[1:], last + float(slopes[0]) * intercept, slopes[0] * weights


def _probe(states: FloatArray, wrong: FloatArray, seed: int) -> tuple[FloatArray, float]:
    """Weights of the states and the intercept of a linear probe, [H] and a number."""
    decomposition = require("sklearn.decomposition", extra="calibrate")
    mean, spread = states.mean(axis=0), states.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    standard = (states - mean) / spread
    most = min(MOST_COMPONENTS, max(1, wrong.size // LABELS_A_COMPONENT), *standard.shape)
    with np.errstate(invalid="ignore"):  # shares of a variance of 0
        rotation = decomposition.PCA(most, random_state=seed).fit(standard)
    kept = rotation.explained_variance_ > LEAST_VARIANCE * rotation.explained_variance_[0]
    if not kept.any():  # all answers have the same state
        return np.zeros(states.shape[1]), 0.0
    axes = rotation.components_[kept]
    rotated = standard @ axes.T
    centre, deviation = rotated.mean(axis=0), rotated.std(axis=0)
    slopes, intercept = _logistic((rotated - centre) / deviation, wrong, PROBE_C)
    slopes = slopes / deviation
    weights = (slopes @ axes) / spread
    return weights, intercept - float(slopes @ centre) - float(weights @ mean)


def _logistic(columns: FloatArray, outcome: FloatArray, strength: float) -> tuple[FloatArray, float]:
    """Slopes and intercept of an L2-regularised logistic regression (scikit-learn's, `strength` is its C)."""
    linear = require("sklearn.linear_model", extra="calibrate")
    model = linear.LogisticRegression(C=strength, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=RuntimeWarning)
        model.fit(columns, outcome)
    return np.asarray(model.coef_[0], dtype=np.float64), float(model.intercept_[0])


def _folds(correct: FloatArray, seed: int) -> Iterator[tuple[Places, Places]]:
    """Places of the answers to fit on and of those held back, each fold with its share of right ones."""
    selection: Any = require("sklearn.model_selection", extra="calibrate")
    folds = selection.StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    yield from folds.split(np.zeros((correct.size, 1)), correct)


REFUSED = "learned_refused"
"""Code of the flag that says why an answer has no learned number."""
PEAK = "max_token_entropy"
LARGEST = 1000.0

NUMBERS: dict[str, Callable[[Any], float]] = {
    "headline": lambda answer: min(-float(log_scores([answer], chosen_method([answer], None))[0]), LARGEST),
    "probability": lambda answer: min(-float(_field(answer, "log_probability")), LARGEST),
    "perplexity": lambda answer: min(-float(_field(answer, "log_probability")) / len(_tokens(answer)), LARGEST),
    PEAK: lambda answer: float(_score(answer, PEAK)),
    "first_token": lambda answer: min(-_log_probability(_tokens(answer)[0]), LARGEST),
    "log_length": lambda answer: math.log(len(_tokens(answer))),
}
"""The numbers that a learned one can read of an answer, in nats; higher is riskier, but for the length."""
WITH_STATES = ("headline",)
CHEAP = tuple(name for name in NUMBERS if name != "headline")


@dataclass(frozen=True, eq=False)
class LearnedAnswers:
    """Labelled answers together with the number that was learned from them."""

    learning: Learning
    """The number, or why the headline is kept, with the figures that decided it."""
    answers: list[Any]
    """The answers, each with its score by `learned`, by a fit that did not see it; as they were if the headline stays.
    Calibrators and thresholds are fitted on these."""


def require_known(learned: LearnedNumber) -> None:
    """Raise `ArtifactError`, which names it, if a number needs something that this release cannot read."""
    if unknown := [name for name in learned.names if name not in NUMBERS]:
        raise ArtifactError(
            f"Its learned number reads {unknown[0]!r:.40}, which no answer has. Known are {', '.join(NUMBERS)}."
        )


def learn_from(
    scored: Sequence[Any], correct: Any, *, prompts: Sequence[Any] | None = None, seed: int = 0
) -> LearnedAnswers:
    """Learn a number from labelled answers, or keep the headline.

    With the hidden states of all answers (`STC(..., states=True)`, `semtoken score --states`) it reads these and the
    headline; without any it reads five numbers that APIs give, too: probability, perplexity, the largest entropy
    (`methods=["max_token_entropy"]`), the first token's surprise and the length.

    Parameters
    ----------
    scored
        Scored answers of different questions, or records of them (`read_answers`).
    correct : [n] of true and false
        Judged as future answers will be.
    prompts : [n], optional
        The prompts, by which repeated questions are found. Default: the prompts that the states hold, or the questions
        of the records.
    seed
        The seed of the folds and of the bootstrap.

    Raises
    ------
    CalibratorMismatch
        An answer lacks a number that is read, or a number is not finite.
    InvalidInput
        Bare scores, answers some of which have states, states of different models or layers, or a question that is
        there twice: the answers that are held back would then hold what was learned.
    """
    answers, seed = listed(scored, "scored"), whole(seed, "seed", low=0)
    if not answers or not all(hasattr(answer, "log_score") for answer in answers):
        raise InvalidInput("A number is learned from scored answers with what they leave, not from bare scores.")
    labelled(answers, correct, prompts)  # checks lengths, labels, repeated answers
    _require_different_questions(answers, prompts)
    with_states = [answer.state is not None for answer in answers if not _blank(answer)]
    if any(with_states) != all(with_states):
        raise InvalidInput(
            f"{sum(with_states)} of {len(with_states)} answers have a hidden state. Score all of them alike: with "
            "--states (states=True), or all without."
        )
    names = WITH_STATES if any(with_states) else CHEAP
    kept = [i for i, answer in enumerate(answers) if not _blank(answer)]
    readings = readings_of([answers[i] for i in kept], names, states=any(with_states))
    headline = np.array([NUMBERS["headline"](answers[i]) for i in kept])
    labels = real_numbers(correct, "correct", booleans=True).astype(np.float64)[kept]
    origin = _origin([answers[i] for i in kept]) if any(with_states) else LearnedFrom()
    learning = learn(names, readings, headline, labels, origin, seed=seed)
    if learning.learned is None:
        return LearnedAnswers(learning, answers)
    for i, risk in zip(kept, learning.risk.tolist(), strict=True):
        answers[i] = _with_scores(answers[i], {LEARNED: risk})
    return LearnedAnswers(learning, answers)


def _require_different_questions(answers: Sequence[Any], prompts: Sequence[Any] | None) -> None:
    asked = [str(prompt) for prompt in prompts] if prompts is not None else [_prompt_of(answer) for answer in answers]
    first: dict[str, int] = {}
    for i, question in enumerate(asked):
        if question and question in first:
            raise InvalidInput(
                f"Answers {first[question]} and {i} are to the same question. A number is learned from answers to "
                "different questions, since what is held back must not have been seen: leave one of them out."
            )
        first[question] = i


def _prompt_of(answer: Any) -> str:
    """What the answer is known to have been asked; empty where nothing is known."""
    if isinstance(answer, AnswerRecord):
        return answer.question
    return "" if answer.state is None else answer.state.prompt


def with_learned(answer: Any, learned: LearnedNumber) -> Any:
    """A scored answer with its learned number, and with the distance of its state from the labelled ones.

    A blank answer stays as it is, and so does one that the number was not learned for: this one gets the flag
    `learned_refused` with the reason.
    """
    if _blank(answer):
        return answer
    try:
        if learned.reads_states:
            origin = _origin_of(answer)
            learned.origin.require_model(origin)
            learned.origin.require_prompt(origin.before or "")
        readings = readings_of([answer], learned.names, states=learned.reads_states)
        scores = _learned_scores(learned, readings)
    except CalibratorMismatch as error:
        if isinstance(answer, AnswerRecord):
            raise
        return answer.with_fields(flags=(*answer.flags, Flag(REFUSED, str(error))))
    return _with_scores(answer, scores)


def _learned_scores(learned: LearnedNumber, readings: Readings) -> dict[str, float]:
    """The scores of one answer: its learned number, and the distance of its state."""
    with np.errstate(over="ignore", invalid="ignore"):
        scores = {LEARNED: float(learned.risk(readings)[0])}
        if learned.reads_states:
            scores[DISTANCE] = float(learned.distance(readings)[0])
    if not all(map(math.isfinite, scores.values())):
        raise CalibratorMismatch(
            "The learned number of this answer is not finite: its hidden state or numbers are far outside those that "
            "were labelled."
        )
    return scores


def readings_of(answers: Sequence[Any], names: Sequence[str], *, states: bool) -> Readings:
    """The numbers and states of answers that a learned number reads, row by row; none of them may be blank.

    `CalibratorMismatch` if an answer lacks a number or its state, or holds one that is not finite.
    """
    numbers = np.array([[NUMBERS[name](answer) for name in names] for answer in answers], dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise CalibratorMismatch("A number that the learned one reads is not finite in these answers.")
    if not states:
        return Readings(numbers)
    rows = [_state_of(answer) for answer in answers]
    if len({row.values.size for row in rows}) > 1:
        raise CalibratorMismatch("These answers have hidden states of different sizes: they are of different models.")
    values = np.stack([np.asarray(row.values, dtype=np.float64) for row in rows])
    bad = np.flatnonzero(~np.isfinite(values).all(axis=1) | (values.shape[1] == 0))
    if bad.size:
        raise CalibratorMismatch(
            f"The hidden state of answer {bad[0]} holds no finite numbers, so nothing can be read of it. In float16 a "
            "model's states may overflow: load the model in bfloat16 or float32."
        )
    return Readings(numbers, values)


def _origin(answers: Sequence[Any]) -> LearnedFrom:
    """Where labelled answers come from, with what their prompts share."""
    origins = [_origin_of(answer) for answer in answers]
    kinds = {replace(origin, before=None, after=None) for origin in origins}
    if len(kinds) > 1:
        raise InvalidInput(
            "These answers have hidden states of different models, layers or kinds (generated, and read from texts). "
            "Score all of them alike."
        )
    prompts = [origin.before or "" for origin in origins]
    before, after = shared_ends(prompts)
    return replace(origins[0], before=before, after=after)


def shared_ends(prompts: Sequence[str]) -> tuple[str, str]:
    """The text that all prompts begin with and end with: the form around the question."""
    before = _shared_start(prompts)
    if len(set(prompts)) > 1:
        before = before[: max(before.rfind(character) + 1 for character in " \n>]:")]
    rest = [prompt[len(before) :][::-1] for prompt in prompts]
    after = _shared_start(rest)[::-1]
    return before, after[next((i for i, character in enumerate(after) if character in "\n<["), len(after)) :]


def _shared_start(texts: Sequence[str]) -> str:
    """What all texts begin with."""
    first, last = min(texts), max(texts)
    return first[: next((i for i, character in enumerate(first) if last[i : i + 1] != character), len(first))]


def _origin_of(answer: Any) -> LearnedFrom:
    state = _state_of(answer)
    return LearnedFrom(
        weights=state.weights, vocabulary=state.vocabulary, depth=state.depth, given=state.given, before=state.prompt
    )


def _with_scores(answer: Any, scores: dict[str, float]) -> Any:
    if isinstance(answer, AnswerRecord):
        told = {f"score_{name}": value for name, value in scores.items()}
        return replace(answer, record={**answer.record, **told})
    return answer.with_fields(scores={**answer.scores, **scores})


def _blank(answer: Any) -> bool:
    return answer.log_score is None or answer.log_score == -math.inf


def _state_of(answer: Any) -> Any:
    """The hidden state of an answer; a refusal where it has none."""
    if answer.state is None:
        raise CalibratorMismatch(
            "This calibrator reads hidden states, and the answer has none. They come from a model of transformers in "
            "this process, the one that was labelled; APIs, vLLM and llama.cpp do not give them."
        )
    return answer.state


def _field(answer: Any, name: str) -> Any:
    value = answer.record.get(name) if isinstance(answer, AnswerRecord) else getattr(answer, name)
    if value in (None, ""):
        raise InvalidInput(f"{_where(answer)}: {name!r} is missing. {HOW_TO_SCORE}")
    return value


def _tokens(answer: Any) -> Sequence[Any]:
    tokens = answer.record.get("tokens") if isinstance(answer, AnswerRecord) else answer.tokens
    if not tokens:
        raise InvalidInput(
            f"{_where(answer)}: learning without hidden states reads the tokens. Score the answers with --tokens and "
            f"--methods {PEAK}, or with --states."
        )
    return tokens  # type: ignore[no-any-return]


def _log_probability(token: Any) -> float:
    return float(token["log_probability"] if isinstance(token, dict) else token.log_probability)


def _score(answer: Any, name: str) -> float:
    value = given_score(answer, name)
    if value is None:
        raise CalibratorMismatch(
            f"The learned number reads {name}, and the answer has no such score. Score it with --methods {name}."
        )
    return value


def _where(answer: Any) -> str:
    return answer.where if isinstance(answer, AnswerRecord) else "An answer"
