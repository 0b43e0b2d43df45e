"""Log-probabilities as they are written in JSON -> StepList: those of most engines, without a record for each entry.

What is written in another way is left to spellings.py, which says what is wrong with it.
"""

from __future__ import annotations

from semtoken.engine_tokens.spellings import names_of
from semtoken.engine_tokens.token_names import KeptByName
from semtoken.engine_tokens.top_steps import Name, StepList, TopStep

try:
    import msgspec
except ImportError:
    msgspec = None  # type: ignore[assignment]


if msgspec is not None:

    class _WrittenToken(msgspec.Struct, gc=False):
        token: str
        logprob: float
        bytes: tuple[int, ...] | None = None
        id: int | None = None

    class _WrittenItem(_WrittenToken, gc=False, kw_only=True):
        top_logprobs: list[_WrittenToken]

    class _WrittenLists(msgspec.Struct, gc=False):
        """The log-probabilities of a chunk: `content` in a chat, three lists in a completion."""

        content: list[_WrittenItem] | None = None
        tokens: tuple[str, ...] | None = None
        token_logprobs: tuple[float, ...] = ()
        top_logprobs: tuple[dict[str, float], ...] = ()
        refusal: None = None
        reasoning_content: None = None

    _read = msgspec.json.Decoder(_WrittenLists | list[_WrittenItem]).decode


def _name(text: str, token_id: int | None, numbers: tuple[int, ...] | None) -> Name:
    if token_id is not None and token_id < 0:
        raise ValueError(f"{token_id} is no token")
    return names_of(text, token_id, None if numbers is None else bytes(numbers))


_NAMES = KeptByName(_name)


def steps_in_json(logprobs: str | msgspec.Raw) -> StepList | None:
    """Parse `[...]`, `{"content": [...]}` or `{"tokens": [...], ...}` by msgspec; None if written unusually."""
    try:
        parsed = _read(logprobs)
        if isinstance(parsed, list):
            return StepList(tuple(map(_step_of_item, parsed)))
        if (parsed.content is None) == (parsed.tokens is None):
            return None
        steps = map(_step_of_item, parsed.content or ())
        lists = zip(parsed.tokens or (), parsed.token_logprobs, parsed.top_logprobs, strict=True)
        return StepList((*steps, *(_step_of_lists(*each) for each in lists)))
    except (msgspec.DecodeError, ValueError, UnicodeError, RecursionError):
        return None


def _step_of_item(item: _WrittenItem) -> TopStep:
    tokens: list[_WrittenToken] = [item, *item.top_logprobs]
    names = [_NAMES[token.token, token.id, token.bytes] for token in tokens]
    return _step(names, [token.logprob for token in tokens])


def _step_of_lists(token: str, log_prob: float, top: dict[str, float]) -> TopStep:
    return _step([_NAMES[text, None, None] for text in (token, *top)], [log_prob, *top.values()])


def _step(names: list[Name], log_probs: list[float]) -> TopStep:
    if len(names) < 2 or max(log_probs) > 0.0:
        raise ValueError("not what most engines write")
    return TopStep.of_columns(tuple(names), tuple(log_probs))
