"""`question_of`: the question in whatever holds one, be it a request of any API, a saved line, or a body inside one.

Every way to a score asks here, so that one answer has one confidence. A chat's question is the text of the user's last
message. Of a prompt that is a text it is the last paragraph, which leaves out examples before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

_MESSAGES = ("messages", "input", "inputs", "contents", "prompt", "ai.prompt.messages")
"""Fields with chat messages: OpenAI's and Bedrock's, of Responses, of MLflow, of Gemini and Vertex AI, the AI SDK's."""
_TEXTS = ("input", "inputs", "contents", "prompt", "inputText")
"""Fields with a text; `prompt` and `inputs` may be one for a model without a chat form, with examples in it."""
_WRAPPERS = (
    "request",
    "request_body",
    "proxy_server_request",
    "body",
    "modelInput",
    "inputBodyJson",
    "instance",
    "input",
    "inputs",
    "kwargs",
    "params",
    "json",
    "attributes",
    "input.value",
    "mlflow.spanInputs",
    "postData",
    "raw",
    "text",
)
"""Fields that hold a request: of saved lines, batch files, logs of gateways, traces, clients."""
_ASKING = frozenset(("question", "sampling_params", *_MESSAGES, *_TEXTS, *_WRAPPERS))
"""The fields that a question is found by: a value with none of them holds no question."""
_USERS = ("user", "human", "HumanMessage", "USER")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_LABEL = re.compile(r"\w+ ?:\s*")
"""The word before the place of the answer, such as "Answer:"."""
_DEEPEST = 4
"""Requests inside of saved lines inside of records; a value nested deeper holds no request."""


def question_of(value: Any, choice: int = 0) -> str | None:
    """The question of a request, a body, a saved line or chat messages; None if it is not known, as for token ids.

    Of a request with several prompts `choice` says which answer is meant, counted from 0.
    """
    return _found(value, choice, _DEEPEST)


def _found(value: Any, choice: int, deepest: int) -> str | None:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return _last_of_user(value)
    if not isinstance(value, Mapping) or not deepest or _ASKING.isdisjoint(value):
        return None
    if isinstance(asked := value.get("question"), str):
        return asked or None
    for field in _MESSAGES:
        if said := _last_of_user(_opened(value.get(field))):
            return said
    for field in _TEXTS:
        given = value.get(field)
        if (request := _opened(given)) is not given and (said := _found(request, choice, deepest - 1)):
            return said
        if isinstance(given, str | list | tuple) and (said := _text(_of_choice(given, choice, value.get("n")))):
            return last_paragraph(said) if field in ("prompt", "inputs") else said
    if "sampling_params" in value and (said := _text(_of_choice(value.get("text"), choice, None))):
        return last_paragraph(said)  # SGLang's; its replies have a `text`, too
    inner = (_found(_opened(value[field]), choice, deepest - 1) for field in _WRAPPERS if field in value)
    return next((said for said in inner if said), None)


def _opened(value: Any) -> Any:
    """A request, or its messages, that were saved as a text of JSON; any other value as it is."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _of_choice(value: Any, choice: int, copies: Any) -> Any:
    """One of several prompts, each of which has `n` answers in a row; a value that is no list as it is."""
    if not isinstance(value, list | tuple):
        return value
    each = copies if isinstance(copies, int) and copies > 0 else 1
    return value[choice // each] if 0 <= choice // each < len(value) else None


def last_paragraph(prompt: str) -> str:
    """The question in a prompt that is a text: its last paragraph, which leaves out examples before it."""
    paragraphs = _PARAGRAPHS.split(prompt.strip().replace("\r\n", "\n"))
    while len(paragraphs) > 1 and _LABEL.fullmatch(paragraphs[-1]):
        del paragraphs[-1]
    return paragraphs[-1]


def _last_of_user(messages: Any) -> str | None:
    """The text of the user's last message; None if these are no messages, or none is a user's."""
    if isinstance(messages, Mapping):
        messages = [messages]
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes | bytearray):
        return None
    said = [message for message in _flat(messages) if _is_user(message)]
    return _text(said[-1].get("content", said[-1].get("parts"))) if said else None


def _flat(messages: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """The messages of a list, or of the lists in it, as LangChain has them."""
    for message in messages:
        if isinstance(message, Mapping):
            inner = message.get("kwargs")  # of a serialized object
            yield {**inner, "type": inner.get("type", _class_of(message))} if isinstance(inner, Mapping) else message
        elif isinstance(message, list | tuple):
            yield from _flat(message)


def _class_of(message: Mapping[str, Any]) -> Any:
    path = message.get("id")
    return path[-1] if isinstance(path, list) and path else None


def _is_user(message: Mapping[str, Any]) -> bool:
    """Return True if a user wrote a message: Gemini's need no role for that."""
    return message.get("role", message.get("type", "user" if "parts" in message else None)) in _USERS


def _text(content: Any) -> str | None:
    """A text, or the texts of a content in parts, one a line; None if there is none."""
    if isinstance(content, str):
        return content or None
    if isinstance(content, Mapping):
        content = content.get("parts", [content])
    parts = content if isinstance(content, list | tuple) else ()
    texts = (
        part if isinstance(part, str) else part.get("text") if isinstance(part, Mapping) else None for part in parts
    )
    return "\n".join(text for text in texts if isinstance(text, str)) or None
