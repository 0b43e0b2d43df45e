"""The `semtoken` block found in replies, wherever the software that they came through has put it, if it kept it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semtoken.core.results.responses import ScoredAnswer

KEY = "semtoken"
"""The key of the block in every choice; `semtoken.web.block` says what is in it."""
VERSION = 1
"""The version of the block's form."""
_OTHER_FIELDS = ("provider_specific_fields", "model_extra", "additional_kwargs")
"""Fields in which clients keep those that they do not know."""
_QUOTES_NOTHING = frozenset(
    {
        *("version", "final", "confidence", "interval", "confidence_method", "question_known", "new_word_confidence"),
        *("sequence_uncertainty", "sequence_uncertainty_interval", "method", "preset", "distribution", "signature"),
        *("n_tokens", "truncated", "proxy_for", "scores", "score_bounds", "scores_refused"),
        *("probability_correct", "probability_correct_interval", "probability_correct_at_ends", "n_labels"),
        *("decision", "guarantee", "calibrated_elsewhere", "calibrator_refused"),
    }
)
"""The fields of a block that never quote its answer. Any other may: flags, tokens, parts, or one of a later version."""


def numbers_of(answer: ScoredAnswer) -> dict[str, Any]:
    """The numbers of an answer as every block has them, the confidence first."""
    return {
        "confidence": answer.confidence,
        "interval": list(answer.confidence_interval),
        "explanation": answer.explanation,
        "confidence_method": answer.confidence_method,
        "sequence_uncertainty": answer.sequence_uncertainty,
        "sequence_uncertainty_interval": list(answer.sequence_uncertainty_interval),
        "preset": answer.preset,
        "question_known": answer.question is not None,
    }


def block_of(choice: Any) -> dict[str, Any] | None:
    """The semtoken block of a choice, a mapping or an object of a client, wherever software in between has moved it."""
    fields = as_mapping(choice)
    places = [fields, fields.get("message"), fields.get("delta")]
    for place in map(as_mapping, places):
        for holder in (place, *(as_mapping(place.get(name)) for name in _OTHER_FIELDS)):
            if isinstance(holder.get(KEY), Mapping):
                return dict(holder[KEY])
    return None


def without_quotes(block: Mapping[str, Any]) -> dict[str, Any]:
    """The block of an answer that is held back: its numbers and the decision, and nothing that may quote the answer.

    The reason of a decision stays; where nothing was decided, it is the reason why there is no score, and may quote.
    """
    decided = {"reason"} if "decision" in block else set()
    return {name: value for name, value in block.items() if name in _QUOTES_NOTHING | decided}


def risk_of(block: Mapping[str, Any]) -> float:
    """1 minus the confidence, in [0, 1]; NaN without a score."""
    return 1.0 - float(block.get("confidence", "nan"))


def blocks_of(reply: Any) -> list[dict[str, Any] | None]:
    """The block of every choice of a reply, None where there is none."""
    return [block_of(choice) for choice in as_mapping(reply).get("choices") or ()]


def final_block(chunks: Iterable[Any], index: int = 0) -> dict[str, Any] | None:
    """The block with the final score of one choice of a stream, never a running one; None if none came."""
    final = None
    for chunk in chunks:
        for choice in as_mapping(chunk).get("choices") or ():
            block = block_of(choice)
            if as_mapping(choice).get("index", 0) == index and block is not None and block.get("final") is True:
                final = block
    return final


def as_mapping(value: Any) -> Mapping[str, Any]:
    """A mapping unchanged, a client's object converted to one, anything else as an empty mapping."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    dumped = dump() if callable(dump) else None
    return dumped if isinstance(dumped, Mapping) else {}
