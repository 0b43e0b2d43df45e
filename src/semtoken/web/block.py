"""The `semtoken` block: what both servers add to every choice, under one key."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from semtoken.choices import PartKind
from semtoken.core.parts import Part, call_confidences
from semtoken.core.parts.budget import MAX_SECONDS
from semtoken.core.parts.json_values import is_json
from semtoken.core.parts.nested import nested
from semtoken.core.results import Running, ScoredAnswer, ScoredToken
from semtoken.core.results.blocks import KEY, VERSION, numbers_of, without_quotes
from semtoken.core.scorer import Scorer
from semtoken.errors import CalibratorMismatchError, InvalidInputError, SemtokenError
from semtoken.guarantees.apply import REFUSED, CalibratorInUse
from semtoken.methods.observers.method_scores import require_one_pass
from semtoken.models.probing import Competitor, Dispute, competing_in_record, doubtful_steps, only_in_form
from semtoken.support.files.strict_json import finite
from semtoken.web.wire import ApiError

MOST_COMPETING = 8
MOST_PARTS = 10_000
"""Most parts that a block holds: each takes some 600 bytes, a hundred times its text and more."""
NO_MODEL = "Only a server that runs the model itself can follow other meanings: semtoken serve."

WantedParts: TypeAlias = PartKind | Literal["auto"]
"""`auto`: the fields of an answer that is JSON, the phrases of any other."""


@dataclass(frozen=True)
class BlockOptions:
    """The options in the field `semtoken` of a request: what the block of each choice is to hold."""

    tokens: bool = False
    parts: WantedParts | None = None
    """The kind of parts that are added with their confidence; None: no parts."""
    competing: int = 0
    """The number of meanings that compete at each of the most doubtful steps and are added."""
    disputes: int = 0
    """The number of meanings that are followed at each of the most doubtful steps, to add what their continuations say.

    Phrases that are doubtful only in form are then marked `form_only`, and boolean fields get the shares of their
    values.
    """
    methods: tuple[str, ...] = ()
    running: bool = True
    """True if the values so far are added to every chunk of a stream. Without them there are only the final ones, at
    less cost. The proxy leaves them out if a request says nothing of `semtoken`."""


def read_options(value: Any) -> BlockOptions:
    """Read the field `semtoken` of a request, such as `{"tokens": true, "parts": "field", "competing": 4}`."""
    given = {} if value is None else value
    tests: dict[str, Callable[[Any], bool]] = {
        "tokens": lambda option: isinstance(option, bool),
        "running": lambda option: isinstance(option, bool),
        "methods": lambda option: isinstance(option, list) and all(isinstance(name, str) for name in option),
        "parts": lambda option: option == "auto" or option in get_args(PartKind),
        "competing": _is_number,
        "disputes": _is_number,
    }
    if not isinstance(given, dict) or not all(name in tests and tests[name](option) for name, option in given.items()):
        kinds = ", ".join(("auto", *get_args(PartKind)))
        raise ApiError(
            400,
            f'semtoken may hold "tokens": true, "running": false, "parts": one of {kinds}, "methods": a list of names, '
            f'and "competing" and "disputes": 1 to {MOST_COMPETING}. Got {json.dumps(value):.80}.',
            param=KEY,
        )
    try:
        return BlockOptions(**{**given, "methods": require_one_pass(given.get("methods", ()))})
    except InvalidInputError as error:
        raise ApiError(400, str(error), param=KEY) from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COMPETING


@dataclass(frozen=True)
class ProbeResult:
    """The result of asking the model about its own answer."""

    disputes: Sequence[Dispute] = ()
    """The doubtful steps that were followed, in the order of the answer."""
    parts: Sequence[Part] | None = None
    """The parts of the answer with the shares of their values; None: as they are without asking."""
    refused: str | None = None
    """The reason why the model could not be asked; None if it was."""


def parts_wanted(result: ScoredAnswer, wanted: WantedParts, seconds: float = MAX_SECONDS) -> list[Part]:
    """The parts of an answer of the requested kind; raises a `SemtokenError` if they are not found within `seconds`."""
    if wanted == "auto":
        wanted = "field" if is_json(result.text) else "phrase"
    return list(result.parts(wanted, max_seconds=seconds, max_parts=MOST_PARTS))


def reason_block(reason: str) -> dict[str, Any]:
    """The block of a choice that could not be scored."""
    return {"version": VERSION, "reason": reason}


def score_block(
    result: ScoredAnswer,
    scorer: Scorer,
    options: BlockOptions,
    calibrator: CalibratorInUse | None = None,
    probed: ProbeResult | None = None,
    scores_refused: str | None = None,
    part_seconds: float = MAX_SECONDS,
) -> dict[str, Any]:
    """The block of a complete answer; if the calibrator withholds it, the block holds nothing that shows its text.

    Where the question is known it has the confidence of a typical word that the answer adds to it. `probed` is what the
    model said of other meanings, `scores_refused` why there are no scores by the methods that were asked for.
    """
    block = _summary(result) | _scores(result, options, scores_refused)
    if calibrator is not None:
        try:
            block |= calibrator.block_or_refusal(result)
        except CalibratorMismatchError as error:
            block[REFUSED] = str(error)
        if calibrator.shown_instead(block) is not None:
            return without_quotes(block) | {"explanation": result.without_quotes().explanation}
    if options.tokens:
        block["tokens"] = result.to_dict()["tokens"]
    probed = probed or ProbeResult(refused=NO_MODEL)
    if options.parts is not None:
        try:
            parts = parts_wanted(result, options.parts, part_seconds) if probed.parts is None else probed.parts
            block["parts"] = [_part(part, result, probed) for part in parts]
            fields = {part.path: part.confidence for part in parts if part.path is not None and part.call is None}
            if fields:
                block["fields"] = nested(result.text, fields)
            if calls := call_confidences(parts):
                block["calls"] = [{"call": c.call, "name": c.name, "confidence": c.confidence} for c in calls]
        except SemtokenError as error:  # a library that is not installed, or a text that takes too long
            block["parts_refused"] = str(error)
    if options.disputes and probed.refused is not None:
        block["disputes_refused"] = probed.refused
    elif options.disputes:
        block["disputes"] = [_dispute(dispute, result) for dispute in probed.disputes if dispute.disagreement > 0]
    if options.competing:
        competing = (
            (step, competing_in_record(result, step, scorer, options.competing)) for step in doubtful_steps(result)
        )
        block["competing"] = [_competing(result.tokens[step], step, meanings) for step, meanings in competing]
    return block


def _summary(result: ScoredAnswer) -> dict[str, Any]:
    """The facts that every block has about an answer: its numbers, how they were found, and its flags."""
    facts = result.facts()
    block: dict[str, Any] = {
        "version": VERSION,
        **numbers_of(result),
        **{name: facts[name] for name in ("method", "distribution", "signature", "n_tokens")},
    }
    flags = [{"code": flag.code, "message": flag.message} for flag in result.flags]
    if result.neutral_only:
        flags.append({"code": "neutral_only", "message": "The answer holds function words only."})
    if flags:
        block["flags"] = flags
    if result.question is not None:
        block["new_word_confidence"] = result.new_word_confidence()
    if result.truncated is not None:
        block["truncated"] = result.truncated
    if result.proxy_for is not None:
        block["proxy_for"] = result.proxy_for
    return block


def _scores(result: ScoredAnswer, options: BlockOptions, refused: str | None) -> dict[str, Any]:
    """The scores by further methods, infinite ones as null, and why some of those that were asked for are not there."""
    fields: dict[str, Any] = {}
    if result.scores:
        fields["scores"] = finite(result.scores)
    if result.score_bounds:
        fields["score_bounds"] = finite(result.score_bounds)
    missing = [name for name in options.methods if name not in result.scores]
    if missing or refused:
        fields["scores_refused"] = refused or f"This server does not compute {', '.join(missing)} for single requests."
    return fields


def _part(part: Part, result: ScoredAnswer, probed: ProbeResult) -> dict[str, Any]:
    """A part as plain values, with whether its doubt is one of wording where that was looked into."""
    form_only = part.kind == "phrase" and only_in_form(part, result, probed.disputes)
    return part.to_dict() | ({"form_only": True} if form_only else {})


def _dispute(dispute: Dispute, result: ScoredAnswer) -> dict[str, Any]:
    token = result.tokens[dispute.step]
    return {
        "step": dispute.step,
        "start": token.start,
        "end": token.end,
        "part": {"start": dispute.part.start, "end": dispute.part.end, "text": dispute.part.text},
        "disagreement": dispute.disagreement,
        "unheard": dispute.unheard,
        "meanings": [
            {
                "probability": competitor.probability,
                "continuation": competitor.continuation,
                "chosen": competitor.chosen,
            }
            for competitor in dispute.competitors
        ],
    }


def _competing(token: ScoredToken, step: int, meanings: Sequence[Competitor]) -> dict[str, Any]:
    described = [
        {"probability": competitor.probability, "tokens": competitor.tokens, "chosen": competitor.chosen}
        for competitor in meanings
    ]
    return {"step": step, "start": token.start, "end": token.end, "meanings": described}


def running_block(running: Running) -> dict[str, Any]:
    """The block of an answer in progress: its score if it ended here."""
    return {
        "version": VERSION,
        "sequence_uncertainty": running.sequence_uncertainty,
        "sequence_uncertainty_interval": list(running.sequence_uncertainty_interval),
        "n_tokens": running.n_tokens,
        "final": False,
    }
