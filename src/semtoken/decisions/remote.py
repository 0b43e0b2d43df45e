"""Questions to a model behind an API that gives texts with log-probabilities: one request a question and order.

    asked = asked_texts(questions, options)
    for each of asked.texts: body = text.request(shape, state, ...); send it; masses = text.masses(reply)
    answers = asked.answers(masses)

Nothing here sends anything. How a request asks and what a reply says is the business of `semtoken.payloads`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from semtoken.decisions.answers import AnsweredQuestion, OptionMasses, answered, refused
from semtoken.decisions.listed import listed_masses, tokens_to_read
from semtoken.decisions.options import ReadingOptions
from semtoken.decisions.prompts import OrderedQuestion, continued_text, orders_of, prompt_text, without_markup
from semtoken.decisions.questions import Question
from semtoken.decisions.spellings import surfaces_of
from semtoken.errors import InvalidInput
from semtoken.payloads import Payload
from semtoken.payloads.formats import ProbeQuestion, Shape
from semtoken.support.arrays import FloatArray

MOST_TOKENS = 16
"""Tokens of an option that are read; a longer one keeps an interval."""
MOST_TEXTS = 1024
"""Requests for the questions of one state."""
MOST_SENT = 2**26
"""Characters of all these requests, about."""
NOT_LISTED = "None of its options is surely among the tokens that the server lists, so nothing tells them apart."

Masses = tuple[FloatArray, FloatArray]
"""Least and greatest mass of each option, in the order of the question."""


@dataclass(frozen=True)
class AskedText:
    """One question in one order."""

    number: int
    """The place of the question among those that were asked."""
    shown: OrderedQuestion

    @property
    def exact(self) -> bool:
        """Labels count as they stand."""
        return self.shown.reading == "labels"

    def request(
        self,
        shape: type[Shape],
        state: str,
        *,
        top: int | None = None,
        model: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The body of a request.

        Parameters
        ----------
        shape
            The API that is asked.
        state
            What the question is about.
        top
            Log-probabilities a token; None: somebody else asks for them.
        model
            The model's name at the server.
        extra
            Further fields of the request.
        """
        text = without_markup(prompt_text(state, self.shown))
        length = self._length
        question = ProbeQuestion(
            text if shape.is_chat else continued_text(text),
            max_tokens=length,
            top=top,
            temperature=1.0 if length == 1 else 0.0,  # 1 changes no list; further ones are read behind the likeliest
            extra=extra or {},
            model=model,
        )
        return shape.body(question)

    @property
    def _length(self) -> int:
        """Tokens of the answer that can matter."""
        return 1 if self.shown.question.kind == "predicate" else tokens_to_read(self.shown.answers, MOST_TOKENS)

    def masses(self, reply: Payload) -> Masses:
        """Least and greatest mass of each option.

        Raises
        ------
        InvalidInput
            The reply has no log-probabilities.
        InvalidLogits
            It has something else in their place.
        """
        segments = reply.choices[0].segments
        steps = [step for segment in segments for step in segment.steps]
        if not steps:
            raise InvalidInput(segments[0].problem or "The reply holds no log-probabilities.")
        low, high = listed_masses(self.shown.answers, steps, exact=self.exact)
        back = np.argsort(self.shown.order)
        return low[back], high[back]


@dataclass(frozen=True)
class AskedTexts:
    """The questions about one state, as requests."""

    questions: Sequence[Question]
    texts: Sequence[AskedText]
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Why a question cannot be asked, by its number."""

    def answers(self, masses: Sequence[Masses]) -> list[AnsweredQuestion]:
        """The answers that the masses of all texts give."""
        rows: dict[int, list[Masses]] = {}
        for text, pair in zip(self.texts, masses, strict=True):
            rows.setdefault(text.number, []).append(pair)
        return [self._answer(number, rows.get(number, [])) for number in range(len(self.questions))]

    def _answer(self, number: int, rows: Sequence[Masses]) -> AnsweredQuestion:
        question = self.questions[number]
        if number in self.refusals:
            return refused(question, self.refusals[number])
        low, high = (np.stack(side) for side in zip(*rows, strict=True))
        if not low.any():
            return refused(question, NOT_LISTED)
        return answered(question, OptionMasses(low, high))


def asked_texts(state: str, questions: Sequence[Question], options: ReadingOptions) -> AskedTexts:
    """The requests for some questions about a state.

    Raises
    ------
    InvalidInput
        They are too many, or too long together.
    """
    texts: list[AskedText] = []
    refusals: dict[int, str] = {}
    size = 0
    for number, question in enumerate(questions):
        shown = [OrderedQuestion(question, order, options.reading) for order in orders_of(question, options.orders)]
        try:
            surfaces_of(shown[0].answers, exact=options.reading == "labels")
        except InvalidInput as error:
            refusals[number] = str(error)
            continue
        texts += [AskedText(number, one) for one in shown]
        size += len(shown) * (len(state) + _size(question))
        if len(texts) > MOST_TEXTS or size > MOST_SENT:
            raise InvalidInput(
                f"The questions take more than {MOST_TEXTS:,} requests, or {MOST_SENT:,} characters in all of them. "
                "Ask fewer at a time, or in fewer orders."
            )
    return AskedTexts(questions, texts, refusals)


def _size(question: Question) -> int:
    """Characters of a question, about."""
    return len(question.instructions) + sum(len(option.line) for option in question.options)
