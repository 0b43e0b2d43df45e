"""The listed steps of an answer under several rules: their bounds, records of its tokens, and flags."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from os.path import commonprefix
from typing import Any

import numpy as np

from semtoken.engine_tokens.checked_list import ASK_FOR_IDS, ListedStep
from semtoken.engine_tokens.precision import Rounding
from semtoken.engine_tokens.top_steps import is_own
from semtoken.errors import BackendError
from semtoken.results import Alternative, ScoredToken, ValueEnds
from semtoken.scoring.mass_flags import RIVAL
from semtoken.scoring.rows import LEAST_LISTED, LISTED
from semtoken.scoring.running import LogMass
from semtoken.scoring.scorer import SOURCES, Scorer
from semtoken.scoring.topk_bounds import Bounds, PlacedStep, StepLists, step_bounds, step_lists, usual_masses
from semtoken.support.arrays import BoolArray, IdArray
from semtoken.tokens.rules import SAME_LETTERS
from semtoken.tokens.scored_token import Flag
from semtoken.tokens.tokenizers import REPLACEMENT

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
        for i in np.flatnonzero(endings.what_may_end(before, lists.tokens)).tolist():
            step = self.steps[i].listed
            request = endings.request(int(before[i]) if i else None, step.token)
            probabilities = np.array(step.probabilities)
            unseen = 0.0 if step.complete else max(0.0, 1.0 - float(probabilities.sum()))
            found[i] = endings.from_list(request, np.array(step.ids, dtype=np.int64), probabilities, unseen)
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


SLIGHTLY_OVERFULL = 1.001
ZEROS_IN_A_ROW = 5
UNMAPPED = "list names that fit no token of the vocabulary"
NAMES_WITHOUT_BLANK = 20  # so many, and none with a blank: the engine leaves blanks out


def silent_zeros(answer: ListedSteps) -> list[int]:
    """The steps with a log-probability of 0 and no list in an answer whose other steps have lists.

    Engines write such zeros for tokens that they have not computed a distribution for, as under speculative decoding.

    Raises
    ------
    BackendError
        The engine gives nothing but zeros.
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

    Parameters
    ----------
    answer
        The steps.
    silent, copied
        The steps whose zeros (`silent_zeros`) or lists (`without_copied_list`) are not used.

    Raises
    ------
    BackendError
        The engine leaves out the blanks that tokens begin with.
    """
    steps = [step.listed for step in answer.steps]
    special = answer.scorer.vocabulary.special
    without_blank = [i for i, step in enumerate(steps) if step.without_blank]
    if any(step.with_blank for step in steps):
        without_blank = []
    if sum(step.without_blank for step in steps) >= NAMES_WITHOUT_BLANK:
        _refuse_names_without_blanks(without_blank)
    bare = [i for i, step in enumerate(steps) if not step.listed and not step.complete]
    zero = [i for i in bare if steps[i].log_prob == 0.0]
    wide = [i for i in bare if not answer.bounds.certain[i] and steps[i].log_prob != 0.0]
    twice = [i for i, step in enumerate(steps) if step.alike or step.doubtful]
    unknown = [i for i, step in enumerate(steps) if not is_own(round(step.log_prob, 6)) and i not in silent]
    overfull = [i for i, step in enumerate(steps) if step.total > SLIGHTLY_OVERFULL]
    unclear = [
        i
        for i, step in enumerate(steps)
        if step.ambiguous and (answer.bounds.ambiguous[i] > 0 or not _only_special(step, special))
    ]
    any_special = [i for i, step in enumerate(steps) if len(step.stands_for) > 1 and not answer.bounds.certain[i]]
    unmapped = [i for i, step in enumerate(steps) if step.unmapped]
    found = (
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
    return tuple(Flag(code, f"{_steps(where, len(steps))} {what}.") for code, where, what in found if where)


def _only_special(step: ListedStep, special: BoolArray) -> bool:
    """Whether the names that fit several tokens are those of any special token."""
    return all(special[list(candidates)].all() for candidates, _ in step.ambiguous)


def _refuse_names_without_blanks(where: Sequence[int]) -> None:
    if where:
        raise BackendError(
            "No token of the reply begins with a blank, although many of the vocabulary do: the engine names tokens "
            f"as they read alone, and so one may be taken for another (the first at step {where[0]}). {ASK_FOR_IDS}"
        )


def _steps(where: Sequence[int], count: int) -> str:
    return f"{len(where)} of {count} steps (the first is step {where[0]})"


def text_flags(spelled: str, said: str) -> tuple[Flag, ...]:
    """The flag `other_text` if the steps do not spell what the engine said, blanks and pieces of characters aside."""
    ours, theirs = ("".join(text.replace(REPLACEMENT, "").split()) for text in (spelled, said))
    if ours == theirs:
        return ()
    same = len(commonprefix([ours, theirs]))  # noqa: RUF071, texts and no paths
    message = f"The steps spell {ours[same:][:30]!r} where the answer says {theirs[same:][:30]!r}: some are missing."
    return (Flag("other_text", message),)
