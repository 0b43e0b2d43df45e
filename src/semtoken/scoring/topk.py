"""Semantic Token Clustering from the k best log-probabilities a step, as APIs and serving engines show them.

Of the mass that is consistent with a token, the listed part is known: a lower bound. What is not listed can add at
most the mass that is missing from the list, and at most as many times the smallest listed probability as the
consistent set has members that are not listed. The product over the steps gives an interval around the exact
uncertainty. Engines round their numbers, so the interval is a little wider (`semtoken.engine_tokens.precision`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from semtoken.choices import Preset
from semtoken.engine_tokens.spellings import BorrowedNames, as_top_steps
from semtoken.engine_tokens.token_names import check_shared_vocabulary
from semtoken.errors import InvalidInput
from semtoken.results import Distribution, Running, ScoredResponse
from semtoken.scoring.scorer import Scorer, scorer_for
from semtoken.scoring.token_sources import Tokens, as_tokens
from semtoken.scoring.topk_answer import ListedAnswer, TopkAnswer
from semtoken.scoring.topk_flags import text_flags
from semtoken.support.inputs import one_of
from semtoken.support.inputs import text as checked_text
from semtoken.tokens.rules import ScoringRules, as_rules


def score_top_logprobs(
    steps: Any,
    vocabulary: Any = None,
    preset: Preset | ScoringRules = "default",
    *,
    distribution: Distribution = "unknown",
    token_ids: Sequence[int] | None = None,
    proxy_for: str | None = None,
    text: str | None = None,
) -> ScoredResponse:
    """Score one answer of which only the k most probable tokens of each step are known.

    Parameters
    ----------
    steps
        One entry a step: `TopStep`, or one of the forms that `as_top_steps` reads (OpenAI's items, vLLM's dicts).
        A token is found by its id, else by "token_id:N", else by its bytes, else by its string.
    vocabulary
        That of the tokenizer that the engine uses: a `Vocabulary`, a tokenizer, or the name of a model. The preset
        `paper` needs `TokenClusters`, which hold theirs; given under other rules, they ask for
        `uncertainty_under("meaning")` beside the score. None: spellings are read from the lists, which is enough for
        `default`, `surface` and `exact`, and gives wider intervals.
    preset
        What counts as agreeing: `default` (what the evidence supports), `paper` (the published code), or ready rules
        (`ScoringRules`), which have further switches.
    distribution
        What the log-probabilities are: `raw`, `processed` or `unknown` (an API that does not say).
    token_ids
        Ids of the chosen tokens, where the steps do not name them.
    proxy_for
        Name of the model that answered, where the vocabulary is another model's with the same tokenizer: the result
        is labelled with it. A token that the vocabulary lacks shows that the tokenizers differ, and is refused;
        `check_shared_vocabulary` tells more.
    text
        The answer as the engine gives it, if it is at hand: steps that do not spell it (missing or merged ones) are
        flagged.

    Returns
    -------
    ScoredResponse
        `uncertainty_bounds` contain the exact uncertainty; `uncertainty` counts the listed mass alone, which is the
        cautious end of the interval and ranks answers best; `widest_steps` names the steps that cause the width.
        `flags` hold what its reader should know.

    Raises
    ------
    InvalidInput
        No steps, steps of an unknown form, a chosen token that is unknown or not clear, a preset that is not known, or
        rules that need a vocabulary or clusters where there are none.
    InvalidLogits
        Numbers that are no log-probabilities; the message names the step.
    VocabularyMismatch
        Ids and names of the tokens disagree with the vocabulary.
    BackendError
        A step lacks its log-probability, all of them are zero, or names lack the blanks that tokens begin with.
    """
    rules = as_rules(preset)
    scorer = scorer_for(tokens_or_none(vocabulary, rules, proxy_for), rules)
    one_of("distribution", distribution, get_args(Distribution))
    for name, value in (("proxy_for", proxy_for), ("text", text)):
        if value is not None:
            checked_text(value, name)
    answer = new_answer(scorer)
    read = as_top_steps(steps, token_ids)
    if not read:
        raise InvalidInput(
            "There are no steps to score. Were log-probabilities asked for (`logprobs`, `top_logprobs`)? Some servers "
            "accept the request and leave them out."
        )
    if proxy_for is not None:
        check_shared_vocabulary(read, scorer.vocabulary).require(proxy_for)
    for step in read:
        answer.add(step)
    scored = answer.finish(distribution, proxy_for=proxy_for, said=text)
    more = () if text is None else text_flags(scored.text, text)
    return scored.with_fields(flags=(*scored.flags, *more)) if more else scored


def tokens_or_none(vocabulary: Any, rules: ScoringRules, proxy_for: str | None = None) -> Tokens | None:
    """The vocabulary or clusters of what a user gave; None if spellings are to be read from the lists.

    Raises
    ------
    InvalidInput
        The value is no vocabulary, or `proxy_for` is given without one.
    """
    if vocabulary is not None:
        return as_tokens(vocabulary, clustering=rules.clustering)
    if proxy_for is not None:
        raise InvalidInput("proxy_for names the model for which another one's vocabulary stands: give that vocabulary.")
    return None


def new_answer(scorer: Scorer) -> TopkAnswer:
    """Begin an answer that is scored from lists of best tokens, with the scorer's vocabulary or without one."""
    return ListedAnswer(scorer) if scorer.open_ended else TopkAnswer(scorer)


class TopLogprobsStream:
    """An unfinished answer scored from the k best tokens of each step, the streaming form of `score_top_logprobs`.

    It takes the vocabulary and the preset that `score_top_logprobs` takes.
    """

    def __init__(self, vocabulary: Any = None, preset: Preset | ScoringRules = "default") -> None:
        rules = as_rules(preset)
        self._answer = new_answer(scorer_for(tokens_or_none(vocabulary, rules), rules))
        self._names = BorrowedNames()

    def add(self, step: Any) -> Running:
        """Add one step, in any form that `score_top_logprobs` reads.

        Raises
        ------
        InvalidInput, InvalidLogits, VocabularyMismatch, BackendError
            As `score_top_logprobs`.
        """
        [read] = self._names.without(as_top_steps([step]))
        self._answer.add(read)
        return self._answer.running()

    def finish(self, distribution: Distribution = "unknown", *, proxy_for: str | None = None) -> ScoredResponse:
        """The score of the answer, once it is complete.

        Raises
        ------
        BackendError
            All log-probabilities are zero, or names lack the blanks that tokens begin with.
        """
        return self._answer.finish(distribution, proxy_for=proxy_for)
