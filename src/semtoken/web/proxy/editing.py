"""Replies and chunks of a stream with an uncertainty added to each choice, and without what only we asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from semtoken.web.proxy.splice import Edit, Located, apply, document, elements, members, set_member

Blocks = Mapping[int, Mapping[str, Any]]
"""What to add to the choice of an index."""
IDS = ("token_ids", "prompt_token_ids")


@dataclass(frozen=True)
class Hidden:
    """What the upstream was asked for and the client did not ask for."""

    kept: int | None
    """Log-probabilities a token that the client sees besides the chosen token's; None: it sees none at all."""
    ids: bool
    """Token ids are hidden."""


def edited(text: str, hidden: Hidden | None, blocks_of: Callable[[Mapping[str, Any]], Blocks]) -> str:
    """The JSON of a reply or chunk, edited; any other text as it is.

    Parameters
    ----------
    text
        What the upstream sent.
    hidden
        What to take out; None for nothing.
    blocks_of
        Scores a reply or chunk.
    """
    try:
        reply = document(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(reply.value, dict) or not isinstance(reply.value.get("choices"), list):
        return text
    blocks = blocks_of(reply.value)
    inside = members(text, reply)
    edits = [e for choice in elements(text, inside["choices"]) for e in _choice_edits(text, choice, hidden, blocks)]
    return apply(text, [*edits, *_hidden_ids(inside, hidden)])


def _choice_edits(text: str, choice: Located, hidden: Hidden | None, blocks: Blocks) -> Iterator[Edit]:
    if not isinstance(choice.value, dict):
        return
    inside = members(text, choice)
    index = choice.value.get("index", 0)
    if isinstance(index, int) and index in blocks:
        yield set_member(choice, inside, "semtoken", blocks[index])
    yield from _hidden_ids(inside, hidden)
    logprobs = inside.get("logprobs")
    if hidden is None or logprobs is None or logprobs.value is None:
        return
    shown = shown_logprobs(logprobs.value, hidden.kept)
    if shown != logprobs.value:
        yield Edit(logprobs.start, logprobs.end, json.dumps(shown))


def _hidden_ids(inside: Mapping[str, Located], hidden: Hidden | None) -> Iterator[Edit]:
    if hidden is not None and hidden.ids:
        for name in IDS:
            if name in inside and inside[name].value is not None:
                yield Edit(inside[name].start, inside[name].end, "null")


def shown_logprobs(logprobs: Any, kept: int | None) -> Any:
    """What the client asked for of the log-probabilities of a choice: none, or fewer a token."""
    if kept is None:
        return None
    if not isinstance(logprobs, dict):
        return logprobs
    shown = dict(logprobs)
    for name in ("content", "refusal", "reasoning_content"):
        if isinstance(shown.get(name), list):
            shown[name] = [_shortened_item(item, kept) for item in shown[name]]
    if isinstance(shown.get("top_logprobs"), list):
        chosen = shown.get("tokens")
        names = chosen if isinstance(chosen, list) else []
        shown["top_logprobs"] = [
            _shortened_step(step, names[i] if i < len(names) else None, kept)
            for i, step in enumerate(shown["top_logprobs"])
        ]
    return shown


def _shortened_item(item: Any, kept: int) -> Any:
    if isinstance(item, dict) and isinstance(item.get("top_logprobs"), list):
        return {**item, "top_logprobs": item["top_logprobs"][:kept]}
    return item


def _shortened_step(step: Any, chosen: Any, kept: int) -> Any:
    """The best tokens of a step of a legacy completion; the chosen one stays, as OpenAI has it."""
    if not isinstance(step, dict):
        return step
    try:
        best = set(sorted(step, key=lambda name: -step[name])[:kept])
    except TypeError:  # no numbers: not ours to judge
        return step
    return {name: value for name, value in step.items() if name in best or name == chosen}
