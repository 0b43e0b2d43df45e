"""Learn a number from labeled answers, use it only if it ranks better than the confidence, and calibrate it.

    semtoken score questions.jsonl --scoring.states true --model MODEL -o answers.jsonl
    semtoken label answers.jsonl
    python examples/learn_a_number.py learn answers.labeled.jsonl learned.jsonl
    semtoken calibrate learned.jsonl --by learned -o my-calibrator
    python examples/learn_a_number.py apply learned.npz later.jsonl scored.jsonl

Copy it and change what you like: the recipe is a probe on the hidden state in which the model ended its answer, joined
with the confidence. docs/calibration.md says what it gained and where it harmed. It holds for one model, one form of
prompt and one kind of question; another model or precision is refused, another kind of question you have to know of.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from semtoken.guarantees.answer_records import AnswerRecord, read_answers
from semtoken.guarantees.labels import CONFIDENCE, log_confidences
from semtoken.methods.metrics.resampling import resample

FEWEST, FEWEST_OF_EITHER = 150, 30
"""The fewest labels, and the fewest right and wrong ones among them, from which anything is learned."""
MOST_COMPONENTS, LABELS_A_COMPONENT = 64, 8

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Probe:
    """The log-odds that an answer is wrong, linear in its hidden state and its confidence."""

    states: Floats
    """[H] the weight of each dimension of the state."""
    surprise: float
    """The weight of the surprise, which is minus the log of the confidence."""
    intercept: float
    weights: str
    """The hash of the model's weights, by which another model is known."""

    def risk(self, states: Floats, surprises: Floats) -> Floats:
        """Log-odds of being wrong [n] of states [n, H] and surprises [n]; higher is riskier."""
        return states @ self.states + surprises * self.surprise + self.intercept


def fit(states: Floats, surprises: Floats, wrong: Floats, weights: str = "") -> Probe:
    """The probe on all of these answers: states [n, H], surprises [n], wrong [n] of 1 and 0."""
    unseen = np.empty(len(wrong))
    for rest, held in folds(wrong, seed=1):  # what the state says of answers that its regression did not see
        unseen[held] = state_model(states[rest], wrong[rest]).decision_function(states[held])
    both = LogisticRegression(C=1.0, max_iter=1000).fit(np.column_stack([unseen, surprises]), wrong)
    of_state, of_surprise = map(float, both.coef_[0])
    if of_state <= 0:  # noise: out of fold, the states rank answers the wrong way round
        alone = LogisticRegression(C=1.0, max_iter=1000).fit(surprises[:, None], wrong)
        return Probe(np.zeros(states.shape[1]), float(alone.coef_[0, 0]), float(alone.intercept_[0]), weights)
    model = state_model(states, wrong)
    zero = float(model.decision_function(np.zeros((1, states.shape[1])))[0])
    slopes = model.decision_function(np.eye(states.shape[1])) - zero  # a pipeline of linear steps is linear
    return Probe(of_state * slopes, of_surprise, float(both.intercept_[0]) + of_state * zero, weights)


def state_model(states: Floats, wrong: Floats) -> Pipeline:
    """A logistic regression on the main components of the states."""
    components = min(MOST_COMPONENTS, max(1, len(wrong) // LABELS_A_COMPONENT), *states.shape)
    steps = (StandardScaler(), PCA(components, random_state=0), StandardScaler(), LogisticRegression(C=0.01))
    return make_pipeline(*steps).fit(states, wrong)


def folds(wrong: Floats, seed: int) -> list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Five folds, each with its share of wrong answers: places to fit on, and places that are held back."""
    return list(StratifiedKFold(5, shuffle=True, random_state=seed).split(wrong[:, None], wrong))


def cross_fitted(states: Floats, surprises: Floats, wrong: Floats) -> Floats:
    """The risk of every answer [n] by a probe that did not see it."""
    risk = np.empty(len(wrong))
    for rest, held in folds(wrong, seed=0):
        risk[held] = fit(states[rest], surprises[rest], wrong[rest]).risk(states[held], surprises[held])
    return risk


def scored(source: Path) -> list[AnswerRecord]:
    """The answers of a file that have a score and are not blank."""
    return [answer for answer in read_answers(source) if answer.log_confidence not in (None, -math.inf)]


def readings(answers: Sequence[AnswerRecord]) -> tuple[Floats, Floats, str]:
    """States [n, H] and surprises [n] of answers, and the hash of the weights that they share."""
    kept = [(answer.state, answer.confidence_method) for answer in answers]
    if not kept or any(state is None or method is None for state, method in kept):
        raise SystemExit("Each answer needs its hidden state and its confidence: semtoken score --scoring.states true.")
    models = {state.weights or "" for state, _ in kept if state is not None}
    if len(models) > 1:
        raise SystemExit("These answers are of different models. Score all of them with one.")
    states = np.stack([state.values for state, _ in kept if state is not None]).astype(np.float64)
    surprises = np.minimum(-log_confidences(answers, CONFIDENCE), 1000.0)
    return states, surprises, models.pop()


def learn(source: Path, target: Path) -> None:
    """The gate: the number is kept if it ranks answers that it did not see better than the confidence does."""
    answers = [
        one for one in read_answers(source) if one.correct is not None and one.log_confidence not in (None, -math.inf)
    ]
    wrong = np.array([not answer.correct for answer in answers], dtype=np.float64)
    counts = (len(answers), int(len(answers) - wrong.sum()), int(wrong.sum()))
    if counts[0] < FEWEST or min(counts[1:]) < FEWEST_OF_EITHER:
        raise SystemExit(
            f"It takes {FEWEST} labels, {FEWEST_OF_EITHER} right and {FEWEST_OF_EITHER} wrong at least; "
            f"there are {counts[0]}, {counts[1]} right and {counts[2]} wrong."
        )
    if len({answer.question for answer in answers}) < len(answers):
        raise SystemExit("A question is there twice: an answer that is held back would hold what was learned.")
    states, surprises, weights = readings(answers)
    risk = cross_fitted(states, surprises, wrong)
    own, other = (resample("auroc", values, 1 - wrong, seed=0) for values in (risk, surprises))
    gain = own.minus(other, 0.8)  # the lower end of the two-sided 80% interval is a one-sided 90% bound
    shown = f"{gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
    if not gain.low > 0:
        raise SystemExit(f"Kept the confidence: your labels do not show a gain ({shown}). Nothing was written.")
    np.savez(target.with_suffix(".npz"), **vars(fit(states, surprises, wrong, weights)))
    write(target, answers, risk)
    print(f"The learned number ranks answers that it did not see better than the confidence ({shown}).")


def apply(probe: Path, source: Path, target: Path) -> None:
    """Add the learned number to later answers of the same model."""
    with np.load(probe) as file:
        learned = Probe(file["states"], float(file["surprise"]), float(file["intercept"]), str(file["weights"]))
    answers = scored(source)
    states, surprises, weights = readings(answers)
    if weights != learned.weights:
        raise SystemExit("These answers are of another model or precision than those that it was learned from.")
    write(target, answers, learned.risk(states, surprises))


def write(target: Path, answers: Sequence[AnswerRecord], risk: Floats) -> None:
    """The answers as lines, each with its `score_learned`."""
    lines = [json.dumps({**answer.record, "score_learned": value}) for answer, value in zip(answers, risk, strict=True)]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="learn|apply")
    first = commands.add_parser("learn", help="from labeled answers; writes TARGET and, beside it, the number (.npz)")
    first.add_argument("paths", nargs=2, type=Path, metavar=("LABELED", "TARGET"))
    first.set_defaults(run=learn)
    second = commands.add_parser("apply", help="to later answers")
    second.add_argument("paths", nargs=3, type=Path, metavar=("NUMBER.npz", "ANSWERS", "TARGET"))
    second.set_defaults(run=apply)
    given = parser.parse_args()
    given.run(*given.paths)


if __name__ == "__main__":
    main()
