"""The uncertainty of each choice of a reply or stream, or the reason why there is none."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
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
from semtoken.web.block import reason_block, score_block
from semtoken.web.calibrators import CalibratorSlot
from semtoken.web.limits import Busy, Workers
from semtoken.web.proxy.asking import AnswerRequest
from semtoken.web.proxy.distributions import LearnedDistributions
from semtoken.web.proxy.editing import Editor, LocatedReply
from semtoken.web.proxy.metrics import ProxyMetrics
from semtoken.web.proxy.settings import ProxySettings
from semtoken.web.proxy.unpacking import unpacked
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


class UnscoredChoice(Exception):
    """The error that a choice cannot be scored, with the reason."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def explained(error: Exception) -> UnscoredChoice:
    """The reason for which an error leaves a choice without a score; whatever it is, it never ends the answer."""
    if isinstance(error, UnscoredChoice):
        return error
    if isinstance(error, SemtokenError):
        return UnscoredChoice(type(error).__name__, str(error))
    logger.error("An answer could not be scored", exc_info=error)
    return UnscoredChoice("internal", f"Scoring failed ({type(error).__name__}); see the proxy's log.")


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


class Stopwatch:
    """A context that adds up the time that its blocks take."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._begun: float | None = None
        """The time at which the present block began; None outside of one."""

    @property
    def seconds(self) -> float:
        """The seconds so far, with those of the present block."""
        return self._spent + (0.0 if self._begun is None else perf_counter() - self._begun)

    def __enter__(self) -> None:
        self._begun = perf_counter()

    def __exit__(self, *_: object) -> None:
        self._spent, self._begun = self.seconds, None


class ReplyScorer:
    """Makes the block of each choice of one reply, with its score or the reason for having none, and records it.

    `StreamScorer` gives it the choices of a stream.
    `request` was sent to the upstream and asks for `top` log-probabilities of each token, `applied` the
    calibrator that decides, also if another one comes into use meanwhile.
    """

    def __init__(
        self, scoring: AnswerScoring, asked: AnswerRequest, request: Request, top: int, applied: CalibratorInUse | None
    ) -> None:
        self.scoring = scoring
        self.asked = asked
        self._request = request
        self._top = top
        self._applied = applied
        self.settings = scoring.settings
        self.workers = scoring.workers
        hidden = HiddenFields(asked.kept, scoring.settings.token_ids, asked.body) if top else None
        self.editor = Editor(asked.shape, hidden, applied)
        """Puts the scores into the reply."""
        refused = REFUSED if not top and asked.kept is None else None
        obstacle = asked.shape.obstacle(asked.body) or refused
        self.failed = None if obstacle is None else UnscoredChoice("obstacle", obstacle)
        """The reason why no further choice can be scored."""
        self.parsed: Reply | ReplyStream | None = None
        """The reply, once it has been read, or as far as the stream has come."""
        self.n_tokens = 0
        """The number of tokens that the reply has, or that the stream had so far."""
        self.ended: set[int] = set()
        """The indices of the choices of a stream that have their final blocks, and entries in the journal."""
        self.clock = Stopwatch()
        """Counts the time that reading and scoring take."""
        self.gave_up: str | None = None
        """The reason why nothing was added to the reply, or to a choice of it: a word, as in the figures."""

    @property
    def decides(self) -> bool:
        """True if only accepted answers may be shown, so that an unreadable one must not be."""
        return self._applied is not None and self._applied.abstain_text is not None

    @property
    def takes_long(self) -> bool:
        """True if scoring may take long, since there is much to compute or to read, so that it belongs in a thread."""
        options = self.asked.options
        return bool(options.parts or options.methods or self.settings.methods) or self.n_tokens > LONG_ANSWER

    @property
    def model(self) -> str | None:
        """The model that answered, as the reply names it."""
        return None if self.parsed is None else self.parsed.model

    async def settle(self) -> None:
        """Find out what the upstream's numbers are, where the reply that has been read leaves it open."""
        format = None if self.parsed is None else self.parsed.format
        await self.scoring.distributions.settle(self.model, format, self._request, self.asked, self._top)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do slow work in a thread; if too much waits already, here, and the answer gets no score but that reason."""
        try:
            return await self.workers.run(work)
        except Busy:
            self.fail("busy", BUSY)
            return work()

    # --- what is not scored ---

    def pass_on(self, code: str) -> None:
        """Count and record a reply to which nothing is added; `code` is one of `PASSED_ON`."""
        self._count(code)
        if not self.ended:
            self._record(PASSED_ON[code])

    def fail(self, code: str, reason: str) -> None:
        """Give no choice that has not ended a score, for the first such reason."""
        self.failed = self.failed or UnscoredChoice(code, reason)

    def check_budget(self) -> None:
        """Give no further choice a score once reading and scoring have taken too long."""
        if self.clock.seconds > self.settings.max_scoring_seconds:
            self.fail("budget", "Scoring took too long (--limits.scoring-seconds).")

    def unscored(self, failed: UnscoredChoice) -> Block:
        """The block of a choice without a score, which is counted and recorded."""
        self._count(failed.code)
        self._record(failed.reason)
        return reason_block(failed.reason)

    def _count(self, code: str) -> None:
        self.gave_up = code
        self.scoring.metrics.unscored.labels(code).inc()

    def _record(self, reason: str) -> None:
        if self.scoring.recorder is not None:
            self.scoring.recorder.unscored(reason, **self._about(0))

    def _about(self, choice: int) -> dict[str, Any]:
        """The fields that the journal stores beside the score; the model is that of the reply, where it names one."""
        about = self.asked.about(choice)
        return about | {"model": self.model or about["model"]}

    # --- what is scored ---

    def read(self, raw: bytes, encoding: str) -> LocatedReply | None:
        """Read a whole reply, its log-probabilities too, and count its tokens; None if it cannot be read."""
        try:
            text = unpacked(raw, encoding, self.settings.max_scored_bytes).decode()
        except (ValueError, zlib.error):
            self.pass_on("encoded")
            return None
        try:
            reply = self.editor.read(text)
        except ValueError:
            return None
        if self.failed is None:
            with self.clock:
                try:
                    self.parsed = read_reply(reply.json.value, request=self.asked.body)
                    self.n_tokens = sum(map(_size, self.parsed.choices))
                except Exception as error:
                    self.failed = explained(error)
        return reply

    def edited(self, reply: LocatedReply) -> str:
        """The text of a whole reply that was read, with the block of each choice."""
        blocks = {}
        if isinstance(self.parsed, Reply):
            with self.clock:
                for choice in self.parsed.choices:
                    self.check_budget()
                    blocks[choice.index] = self.block(choice, self.parsed.distribution)
        else:
            failed = self.failed or UnscoredChoice("internal", "The reply was not read.")
            blocks = {place.choice: self.unscored(failed) for place in reply.places if place.choice is not None}
        return self.editor.edited(reply, blocks)

    def block(self, choice: ReplyChoice, said: Distribution, written: GrowingAnswer | None = None) -> Block:
        """The block of a choice with its score, or with the reason why there is none; `said` is what the reply says of
        its numbers, `written` the answer where it came piece by piece.
        """
        how, options, applied = self.scoring, self.asked.options, self._applied
        try:
            answer = self._answer_of(choice)
            known = how.distributions.of(self.model, said)
            scored = score_choice(choice, how.scorer, known, proxy_for=how.settings.proxy_for, written=written)
            result, refused = self._with_methods(scored.with_fields(model=self.model), choice, answer)
            left = max(0.0, how.settings.max_scoring_seconds - self.clock.seconds)
            block = score_block(result, how.scorer, options, applied, scores_refused=refused, part_seconds=left)
        except Exception as error:
            return self.unscored(explained(error))
        if how.recorder is not None:
            how.recorder.scored(result, block, applied, **self._about(choice.index))
        how.metrics.scored.labels(self.asked.shape.name).inc()
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
        if self.failed is not None:
            raise self.failed
        return answer

    def _with_methods(
        self, result: ScoredAnswer, choice: ReplyChoice, answer: Segment
    ) -> tuple[ScoredAnswer, str | None]:
        """An answer with its scores by the methods that were asked for, or why it has none."""
        names = self.asked.options.methods or self.settings.methods
        if not names:
            return result, None
        # Numbers of a server that scores itself: they are kept in its block, and there are no steps to read.
        if len(answer.steps) != result.n_tokens:
            return result, "They read log-probabilities of the upstream, which sent none."
        try:
            return with_methods(result, choice, names, self.scoring.scorer), None
        except SemtokenError as error:
            return result, str(error)


def _size(choice: ReplyChoice) -> int:
    """The number of tokens of a choice, reasoning and tool calls included."""
    return sum(len(segment.steps) for segment in choice.segments)
