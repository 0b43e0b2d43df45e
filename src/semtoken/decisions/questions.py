"""Typed questions about a state (is it so, which of these, how much), and how their probabilities are read.

A question knows its options and nothing of wire formats (`wire`) or of prompts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal, TypeAlias

from semtoken.choices import Reading
from semtoken.errors import InvalidInputError
from semtoken.support.inputs import shown, text, whole

MOST_OPTIONS = 255
"""Most options of a choice: the limit of OpenAI's API."""
MOST_LEVELS = 10
"""Most levels of a score: the limit of OpenAI's API."""

Value: TypeAlias = str | bool | int
"""The value of an answer: that of a choice, true or false, or the number of a level."""
QuestionKind = Literal["predicate", "choice", "score"]


@dataclass(frozen=True)
class Option:
    """One of the answers that a question allows."""

    value: Value
    """The answer, if this option is chosen. True and "true" are two values."""
    name: str
    """The option's text, as the model reads it."""
    description: str = ""
    """When this option is right, for the prompt; may be empty."""

    @property
    def line(self) -> str:
        """The option as a line of a prompt: its name and description."""
        return f"{self.name}: {self.description}" if self.description else self.name


@dataclass(frozen=True)
class Predicate:
    """A yes-or-no question about a state. Its answer is the probability of yes, in [0, 1].

    `InvalidInputError` if a text is missing or is not one.

    >>> [option.name for option in Predicate("Is a refund requested?").options]
    ['Yes', 'No']
    """

    kind: ClassVar[QuestionKind] = "predicate"
    """The kind of question, as requests and files name it."""

    instructions: str
    """The question, such as "Is a refund requested?"."""
    when_true: str = ""
    """When the answer is yes."""
    when_false: str = ""
    """When the answer is no."""
    name: str | None = None
    """The name of the question in results; None: its number."""

    def __post_init__(self) -> None:
        _check_texts(self, "instructions", "when_true", "when_false")

    @property
    def options(self) -> tuple[Option, ...]:
        """The two answers that a predicate can have."""
        return Option(True, "Yes", self.when_true), Option(False, "No", self.when_false)


@dataclass(frozen=True)
class Choice:
    """A question about which of several options is right. Its answer is the value of the most probable one.

    `InvalidInputError` if there are no options, more than 255, or one occurs twice. True and "true" are two options.
    """

    kind: ClassVar[QuestionKind] = "choice"
    """The kind of question, as requests and files name it."""

    instructions: str
    """The question, such as "Which team should get this message?"."""
    choices: Sequence[Any]
    """The options: texts, true or false, or `Option` objects with a description; a tuple of `Option` once made."""
    name: str | None = None
    """The name of the question in results; None: its number."""

    def __post_init__(self) -> None:
        _check_texts(self, "instructions")
        options = tuple(map(_option, _ordered_options(self.choices, "A choice", "options", MOST_OPTIONS)))
        # With the type, since a set takes True and 1 for one.
        if len({(type(option.value), option.value) for option in options}) < len(options):
            raise InvalidInputError("A choice has the same option twice: each must be unique.")
        object.__setattr__(self, "choices", options)

    @property
    def options(self) -> tuple[Option, ...]:
        """The choices, in order."""
        return tuple(self.choices)


@dataclass(frozen=True)
class Score:
    """A question about how much, with n levels from least to most. Its answer is the expected level, 0 to n - 1.

    `InvalidInputError` if there is no level, or more than 10.
    """

    kind: ClassVar[QuestionKind] = "score"
    """The kind of question, as requests and files name it."""

    instructions: str
    """The question, such as "How urgent is this message?"."""
    levels: Sequence[Any]
    """Texts or `Option` objects, least first. The value of each becomes the number of its level, from 0 on."""
    name: str | None = None
    """The name of the question in results; None: its number."""

    def __post_init__(self) -> None:
        _check_texts(self, "instructions")
        levels = _ordered_options(self.levels, "A score", "levels", MOST_LEVELS)
        object.__setattr__(self, "levels", tuple(_level(i, level) for i, level in enumerate(levels)))

    @property
    def options(self) -> tuple[Option, ...]:
        """The levels, least first."""
        return tuple(self.levels)


Question: TypeAlias = Predicate | Choice | Score
"""A typed question: what its answer may be is known beforehand."""


DEFAULT_READING: Reading = "labels"
"""The reading unless a caller says otherwise; docs/decisions.md says what was measured."""


@dataclass(frozen=True)
class ReadingOptions:
    """The way to read the probabilities of options: by labels or words, and in how many orders; else
    `InvalidInputError`.
    """

    reading: Reading = DEFAULT_READING
    """`labels`: the probability of each option's letter. `words`: that of its own words."""
    orders: int | None = 1
    """The number of orders of the options that are read and averaged; None: all."""

    def __post_init__(self) -> None:
        if not isinstance(self.reading, str) or self.reading not in ("labels", "words"):
            raise InvalidInputError(f"'reading' must be 'labels' or 'words', got {shown(self.reading)}.")
        if self.orders is None:
            return
        try:
            # a plain number also for one of NumPy's, which JSON does not hold
            object.__setattr__(self, "orders", whole(self.orders, "orders", low=1))
        except InvalidInputError as error:
            raise InvalidInputError(
                f"'orders' must be a whole number from 1 on, or all, got {shown(self.orders)}."
            ) from error

    def values(self) -> dict[str, Any]:
        """Plain values, as requests and files have them."""
        return {"reading": self.reading, "orders": self.orders or "all"}

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> ReadingOptions:
        """From plain values; what they do not say is as usual. `InvalidInputError` if they say something else."""
        orders = values.get("orders", 1)
        return cls(values.get("reading", DEFAULT_READING), None if orders == "all" else orders)


READ_AS_USUAL = ReadingOptions()


def as_text(content: Any) -> str:
    """The text that the model reads: a text as it is, "" for None, else JSON; `InvalidInputError` without UTF-8."""
    if content is None:
        return ""
    try:
        written = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, allow_nan=False)
        written.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"A text holds half a character (a lone surrogate): {ascii(content)[:60]}.") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"This cannot be written as JSON: {type(content).__name__!a}.") from error
    return written


def question_values(question: Question) -> dict[str, Any]:
    """A question as plain values: what its fingerprint and a calibrator's file hold."""
    listed = [
        {"value": option.value, "name": option.name, "description": option.description} for option in question.options
    ]
    return {"kind": question.kind, "instructions": question.instructions, "options": listed}


def question_from(values: Any, name: str | None = None) -> Question:
    """A question from the plain values of a file; `InvalidInputError` if they do not describe one."""
    try:
        options = [Option(option["value"], option["name"], option["description"]) for option in values["options"]]
        if values["kind"] == "predicate":
            yes, no = options
            return Predicate(values["instructions"], yes.description, no.description, name)
        if values["kind"] == "choice":
            return Choice(values["instructions"], options, name)
        if values["kind"] == "score":
            return Score(values["instructions"], options, name)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"A question cannot be read: {error}") from error
    raise InvalidInputError(f"A question is a predicate, a choice or a score, not {values['kind']!a}.")


def same_value(one: Any, other: Any) -> bool:
    """Return True if two values of options are the same; true is not 1, and not "true"."""
    # In Python True == 1, and a level 1 is no yes.
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _option(given: Any) -> Option:
    if isinstance(given, bool):
        return Option(given, "true" if given else "false")
    if not isinstance(given, Option):
        name = _checked_text(given, "an option")
        return Option(name, name)
    if not isinstance(given.value, str | bool):
        raise InvalidInputError(f"The value of an option is a text, true or false; got {type(given.value).__name__}.")
    return _named(given.value, given, "an option")


def _level(number: int, given: Any) -> Option:
    return _named(number, given if isinstance(given, Option) else Option(number, given), "a level")


def _named(value: Value, given: Option, what: str) -> Option:
    return Option(value, _checked_text(given.name, what), _checked_text(given.description, "a description"))


def _checked_text(given: Any, what: str) -> str:
    """A text that can be written."""
    return as_text(text(given, what))


def _ordered_options(given: Any, what: str, of_what: str, most: int) -> tuple[Any, ...]:
    """Options in their order, from anything that has one."""
    # A text is iterable, too, and sets have no order: both are mistakes here, not lists of options.
    if isinstance(given, str | bytes | Mapping | Set) or not isinstance(given, Iterable):
        raise InvalidInputError(f"{what} needs a list of {of_what}; got {type(given).__name__}.")
    try:
        # One more than allowed is enough to refuse, and a generator may have no end.
        options = tuple(islice(given, most + 1))
    except Exception as error:  # an array without dimensions says that it is iterable
        raise InvalidInputError(f"{what} needs a list of {of_what}; got {type(given).__name__}.") from error
    if not 1 <= len(options) <= most:
        raise InvalidInputError(
            f"{what} needs 1 to {most} {of_what}; got {'none' if not options else f'more than {most}'}."
        )
    return options


def _check_texts(question: Question, *names: str) -> None:
    for name in names:
        _checked_text(getattr(question, name), name)
    if question.name is not None:
        _checked_text(question.name, "the name of a question")
