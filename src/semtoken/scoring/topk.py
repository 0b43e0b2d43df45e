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

import numpy as np

from semtoken._arrays import IdArray
from semtoken._inputs import instance, one_of
from semtoken._inputs import text as checked_text
from semtoken.choices import FunctionWords, Preset
from semtoken.clusters import TokenClusters
from semtoken.engine_tokens import TopStep, TopToken, as_top_steps
from semtoken.engine_tokens.checked_list import ListedStep, leaves_out_blank, not_in_vocabulary, read_step
from semtoken.engine_tokens.same_tokenizer import check_shared_vocabulary
from semtoken.errors import InvalidInput
from semtoken.flags import Flag
from semtoken.results import Alternative, Distribution, ScoredResponse, ScoredToken, ValueEnds
from semtoken.scoring.endings import endings_of
from semtoken.scoring.prefixes import NO_IDS
from semtoken.scoring.rows import LEAST_LISTED, LISTED
from semtoken.scoring.rules import ScoringRules, as_rules
from semtoken.scoring.running import LogMass, OpenStep, RunningAnswer
from semtoken.scoring.scorer import Scorer, among, scorer_for
from semtoken.scoring.topk_bounds import MANY_HALVES, StepBounds, rounding, step_bounds
from semtoken.scoring.topk_flags import listed_flags, text_flags


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
    return scored if text is None else replace(scored, flags=(*scored.flags, *text_flags(scored.text, text)))


class TopkAnswer(RunningAnswer[ListedStep, OpenStep]):
    """One answer in progress of which only the best tokens of each step are known."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__(scorer)
        self._prefixes: dict[int, IdArray] = {}
        self._blanks_left_out = False
        self._numbers = 0
        self._decimals = 0
        self._relative = math.inf
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
        vocabulary = self.scorer.vocabulary
        left_out = self._blanks_left_out or leaves_out_blank(step.chosen, vocabulary)
        listed = read_step(step, vocabulary, position, blanks_left_out=left_out)
        if self._ended_by is not None and not vocabulary.blank[listed.token]:
            raise not_in_vocabulary(*self._ended_by)
        if listed.stands_for and self._ended_by is None:
            self._ended_by = step.chosen, position
        opening = self._opens(position)
        listed = replace(listed, opening=opening, neutral=bool(self.scorer.neutral_mask(opening)[listed.token]))
        self._blanks_left_out = left_out
        self._numbers += listed.numbers
        self._decimals = max(self._decimals, listed.decimals)
        self._relative = min(self._relative, listed.relative) if listed.numbers else self._relative
        self._take_in(listed, OpenStep(position, position + 2))
        self.advance()

    def _decide(self, step: OpenStep, head: str) -> None:
        self._prefixes[step.position] = self.scorer.index.beginnings(head)

    def _narrowed(self, step: OpenStep, heads: Sequence[str]) -> OpenStep:
        return step

    def _bounds(self, position: int) -> StepBounds:
        return self._bounds_under(self.scorer, position, neutrality=self._neutrality)

    def _bounds_under(self, scorer: Scorer, position: int, *, neutrality: bool) -> StepBounds:
        prefixes = self._prefixes.get(position)
        off = rounding(self._decimals, self._numbers)
        relative = self._relative if self._numbers >= MANY_HALVES and self._relative < 1 else 0.0
        step = self._steps[position]
        return step_bounds(scorer, step, prefixes, neutrality=neutrality, off=off, relative=relative)

    def _masses_at(self, positions: Sequence[int]) -> list[LogMass]:
        bounds = map(self._bounds, positions)
        return [LogMass(found.lower, found.estimate, found.upper) for found in bounds]

    def finish(self, distribution: Distribution = "unknown", *, proxy_for: str | None = None) -> ScoredResponse:
        """The result, once the answer is complete.

        Raises
        ------
        BackendError
            All log-probabilities are zero: the engine reports none. Or its names lack the blanks of their tokens.
        """
        self._advance(complete=True)
        vocabulary = self.scorer.vocabulary
        offsets = vocabulary.offsets(self.ids)
        bounds = [self._bounds(position) for position in range(len(self.ids))]
        blank = not vocabulary.decode(self.ids).strip()
        totals = [math.fsum(getattr(step, name) for step in bounds) for name in ("lower", "estimate", "upper")]
        low, estimate, high = [-math.inf] * 3 if blank else totals
        return self._response(
            distribution,
            estimate,
            flags=(*listed_flags(self._steps, bounds, vocabulary.special), *_proxy_flags(proxy_for)),
            tokens=tuple(
                self._scored(position, found, span)
                for position, (found, span) in enumerate(zip(bounds, offsets, strict=True))
            ),
            log_score_bounds=(low, high),
            proxy_for=proxy_for,
        )

    def _scored(self, position: int, found: StepBounds, span: tuple[int, int]) -> ScoredToken:
        """The record of one step."""
        step = self._steps[position]
        surface = self._bounds_under(self.scorer.surface, position, neutrality=False)
        meaning = self._bounds_under(self.scorer.paper, position, neutrality=True)
        return ScoredToken(
            id=step.token,
            text=self.scorer.vocabulary.texts[step.token],
            start=span[0],
            end=span[1],
            log_probability=step.log_prob,
            log_clustered_probability=found.estimate,
            log_surface_probability=surface.estimate,
            log_meaning_probability=meaning.estimate,
            neutral=found.certain,
            cluster_probability=found.cluster,
            prefix_probability=found.prefix,
            neutral_probability=found.neutral,
            alternatives=self._alternatives(position),
            function_word=bool(self.scorer.vocabulary.neutral[step.token]),
            value_ends=self._value_ends(position),
            log_clustered_bounds=(found.lower, found.upper),
            log_surface_bounds=(surface.lower, surface.upper),
            log_meaning_bounds=(meaning.lower, meaning.upper),
            ambiguous_probability=found.ambiguous,
            unmapped_probability=step.unmapped,
        )

    def _value_ends(self, position: int) -> ValueEnds | None:
        step = self._steps[position]
        endings = endings_of(self.scorer.vocabulary)
        request = endings.request(self.ids[position - 1] if position else None, step.token)
        unseen = 0.0 if step.complete else max(0.0, 1.0 - float(step.probabilities.sum()))
        return endings.from_list(request, step.ids, step.probabilities, unseen)

    def _alternatives(self, position: int) -> tuple[Alternative, ...]:
        step = self._steps[position]
        listed = zip(step.ids.tolist(), step.probabilities.tolist(), strict=True)
        others = sorted((pair for pair in listed if pair[0] != step.token), key=lambda pair: (-pair[1], pair[0]))
        likely = {token: probability for token, probability in others[:LISTED] if probability >= LEAST_LISTED}
        begins = among(np.array(list(likely), dtype=np.int64), self._prefixes.get(position, NO_IDS))
        return self.scorer.alternatives(step.token, likely, begins, opening=step.opening, neutrality=self._neutrality)


def _proxy_flags(proxy_for: str | None) -> list[Flag]:
    if proxy_for is None:
        return []
    message = f"The clusters are another model's than {proxy_for}, with the same tokenizer: a proxy for its own."
    return [Flag("shared_vocabulary", message)]
