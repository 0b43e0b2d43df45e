"""Finds replies in what they were saved in: exports of tracing tools and harnesses, clients' results, a browser's log.

One rule for all of them. A known shape is looked for below the top, through members, lists and texts of JSON, down to
`DEEPEST`. Where no shape has numbers, a list of tokens with log-probabilities counts, together with the text that
these tokens spell, which stands near it. What stands there several times is one reply; where different ones are found
and nothing says which is meant, the paths and forms are named.
"""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from semtoken.core.engine_tokens.passes import steps_in_files
from semtoken.core.engine_tokens.placing import pieces_of, text_of_pieces
from semtoken.core.engine_tokens.spellings import BEST, CHOSEN, NUMBER, TEXT, steps_from_items
from semtoken.core.engine_tokens.token_names import MARKUP
from semtoken.core.engine_tokens.top_steps import WRITTEN_NUMBER
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.replies.formats.base import Shape
from semtoken.replies.formats.fields import RawReply, dotted
from semtoken.replies.formats.openai_choices import OpenAIChat
from semtoken.replies.formats.registry import begins_another, choices_of, is_chunk, is_stream, shape_of
from semtoken.support.plain_values import load_json
from semtoken.support.questions import question_of
from semtoken.support.splice import Path

IN_BASE64 = ("eyI", "eyJ", "ewo", "ewog", "ZGF0YTo")
"""The beginnings of an object of JSON, and of a stream, in base64, in which browsers' logs have them."""
STREAM_STARTS = ("data:", "event:", "id:", "retry:", ":")
"""The beginnings of a stream of server-sent events."""
DEEPEST = 16
"""The depth of members, elements and texts of JSON to which a reply is looked for. A log of agents has one at 10."""
NUMBERS = frozenset((*NUMBER, *CHOSEN, "output_token_logprobs", "prob", "top_probs"))
"""Fields that hold log-probabilities, in any shape."""
SAID = ("content", "text", "output_text", "generated_text", "completion", "answer", "response", "output")
"""Fields whose text may be what the first of the tokens spell, since engines cut an answer at a stop string."""
ASKED = ("prompt", "prompt_logprobs", "input", "inputs", "input_tokens", "prefill")
"""Members that hold the text a model read: tokens there are no answer."""
WRAPPED = "generatedToken"
"""The member of AI21's items that names the token."""
ENDS = ("finish_reason", "finishReason", "stop_reason")
WITH_NUMBER = (*NUMBER, *BEST)
"""Fields of an item of which one has the chosen token's number."""
AROUND = 4
"""The number of objects around a list of tokens that are searched for its text."""


class Found(NamedTuple):
    """A reply inside of a value."""

    path: Path
    reply: Any
    """The reply as plain values, or the chunks or the text of a stream."""
    shape: type[Shape] | None
    """The shape of a whole reply; None for a stream."""
    around: tuple[Any, ...] = ()
    """The values around it, from the outside in."""
    is_chunk: bool = False
    """True if it is a chunk of a stream, alone."""

    @property
    def said(self) -> str:
        """Its form and its place."""
        return f"'{self.shape.name if self.shape else 'stream'}' at {dotted(self.path) or 'the top'}"

    @property
    def line(self) -> Any:
        """The outermost thing around it in which a question stands, or the reply itself."""
        if not self.around:
            return self.reply
        return next((value for value in self.around if question_of(value) is not None), self.around[0])


def replies_within(value: Any) -> list[Found]:
    """The replies in a value, in their order; the value itself if it is one; none if it holds none.

    `InvalidInputError` if it holds different ones that do not stand side by side.
    """
    found = _with_streams(list(_shaped(value, (), ())))
    if not any(_is_telling(one) for one in found):
        # Some exports keep the numbers apart from the reply: a known shape without any may have them beside it.
        found = list(_loose(value, (), ())) or found
    return _resolved(value, found, 0)


def branches(value: Any, found: Sequence[Found]) -> list[tuple[str | int, Any]]:
    """The elements or members of a value that hold replies side by side, with their numbers or names; else none.

    `found` are the replies within the value.
    """
    shared = _shared(found, 0) if len(found) > 1 else None
    if shared is None:
        return []
    holder = _at(value, found[0].path[:shared])
    names = dict.fromkeys(one.path[shared] for one in found)
    # Of a stream whose chunks stand one by one, an element has the first alone.
    listed = (one for one in found if isinstance(one.reply, list))
    spread = (one for one in listed if not isinstance(_at(holder, one.path[shared:]), list))
    streams = {one.path[shared]: one.reply for one in spread}
    return [(name, streams[name] if name in streams else _unpacked(holder[name])) for name in names]


def _resolved(value: Any, found: list[Found], begin: int) -> list[Found]:
    """The replies that are meant: all that stand side by side, in a list or as all members of an object.

    `value` stands at the first `begin` parts of their paths, and so does the first of the values around them.
    """
    shared = _shared(found, begin) if len(found) > 1 else None
    if shared is None:
        return found
    holder = _at(value, found[0].path[begin:shared])
    groups: dict[str | int, list[Found]] = {}
    for one in found:
        groups.setdefault(one.path[shared], []).append(one)
    if not isinstance(holder, Mapping) or (len(groups) == len(holder) and len({one.shape for one in found}) == 1):
        below = shared + 1
        return [
            meant
            for name, group in groups.items()
            for meant in _resolved(
                holder[name], [one._replace(around=one.around[below - begin :]) for one in group], below
            )
        ]
    meant = _once([one for one in found if _is_telling(one)] or found)
    if len(meant) > 1:
        listed = ", ".join(one.said for one in meant[:4])
        raise InvalidInputError(
            f"It holds several replies, {listed}, and nothing says which is meant: save one of them."
        )
    return meant


def _shared(found: Sequence[Found], begin: int) -> int | None:
    """The number of parts of their paths that the replies share; None if they stand at one place."""
    at = begin
    while len({one.path[: at + 1] for one in found}) == 1:
        if at >= max(len(one.path) for one in found):
            return None
        at += 1
    return at


def _at(value: Any, path: Path) -> Any:
    """The value at a path, through texts of JSON."""
    for name in path:
        value = _unpacked(value)[name]
    return _unpacked(value)


def _unpacked(value: Any) -> Any:
    """The values of a text of JSON, however often it was encoded; any other value as it is."""
    while (again := opened(value)) is not value:
        value = again
    return value


def _is_telling(found: Found) -> bool:
    return found.shape is None or holds_numbers(found.reply)


def opened(value: Any) -> Any:
    """The values of a text of JSON, also in base64 or as a list of its lines; any other value as it is."""
    if isinstance(value, list) and len(value) > 1 and all(isinstance(line, str) for line in value):
        whole = "".join(value)  # notebooks keep a text so
        return value if opened(value[0]) is not value[0] or (again := opened(whole)) is whole else again
    if isinstance(value, str) and value.startswith(IN_BASE64):
        with suppress(ValueError):
            return opened(b64decode(value, validate=True).decode())
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"') and value:
        try:
            return load_json(value)
        except (ValueError, RecursionError):
            return value
    return value


PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of values in JSON that hold no others; to ask for an exact type is much faster."""


def holds_numbers(value: Any) -> bool:
    """Return True if log-probabilities of tokens stand anywhere in a value."""
    stack = [value]
    while stack:
        here = stack.pop()
        if type(here) in PLAIN:
            continue
        if isinstance(here, dict | Mapping):  # asking for the usual type first is much faster
            if not NUMBERS.isdisjoint(here) and any(_is_numeric(here[name]) for name in NUMBERS.intersection(here)):
                return True
            stack += here.values()
        elif isinstance(here, list | tuple):
            if here and isinstance(here[0], list | tuple) and here[0] and isinstance(here[0][0], float):
                return True
            stack += here
    return False


def _is_numeric(value: Any) -> bool:
    if isinstance(value, str):
        return bool(WRITTEN_NUMBER.fullmatch(value))
    return isinstance(value, float | int | list | tuple) and value not in ((), []) and not isinstance(value, bool)


def _shaped(value: Any, path: Path, around: tuple[Any, ...]) -> Iterator[Found]:
    """The known shapes in a value, the outermost ones."""
    if len(path) > DEEPEST:
        return
    if isinstance(value, Mapping):
        shape = shape_of([value])
        if path and is_chunk(value):
            yield Found(path, value, shape, around, is_chunk=True)
            return
        # Below the top, loose marks such as a `text` beside `logprobs` could be those of anything.
        if shape is not None and (not path or (shape.is_telling and _holds_answer(shape, value))):
            yield Found(path, value, shape, around)
            return
    if isinstance(value, str) and path and value.startswith(STREAM_STARTS) and "data:" in value and "{" in value:
        yield Found(path, value, None, around)
    elif (again := opened(value)) is not value:
        if len(path) < DEEPEST:
            yield from _shaped(again, path, around)
    else:
        for name, inner in _members(value):
            yield from _shaped(inner, (*path, name), (*around, value))


def _with_streams(found: list[Found]) -> list[Found]:
    """The replies with chunks of one stream, which follow each other, as one reply."""
    if not any(one.is_chunk for one in found):
        return found
    streams: list[list[Found]] = []
    ended: set[str] = set()
    for one in found:
        last = streams[-1] if streams else []
        chunk = one.reply if isinstance(one.reply, Mapping) else {}
        ahead = [each.reply for each in (*last[:1], *last[-1:]) if isinstance(each.reply, Mapping)]
        if not ahead or not chunk or begins_another(chunk, ahead[0], ahead[-1], ended):
            streams.append([])
            ended = set()
        streams[-1].append(one)
        ended |= choices_of(chunk, ended=True)
    below = Counter(one.path[:depth] for one in found for depth in range(len(one.path) + 1))
    return [
        _stream_in(chunks, below) if chunks[0].path and is_stream([one.reply for one in chunks]) else chunks[0]
        for chunks in streams
    ]


def _stream_in(chunks: Sequence[Found], below: Mapping[Path, int]) -> Found:
    """The stream of some chunks; where they are a list, with all that stands in it, such as an error.

    `below` has the number of replies and chunks at each path or below it.
    """
    first, path, holder = chunks[0], chunks[0].path[:-1], chunks[0].around[-1]
    # All that the list holds are these chunks; others in it say nothing of a stream, or report an error.
    alone = len(chunks) == below[path]
    listed = alone and isinstance(holder, list) and all(isinstance(each, Mapping) for each in holder)
    if listed and all(one.path[:-1] == path for one in chunks):
        return Found(path, holder, None, first.around[:-1])
    return Found(first.path, [one.reply for one in chunks], None, first.around)


def _members(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        yield from ((name, inner) for name, inner in value.items() if isinstance(inner, Mapping | list | tuple | str))
    elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping | list | tuple | str):
        yield from enumerate(value)


def _holds_answer(shape: type[Shape], value: RawReply) -> bool:
    """Return True if a choice of a reply has what the shape reads, so that it is no other thing with a `choices`."""
    fields = {at[0] for paths in shape.texts.values() for at in paths} | {at[0] for at in shape.numbers_at}
    try:
        return any(not fields or fields & choice.keys() for _, _, choice in shape.choices(value))
    except (SemtokenError, AttributeError, TypeError):
        return False


def _loose(value: Any, path: Path, around: tuple[Any, ...]) -> Iterator[Found]:
    """Lists of tokens with numbers, each with the text that they spell, as replies of a chat."""
    if len(path) > DEEPEST:
        return
    if (again := opened(value)) is not value:
        yield from _loose(again, path, around)
        return
    if (items := _columns(value)) and (reply := _reply_of(items, value["tokens"], (*around, value))) is not None:
        yield Found(path, reply, OpenAIChat, (*around, value))
        return
    inside = [
        one
        for name, inner in _members(value)
        if name not in BEST and name not in ASKED
        for one in _loose(inner, (*path, name), (*around, value))
    ]
    items = _unwrapped(value)
    if not inside and _are_items(items) and (reply := _reply_of(items, value, around)) is not None:
        inside = [Found(path, reply, OpenAIChat, around)]
    yield from inside


def _columns(value: Any) -> list[dict[str, Any]]:
    """The tokens of an object that lists their texts and their numbers apart, as items; none if it does not."""
    tokens = value.get("tokens") if isinstance(value, Mapping) else None
    numbers = next((value[name] for name in (*CHOSEN, "logprobs") if name in value), None) if tokens else None
    if not isinstance(tokens, list) or not isinstance(numbers, list) or len(tokens) != len(numbers):
        return []
    if not all(isinstance(token, str) for token in tokens) or not all(map(_is_numeric, numbers)):
        return []
    return [{"token": token, "logprob": number} for token, number in zip(tokens, numbers, strict=True)]


def _unwrapped(value: Any) -> Any:
    """A list of tokens that stand a level lower beside their best tokens, as items; any other value as it is."""
    if not isinstance(value, list):
        return value
    if not all(isinstance(item, Mapping) and isinstance(item.get(WRAPPED), dict) for item in value):
        return value
    return [{**item[WRAPPED], "top_logprobs": item.get("topTokens")} for item in value]


def _are_items(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, Mapping) and _names_token(item) for item in value)
        and any(isinstance(item[name], float | int | list) for item in value for name in WITH_NUMBER if name in item)
    )


def _names_token(item: RawReply) -> bool:
    return any(isinstance(item.get(name), str) for name in TEXT) and any(name in item for name in WITH_NUMBER)


def _reply_of(items: Sequence[Any], listed: Any, around: tuple[Any, ...]) -> RawReply | None:
    """A reply of a chat with these tokens, which stand in the value `listed`; None if nothing around that is what they
    spell.
    """
    try:
        steps = steps_from_items(items, "logprobs").steps
        spelled = text_of_pieces(pieces_of(steps_in_files(steps) or steps))
    except SemtokenError:
        return None
    # Tokens spell special tokens such as the end of a turn, which no text beside them has.
    whole = MARKUP.sub("", spelled).strip()
    # From the inside out: the nearest text is the one that belongs to the tokens.
    for holder in around[: -AROUND - 1 : -1]:
        if not isinstance(holder, Mapping):
            continue
        texts = list(_texts(holder, listed))
        exact = [text for _, text in texts if text.strip() == whole]
        begun = [text for name, text in texts if name in SAID and text.strip() and whole.startswith(text.strip())]
        if exact or begun:
            text = exact[0] if exact else max(begun, key=len)
            ends = (*_objects(holder, listed), *(here for here in around[::-1] if isinstance(here, Mapping)))
            end = next((here[name] for here in ends for name in ENDS if here.get(name)), None)
            choice = {"message": {"content": text}, "logprobs": {"content": items}, "finish_reason": end}
            return {"choices": [choice]}
    return None


def _objects(value: Any, tokens: Any, deepest: int = AROUND) -> Iterator[RawReply]:
    """The objects in a value that are outside of the list of tokens."""
    if value is tokens or not deepest:
        return
    if isinstance(value, Mapping):
        yield value
    for _, inner in _members(value):
        yield from _objects(inner, tokens, deepest - 1)


def _texts(value: Any, tokens: Any) -> Iterator[tuple[str, str]]:
    for here in _objects(value, tokens):
        for name, inner in here.items():
            listed = inner if isinstance(inner, list) and inner is not tokens else [inner]
            yield from ((name, text) for text in listed if isinstance(text, str))


def _once(found: Sequence[Found]) -> list[Found]:
    """Each reply once: a log may repeat the answer of a call at several places."""
    kept: dict[Any, Found] = {}
    for one in found:
        # By the numbers: copies differ in ids and times, and no two answers have the same log-probabilities.
        key = (str(one.reply) if one.shape is None else tuple(_numbers(one.reply))) or one.path
        kept.setdefault(key, one)
    return list(kept.values())


def _numbers(value: Any) -> list[float]:
    """All log-probabilities in a reply, sorted."""
    if isinstance(value, Mapping):
        own = [inner for name, inner in value.items() if name in NUMBERS and isinstance(inner, float | int)]
        return sorted([*own, *(each for _, inner in _members(value) for each in _numbers(inner))])
    return [each for inner in (value if isinstance(value, list | tuple) else ()) for each in _numbers(inner)]
