"""Any methods of one pass, applied to answers as they come."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from semtoken.core.engine_tokens import TopStep
from semtoken.core.parts.answers import log_product, tokens_touching
from semtoken.core.parts.finding import least_sure_field
from semtoken.core.parts.newness import new_phrases, new_words
from semtoken.core.parts.prose import phrases, without_thinking
from semtoken.core.results import HiddenState, ScoredAnswer
from semtoken.core.results.generation import LAYOUTS, Generation
from semtoken.errors import InvalidInputError
from semtoken.methods import METHODS, score
from semtoken.methods.observers.steps import Observer, Step, readings
from semtoken.methods.observers.table import STATISTICS, LastStates, Statistic
from semtoken.methods.outside import found_method
from semtoken.support.inputs import listed, shown
from semtoken.support.text import did_you_mean

Bounded = tuple[Any, Any, Any]
"""A value, and values below and above the exact one: the same where it is exact itself."""
Corners = Mapping[str, tuple[Any, Any]]
"""Field of `Generation` -> values below and above the exact one."""
OfAnswer = Callable[[ScoredAnswer, str], Any]
"""A scored answer and its question -> the value of a field of `Generation`."""


def new_word_log_probs(answer: ScoredAnswer, question: str) -> Bounded:
    """The log confidence of each word that an answer adds to its question, [words], by the answer's own rules."""
    return _of_ranges(answer, new_words(answer.text, question))


def phrase_log_probs(answer: ScoredAnswer, question: str) -> Bounded:
    """The log confidence of each phrase of an answer, [phrases], by the answer's own rules."""
    return _of_ranges(answer, phrases(without_thinking(answer.text)))


def new_phrase_log_probs(answer: ScoredAnswer, question: str) -> Bounded:
    """The log confidence of each phrase that an answer adds to its question, [phrases]; of JSON, [1] that of its least
    sure field.
    """
    field = least_sure_field(answer)
    if field is None:
        return _of_ranges(answer, new_phrases(answer.text, question))
    with np.errstate(divide="ignore"):
        value, low, high = np.log([[field.confidence or 0.0], *([end] for end in field.bounds or (0.0, 1.0))])
    return value, low, high


def log_confidence(answer: ScoredAnswer, question: str) -> Bounded:
    """The sum of the logs of the agreeing probabilities, with bounds."""
    low, high = answer.log_confidence_interval or (answer.log_confidence, answer.log_confidence)
    return np.float64(answer.log_confidence), np.float64(low), np.float64(high)


def _of_ranges(answer: ScoredAnswer, ranges: list[tuple[int, int]]) -> Bounded:
    """[ranges] log of the product over the tokens that touch each range of characters, with bounds."""
    products = [log_product(tokens) for tokens in tokens_touching(answer.tokens, ranges)]
    value, low, high = np.array(products, dtype=np.float64).reshape(-1, 3).T
    return value, low, high


PLAIN: Mapping[str, OfAnswer] = MappingProxyType(
    {
        "text": lambda answer, question: answer.text,
        "token_ids": lambda answer, question: answer.token_ids,
        "token_texts": lambda answer, question: [token.text for token in answer.tokens],
        "log_probs": lambda answer, question: np.array([token.log_probability for token in answer.tokens]),
    }
)
"""Field of `Generation` -> what reads it from a scored answer, for fields that the answer has exactly."""
BOUNDED: Mapping[str, Callable[[ScoredAnswer, str], Bounded]] = MappingProxyType(
    {
        "new_word_log_probs": new_word_log_probs,
        "phrase_log_probs": phrase_log_probs,
        "new_phrase_log_probs": new_phrase_log_probs,
        "stc_log_score": log_confidence,
        "default_log_score": log_confidence,
    }
)
"""The same for fields that lie between bounds where only the best tokens of each step are known."""
OF_ANSWERS = frozenset({*PLAIN, *BOUNDED})
"""All fields of `Generation` that a scored answer has."""


FROM_BEST = frozenset({"log_probability", "entropy", "best", "row"})
FROM_LOGITS = FROM_BEST | {"logits"}
"""The data that observers can read of a step of which only the best tokens are known (some of it as bounds), and of one
of which all logits are."""


def one_pass_methods() -> list[str]:
    """The names of the methods that need only one pass of the answering model."""
    return [name for name, method in METHODS.items() if set(method.needs) <= OF_ANSWERS | STATISTICS.keys()]


def methods_reading(known: Collection[str]) -> list[str]:
    """The names of the methods of one pass that need nothing of a step beyond this data."""
    return [
        name for name in one_pass_methods() if {reading.what for reading in MethodScores([name]).reads} <= set(known)
    ]


def chosen_methods(names: Sequence[str], known: Collection[str] | None = None) -> tuple[str, ...]:
    """The methods of one pass with these names; `("all",)` are all that need nothing of a step beyond the data `known`
    (None: all there are). `InvalidInputError` as `require_one_pass`.
    """
    if tuple(names) == ("all",):
        return tuple(one_pass_methods() if known is None else methods_reading(known))
    return require_one_pass(names)


def readable_with(names: Sequence[str]) -> frozenset[str]:
    """The data of steps that observers can read if answers are scored by these methods anyway."""
    return FROM_LOGITS | {reading.what for reading in MethodScores(names).reads}


def require_one_pass(names: Sequence[str]) -> tuple[str, ...]:
    """Check that all methods need one pass only; returns their names without repetitions."""
    names = (names,) if isinstance(names, str) else names
    asked = listed(names, "methods")
    if not asked:
        return ()
    found = [found_method(name) for name in asked]
    possible = one_pass_methods()
    for given, name in zip(asked, found, strict=True):
        if name is None:
            hint = did_you_mean(str(given), possible)
            raise InvalidInputError(
                f"There is no method {shown(given)}{hint}; of one pass there are {', '.join(possible)}."
            )
        if name not in possible:
            missing = sorted(set(METHODS[name].needs) - OF_ANSWERS - STATISTICS.keys())
            raise InvalidInputError(
                f"The method {name} needs {', '.join(missing)}, which one generation does not give. "
                f"`semtoken bench run` records it. Of one pass there are {', '.join(possible)}."
            )
    return tuple(dict.fromkeys(filter(None, found)))


class MethodScores(Observer):
    """Records what some methods of one pass need of every answer, and computes their scores of complete answers.

    Where a `depth` in (0, 1] is given, it also keeps the hidden state of every answer's end, of the layer there.
    """

    def __init__(self, names: Sequence[str], depth: float | None = None) -> None:
        self.names = require_one_pass(names)
        self.needs = frozenset(needed for name in self.names for needed in METHODS[name].needs)
        self.watches: dict[str, Statistic] = {
            field: STATISTICS[field]()
            for field in sorted(self.needs)
            if field in STATISTICS and field not in OF_ANSWERS
        }
        self.states = None if depth is None else LastStates(depth)
        self._observers: list[Statistic | LastStates] = [
            *self.watches.values(),
            *([] if self.states is None else [self.states]),
        ]
        self.reads = readings(self._observers)

    def observe(self, step: Step) -> None:
        """Record what the methods need of one decoding step."""
        for watch in self._observers:
            watch.observe(step)

    def forget(self, answer: int) -> None:
        """Drop an answer, so that another one can have its number."""
        for watch in self._observers:
            watch.forget(answer)

    def scored(self, answer: int, response: ScoredAnswer) -> ScoredAnswer:
        """Add the scores of all methods to a complete answer, which has the number `answer` among those observed.

        The words of its question do not count as new in it. `InvalidInputError` if the engine gave too little for a
        method.
        """
        if self.states is not None and (values := self.states.of(answer)) is not None:
            response = response.with_fields(state=HiddenState(values, self.states.depth))
        if not self.names:
            return response
        if not response.n_tokens:  # nothing was written: the worst that a method can say
            return response.with_fields(scores={name: METHODS[name].range[1] for name in self.names})
        middle, corners = self._records(answer, response)
        scores = {name: score(name, middle) for name in self.names}
        bounds = {name: _bounds(name, middle, corners) for name in self.names}
        return response.with_fields(scores=scores, score_bounds={name: pair for name, pair in bounds.items() if pair})

    def _records(self, answer: int, response: ScoredAnswer) -> tuple[Generation, Corners]:
        """The record of one answer; values below and above those that are not exact, by field."""
        question = response.question or ""
        fields = {
            field: PLAIN[field](response, question) for field in {"text", "token_ids"} | self.needs & PLAIN.keys()
        }
        corners: dict[str, tuple[Any, Any]] = {}
        for field in self.needs & BOUNDED.keys():
            fields[field], low, high = BOUNDED[field](response, question)
            if not np.array_equal(low, high):
                corners[field] = low, high
        for field, watch in self.watches.items():
            # of an answer that was cut after it was observed only its own steps count
            kept = slice(response.n_tokens if LAYOUTS[field].per == "token" else None)
            if (value := watch.of(answer)) is None:
                raise InvalidInputError(f"What the engine gave of this answer is not enough to know its {field}.")
            fields[field] = value[kept]
            if (pair := watch.bounds(answer)) is not None:
                corners[field] = pair[0][kept], pair[1][kept]
        start = Generation(fields.pop("text"), fields.pop("token_ids"), question=question)
        return start.with_fields(fields), corners


def _bounds(name: str, middle: Generation, corners: Corners) -> tuple[float, float] | None:
    """Between which numbers the method's exact value lies; None where it is exact itself."""
    method = METHODS[name]
    inexact = [field for field in method.needs if field in corners]
    if not inexact:
        return None
    if not method.monotone:
        raise InvalidInputError(
            f"The method {name} cannot be bounded, and of this answer only the best tokens of each step are known."
        )
    scores = []
    # A monotone formula has its extremes at corners; which ones depends on its direction in each field, so all are
    # tried.
    for ends in itertools.product((0, 1), repeat=len(inexact)):
        fields = {field: corners[field][end] for field, end in zip(inexact, ends, strict=True)}
        scores.append(score(name, middle.with_fields(fields)))
    return min(scores), max(scores)


def scores_of_steps(
    names: Sequence[str], response: ScoredAnswer, steps: Sequence[TopStep], size: int | None
) -> ScoredAnswer:
    """An answer that was scored from the best tokens of its steps, with the scores by further methods of one pass.

    `size` is that of the model's vocabulary, None where it is not known. `InvalidInputError` if a method needs more
    than the steps list.
    """
    if not names:
        return response
    scores = MethodScores(names)
    unknown = {reading.what for reading in scores.reads} - FROM_BEST
    if unknown:
        readers = [field for field, watch in scores.watches.items() if {r.what for r in watch.reads} & unknown]
        needing = [name for name in scores.names if set(METHODS[name].needs) & set(readers)]
        raise InvalidInputError(
            f"{', '.join(needing)} cannot be known from the best tokens of each step, and a reply lists no more. Leave "
            "it out, or score the answer by a model in this process (`semtoken score`)."
        )
    for step in steps:
        scores.observe(_as_step(step, size))
    return scores.scored(0, response)


def _as_step(step: TopStep, size: int | None) -> Step:
    """A step of an engine as observers see it. Tokens are numbered as they are listed: observers compare numbers."""
    # `names[0]` is the chosen token itself; the list of the best ones begins at 1.
    chosen = next((place for place, name in enumerate(step.names) if place and name == step.names[0]), 0)
    listed = sorted(range(1, len(step.names)), key=lambda place: -step.log_probs[place]) + [0] * (chosen == 0)
    values = np.array([step.log_probs[place] for place in listed], dtype=np.float64)
    return Step([0], [chosen], size or 0, None, best=[(np.array(listed), values)])
