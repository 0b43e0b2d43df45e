"""Replies checked by several processes or machines, in shards; they are ranked here.

What a process found of a reply comes back as a line of JSON, without the tokens: their doubts are known by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from semtoken.calibration.apply import CalibratorInUse
from semtoken.checking.answers import NO_REPLY, CheckedAnswer, CheckedReplies, RefusedReply, check_reply, ranked
from semtoken.checking.doubts import Doubt
from semtoken.checking.replies import (
    STANDARD_INPUT,
    FoundReply,
    SavedReply,
    found_replies,
    read_questions,
    saved_replies,
    with_questions,
)
from semtoken.errors import InvalidInput
from semtoken.executors import Executor
from semtoken.executors.lines import LINES_IN_SHARD, InputLines, LinesWork, append_in_order
from semtoken.files.safe_files import dump_json, parse_json, replace_text
from semtoken.results import ScoredResponse
from semtoken.results.headlines import Headline
from semtoken.results.responses import TokensLater
from semtoken.tokens.scored_token import Flag

Check: TypeAlias = Callable[[SavedReply], "Sequence[CheckedAnswer] | RefusedReply"]
NO_TOKENS = "another process checked the reply, and sent no tokens"


@dataclass(frozen=True)
class Checking:
    """The settings of a check as plain data, which other processes can receive."""

    format: str | None = None
    """Shape of the replies; recognised by their fields by default."""
    calibrator: Path | None = None
    """The folder of the calibrator that decides, if there is one."""
    schema: Mapping[str, Any] | None = None
    """A JSON Schema that the answers follow."""

    def load(self) -> Check:
        """Make the function that checks one reply."""
        calibrator = None if self.calibrator is None else CalibratorInUse.load(self.calibrator)
        return partial(check_reply, format=self.format, calibrator=calibrator, schema=self.schema)


def check_in_shards(
    sources: Sequence[str],
    checking: Checking,
    executor: Executor,
    folder: Path,
    *,
    questions: Path | None = None,
    size: int = LINES_IN_SHARD,
) -> CheckedReplies:
    """`semtoken.checking.check_replies` by several processes; their answers have no tokens.

    Parameters
    ----------
    sources
        As there, but for standard input. They must lie under the same paths wherever replies are checked.
    checking
        How they are checked.
    executor
        The executor that checks the shards.
    folder
        A new folder for the files of shards, which is deleted at the end; under the same path, too.
    questions
        As there. All replies are then read here first, to be joined with them.
    size
        Replies in a shard.

    Raises
    ------
    SemtokenError
        See `check_replies`; what another process raised comes as `BackendError`.
    """
    if STANDARD_INPUT in sources:
        raise InvalidInput("Several processes cannot read standard input: name files.")
    joined, asked = "", None
    if questions is None:
        count = sum(1 for _ in found_replies(sources))
    else:
        replies, joined = with_questions(list(saved_replies(sources)), read_questions(questions))
        count, asked = len(replies), tuple(reply.question for reply in replies)
    if not count:
        raise InvalidInput(NO_REPLY)
    found: list[Sequence[CheckedAnswer] | RefusedReply] = []
    work = CheckingWork(folder, size, checking.load, tuple(sources), asked)
    append_in_order(work, executor, 0, count, lambda lines: found.extend(map(_from_line, lines)))
    return ranked(found, joined)


@dataclass(frozen=True)
class CheckingWork(LinesWork):
    """The shards of a check: one line for each reply."""

    sources: Sequence[str]
    asked: Sequence[str | None] | None = None
    """The questions of all replies, where they were not saved beside them."""
    home: str = ""
    """The folder that relative paths start from, with a slash; empty for the working directory."""

    def resolved(self) -> CheckingWork:
        """A copy with absolute paths, so that another process can do the work."""
        return replace(self, folder=self.folder.resolve(), home=f"{Path.cwd()}/")

    def found(self) -> Iterator[FoundReply]:
        """All replies of the sources; messages name their files as the user did."""
        for source in self.sources:
            home = "" if Path(source).is_absolute() else self.home
            for one in found_replies([home + source]):
                yield replace(one, where=one.where.removeprefix(home))

    def open(self, loader: Callable[[], Check], answered: Callable[[int], None] = lambda count: None) -> Any:
        """Load what the check needs; returns the function that checks the replies of one shard."""
        check = loader()
        source = InputLines(self.found)

        def make(shard: int) -> None:
            lines: list[bytes] = []
            first = shard * self.size
            for place, found in enumerate(source.lines(first, self.size), start=first):
                reply = found.read()
                reply = reply if self.asked is None else replace(reply, question=self.asked[place])
                lines.append(_to_line(check(reply)))
                answered(len(lines))
            replace_text(self.file(shard), b"".join(lines).decode())

        return make


def _to_line(found: Sequence[CheckedAnswer] | RefusedReply) -> bytes:
    plain = asdict(found) if isinstance(found, RefusedReply) else [_plain(one) for one in found]
    return dump_json(plain) + b"\n"


def _from_line(line: bytes) -> Sequence[CheckedAnswer] | RefusedReply:
    found = parse_json(line)
    return RefusedReply(**found) if isinstance(found, dict) else [_answer(one) for one in found]


def _plain(one: CheckedAnswer) -> dict[str, Any]:
    """An answer as plain values; logarithms that are minus infinity become None."""
    response = one.response
    bounds = response.log_score_bounds
    return {
        "where": one.where,
        "id": one.id,
        "question": one.question,
        "sentence": one.sentence,
        "calibration": None if one.calibration is None else dict(one.calibration),
        "fields": [dict(field) for field in one.fields],
        "from_block": one.from_block,
        "doubts": [asdict(doubt) for doubt in one.doubts],
        "response": {name: getattr(response, name) for name in KEPT}
        | {
            "n_tokens": response.n_tokens,
            "log_score": _finite(response.log_score),
            "log_score_bounds": None if bounds is None else [_finite(end) for end in bounds],
            "flags": [asdict(flag) for flag in response.flags],
            "headline": asdict(response.headline) | {"value": _finite(response.headline.value)},
        },
    }


KEPT = ("text", "preset", "distribution", "neutral_only", "signature", "proxy_for", "truncated", "question")
"""Fields of a scored answer that are plain values."""


def _answer(plain: dict[str, Any]) -> CheckedAnswer:
    scored = plain.pop("response")
    headline = scored.pop("headline")
    bounds, value, ends = headline["confidence_bounds"], headline["value"], scored["log_score_bounds"]
    tokens = TokensLater(scored.pop("n_tokens"), _refuse)
    log_score, log_bounds = _log(scored["log_score"]), None if ends is None else (_log(ends[0]), _log(ends[1]))
    flags = tuple(Flag(**flag) for flag in scored["flags"])
    scored |= {"tokens": tokens, "log_score": log_score, "log_score_bounds": log_bounds, "flags": flags}
    response = ScoredResponse(**scored)
    vars(response)["headline"] = Headline(  # cannot be found again without tokens
        **headline
        | {
            "value": math.inf if value is None else value,
            "confidence_bounds": None if bounds is None else (bounds[0], bounds[1]),
        }
    )
    doubts = tuple(Doubt(**one | {"rivals": tuple((text, p) for text, p in one["rivals"])}) for one in plain["doubts"])
    return CheckedAnswer(**plain | {"response": response, "doubts": doubts, "fields": tuple(plain["fields"])})


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def _log(value: float | None) -> float:
    return -math.inf if value is None else value


def _refuse() -> NoReturn:
    raise InvalidInput(f"There are no tokens: {NO_TOKENS}.")
