"""Replies and chunks of a stream with an uncertainty added to each choice, and without what only we asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from semtoken.payloads.going_on import Continuation
from semtoken.web.proxy.splice import (
    SPACE,
    Edit,
    Located,
    apply,
    document,
    drop_member,
    elements,
    keep_entries,
    member,
    members,
    set_member,
)

Blocks = Mapping[int, Mapping[str, Any]]
"""What to add to the choice of an index."""
ALL = 1 << 30
"""More log-probabilities a token than any server gives."""
IDS = ("token_ids", "prompt_token_ids")
SHOWING = ("reasoning", "reasoning_content", "tool_calls", "function_call", "refusal", "audio")
"""Members of a message that can hold what its answer says."""
Withheld = Callable[[Mapping[str, Any] | None], str | None]
"""The block of a choice -> the text to show in place of its answer; None: the answer itself."""
ITEM_LISTS = ("content", "refusal", "reasoning_content")


@dataclass(frozen=True)
class Hidden:
    """What the upstream was asked for and the client did not ask for."""

    kept: int | None
    """Log-probabilities a token that the client sees besides the chosen token's; None: it sees none at all."""
    ids: bool
    """Token ids are hidden."""


@dataclass(frozen=True)
class Json:
    """A reply or chunk with choices, and its text."""

    text: str
    root: Located

    @property
    def value(self) -> Mapping[str, Any]:
        """The reply or chunk."""
        value: Mapping[str, Any] = self.root.value
        return value

    def edited(self, hidden: Hidden | None, blocks: Blocks, withheld: Withheld | None = None) -> str:
        """Its text without what is hidden, with a block in each choice that has one, and another text if withheld."""
        choices = members(self.text, self.root)["choices"]
        edits = [
            edit
            for choice in elements(self.text, choices)
            for edit in _choice_edits(self.text, choice, hidden, blocks, withheld)
        ]
        if hidden is not None and hidden.ids:
            edits += _hidden_ids(members(self.text, self.root), hidden)
        return apply(self.text, edits)


class Continued:
    """Edits the chunks of one stream that only go on with an answer: what stands where in them is known."""

    def __init__(self) -> None:
        self._ends: dict[int, str] = {}
        """What is written between the log-probabilities and the end of each choice."""

    def edited(self, chunk: Continuation, data: str, hidden: Hidden | None, blocks: Blocks) -> str:
        """What `Json.edited` makes of the chunk."""
        kept = ALL if hidden is None else hidden.kept
        cut = kept is not None and any(len(step.names) > kept + 1 for step in chunk.steps.steps)
        if cut or (hidden is not None and hidden.ids):
            return read_json(data).edited(hidden, blocks)
        listed = "null" if kept is None else data[len(chunk.before) : -len(chunk.after)]
        if not blocks:
            return f"{chunk.before}{listed}{chunk.after}"
        end = self._end_of(chunk)
        return f"{chunk.before}{listed}{end},{member('semtoken', blocks[chunk.choice])}{chunk.after[len(end) :]}"

    def _end_of(self, chunk: Continuation) -> str:
        """What is written behind the log-probabilities in the choice: mostly what the chunk before had there."""
        known = self._ends.get(chunk.choice)
        if known is not None and chunk.after.startswith(known + "}"):
            return known
        begun = '{"logprobs":null'
        _, end = json.JSONDecoder().raw_decode(begun + chunk.after)
        self._ends[chunk.choice] = chunk.after[: end - len(begun) - 1].rstrip(SPACE)
        return self._ends[chunk.choice]


def read_json(text: str) -> Json:
    """The JSON of a reply or chunk.

    Raises
    ------
    ValueError
        It is no JSON that can be read, or has no choices.
    """
    try:
        reply = document(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(reply.value, dict) or not isinstance(reply.value.get("choices"), list):
        raise ValueError("it has no choices")
    return Json(text, reply)


def edited(
    text: str,
    hidden: Hidden | None,
    blocks_of: Callable[[Mapping[str, Any]], Blocks],
    withheld: Withheld | None = None,
) -> str:
    """The JSON of a reply or chunk, edited; any other text as it is.

    Parameters
    ----------
    text
        What the upstream sent.
    hidden
        What to take out; None for nothing.
    blocks_of
        Scores a reply or chunk.
    withheld
        Which answers are not shown.
    """
    try:
        found = read_json(text)
    except ValueError:
        return text
    return found.edited(hidden, blocks_of(found.value), withheld)


def _choice_edits(
    text: str, choice: Located, hidden: Hidden | None, blocks: Blocks, withheld: Withheld | None
) -> Iterator[Edit]:
    if not isinstance(choice.value, dict):
        return
    inside = members(text, choice)
    index = choice.value.get("index", 0)
    if isinstance(index, int) and index in blocks:
        yield set_member(choice, inside, "semtoken", blocks[index])
    elif "semtoken" in inside:  # of an upstream that scores, too: its numbers must not stand among ours
        yield drop_member(inside, "semtoken")
    other = None if withheld is None else withheld(blocks.get(index) if isinstance(index, int) else None)
    if other is not None:
        yield from _withheld_edits(text, inside, other)
        return
    yield from _hidden_ids(inside, hidden)
    if hidden is not None and "logprobs" in inside and isinstance(inside["logprobs"].value, dict):
        yield from _hidden_logprobs(text, inside["logprobs"], hidden.kept)


def _withheld_edits(text: str, inside: Mapping[str, Located], other: str) -> Iterator[Edit]:
    """Another text in place of the answer, and nothing that shows the answer."""
    message = inside.get("message")
    own = members(text, message) if message is not None and isinstance(message.value, dict) else {}
    for place, name in ((inside, "text"), (own, "content")):
        if name in place:
            yield Edit(place[name].start, place[name].end, json.dumps(other))
    for place, names in ((inside, ("logprobs", *IDS)), (own, SHOWING)):
        for name in names:
            if name in place and place[name].value is not None:
                yield Edit(place[name].start, place[name].end, "null")


def _hidden_ids(inside: Mapping[str, Located], hidden: Hidden | None) -> Iterator[Edit]:
    if hidden is not None and hidden.ids:
        for name in IDS:
            if name in inside and inside[name].value is not None:
                yield Edit(inside[name].start, inside[name].end, "null")


def _hidden_logprobs(text: str, logprobs: Located, kept: int | None) -> Iterator[Edit]:
    """Edits that leave what the client asked for: no log-probabilities, or fewer a token."""
    if kept is None:
        yield Edit(logprobs.start, logprobs.end, "null")
        return
    inside = members(text, logprobs)
    for name in ITEM_LISTS:
        if name in inside and isinstance(inside[name].value, list):
            for item in elements(text, inside[name]):
                yield from _shorter_item(text, item, kept)
    if "top_logprobs" in inside and isinstance(inside["top_logprobs"].value, list):
        names = logprobs.value.get("tokens")
        for i, step in enumerate(elements(text, inside["top_logprobs"])):
            chosen = names[i] if isinstance(names, list) and i < len(names) else None
            yield from _shorter_step(text, step, chosen, kept)


def _shorter_item(text: str, item: Located, kept: int) -> Iterator[Edit]:
    """The first best tokens of an item of a chat."""
    best = item.value.get("top_logprobs") if isinstance(item.value, dict) else None
    if isinstance(best, list) and len(best) > kept:
        listed = members(text, item)["top_logprobs"]
        edit = keep_entries(text, listed, elements(text, listed), [i < kept for i in range(len(best))])
        yield from filter(None, [edit])


def _shorter_step(text: str, step: Located, chosen: Any, kept: int) -> Iterator[Edit]:
    """The best tokens of a step of a legacy completion; the chosen one stays, as OpenAI has it."""
    if not isinstance(step.value, dict):
        return
    try:
        best = set(sorted(step.value, key=lambda name: -step.value[name])[:kept]) | {chosen}
    except TypeError:  # no numbers: not ours to judge
        return
    inside = members(text, step)
    edit = keep_entries(text, step, list(inside.values()), [name in best for name in inside])
    yield from filter(None, [edit])
