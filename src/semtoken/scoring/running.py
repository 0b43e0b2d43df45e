"""The lifecycle of an answer in progress, the same whether all logits are known or only the best tokens of each step.

A token's agreeing probability depends on tokens to come: its prefix set holds what spells the beginning of the text
that follows. A step is *open* until no later token can change its prefix set, and *settled* once it and all steps
before it are no longer open. Vocabulary strings are short, so the settled part lags by a few tokens.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from semtoken.results import Alternative, Distribution, Running, ScoredResponse, ScoredToken
from semtoken.scoring.prefixes import next_look
from semtoken.scoring.scorer import Scorer
from semtoken.support.text import number
from semtoken.tokens.rules import SAME_LETTERS
from semtoken.tokens.scored_token import Flag
from semtoken.tokens.vocabulary import normalize


class LogMass(NamedTuple):
    """The natural log of a step's agreeing probability: lower bound, estimate and upper bound."""

    lower: float
    estimate: float
    upper: float

    @staticmethod
    def total(masses: Sequence[LogMass]) -> LogMass:
        """The log-probabilities of one step or more added up, each end of the interval and the estimate by itself."""
        if len(masses) == 2:  # an answer goes on; the sum of two is the same, rounded once
            (low, estimate, high), (more_low, more, more_high) = masses
            return LogMass(low + more_low, estimate + more, high + more_high)
        return LogMass(*(math.fsum(logs) for logs in zip(*masses, strict=True)))


@dataclass(frozen=True, eq=False)
class OpenStep:
    """A step whose prefix set cannot be decided before further tokens are known."""

    position: int
    look_again: int
    """Length of the answer at which the text to come is looked at again: ever less often."""


O = TypeVar("O", bound=OpenStep)  # noqa: E741


class RunningAnswer(ABC, Generic[O]):
    """The common part of unfinished answers: steps are added one by one, and the score can be asked for at any time.

    A subclass says how a step is read, what its prefix set adds, and what its mass is.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.ids: list[int] = []
        self._neutral: list[bool] = []
        """For each token, whether it is neutral where it stands."""
        self._open: list[O] = []
        self._leading_blanks = 0
        self._has_content = False
        self._n_settled = 0
        self._settled = LogMass(0.0, 0.0, 0.0)  # sums over the settled steps

    # --- what a subclass provides ---

    @abstractmethod
    def _decide(self, step: O, head: str) -> None:
        """Keep the prefix set of a step, now that the text that follows surely begins with `head`."""

    @abstractmethod
    def _narrowed(self, step: O, heads: Sequence[str]) -> O:
        """An open step without what can no longer matter, now that the text that follows begins with a head."""

    @abstractmethod
    def _masses_at(self, positions: range) -> list[LogMass]:
        """The masses of steps whose prefix sets are decided, or as far as they are known."""

    # --- taking in steps ---

    def _take_in(self, tokens: Sequence[int], neutral: Sequence[bool], waiting: Sequence[O]) -> None:
        """Add the tokens of steps, and the steps that wait for text; call `advance` once all known steps are in."""
        if self.opens:
            self._leading_blanks += next(
                (k for k, token in enumerate(tokens) if not self._is_blank(token)), len(tokens)
            )
        self._has_content = self._has_content or not all(neutral)
        self.ids += tokens
        self._neutral += neutral
        self._open += waiting

    def _is_blank(self, token: int) -> bool:
        return bool(self.scorer.vocabulary.blank[token])

    @property
    def opens(self) -> bool:
        """Whether the answer consists of blanks so far."""
        return len(self.ids) <= self._leading_blanks

    def advance(self, *, complete: bool = False) -> None:
        """Decide every prefix set that the tokens so far can decide, all of them if the answer is complete."""
        still_open: list[O] = []
        for step in self._open:
            if len(self.ids) < step.look_again and not complete:
                still_open.append(step)
                continue
            heads, decided = self.scorer.index.look(self.ids, step.position, complete=complete)
            if decided:
                self._decide(step, heads[0])
            elif all(heads):
                later = step.position + next_look(len(self.ids) - step.position)
                still_open.append(replace(self._narrowed(step, heads), look_again=later))
            else:
                still_open.append(step)
        self._open = still_open

    # --- what is known ---

    @property
    def _neutrality(self) -> bool:
        """Whether neutral tokens count as consistent, if the answer ends here."""
        return self._has_content or self.scorer.rules.preset == "paper"

    def running(self) -> Running:
        """The score from the tokens so far. The cost does not grow with the length of the answer.

        The bounds allow for every prefix set that later tokens can still give a step. Before the first content token
        nothing is settled under the preset `default`.
        """
        return self._running_with(self._masses_at(self._unsettled()))

    def _unsettled(self) -> range:
        """The steps whose masses are not yet in the settled sum."""
        return range(self._n_settled, len(self.ids))

    def _running_with(self, new: Sequence[LogMass]) -> Running:
        """What is known so far, by the masses of the unsettled steps."""
        neutrality = self._neutrality
        undecided = set()
        if self.scorer.rules.prefix_matching:  # the prefix set of a neutral token does not count
            undecided = {step.position for step in self._open if not (neutrality and self._neutral[step.position])}
        settled = min(undecided, default=len(self.ids)) if neutrality else 0
        first, settled = self._n_settled, max(self._n_settled, settled)
        self._settled = LogMass.total([self._settled, *new[: settled - first]])
        self._n_settled = settled
        later = [
            mass if neutrality and position not in undecided else mass._replace(upper=0.0)
            for position, mass in enumerate(new[settled - first :], start=settled)
        ]
        total = LogMass.total([self._settled, *later]) if later else self._settled
        if self.opens:
            total = total._replace(lower=-math.inf)  # an answer of blanks alone has the uncertainty 1
        return Running(
            uncertainty=-math.expm1(self._settled.estimate) + 0.0,
            uncertainty_bounds=(-math.expm1(total.upper) + 0.0, -math.expm1(total.lower) + 0.0),
            n_settled=self._n_settled,
            n_tokens=len(self.ids),
            log_score_bounds=(total.lower, total.upper),
        )

    def _response(
        self,
        distribution: Distribution,
        log_score: float,
        flags: tuple[Flag, ...] = (),
        *,
        rivals: bool = True,
        **more: Any,
    ) -> ScoredResponse:
        """The result of the complete answer; `more` has the tokens, and what else is known.

        `rivals`: whether a token may have one of which a flag tells.
        """
        text = self.scorer.vocabulary.decode(self.ids)
        response = ScoredResponse(
            text=text,
            log_score=log_score,
            preset=self.scorer.rules.preset,
            distribution=distribution,
            neutral_only=not self._has_content and bool(text.strip()),
            signature=self.scorer.signature,
            flags=flags,
            **more,
        )
        if not self.scorer.rules.lending or (not rivals and 1.0 - response.uncertainty < CONFIDENT):
            return response
        return response.with_fields(flags=(*flags, *borrowed_flags(response)))


DECIDES = 0.5
"""An answer is flagged if at least this share of its confidence comes from one source other than its own tokens."""
CONFIDENT = 0.1
"""An answer of less confidence gets no flag: it is doubtful either way."""
RIVAL = 0.1
"""Another token of at least this probability is a rival of the chosen one."""


def borrowed_flags(response: ScoredResponse) -> tuple[Flag, ...]:
    """Flags of an answer whose score rests on tokens other than its own; none for most answers.

    `carried_by_cluster`, `carried_by_function_words`
        The confidence is at least 0.1, and at least half of it is the probability of tokens in the clusters of the
        chosen ones, or of function words, white space and special tokens.
    `rivals_counted`
        At some step another word of at least 0.1 counted as agreeing only because it shares the chosen token's
        cluster: "Sydney" beside "Canberra". Tokens that share their first three characters are no rivals.
    """
    flags = []
    confidence = 1.0 - response.uncertainty
    if confidence >= CONFIDENT:
        borrowed = response.borrowed
        carried = (
            ("carried_by_cluster", borrowed.cluster, "other tokens of the same clusters"),
            ("carried_by_function_words", borrowed.function_words, "function words, white space and special tokens"),
        )
        for code, mass, source in carried:
            if mass >= DECIDES * confidence:
                share = f"{number(mass)} of the confidence of {number(confidence)}"
                flags.append(Flag(code, f"{share} came from {source}, not from the answer's own tokens."))
    rivals = [(token, rival) for token in response.tokens if not token.neutral for rival in _rivals(token)]
    if rivals:
        token, rival = max(rivals, key=lambda pair: pair[1].probability)
        flags.append(
            Flag(
                "rivals_counted",
                f"{rival.text!r} ({number(rival.probability)}) counted as agreeing with {token.text!r} "
                f"({number(token.probability)}), since they share a cluster.",
            )
        )
    return tuple(flags)


def _rivals(token: ScoredToken) -> Iterator[Alternative]:
    """Likely other words that counted because of their cluster alone."""
    for other in token.alternatives:
        counted = other.source == "cluster" and other.counted and other.probability >= RIVAL
        if counted and normalize(other.text)[:SAME_LETTERS] != normalize(token.text)[:SAME_LETTERS]:
            yield other
