"""From scored answers to what a learned number reads of them, and back: answers with their learned number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from semtoken.calibration.labels import AnswerRecord, chosen_method, given_score, labelled, log_scores
from semtoken.calibration.learned import DISTANCE, LEARNED, Learned, LearnedFrom, Readings
from semtoken.calibration.learning import Learning, learn
from semtoken.errors import ArtifactError, CalibratorMismatch, InvalidInput
from semtoken.support.arrays import real_numbers
from semtoken.support.inputs import listed
from semtoken.tokens.scored import Flag

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
    """Labelled answers after a number was learned from them."""

    learning: Learning
    """What came of it."""
    answers: list[Any]
    """The answers, each with its score by `learned`, by a fit that did not see it; as they were if the headline stays.
    Calibrators and thresholds are fitted on these."""


def require_known(learned: Learned) -> None:
    """Refuse a number that reads what this release cannot read of an answer.

    Raises
    ------
    ArtifactError
        The message names what it reads.
    """
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
        To find repeated questions. Without them the prompts that the states hold, or the questions of the records.
    seed
        Of the folds and the bootstrap.

    Raises
    ------
    CalibratorMismatch
        An answer lacks a number that is read, or a number is not finite.
    InvalidInput
        Bare scores, answers some of which have states, states of different models or layers, or a question that is
        there twice: the half that is held back would hold what was learned.
    """
    answers = listed(scored, "scored")
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
    found = learn(names, readings, headline, labels, origin, seed=seed)
    if found.learned is None:
        return LearnedAnswers(found, answers)
    for i, risk in zip(kept, found.risk.tolist(), strict=True):
        answers[i] = _with_scores(answers[i], {LEARNED: risk})
    return LearnedAnswers(found, answers)


def _require_different_questions(answers: Sequence[Any], prompts: Sequence[Any] | None) -> None:
    asked = [str(prompt) for prompt in prompts] if prompts is not None else [_asked(answer) for answer in answers]
    first: dict[str, int] = {}
    for i, question in enumerate(asked):
        if question and question in first:
            raise InvalidInput(
                f"Answers {first[question]} and {i} are to the same question. A number is learned from answers to "
                "different questions, since what is held back must not have been seen: leave one of them out."
            )
        first[question] = i


def _asked(answer: Any) -> str:
    """What the answer is known to have been asked; empty where nothing is known."""
    if isinstance(answer, AnswerRecord):
        return answer.question
    return "" if answer.state is None else answer.state.prompt


def with_learned(answer: Any, learned: Learned) -> Any:
    """A scored answer with its learned number, and how far its state lies from the labelled ones.

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
        found = _applied(learned, readings)
    except CalibratorMismatch as error:
        if isinstance(answer, AnswerRecord):
            raise
        return answer.with_fields(flags=(*answer.flags, Flag(REFUSED, str(error))))
    return _with_scores(answer, found)


def _applied(learned: Learned, readings: Readings) -> dict[str, float]:
    """The scores of one answer: its learned number, and the distance of its state."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = {LEARNED: float(learned.risk(readings)[0])}
        if learned.reads_states:
            found[DISTANCE] = float(learned.distance(readings)[0])
    if not all(map(math.isfinite, found.values())):
        raise CalibratorMismatch(
            "The learned number of this answer is not finite: its hidden state or numbers are far outside those that "
            "were labelled."
        )
    return found


def readings_of(answers: Sequence[Any], names: Sequence[str], *, states: bool) -> Readings:
    """What a learned number reads of answers that are not blank.

    Raises
    ------
    CalibratorMismatch
        An answer lacks one of the numbers, or its state, or holds one that is not finite.
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
    found = [_origin_of(answer) for answer in answers]
    kinds = {replace(one, before=None, after=None) for one in found}
    if len(kinds) > 1:
        raise InvalidInput(
            "These answers have hidden states of different models, layers or kinds (generated, and read from texts). "
            "Score all of them alike."
        )
    prompts = [one.before or "" for one in found]
    before, after = shared_ends(prompts)
    return replace(found[0], before=before, after=after)


def shared_ends(prompts: Sequence[str]) -> tuple[str, str]:
    """What all prompts begin and end with: the form around the question, cut where the question may begin or end."""
    before = _shared_start(prompts)
    if len(set(prompts)) > 1:
        before = before[: max(before.rfind(one) + 1 for one in " \n>]:")]
    rest = [prompt[len(before) :][::-1] for prompt in prompts]
    after = _shared_start(rest)[::-1]
    return before, after[next((i for i, one in enumerate(after) if one in "\n<["), len(after)) :]


def _shared_start(texts: Sequence[str]) -> str:
    """What all texts begin with."""
    first, last = min(texts), max(texts)
    return first[: next((i for i, one in enumerate(first) if last[i : i + 1] != one), len(first))]


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
        raise InvalidInput(f"{_where(answer)}: {name!r} is missing. Score the answers with `semtoken score`.")
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
