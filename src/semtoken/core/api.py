"""The front functions: rows of logits, or lists of the best tokens -> a scored answer; the same one step at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

from semtoken.choices import Equality, Preset
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.core.engine_tokens import TopStep, as_top_steps
from semtoken.core.engine_tokens.passes import as_scored
from semtoken.core.engine_tokens.token_names import check_shared_vocabulary
from semtoken.core.flags import text_flags
from semtoken.core.given_tokens import Tokens, as_tokens
from semtoken.core.growing import GrowingAnswer
from semtoken.core.results import Distribution, Running, ScoredAnswer
from semtoken.core.rows import normalized_rows
from semtoken.core.rules import ScoringRules, as_rules
from semtoken.core.scorer import scorer_for
from semtoken.errors import InvalidInputError, InvalidLogits, SemtokenError, VocabularyMismatch
from semtoken.support.arrays import as_ids, as_rows, is_tensor, looks_like_probabilities
from semtoken.support.inputs import one_of
from semtoken.support.inputs import text as checked_text

ROWS_ON_DEVICE = 64  # rows on an accelerator that are read together
ROWS_AT_ONCE = 16  # rows on the CPU: no more than stay in its cache


def score_logits(
    logits: Any,
    token_ids: Sequence[int] | Any,
    vocabulary: Tokens,
    preset: Preset | ScoringRules = "default",
    *,
    equality: Equality | None = None,
    distribution: Distribution = "raw",
) -> ScoredAnswer:
    """Score one answer from the logits of every step.

    Parameters
    ----------
    logits : array or tensor of shape (n, columns)
        Row i is the model's output before token i was chosen, before the softmax (log-probabilities will do).
        Columns beyond the vocabulary (a padded lm_head) are ignored. -inf is legal. Accumulated in float32
        whatever the dtype.
    token_ids : n ids
        The answer, its terminator included.
    vocabulary
        That of the tokenizer that made the ids. The preset `paper` needs `TokenClusters`, which hold theirs; given
        under other rules, they ask for `uncertainty_under("meaning")` beside the score.
    preset
        What counts as agreeing: `default` (what the evidence supports), `paper` (the published code), or ready rules
        (`ScoringRules`), which have further switches.
    equality : {"exact", "surface", "meaning"}, optional
        What counts as the same token, in place of what the preset says; `exact` for JSON, numbers and code.
    distribution
        What the logits are: `raw`, `processed` or `unknown`. Recorded in the result.

    Returns
    -------
    ScoredAnswer
        Uncertainty in [0, 1], higher is riskier. An empty answer has uncertainty 1.

    Raises
    ------
    InvalidInputError
        A preset or a distribution that is not known, or rules that count clusters where there are none.
    InvalidLogits
        No rows, a wrong number of rows, a row with NaN, +inf or no finite value (the message names the step), or rows
        that are all probabilities instead of logits.
    VocabularyMismatch
        Fewer columns than the vocabulary has tokens.
    VocabularyError
        An id outside the vocabulary.
    """
    rules = as_rules(preset, equality)
    one_of("distribution", distribution, get_args(Distribution))
    scorer = scorer_for(as_tokens(vocabulary, clustering=rules.clustering), rules)
    rows, ids = as_rows(logits), as_ids(token_ids)
    at_once = ROWS_ON_DEVICE if is_tensor(rows) and rows.device.type != "cpu" else ROWS_AT_ONCE
    check_shape(tuple(rows.shape), ids, scorer.vocabulary)
    answer = GrowingAnswer(scorer)
    size, probable = scorer.vocabulary.size, True
    for first in range(0, len(ids), at_once):
        block = normalized_rows(rows[first : first + at_once], size)
        probable = probable and looks_like_probabilities(block.logits, block.log_normalizers, size)
        answer.extend(block, ids[first : first + at_once])
    if probable:
        raise InvalidLogits(
            "logits look like probabilities: every row lies between 0 and 1 and sums to 1. Give the logits, or the "
            "logarithms of the probabilities."
        )
    return answer.finish(distribution)


def check_shape(shape: tuple[int, ...], ids: Sequence[int], vocabulary: Vocabulary, first: int = 0) -> None:
    """Check that logits of this shape and these ids can belong to one answer of this vocabulary, from its step `first`.

    `InvalidLogits`, `VocabularyMismatch`, `VocabularyError` or `InvalidInputError` if they cannot.
    """
    if len(shape) != 2 or shape[0] != len(ids) or not ids:
        raise InvalidLogits(
            f"logits must have shape (n, V) with one row for each of the n >= 1 token ids. "
            f"Got shape {shape} and {len(ids)} ids instead."
        )
    if shape[1] < vocabulary.size:
        raise VocabularyMismatch(
            f"The logits have {shape[1]:,} columns, the vocabulary has {vocabulary.size:,} tokens. "
            "It belongs to another model."
        )
    vocabulary.check_ids(ids, first)


class _Intake:
    """Takes in the steps of a stream. One that is refused is missing from the answer: nothing can be scored from then
    on, and its error is raised again.
    """

    def __init__(self) -> None:
        self._refused: SemtokenError | None = None

    def require_whole(self) -> None:
        """Raise the error of the step that was refused, if one was."""
        if self._refused is not None:
            raise self._refused

    @contextmanager
    def next_step(self) -> Iterator[None]:
        """Remember the error of the step that is taken in here, if it is refused."""
        self.require_whole()
        try:
            yield
        except SemtokenError as error:
            self._refused = error
            raise


class LogitsStream:
    """An unfinished answer scored from all logits, the streaming form of `score_logits`.

    `add` each step as it is decoded, and `finish` at the end: both ways give the same score. It takes the vocabulary,
    the preset and the equality that `score_logits` takes, and raises what that raises. A step that is refused is
    missing from the answer, so that nothing can be scored from then on: `add` and `finish` raise the error again.
    """

    def __init__(
        self, vocabulary: Any, preset: Preset | ScoringRules = "default", *, equality: Equality | None = None
    ) -> None:
        rules = as_rules(preset, equality)
        self._answer = GrowingAnswer(scorer_for(as_tokens(vocabulary, clustering=rules.clustering), rules))
        self._intake = _Intake()

    def add(self, logits: Any, token: int) -> Running:
        """Add the next step.

        Parameters
        ----------
        logits : array or tensor of shape (columns,)
            The model's output before the token was chosen, as a row of `score_logits`.
        token : int
            Id of the chosen token.

        Returns
        -------
        Running
            The score of the answer so far, with bounds on what later tokens can still make of it.

        Raises
        ------
        InvalidLogits, VocabularyMismatch, VocabularyError
            As in `score_logits`.
        """
        with self._intake.next_step():
            rows = as_rows(logits)[None]
            answer = self._answer
            check_shape(tuple(rows.shape), [token], answer.scorer.vocabulary, len(answer.ids))
            answer.add_row(rows, 0, token)
        return self._answer.running()

    def finish(self, distribution: Distribution = "raw") -> ScoredAnswer:
        """The score of the answer, once it is complete. `distribution` is recorded in it, as by `score_logits`.

        `InvalidInputError` if there is no such distribution.
        """
        self._intake.require_whole()
        one_of("distribution", distribution, get_args(Distribution))
        return self._answer.finish(distribution)


def score_logprobs(
    steps: Any,
    vocabulary: Any = None,
    preset: Preset | ScoringRules = "default",
    *,
    equality: Equality | None = None,
    distribution: Distribution = "unknown",
    token_ids: Sequence[int] | None = None,
    proxy_for: str | None = None,
    text: str | None = None,
) -> ScoredAnswer:
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
    equality : {"exact", "surface", "meaning"}, optional
        What counts as the same token, in place of what the preset says; `exact` for JSON, numbers and code.
    distribution
        What the log-probabilities are: `raw`, `processed` or `unknown` (an API that does not say).
    token_ids
        Ids of the chosen tokens, where the steps do not name them.
    proxy_for
        Name of the model that answered, where the vocabulary is another model's with the same tokenizer: the result
        is labeled with it. A token that the vocabulary lacks shows that the tokenizers differ, and is rejected;
        `check_shared_vocabulary` says more.
    text
        The answer as the engine gives it, if it is at hand: steps that do not spell it (missing or merged ones) are
        flagged.

    Returns
    -------
    ScoredAnswer
        `sequence_uncertainty_interval` contain the exact uncertainty; `uncertainty` counts the listed mass alone, which
        is the cautious end of the interval and ranks answers best; `widest_steps` names the steps that cause the width.
        `flags` hold what its reader should know.

    Raises
    ------
    InvalidInputError
        No steps, steps of an unknown form, a chosen token that is unknown or not clear, a preset that is not known, or
        rules that need a vocabulary or clusters where there are none.
    InvalidLogits
        Numbers that are no log-probabilities; the message names the step.
    VocabularyMismatch
        Ids and names of the tokens disagree with the vocabulary.
    BackendError
        A step lacks its log-probability, all of them are zero, or names lack the blanks that tokens begin with.
    """
    rules = as_rules(preset, equality)
    scorer = scorer_for(tokens_or_none(vocabulary, rules, proxy_for), rules)
    one_of("distribution", distribution, get_args(Distribution))
    for name, value in (("proxy_for", proxy_for), ("text", text)):
        if value is not None:
            checked_text(value, name)
    answer = GrowingAnswer(scorer)
    read = as_top_steps(steps, token_ids)
    if not read:
        raise InvalidInputError(
            "There are no steps to score. Were log-probabilities asked for (`logprobs`, `top_logprobs`)? Some servers "
            "accept the request and leave them out."
        )
    if proxy_for is not None:
        check_shared_vocabulary(read, scorer.vocabulary).require(proxy_for)
    answer.add(*read)
    scored = answer.finish(distribution, proxy_for=proxy_for, said=text)
    more = () if text is None else text_flags(scored.text, text)
    return scored.with_fields(flags=(*scored.flags, *more)) if more else scored


def tokens_or_none(vocabulary: Any, rules: ScoringRules, proxy_for: str | None = None) -> Tokens | None:
    """The vocabulary or clusters that a user gave; None if spellings are to be read from the lists.

    `InvalidInputError` if the value is no vocabulary, or `proxy_for` is given without one.
    """
    if vocabulary is not None:
        return as_tokens(vocabulary, clustering=rules.clustering)
    if proxy_for is not None:
        raise InvalidInputError(
            "proxy_for names the model for which another one's vocabulary stands: give that vocabulary."
        )
    return None


class LogprobsStream:
    """An unfinished answer scored from the k best tokens of each step, the streaming form of `score_logprobs`.

    `add` each step as it arrives, and `finish` at the end: both ways give the same score. It takes the vocabulary, the
    preset and the equality that `score_logprobs` takes, and raises what that raises. A step that is refused is missing
    from the answer, so that nothing can be scored from then on: `add` and `finish` raise the error again.
    """

    def __init__(
        self, vocabulary: Any = None, preset: Preset | ScoringRules = "default", *, equality: Equality | None = None
    ) -> None:
        rules = as_rules(preset, equality)
        self._answer = GrowingAnswer(scorer_for(tokens_or_none(vocabulary, rules), rules))
        self._last: TopStep | None = None
        self._intake = _Intake()

    def add(self, step: Any) -> Running:
        """Add the next step, in any form that `score_logprobs` reads.

        Returns the score of the answer so far, with bounds on what later tokens can still make of it. The errors are
        those of `score_logprobs`.
        """
        with self._intake.next_step():
            [self._last] = as_scored(as_top_steps([step]), self._last)
            self._answer.add(self._last)
        return self._answer.running()

    def finish(self, distribution: Distribution = "unknown", *, proxy_for: str | None = None) -> ScoredAnswer:
        """The score of the answer, once it is complete. The arguments and errors are those of `score_logprobs`."""
        self._intake.require_whole()
        one_of("distribution", distribution, get_args(Distribution))
        return self._answer.finish(distribution, proxy_for=proxy_for)
