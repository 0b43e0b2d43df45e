"""The meanings that compete at one step, how the answer would go on with each, and where these branches disagree.

The probability of a meaning is a sum over a group of tokens. Groups are clusters, or tokens of the same spelling where
there are no clusters, with three exceptions, each of them needed. Function words, blanks and special tokens form one
group. Numerals are alone, since clusters hold all digits. Tokens that spell the beginning of what the answer goes on
with join the chosen token's group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from semtoken.clustering.function_words import english_stopwords, is_function_word, plain_word
from semtoken.clustering.vocabulary import normalize
from semtoken.core.parts import Part, parts_of
from semtoken.core.parts.prose import words
from semtoken.core.results import ScoredAnswer
from semtoken.core.scored_token import ScoredToken
from semtoken.core.scorer import Scorer
from semtoken.methods.observers.steps import LOGITS, Observer, Step
from semtoken.models.base import Backend, Decoding
from semtoken.models.prompt_ids import encode_prompt
from semtoken.support.arrays import FloatArray, IdArray
from semtoken.support.inputs import flag, instance, listed, real, whole


@dataclass(frozen=True)
class Competitor:
    """One of the meanings between which the model chose at a step."""

    probability: float
    """Mass of the tokens of this meaning, in [0, 1]."""
    tokens: tuple[tuple[str, float], ...]
    """Texts of the most probable tokens of this meaning, with their own probabilities."""
    token_ids: tuple[int, ...]
    """The ids of these tokens; empty where no vocabulary is known."""
    chosen: bool
    """Whether the answer goes on with this meaning."""
    continuation: str | None = None
    """The answer from the word that the step is in to the end of the phrase; None if not asked for."""


@dataclass(frozen=True)
class Dispute:
    """A step at which the model might have said something else."""

    step: int
    """Index of the step's token in the answer."""
    part: Part
    """The phrase that it belongs to; the token itself where it belongs to none."""
    competitors: tuple[Competitor, ...]
    """The meanings that compete, the most probable first; branches that say the same are one."""
    disagreement: float
    """Mass of the competitors that say something else than the answer, in [0, 1]."""
    unheard: float
    """Mass of the tokens whose branches were not followed, in [0, 1]."""


SHOWN = 3  # tokens of a group that are shown


class StepRows(Observer):
    """Keeps the log-probabilities of some steps of one answer (float64 [V] each)."""

    reads = frozenset({LOGITS})

    def __init__(self, steps: Sequence[int], size: int) -> None:
        self.rows: dict[int, FloatArray] = {}
        self._wanted = frozenset(steps)
        self._size = size
        self._position = 0

    def observe(self, step: Step) -> None:
        """Record the rows of logits of the wanted steps."""
        if self._position in self._wanted:
            self.rows[self._position] = step.log_distributions()[0, : self._size]
        self._position += 1


def step_rows(backend: Backend, prompt: Any, answer: ScoredAnswer, steps: Sequence[int]) -> dict[int, FloatArray]:
    """Log-probabilities of all tokens at some steps of an answer, float64 [V] each, from one teacher-forced pass.

    `InvalidInputError` if there is no such step, `BackendError` if the engine does not show all tokens.
    """
    instance(answer, ScoredAnswer, "answer")
    steps = [whole(step, "step", low=0, high=len(answer.tokens) - 1) for step in steps]
    rows = StepRows(steps, backend.vocabulary.size)
    # No further than the last step that is wanted.
    backend.read([encode_prompt(backend.tokenizer, prompt, 0)], [answer.token_ids[: max(steps) + 1]], [rows])
    return rows.rows


def competing(stc: Any, prompt: Any, answer: ScoredAnswer, step: int, n: int = 4) -> list[Competitor]:
    """See what else the model could have written at a step of its answer: the n most probable meanings.

    The model reads the prompt and the answer up to the step once more. Tokens that agree under the rules of the
    `ScoredModel` are one meaning.

    Parameters
    ----------
    stc
        The `ScoredModel` that gave the answer.
    prompt
        What it was asked: text, chat messages or token ids.
    answer
        The answer.
    step
        Index of one of its tokens.
    n
        How many meanings, at least 1.

    Returns
    -------
    list of Competitor
        The most probable first, each with its probability in [0, 1].

    Raises
    ------
    InvalidInputError
        The prompt cannot be used, or there is no such step.
    """
    n = whole(n, "n", low=1)
    [(step, row)] = step_rows(stc.backend, prompt, answer, [step]).items()
    return groups_of(row, answer.token_ids, step, stc.scorer, n)


def competing_in_record(answer: ScoredAnswer, step: int, scorer: Scorer, n: int = 4) -> list[Competitor]:
    """The meanings that compete at a step, as `competing` gives them, without asking the model again.

    They come from the tokens in the answer's record, so rarer ones are missing. `scorer` is that of the answer
    (`scorer_for`), `n` the most meanings to give. `InvalidInputError` if there is no such step.
    """
    step, n = whole(step, "step", low=0, high=len(answer.tokens) - 1), whole(n, "n", low=1)
    token = answer.tokens[step]
    if scorer.open_ended:
        return _groups_of_texts(answer.text[token.start :], token, n)
    known = {token.id: token.probability} | {other.id: other.probability for other in token.alternatives}
    ids = np.array(list(known), dtype=np.int64)
    with np.errstate(divide="ignore"):
        log_probs = np.log(np.array(list(known.values())))
    return groups_of(log_probs, answer.token_ids, step, scorer, n, ids=ids)


def _groups_of_texts(following: str, token: ScoredToken, n: int) -> list[Competitor]:
    """Groups of one spelling at a step whose vocabulary is not known, by the texts in the record."""
    head, words = normalize(following), english_stopwords()
    groups: dict[str, list[tuple[str, float]]] = {"chosen": [(token.text, token.probability)]}
    for other in token.alternatives:
        key = "" if other.text.strip() in words else normalize(other.text)
        begins = key and head.startswith(key) and not token.function_word
        groups.setdefault("chosen" if begins else f"other {key}", []).append((other.text, other.probability))
    competitors = [
        Competitor(
            min(math.fsum(probability for _, probability in members), 1.0),
            tuple(sorted(members, key=lambda one: -one[1])[:SHOWN]),
            (),
            key == "chosen",
        )
        for key, members in groups.items()
    ]
    return sorted(competitors, key=lambda one: -one.probability)[:n]


def groups_of(
    log_probs: FloatArray,
    token_ids: Sequence[int],
    step: int,
    scorer: Scorer,
    n: int,
    *,
    ids: IdArray | None = None,
) -> list[Competitor]:
    """The n most probable groups of one meaning at a step of the answer `token_ids`, the most probable first.

    `log_probs` are of all V tokens, or of `ids`; `scorer` is the answer's, with its vocabulary and perhaps clusters.
    """
    groups, n_groups = _group_numbers(scorer, list(token_ids), step)
    ids = np.arange(len(groups)) if ids is None else ids
    probabilities = np.exp(log_probs)
    # One weighted count over the vocabulary is enough for all groups.
    totals = np.bincount(groups[ids], weights=probabilities, minlength=n_groups)
    best = [group for group in np.argsort(-totals, kind="stable")[:n].tolist() if totals[group] > 0]
    texts = scorer.vocabulary.texts
    competitors = []
    for group in best:
        members = np.flatnonzero(groups[ids] == group)
        top = members[np.argsort(-probabilities[members], kind="stable")[:SHOWN]]
        shown = tuple((texts[ids[i]], float(probabilities[i])) for i in top if probabilities[i] > 0)
        chosen = bool(group == groups[token_ids[step]])
        competitors.append(
            Competitor(min(float(totals[group]), 1.0), shown, tuple(int(ids[i]) for i in top[: len(shown)]), chosen)
        )
    return competitors


def _group_numbers(scorer: Scorer, token_ids: list[int], step: int) -> tuple[IdArray, int]:
    """The group of every token of the vocabulary at a step (int64 [V]), and how many numbers there are."""
    base, n_groups = _plain_groups(scorer)
    groups = base.copy()
    chosen = token_ids[step]
    if not scorer.vocabulary.neutral[chosen]:
        prefixes = scorer.index.prefix_set(token_ids, step)
        groups[prefixes[~scorer.vocabulary.neutral[prefixes]]] = groups[chosen]
    return groups, n_groups


@lru_cache(maxsize=1)
def _plain_groups(scorer: Scorer) -> tuple[IdArray, int]:
    """Clusters or spellings with function words together and numerals alone; computed once for a scorer."""
    vocabulary, clusters = scorer.vocabulary, scorer.clusters
    labels = scorer.surface.alike.has if clusters is None else np.asarray(clusters.labels, dtype=np.int64)
    # Numbers above all labels: one for function words together, and from `first` on one for each numeral.
    first = int(labels.max(initial=0)) + 2
    groups = np.where(vocabulary.numeral, first + np.arange(len(labels)), labels)
    groups[vocabulary.neutral] = first - 1
    return groups, first + len(labels)


DOUBTFUL = 0.9
"""Steps whose chosen token has less than this probability are looked at."""
MAX_STEPS = 8
BRANCH_TOKENS = 8
AGREED = 0.85
"""Probability that the branches which agree with the answer must have, for a doubt to be about its wording only; the
page marks nothing above it."""
_END = re.compile(r"[.!?;:\n](?=\s|\Z)|\n")


def disputed(
    stc: Any,
    prompt: Any,
    answer: ScoredAnswer,
    *,
    n: int = 4,
    max_steps: int = MAX_STEPS,
    doubtful: float = DOUBTFUL,
    branch_tokens: int = BRANCH_TOKENS,
    with_agreed: bool = False,
) -> list[Dispute]:
    """The steps at which the model could have said something else, the greatest disagreement first.

    At each doubtful step the n most probable meanings are forced in turn, and the answer goes on greedily to the end
    of the phrase. Branches that have the same content words count as one. Steps whose branches all say the same are
    left out unless you ask for them.

    Parameters
    ----------
    stc, prompt, answer
        As in `competing`.
    n
        Meanings that are followed at a step.
    max_steps
        Steps that are looked at, the most doubtful ones.
    doubtful
        Only steps where the chosen token has less than this probability.
    branch_tokens
        How many tokens a branch has at most after its first.
    with_agreed
        Return the steps whose branches all say the same too; `only_in_form` needs them.

    Returns
    -------
    list of Dispute
        With disagreements in [0, 1]; a higher one means that more of the probability says something else.

    Raises
    ------
    InvalidInputError
        The prompt cannot be used, or a setting is out of range.
    """
    n, branch_tokens = whole(n, "n", low=1), whole(branch_tokens, "branch_tokens", low=1)
    flag(with_agreed, "with_agreed")
    steps = doubtful_steps(answer, max_steps, doubtful)
    if not steps:
        return []
    ids = encode_prompt(stc.backend.tokenizer, prompt, 0)
    rows = step_rows(stc.backend, ids, answer, steps)
    competitors = {step: groups_of(rows[step], answer.token_ids, step, stc.scorer, n) for step in steps}
    texts = _continuations(stc, ids, answer, competitors, branch_tokens)
    phrases = parts_of(answer, "phrase")
    disputes = [_dispute(answer, step, competitors[step], texts, phrases) for step in steps]
    wanted = [dispute for dispute in disputes if with_agreed or dispute.disagreement > 0]
    return sorted(wanted, key=lambda dispute: (-dispute.disagreement, dispute.step))


def only_in_form(part: Part, answer: ScoredAnswer, found: Sequence[Dispute]) -> bool:
    """Whether a phrase of an answer is doubtful in its wording only: all branches of its doubtful steps mean the same.

    At each of its doubtful steps, `found` by `disputed(..., with_agreed=True)`, the branches that agree with the answer
    have to hold at least `AGREED` of the probability. What was not followed counts against it, so a step that was not
    looked at is a doubt.
    """
    instance(part, Part, "part")
    instance(answer, ScoredAnswer, "answer")
    found = [instance(dispute, Dispute, "found") for dispute in listed(found, "found")]
    shares = {dispute.step: 1.0 - dispute.disagreement - dispute.unheard for dispute in found}
    steps = [step for step in doubtful_steps(answer, len(answer.tokens)) if step in part.tokens]
    return bool(steps) and all(shares.get(step, 0.0) >= AGREED for step in steps)


def doubtful_steps(answer: ScoredAnswer, most: int = MAX_STEPS, doubtful: float = DOUBTFUL) -> list[int]:
    """The steps whose tokens were least certain, in the order of the answer; blanks and special tokens are left out.

    There are at most `most`, and each token has a probability below `doubtful`, in [0, 1].
    """
    instance(answer, ScoredAnswer, "answer")
    most, doubtful = whole(most, "most", low=0), real(doubtful, "doubtful", low=0.0, high=1.0)
    below = [
        (token.probability, step)
        for step, token in enumerate(answer.tokens)
        if token.probability < doubtful and token.text.strip()
    ]
    return sorted(step for _, step in sorted(below)[:most])


def _continuations(
    stc: Any,
    prompt: list[int],
    answer: ScoredAnswer,
    competitors: dict[int, list[Competitor]],
    length: int,
) -> dict[tuple[int, int], str]:
    """The text of each branch from the word that it changes on, by step and token; all branches are one batch."""
    wanted = [(step, competitor.token_ids[0]) for step, group in competitors.items() for competitor in group]
    prompts = [[*prompt, *answer.token_ids[:step], token] for step, token in wanted]
    # What the branches begin with, which is nearly all of them, is read once.
    decoding = Decoding(max_new_tokens=length, batch_size=len(prompts), share_prefix=True)
    completions = stc.backend.generate(prompts, decoding)
    decode = stc.scorer.vocabulary.decode
    texts = {}
    for (step, token), completion in zip(wanted, completions, strict=True):
        before = answer.token_ids[:step]
        start = _word_start(answer, step)
        text = decode([*before, token, *completion.token_ids])
        # The branch may end its phrase only behind the token that makes it one.
        forced = len(decode([*before, token])) - start
        texts[step, token] = _to_end_of_phrase(text[start:], forced, broken_off=bool(completion.truncated))
    return texts


def _word_start(answer: ScoredAnswer, step: int) -> int:
    """First character of the word that a token belongs to."""
    start = answer.tokens[step].start
    while start and not answer.text[start - 1].isspace() and not answer.text[start].isspace():
        start -= 1
    return start


def _to_end_of_phrase(text: str, from_: int, *, broken_off: bool = False) -> str:
    """A text cut at the first end of a sentence or clause after a place; else, if broken off, after a whole word."""
    end = _END.search(text, max(from_, 0))
    if end is not None:
        return text[: end.start()].strip()
    blank = text.rstrip().rfind(" ") if broken_off else -1
    return (text[:blank] if blank >= max(from_, 1) else text).strip()


def _dispute(
    answer: ScoredAnswer,
    step: int,
    group: list[Competitor],
    texts: dict[tuple[int, int], str],
    phrases: Sequence[Part],
) -> Dispute:
    branches = [replace(competitor, continuation=texts[step, competitor.token_ids[0]]) for competitor in group]
    merged = merge(branches)
    against = [competitor.probability for competitor in merged if not competitor.chosen]
    heard = sum(competitor.probability for competitor in group)
    return Dispute(
        step=step,
        part=_part_around(answer, step, phrases),
        competitors=tuple(merged),
        disagreement=sum(against),
        unheard=max(0.0, 1.0 - heard),
    )


def merge(competitors: Sequence[Competitor]) -> list[Competitor]:
    """Merge competitors whose continuations have the same content words as far as both go, the most probable first."""
    merged: list[tuple[tuple[str, ...], Competitor]] = []
    for competitor in competitors:
        said = content_words(competitor.continuation or "")
        same = next((i for i, (other, _) in enumerate(merged) if _same(said, other)), None)
        if same is None:
            merged.append((said, competitor))
            continue
        longer, first = merged[same]
        joined = replace(
            first,
            probability=min(first.probability + competitor.probability, 1.0),
            tokens=first.tokens + competitor.tokens,
            token_ids=first.token_ids + competitor.token_ids,
            chosen=first.chosen or competitor.chosen,
        )
        # The longer of the two: what comes next is compared with all that is known.
        merged[same] = (max(longer, said, key=len), joined)
    return sorted((competitor for _, competitor in merged), key=lambda competitor: -competitor.probability)


def content_words(text: str) -> tuple[str, ...]:
    """The words of a text in lower case, function words left out; all of them if there are no others."""
    everything = [plain_word(text[start:end]) for start, end in words(text)]
    return tuple(word for word in everything if not is_function_word(word)) or tuple(everything)


def _same(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether two branches say the same as far as both go; one that says nothing says nothing else."""
    shorter = min(len(a), len(b))
    return shorter > 0 and a[:shorter] == b[:shorter]


def _part_around(answer: ScoredAnswer, step: int, phrases: Sequence[Part]) -> Part:
    """The phrase that a token belongs to, or the token itself as a part."""
    for phrase in phrases:
        if step in phrase.tokens:
            return phrase
    token = answer.tokens[step]
    return parts_of(answer, lambda _: [(token.start, token.end, "token")])[0]
