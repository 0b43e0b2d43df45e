"""Saved replies -> scored answers, the most doubtful first."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from semtoken.choices import Distribution
from semtoken.core.given_tokens import Tokens
from semtoken.core.results import ScoredAnswer
from semtoken.core.rules import ScoringRules
from semtoken.errors import CalibratorMismatchError, InvalidInputError, SemtokenError
from semtoken.guarantees.apply import CalibratorInUse, warnings_of
from semtoken.guarantees.labels import CONFIDENCE
from semtoken.replies import Reply, ReplyChoice, read_reply
from semtoken.replies.checking.doubts import Doubt, doubts_of, in_message, sentence_of, worst_of
from semtoken.replies.checking.fields import field_records
from semtoken.replies.checking.finding import OpenedReplies
from semtoken.replies.checking.questions import JoinedQuestion, join_questions, read_questions
from semtoken.replies.checking.saved_blocks import NO_TOKENS, answer_of_block, blocks_of_reply, doubts_of_block
from semtoken.replies.checking.saved_reply import FoundReply, SavedReply
from semtoken.replies.formats.within import Found
from semtoken.replies.score import raise_error_beside, read_found, score_reply
from semtoken.support.garbage import rare_collections
from semtoken.support.inputs import instance, listed, real, shown, text
from semtoken.support.questions import question_of
from semtoken.support.text import shortened

if TYPE_CHECKING:
    from semtoken.guarantees.journal.keeper import AnswerKeeper

NOT_SAVED = "Which words are in doubt was not saved with the reply."
MOST_REASONS = 8
"""The number of reasons why replies were not scored that a text lists."""
LONGEST_REASON = 300
"""The number of characters of a reason in that text."""
OBJECTS_OF_REPLIES = 100_000
"""New objects between two collections of garbage: a reply is thousands, all of which go with it."""


@dataclass(frozen=True)
class RankedAnswer:
    """A scored answer of a saved reply, with its doubtful stretches and a sentence about them."""

    where: str
    """File and line of the reply."""
    id: str
    """Identifier of the reply; of several choices with the number of the choice."""
    question: str | None
    """The question; None where it is not known."""
    response: ScoredAnswer
    """The answer with its numbers."""
    doubts: tuple[Doubt, ...]
    """The stretches of the answer, the most doubtful first."""
    explanation: str
    """A sentence or two on the most doubtful stretch and the model's alternatives to it."""
    calibration: Mapping[str, Any] | None = None
    """Probability, decision and guarantee, as `CalibratorInUse.block` gives them; None without a calibrator."""
    fields: tuple[Mapping[str, Any], ...] = ()
    """The fields of its JSON, as `semtoken.replies.checking.fields.field_records` gives them; none without a schema."""
    text: str = ""
    """The answer: as its tokens spell it, or as the message has it where they spell pieces of characters."""
    from_block: bool = False
    """True if the reply held no log-probabilities, but the numbers that `semtoken serve` or `proxy` had put into it."""
    rank: int = 0
    """The answer's place by doubt, from 1, the most doubtful of the answers at hand."""
    place: int = 0
    """The answer's place in the order of reading, from 1."""

    @property
    def confidence(self) -> float:
        """The confidence of the model, in [0, 1]: the number by which answers are ranked."""
        return self.response.confidence

    @property
    def doubt(self) -> Doubt | None:
        """The stretch of the answer that is most in doubt; None where each is fairly sure."""
        return worst_of(self.doubts)

    @property
    def messages(self) -> list[str]:
        """Sentences on what is odd about the answer, and on why a calibrator gives it no probability or may not fit."""
        own = [flag.message for flag in self.response.flags]
        return own if self.calibration is None else own + warnings_of(self.calibration)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values: its place, its scores, what is doubtful in it, and what the calibrator says."""
        place = {"rank": self.rank, "id": self.id, "where": self.where, "question": self.question}
        return place | self.response.to_dict() | {"doubt": self.explanation} | dict(self.calibration or {})


@dataclass(frozen=True)
class RefusedReply:
    """A reply that could not be scored, with the reason."""

    where: str
    """File and line of the reply."""
    reason: str
    """The reason why it could not be scored, and what to do, in a sentence."""
    id: str
    """Identifier of the reply, or the name that its place gives it."""
    question: str | None = None
    """The question; None where it is not known."""


@dataclass(frozen=True)
class RankedReplies(Sequence[RankedAnswer]):
    """The result of a check: a sequence of scored answers, and the replies that could not be scored."""

    answers: tuple[RankedAnswer, ...]
    """The most doubtful first."""
    refused: tuple[RefusedReply, ...]
    """The replies that could not be scored, in the order of reading."""
    joined: str = ""
    """A sentence on how replies and questions were joined; empty where no file of questions was given."""
    passed_over: tuple[str, ...] = ()
    """Files of the folders whose names are not those of replies, such as pictures and notes."""

    @overload
    def __getitem__(self, place: int) -> RankedAnswer: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[RankedAnswer, ...]: ...

    def __getitem__(self, place: int | slice) -> RankedAnswer | tuple[RankedAnswer, ...]:
        return self.answers[place]

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def n_from_block(self) -> int:
        """The number of answers with numbers from the semtoken block of the reply, for lack of log-probabilities."""
        return sum(answer.from_block for answer in self.answers)

    def reasons(self) -> list[tuple[int, RefusedReply]]:
        """The kinds of reasons why replies were not scored, the commonest first: number of each, and its first reply.

        Reasons are of one kind if they differ only in numbers and in what stands between quotation marks.
        """
        groups: dict[str, list[RefusedReply]] = {}
        for reply in self.refused:
            groups.setdefault(_PARTICULARS.sub("", reply.reason), []).append(reply)
        return sorted(((len(group), group[0]) for group in groups.values()), key=lambda counted: -counted[0])

    @property
    def not_scored(self) -> str:
        """A text on the replies that could not be scored: their number for each reason, with the place of the first.

        Long texts are cut: `refused` has all.
        """
        reasons = self.reasons()
        lines = [
            f"  {count:,}, the first {reply.where}: {shortened(reply.reason, LONGEST_REASON)}"
            for count, reply in reasons[:MOST_REASONS]
        ]
        if len(reasons) > MOST_REASONS:
            lines.append(f"  {sum(count for count, _ in reasons[MOST_REASONS:]):,} for other reasons")
        total = len(self.refused) + len({answer.where for answer in self.answers})
        return "\n".join([f"{len(self.refused):,} of {total:,} replies could not be scored:", *lines])

    @property
    def remarks(self) -> list[str]:
        """Sentences on how questions were joined, on numbers that come from a server, and on files passed over."""
        remarks = [self.joined] if self.joined else []
        if self.n_from_block:
            remarks.append(
                f"{self.n_from_block:,} of them hold no log-probabilities, but numbers that semtoken serve or proxy "
                "had put into them: these are shown. Save log-probabilities, too, to see which words are in doubt."
            )
        if self.passed_over:
            names = [Path(name).name for name in self.passed_over]
            others = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
            remarks.append(f"Passed over, since their names are not those of replies: {', '.join(names[:5])}{others}.")
        return remarks

    def keep(self, keeper: AnswerKeeper, applied: CalibratorInUse | None) -> None:
        """Put all answers into a journal, in the order in which they were read: the newest ones stand for the questions
        of today, which the most doubtful or the surest ones would not.

        `InvalidInputError` if the reply of one held no log-probabilities: the journal keeps tokens.
        """
        if self.n_from_block:
            raise InvalidInputError(f"{self.n_from_block:,} answers cannot be kept in the journal: {NO_TOKENS}.")
        keeper.uses(applied)
        for answer in sorted(self.answers, key=lambda answer: answer.place):
            keeper.keep(answer.response, answer.calibration, applied, place=answer.id, question=answer.question)


_PARTICULARS = re.compile(r"(, )?'[^']*'|\"[^\"]*\"|\d+")


@dataclass(frozen=True)
class CheckSettings:
    """The settings by which a reply is checked, which other processes need, too; see `rank_replies`."""

    format: str | None = None
    """Shape of the replies; recognized by their fields by default."""
    calibrator: CalibratorInUse | None = None
    schema: Mapping[str, Any] | None = None
    keep_tokens: bool = True
    """True if answers keep the records of their tokens. Those that other processes have scored have none."""
    distribution: Distribution | None = None
    vocabulary: Tokens | None = None
    """The tokens of the model that answered, for narrower intervals."""
    rules: ScoringRules | None = None
    methods: tuple[str, ...] = ()
    """Further methods, whose scores every answer gets."""
    temperature: float | None = None
    """The temperature of the requests, for SGLang, whose log-probabilities follow it."""
    answering_model: str | None = None
    """The model that answered, if the vocabulary is another model's with the same tokenizer."""


def rank_replies(
    sources: str | Path | Sequence[str | Path],
    *,
    questions: Path | None = None,
    format: str | None = None,
    calibrator: CalibratorInUse | None = None,
    schema: Mapping[str, Any] | None = None,
    keep_tokens: bool = True,
    distribution: Distribution | None = None,
    vocabulary: Tokens | None = None,
    rules: ScoringRules | None = None,
    methods: Sequence[str] = (),
    temperature: float | None = None,
    answering_model: str | None = None,
    on_checked: Callable[[int], None] = lambda count: None,
) -> RankedReplies:
    """Score saved replies from their log-probabilities and rank their answers, the most doubtful first.

    Nothing else is needed: no tokenizer, no clusters, no name of a model. What cannot be scored is among the result's
    `refused`, with the reason.

    Parameters
    ----------
    sources
        A file, a folder, a pattern, or a list of them, as `semtoken.replies.checking.finding.OpenedReplies` reads them.
    questions
        A file with the questions, where they were not saved with the replies.
    format
        Shape of the replies; recognized by their fields by default.
    calibrator
        Adds a probability and a decision to each answer; with a schema, to each field.
    schema
        A JSON Schema that the answers follow: their fields are scored, too.
    keep_tokens
        Whether answers keep the records of their tokens, some 1.5 kB for each token. Without them 10,000 answers of 100
        tokens fit into 100 MB; doubts, fields and numbers are the same.
    distribution
        What the log-probabilities are, if you know it better than the replies say; see `score_reply`.
    vocabulary
        The tokens of the model that answered, for narrower intervals, and for tokens that come only as ids.
    rules
        As for `score_reply`.
    methods
        Further methods that read only the best tokens, such as "perplexity"; their scores are in `response.scores`.
    temperature
        Of the requests, for SGLang, whose log-probabilities follow it.
    answering_model
        The model that answered, if the vocabulary is another model's with the same tokenizer.
    on_checked
        Called after each reply with how many have been looked at.

    Returns
    -------
    RankedReplies
        A sequence of `RankedAnswer`, the least confident first.

    Raises
    ------
    InvalidInputError
        A source does not exist, questions cannot be joined, or no reply can be scored.
    CalibratorMismatchError
        The calibrator was fitted on scores of another kind.
    """
    if calibrator is not None:
        instance(calibrator, CalibratorInUse, "calibrator")
    if temperature is not None:
        real(temperature, "temperature", low=0)
    if schema is not None and not isinstance(schema, Mapping):
        raise InvalidInputError(f"'schema' must be a JSON Schema as a dictionary, got {shown(schema)}.")
    settings = CheckSettings(
        format,
        calibrator,
        schema,
        keep_tokens,
        distribution,
        vocabulary,
        rules,
        tuple(listed(methods, "methods")),
        temperature,
        answering_model,
    )
    given = [sources] if isinstance(sources, str | os.PathLike) else listed(sources, "sources")
    names = [str(source) if isinstance(source, os.PathLike) else source for source in given]
    named = [text(name, f"sources[{i}]") for i, name in enumerate(names)]
    return rank_opened(OpenedReplies(named), settings, questions, on_checked)


def rank_opened(
    replies: OpenedReplies,
    settings: CheckSettings,
    questions: Path | None = None,
    on_checked: Callable[[int], None] = lambda count: None,
) -> RankedReplies:
    """Score replies and rank their answers; the rest is as in `rank_replies`."""
    found: Iterable[FoundReply] = replies
    asked: Iterable[JoinedQuestion | None] = repeat(None)
    joined = ""
    if questions is not None:
        # Joining needs the names of all of them, before the first can have its question.
        # All at once may not fit into the memory, so that files are read once more then.
        kept = list(replies) if replies.once_only else None
        names = [reply.named() for reply in (replies if kept is None else kept)]
        asked, joined = join_questions(names, read_questions(_path(questions)))
        found = OpenedReplies(replies.sources) if kept is None else kept
    checked: list[Sequence[RankedAnswer | RefusedReply]] = []
    # one after the other: a parsed reply takes five times the memory of its text
    with rare_collections(OBJECTS_OF_REPLIES):
        for reply, question in zip(found, asked, strict=False):
            checked.append(check_found(reply, question, settings))
            on_checked(len(checked))
    if isinstance(asked, list) and len(checked) < len(asked):
        gone = len(asked) - len(checked)
        raise InvalidInputError(f"{gone:,} of {len(asked):,} replies went while they were read: check them once more.")
    return ranked(checked, joined, replies.passed_over)


NOT_KEPT = "the replies were checked with keep_tokens=False"
NO_REPLY = "'sources' names no reply: give a file, a folder or a glob."


def check_found(
    found_reply: FoundReply, asked: JoinedQuestion | None, settings: CheckSettings
) -> Sequence[RankedAnswer | RefusedReply]:
    """The answers of one reply, or the reason why a choice has none; `asked` is its question in a file, with its id."""
    if asked is not None and asked.where not in (None, found_reply.where):
        raise InvalidInputError(
            f"{found_reply.where} came while the replies were read, or {asked.where} went: check them once more."
        )
    try:
        reply = found_reply.read()
    except SemtokenError as error:
        return [RefusedReply(found_reply.where, str(error), found_reply.name)]
    if asked is not None:
        reply = replace(reply, question=asked.text, id=asked.id or reply.id, line=None)
    try:
        return _answers(reply, settings)
    except CalibratorMismatchError:
        # A calibrator that does not belong to these replies is an error of the whole command, and no reply's fault.
        raise
    except SemtokenError as error:
        return [RefusedReply(reply.where, str(error), reply.id, reply.question)]
    except Exception as error:  # a fault of ours; it shall not cost the scores of all other replies
        reason = f"This release fails on it, please report it: {type(error).__name__}: {error}"
        return [RefusedReply(reply.where, reason, reply.id, reply.question)]


def ranked(
    outcomes: Sequence[Sequence[RankedAnswer | RefusedReply]], joined: str = "", passed_over: Sequence[str] = ()
) -> RankedReplies:
    """The answers that were found, the most doubtful first, and refused replies; `InvalidInputError` if none was
    scored.
    """
    if not outcomes:
        raise InvalidInputError(NO_REPLY)
    answers = [one for checked in outcomes for one in checked if isinstance(one, RankedAnswer)]
    refused = [one for checked in outcomes for one in checked if isinstance(one, RefusedReply)]
    result = RankedReplies(_ranked(answers), tuple(refused), joined, tuple(passed_over))
    if not answers:
        reasons = " ".join(f"{count:,} x {first.where}: {first.reason}" for count, first in result.reasons()[:3])
        raise InvalidInputError(f"None of {len(outcomes):,} replies can be scored. {reasons}")
    return result


def _path(given: Any) -> Path:
    try:
        if b"\0" not in os.fsencode(given):
            return Path(os.fsdecode(given))
    except (TypeError, UnicodeEncodeError):
        pass
    raise InvalidInputError(f"'questions' must be the path of a file, got {shown(given)}.")


def _answers(reply: SavedReply, settings: CheckSettings) -> list[RankedAnswer | RefusedReply]:
    """The answer of each choice, or the reason why it has none; `SemtokenError` if no choice has an answer."""
    parsed_reply = _parsed(reply, settings)
    outcomes: list[RankedAnswer | RefusedReply] = []
    failed: list[SemtokenError] = []
    for choice in parsed_reply.choices:
        name = reply.id if len(parsed_reply.choices) == 1 else f"{reply.id}/{choice.index}"
        # The line may say what each choice was asked.
        question = question_of(reply.line, choice.index) or reply.question or choice.question
        alone = replace(parsed_reply, choices=(replace(choice, question=question),))
        try:
            outcomes.append(_answer(reply, name, alone, settings))
        except CalibratorMismatchError:
            raise
        except SemtokenError as error:
            failed.append(error)
            outcomes.append(RefusedReply(reply.where, str(error), name, question))
    if len(failed) == len(outcomes):
        raise failed[0]
    return outcomes


def _parsed(reply: SavedReply, settings: CheckSettings) -> Reply:
    raise_error_beside(reply.record)
    if reply.shape is not None and settings.format is None:
        return read_found(Found((), reply.reply, reply.shape), settings.temperature, reply.request or {})
    return read_reply(reply.reply, settings.format, temperature=settings.temperature, request=reply.request)


def _answer(reply: SavedReply, name: str, parsed_reply: Reply, settings: CheckSettings) -> RankedAnswer:
    """The answer of a reply with one choice."""
    calibrator, schema, choice = settings.calibrator, settings.schema, parsed_reply.choices[0]
    try:
        [response] = score_reply(
            parsed_reply,
            settings.vocabulary,
            preset=settings.rules or "default",
            distribution=settings.distribution,
            proxy_for=settings.answering_model,
            methods=settings.methods,
        )
    except SemtokenError:
        if not (blocks := blocks_of_reply(reply.reply)):
            raise
        return _own_answer(reply, name, choice, blocks.get(choice.index), settings, parsed_reply.model)
    block = None if calibrator is None or schema is not None else calibrator.block_or_refusal(response, reply.record)
    fields = () if schema is None else tuple(field_records(response, schema, calibrator, reply.record))
    answer = choice.segment("answer")
    doubts, shown_text = in_message(tuple(doubts_of(response)), response.text, "" if answer is None else answer.text)
    said = sentence_of(response, worst_of(doubts))
    kept = response if settings.keep_tokens else response.without_tokens(NOT_KEPT)
    return RankedAnswer(reply.where, name, choice.question, kept, doubts, said, block, fields, shown_text)


def _own_answer(
    reply: SavedReply,
    name: str,
    choice: ReplyChoice,
    block: Mapping[str, Any] | None,
    settings: CheckSettings,
    model: str | None,
) -> RankedAnswer:
    """An answer with the numbers that one of our servers has put into its reply."""
    calibrator, schema = settings.calibrator, settings.schema
    if block is None:
        raise InvalidInputError(
            f"Choice {choice.index} of the reply has neither log-probabilities nor a semtoken block."
        )
    result = answer_of_block(choice, block).with_fields(model=model)
    if schema is not None:
        raise InvalidInputError(f"Its fields cannot be scored: {NO_TOKENS}.")
    if calibrator is not None and calibrator.calibrator.fingerprint.method != CONFIDENCE:
        raise InvalidInputError(f"The calibrator reads more than the confidence, and {NO_TOKENS}.")
    reported = {key: block[key] for key in ("probability_correct", "decision", "guarantee") if key in block}
    calibration = reported or None if calibrator is None else calibrator.block_or_refusal(result, reply.record)
    doubts = doubts_of_block(block)
    said = sentence_of(result, worst_of(doubts)) if doubts or result.empty else NOT_SAVED
    return RankedAnswer(
        reply.where, name, choice.question, result, doubts, said, calibration, text=result.text, from_block=True
    )


def _ranked(answers: Sequence[RankedAnswer]) -> tuple[RankedAnswer, ...]:
    # Of two that are equally sure, the longer one has more in it that may be wrong.
    keys = [(answer.confidence, -answer.response.n_tokens) for answer in answers]
    order = sorted(range(len(answers)), key=keys.__getitem__)
    return tuple(replace(answers[i], rank=rank, place=i + 1) for rank, i in enumerate(order, start=1))
