"""The `semtoken` block: what both servers add to every choice, under one key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from semtoken.results import ScoredResponse
from semtoken.web.wire import ApiError

VERSION = 1
KEY = "semtoken"


@dataclass(frozen=True)
class BlockOptions:
    """The field `semtoken` of a request."""

    tokens: bool = False
    """Add the scores of every token."""


def read_options(value: Any) -> BlockOptions:
    """The field `semtoken` of a request: `{"tokens": true}`, or nothing.

    Raises
    ------
    ApiError
        It holds something else.
    """
    given = {} if value is None else value
    if not isinstance(given, dict) or set(given) - {"tokens"} or not isinstance(given.get("tokens", False), bool):
        raise ApiError(400, f'semtoken must be {{"tokens": true}} or left out, got {json.dumps(value):.80}.', param=KEY)
    return BlockOptions(**given)


def reason_block(reason: str) -> dict[str, Any]:
    """The block of a choice that could not be scored."""
    return {"version": VERSION, "reason": reason}


def exact_block(result: ScoredResponse, artifact: str, options: BlockOptions) -> dict[str, Any]:
    """The block of a complete answer that was scored with its whole distributions."""
    block = {
        "version": VERSION,
        "uncertainty": result.uncertainty,
        "lower": result.uncertainty,
        "upper": result.uncertainty,
        "width": 0.0,
        "method": "exact",
        "preset": result.preset,
        "distribution": result.distribution,
        "artifact": artifact,
        "n_tokens": len(result.tokens),
    }
    if result.neutral_only:
        block["flags"] = ["The answer holds function words only."]
    return block | ({"tokens": result.to_dict()["tokens"]} if options.tokens else {})


def running_block(uncertainty: float, lower: float, upper: float, n_tokens: int) -> dict[str, Any]:
    """The block of an answer in progress: its score so far."""
    return {
        "version": VERSION,
        "uncertainty": uncertainty,
        "lower": lower,
        "upper": upper,
        "n_tokens": n_tokens,
        "final": False,
    }
