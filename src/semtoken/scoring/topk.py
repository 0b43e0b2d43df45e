"""Semantic Token Clustering from the k best log-probabilities a step, as APIs and serving engines show them.

Of the mass that is consistent with a token, the listed part is known: a lower bound. What is not listed can add at
most the mass that is missing from the list, and at most as many times the smallest listed probability as the
consistent set has members that are not listed. The product over the steps gives an interval around the exact
uncertainty. Engines round their numbers; the interval is wider for that (`topk_bounds.rounding`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from semtoken.choices import FunctionWords, Preset
from semtoken.clusters import TokenClusters
from semtoken.engine_tokens import TopStep, TopToken, as_top_steps
from semtoken.engine_tokens.checked_list import ListReader, Precision, not_in_vocabulary
from semtoken.engine_tokens.same_tokenizer import check_shared_vocabulary
from semtoken.errors import InvalidInput
from semtoken.results import Distribution, Running, ScoredResponse, TokensLater
from semtoken.scoring.prefixes import NO_IDS
from semtoken.scoring.rules import ScoringRules, as_rules
from semtoken.scoring.running import LogMass, OpenStep, RunningAnswer
from semtoken.scoring.scorer import Scorer, scorer_for
from semtoken.scoring.topk_bounds import PlacedStep, rounding
from semtoken.scoring.topk_flags import listed_flags, text_flags
from semtoken.scoring.topk_records import ListedSteps
from semtoken.support.arrays import IdArray
from semtoken.support.inputs import instance, one_of
from semtoken.support.inputs import text as checked_text
from semtoken.tokens.scored import Flag


def score_top_logprobs(
    steps: Any,
    clusters: TokenClusters,
    rules: ScoringRules | Preset | None = None,
    *,
    distribution: Distribution = "unknown",
    token_ids: Sequence[int] | None = None,
    proxy_for: str | None = None,
    text: str | None = None,
    preset: Preset | None = None,
    function_words: FunctionWords | None = None,
    clustering: bool | None = None,
    prefix_matching: bool | None = None,
) -> ScoredResponse:
    """Score one answer of which only the k most probable tokens of each step are known.

    Parameters
    ----------
    steps
        One entry a step: `TopStep`, or one of the forms that `as_top_steps` reads (OpenAI's items, vLLM's dicts).
        A token is found by its id, else by "token_id:N", else by its bytes, else by its string.
    clusters
        Clusters of the tokenizer that the engine uses.
    rules
        What counts as agreeing: a preset's name, or `ScoringRules`.
    distribution
        What the log-probabilities are: `raw`, `processed` or `unknown` (an API that does not say).
    token_ids
        Ids of the chosen tokens, where the steps do not name them.
    proxy_for
        Name of the model that answered, where the clusters are another model's with the same tokenizer: the result
        is labelled with it. A token that the vocabulary lacks shows that the tokenizers differ, and is refused;
        `check_shared_vocabulary` tells more.
    text
        The answer as the engine gives it, if it is at hand: steps that do not spell it (missing or merged ones) are
        flagged.
    preset, function_words, clustering, prefix_matching
        Instead of `rules`, as in `score_logits`.

    Returns
    -------
    ScoredResponse
        `uncertainty_bounds` contain the exact uncertainty; `uncertainty` counts the listed mass alone, which is the
        cautious end of the interval and ranks answers best; `widest_steps` names the steps that cause the width.
        `flags` hold what its reader should know.

    Raises
    ------
    InvalidInput
        No steps, steps of an unknown form, or a chosen token that is unknown or not clear.
    InvalidLogits
        Numbers that are no log-probabilities; the message names the step.
    VocabularyMismatch
        Ids and names of the tokens disagree with the vocabulary of the clusters.
    """
    chosen = as_rules(
        rules,
        preset=preset,
        function_words=function_words,
        clustering=clustering,
        prefix_matching=prefix_matching,
    )
    instance(clusters, TokenClusters, "clusters")
    one_of("distribution", distribution, get_args(Distribution))
    for name, value in (("proxy_for", proxy_for), ("text", text)):
        if value is not None:
            checked_text(value, name)
    answer = TopkAnswer(scorer_for(clusters, chosen))
    read = as_top_steps(steps, token_ids)
    if not read:
        raise InvalidInput(
            "There are no steps to score. Were log-probabilities asked for (`logprobs`, `top_logprobs`)? Some servers "
            "accept the request and leave them out."
        )
    if proxy_for is not None:
        check_shared_vocabulary(read, clusters.vocabulary).require(proxy_for)
    for step in read:
        answer.add(step)
    scored = answer.finish(distribution, proxy_for=proxy_for)
    more = () if text is None else text_flags(scored.text, text)
    return replace(scored, flags=(*scored.flags, *more)) if more else scored


class TopkAnswer(RunningAnswer[OpenStep]):
    """One answer in progress of which only the best tokens of each step are known.

    A step that goes in is read and kept; what it adds to the score is computed for many steps together, when somebody
    asks: at the end, or while the answer is being written.
    """

    def __init__(self, scorer: Scorer) -> None:
        super().__init__(scorer)
        self._reader = ListReader(scorer.vocabulary)
        self._precision = Precision()
        self._steps: list[PlacedStep] = []
        self._prefixes: list[IdArray] = []
        """The prefix set of each step, without ids as long as it is open, or if the rules ask for none."""
        self._masses: list[LogMass] = []
        """Of the steps for which they were asked when it was known how exactly the numbers are written."""
        self._ended_by: tuple[TopToken, int] | None = None
        """The first token that can only be a special one, and its step."""

    def add(self, step: TopStep) -> None:
        """Take in the next step.

        Raises
        ------
        InvalidInput, InvalidLogits, VocabularyMismatch
            See `score_top_logprobs`.
        """
        position = len(self.ids)
        listed = self._reader.read(step, position)
        if self._ended_by is not None and not self.scorer.vocabulary.blank[listed.token]:
            raise not_in_vocabulary(*self._ended_by)
        if listed.stands_for and self._ended_by is None:
            self._ended_by = step.chosen, position
        opening = self._opens(position)
        neutral = bool(self.scorer.neutral_masks[0 if opening else 1, listed.token])
        self._precision.add(step.log_probs)
        self._prefixes.append(NO_IDS)
        self._steps.append(PlacedStep(listed, opening, neutral))
        waiting = [OpenStep(position, position + 2)] if self.scorer.rules.prefix_matching else []
        self._take_in([listed.token], [neutral], waiting)

    def running(self) -> Running:
        """See `RunningAnswer.running`."""
        self.advance()
        return super().running()

    def truncate(self, length: int) -> None:
        """Forget the steps from `length` on."""
        super().truncate(length)
        del self._steps[length:], self._prefixes[length:]

    def _decide(self, step: OpenStep, head: str) -> None:
        self._prefixes[step.position] = self.scorer.index.beginnings(head)

    def _narrowed(self, step: OpenStep, heads: Sequence[str]) -> OpenStep:
        return step

    def _listed(self, steps: slice) -> ListedSteps:
        """Some steps, with the prefix sets that are decided by now."""
        return ListedSteps(
            self.scorer,
            self._steps[steps],
            self._prefixes[steps],
            self._neutrality,
            off=rounding(self._precision.decimals, self._precision.numbers),
            relative=self._precision.relative,
        )

    def _masses_at(self, positions: range) -> list[LogMass]:
        found = self._listed(slice(positions.start, positions.stop)).masses()
        if self._precision.in_full and positions.start <= len(self._masses):
            self._masses[positions.start :] = found
        return found

    def finish(self, distribution: Distribution = "unknown", *, proxy_for: str | None = None) -> ScoredResponse:
        """The result, once the answer is complete.

        Raises
        ------
        BackendError
            All log-probabilities are zero: the engine reports none. Or its names lack the blanks of their tokens.
        """
        self._advance(complete=True)
        vocabulary, ids = self.scorer.vocabulary, list(self.ids)
        steps = self._listed(slice(None))
        settled = self._masses[: self._n_settled]
        masses = [*settled, *self._listed(slice(len(settled), None)).masses()] if settled else steps.masses()
        blank = not vocabulary.decode(ids).strip()
        low, estimate, high = LogMass(*[-math.inf] * 3) if blank else LogMass.total(masses)
        return self._response(
            distribution,
            estimate,
            flags=(*listed_flags(steps), *_proxy_flags(proxy_for)),
            tokens=TokensLater(len(ids), lambda: steps.tokens(ids)),
            rivals=steps.any_rival,
            log_score_bounds=(low, high),
            proxy_for=proxy_for,
        )


def _proxy_flags(proxy_for: str | None) -> list[Flag]:
    if proxy_for is None:
        return []
    message = f"The clusters are another model's than {proxy_for}, with the same tokenizer: a proxy for its own."
    return [Flag("shared_vocabulary", message)]
