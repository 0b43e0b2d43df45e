"""The `semtoken` block: what both servers add to every choice, under one key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from semtoken.calibration.apply import Applied
from semtoken.errors import CalibratorMismatch
from semtoken.results import Running, ScoredResponse
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


def score_block(
    result: ScoredResponse, artifact: str, options: BlockOptions, calibrator: Applied | None = None
) -> dict[str, Any]:
    """The block of a complete answer.

    Parameters
    ----------
    result
        The scored answer.
    artifact
        Signature of the clusters.
    options
        What the client asked for.
    calibrator
        Adds the chance and the decision.
    """
    lower, upper = result.uncertainty_bounds
    block: dict[str, Any] = {
        "version": VERSION,
        "uncertainty": result.uncertainty,
        "lower": lower,
        "upper": upper,
        "width": result.uncertainty_width,
        "method": "exact" if result.log_score_bounds is None else "top-k",
        "preset": result.preset,
        "distribution": result.distribution,
        "artifact": artifact,
        "n_tokens": len(result.tokens),
    }
    flags = [{"code": flag.code, "message": flag.message} for flag in result.flags]
    if result.neutral_only:
        flags.append({"code": "neutral_only", "message": "The answer holds function words only."})
    if flags:
        block["flags"] = flags
    if result.proxy_for is not None:
        block["proxy_for"] = result.proxy_for
    if calibrator is not None:
        try:
            block |= calibrator.block(result)
        except CalibratorMismatch as error:
            block["calibrator_refused"] = str(error)
    if options.tokens:
        block["tokens"] = result.to_dict()["tokens"]
    return block


def running_block(running: Running) -> dict[str, Any]:
    """The block of an answer in progress: its score if it ended here."""
    lower, upper = running.uncertainty_bounds
    return {
        "version": VERSION,
        "uncertainty": running.uncertainty,
        "lower": lower,
        "upper": upper,
        "n_tokens": running.n_tokens,
        "final": False,
    }
