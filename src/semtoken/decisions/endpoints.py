"""Typed questions to a server, in whichever format it speaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from semtoken.decisions.answers import AnsweredQuestion, refused
from semtoken.decisions.options import READ_AS_USUAL, ReadingOptions
from semtoken.decisions.questions import Question
from semtoken.errors import BackendError, InvalidInput
from semtoken.files.safe_files import dump_json
from semtoken.support.extras import require

Asker: TypeAlias = Callable[[Any, Mapping[str, Question], ReadingOptions], dict[str, AnsweredQuestion]]
"""From a state and questions by name to their answers."""
TIMEOUT = 600.0


def asker_of_endpoint(url: str, model: str | None = None, *, key: str | None = None) -> Asker:
    """Questions to a server, at the address of its `/v1/decisions` or `/v1/systemone`.

    Parameters
    ----------
    url
        The whole address.
    model
        The model's name there, where the server asks for one.
    key
        Its API key.

    Raises
    ------
    InvalidInput
        The address ends otherwise.
    """
    path = url.rstrip("/").rpartition("/")[2]
    if path not in ("decisions", "systemone"):
        raise InvalidInput(f"An endpoint ends with /v1/decisions or /v1/systemone, got {url!r:.80}.")
    asked, read = (_decisions, _read_decisions) if path == "decisions" else (_systemone, _read_systemone)

    def ask(state: Any, questions: Mapping[str, Question], options: ReadingOptions) -> dict[str, AnsweredQuestion]:
        body = {**_how(options), **({} if model is None else {"model": model}), **asked(state, questions)}
        reply = _posted(url, body, key)
        try:
            return read(questions, reply["answers"])
        except (KeyError, TypeError, ValueError) as error:
            raise BackendError(f"{url} gave no answers to these questions: {error}") from error

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
