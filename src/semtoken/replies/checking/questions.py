"""Questions from a file -> the replies that they belong to, joined by an identifier that both sides have.

A question under another answer gives every number a false meaning, and nothing shows it. So the order joins them only
where neither side has anything that could be an identifier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from semtoken.errors import InvalidInputError
from semtoken.replies.checking.ids import IDS, identifiers, is_id_name, may_identify, own_name
from semtoken.replies.checking.saved_reply import ReplyNames
from semtoken.support.files.record_files import read_rows
from semtoken.support.questions import question_of

HOW = "Give both the same ids, or neither, and then one question for each reply in the same order."


@dataclass(frozen=True)
class SavedQuestion:
    """A question from a file, with everything by which replies may refer to it."""

    text: str
    ids: Mapping[str, str] = field(default_factory=dict)


class JoinedQuestion(NamedTuple):
    """The question of a reply, with what joined them."""

    text: str
    where: str | None
    """The place of the reply; None of one that cannot be read."""
    id: str | None = None
    """The identifier by which they were joined; None if it was the order."""


class Column(NamedTuple):
    """The values of a field, one for each reply or question."""

    name: str
    values: Sequence[str]
    source: int = 0
    """The place where replies have it: 0 for their line, 1 for themselves, 2 for the name of their file, 3 for their
    line or this name."""

    @property
    def is_single(self) -> bool:
        """True if no value is there twice."""
        return len(set(self.values)) == len(self.values)

    @property
    def said(self) -> str:
        """The field in words."""
        return SOURCES[self.source].format(self.name)


SOURCES = ("'{}'", "'{}' of the reply", "the name of the file", "the id of the line or the name of the file")


def read_questions(path: Path) -> list[SavedQuestion]:
    """The questions of a file: records with `question`, `prompt` or `messages`, or saved request bodies."""
    questions = []
    for _, where, fields in read_rows(path):
        text = question_of(fields)
        if text is None:
            raise InvalidInputError(f"{where} asks nothing: it has no 'question', 'prompt', 'input' or 'messages'.")
        ids = {name: value for name, value in identifiers(fields).items() if value != text}
        questions.append(SavedQuestion(text, ids))
    return questions


def join_questions(
    replies: Sequence[ReplyNames | None], questions: Sequence[SavedQuestion]
) -> tuple[list[JoinedQuestion | None], str]:
    """The question of each reply, in the order of the replies, and a sentence on how they were joined.

    A field joins them if all of its values are different on both sides, and each reply has that of a question. Of
    several, one with the same name on both sides comes first; otherwise both must be identifiers by their names. The
    order joins them where nothing could be an identifier and there are as many of the one as of the other. A reply that
    cannot be read is None, gets no question and counts for the order. `InvalidInputError` if nothing shows which
    question belongs to which reply.
    """
    read = [reply for reply in replies if reply is not None]
    own, asked = _reply_columns(read), _columns([question.ids for question in questions])
    pair = _joining(own, asked)
    if pair is None:
        _refuse_ids(replies, questions, own, asked)
        in_order = zip(questions, replies, strict=True)
        return [JoinedQuestion(question.text, reply and reply.where) for question, reply in in_order], (
            f"Joined {len(replies):,} replies with their questions by order: the questions have no ids."
        )
    texts = dict(zip(pair[1].values, (question.text for question in questions), strict=True))
    named = zip(read, pair[0].values, strict=True)
    by_place = {reply.where: JoinedQuestion(texts[name], reply.where, name) for reply, name in named}
    as_named = "" if pair[1].name == pair[0].name else f" and '{pair[1].name}' of the question"
    return [None if reply is None else by_place[reply.where] for reply in replies], (
        f"Joined {len(read):,} replies with their questions by id: {pair[0].said}{as_named}."
    )


def _columns(records: Sequence[Mapping[str, str]], source: int = 0) -> list[Column]:
    """The fields that all records have."""
    shared = [name for name in records[0] if all(name in record for record in records)] if records else []
    return [Column(name, [record[name] for record in records], source) for name in shared]


def _reply_columns(replies: Sequence[ReplyNames]) -> list[Column]:
    in_lines, in_replies = [reply.ids for reply in replies], [reply.own_ids for reply in replies]
    files = [Column("id", [reply.name for reply in replies], 2), Column("id", [reply.id for reply in replies], 3)]
    return [*_columns(in_lines), *_columns(in_replies, 1), *files]


def _joining(replies: Sequence[Column], questions: Sequence[Column]) -> tuple[Column, Column] | None:
    """The field of the replies and that of the questions that join them; None if there are none."""
    pairs = sorted(_fitting(replies, questions), key=_rank)
    for i, (own, asked) in enumerate(pairs):
        for other, other_asked in pairs[i + 1 :] if own.source == 0 and own.name not in IDS else ():
            # Two fields that rank alike and join other questions: to take one of them would be a guess.
            same_rank = _rank((other, other_asked))[:5] == _rank((own, asked))[:5]
            if same_rank and _order(other, other_asked) != _order(own, asked):
                raise InvalidInputError(
                    f"{own.said} and {other.said} join other questions with the replies: leave one of them out."
                )
        return own, asked
    return None


def _fitting(replies: Sequence[Column], questions: Sequence[Column]) -> Iterator[tuple[Column, Column]]:
    single = [(asked, set(asked.values)) for asked in questions if asked.is_single]
    for own in replies:
        values = set(own.values)
        for asked, known in single:
            same = own_name(own.name) == own_name(asked.name)
            if is_id_name(own.name) and is_id_name(asked.name):
                fits = same or own.is_single  # several answers may have the id of one question
            else:
                fits = same and own.is_single and own.source == 0 and len(values) > 1
            if fits and values <= known:
                yield own, asked


def _rank(pair: tuple[Column, Column]) -> tuple[int, ...]:
    """A rank, small for a pair of better evidence: the same name, in the line rather than the reply, a usual name."""
    own, asked = pair
    usual = min((IDS.index(one.name) for one in pair if one.name in IDS), default=len(IDS))
    other_name = own_name(own.name) != own_name(asked.name)
    no_id = not is_id_name(own.name)
    return (own.source, no_id, not own.is_single, other_name, usual, own.name.count("."), asked.name.count("."))


def _order(own: Column, asked: Column) -> list[int]:
    """The numbers of the questions of all replies."""
    place = {value: i for i, value in enumerate(asked.values)}
    return [place[value] for value in own.values]


def _refuse_ids(
    replies: Sequence[ReplyNames | None],
    questions: Sequence[SavedQuestion],
    own: Sequence[Column],
    asked: Sequence[Column],
) -> None:
    """Raise `InvalidInputError` unless the order may join them."""
    counts = f"There are {len(replies):,} replies and {len(questions):,} questions"
    in_lines = [column for column in own if column.source == 0 and may_identify(column.name, column.values)]
    in_some = {name for reply in replies if reply is not None for name in reply.ids if is_id_name(name)}
    of_questions = [column for column in asked if may_identify(column.name, column.values)]
    named = sorted({name for question in questions for name in question.ids if is_id_name(name)})
    lacking = {name: sum(name not in question.ids for question in questions) for name in named}
    if not of_questions and any(lacking.values()):
        name = min(named, key=lambda name: lacking[name])
        raise InvalidInputError(f"{counts}, and {lacking[name]:,} of the questions have no id ('{name}'). {HOW}")
    if not of_questions:
        if in_lines:
            raise InvalidInputError(
                f"{counts}; the replies have ids, such as '{in_lines[0].values[0]}' ({in_lines[0].said}), "
                f"the questions none. {HOW}"
            )
        if len({len(reply.ids.keys() & in_some) for reply in replies if reply is not None}) > 1:
            raise InvalidInputError(f"{counts}; some of the replies have ids ({', '.join(sorted(in_some))}). {HOW}")
        if len(questions) != len(replies):
            raise InvalidInputError(f"{counts}, and neither have ids. {HOW}")
        return
    best = min(of_questions, key=lambda column: IDS.index(column.name) if column.name in IDS else len(IDS))
    known = set(best.values)
    if len(known) < len(best.values):
        twice = next(value for i, value in enumerate(best.values) if value in best.values[:i])
        raise InvalidInputError(f"{counts}, and the id '{twice}' stands more than once among the questions. {HOW}")
    read = [reply for reply in replies if reply is not None]
    unknown = [reply for reply in read if known.isdisjoint((*reply.ids.values(), *reply.own_ids.values(), reply.name))]
    if unknown:
        such = f"such as '{unknown[0].id}' of {unknown[0].where}"
        # Where all but a few ids fit, they may be counters that are off by one: then every question would be another's.
        how = HOW if len(unknown) == len(read) else "Add their questions, or leave these replies out."
        raise InvalidInputError(f"{counts}. Replies whose id no question has: {len(unknown):,}, {such}. {how}")
    raise InvalidInputError(
        f"{counts}, and no field has the ids of the questions ('{best.name}') in all replies, each once. {HOW}"
    )
