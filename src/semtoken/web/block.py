"""The `semtoken` block: what both servers add to every choice, under one key."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from semtoken.calibration.apply import Applied
from semtoken.choices import PartKind
from semtoken.clusters import TokenClusters
from semtoken.errors import CalibratorMismatch
from semtoken.probing import competing_in_record, doubtful_steps
from semtoken.results import Running, ScoredResponse
from semtoken.web.wire import ApiError

VERSION = 1
KEY = "semtoken"
MOST_COMPETING = 8


@dataclass(frozen=True)
class BlockOptions:
    """The field `semtoken` of a request."""

    tokens: bool = False
    """Add the scores of every token."""
    parts: PartKind | None = None
    """Add the parts of this kind with their confidence."""
    competing: int = 0
    """Add so many of the meanings that compete at each of the most doubtful steps."""
    running: bool = True
    """In streams, add the values so far to every chunk. Without them there are only the final ones, at less cost; so
    does the proxy if a request says nothing of `semtoken`."""


def read_options(value: Any) -> BlockOptions:
    """The field `semtoken` of a request, such as `{"tokens": true, "parts": "field", "competing": 4}`, or nothing.

    Raises
    ------
    ApiError
        It holds something else.
    """
    given = {} if value is None else value
    tests: dict[str, Callable[[Any], bool]] = {
        "tokens": lambda one: isinstance(one, bool),
        "running": lambda one: isinstance(one, bool),
        "parts": lambda one: one in get_args(PartKind),
        "competing": lambda one: isinstance(one, int) and not isinstance(one, bool) and 0 <= one <= MOST_COMPETING,
    }
    if not isinstance(given, dict) or not all(name in tests and tests[name](one) for name, one in given.items()):
        raise ApiError(
            400,
            f'semtoken may hold "tokens": true, "running": false, "parts": one of {", ".join(get_args(PartKind))}, and '
            f'"competing": 1 to {MOST_COMPETING}. Got {json.dumps(value):.80}.',
            param=KEY,
        )
    return BlockOptions(**given)


def reason_block(reason: str) -> dict[str, Any]:
    """The block of a choice that could not be scored."""
    return {"version": VERSION, "reason": reason}


def score_block(
    result: ScoredResponse,
    clusters: TokenClusters,
    options: BlockOptions,
    calibrator: Applied | None = None,
    question: str | None = None,
) -> dict[str, Any]:
    """The block of a complete answer.

    Parameters
    ----------
    result
        The scored answer.
    clusters
        The clusters it was scored with.
    options
        What the client asked for.
    calibrator
        Adds the chance and the decision.
    question
        What was asked, where it is known: adds the confidence of a typical word that the answer adds to it.
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
        "artifact": clusters.signature,
        "n_tokens": len(result.tokens),
    }
    flags = [{"code": flag.code, "message": flag.message} for flag in result.flags]
    if result.neutral_only:
        flags.append({"code": "neutral_only", "message": "The answer holds function words only."})
    if flags:
        block["flags"] = flags
    if question is not None:
        block["new_word_confidence"] = result.new_word_confidence(question)
    if result.truncated is not None:
        block["truncated"] = result.truncated
    if result.proxy_for is not None:
        block["proxy_for"] = result.proxy_for
    if calibrator is not None:
        try:
            block |= calibrator.block(result)
        except CalibratorMismatch as error:
            block["calibrator_refused"] = str(error)
    if options.tokens:
        block["tokens"] = result.to_dict()["tokens"]
    if options.parts is not None:
        block["parts"] = [part.to_dict() for part in result.parts(options.parts)]
    if options.competing:
        block["competing"] = [
            {
                "step": step,
                "start": result.tokens[step].start,
                "end": result.tokens[step].end,
                "meanings": [
                    {"probability": one.probability, "tokens": one.tokens, "chosen": one.chosen}
                    for one in competing_in_record(result, step, clusters, options.competing)
                ],
            }
            for step in doubtful_steps(result)
        ]
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
