"""Typed questions to a server: in one of the two formats for decisions, or as texts of an ordinary API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from semtoken.decisions.answers import AnsweredQuestion, refused
from semtoken.decisions.options import READ_AS_USUAL, ReadingOptions
from semtoken.decisions.questions import Question, as_text
from semtoken.decisions.remote import asked_texts
from semtoken.errors import BackendError, InvalidInput, SemtokenError
from semtoken.files.safe_files import dump_json
from semtoken.payloads import read_payload
from semtoken.payloads.formats import Shape
from semtoken.payloads.formats.registry import shape_at
from semtoken.support.extras import require

Asker: TypeAlias = Callable[[Any, Mapping[str, Question], ReadingOptions], dict[str, AnsweredQuestion]]
"""From a state and questions by name to their answers."""
_Written: TypeAlias = Callable[[Any, Mapping[str, Question]], dict[str, Any]]
_Read: TypeAlias = Callable[[Mapping[str, Question], Any], dict[str, AnsweredQuestion]]
TIMEOUT = 600.0
BEST = 20
"""The most log-probabilities a token that common APIs give."""


def asker_of_endpoint(url: str, model: str | None = None, *, key: str | None = None, top: int = BEST) -> Asker:
    """Questions to a server, in the format that its address says.

    Parameters
    ----------
    url
        The whole address. `/v1/decisions` and `/v1/systemone` are asked as they are. At the address of an ordinary API
        (`/v1/chat/completions`, `/v1/completions`, ...) each question is asked for a text, once in each order of its
        options, and read from the log-probabilities that come with it, so probabilities may be intervals.
    model
        The model's name there, where the server asks for one.
    key
        Its API key.
    top
        Log-probabilities a token that an API for texts is asked for.

    Raises
    ------
    InvalidInput
        The address is that of nothing that can be asked.
    """
    path = urlsplit(url).path.rstrip("/")
    if path.endswith("/decisions"):
        return _asker_of_route(url, model, key, _decisions, _read_decisions)
    if path.endswith("/systemone"):
        return _asker_of_route(url, model, key, _systemone, _read_systemone)
    shape = shape_at(path)
    if shape is None:
        raise InvalidInput(
            f"An endpoint ends with /v1/decisions or /v1/systemone, or it is that of an API for texts such as "
            f"/v1/chat/completions; got {url!r:.80}."
        )
    return _asker_of_texts(url, shape, model, key, top)


def _asker_of_route(url: str, model: str | None, key: str | None, asked: _Written, read: _Read) -> Asker:
    def ask(state: Any, questions: Mapping[str, Question], options: ReadingOptions) -> dict[str, AnsweredQuestion]:
        body = {**_how(options), **({} if model is None else {"model": model}), **asked(state, questions)}
        reply = _posted(url, body, key)
        try:
            return read(questions, reply["answers"])
        except (KeyError, TypeError, ValueError) as error:
            raise BackendError(f"{url} gave no answers to these questions: {error}") from error

    return ask


def _asker_of_texts(url: str, shape: type[Shape], model: str | None, key: str | None, top: int) -> Asker:
    def ask(state: Any, questions: Mapping[str, Question], options: ReadingOptions) -> dict[str, AnsweredQuestion]:
        told = as_text(state)
        asked = asked_texts(told, list(questions.values()), options)
        masses = []
        for text in asked.texts:
            reply = _posted(url, text.request(shape, told, top=top, model=model), key)
            try:
                masses.append(text.masses(read_payload(reply)))
            except SemtokenError as error:
                name = list(questions)[text.number]
                raise BackendError(f"{url} gave no answer to the question {name!r}: {error}") from error
        return dict(zip(questions, asked.answers(masses), strict=True))

    return ask


def _how(options: ReadingOptions) -> dict[str, Any]:
    """The key of this package, which other servers do not know: left out where it says what all do."""
    if options == READ_AS_USUAL:
        return {}
    return {"semtoken": {"reading": options.reading, "orders": "all" if options.orders is None else options.orders}}


def _posted(url: str, body: Mapping[str, Any], key: str | None) -> Any:
    httpx = require("httpx", extra="serve")
    try:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        reply = httpx.post(url, json=body, headers=headers, timeout=TIMEOUT)
        reply.raise_for_status()
        return reply.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        detail = getattr(getattr(error, "response", None), "text", "")
        raise BackendError(f"{url} gave no answers: {error} {detail:.200}".rstrip()) from error


def _decisions(state: Any, questions: Mapping[str, Question]) -> dict[str, Any]:
    from semtoken.decisions.wire import openai

    content = state if isinstance(state, str) else dump_json(state).decode()
    return {"input": content, "questions": [openai.written_question(one, name) for name, one in questions.items()]}


def _systemone(state: Any, questions: Mapping[str, Question]) -> dict[str, Any]:
    from semtoken.decisions.wire import systemone

    return {"state": state, "questions": {name: systemone.written_question(one) for name, one in questions.items()}}


def _read_decisions(questions: Mapping[str, Question], given: Any) -> dict[str, AnsweredQuestion]:
    from semtoken.decisions.wire import openai

    pairs = zip(questions.items(), given, strict=True)
    return {name: _answer(one, openai.read_answer(one, told), told) for (name, one), told in pairs}


def _read_systemone(questions: Mapping[str, Question], given: Any) -> dict[str, AnsweredQuestion]:
    from semtoken.decisions.wire import systemone

    return {name: _answer(one, systemone.read_answer(one, given[name]), given[name]) for name, one in questions.items()}


def _answer(question: Question, probabilities: tuple[float, ...] | None, told: Mapping[str, Any]) -> AnsweredQuestion:
    if probabilities is None:
        return refused(question, "The server refused.")
    block = told.get("semtoken")
    known = block if isinstance(block, Mapping) else {}
    return AnsweredQuestion(
        question, probabilities, allowed_mass=_share(known, "allowed_mass"), order_spread=_share(known, "order_spread")
    )


def _share(block: Mapping[str, Any], key: str) -> float | None:
    value = block.get(key)
    return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else None
