"""Semantic Token Clustering from the k best log-probabilities a step, as APIs and serving engines show them.

Of the mass that is consistent with a token, the listed part is known: a lower bound. What is not listed can add at
most the mass that is missing from the list, and at most as many times the smallest listed probability as the
consistent set has members that are not listed. The product over the steps gives an interval around the exact
uncertainty. Engines round their numbers, so the interval is a little wider (`semtoken.engine_tokens.top_steps`).

`TopkAnswer` is one such answer in progress. `ListedAnswer` does without a vocabulary: spellings are read from the
lists, which is enough for the rules `surface` (the preset `default`) and `exact`. What is not listed may be spelled in
any way, so all of it may agree, and the interval is as wide as the list is short. `listed_flags` says what the lists
lack, and what is wrong with them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from os.path import commonprefix
from typing import Any, get_args

import numpy as np

from semtoken.choices import Preset
from semtoken.engine_tokens import TopStep, TopToken
from semtoken.engine_tokens.checked_list import ASK_FOR_IDS, ListReader, not_in_vocabulary
from semtoken.engine_tokens.listed_names import ListedNames, NameReader
from semtoken.engine_tokens.spellings import BorrowedNames, as_top_steps, without_copied_list
from semtoken.engine_tokens.token_names import check_shared_vocabulary
from semtoken.engine_tokens.top_steps import Precision, is_own
from semtoken.errors import BackendError, InvalidInput
from semtoken.results import Alternative, Distribution, Running, ScoredResponse, ScoredToken, TokensLater, ValueEnds
from semtoken.scoring.prefixes import NO_IDS, PrefixIndex
from semtoken.scoring.rows import LEAST_LISTED, LISTED
from semtoken.scoring.running import RIVAL, LogMass, OpenStep, RunningAnswer
from semtoken.scoring.scorer import SOURCES, Scorer, Tokens, as_tokens, scorer_for
from semtoken.scoring.topk_bounds import FEW, ListedSteps, PlacedStep
from semtoken.support.arrays import IdArray
from semtoken.support.inputs import one_of
from semtoken.support.inputs import text as checked_text
from semtoken.tokens.rules import SAME_LETTERS, SURFACE_RULES, ScoringRules, as_rules
from semtoken.tokens.scored_token import Flag, TokenMark
from semtoken.tokens.tokenizers import REPLACEMENT
from semtoken.tokens.vocabulary import Vocabulary


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
    """The vocabulary or clusters that a user gave; None if spellings are to be read from the lists.

    `InvalidInput` if the value is no vocabulary, or `proxy_for` is given without one.
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

    It takes the vocabulary and the preset that `score_top_logprobs` takes, and raises what that raises.
    """

    def __init__(self, vocabulary: Any = None, preset: Preset | ScoringRules = "default") -> None:
        rules = as_rules(preset)
        self._answer = new_answer(scorer_for(tokens_or_none(vocabulary, rules), rules))
        self._names = BorrowedNames()

    def add(self, step: Any) -> Running:
        """Add one step, in any form that `score_top_logprobs` reads."""
        [read] = self._names.without(as_top_steps([step]))
        self._answer.add(read)
        return self._answer.running()

    def finish(self, distribution: Distribution = "unknown", *, proxy_for: str | None = None) -> ScoredResponse:
        """The score of the answer, once it is complete."""
        return self._answer.finish(distribution, proxy_for=proxy_for)


class TopkAnswer(RunningAnswer[OpenStep]):
    """An unfinished answer scored from the best tokens of each step.

    A step that goes in is read and kept; what it adds to the score is computed for many steps together, when somebody
    asks: at the end, or while the answer is being written.
    """

    def __init__(self, scorer: Scorer, reader: ListReader | NameReader | None = None) -> None:
        super().__init__(scorer)
        self._reader = reader or ListReader(scorer.vocabulary)
        self._precision = Precision()
        self._steps: list[PlacedStep] = []
        self._prefixes: list[IdArray] = []
        """The prefix set of each step, without ids as long as it is open, or if the rules ask for none."""
        self._masses: list[LogMass] = []
        """The masses of the steps for which they were asked when it was known how exactly the numbers are written."""
        self._last: TopStep | None = None
        self._copied: list[int] = []
        """The steps whose lists are copies of the list before, and are not used."""
        self._ended_by: tuple[TopToken, int] | None = None
        """The first token that can only be a special one, and its step."""

    def add(self, step: TopStep) -> None:
        """Add the next decoding step."""
        position = len(self.ids)
        own_list = without_copied_list(step, self._last)
        self._last = step
        if own_list is not step:
            self._copied.append(position)
        listed = self._reader.read(own_list, position)
        if self._ended_by is not None and not self.scorer.vocabulary.blank[listed.token]:
            raise not_in_vocabulary(*self._ended_by)
        if listed.stands_for and self._ended_by is None:
            self._ended_by = own_list.chosen, position
        opening = self.opens
        neutral = self.scorer.knows_neutral and bool(self.scorer.neutral_mask(opening)[listed.token])
        self._precision.add(own_list.log_probs)
        self._prefixes.append(NO_IDS)
        self._steps.append(PlacedStep(listed, opening, neutral))
        waiting = [OpenStep(position, position + 2)] if self.scorer.rules.prefix_matching else []
        self._take_in([listed.token], [neutral], waiting)

    def running(self) -> Running:
        """The score from the tokens so far, as `RunningAnswer.running` gives it. Prefix sets are brought up to date
        first.
        """
        self.advance()
        return super().running()

    def _decide(self, step: OpenStep, head: str) -> None:
        self._prefixes[step.position] = self.scorer.index.beginnings(head)

    def _narrowed(self, step: OpenStep, heads: Sequence[str]) -> OpenStep:
        return step

    def _with_others(self, said: str | None, least: float = 0.0) -> Callable[[ListedSteps], ListedSteps]:
        """A function that gives steps the tokens of their lists of at least a probability, which records name."""
        return lambda steps: steps

    def _listed_steps(self, steps: slice) -> ListedSteps:
        """Some steps, with the prefix sets that are decided by now."""
        return ListedSteps(
            self.scorer,
            self._steps[steps],
            self._prefixes[steps],
            self._neutrality,
            self._precision.rounding,
        )

    def _masses_at(self, positions: range) -> list[LogMass]:
        masses = self._listed_steps(slice(positions.start, positions.stop)).masses()
        self._keep(positions.start, masses)
        return masses

    def _keep(self, first: int, masses: Sequence[LogMass]) -> None:
        """Keep the masses of the steps from one on, if nothing can change them any more."""
        if self._precision.in_full and first <= len(self._masses):
            self._masses[first:] = masses

    def finish(
        self, distribution: Distribution = "unknown", *, proxy_for: str | None = None, said: str | None = None
    ) -> ScoredResponse:
        """The scored answer, once it is complete; `said` is used where there is no vocabulary (`ListedAnswer`)."""
        self.advance(complete=True)
        vocabulary, ids = self.scorer.vocabulary, list(self.ids)
        steps = self._listed_steps(slice(None))
        silent = silent_zeros(steps)
        steps = steps.without_numbers(silent) if silent else steps
        settled = [] if silent else self._masses[: self._n_settled]
        masses = [*settled, *self._listed_steps(slice(len(settled), None)).masses()] if settled else steps.masses()
        blank = not vocabulary.decode(ids).strip()
        by_spelling = self.scorer.surface is self.scorer
        with_others, likely = self._with_others(said), self._with_others(said, LEAST_LISTED)
        low, estimate, high = LogMass(*[-math.inf] * 3) if blank else LogMass.total(masses)
        return self._response(
            distribution,
            estimate,
            flags=(*listed_flags(steps, silent, self._copied), *_proxy_flags(proxy_for)),
            tokens=TokensLater(
                len(ids),
                lambda: token_records(with_others(steps), ids),
                lambda: _marks(vocabulary, steps, ids, masses),
                by_spelling=by_spelling,
                alternatives=(lambda places: alternatives(likely(steps.at(places)))) if by_spelling else None,
            ),
            rivals=any_rival(steps),
            log_score_bounds=(low, high),
            proxy_for=proxy_for,
        )


def _marks(
    vocabulary: Vocabulary, listed: ListedSteps, ids: Sequence[int], masses: Sequence[LogMass]
) -> list[TokenMark]:
    """What the records of the tokens say that costs little."""
    columns = zip(vocabulary.offsets(ids), listed.steps, masses, strict=True)
    return [
        TokenMark(*place, step.listed.log_prob, mass.estimate, (mass.lower, mass.upper))
        for place, step, mass in columns
    ]


def _proxy_flags(proxy_for: str | None) -> list[Flag]:
    if proxy_for is None:
        return []
    message = f"The vocabulary is another model's than {proxy_for}, with the same tokenizer: a proxy for its own."
    return [Flag("shared_vocabulary", message)]


ANY_NUMBER = 2**53
"""How many tokens may be spelled as a chosen one where the vocabulary is not known: more than any vocabulary has."""


class ListedScorer(Scorer):
    """The scorer of an answer without a vocabulary: its tokens are those that the lists have named."""

    def __init__(self, vocabulary: Vocabulary, rules: ScoringRules, names: ListedNames) -> None:
        super().__init__(vocabulary, rules, PrefixIndex(vocabulary), open_ended=True)
        self._names = names

    def engine_ids(self, tokens: Sequence[int]) -> list[int]:
        """The ids that the engine gave, -1 where it gave none."""
        return [self._names.ids[token] for token in tokens]

    @cached_property
    def _surface(self) -> Scorer:
        return ListedScorer(self.vocabulary, SURFACE_RULES, self._names)

    def _related_count(self, token: int, opening: bool, neutrality: bool) -> int:
        if self.rules.spelling is not None and not self._names.spellings[token].alone:
            return ANY_NUMBER
        return super()._related_count(token, opening, neutrality)

    # Kept in the scorer, which belongs to one answer, these would hold it until the garbage collector comes.

    @property
    def related_kinds(self) -> Callable[[int], Mapping[int, int]]:
        """A function from a token to those that agree with it, and why, as in `Scorer.related_kinds`."""
        return self._related_kinds

    @property
    def related_count(self) -> Callable[[int, bool, bool], int]:
        """How many tokens may agree with one, as in `Scorer`."""
        return self._related_count


class GrowingScorer(ListedScorer):
    """The scorer of an unfinished answer without a vocabulary, with what running scores need."""

    def _related_kinds(self, token: int) -> Mapping[int, int]:
        alike = self._names.alike(token) if self.rules.spelling else ()
        return dict.fromkeys(alike, 2) | {token: 1}


class ListedAnswer(TopkAnswer):
    """An unfinished answer scored from the best tokens of each step, without a vocabulary."""

    def __init__(self, scorer: Scorer) -> None:
        self._names = ListedNames(scorer.rules.spelling)
        super().__init__(GrowingScorer(scorer.vocabulary, scorer.rules, self._names), NameReader(self._names))

    def _is_blank(self, token: int) -> bool:
        return self._names.spellings[token].blank

    def _frozen(self, said: str | None = None) -> Scorer:
        """A scorer of the tokens so far."""
        return ListedScorer(self._names.vocabulary(said, self.ids), self.scorer.rules, self._names)

    def _masses_at(self, positions: range) -> list[LogMass]:
        self._number_all_if_needed()
        part = self._listed_steps(slice(positions.start, positions.stop))
        usual = part.usual_masses() if len(positions) <= FEW else None
        masses = replace(part, scorer=self._frozen()).masses() if usual is None else usual
        self._keep(positions.start, masses)
        return masses

    def finish(
        self, distribution: Distribution = "unknown", *, proxy_for: str | None = None, said: str | None = None
    ) -> ScoredResponse:
        """The scored answer, once it is complete; `said` is the text that the engine gives, if it is known."""
        self._number_all_if_needed()
        self.scorer = self._frozen(said)
        return super().finish(distribution, proxy_for=proxy_for, said=said)

    def _number_all_if_needed(self) -> None:
        """Give all listed tokens their numbers, if each of them may be off by another amount."""
        if not self._precision.rounding.even:
            self._steps = _with_others(self._steps, self._names)

    def _with_others(self, said: str | None, least: float = 0.0) -> Callable[[ListedSteps], ListedSteps]:
        names, ids, rules = self._names, list(self.ids), self.scorer.rules

        def with_others(part: ListedSteps) -> ListedSteps:
            steps = _with_others(part.steps, names, least)
            return replace(part, steps=steps, scorer=ListedScorer(names.vocabulary(said, ids), rules, names))

        return with_others


def _with_others(steps: Sequence[PlacedStep], names: ListedNames, least: float = 0.0) -> list[PlacedStep]:
    return [step._replace(listed=names.with_others(step.listed, least)) for step in steps]


def any_rival(answer: ListedSteps) -> bool:
    """Whether a likely other word counts because of its cluster alone, so that `borrowed_flags` has to look."""
    if not answer.scorer.rules.clustering:
        return False
    return any(_rivals(answer, step) for step in answer.steps if not (step.neutral and answer.neutrality))


def _rivals(answer: ListedSteps, step: PlacedStep) -> list[int]:
    token, listed = step.token, zip(step.listed.ids, step.listed.probabilities, strict=True)
    likely = [rival for rival, probability in listed if probability >= RIVAL and rival != token]
    if not likely:
        return []
    texts, related = answer.scorer.vocabulary.normalized, answer.scorer.related_kinds(token)
    neutral = answer.scorer.neutral_mask(step.opening)
    return [
        rival
        for rival in likely
        if SOURCES[related.get(rival, 0)] == "cluster"
        and texts[rival][:SAME_LETTERS] != texts[token][:SAME_LETTERS]
        and not (answer.neutrality and neutral[rival])
    ]


def token_records(answer: ListedSteps, ids: Sequence[int]) -> tuple[ScoredToken, ...]:
    """The records of all tokens of an answer with these `ids`, made column by column."""
    if answer.scorer.looks_ahead and not answer.scorer.rules.prefix_matching:
        answer = replace(answer, prefixes=answer.scorer.index.prefix_sets(ids))
    lists, bounds, vocabulary = answer.lists, answer.bounds, answer.scorer.vocabulary
    surface = answer.bounds_under(answer.scorer.surface, neutrality=False)
    paper = answer.scorer.paper
    meaning = None if paper is None else answer.bounds_under(paper, neutrality=True)
    starts, ends = zip(*vocabulary.offsets(ids), strict=True) if ids else ((), ())
    columns: dict[str, Iterable[Any]] = {
        "id": answer.scorer.engine_ids(ids),
        "text": [vocabulary.texts[token] for token in ids],
        "start": starts,
        "end": ends,
        "log_probability": lists.log_probs.tolist(),
        "log_agreeing_probability": bounds.estimate.tolist(),
        "log_surface_probability": surface.estimate.tolist(),
        "log_meaning_probability": itertools.repeat(None) if meaning is None else meaning.estimate.tolist(),
        "neutral": bounds.certain.tolist(),
        "cluster_probability": bounds.cluster.tolist(),
        "prefix_probability": bounds.prefix.tolist(),
        "neutral_probability": bounds.neutral.tolist(),
        "alternatives": alternatives(answer),
        "value_ends": _value_ends(answer),
        "log_agreeing_bounds": bounds.intervals(),
        "log_surface_bounds": surface.intervals(),
        "log_meaning_bounds": itertools.repeat(None) if meaning is None else meaning.intervals(),
        "ambiguous_probability": bounds.ambiguous.tolist(),
        "unmapped_probability": lists.unmapped.tolist(),
        "function_word": vocabulary.neutral[lists.tokens].tolist(),
    }
    return tuple(map(ScoredToken, *(columns[field.name] for field in fields(ScoredToken))))


def _value_ends(answer: ListedSteps) -> list[ValueEnds | None]:
    """What values may end at each step."""
    endings, lists = answer.scorer.endings, answer.lists
    before = np.concatenate([[-1], lists.tokens[:-1]])
    value_ends: list[ValueEnds | None] = [None] * lists.size
    asked = endings.what_may_end(before, lists.tokens)
    for i in np.flatnonzero(asked).tolist():
        step = answer.steps[i].listed
        probabilities = np.array(step.probabilities)
        unseen = 0.0 if step.complete else max(0.0, 1.0 - float(probabilities.sum()))
        value_ends[i] = endings.from_list(int(asked[i]), np.array(step.ids, dtype=np.int64), probabilities, unseen)
    return value_ends


def alternatives(answer: ListedSteps) -> list[tuple[Alternative, ...]]:
    """The most probable other tokens of each step."""
    lists = answer.lists
    steps, ids, probabilities = lists.listed.steps, lists.listed.ids, lists.probabilities
    likely = np.flatnonzero((probabilities >= LEAST_LISTED) & (ids != lists.tokens[steps]))
    likely = likely[np.lexsort((ids[likely], -probabilities[likely], steps[likely]))]
    places = np.arange(len(likely)) - np.searchsorted(steps[likely], steps[likely])  # among those of its step
    likely = likely[places < LISTED]
    others = answer.scorer.alternatives(
        lists.tokens[steps[likely]],
        list(zip(ids[likely].tolist(), probabilities[likely].tolist(), strict=True)),
        lists.begins[likely],
        opening=lists.opening[steps[likely]],
        neutrality=answer.neutrality,
    )
    ends = np.searchsorted(steps[likely], np.arange(lists.size + 1)).tolist()
    return [others[first:last] for first, last in itertools.pairwise(ends)]


SLIGHTLY_OVERFULL = 1.001
ZEROS_IN_A_ROW = 5
UNMAPPED = "list names that fit no token of the vocabulary"
NAMES_WITHOUT_BLANK = 20  # so many, and none with a blank: the engine leaves blanks out


def silent_zeros(answer: ListedSteps) -> list[int]:
    """The steps with a log-probability of 0 and no list in an answer whose other steps have lists.

    Engines write such zeros for tokens that they have not computed a distribution for, as under speculative decoding.
    `BackendError` if the engine gives nothing but zeros.
    """
    listed = [step.listed for step in answer.steps]
    zeros = [i for i, step in enumerate(listed) if step.log_prob == 0.0 and not (step.listed or step.complete)]
    if not zeros:
        return []
    certain = answer.bounds.certain
    zeros = [i for i in zeros if not certain[i]]
    bare = [i for i in zeros if listed[i].bare]
    whole = len(zeros) == len(listed) - int(certain.sum())
    if zeros and whole and (len(bare) == len(zeros) or len(zeros) >= ZEROS_IN_A_ROW):
        raise BackendError(
            "Every token has the log-probability 0 and no alternatives: the engine does not report log-probabilities "
            "(some do so under speculative decoding). Ask the engine without it, and for alternatives."
        )
    return bare if any(not step.bare for step in listed) else []


def listed_flags(answer: ListedSteps, silent: Sequence[int] = (), copied: Sequence[int] = ()) -> tuple[Flag, ...]:
    """Flags about the lists of a complete answer: what they lack, and what makes its bounds wide.

    Of steps that are `silent` (`silent_zeros`) or `copied` (`without_copied_list`), zeros or lists are not used.
    `BackendError` if the engine leaves out the blanks that tokens begin with.
    """
    steps = [step.listed for step in answer.steps]
    special = answer.scorer.vocabulary.special
    without_blank = [i for i, step in enumerate(steps) if step.without_blank]
    if any(step.with_blank for step in steps):
        without_blank = []
    if without_blank and sum(step.without_blank for step in steps) >= NAMES_WITHOUT_BLANK:
        raise BackendError(
            "No token of the reply begins with a blank, although many of the vocabulary do: the engine names tokens "
            f"as they read alone, and so one may be taken for another (the first at step {without_blank[0]}). "
            f"{ASK_FOR_IDS}"
        )
    bare = [i for i, step in enumerate(steps) if not step.listed and not step.complete]
    zero = [i for i in bare if steps[i].log_prob == 0.0]
    wide = [i for i in bare if not answer.bounds.certain[i] and steps[i].log_prob != 0.0]
    twice = [i for i, step in enumerate(steps) if step.alike or step.doubtful]
    unknown = [i for i, step in enumerate(steps) if not is_own(round(step.log_prob, 6)) and i not in silent]
    overfull = [i for i, step in enumerate(steps) if step.total > SLIGHTLY_OVERFULL]
    unclear = [
        i
        for i, step in enumerate(steps)
        if step.ambiguous  # unless all that the names may mean are special tokens
        and (answer.bounds.ambiguous[i] > 0 or not all(special[list(may_be)].all() for may_be, _ in step.ambiguous))
    ]
    any_special = [i for i, step in enumerate(steps) if len(step.stands_for) > 1 and not answer.bounds.certain[i]]
    unmapped = [i for i, step in enumerate(steps) if step.unmapped]
    findings = (
        ("no_alternatives", wide, "list no token beside the chosen one, so the interval is wide"),
        (
            "zero_log_probabilities",
            zero if len(zero) >= min(ZEROS_IN_A_ROW, len(steps)) else [],
            "have the log-probability 0 and list no other token: perhaps the engine reports none, or those after a "
            "sampler such as top_p",
        ),
        (
            "zero_log_probabilities",
            silent,
            "have the log-probability 0 and no list where others have one, which says nothing: their part of the "
            "interval begins at 0",
        ),
        (
            "copied_lists",
            copied,
            "have the list of the step before, which contradicts their own number and is not used",
        ),
        ("missing_log_probability", unknown, "do not tell the log-probability of the chosen token"),
        ("two_numbers", twice, "list the text of the chosen token with another number than its own, which counts"),
        ("overfull", overfull, "list probabilities that add up to more than 1"),
        ("ambiguous_names", unclear, "list names that fit several tokens"),
        ("special_names", any_special, "chose a special token whose name does not tell which, and it may matter"),
        ("names_without_blanks", without_blank, "list names that are other tokens' if the engine leaves out blanks"),
        ("unmapped_names", unmapped, "name tokens by ids alone" if answer.scorer.open_ended else UNMAPPED),
    )
    return tuple(
        Flag(code, f"{len(where)} of {len(steps)} steps (the first is step {where[0]}) {what}.")
        for code, where, what in findings
        if where
    )


def text_flags(spelled: str, said: str) -> tuple[Flag, ...]:
    """The flag `other_text` if the steps do not spell what the engine said, blanks and pieces of characters aside."""
    ours, theirs = ("".join(text.replace(REPLACEMENT, "").split()) for text in (spelled, said))
    if ours == theirs:
        return ()
    same = len(commonprefix([ours, theirs]))  # noqa: RUF071, texts and no paths
    message = f"The steps spell {ours[same:][:30]!r} where the answer says {theirs[same:][:30]!r}: some are missing."
    return (Flag("other_text", message),)
