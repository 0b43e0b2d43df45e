"""The uncertainty of each choice of a reply or stream, or the reason why there is none."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from semtoken.core.engine_tokens import TopStep, TopToken
from semtoken.core.growing import GrowingAnswer
from semtoken.core.results import Distribution, ScoredAnswer
from semtoken.core.scorer import Scorer
from semtoken.errors import SemtokenError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.replies import Reply, ReplyChoice, ReplyStream, Segment, read_reply
from semtoken.replies.formats import HiddenFields
from semtoken.replies.score import score_choice, with_methods
from semtoken.replies.stream import NO_END
from semtoken.web.block import reason_block, running_block, score_block
from semtoken.web.calibrators import CalibratorSlot
from semtoken.web.limits import Busy, Workers
from semtoken.web.proxy.asking import AnswerRequest
from semtoken.web.proxy.distributions import LearnedDistributions
from semtoken.web.proxy.editing import Editor, LocatedReply, withheld
from semtoken.web.proxy.metrics import ProxyMetrics
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.proxy.upstream import Request

if TYPE_CHECKING:
    from semtoken.web.recorder import AnswerRecorder

logger = logging.getLogger("semtoken.proxy")

Block = dict[str, Any]
T = TypeVar("T")
LONG_ANSWER = 50  # tokens of an answer from which on it is finished in a thread
REFUSED = "The upstream does not give log-probabilities for this request, so there is nothing to score."
TOO_LONG = "The answer has more tokens than the proxy scores (--limits.scored-tokens)."
ONLY_ANSWERS = "only answers are scored."
BUSY = "The proxy has more to score than it can; it passed this answer on unscored."
PASSED_ON = {
    "too_large": "The reply is longer than the proxy scores (--limits.reply-mb).",
    "busy": BUSY,
    "encoded": "The reply is packed in a way that the proxy does not read.",
    "not_json": "The reply is neither JSON nor a stream of events.",
}
"""The reasons for passing a reply on as it came, for the journal."""
AFTER_THE_END = "More of the answer came after the server had said that it is complete."


class UnscoredChoice(Exception):
    """The error that a choice cannot be scored, with the reason."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@contextmanager
def _explained() -> Iterator[None]:
    """Make `UnscoredChoice` of whatever goes wrong in the block, so that it never ends the answer."""
    try:
        yield
    except UnscoredChoice:
        raise
    except SemtokenError as error:
        raise UnscoredChoice(type(error).__name__, str(error)) from error
    except Exception as error:
        logger.exception("An answer could not be scored")
        raise UnscoredChoice("internal", f"Scoring failed ({type(error).__name__}); see the proxy's log.") from error


@dataclass(frozen=True)
class AnswerScoring:
    """The settings, models and threads with which one proxy scores answers."""

    scorer: Scorer
    settings: ProxySettings
    metrics: ProxyMetrics
    workers: Workers
    distributions: LearnedDistributions
    """The distribution behind the upstream's log-probabilities, where its replies do not show it."""
    calibrators: CalibratorSlot[CalibratorInUse] = field(default_factory=lambda: CalibratorSlot(None))
    """Holds the calibrator that adds the probability and the decision to every final block."""
    recorder: AnswerRecorder | None = None

    def warm_up(self) -> None:
        """Load and compile what the first answer would otherwise have to wait for."""
        with suppress(SemtokenError):
            answer, token = GrowingAnswer(self.scorer), TopToken(0.0, text="a", bytes=b"a")
            answer.add(TopStep(token, (token,)))
            answer.finish()


@dataclass
class _WrittenChoice:
    """A choice of a stream, as far as it has come."""

    answer: GrowingAnswer
    steps: list[TopStep] = field(default_factory=list)
    """The steps that the answer has taken in."""
    ended: bool = False


class ReplyScorer:
    """Scores the choices of one reply, whole or streamed.

    `request` was sent to the upstream and asks for `top` log-probabilities of each token, `applied` the
    calibrator that decides, also if another one comes into use meanwhile.
    """

    def __init__(
        self, scoring: AnswerScoring, asked: AnswerRequest, request: Request, top: int, applied: CalibratorInUse | None
    ) -> None:
        self._scoring = scoring
        self._asked = asked
        self._request = request
        self._top = top
        self._applied = applied
        self.settings = scoring.settings
        self.workers = scoring.workers
        hidden = HiddenFields(asked.kept, scoring.settings.token_ids, asked.body) if top else None
        self.editor = Editor(asked.shape, hidden, withheld(applied))
        """Puts the scores into the reply."""
        refused = REFUSED if not top and asked.kept is None else None
        obstacle = asked.shape.obstacle(asked.body) or refused
        self._failed = None if obstacle is None else UnscoredChoice("obstacle", obstacle)
        """The reason why no choice can be scored."""
        self._choices: dict[int, _WrittenChoice] = defaultdict(lambda: _WrittenChoice(GrowingAnswer(scoring.scorer)))
        self._tokens = 0
        """The number of tokens that the reply has, or that the stream had so far."""
        self._parsed_reply: Reply | None = None
        """A whole reply that was read."""
        self._last: Mapping[str, Any] = {}
        self._spent = 0.0
        self._begun: float | None = None
        """The time at which the work began that `_spent` does not count yet."""
        self._has_more_to_compute = bool(asked.options.parts or asked.options.methods or scoring.settings.methods)
        self.gave_up: str | None = None
        """The reason why nothing was added to the reply, or to a choice of it: a word, as in the figures."""

    @cached_property
    def _stream(self) -> ReplyStream:
        """The chunks of the reply, if it comes in some."""
        return ReplyStream(request=self._asked.body)

    @property
    def decides(self) -> bool:
        """Whether only accepted answers may be shown, so that an unreadable one must not be."""
        return self.editor.withheld is not None

    @property
    def takes_long(self) -> bool:
        """Whether scoring may take long, since there is much to compute or to read, so that it belongs in a thread."""
        return self._has_more_to_compute or self._tokens > LONG_ANSWER

    @property
    def seconds(self) -> float:
        """The seconds that reading and scoring have taken so far."""
        return self._spent + (0.0 if self._begun is None else perf_counter() - self._begun)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Add the time of the block to `seconds`."""
        self._begun = perf_counter()
        try:
            yield
        finally:
            self._spent, self._begun = self.seconds, None

    async def settle(self) -> None:
        """Find out what the upstream's numbers are, where the reply that has been read leaves it open."""
        format = (self._parsed_reply or self._stream).format
        await self._scoring.distributions.settle(self.model, format, self._request, self._asked, self._top)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do slow work in a thread; if too much waits already, here, and the answer gets no score but that reason."""
        try:
            return await self.workers.run(work)
        except Busy:
            self.fail("busy", BUSY)
            return work()

    def pass_on(self, code: str) -> None:
        """Count and record a reply to which nothing is added; `code` is one of `PASSED_ON`."""
        self._count(code)
        # A choice that has ended has its entry in the journal.
        if not any(choice.ended for choice in self._choices.values()):
            self._record(PASSED_ON[code])

    def _count(self, code: str) -> None:
        self.gave_up = code
        self._scoring.metrics.unscored.labels(code).inc()

    @property
    def model(self) -> str | None:
        """The model that answered, as the reply names it."""
        return (self._parsed_reply or self._stream).model

    def _about(self, choice: int) -> dict[str, Any]:
        """The fields that the journal stores beside the score; the model is that of the reply, where it names one."""
        about = self._asked.about(choice)
        return about | {"model": self.model or about["model"]}

    def _record(self, reason: str) -> None:
        if self._scoring.recorder is not None:
            self._scoring.recorder.unscored(reason, **self._about(0))

    def fail(self, code: str, reason: str) -> None:
        """Give no choice that has not ended a score, for the first such reason."""
        self._failed = self._failed or UnscoredChoice(code, reason)

    def _check_budget(self) -> None:
        if self.seconds > self.settings.max_scoring_seconds:
            self.fail("budget", "Scoring took too long (--limits.scoring-seconds).")

    def read(self, reply: LocatedReply) -> None:
        """Read the log-probabilities of a whole reply and count its tokens, for `blocks`."""
        if self._failed is not None:
            return
        with self._timed():
            try:
                with _explained():
                    self._parsed_reply = read_reply(reply.json.value, request=self._asked.body)
            except UnscoredChoice as failed:
                self._failed = failed
            else:
                self._tokens = sum(map(_size, self._parsed_reply.choices))

    def blocks(self, reply: LocatedReply) -> dict[int, Block]:
        """The blocks of a whole reply that was read, by the index of their choice."""
        parsed_reply = self._parsed_reply
        if parsed_reply is None:
            failed = self._failed or UnscoredChoice("internal", "The reply was not read.")
            return {place.choice: self._unscored(failed) for place in reply.places if place.choice is not None}
        blocks = {}
        with self._timed():
            for choice in parsed_reply.choices:
                self._check_budget()
                blocks[choice.index] = self._final(choice, parsed_reply.distribution)
        return blocks

    def event(self, event: LocatedReply) -> dict[int, Block]:
        """Score an event; returns the blocks of unfinished answers and of those that end with it."""
        self._last = event.json.value
        blocks: dict[int, Block | None] = {}
        with self._timed():
            late = self._take_in(event)
            for place in event.places:
                if place.choice is not None:
                    ends = place.ended or place.choice in late
                    blocks[place.choice] = self._final_block(place.choice) if ends else self._running(place.choice)
        return {index: block for index, block in blocks.items() if block is not None}

    def trailer(self) -> Block | None:
        """An event for the end of a stream that was not understood or ended no choice, if none had a final block."""
        failed = self._failed or (UnscoredChoice("no_end", NO_END) if self._choices else None)
        if failed is None or any(choice.ended for choice in self._choices.values()):
            return None
        return self._asked.shape.notice(self._last, self._unscored(failed) | {"final": True})

    def _take_in(self, event: LocatedReply) -> set[int]:
        """Take in what a chunk adds, or remember why not; the choices that it adds to although they had ended."""
        self._check_budget()
        late: set[int] = set()
        if self._failed is not None:
            return late
        try:
            with _explained():
                for added in self._stream.feed(event.json.value):
                    written = self._choices[added.choice]
                    if written.ended:
                        late.add(added.choice)
                    # Thinking counts, too: it takes memory and time like an answer.
                    self._tokens += len(added.steps)
                    if self._tokens > self.settings.max_scored_tokens:
                        raise UnscoredChoice("too_long", TOO_LONG)
                    if added.kind == "answer":
                        written.steps += added.steps
                        written.answer.add(*added.steps)
        except UnscoredChoice as failed:
            self._failed = failed
            return set()
        if late:
            self.fail("after_the_end", AFTER_THE_END)
        return late

    def _running(self, index: int) -> Block | None:
        if self._failed is not None or not self._asked.options.running:
            return None
        written = self._choices.get(index)
        return running_block(written.answer.running()) if written is not None and written.steps else None

    def _final_block(self, index: int) -> Block:
        """The final block of a choice, the same as if the reply had not been streamed."""
        written = self._choices[index]
        written.ended = True
        try:
            if self._failed is not None:
                raise self._failed
            with _explained():
                choice, distribution = self._stream.choice(index)
        except UnscoredChoice as failed:
            return self._unscored(failed) | {"final": True}
        answer = choice.segment("answer")
        # What came piece by piece is taken only if it is what the whole reply holds, so that both have one number.
        same = answer is not None and answer.steps == tuple(written.steps)
        return self._final(choice, distribution, written.answer if same else None) | {"final": True}

    def _final(self, choice: ReplyChoice, said: Distribution, written: GrowingAnswer | None = None) -> Block:
        """The block of a choice with its score, or with the reason why there is none; `said` is what the reply says of
        its numbers, `written` the answer where it came piece by piece.
        """
        how, options, applied = self._scoring, self._asked.options, self._applied
        try:
            with _explained():
                answer = self._answer_of(choice)
                known = how.distributions.of(self.model, said)
                scored = score_choice(choice, how.scorer, known, proxy_for=how.settings.proxy_for, answer=written)
                result, refused = self._with_methods(scored.with_fields(model=self.model), choice, answer)
                left = max(0.0, how.settings.max_scoring_seconds - self.seconds)
                block = score_block(result, how.scorer, options, applied, scores_refused=refused, part_seconds=left)
        except UnscoredChoice as failed:
            return self._unscored(failed)
        if how.recorder is not None:
            how.recorder.scored(result, block, applied, **self._about(choice.index))
        how.metrics.scored.labels(self._asked.shape.name).inc()
        low, high = result.sequence_uncertainty_interval
        how.metrics.widths.observe(high - low)
        return block

    def _answer_of(self, choice: ReplyChoice) -> Segment:
        """The answer in a choice; `UnscoredChoice` if there is none that may be scored."""
        answer = choice.segment("answer")
        if answer is None:
            kinds = " and a ".join(segment.kind.replace("_", " ") for segment in choice.segments)
            raise UnscoredChoice("no_answer", f"The choice holds a {kinds} and no answer; {ONLY_ANSWERS}")
        if _size(choice) > self.settings.max_scored_tokens:
            raise UnscoredChoice("too_long", TOO_LONG)
        if self._failed is not None:
            raise self._failed
        return answer

    def _with_methods(
        self, result: ScoredAnswer, choice: ReplyChoice, answer: Segment
    ) -> tuple[ScoredAnswer, str | None]:
        """An answer with its scores by the methods that were asked for, or why it has none."""
        names = self._asked.options.methods or self.settings.methods
        if not names:
            return result, None
        # Numbers of a server that scores itself: they are kept in its block, and there are no steps to read.
        if len(answer.steps) != result.n_tokens:
            return result, "They read log-probabilities of the upstream, which sent none."
        try:
            return with_methods(result, choice, names, self._scoring.scorer), None
        except SemtokenError as error:
            return result, str(error)

    def _unscored(self, failed: UnscoredChoice) -> Block:
        self._count(failed.code)
        self._record(failed.reason)
        return reason_block(failed.reason)


def _size(choice: ReplyChoice) -> int:
    """The number of tokens of a choice, reasoning and tool calls included."""
    return sum(len(segment.steps) for segment in choice.segments)
