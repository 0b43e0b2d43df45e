"""The shapes of typed questions over HTTP, and when a refusal means that a server is to be asked in another one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from semtoken.decisions.answers import Answer
from semtoken.decisions.questions import Question, ReadingOptions
from semtoken.decisions.wire import openai, sglang, systemone
from semtoken.decisions.wire.extension import KEY, WireRequest, answers_in, block, body_of
from semtoken.errors import InvalidInputError

NO_ROUTE = (404, 405)
"""The statuses with which a server may say that it has no such path."""
REFUSALS = (400, 422, 501)
"""The statuses with which a server may say that it wants to be asked in another shape."""
_OTHER_FIELDS = re.compile(
    r"extra_forbidden|extra (inputs|fields|keys)|unknown (field|key|name|parameter|argument)|unrecogni[sz]ed|"
    r"unexpected (field|key|property|keyword|parameter)|not permitted|additional propert|field required|"
    r"missing (required |field|key|\W?(id|question|instructions|state)\W)|use /v1/|"
    r"(decision|systemone|system one)\w*\W.{0,60}not support|not support.{0,60}(decision|systemone|system one)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class QuestionShape:
    """One of the shapes of typed questions: where they are asked, and how both sides read and write it."""

    name: str
    what: str
    """The name of the shape in messages."""
    path: str
    """The path below `/v1`."""
    parse: Callable[[Mapping[str, Any]], WireRequest]
    """Reads the body of a request."""
    written_answer: Callable[[Answer, WireRequest], dict[str, Any]]
    """Writes the answer to a question of a request."""
    frame: Callable[[str, Any, int], dict[str, Any]]
    """Writes a reply of the model with this name with some answers, for which it read so many tokens."""
    body: Callable[[Any, Mapping[str, Question]], dict[str, Any]]
    """Makes the body of a request, without the model's name, from a state and questions by name."""
    read_answer: Callable[[Question, Any], Sequence[float] | None]
    by_name: bool = True
    """True if answers stand by the names of their questions, or in their order."""

    def reply(
        self,
        request: WireRequest,
        model: str,
        answers: Sequence[Answer],
        options: ReadingOptions | None,
        more: Sequence[Mapping[str, Any]],
        input_tokens: int,
    ) -> dict[str, Any]:
        """The reply, with semtoken's block and `more` next to each answer.

        `InvalidInputError` if a question has no answer, which shapes that answer by name cannot express.
        """
        written = []
        for name, answer, extra in zip(request.names, answers, more, strict=True):
            if self.by_name and answer.refusal is not None:
                raise InvalidInputError(f"Question {name!r}: {answer.refusal}")
            written.append({**self.written_answer(answer, request), KEY: block(answer, options, extra)})
        by_name = dict(zip(map(str, request.names), written, strict=True)) if self.by_name else written
        return self.frame(model, by_name, input_tokens)

    def places(self, names: Iterable[str | None]) -> list[tuple[str, str | int]]:
        """The places of the answers to questions with these names in a reply."""
        return [("answers", str(name) if self.by_name else number) for number, name in enumerate(names)]

    def answers(self, questions: Mapping[str, Question], reply: Any) -> list[Answer]:
        """The answers in a server's reply; raises `InvalidInputError` where they are none."""
        return answers_in(list(questions.values()), self.places(questions), reply, self.read_answer)


OPENAI = QuestionShape(
    "decisions",
    "OpenAI's shape of /v1/decisions",
    "/decisions",
    openai.parse,
    lambda answer, _: openai.written_answer(answer),
    openai.reply,
    openai.body,
    openai.read_answer,
    by_name=False,
)
SYSTEM_ONE = QuestionShape(
    "systemone",
    "/v1/systemone",
    "/systemone",
    systemone.parse,
    lambda answer, asked: systemone.written_answer(
        answer, asked.body["questions"][answer.question.name].get("criteria")
    ),
    systemone.reply,
    systemone.body,
    systemone.read_answer,
)
SGLANG = QuestionShape(
    "sglang",
    "SGLang's shape of /v1/decisions",
    "/decisions",
    sglang.parse,
    lambda answer, _: sglang.written_answer(answer),
    sglang.reply,
    sglang.body,
    sglang.read_answer,
)
QUESTION_SHAPES = (OPENAI, SYSTEM_ONE, SGLANG)
"""All of them, in the order in which they are tried."""
SERVED_SHAPES = (OPENAI, SYSTEM_ONE)
"""One for each path; at that of decisions the body says which of two it is."""


def question_shape_at(path: str) -> QuestionShape | None:
    """The shape in which servers answer at a path; None if there is none.

    >>> question_shape_at("/openai/v1/decisions").name, question_shape_at("/v1/models")
    ('decisions', None)
    """
    return next((shape for shape in SERVED_SHAPES if path.endswith(f"/v1{shape.path}")), None)


def parsed_request(shape: QuestionShape, body: bytes | Mapping[str, Any]) -> tuple[QuestionShape, WireRequest]:
    """A request at the path of a shape, with the shape that it is in: SGLang's, if its questions have ids.

    `WireError` if the body does not have the shape, `InvalidInputError` if it has, but cannot be answered.
    """
    parts = body_of(body)
    spoken = SGLANG if shape is OPENAI and sglang.is_meant(parts) else shape
    return spoken, spoken.parse(parts)


def says_no_route(status: int, said: str) -> bool:
    """Return True if a refusal means that the path does not exist, rather than that the model does not.

    >>> says_no_route(404, "Not Found"), says_no_route(404, "The model `m` does not exist")
    (True, False)
    """
    # vLLM and OpenAI answer 404 to a model that they do not know, too.
    return status in NO_ROUTE and "model" not in said.lower()


def wants_another_shape(status: int, said: str) -> bool:
    """True if a refusal means that the server wants other fields, or cannot answer typed questions with this model.

    >>> wants_another_shape(422, "questions.0.id: Field required"), wants_another_shape(400, "The state is empty")
    (True, False)
    """
    return status == 501 or (status in REFUSALS and _OTHER_FIELDS.search(said) is not None)
