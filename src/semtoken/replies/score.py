"""A reply of any engine, whole or streamed -> Reply (`read_reply`) -> its answers, scored (`score_reply`)."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, get_args

from semtoken.choices import Equality, Preset, SegmentKind
from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.core.api import tokens_or_none
from semtoken.core.engine_tokens import check_shared_vocabulary
from semtoken.core.growing import GrowingAnswer
from semtoken.core.results import Answers, Distribution, ScoredAnswer
from semtoken.core.rules import ScoringRules, as_rules
from semtoken.core.scored_token import Flag
from semtoken.core.scorer import Scorer, scorer_for
from semtoken.errors import BackendError, InvalidInputError, SemtokenError, VocabularyMismatch
from semtoken.methods.observers.method_scores import require_one_pass, scores_of_steps
from semtoken.replies.formats.fields import RawReply, raise_error
from semtoken.replies.formats.registry import format_named, is_chunk, known_shapes
from semtoken.replies.formats.within import STREAM_STARTS, Found, opened, replies_within
from semtoken.replies.reading import ReplyContext, read_whole
from semtoken.replies.segments import FORBIDDEN, Reply, ReplyChoice, Segment
from semtoken.replies.stream import ReplyStream
from semtoken.support.files.safe_files import LARGEST_REPLIES, read_file
from semtoken.support.inputs import one_of, real, text
from semtoken.support.plain_values import parse_reply, plain
from semtoken.support.untrusted import as_object

SEGMENTS = get_args(SegmentKind)
UNFINISHED = ('"done":false', '"done": false')
"""The mark of the first line of a stream of Ollama's."""
UNFINISHED_BYTES = tuple(mark.encode() for mark in UNFINISHED)
FILE_ENDINGS = (".json", ".jsonl", ".ndjson", ".sse", ".txt")
"""Endings of texts that are the path of a reply; no reply of an API ends so."""
PRINTED_BYTES = ("b'", 'b"')
TRANSCRIPT_STARTS = ("HTTP/", "* ", "> ", "< ", *PRINTED_BYTES)
"""The beginnings of lines that curl prints beside the body of a reply, and of bytes that Python prints."""
TRANSCRIPT_STARTS_BYTES = tuple(mark.encode() for mark in TRANSCRIPT_STARTS)
BODY_STARTS = ("data:", "event:", "{", "[")


def read_reply(
    reply: Any,
    format: str | None = None,
    *,
    temperature: float | None = None,
    request: Mapping[str, Any] | None = None,
) -> Reply:
    """Read the reply of an engine or API into a `Reply`.

    Parameters
    ----------
    reply
        JSON text or bytes, a dict, an object of the `openai` client, or a whole stream: its text (server-sent events)
        or its chunks.
    format : str, optional
        One of `known_formats()`; recognized by the fields of the reply by default.
    temperature : float, optional
        The temperature of the request. SGLang's log-probabilities follow it; unless it is known to be 1 (or 0, greedy)
        they are `processed`.
    request : dict, optional
        The request, as it was sent: it names the temperature, and the stop strings that show where an answer ends.

    Returns
    -------
    Reply
        Choices in segments. Where a segment cannot be scored its `problem` says why.

    Raises
    ------
    InvalidInputError
        The reply is not JSON, of no known shape, or has a field of the wrong kind (the message names it).
    BackendError
        The reply reports an error of the server.
    """
    if temperature is not None:
        real(temperature, "temperature", low=0)
    asked = {} if request is None else as_object(request, "request")
    values = plain(reply)
    if isinstance(values, str | bytes | bytearray | memoryview):
        text = body_of(values if isinstance(values, str) else bytes(values))
        if is_stream_text(text):
            return _read_stream([text], format, temperature, asked)
        values = opened(parse_reply(text))  # which may be a text of JSON once more
    if isinstance(values, list | tuple):
        chunks = [plain(chunk) for chunk in values]
        if is_batch(chunks):
            return _read_named(chunks, format, ReplyContext(asked, temperature))
        if format is None and _holds_replies(chunks):
            return _read_export(chunks, temperature, asked)
        return _read_stream(chunks, format, temperature, asked)
    if isinstance(values, Mapping):
        if format is not None:
            return _read_named([values], format, ReplyContext(asked, temperature, line=values))
        return _read_export(values, temperature, asked)
    if isinstance(values, Iterable):
        return _read_stream(values, format, temperature, asked)
    raise InvalidInputError(f"A reply must be JSON, a dict or a client's object. Got {type(reply).__name__} instead.")


def _read_named(replies: Sequence[RawReply], format: str | None, context: ReplyContext) -> Reply:
    """Read a whole reply, or the replies of a batch, in the format of this name."""
    if format is None:
        return read_whole(replies, None, context)
    known = format_named(format)
    return read_whole(replies, known.shape, context._replace(engine=known.engine))


def _holds_replies(values: Sequence[Any]) -> bool:
    """Return True if the elements of a list hold replies or chunks; else they are those of one stream, or text."""
    first = opened(values[0]) if len(values) == 1 else next(iter(values), None)
    if not isinstance(first, Mapping):
        return isinstance(first, list)
    # Whole replies side by side are for `check`, which names each of them.
    if len(values) == 1 and not is_chunk(first):
        return True
    return "choices" not in first and not any(shape.starts(first) for shape in known_shapes())


def _read_export(value: Any, temperature: float | None, asked: RawReply) -> Reply:
    """Read the reply that a value is or holds; of several side by side the choices follow each other."""
    # Where no reply is found, reading the value itself says what is missing.
    found = replies_within(value) or [Found((), value[0] if isinstance(value, list) else value, None)]
    if isinstance(value, Mapping):
        raise_error_beside(value)
    if len(found) == 1:
        return read_found(found[0], temperature, asked)
    parsed_replies = [read_found(one, temperature, asked) for one in found]
    if len({(parsed_reply.format, parsed_reply.distribution) for parsed_reply in parsed_replies}) > 1:
        raise InvalidInputError(
            "It holds replies of several formats: score them one by one, or give the file to `check`."
        )
    every = [choice for parsed_reply in parsed_replies for choice in parsed_reply.choices]
    return replace(parsed_replies[0], choices=tuple(replace(choice, index=i) for i, choice in enumerate(every)))


def raise_error_beside(record: RawReply) -> None:
    """Raise `BackendError` if what holds a reply reports an error: an object, or a list of them.

    A text, a number or a flag is the word of a harness on the answer, such as a failed test.
    """
    error = record.get("error")
    if isinstance(error, Mapping) or (isinstance(error, list) and any(isinstance(one, Mapping) for one in error)):
        raise_error({"error": error})


def read_found(found: Found, temperature: float | None, asked: RawReply) -> Reply:
    """Read a reply that was found in what it was saved in; `asked` is its request, as far as it is known."""
    if isinstance(found.reply, Mapping):
        return read_whole([found.reply], found.shape, ReplyContext(asked, temperature, None, found.line))
    return _read_stream(found.reply if isinstance(found.reply, list) else [found.reply], None, temperature, asked)


def is_stream_text(text: str | bytes) -> bool:
    """True if a text is a stream rather than JSON: server-sent events, or lines of JSON of which the first goes on."""
    start = text[:64].decode("utf-8", "replace") if isinstance(text, bytes) else text[:64]
    # A byte-order mark or blank lines may come first.
    if not (begin := start.lstrip("\ufeff \r\n")).startswith("{"):
        return begin.startswith(STREAM_STARTS)
    end, marks = (b"\n", UNFINISHED_BYTES) if isinstance(text, bytes) else ("\n", UNFINISHED)
    line = text.partition(end)[0]  # type: ignore[arg-type]
    return any(mark in line for mark in marks)  # type: ignore[operator]


def body_of(text: str | bytes) -> str | bytes:
    """The body of what curl prints with -i or -v, or Python of a client's lines; any other text as it is."""
    if isinstance(text, bytes):
        return text if not text.startswith(TRANSCRIPT_STARTS_BYTES) else body_of(text.decode("utf-8", "replace"))
    if not text.startswith(TRANSCRIPT_STARTS):
        return text
    if text.startswith(PRINTED_BYTES):
        return _printed_lines(text)
    lines = text.splitlines(keepends=True)
    begin = next((i for i, line in enumerate(lines) if line.startswith(BODY_STARTS)), 0)
    while len(lines) > begin and lines[-1].startswith("* "):  # the end of the connection
        del lines[-1]
    return "".join(lines[begin:])


def _printed_lines(text: str) -> str:
    """The lines that Python printed as bytes, such as b'data: {}'; the text as it is if some are none."""
    try:
        # Literals alone are read: whatever else stands in a line is an error, and nothing is run.
        read = [ast.literal_eval(line) for line in text.split("\n") if line.strip()]
        return "\n".join([line.decode() for line in read])
    except (ValueError, SyntaxError, AttributeError, MemoryError, RecursionError):
        return text


def is_batch(values: list[Any]) -> bool:
    """Return True if a list holds whole replies (SGLang and llama.cpp answer so to several prompts), not chunks."""
    if not values or not all(isinstance(value, Mapping) for value in values):
        return False
    if all(isinstance(value.get("meta_info"), Mapping) for value in values):
        names = [str(value["meta_info"].get("id", i)) for i, value in enumerate(values)]
        return len(set(names)) == len(names)  # the chunks of one reply share its id
    return all(value.get("stop") is True or ("generated_text" in value and "token" not in value) for value in values)


def _read_stream(chunks: Iterable[Any], format: str | None, temperature: float | None, asked: RawReply) -> Reply:
    stream = ReplyStream(format, temperature=temperature, request=asked)
    try:
        several = iter(chunks)
    except Exception as error:  # an array without dimensions, an object that raises what it likes
        raise InvalidInputError(f"A reply must be JSON, a dict or a client's object: {error}.") from error
    for chunk in _with_ends_of_lines(several):
        stream.feed(chunk)
    return stream.finish()


def _with_ends_of_lines(chunks: Iterator[Any]) -> Iterator[Any]:
    """The chunks of a stream; if all are its lines without their ends, as clients give them one by one, with ends."""
    lines: list[Any] = []
    for chunk in chunks:
        lines.append(chunk)
        if not _is_line(chunk):
            yield from chain(lines, chunks)
            return
    for line in lines:
        yield from (line, "\n")


def _is_line(chunk: Any) -> bool:
    line = chunk.decode("utf-8", "replace") if isinstance(chunk, bytes) else chunk
    return isinstance(line, str) and "\n" not in line and (not line or line.startswith(STREAM_STARTS))


def score_reply(
    reply: Any,
    tokenizer: Any = None,
    preset: Preset | ScoringRules = "default",
    *,
    equality: Equality | None = None,
    format: str | None = None,
    segment: SegmentKind = "answer",
    temperature: float | None = None,
    request: Mapping[str, Any] | None = None,
    distribution: Distribution | None = None,
    proxy_for: str | None = None,
    methods: Sequence[str] = (),
    question: str | None = None,
) -> list[ScoredAnswer]:
    """Score every choice of a reply from the log-probabilities in it.

    Parameters
    ----------
    reply
        Whatever `read_reply` reads, what it made of it, or the path of a file that holds it.
    tokenizer
        That of the model that answered, as `vocabulary` in `score_logprobs`: None is enough for `default`, `surface`
        and `exact`, since spellings are read from the lists.
    preset, equality
        As in `score_logprobs`.
    proxy_for
        As in `score_logprobs`; tokens of all parts of a choice show whether the tokenizers are the same.
    methods
        Further methods of one pass, whose scores each answer gets; see `ScoredAnswer.scores`.
    question
        What was asked: its words are not new in an answer. By default it is looked for in the `request`, and in what
        the reply was saved in; where it is not found, the explanation says so.
    format, temperature, request
        As in `read_reply`.
    segment : {"answer", "reasoning", "refusal", "tool_call"}
        The part to score.
    distribution : {"raw", "processed", "unknown"}, optional
        What the log-probabilities are, if you know it better than the reply says.

    Returns
    -------
    list of ScoredAnswer
        One for each choice, in the order of their index. `sequence_uncertainty_interval` contain the exact uncertainty.

    Raises
    ------
    InvalidInputError
        The reply cannot be read, a choice has no such part, or a method reads more than the best tokens of the steps.
    BackendError
        The log-probabilities of a part are missing or do not spell it; the message says what to do.
    VocabularyMismatch
        The vocabulary is that of another tokenizer.
    """
    rules = as_rules(preset, equality)
    scorer = scorer_for(tokens_or_none(tokenizer, rules, proxy_for), rules)
    one_of("segment", segment, SEGMENTS)
    if distribution is not None:
        one_of("distribution", distribution, get_args(Distribution))
    if proxy_for is not None:
        text(proxy_for, "proxy_for")
    if question is not None:
        text(question, "question")
    wanted = require_one_pass(methods)
    parsed_reply = (
        reply
        if isinstance(reply, Reply)
        else read_reply(_opened(reply), format, temperature=temperature, request=request)
    )
    known = distribution or parsed_reply.distribution
    scored = Answers()
    for choice in parsed_reply.choices:
        if segment not in [part.kind for part in choice.segments]:
            raise InvalidInputError(f"Choice {choice.index} {_lacking(choice, segment)}")
        try:
            asked = choice if question is None else replace(choice, question=question)
            answer = score_choice(asked, scorer, known, segment=segment, proxy_for=proxy_for, model=parsed_reply.model)
            scored.append(with_methods(answer, choice, wanted, scorer, segment=segment))
        except SemtokenError as error:
            raise type(error)(f"Choice {choice.index}: {error}") from error
    return scored


def _opened(reply: Any) -> Any:
    """The bytes of a file where a path was given, anything else as it is."""
    is_path = isinstance(reply, Path) or (isinstance(reply, str) and reply.endswith(FILE_ENDINGS) and "\n" not in reply)
    return read_file(Path(reply), LARGEST_REPLIES) if is_path else reply


def score_choice(
    choice: ReplyChoice,
    scorer: Scorer,
    distribution: Distribution,
    *,
    segment: SegmentKind = "answer",
    proxy_for: str | None = None,
    model: str | None = None,
    written: GrowingAnswer | None = None,
) -> ScoredAnswer:
    """Score one choice of a reply; arguments and errors as in `score_reply`.

    `model` is the one that answered, as the reply names it. `written` is the answer as it came piece by piece: it is
    finished if it holds what the whole choice holds, so that both have one number.
    """
    part = _scorable(choice, segment)
    if proxy_for is not None:
        every_step = [step for each in choice.segments for step in each.steps]
        check_shared_vocabulary(every_step, scorer.vocabulary).require(proxy_for)
    answer = written
    if answer is None or answer.lists is None or tuple(answer.lists.came) != part.steps:
        answer = GrowingAnswer(scorer)
        answer.add(*part.steps)
    result = answer.finish(
        distribution,
        proxy_for=proxy_for,
        said=part.text if segment == "answer" else None,
        notes=[Flag("constrained" if flag == FORBIDDEN else "reply", flag) for flag in choice.flags],
        question=choice.question,
        model=model,
        truncated=choice.cut if segment == "answer" else None,
    )
    if segment == "answer":
        _require_same_text(result, part, scorer)
    return result


def with_methods(
    result: ScoredAnswer,
    choice: ReplyChoice,
    methods: Sequence[str],
    scorer: Scorer,
    *,
    segment: SegmentKind = "answer",
) -> ScoredAnswer:
    """A scored choice with its scores by further methods; the arguments are those of `score_reply`."""
    if not methods:
        return result
    steps = _scorable(choice, segment).steps[: result.n_tokens]
    size = None if scorer.open_ended else scorer.vocabulary.size
    return scores_of_steps(methods, result, steps, size)


def _scorable(choice: ReplyChoice, kind: SegmentKind) -> Segment:
    part = choice.segment(kind)
    if part is None:
        raise InvalidInputError(f"The choice {_lacking(choice, kind)}")
    if part.problem is not None:
        raise BackendError(part.problem)
    if choice.broken is not None:
        raise BackendError(choice.broken)
    return part


def _lacking(choice: ReplyChoice, kind: SegmentKind) -> str:
    held = [segment.kind for segment in choice.segments]
    if not held:
        return f"has no {kind} to score: it holds nothing."
    said = f"has no {kind} to score: it holds {' and '.join(held)}."
    scored = [segment.kind for segment in choice.segments if segment.problem is None]
    return f"{said} In Python `score_reply(..., segment={scored[-1]!r})` scores that." if scored else said


def _require_same_text(result: ScoredAnswer, part: Segment, scorer: Scorer) -> None:
    """Raise unless the tokens spell the message: ids by themselves fit any vocabulary that is large enough."""
    # Compared without blanks, which engines strip, and up to the first piece of a character that one of both has lost.
    spelled, said = ("".join(text.partition(REPLACEMENT)[0].split()) for text in (result.text, part.text))
    cut = REPLACEMENT in result.text and said.startswith(spelled)
    if not spelled.startswith(said) and not cut and scorer.open_ended:
        raise BackendError(
            f"The tokens spell {result.text[:60]!r}, the message says {part.text[:60]!r}: some tokens are missing, or "
            "their names are not their texts. Name the model that answered, and send token ids."
        )
    if not spelled.startswith(said) and not cut:
        raise VocabularyMismatch(
            f"The tokens spell {result.text[:60]!r} in this vocabulary, the message says "
            f"{part.text[:60]!r}. It belongs to another model."
        )
