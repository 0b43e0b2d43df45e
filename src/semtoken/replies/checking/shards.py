"""Replies checked by several processes or machines, in shards; they are ranked here.

The result of a process for a reply comes back as a line of JSON, without the tokens: their doubts are known by then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from semtoken.core.results import ScoredAnswer
from semtoken.errors import InvalidInputError
from semtoken.replies.checking.answers import (
    NO_REPLY,
    CheckSettings,
    RankedAnswer,
    RankedReplies,
    RefusedReply,
    check_found,
    rank_opened,
    ranked,
)
from semtoken.replies.checking.doubts import Doubt
from semtoken.replies.checking.finding import STANDARD_INPUT, OpenedReplies
from semtoken.replies.checking.questions import JoinedQuestion, join_questions, read_questions
from semtoken.replies.checking.saved_reply import FoundReply
from semtoken.support.executors import LINES_IN_SHARD, Executor, InputLines, LinesWork, append_in_order
from semtoken.support.files.safe_files import replace_text

Check: TypeAlias = Callable[[FoundReply, "JoinedQuestion | None"], "Sequence[RankedAnswer | RefusedReply]"]
NO_TOKENS = "another process checked the reply, and sent no tokens"


def checker(settings: CheckSettings) -> Check:
    """The function that checks one reply, as `check_found`."""
    return partial(check_found, settings=settings)


def check_by(
    executor: Executor | None,
    replies: OpenedReplies,
    settings: CheckSettings,
    questions: Path | None,
    output: Path | None,
    on_checked: Callable[[int], None] = lambda count: None,
) -> RankedReplies:
    """Rank replies in this process, or by an executor, whose files are beside the output meanwhile."""
    if executor is None or output is None:
        return rank_opened(replies, settings, questions, on_checked)
    folder = output.with_name(f"{output.name}.shards")
    return check_in_shards(settings, replies.sources, executor, folder, questions=questions, on_checked=on_checked)


def check_in_shards(
    settings: CheckSettings,
    sources: Sequence[str],
    executor: Executor,
    folder: Path,
    *,
    questions: Path | None = None,
    size: int = LINES_IN_SHARD,
    on_checked: Callable[[int], None] = lambda count: None,
) -> RankedReplies:
    """`semtoken.replies.checking.rank_replies` by several processes; their answers have no tokens.

    Standard input is no source here, and files must lie under the same paths wherever replies are checked; so must
    `folder`, a new one for the files of shards, which is deleted at the end. With `questions` all replies are read here
    first, to be joined with them. `size` is how many replies a shard has. An error of
    another process is raised as `BackendError`.
    """
    if STANDARD_INPUT in sources:
        raise InvalidInputError("Several processes cannot read standard input: name files.")
    joined, asked, replies = "", None, OpenedReplies(sources)
    if questions is None:
        count = sum(1 for _ in replies)
    else:
        asked, joined = join_questions([reply.named() for reply in replies], read_questions(questions))
        count = len(asked)
    if not count:
        raise InvalidInputError(NO_REPLY)
    checked: list[Sequence[RankedAnswer | RefusedReply]] = []
    work = CheckingWork(folder, size, partial(checker, settings), tuple(sources), asked)

    def take_in(lines: list[bytes]) -> None:
        checked.extend(map(_from_line, lines))
        on_checked(len(checked))

    append_in_order(work, executor, 0, count, take_in)
    return ranked(checked, joined, replies.passed_over)


@dataclass(frozen=True)
class CheckingWork(LinesWork):
    """The shards of a check: one line for each reply."""

    sources: Sequence[str]
    asked: Sequence[JoinedQuestion | None] | None = None
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
            for reply in OpenedReplies([home + source]):
                yield replace(reply, where=reply.where.removeprefix(home))

    def open(self, loader: Callable[[], Check], answered: Callable[[int], None] = lambda count: None) -> Any:
        """Load what the check needs; returns the function that checks the replies of one shard."""
        check = loader()
        source = InputLines(self.found)

        def make(shard: int) -> None:
            lines: list[bytes] = []
            first = shard * self.size
            for place, reply in enumerate(source.lines(first, self.size), start=first):
                lines.append(_to_line(check(reply, None if self.asked is None else self.asked[place])))
                answered(len(lines))
            replace_text(self.file(shard), b"".join(lines).decode())

        return make


def _to_line(outcome: Sequence[RankedAnswer | RefusedReply]) -> bytes:
    plain = [vars(one) if isinstance(one, RefusedReply) else _plain(one) for one in outcome]
    return json.dumps(plain).encode() + b"\n"  # numbers that are infinite stay what they are


def _from_line(line: bytes) -> Sequence[RankedAnswer | RefusedReply]:
    return [RefusedReply(**plain) if "reason" in plain else _answer(plain) for plain in json.loads(line)]


def _plain(answer: RankedAnswer) -> dict[str, Any]:
    return vars(answer) | {
        "response": answer.response.to_summary(),
        "doubts": [asdict(doubt) for doubt in answer.doubts],
    }


def _answer(plain: dict[str, Any]) -> RankedAnswer:
    response = ScoredAnswer.from_summary(plain["response"], NO_TOKENS)
    doubts = tuple(
        Doubt(**doubt | {"alternatives": tuple(map(tuple, doubt["alternatives"]))}) for doubt in plain["doubts"]
    )
    return RankedAnswer(**plain | {"response": response, "doubts": doubts, "fields": tuple(plain["fields"])})
