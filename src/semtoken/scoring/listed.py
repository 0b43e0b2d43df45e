"""Scores from lists of the best tokens where nobody has named a vocabulary: spellings are read from the lists.

The rules `surface` (the preset `default`) and `exact` need no more than that. What is not listed may be spelled in any
way, so all of it may agree: the interval is as wide as the list is short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

from semtoken.engine_tokens import TopStep
from semtoken.engine_tokens.listed_names import ListedNames, NameReader
from semtoken.results import Distribution, ScoredResponse
from semtoken.scoring.prefixes import NO_IDS, PrefixIndex
from semtoken.scoring.rules import ScoringRules
from semtoken.scoring.running import LogMass
from semtoken.scoring.scorer import ANY_NUMBER, Scorer
from semtoken.scoring.topk_answer import TopkAnswer
from semtoken.scoring.topk_bounds import PlacedStep
from semtoken.scoring.topk_records import FEW
from semtoken.tokens.scored import ScoredToken
from semtoken.tokens.vocabulary import Vocabulary


class _NoneNeutral(bytes):
    """Stands for `Scorer.neutral_bytes` of any number of tokens."""

    def __getitem__(self, place: object) -> int:  # type: ignore[override]
        return 0


class ListedScorer(Scorer):
    """A scorer of the tokens that the lists of one answer have named so far."""

    def __init__(self, vocabulary: Vocabulary, rules: ScoringRules, names: ListedNames) -> None:
        super().__init__(vocabulary, rules, PrefixIndex(vocabulary), open_ended=True)
        self._names = names

    def _is_alone(self, token: int) -> bool:
        return self._names.alone[token]


class GrowingScorer(ListedScorer):
    """The same while tokens come: it has no vocabulary, and knows what running values need."""

    @cached_property
    def related_kinds(self) -> Callable[[int], Mapping[int, int]]:
        """As in `Scorer`, of the tokens so far."""
        return self._related_kinds

    def _related_kinds(self, token: int) -> Mapping[int, int]:
        alike = self._names.alike(token) if self.rules.same_spelling else ()
        return dict.fromkeys(alike, 2) | {token: 1}

    @cached_property
    def related_count(self) -> Callable[[int, bool, bool], int]:
        """How many tokens may agree with one, as in `Scorer`: any number, unless its spelling stands alone."""
        return lambda token, *_: ANY_NUMBER if self.rules.same_spelling and not self._names.alone[token] else 1

    @cached_property
    def neutral_bytes(self) -> tuple[bytes, bytes]:
        """The neutral tokens, as in `Scorer`: without a vocabulary there are none."""
        return _NoneNeutral(), _NoneNeutral()


class ListedAnswer(TopkAnswer):
    """One answer in progress of which only the best tokens of each step are known, and no vocabulary."""

    def __init__(self, scorer: Scorer) -> None:
        self._names = ListedNames()
        super().__init__(GrowingScorer(scorer.vocabulary, scorer.rules, self._names))
        self._named = NameReader(self._names, same_spelling=scorer.rules.same_spelling)

    def add(self, step: TopStep) -> None:
        """Take in the next step.

        Raises
        ------
        InvalidInput, InvalidLogits
            See `score_top_logprobs`.
        """
        position = len(self.ids)
        listed = self._named.read(step, position)
        self._precision.add(step.log_probs)
        self._prefixes.append(NO_IDS)
        self._steps.append(PlacedStep(listed, self._opens(position), False))
        self._take_in([listed.token], [False], [])

    def _is_blank(self, token: int) -> bool:
        return self._names.blank[token]

    def _frozen(self, said: str | None = None) -> Scorer:
        """A scorer of the tokens so far."""
        return ListedScorer(self._names.vocabulary(said, self.ids), self.scorer.rules, self._names)

    def _masses_at(self, positions: range) -> list[LogMass]:
        part = self._listed(slice(positions.start, positions.stop))
        usual = part.usual_masses() if len(positions) <= FEW else None
        found = replace(part, scorer=self._frozen()).masses() if usual is None else usual
        self._keep(positions.start, found)
        return found

    def finish(
        self, distribution: Distribution = "unknown", *, proxy_for: str | None = None, said: str | None = None
    ) -> ScoredResponse:
        """The result, once the answer is complete; `said` is the text that the engine gives, if it is known."""
        self.scorer = self._frozen(said)
        return super().finish(distribution, proxy_for=proxy_for)

    def _with_engine_ids(self, tokens: tuple[ScoredToken, ...]) -> tuple[ScoredToken, ...]:
        """The tokens with the ids that the engine gave, -1 where it gave none."""
        ids = self._names.ids
        return tuple(
            replace(
                token,
                id=ids[token.id],
                alternatives=tuple(replace(other, id=ids[other.id]) for other in token.alternatives),
            )
            for token in tokens
        )
