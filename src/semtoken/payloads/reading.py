"""`read_payload`: a reply of any engine, whole or streamed -> Payload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from semtoken.engine_tokens.top_steps import as_object
from semtoken.errors import InvalidInput
from semtoken.payloads.formats.base import Reply, Shape, Told, raise_error
from semtoken.payloads.formats.registry import format_named, reply_within, shape_of_reply
from semtoken.payloads.segments import Payload
from semtoken.payloads.splice import parse_reply, plain
from semtoken.payloads.stream import PayloadStream
from semtoken.support.inputs import real

UNFINISHED = ('"done":false', '"done": false')
"""What the first line of a stream of Ollama's holds."""
UNFINISHED_BYTES = tuple(mark.encode() for mark in UNFINISHED)
STREAM_STARTS = ("data:", "event:", "id:", "retry:", ":")


def read_payload(
    reply: Any,
    format: str | None = None,
    *,
    temperature: float | None = None,
    request: Mapping[str, Any] | None = None,
) -> Payload:
    """Read the reply of an engine or API into a `Payload`.

    Parameters
    ----------
    reply
        JSON text or bytes, a dict, an object of the `openai` client, or a whole stream: its text (server-sent events)
        or its chunks.
    format : str, optional
        One of `known_formats()`; recognised by the fields of the reply by default.
    temperature : float, optional
        The temperature of the request. SGLang's log-probabilities follow it; unless it is known to be 1 (or 0, greedy)
        they are `processed`.
    request : dict, optional
        The request, as it was sent: it names the temperature, and the stop strings that tell where an answer ends.

    Returns
    -------
    Payload
        Choices in segments. Where a segment cannot be scored its `problem` says why.

    Raises
    ------
    InvalidInput
        The reply is not JSON, of no known shape, or has a field of the wrong kind (the message names it).
    BackendError
        The reply reports an error of the server.
    """
    if temperature is not None:
        real(temperature, "temperature", low=0)
    asked = {} if request is None else as_object(request, "request")
    values = plain(reply)
    if isinstance(values, str | bytes | bytearray | memoryview):
        text = values if isinstance(values, str) else bytes(values)
        if is_stream_text(text):
            return _read_stream([text], format, temperature, asked)
        values = parse_reply(text)
    if isinstance(values, list | tuple):
        chunks = [plain(chunk) for chunk in values]
        if is_batch(chunks):
            return _read_replies(chunks, format, temperature, asked)
        return _read_stream(chunks, format, temperature, asked)
    if isinstance(values, Mapping):
        raise_error(values)
        reply, shape = (values, None) if format is not None else reply_within(values)
        return _read_replies([reply], format, temperature, asked, shape)
    if isinstance(values, Iterable):
        return _read_stream(values, format, temperature, asked)
    raise InvalidInput(f"A reply must be JSON, a dict or a client's object. Got {type(reply).__name__} instead.")


def _read_replies(
    replies: Sequence[Reply],
    format: str | None,
    temperature: float | None,
    asked: Reply,
    found: type[Shape] | None = None,
) -> Payload:
    """Read a whole reply, or the replies of a batch; `found`: the shape, where it is known by now."""
    for reply in replies:
        raise_error(reply)
    given = None if format is None else format_named(format)
    shape = (given.shape if given is not None else found or shape_of_reply(replies))()
    shape.told = Told(asked, temperature, None if given is None else given.engine)
    for delta in shape.whole(replies):
        if delta.choice in shape.sums:
            raise InvalidInput("Two choices of the reply have the same index.")
        shape.add(delta)
    if not shape.sums:
        raise InvalidInput("The reply holds no choices: there is nothing to read.")
    return shape.payload()


def is_stream_text(text: str | bytes) -> bool:
    """Whether a text is a stream rather than JSON: server-sent events, or lines of JSON of which the first goes on."""
    start = text[:64].decode("utf-8", "replace") if isinstance(text, bytes) else text[:64]
    if not (begin := start.lstrip("\ufeff \r\n")).startswith("{"):
        return begin.startswith(STREAM_STARTS)
    end, marks = (b"\n", UNFINISHED_BYTES) if isinstance(text, bytes) else ("\n", UNFINISHED)
    line = text.partition(end)[0]  # type: ignore[arg-type]
    return any(mark in line for mark in marks)  # type: ignore[operator]


def is_batch(values: list[Any]) -> bool:
    """Whether a list holds whole replies (SGLang and llama.cpp answer so to several prompts), not chunks."""
    if not values or not all(isinstance(value, Mapping) for value in values):
        return False
    if all(isinstance(value.get("meta_info"), Mapping) for value in values):
        names = [str(value["meta_info"].get("id", i)) for i, value in enumerate(values)]
        return len(set(names)) == len(names)  # the chunks of one reply share its id
    return all(value.get("stop") is True or ("generated_text" in value and "token" not in value) for value in values)


def _read_stream(chunks: Iterable[Any], format: str | None, temperature: float | None, asked: Reply) -> Payload:
    stream = PayloadStream(format, temperature=temperature, request=asked)
    try:
        several = iter(chunks)
    except Exception as error:  # an array without dimensions, an object that raises what it likes
        raise InvalidInput(f"A reply must be JSON, a dict or a client's object: {error}.") from error
    for chunk in several:
        stream.feed(chunk)
    return stream.finish()
