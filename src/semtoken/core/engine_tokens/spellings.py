"""Steps as each engine spells them -> TopStep: OpenAI's items, legacy lists, SGLang's triples, vLLM's dicts.

Every way in ends here, so that the same items mean the same tokens and fail with the same error whether they come in
a reply, in a stream or as a list of steps.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise, starmap
from operator import itemgetter
from typing import Any

from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.core.engine_tokens.passes import as_read, as_scored
from semtoken.core.engine_tokens.token_names import (
    LONGEST_KEPT,
    NAMES_KEPT,
    KeptByName,
)
from semtoken.core.engine_tokens.top_steps import (
    NOT_GIVEN,
    Name,
    StepList,
    TopStep,
    TopToken,
    as_log_prob,
    log_prob_or_none,
)
from semtoken.errors import BackendError, InvalidInputError
from semtoken.support.arrays import as_ids
from semtoken.support.inputs import listed
from semtoken.support.untrusted import as_bytes, as_id, as_list, as_number, as_object, as_text, optional

_TOKEN_ID = re.compile(r"token_id:(\d{1,9})\Z")  # vLLM's return_tokens_as_token_ids
_BYTES = re.compile(r"bytes?: ?((?:\\x[0-9a-f]{2})+)\Z")  # OpenAI's and llama.cpp's names of pieces of characters
TEXT, ID = ("token", "tok_str", "text", "content", "Token"), ("id", "token_id", "tokenId")
NUMBER = ("logprob", "logProbability", "log_probability", "log_prob", "logProb", "likelihood", "LogProbability")
BEST = ("top_logprobs", "topLogprobs", "top_probs", "probs", "top_tokens", "TopLogProbabilities")
"""The names that engines and clients have for the fields of an item; the last ones are those of .NET."""
CHOSEN, TOPS = ("token_logprobs", "tokenLogprobs"), ("top_logprobs", "topLogprobs")
"""The names of the lists of legacy completions; clients in Java and TypeScript save them in camel case."""
NOT_CHOSEN = (
    "The reply lists the best tokens of each step, but not which of them were written, nor their numbers: ask a server "
    "that gives `tokens` and `token_logprobs`, or items of a chat."
)
OF_A_TOKEN = frozenset((*TEXT, *ID, *NUMBER, "prob", "bytes"))
"""Fields of which an item has at least one."""
OF_NUMBERS = frozenset((*NUMBER, "prob"))
"""Fields of which an item has one with the chosen token's number, unless that stands in its list alone."""
_ITEM_FIELDS = ("token", "logprob", "bytes", "id", "top_logprobs")
KNOWN_FORMS = (
    "TopStep, an item of `logprobs.content`, a dict from token id to log-probability, a pair of chosen token and such "
    "a dict, a triple (log-probability, id, text), or a pair of it and a list of triples"
)


# --- one token -------------------------------------------------------------------------------------------------------


def token_named(
    log_prob: float, text: str | None, token_id: int | None = None, spelled: bytes | None = None
) -> TopToken:
    """A token as its engine names it: by text, id, bytes, or several of them.

    Bytes that only spell the name ("token_id:808", U+FFFD for a piece of a character) say nothing and are dropped. A
    token whose text is empty is a special one or a piece of a character: it keeps that text, or None if its id is
    known. One without a text, bytes and an id is nameless.
    """
    return TopToken(log_prob, *_NAMES[text, token_id, spelled])


def names_of(text: str | None, token_id: int | None, spelled: bytes | None) -> Name:
    """The id, text and bytes of a token, as far as its engine gives them."""
    if not text and not spelled:
        return token_id, text if token_id is None else None, None
    match = None if text is None else _TOKEN_ID.match(text)
    if text is not None and (match or REPLACEMENT in text) and spelled == _encoded(text):
        spelled = None
    if match:
        return int(match[1]) if token_id is None else token_id, None, spelled
    if text is not None and spelled is None and (match := _BYTES.match(text)):
        return token_id, None, bytes.fromhex(match[1].replace("\\x", ""))
    return token_id, text, spelled


_NAMES = KeptByName(names_of)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# --- lists of steps --------------------------------------------------------------------------------------------------


def steps_from_items(items: Any, where: str) -> StepList:
    """The steps in chat items `{token, logprob, bytes, top_logprobs}`, or with other engines' names of these fields.

    Those are `TEXT`, `ID`, `NUMBER` and `BEST`; llama.cpp may give probabilities, `prob` and `top_probs`.
    `InvalidInputError` says where a field is missing or of the wrong kind; `InvalidLogits` if a number is no
    log-probability.
    """
    usual = _usual_steps(items) if type(items) is list else None
    if usual is not None:
        return StepList(as_read(usual))
    return _step_list(_item(value, f"{where}[{i}]") for i, value in enumerate(as_list(items, where)))


def _step_list(steps: Iterable[tuple[TopStep, bool]]) -> StepList:
    pairs = list(steps)
    return StepList(as_read(step for step, _ in pairs), tuple(i for i, (_, missing) in enumerate(pairs) if missing))


def _item(value: Any, where: str) -> tuple[TopStep, bool]:
    """An item, and whether its log-probability is missing."""
    usual = _usual_steps([value])
    if usual is not None:
        return usual[0], False
    item = as_object(value, where)
    if not OF_A_TOKEN.intersection(item):
        raise InvalidInputError(f"{where} names no token: its fields are {', '.join(map(repr, item)) or 'none'}.")
    top = _first(item, BEST)
    if isinstance(top, list) and len(top) == 1 and isinstance(top[0], Mapping) and OF_A_TOKEN.isdisjoint(top[0]):
        top = top[0]
    by_name = isinstance(top, Mapping)
    if by_name:
        top = [{"token": str(name), "logprob": number} for name, number in top.items()]
    entries = as_list([] if top is None else top, f"{where}.top_logprobs")
    log_prob = _log_prob(item, where)
    # Older servers of llama.cpp, and the logs of `llm`, give the chosen token's number in the list alone.
    if "probs" in item or (by_name and OF_NUMBERS.isdisjoint(item)):
        names = (entry for entry in entries if isinstance(entry, Mapping) and _first(entry, TEXT) == _first(item, TEXT))
        log_prob = _log_prob(next(names, {}), where)
    # -9999 may be a real "very unlikely"; without a list beside it, it says only that nothing was computed.
    missing = log_prob is None or (log_prob == NOT_GIVEN and not entries)
    chosen = _token(item, NOT_GIVEN if log_prob is None else log_prob, where)
    return TopStep(chosen, [_entry(entry, f"{where}.top_logprobs[{j}]") for j, entry in enumerate(entries)]), missing


def _usual_steps(items: Sequence[Any]) -> tuple[TopStep, ...] | None:
    """The steps of items as most engines write them, all in one form; None for any other, which are read token by
    token or refused.

    There are twenty entries for every token of an answer, so this is what reading a reply costs.
    """
    try:
        entries = list(map(_BEST_OF, items))
        tokens = list(chain.from_iterable([(item, *best) for item, best in zip(items, entries, strict=True)]))
        fields = set(map(len, chain.from_iterable(entries)))
        # Text, number and bytes; llama.cpp adds an id. A chosen token has one more: its list.
        if fields not in ({3}, {4}) or set(map(len, items)) != {min(fields) + 1} or not all(entries):
            return None
        log_probs = list(map(_NUMBER_OF, tokens))
        # The sum is NaN where one number is, which the largest alone need not show.
        if set(map(type, log_probs)) != {float} or not sum(log_probs) <= 0.0 or max(log_probs) > 0.0:  # or NaN
            return None
        names, written = (_WITHOUT_IDS, _BYTES_OF) if fields == {3} else (_WITH_IDS, _BYTES_AND_ID_OF)  # llama.cpp's
        token_names = names.of(list(map(_TEXT_OF, tokens)), list(map(written, tokens)))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        return None
    ends = list(accumulate([len(best) + 1 for best in entries], initial=0))
    slices, numbers = list(starmap(slice, pairwise(ends))), tuple(log_probs)
    return tuple(map(TopStep.of_columns, map(token_names.__getitem__, slices), map(numbers.__getitem__, slices)))


_TEXT_OF, _NUMBER_OF, _BYTES_OF, _BEST_OF = map(itemgetter, ("token", "logprob", "bytes", "top_logprobs"))
_BYTES_AND_ID_OF = itemgetter("bytes", "id")
_FIRST, _SECOND, _THIRD = map(itemgetter, range(3))


class _WrittenNames:
    """Names of tokens, looked up by the JSON that spells them.

    Nearly all are written as they were before: the last name of each text is kept, and whole lists are compared with
    it.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, Name]] = {}
        """The other fields of a token as written in JSON, and its name, by its text."""

    def of(self, texts: list[Any], written: list[Any]) -> tuple[Name, ...]:
        """The names of tokens by their texts, and bytes (or null) or pairs of bytes and id.

        `InvalidInputError`, `TypeError` or `ValueError` if a text is none, an id is none from 0 on, or bytes are no
        list of bytes.
        """
        known = list(map(self._known.get, texts))
        if all(known) and list(map(_FIRST, known)) == written:  # type: ignore[arg-type]
            return tuple(map(_SECOND, known))  # type: ignore[arg-type]
        return tuple(map(self._name, texts, written))

    def _name(self, text: Any, written: Any) -> Name:
        numbers, token = written if type(written) is tuple else (written, None)
        if type(text) is not str or not (numbers is None or type(numbers) is list):
            raise TypeError
        token = None if written is numbers else as_id(token, "id")
        name = _NAMES[text, token, None if numbers is None else bytes(numbers)]
        if len(text) <= LONGEST_KEPT:
            # All at once: to drop single ones would cost bookkeeping for each token, and clients choose the names.
            if len(self._known) >= NAMES_KEPT:
                self._known.clear()
            # A copy: the list belongs to the reply, which its owner may change.
            numbers = numbers and list(numbers)
            self._known[text] = numbers if token is None else (numbers, token), name
        return name


_WITH_IDS, _WITHOUT_IDS = _WrittenNames(), _WrittenNames()


def _entry(value: Any, where: str) -> TopToken:
    item = as_object(value, where)
    log_prob = _log_prob(item, where)
    return _token(item, NOT_GIVEN if log_prob is None else log_prob, where)


def _token(item: Mapping[str, Any], log_prob: float, where: str) -> TopToken:
    text = optional(as_text, _first(item, TEXT), f"{where}.token")
    token_id = optional(as_id, _first(item, ID), f"{where}.id")
    spelled = item.get("bytes")
    if isinstance(spelled, str) and spelled != text:  # Go's and .NET's clients write bytes in base64
        spelled = _from_base64(spelled)
    spelled = optional(as_bytes, spelled, f"{where}.bytes")
    return token_named(log_prob, text, token_id, spelled)


def _from_base64(text: str) -> bytes | str:
    """The bytes that a text encodes; the text itself if it encodes none."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return text


def _log_prob(item: Mapping[str, Any], where: str) -> float | None:
    """The log-probability of an item; None where the engine gives none."""
    if "prob" not in item or "logprob" in item:
        return log_prob_or_none(_first(item, NUMBER), f"{where}.logprob")
    if item["prob"] is None:
        return None
    probability = as_number(item["prob"], f"{where}.prob")
    return as_log_prob(math.log(probability), f"{where}.prob") if probability > 0 else -math.inf


def _first(item: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first of some fields that has one."""
    return next((item[name] for name in names if item.get(name) is not None), None)


def steps_from_columns(chosen: Any, tops: Any, where: str) -> StepList:
    """The steps in a list of chosen tokens and a list of the best tokens of each, as TGI and Gemini give them."""
    items = [as_object(token, f"{where}[{i}]") for i, token in enumerate(as_list(chosen, where))]
    best = as_list([None] * len(items) if tops is None else tops, f"{where}, best tokens")
    if len(best) != len(items):
        return _unequal(f"{len(items)} tokens, {len(best)} lists of the best")
    return steps_from_items([{**item, "top_logprobs": top} for item, top in zip(items, best, strict=True)], where)


def steps_from_lists(logprobs: Mapping[str, Any], where: str) -> StepList:
    """The steps in the lists of legacy completions, `{tokens, token_logprobs, top_logprobs}`.

    The best tokens of a step are a dict from text to log-probability. Lists of different lengths give a `fault` and no
    steps.
    """
    if logprobs.get("tokens") is None:
        return StepList(fault=NOT_CHOSEN)
    tokens = as_list(logprobs["tokens"], f"{where}.tokens")
    chosen = as_list(_first(logprobs, CHOSEN), f"{where}.token_logprobs")
    tops = _first(logprobs, TOPS)
    tops = as_list([None] * len(tokens) if tops in (None, []) else tops, f"{where}.top_logprobs")
    if not len(tokens) == len(chosen) == len(tops):
        lengths = f"{len(tokens)} tokens, {len(chosen)} token_logprobs, {len(tops)} top_logprobs"
        return _unequal(lengths)
    if any(type(token) is int for token in tokens):
        return _steps_of_ids(tokens, chosen, tops, where)
    if any(isinstance(top, list | tuple) for top in tops):
        columns = zip(tokens, chosen, tops, strict=True)
        items = [{"token": token, "logprob": number, "top_logprobs": top} for token, number, top in columns]
        return steps_from_items(items, where)
    steps: list[TopStep] = []
    picked: list[float | None] = []
    for i, (token, value, top) in enumerate(zip(tokens, chosen, tops, strict=True)):
        log_prob = log_prob_or_none(value, f"{where}.token_logprobs[{i}]")
        picked.append(log_prob)
        name = as_text(token, f"{where}.tokens[{i}]")
        best = as_object({} if top is None else top, f"{where}.top_logprobs[{i}]")
        numbers = ((str(k), log_prob_or_none(v, f"{where}.top_logprobs[{i}][{k!r}]")) for k, v in best.items())
        entries = (token_named(NOT_GIVEN if v is None else v, k) for k, v in numbers)
        steps.append(TopStep(token_named(NOT_GIVEN if log_prob is None else log_prob, name), tuple(entries)))
    return StepList(tuple(steps), tuple(i for i, value in enumerate(picked) if value is None))


def _steps_of_ids(tokens: Sequence[Any], chosen: Sequence[Any], tops: Sequence[Any], where: str) -> StepList:
    """The same lists with ids in place of texts, as mlx_lm.server gives them."""
    columns = [
        {"id": token, "logprob": number, "top_logprobs": top if isinstance(top, list) else _by_id(top or {}, where)}
        for token, number, top in zip(tokens, chosen, tops, strict=True)
    ]
    return steps_from_items(columns, where)


def _by_id(entries: Any, where: str) -> list[dict[str, Any]]:
    """The best tokens of a step as items, where they are numbers by id."""
    return [{"id": int(key), "logprob": number} for key, number in as_object(entries, where).items() if _is_id(key)]


def steps_from_dicts(steps: Any, ids: Any, where: str) -> StepList:
    """The steps of an engine's records in JSON: for each a dict of numbers, or of objects with `logprob`, by id.

    The chosen token is that of `ids`, or the only entry. A step that leaves it open gives a `fault` and no steps.
    """
    listed = [as_object(step, f"{where}[{i}]") for i, step in enumerate(as_list(steps, where))]
    chosen = [None] * len(listed) if ids is None else as_list(ids, "token_ids")
    if len(chosen) != len(listed):
        return _unequal(f"{len(chosen)} token_ids, {len(listed)} logprobs")
    items = []
    for i, (step, token) in enumerate(zip(listed, chosen, strict=True)):
        at = f"{where}[{i}]"
        entries = {key: _entry_by_id(key, value, at) for key, value in step.items()}
        if token is None and len(entries) != 1:
            return StepList(fault=NOT_CHOSEN)
        own = next(iter(entries)) if token is None else str(token)
        if own not in entries:
            return StepList(fault=f"{at} lists no number for the token {token} that was written.")
        items.append(entries[own] | {"top_logprobs": list(entries.values())})
    return steps_from_items(items, where)


def _entry_by_id(key: str, value: Any, where: str) -> dict[str, Any]:
    """An entry of such a dict as an item."""
    fields = value if isinstance(value, Mapping) else {"logprob": value}
    name = {"id": int(key)} if _is_id(key) else {"token": key}
    text = fields.get("decoded_token")
    return {**name, "logprob": fields.get("logprob"), **({} if text is None else {"token": as_text(text, where)})}


def _is_id(key: Any) -> bool:
    return isinstance(key, int) or (isinstance(key, str) and key.isdecimal())


def _unequal(lengths: str) -> StepList:
    return StepList(fault=f"The lists of log-probabilities differ in length: {lengths}. Steps are missing.")


def steps_from_triples(chosen: Any, tops: Any, where: str) -> StepList:
    """The steps of a reply of SGLang, which lists triples: log-probability, id, and the text or null.

    `chosen` has one for each step; `tops` a list of them, its best tokens, or None if none were asked for.
    """
    picked = as_list(chosen, f"{where}.output_token_logprobs")
    best = as_list([None] * len(picked) if tops is None else tops, f"{where}.output_top_logprobs")
    if len(best) != len(picked):
        return _unequal(f"{len(picked)} output_token_logprobs, {len(best)} output_top_logprobs")
    return _step_list(
        _triples(value, entries, f"{where}.output_token_logprobs[{i}]", f"{where}.output_top_logprobs[{i}]")
        for i, (value, entries) in enumerate(zip(picked, best, strict=True))
    )


def _triples(value: Any, entries: Any, at: str, at_top: str) -> tuple[TopStep, bool]:
    token = _triple(value, at)
    listed = as_list([] if entries is None else entries, at_top)
    top = tuple(_triple(entry, f"{at_top}[{j}]") for j, entry in enumerate(listed))
    return TopStep(token, top), token.log_prob == NOT_GIVEN


def _triple(value: Any, where: str) -> TopToken:
    triple = as_list(value, where)
    if len(triple) not in (2, 3):
        as_list(None, f"{where} (log-probability, id, text)")
    log_prob = log_prob_or_none(triple[0], f"{where}[0]")
    text = optional(as_text, triple[2], f"{where}[2]") if len(triple) == 3 else None
    return token_named(NOT_GIVEN if log_prob is None else log_prob, text, optional(as_id, triple[1], f"{where}[1]"))


def _dict_step(entries: Mapping[Any, Any], chosen: Any, where: str) -> TopStep:
    """VLLM's step: log-probabilities (or objects with `logprob`) by id or text; the first is the chosen token's."""
    if not entries:
        raise InvalidInputError(f"{where} is empty.")
    top = {_key(key): _dict_entry(_key(key), value, f"{where}[{key!r}]") for key, value in entries.items()}
    first = next(iter(top))
    # vLLM puts the chosen token first by its id; of texts, JSON readers may have changed the order.
    if chosen is None and isinstance(first, str):
        raise InvalidInputError(f"{where} does not say which token was chosen: the order of strings does not.")
    key = first if chosen is None else _key(chosen)
    if key not in top:
        raise InvalidInputError(f"{where}: the chosen token {chosen!r} is not among its entries.")
    return TopStep(top[key], tuple(top.values()))


def _key(key: Any) -> int | str:
    return key if isinstance(key, str) else as_id(key, "A token id")


def _dict_entry(key: int | str, value: Any, where: str) -> TopToken:
    log_prob = as_log_prob(getattr(value, "logprob", value), where)
    if isinstance(key, str):
        return token_named(log_prob, key)
    return token_named(log_prob, optional(as_text, getattr(value, "decoded_token", None), where), key)


# --- any of these forms ----------------------------------------------------------------------------------------------


def as_top_steps(steps: Any, token_ids: Sequence[int] | None = None) -> list[TopStep]:
    """Convert steps in any form that engines use into records.

    Parameters
    ----------
    steps
        A sequence with one entry a step: `TopStep`; an item of OpenAI's `logprobs.content` (object or dict with
        `token`, `logprob`, `bytes`, `top_logprobs`); a dict from id to log-probability (vLLM's, whose values are
        objects with `logprob`, or plain numbers), whose first entry is the chosen token unless `token_ids` say
        otherwise; a pair (chosen token, such a dict), whose keys may also be strings; SGLang's triple
        (log-probability, id, text) of the chosen token, or a pair of it and the list of such triples. OpenAI's
        `logprobs` itself will do.
    token_ids
        Ids of the chosen tokens, where the steps do not name them.

    Raises
    ------
    InvalidInputError
        An entry has none of these forms, or does not say which token was chosen.
    InvalidLogits
        A number is no log-probability.
    BackendError
        A step has no log-probability: the engine left it out.
    """
    entries = _as_list(steps)
    ids: list[Any] = [None] * len(entries) if token_ids is None else as_ids(token_ids)
    if len(ids) != len(entries):
        raise InvalidInputError(f"There are {len(entries)} steps and {len(ids)} token ids; each step needs one.")
    pairs = enumerate(zip(entries, ids, strict=True))
    step_list = _step_list(_step(step, chosen, f"steps[{i}]") for i, (step, chosen) in pairs)
    if step_list.problem is not None:
        raise BackendError(step_list.problem)
    return list(as_scored(with_ids(step_list.steps, ids)))


def with_ids(steps: Sequence[TopStep], ids: Sequence[int | None]) -> tuple[TopStep, ...]:
    """The steps with their tokens' ids, given separately (None: not known); `InvalidInputError` if a step names
    another.
    """
    named_steps: list[TopStep] = []
    for i, (step, token) in enumerate(zip(steps, ids, strict=True)):
        (known, text, spelled), *others = step.names
        if known not in (None, token) and token is not None:
            raise InvalidInputError(f"Step {i} chose token {known}, and token_ids say {token}.")
        named_steps.append(step if token is None else step.renamed([(token, text, spelled), *others]))
    return tuple(named_steps)


def _as_list(steps: Any) -> list[Any]:
    content = steps.get("content") if isinstance(steps, Mapping) else getattr(steps, "content", None)
    entries = steps if content is None else content
    if entries is None or isinstance(entries, str | bytes | Mapping) or not hasattr(entries, "__iter__"):
        raise InvalidInputError(
            f"The steps must be a list with one entry a token, got {type(entries).__name__}. If the reply has no "
            "log-probabilities, ask for them (`logprobs`, `top_logprobs`); some servers leave them out silently."
        )
    return listed(entries, "steps")


def _step(step: Any, chosen: Any, where: str) -> tuple[TopStep, bool]:
    """A step of any form, and whether its log-probability is missing."""
    if isinstance(step, TopStep):
        return step.renamed(_NAMES[text, token_id, spelled] for token_id, text, spelled in step.names), False
    if isinstance(step, Mapping):
        return _item(step, where) if _is_item(step) else (_dict_step(step, chosen, where), False)
    if isinstance(step, tuple | list):
        return _tuple_step(step, where)
    item = _plain_item(step)
    if not _is_item(item):
        raise InvalidInputError(f"{where} has none of the known forms ({KNOWN_FORMS}): {type(step).__name__}.")
    return _item(item, where)


def _is_item(step: Mapping[Any, Any]) -> bool:
    return any(name in step for name in ("token", "logprob", "prob"))


def _plain_item(step: Any) -> dict[str, Any]:
    """The fields of a client's object."""
    item = {name: getattr(step, name) for name in _ITEM_FIELDS if hasattr(step, name)}
    if isinstance(item.get("top_logprobs"), list | tuple):
        entries = item["top_logprobs"]
        item["top_logprobs"] = [entry if isinstance(entry, Mapping) else _plain_item(entry) for entry in entries]
    return item


def _tuple_step(step: Sequence[Any], where: str) -> tuple[TopStep, bool]:
    if len(step) == 2 and isinstance(step[1], Mapping):
        return _dict_step(step[1], step[0], where), False
    if len(step) == 2 and isinstance(step[0], tuple | list):
        return _triples(step[0], step[1], f"{where}[0]", f"{where}[1]")
    if len(step) == 3 and not isinstance(step[0], tuple | list):
        return _triples(step, None, where, where)
    raise InvalidInputError(
        f"{where} has none of the known forms ({KNOWN_FORMS}): it does not say which token was chosen."
    )
