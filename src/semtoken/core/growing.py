"""Answers in progress: steps are added one by one or many at once, and the score can be asked for at any time.

A token's agreeing probability depends on tokens to come: its prefix set holds what spells the beginning of the text
that follows. A step is *open* until no later token can change its prefix set, and *settled* once it and all steps
before it are no longer open. Vocabulary strings are short, so the settled part lags by a few tokens.

`GrowingAnswer` is one answer, whether all logits of its steps are known or what an engine lists of them: the steps are
kept as `ReducedRows` or by a `ListReader`, and both give `Columns`.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from semtoken.core.columns import Columns, joined, no_steps
from semtoken.core.engine_tokens import TopStep
from semtoken.core.engine_tokens.checked_list import ListReader, Names
from semtoken.core.engine_tokens.known_names import KnownNames
from semtoken.core.engine_tokens.listed_names import ListedNames
from semtoken.core.flags import borrowed_flags, listed_flags, proxy_flag, silent_zeros
from semtoken.core.prefixes import NO_IDS, next_look
from semtoken.core.records import any_rival, later_records
from semtoken.core.results import Distribution, Running, ScoredAnswer
from semtoken.core.rows import NormalizedRows, WholeRow, normalized_rows, reduce_rows
from semtoken.core.score import CERTAIN, Agreeing, LogMass
from semtoken.core.scored_token import Flag
from semtoken.core.scorer import Scorer, among
from semtoken.errors import InvalidLogits
from semtoken.support.arrays import FloatArray, IdArray, Rows

MAX_WAITING_ROWS = 32  # a blank token that comes while so many whole rows are kept has an empty prefix set
NOTHING = NO_IDS, True
"""The prefix set of a step where it is not asked for, which is decided."""


class ReducedRows:
    """The steps of an answer of which all logits were known, reduced to what may count."""

    def __init__(self) -> None:
        self._pieces: list[Columns] = []
        self._starts: list[int] = []
        self._later: dict[int, tuple[IdArray, FloatArray]] = {}
        """Tokens and log-probabilities that were taken from the whole row of a step, by its position."""

    def add(self, steps: Columns, first: int) -> None:
        """Append steps, the first of which has this position."""
        if steps.open.any():
            places = np.flatnonzero(steps.open)
            ends = np.searchsorted(steps.owners[places], np.arange(len(steps) + 1)).tolist()
            for k, (low, high) in enumerate(itertools.pairwise(ends)):
                if low < high:
                    self._later[first + k] = steps.ids[places[low:high]], steps.logs[places[low:high]]
            steps = steps.without_open()
        self._pieces.append(steps)
        self._starts.append(first)

    def decide(self, position: int, prefix_set: IdArray) -> None:
        """Forget the tokens of a step that are not in its prefix set."""
        if position in self._later:
            ids, logs = self._later[position]
            kept = among(ids, prefix_set)
            self._later[position] = ids[kept], logs[kept]

    def take(self, position: int, row: WholeRow, ids: IdArray) -> None:
        """Take the log-probabilities of some tokens from the row of a step."""
        self._later[position] = ids, row.log_probs(ids)

    def part(self, first: int, last: int) -> Columns:
        """The steps from `first` to before `last`."""
        at = range(max(bisect_right(self._starts, first) - 1, 0), len(self._starts))
        near = [(self._pieces[k], self._starts[k]) for k in at if self._starts[k] < last]
        parts = [piece.part(max(first - start, 0), last - start) for piece, start in near]
        steps = joined(parts) if parts else no_steps()
        later = {position - first: entries for position, entries in self._later.items() if first <= position < last}
        if not later:
            return steps
        owners = np.repeat(list(later), [len(ids) for ids, _ in later.values()])
        ids, logs = (np.concatenate(column) for column in zip(*later.values(), strict=True))
        return steps.with_entries(owners, ids, logs)

    def truncate(self, length: int) -> None:
        """Forget all steps from `length` on."""
        kept = self.part(0, length)
        self._later = {position: entries for position, entries in self._later.items() if position < length}
        self._pieces, self._starts = [kept], [0]


@dataclass(frozen=True, eq=False)
class OpenStep:
    """A step whose prefix set cannot be decided before further tokens are known."""

    position: int
    look_again: int
    """Length of the answer at which the text to come is looked at again: ever less often."""
    row: WholeRow | None = None
    """All log-probabilities, as long as nothing is known of the text to come."""


class GrowingAnswer:
    """An unfinished answer. Its steps come from lists (`add`) or from rows of logits (`add_row`, `extend`)."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.ids: list[int] = []
        self.lists: ListReader | None = None
        self.rows = ReducedRows()
        self._prefixes: list[IdArray] = []
        """The prefix set of each step, without ids as long as it is open, or if it is not asked for."""
        self._open: list[OpenStep] = []
        self._leading_blanks = 0
        """The number of blanks that the answer begins with."""
        self._has_content = False
        self._n_settled = 0
        self._settled = CERTAIN  # sums over the settled steps

    # --- taking in steps ---

    def add(self, *steps: TopStep) -> None:
        """Add the next decoding steps, as an engine lists them."""
        if not steps:
            return
        scorer, new = self.scorer, len(self.ids)
        if self.lists is None:
            known = ListedNames(scorer.rules.spelling) if scorer.open_ended else KnownNames(scorer.vocabulary)
            self.lists = ListReader(known)
        first = self.lists.add(steps)
        # What the sums hold came from the first reading.
        if first < new:  # steps that were there before were read once more
            self._n_settled, self._settled = 0, CERTAIN
        self.ids[first:] = [step.token for step in self.lists.steps[first:]]
        for position, token in enumerate(self.ids[new:], new):
            opening = position <= self._leading_blanks
            if self._has_content and not opening:
                break  # no later token changes either of them
            if opening:
                self._leading_blanks += self.lists.names.is_blank(token)
            if not self._has_content:
                self._has_content = not (scorer.knows_neutral and token in scorer.neutral_tokens[opening])
        self._prefixes += [NO_IDS] * (len(self.ids) - new)
        if scorer.rules.prefix_matching:
            # A step's own token seldom decides what the text begins with: the next one is worth the first look.
            self._open += [OpenStep(position, position + 2) for position in range(new, len(self.ids))]

    def add_row(self, rows: Rows, row: int, token: int) -> None:
        """Add the next step: a row of some rows of logits [m, columns], and the id that was chosen from it.

        `InvalidLogits` if the row holds no distribution.
        """
        self.extend(normalized_rows(rows, self.scorer.vocabulary.size, [row]), [token])

    def extend(self, rows: NormalizedRows, tokens: Sequence[int]) -> None:
        """Add the next steps: m rows of logits, and the m ids that were chosen from them.

        `InvalidLogits` if a row holds no distribution; the message names the step.
        """
        check_normalizers(rows.log_normalizers, range(len(self.ids), len(self.ids) + len(tokens)))
        chosen = np.array(tokens, dtype=np.int64)
        before = np.array([*(self.ids[-1:] or [-1]), *tokens[:-1]], dtype=np.int64)
        # An index of -1 reads the last token here, which the second half makes up for: nothing comes before the first
        # step.
        blank = self.scorer.vocabulary.blank[before] | (before < 0)
        opening = np.logical_and.accumulate(blank) & self.opens
        self.take_in(*reduce_rows(self.scorer, rows, np.arange(len(tokens)), chosen, before, opening))

    def take_in(self, steps: Columns, rows: Mapping[int, WholeRow]) -> None:
        """Add reduced steps, with copies of some rows by the places of their steps, as `reduce_rows` gives them."""
        first, scorer, tokens = len(self.ids), self.scorer, steps.tokens.tolist()
        self.rows.add(steps, first)
        blank = scorer.vocabulary.blank[steps.tokens]
        self._leading_blanks += int(np.count_nonzero(blank & steps.opening))
        neutral = scorer.are_neutral(steps.tokens, steps.opening)
        self._has_content = self._has_content or not bool(neutral.all())
        self.ids += tokens
        for k, token in enumerate(tokens):
            ids, decided = (NO_IDS, False) if k in rows else scorer.may_begin(token) if scorer.looks_ahead else NOTHING
            self._prefixes.append(ids if decided else NO_IDS)
            if not decided:  # what a token alone decides is known up to the next token
                self._open.append(OpenStep(first + k, first + k + (1 if k in rows else 2), rows.get(k)))
        self.advance()
        kept = [step.position for step in self._open if step.row is not None][:MAX_WAITING_ROWS]
        self._open = [step for step in self._open if step.row is None or step.position in kept]

    @property
    def opens(self) -> bool:
        """True if the answer consists of blanks so far."""
        return len(self.ids) <= self._leading_blanks

    def advance(self, *, complete: bool = False) -> None:
        """Decide every prefix set that the tokens so far can decide, all of them if the answer is complete."""
        still_open: list[OpenStep] = []
        for step in self._open:
            if len(self.ids) < step.look_again and not complete:
                still_open.append(step)
                continue
            heads, decided = self.scorer.index.look(self.ids, step.position, complete=complete)
            # Once anything is known of the text, few tokens can be in the prefix set, and the row of all tokens can go.
            if step.row is not None and (decided or all(heads)):
                self.rows.take(step.position, step.row, self.scorer.index.candidates(heads))
                step = replace(step, row=None)
            if decided:
                self._prefixes[step.position] = self.scorer.index.beginnings(heads[0])
                self.rows.decide(step.position, self._prefixes[step.position])
            else:
                waited = len(self.ids) - step.position
                still_open.append(replace(step, look_again=step.position + next_look(waited)) if all(heads) else step)
        self._open = still_open

    def truncate(self, length: int) -> None:
        """Forget all steps of rows from `length` on, which pad a finished answer or spell a stop text.

        An answer that goes on afterwards must have lost tokens without text only.
        """
        spelled = any(self.scorer.vocabulary.pieces[token] for token in self.ids[length:])
        self.rows.truncate(length)
        del self.ids[length:], self._prefixes[length:]
        self._open = [step for step in self._open if step.position < length]
        if spelled and self.scorer.looks_ahead:
            self._narrow_prefix_sets()
        self._n_settled, self._settled = 0, CERTAIN
        self._leading_blanks = min(self._leading_blanks, length)
        kept = self.rows.part(0, length)
        self._has_content = not bool(self.scorer.are_neutral(kept.tokens, kept.opening).all())

    def _narrow_prefix_sets(self) -> None:
        """Take out of the prefix sets what spells the text of forgotten steps, too."""
        undecided = {step.position for step in self._open}
        for position in set(range(len(self.ids))) - undecided:
            [head], _ = self.scorer.index.look(self.ids, position, complete=True)
            kept = among(self._prefixes[position], self.scorer.index.beginnings(head))
            self._prefixes[position] = self._prefixes[position][kept]
            self.rows.decide(position, self._prefixes[position])

    # --- what is known ---

    @property
    def _neutrality(self) -> bool:
        """True if neutral tokens count as consistent, if the answer ends here."""
        return self._has_content or self.scorer.rules.preset == "paper"

    def agreeing(self, first: int, last: int) -> Agreeing:
        """Some steps, with the prefix sets that are decided by now."""
        prefixes, neutrality = self._prefixes[first:last], self._neutrality
        if self.lists is None:
            return Agreeing(self.scorer, self.rows.part(first, last), prefixes, neutrality)
        rounding, listed = self.lists.precision.rounding, self.lists.steps[first:last]
        if not rounding.even:  # each number may be off by another amount
            listed = [self.lists.names.with_others(step, 0.0) for step in listed]
        opening = [position <= self._leading_blanks for position in range(first, last)]
        return Agreeing(self.scorer, None, prefixes, neutrality, rounding, listed, opening)

    def running(self) -> Running:
        """The score from the tokens so far. The cost does not grow with the length of the answer.

        The bounds allow for every prefix set that later tokens can still give a step. Before the first content token
        nothing is settled under the preset `default`.
        """
        self.advance()
        first, n, neutrality = self._n_settled, len(self.ids), self._neutrality
        agreed = self.agreeing(first, n)
        new, undecided = agreed.masses, set[int]()
        if self.scorer.rules.prefix_matching:  # the prefix set of a neutral token does not count
            places = [step.position for step in self._open if step.position >= first]
            undecided = {place for place in places if not agreed.bounds.certain[place - first]}
        settled = max(first, min(undecided, default=n) if neutrality else 0)
        self._settled = LogMass.total([self._settled, *new[: settled - first]])
        self._n_settled = settled
        later = [
            # Until a step is decided, tokens to come may make all that is missing from its mass count.
            mass if neutrality and position not in undecided else mass._replace(upper=0.0)
            for position, mass in enumerate(new[settled - first :], start=settled)
        ]
        total = LogMass.total([self._settled, *later])
        if self.opens:
            total = total._replace(lower=-math.inf)  # an answer of blanks alone has the uncertainty 1
        return Running(
            # Adding 0.0 turns -0.0 into 0.0, here and below.
            sequence_uncertainty=-math.expm1(self._settled.estimate) + 0.0,
            sequence_uncertainty_interval=(-math.expm1(total.upper) + 0.0, -math.expm1(total.lower) + 0.0),
            n_settled=self._n_settled,
            n_tokens=n,
            log_confidence_interval=(total.lower, total.upper),
        )

    def finish(
        self,
        distribution: Distribution | None = None,
        *,
        proxy_for: str | None = None,
        said: str | None = None,
        notes: Sequence[Flag] = (),
        question: str | None = None,
        model: str | None = None,
        truncated: bool | None = None,
    ) -> ScoredAnswer:
        """The scored answer, once it is complete.

        `distribution` is `raw` for rows of logits and `unknown` for lists, if it is not given. `said` is the text that
        the engine gives, if it is known, which is used where there is no vocabulary. `notes` are further flags.
        `proxy_for`, `question`, `model` and `truncated` are recorded in the answer.
        """
        self.advance(complete=True)
        agreed, ids, vocabulary = self.agreeing(0, len(self.ids)), list(self.ids), self.scorer.vocabulary
        flags = [] if proxy_for is None else [proxy_flag(proxy_for)]
        names = None if self.lists is None else self.lists.names
        if isinstance(names, ListedNames):
            # Which names are special tokens shows at the end, by the text that follows them or does not.
            vocabulary = names.vocabulary(said, ids)
        text = vocabulary.decode(ids)
        if self.lists is not None:
            silent = silent_zeros(agreed.listed, lambda: agreed.bounds.certain)
            agreed = agreed.without_numbers(silent) if silent else agreed
            flags = [*listed_flags(agreed, vocabulary, silent, self.lists.copied), *flags]
        blank = not text.strip()
        # A blank answer has the log score -inf, as in the published code.
        low, estimate, high = LogMass(*[-math.inf] * 3) if blank else LogMass.total(agreed.masses)
        response = ScoredAnswer(
            text=text,
            tokens=later_records(agreed, vocabulary, ids, partial(_with_others, names, said, ids)),  # type: ignore[arg-type]
            log_confidence=estimate,
            log_confidence_interval=None if self.lists is None else (low, high),
            preset=self.scorer.rules.preset,
            distribution=distribution or ("raw" if self.lists is None else "unknown"),
            neutral_only=not self._has_content and not blank,
            signature=self.scorer.signature,
            flags=(*flags, *notes),
            proxy_for=proxy_for,
            model=model,
            question=question,
            truncated=truncated,
        )
        more = borrowed_flags(response, rivals=any_rival(agreed)) if self.scorer.rules.lending else ()
        return response.with_fields(flags=(*flags, *more, *notes)) if more else response


def _with_others(names: Names | None, said: str | None, ids: Sequence[int], agreed: Agreeing, least: float) -> Agreeing:
    """The steps with all listed tokens of at least a probability, where these had no numbers yet.

    The scorer is then that of the tokens which the lists have named; `said` and `ids` are those of the answer.
    """
    if not isinstance(names, ListedNames):
        return agreed
    listed = [names.with_others(step, least) for step in agreed.listed]
    scorer = Scorer(names.vocabulary(said, ids), agreed.scorer.rules, names=names)
    return replace(agreed, listed=listed, scorer=scorer)


def check_normalizers(
    log_normalizers: FloatArray, steps: Sequence[int], sequences: Sequence[int] | IdArray | None = None
) -> None:
    """Raise `InvalidLogits` for the first row that holds no distribution: its log normalizer is not finite.

    `steps` [n] and, in a batch, `sequences` [n] number the rows' steps and answers for the message.
    """
    finite = np.isfinite(log_normalizers)
    if not finite.all():
        place = int(finite.argmin())
        where = "" if sequences is None else f"Sequence {sequences[place]} of the batch: "
        raise InvalidLogits(
            f"{where}The logits of step {steps[place]} hold NaN or +inf, or not one finite value: "
            "there is no distribution to score."
        )
