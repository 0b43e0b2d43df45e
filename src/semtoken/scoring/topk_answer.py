"""One answer in progress of which only the best tokens of each step are known, and the records of its tokens.

`ListedAnswer` does without a vocabulary: spellings are read from the lists, which is enough for the rules `surface`
(the preset `default`) and `exact`. What is not listed may be spelled in any way, so all of it may agree, and the
interval is as wide as the list is short.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from semtoken.engine_tokens import TopStep, TopToken
from semtoken.engine_tokens.checked_list import ListReader, not_in_vocabulary
from semtoken.engine_tokens.listed_names import ListedNames, NameReader
from semtoken.engine_tokens.precision import Precision
from semtoken.engine_tokens.spellings import without_copied_list
from semtoken.results import Alternative, Distribution, Running, ScoredResponse, ScoredToken, TokensLater, ValueEnds
from semtoken.scoring.prefixes import NO_IDS, PrefixIndex
from semtoken.scoring.rows import LEAST_LISTED, LISTED
from semtoken.scoring.running import RIVAL, LogMass, OpenStep, RunningAnswer
from semtoken.scoring.scorer import SOURCES, Scorer
from semtoken.scoring.topk_bounds import FEW, ListedSteps, PlacedStep
from semtoken.scoring.topk_flags import listed_flags, silent_zeros
from semtoken.support.arrays import IdArray
from semtoken.tokens.rules import SAME_LETTERS, ScoringRules
from semtoken.tokens.scored_token import Flag, TokenMark
from semtoken.tokens.vocabulary import Vocabulary


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
        """Add the next decoding step.

        Raises
        ------
        InvalidInput, InvalidLogits, VocabularyMismatch
            See `score_top_logprobs`.
        """
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
        opening = self._opens(position)
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


def any_rival(answer: ListedSteps) -> bool:
    """Whether a likely other word counts because of its cluster alone, so that `borrowed_flags` has to look."""
    if not answer.scorer.rules.clustering:
        return False
    return any(_rivals(answer, step) for step in answer.steps if not (step.neutral and answer.neutrality))


def _rivals(answer: ListedSteps, step: PlacedStep) -> list[int]:
    token, listed = step.token, zip(step.listed.ids, step.listed.probabilities, strict=True)
    likely = [one for one, probability in listed if probability >= RIVAL and one != token]
    if not likely:
        return []
    texts, related = answer.scorer.vocabulary.normalized, answer.scorer.related_kinds(token)
    neutral = answer.scorer.neutral_mask(step.opening)
    return [
        one
        for one in likely
        if SOURCES[related.get(one, 0)] == "cluster"
        and texts[one][:SAME_LETTERS] != texts[token][:SAME_LETTERS]
        and not (answer.neutrality and neutral[one])
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
    found: list[ValueEnds | None] = [None] * lists.size
    asked = endings.what_may_end(before, lists.tokens)
    for i in np.flatnonzero(asked).tolist():
        step = answer.steps[i].listed
        probabilities = np.array(step.probabilities)
        unseen = 0.0 if step.complete else max(0.0, 1.0 - float(probabilities.sum()))
        found[i] = endings.from_list(int(asked[i]), np.array(step.ids, dtype=np.int64), probabilities, unseen)
    return found


def alternatives(answer: ListedSteps) -> list[tuple[Alternative, ...]]:
    """The most probable other tokens of each step."""
    lists = answer.lists
    steps, ids, probabilities = lists.listed.steps, lists.listed.ids, lists.probabilities
    likely = np.flatnonzero((probabilities >= LEAST_LISTED) & (ids != lists.tokens[steps]))
    likely = likely[np.lexsort((ids[likely], -probabilities[likely], steps[likely]))]
    places = np.arange(len(likely)) - np.searchsorted(steps[likely], steps[likely])  # among those of its step
    likely = likely[places < LISTED]
    found = answer.scorer.alternatives(
        lists.tokens[steps[likely]],
        list(zip(ids[likely].tolist(), probabilities[likely].tolist(), strict=True)),
        lists.begins[likely],
        opening=lists.opening[steps[likely]],
        neutrality=answer.neutrality,
    )
    ends = np.searchsorted(steps[likely], np.arange(lists.size + 1)).tolist()
    return [found[first:last] for first, last in itertools.pairwise(ends)]
