"""Questions of any form about a state of any form: what `STC.decide` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from semtoken.backends.base import Backend
from semtoken.decisions.answers import AnsweredQuestion
from semtoken.decisions.deciding import Inquiry, decide
from semtoken.decisions.options import ReadingOptions
from semtoken.decisions.questions import Choice, Predicate, Question, Score, as_text
from semtoken.errors import InvalidInput
from semtoken.support.inputs import instance, listed


def decide_about(
    backend: Backend, state: Any, questions: Sequence[Any] | Mapping[str, Any], options: ReadingOptions
) -> list[AnsweredQuestion] | dict[str, AnsweredQuestion]:
    """As `STC.decide`: questions of any form about a state of any form.

    Raises
    ------
    InvalidInput
        What is given is no list of questions, or a question is none.
    """
    instance(options, ReadingOptions, "options")
    named: Mapping[Any, Any] = (
        questions if isinstance(questions, Mapping) else dict(enumerate(listed(questions, "questions")))
    )
    asked = [as_question(question, name) for name, question in named.items()]
    found = decide(backend, [Inquiry(as_text(state), asked, options)])[0].answers
    return dict(zip(named, found, strict=True)) if isinstance(questions, Mapping) else list(found)


def as_question(question: Any, name: Any = None) -> Question:
    """A question as an object; dictionaries are read as the two wire formats have them.

    Raises
    ------
    InvalidInput
        It is neither.
    """
    if isinstance(question, Predicate | Choice | Score):
        return question
    if not isinstance(question, Mapping):
        raise InvalidInput(
            f"A question is a Predicate, a Choice, a Score, or a dictionary; got {type(question).__name__}."
        )
    from semtoken.decisions.wire import openai, systemone

    label = name if isinstance(name, str) else None
    kind = question.get("type")
    if "criteria" in question or (isinstance(kind, str) and kind == "noul"):
        return systemone.read_question(label or str(name), question)
    return openai.read_question(question, label)
