"""The whole distribution over the allowed values of a field: P(value) by teacher-forced passes from its prefix.

Each allowed value is put where the answer's own value stands, after the same tokens. Its probability is the product
over its tokens, times the probability that the value ends there: options of different length are compared as a
whole, never by a mean over tokens.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.parts import Part, Parts
from semtoken.core.parts.fields import allowed_values, subschema
from semtoken.core.parts.finding import as_schema
from semtoken.core.results import ScoredAnswer
from semtoken.methods.observers.steps import LOGITS, Observer, Step
from semtoken.models.base import Backend
from semtoken.models.prompt_ids import encode_prompt
from semtoken.support.arrays import log_sum_exp
from semtoken.support.inputs import instance, listed, whole


def with_choices(
    stc: Any, prompt: Any, answer: ScoredAnswer, parts: Sequence[Part], schema: Any = None, *, batch_size: int = 16
) -> list[Part]:
    """The fields with `choices` and `option_mass` wherever the schema says which values are allowed.

    Parameters
    ----------
    stc
        The `ScoredModel` that gave the answer.
    prompt
        What it was asked: text, chat messages or token ids.
    answer, parts
        The answer, and its fields by `answer.parts(by="field")`.
    schema
        A JSON Schema or a Pydantic model. Booleans are asked about without one.
    batch_size
        Options read together.

    Returns
    -------
    list of Part
        The same parts in the same order.
    """
    instance(answer, ScoredAnswer, "answer")
    parts = [instance(one, Part, "parts") for one in listed(parts, "parts")]
    batch_size = whole(batch_size, "batch_size", low=1)
    described = as_schema(schema)
    options = [
        _option(stc.backend, answer, number, part, value)
        for number, part in enumerate(parts)
        for value in _allowed(part, described)
    ]
    if not options:
        return Parts(parts)
    ends = _Ends(options, stc.backend.vocabulary)
    asked = encode_prompt(stc.backend.tokenizer, prompt)
    stc.backend.read(
        [[*asked, *one.before] for one in options],
        [[*one.ids, one.sentinel] for one in options],
        [ends],
        batch_size=batch_size,
    )
    masses: dict[int, dict[str, float]] = {}
    for one, total in zip(options, ends.totals, strict=True):
        masses.setdefault(one.part, {})[one.name] = math.exp(total)
    return Parts(_with(part, masses[number]) if number in masses else part for number, part in enumerate(parts))


@dataclass(frozen=True)
class _Option:
    """One allowed value of a field, spelled after the tokens that came before the answer's own."""

    part: int
    name: str
    before: tuple[int, ...]
    ids: tuple[int, ...]
    ends_with_quote: bool
    sentinel: int
    """Any token: at its step it is asked how probable an end of the value is."""


def _option(backend: Backend, answer: ScoredAnswer, number: int, part: Part, value: Any) -> _Option:
    """The value in place of the answer's own; its tokens begin where a token of the answer begins."""
    quoted = isinstance(value, str)
    start = part.start - (part.kind == "string")
    first = next(i for i, token in enumerate(answer.tokens) if token.end > start)
    written = json.dumps(value, ensure_ascii=False)
    text = answer.text[answer.tokens[first].start : start] + (written[:-1] if quoted else written)
    ids = backend.tokenizer(text, add_special_tokens=False)["input_ids"]
    before = answer.token_ids[:first]
    return _Option(number, value if quoted else written, tuple(before), tuple(ids), quoted, int(ids[-1]))


class _Ends(Observer):
    """Sums the log-probabilities of each option's tokens and of its end."""

    reads = frozenset({LOGITS})

    def __init__(self, options: Sequence[_Option], vocabulary: Vocabulary) -> None:
        self.totals = np.zeros(len(options))
        self._options = options
        self._positions = [0] * len(options)
        first = [piece[:1] for piece in vocabulary.pieces]
        self._quote = np.flatnonzero([byte == b'"' for byte in first])
        self._literal_end = np.flatnonzero([not (byte.isalnum() or byte in (b"_", b".")) for byte in first])

    def observe(self, step: Step) -> None:
        """Take in one step of some options."""
        chosen = step.log_probabilities()
        for k, number in enumerate(step.answers):
            option, position = self._options[number], self._positions[number]
            self._positions[number] += 1
            if position < len(option.ids):
                self.totals[number] += chosen[k]
                continue
            row = step.of(k).log_distributions()[0]
            # The value ends with a quotation mark, or with anything that a literal does not go on with.
            self.totals[number] += log_sum_exp(row[self._quote if option.ends_with_quote else self._literal_end])


def _allowed(part: Part, schema: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """The values that a field may have, as far as that is known; none for a field that has no confidence."""
    if part.confidence is None or part.path is None:
        return ()
    allowed = allowed_values(subschema(schema, part.path))
    return allowed or ((True, False) if part.kind == "boolean" else ())


def _with(part: Part, masses: Mapping[str, float]) -> Part:
    total = math.fsum(masses.values())
    shares = {name: value / total if total else 0.0 for name, value in masses.items()}
    return replace(part, choices=shares, option_mass=min(total, 1.0))
