"""`parts_of`: an answer and a kind of parts -> the parts of that kind in it, with their confidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, get_args

from semtoken.choices import PartKind
from semtoken.core.parts.answers import AnswerTokens, AnswerWithTokens, answer_tokens, part_of
from semtoken.core.parts.budget import MAX_CHARACTERS, MAX_PARTS, MAX_SECONDS, Budget
from semtoken.core.parts.code import find_identifiers
from semtoken.core.parts.fields import (
    UNALIGNED,
    ToolCall,
    find_fields,
    find_given_calls,
    find_tool_calls,
    missing_fields,
    subschema,
)
from semtoken.core.parts.figures import find_figures, find_references
from semtoken.core.parts.json_values import find_json, is_json
from semtoken.core.parts.part import FoundPart, Part, PartEquality, Parts
from semtoken.core.parts.prose import (
    find_phrases,
    find_sentences,
    find_words,
    negations,
    without_thinking,
)
from semtoken.core.scored_token import NO_MEANING
from semtoken.errors import BudgetExceededError, InvalidInputError, one_line_of
from semtoken.support.inputs import flag, listed, one_of, shown, whole
from semtoken.support.inputs import text as text_option

Finder: TypeAlias = Callable[[str], Iterable[tuple[Any, ...]]]
"""text -> (start, end) or (start, end, label) of each part, in characters."""
STEPS_A_PART = 10
"""The steps of the budget that each part takes."""


def parts_of(
    answer: AnswerWithTokens | AnswerTokens,
    by: PartKind | Finder = "phrase",
    *,
    equality: PartEquality | None = None,
    schema: Any = None,
    keys: bool = False,
    containers: bool = False,
    language: str | None = None,
    calls: Sequence[ToolCall | tuple[str, str]] | None = None,
    text: str | None = None,
    constrained: bool | None = None,
    max_characters: int = MAX_CHARACTERS,
    max_seconds: float = MAX_SECONDS,
    max_parts: int = MAX_PARTS,
) -> list[Part]:
    """Parts of an answer, each with its own confidence.

    Parameters
    ----------
    answer
        A scored answer.
    by : {"word", "phrase", "sentence", "number", "reference", "field", "identifier", "tool_call"} or a function
        What to look for. A function takes the text and gives `(start, end)` or `(start, end, label)` of each part.
    equality : {"exact", "surface", "meaning", "mixed"}, optional
        What counts as the same token. Default: what fits the kind of part.
    schema
        For fields: a JSON Schema as a dict, or a Pydantic model. It gives types and enums, and shows which fields are
        missing.
    keys, containers
        For fields: give keys too; objects and arrays too, and how sure the model was that an array ends (`length`).
    language
        For sentences, a language code such as "de" (default "en"); for identifiers, a language that Pygments knows.
    calls
        For tool calls: name and arguments of each as the server gave them, if it gave them apart.
    text
        The answer as the engine gave it, if it is not what the tokens spell.
    constrained
        Whether a grammar shaped the answer, so that tokens without a choice are left out and counted.
    max_characters, max_seconds
        How long the answer may be, and how long the work on it may take. A finder of your own cannot be ended.
    max_parts
        How many parts it may have.

    Returns
    -------
    list of Part
        In the order of the text; missing fields last.

    Raises
    ------
    InvalidInputError
        An unknown `by` or `equality`, `meaning` of an answer that was scored without clusters, a finder that gives no
        ranges of the text, or a schema that is none.
    MissingExtra
        A library that splits text is not installed.
    BudgetExceededError
        The answer is too long, or its parts are too many or take too much time or memory.
    """
    _check_options(answer, equality, language, text, keys, containers, constrained)
    tokens = answer if isinstance(answer, AnswerTokens) else answer_tokens(answer, constrained=constrained)
    schema = as_schema(schema)
    shift, aligned = _place_of(text, tokens.text)
    said = tokens.text if text is None else text
    if equality == "meaning" and any(map(math.isnan, tokens.meaning)):
        raise InvalidInputError(NO_MEANING)
    budget = Budget(said, max_characters=max_characters, max_seconds=max_seconds)
    most = whole(max_parts, "max_parts", low=0)
    found_parts, complete, missing = _find_kind(
        said, by, schema, budget, keys=keys, containers=containers, language=language, calls=calls
    )
    parts = Parts()
    for found_part in found_parts:
        if len(parts) == most:
            raise BudgetExceededError(f"It has more than {most:,} parts of this kind.")
        # Prose is counted by the rules of the answer's score; without clusters there is no `meaning`.
        counted = equality or (tokens.prose if found_part.equality == "meaning" else found_part.equality)
        # A text that the tokens do not spell still has parts, but no number belongs to them.
        if not aligned or UNALIGNED in found_part.flags:
            budget.spend(STEPS_A_PART)
            parts.append(_without_confidence(found_part, said, counted))
            continue
        part = part_of(tokens, _shift_part(found_part, shift) if shift else found_part, counted, complete=complete)
        budget.spend(STEPS_A_PART + len(part.tokens))
        parts.append(_with_negations(tokens, part, budget) if part.kind == "sentence" else part)
    parts.extend(_missing(path, subschema(schema, path)) for path in missing)
    return parts


def least_sure_field(answer: AnswerWithTokens) -> Part | None:
    """The field of least confidence of an answer that is JSON, behind its thinking, with an interval around the least
    confidence, whichever field that is of.

    None where there is no field, and where the JSON is too long to be read (`BudgetExceededError`).
    """
    said = without_thinking(answer.text)
    if not is_json(said):
        return None
    try:
        fields = parts_of(replace(answer_tokens(answer), text=said), "field")
    except BudgetExceededError:
        return None
    known = [field for field in fields if field.confidence is not None]
    if not known:
        return None
    low, high = map(min, zip(*(field.bounds or (1.0, 1.0) for field in known), strict=True))
    return replace(min(known, key=lambda field: field.confidence or 0.0), bounds=(low, high))


def _check_options(
    answer: Any, equality: Any, language: Any, text: Any, keys: Any, containers: Any, constrained: Any
) -> None:
    """Refuse options that are none."""
    if not all(hasattr(answer, name) for name in ("text", "starts" if isinstance(answer, AnswerTokens) else "tokens")):
        raise InvalidInputError(f"'answer' must be a scored answer, got {shown(answer)}.")
    if equality is not None:
        one_of("equality", equality, get_args(PartEquality))
    for name, value in (("language", language), ("text", text)):
        if value is not None:
            text_option(value, name)
    flag(keys, "keys")
    flag(containers, "containers")
    if constrained is not None:
        flag(constrained, "constrained")


def _find_kind(
    text: str,
    by: PartKind | Finder,
    schema: Mapping[str, Any] | None,
    budget: Budget,
    *,
    keys: bool,
    containers: bool,
    language: str | None,
    calls: Sequence[ToolCall | tuple[str, str]] | None,
) -> tuple[Iterable[FoundPart], bool, list[str]]:
    """The parts of a kind in a text, whether all of them are there, and the pointers of missing fields."""
    if callable(by):
        return _by_finder(by, text), True, []
    kind: object = by
    match kind if isinstance(kind, str) else None:
        case "word":
            return find_words(text, budget), True, []
        case "phrase":
            return find_phrases(text, budget), True, []
        case "sentence":
            return find_sentences(text, language or "en"), True, []
        case "number":
            return find_figures(text), True, []
        case "reference":
            return find_references(text), True, []
        case "identifier":
            return find_identifiers(text, language, budget), True, []
        case "tool_call":
            given = None if calls is None else _calls_of_server(calls)
            return find_tool_calls(text, budget) if given is None else find_given_calls(text, given, budget), True, []
        case "field":
            document = find_json(text, budget)
            fields = find_fields(text, document, schema, keys=keys, containers=containers, budget=budget)
            return fields, document.complete, missing_fields(document, schema, budget)
    raise InvalidInputError(
        f"by must be a function or one of {', '.join(get_args(PartKind))}. Got {shown(by)} instead."
    )


def _calls_of_server(calls: Any) -> list[ToolCall]:
    """Tool calls as a server gives them."""
    tool_calls = []
    for call in listed(calls, "calls"):
        try:
            name, arguments = (call.name, call.arguments) if isinstance(call, ToolCall) else call
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"A tool call is a name and its arguments as JSON text. Got {shown(call)}."
            ) from error
        tool_calls.append(ToolCall(text_option(name, "name"), text_option(arguments, "arguments")))
    return tool_calls


def _by_finder(finder: Finder, text: str) -> Iterator[FoundPart]:
    for given in listed(finder(text), "what the finder gives"):
        try:
            first, last, *label = given
            start, end = whole(first, "start"), whole(last, "end")
            kind = str(label[0]) if label else "span"
        except Exception as error:
            raise InvalidInputError(
                f"A finder gives (start, end) or (start, end, label). Got {shown(given)} instead."
            ) from error
        if not 0 <= start <= end <= len(text):
            raise InvalidInputError(f"A finder gave the range {start}..{end} of a text of {len(text)} characters.")
        yield FoundPart(start, end, kind, "surface")


def as_schema(schema: Any) -> Mapping[str, Any] | None:
    """The JSON Schema in a user's dict or Pydantic model; `InvalidInputError` if it is neither or the model gives
    none.
    """
    if schema is None or isinstance(schema, Mapping):
        return schema
    describe = getattr(schema, "model_json_schema", None)
    try:
        described = describe() if callable(describe) else None
    except Exception as error:  # whatever Pydantic raises of a model with fields that JSON has not
        raise InvalidInputError(f"This model has no JSON Schema: {one_line_of(error)}") from error
    if not isinstance(described, Mapping):
        raise InvalidInputError(
            f"schema must be a JSON Schema as a dict, or a Pydantic model. Got {shown(schema)} instead."
        )
    return described


def _place_of(text: str | None, spelled: str) -> tuple[int, bool]:
    """The place at which a text begins in what the tokens spell, and whether it is there; 0 and true for None."""
    if text is None:
        return 0, True
    at = spelled.find(text)
    return at, at >= 0


def _shift_part(found_part: FoundPart, shift: int) -> FoundPart:
    members = None if found_part.members is None else tuple((a + shift, b + shift) for a, b in found_part.members)
    return replace(found_part, start=found_part.start + shift, end=found_part.end + shift, members=members)


def _with_negations(tokens: AnswerTokens, part: Part, budget: Budget) -> Part:
    """A sentence with the words that turn it round, and their own probabilities."""
    words = negations(tokens.text, part.start, part.end, budget)
    negation = tuple(
        (tokens.text[a:b], math.exp(math.fsum(tokens.exact[i] for i in tokens.touching(a, b)))) for a, b in words
    )
    return replace(part, negation=negation)


def _without_confidence(found_part: FoundPart, text: str, equality: PartEquality) -> Part:
    return Part(
        start=found_part.start,
        end=found_part.end,
        text=text[found_part.start : found_part.end],
        kind=found_part.kind,
        path=found_part.path,
        confidence=None,
        equality=equality,
        value=found_part.value,
        call=found_part.call,
        flags=tuple(dict.fromkeys((*found_part.flags, UNALIGNED))),
    )


def _missing(path: str, schema: Mapping[str, Any]) -> Part:
    kind = schema.get("type")
    return Part(0, 0, "", kind if isinstance(kind, str) else "field", path, confidence=None, present=False)
