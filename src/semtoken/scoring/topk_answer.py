"""One answer in progress of which only the best tokens of each step are known, and the records of its tokens.

`ListedAnswer` does without a vocabulary: spellings are read from the lists, which is enough for the rules `surface`
(the preset `default`) and `exact`. What is not listed may be spelled in any way, so all of it may agree, and the
interval is as wide as the list is short.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from semtoken.engine_tokens import TopStep, TopToken
from semtoken.engine_tokens.checked_list import ListReader, not_in_vocabulary
from semtoken.engine_tokens.listed_names import ListedNames, NameReader
from semtoken.engine_tokens.precision import Precision, Rounding
from semtoken.engine_tokens.spellings import without_copied_list
from semtoken.results import Alternative, Distribution, Running, ScoredResponse, ScoredToken, TokensLater, ValueEnds
from semtoken.scoring.flags import RIVAL, listed_flags, silent_zeros
from semtoken.scoring.prefixes import NO_IDS, PrefixIndex
from semtoken.scoring.rows import LEAST_LISTED, LISTED
from semtoken.scoring.running import LogMass, OpenStep, RunningAnswer
from semtoken.scoring.scorer import ANY_NUMBER, SOURCES, Scorer
from semtoken.scoring.topk_bounds import Bounds, PlacedStep, StepLists, step_bounds, step_lists, usual_masses
from semtoken.support.arrays import IdArray
from semtoken.tokens.rules import SAME_LETTERS, ScoringRules
from semtoken.tokens.scored_token import Flag, TokenMark
from semtoken.tokens.vocabulary import Vocabulary

FEW = 64
"""Up to this many steps are scored one by one, more of them in arrays."""


@dataclass(eq=False)
class ListedSteps:
    """Some steps of an answer that is scored from lists, with the scorer and their prefix sets."""

    scorer: Scorer
    steps: Sequence[PlacedStep]
    prefixes: Sequence[IdArray]
    """The prefix set of each step; without ids where the rules do not ask for it."""
    neutrality: bool
    """Whether neutral tokens count as consistent."""
    rounding: Rounding
    """How far each log-probability may be off."""

    @cached_property
    def lists(self) -> StepLists:
        """The lists of the steps in columns."""
        return step_lists(self.steps, self.prefixes, self.scorer.vocabulary.size)

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds of the steps' masses under the rules of the scorer."""
        return self._bounds_under(self.scorer, neutrality=self.neutrality)

    def _bounds_under(self, scorer: Scorer, *, neutrality: bool) -> Bounds:
        return step_bounds(
            scorer,
            self.steps,
            self.prefixes,
            self.lists,
            neutrality=neutrality,
            rounding=self.rounding,
        )

    def without_numbers(self, positions: Sequence[int]) -> ListedSteps:
        """The same steps, some of which do not tell the probability of their token."""
        steps = list(self.steps)
        for i in positions:
            listed = steps[i].listed._replace(log_prob=-math.inf, ids=[], probabilities=[], total=0.0)
            steps[i] = steps[i]._replace(listed=listed)
        return replace(self, steps=steps)

    def masses(self) -> list[LogMass]:
        """The agreeing probabilities, equal to those of `bounds` but faster for few steps."""
        few = self.usual_masses() if len(self.steps) <= FEW else None
        if few is not None:
            return few
        found = self.bounds
        return list(map(LogMass, found.lower.tolist(), found.estimate.tolist(), found.upper.tolist()))

    def usual_masses(self) -> list[LogMass] | None:
        """The masses of the steps one by one; None if one of them needs the `bounds`."""
        if not self.rounding.even:
            return None
        return usual_masses(self.scorer, self.steps, self.prefixes, neutrality=self.neutrality, off=self.rounding.off)

    @property
    def any_rival(self) -> bool:
        """Whether a likely other word counts because of its cluster alone, so that `borrowed_flags` has to look."""
        if not self.scorer.rules.clustering:
            return False
        return any(self._rivals(step) for step in self.steps if not (step.neutral and self.neutrality))

    def _rivals(self, step: PlacedStep) -> list[int]:
        token, listed = step.token, zip(step.listed.ids, step.listed.probabilities, strict=True)
        likely = [one for one, probability in listed if probability >= RIVAL and one != token]
        if not likely:
            return []
        texts, related = self.scorer.vocabulary.normalized, self.scorer.related_kinds(token)
        neutral = self.scorer.neutral_mask(step.opening)
        return [
            one
            for one in likely
            if SOURCES[related.get(one, 0)] == "cluster"
            and texts[one][:SAME_LETTERS] != texts[token][:SAME_LETTERS]
            and not (self.neutrality and neutral[one])
        ]

    def tokens(self, ids: Sequence[int]) -> tuple[ScoredToken, ...]:
        """The records of all tokens of an answer with these `ids`, made column by column."""
        if self.scorer.looks_ahead and not self.scorer.rules.prefix_matching:
            return replace(self, prefixes=self.scorer.index.prefix_sets(ids))._records(ids)
        return self._records(ids)

    def _records(self, ids: Sequence[int]) -> tuple[ScoredToken, ...]:
        lists, bounds, vocabulary = self.lists, self.bounds, self.scorer.vocabulary
        surface = self._bounds_under(self.scorer.surface, neutrality=False)
        paper = self.scorer.paper
        meaning = None if paper is None else self._bounds_under(paper, neutrality=True)
        starts, ends = zip(*vocabulary.offsets(ids), strict=True) if ids else ((), ())
        columns: dict[str, Iterable[Any]] = {
            "id": self.scorer.engine_ids(ids),
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
            "alternatives": self.alternatives(),
            "value_ends": self._value_ends(),
            "log_agreeing_bounds": bounds.intervals(),
            "log_surface_bounds": surface.intervals(),
            "log_meaning_bounds": itertools.repeat(None) if meaning is None else meaning.intervals(),
            "ambiguous_probability": bounds.ambiguous.tolist(),
            "unmapped_probability": lists.unmapped.tolist(),
            "function_word": vocabulary.neutral[lists.tokens].tolist(),
        }
        return tuple(map(ScoredToken, *(columns[field.name] for field in fields(ScoredToken))))

    def _value_ends(self) -> list[ValueEnds | None]:
        """What values may end at each step."""
        endings, lists = self.scorer.endings, self.lists
        before = np.concatenate([[-1], lists.tokens[:-1]])
        found: list[ValueEnds | None] = [None] * lists.size
        asked = endings.what_may_end(before, lists.tokens)
        for i in np.flatnonzero(asked).tolist():
            step = self.steps[i].listed
            probabilities = np.array(step.probabilities)
            unseen = 0.0 if step.complete else max(0.0, 1.0 - float(probabilities.sum()))
            found[i] = endings.from_list(int(asked[i]), np.array(step.ids, dtype=np.int64), probabilities, unseen)
        return found

    def at(self, places: Sequence[int]) -> ListedSteps:
        """Some of the steps."""
        steps, prefixes = [self.steps[place] for place in places], [self.prefixes[place] for place in places]
        return replace(self, steps=steps, prefixes=prefixes)

    def alternatives(self) -> list[tuple[Alternative, ...]]:
        """The most probable other tokens of each step."""
        lists = self.lists
        steps, ids, probabilities = lists.listed.steps, lists.listed.ids, lists.probabilities
        likely = np.flatnonzero((probabilities >= LEAST_LISTED) & (ids != lists.tokens[steps]))
        likely = likely[np.lexsort((ids[likely], -probabilities[likely], steps[likely]))]
        places = np.arange(len(likely)) - np.searchsorted(steps[likely], steps[likely])  # among those of its step
        likely = likely[places < LISTED]
        found = self.scorer.alternatives(
            lists.tokens[steps[likely]],
            list(zip(ids[likely].tolist(), probabilities[likely].tolist(), strict=True)),
            lists.begins[likely],
            opening=lists.opening[steps[likely]],
            neutrality=self.neutrality,
        )
        ends = np.searchsorted(steps[likely], np.arange(lists.size + 1)).tolist()
        return [found[first:last] for first, last in itertools.pairwise(ends)]


class TopkAnswer(RunningAnswer[OpenStep]):
    """An unfinished answer scored from the best tokens of each step.

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
        """The masses of the steps for which they were asked when it was known how exactly the numbers are written."""
        self._last: TopStep | None = None
        self._copied: list[int] = []
        """The steps whose lists are copies of the list before, and are not used."""
        self._ended_by: tuple[TopToken, int] | None = None
        """The first token that can only be a special one, and its step."""

    def add(self, step: TopStep) -> None:
        """Add the next decoding step.

        Raises
        ------
        InvalidInput, InvalidLogits, VocabularyMismatch
            See `score_top_logprobs`.
        """
        position = len(self.ids)
        step = self._with_own_list(step, position)
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

    def _with_own_list(self, step: TopStep, position: int) -> TopStep:
        """The step without its list if that is a copy of the last one's."""
        own = without_copied_list(step, self._last)
        self._last = step
        if own is not step:
            self._copied.append(position)
        return own

    def running(self) -> Running:
        """The score from the tokens so far, as `RunningAnswer.running` gives it. Prefix sets are brought up to date
        first.
        """
        self.advance()
        return super().running()

    def truncate(self, length: int) -> None:
        """Forget all steps from `length` on."""
        super().truncate(length)
        del self._steps[length:], self._prefixes[length:]
        self._last, self._copied = None, [i for i in self._copied if i < length]

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
        found = self._listed_steps(slice(positions.start, positions.stop)).masses()
        self._keep(positions.start, found)
        return found

    def _keep(self, first: int, found: Sequence[LogMass]) -> None:
        """Keep the masses of the steps from one on, if nothing can change them any more."""
        if self._precision.in_full and first <= len(self._masses):
            self._masses[first:] = found

    def finish(
        self, distribution: Distribution = "unknown", *, proxy_for: str | None = None, said: str | None = None
    ) -> ScoredResponse:
        """The scored answer, once it is complete; `said` is used where there is no vocabulary (`ListedAnswer`).

        Raises
        ------
        BackendError
            All log-probabilities are zero: the engine reports none. Or its names lack the blanks of their tokens.
        """
        self._advance(complete=True)
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
                lambda: with_others(steps).tokens(ids),
                lambda: _marks(vocabulary, steps, ids, masses),
                by_spelling=by_spelling,
                alternatives=(lambda places: likely(steps.at(places)).alternatives()) if by_spelling else None,
            ),
            rivals=steps.any_rival,
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


class ListedScorer(Scorer):
    """The scorer of an answer without a vocabulary: its tokens are those that the lists have named."""

    def __init__(self, vocabulary: Vocabulary, rules: ScoringRules, names: ListedNames) -> None:
        super().__init__(vocabulary, rules, PrefixIndex(vocabulary), open_ended=True)
        self._names = names

    def engine_ids(self, tokens: Sequence[int]) -> list[int]:
        """The ids that the engine gave, -1 where it gave none."""
        return [self._names.ids[token] for token in tokens]

    def _is_alone(self, token: int) -> bool:
        return self._names.spellings[token].alone

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

    def _related_count(self, token: int, opening: bool, neutrality: bool) -> int:
        """Any number, unless its spelling stands alone."""
        return 1 if self._is_alone(token) or self.rules.spelling is None else ANY_NUMBER


class ListedAnswer(TopkAnswer):
    """An unfinished answer scored from the best tokens of each step, without a vocabulary."""

    def __init__(self, scorer: Scorer) -> None:
        self._names = ListedNames(scorer.rules.spelling)
        super().__init__(GrowingScorer(scorer.vocabulary, scorer.rules, self._names))
        self._named = NameReader(self._names)

    def add(self, step: TopStep) -> None:
        """Add the next decoding step.

        Raises
        ------
        InvalidInput, InvalidLogits
            See `score_top_logprobs`.
        """
        position = len(self.ids)
        step = self._with_own_list(step, position)
        listed = self._named.read(step, position)
        self._precision.add(step.log_probs)
        self._prefixes.append(NO_IDS)
        self._steps.append(PlacedStep(listed, self._opens(position), False))
        self._take_in([listed.token], [False], [])

    def _is_blank(self, token: int) -> bool:
        return self._names.spellings[token].blank

    def _frozen(self, said: str | None = None) -> Scorer:
        """A scorer of the tokens so far."""
        return ListedScorer(self._names.vocabulary(said, self.ids), self.scorer.rules, self._names)

    def _masses_at(self, positions: range) -> list[LogMass]:
        self._number_all_if_needed()
        part = self._listed_steps(slice(positions.start, positions.stop))
        usual = part.usual_masses() if len(positions) <= FEW else None
        found = replace(part, scorer=self._frozen()).masses() if usual is None else usual
        self._keep(positions.start, found)
        return found

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
