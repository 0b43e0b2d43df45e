"""Flags for the reader of a score: faults of its lists, and whether it rests on tokens other than the answer's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from os.path import commonprefix

from semtoken.clustering.tokenizers import REPLACEMENT
from semtoken.clustering.vocabulary import Vocabulary, normalize
from semtoken.core.engine_tokens.checked_list import ASK_FOR_IDS, Doubts, ListedStep
from semtoken.core.engine_tokens.top_steps import is_own
from semtoken.core.records import RIVAL
from semtoken.core.results import Alternative, ScoredAnswer, ScoredToken
from semtoken.core.results.confidence import UNNAMED_PIECES
from semtoken.core.rules import SAME_LETTERS, SURFACE_RULES
from semtoken.core.score import Agreeing
from semtoken.core.scored_token import Flag
from semtoken.errors import BackendError
from semtoken.support.arrays import BoolArray
from semtoken.support.text import number

SLIGHTLY_OVERFULL = 1.001
LEAST_TELLING = -99.0  # stand-ins for a number that is not known are below
UNMAPPED = "list names that fit no token of the vocabulary"
_UNNAMED = REPLACEMENT.encode()
NAMES_WITHOUT_BLANK = 20  # so many, and none with a blank: the engine leaves blanks out
ZEROS_IN_A_ROW = 5
"""The number of tokens that are never all sure in an answer whose engine reports its numbers."""


def silent_zeros(steps: Sequence[ListedStep], certain: Callable[[], BoolArray]) -> list[int]:
    """The steps with a log-probability of 0 and no list in an answer whose other steps have lists.

    Engines write such zeros for tokens that they have not computed a distribution for, as under speculative decoding.
    `certain` says which steps count as certain whatever their number is. `BackendError` if the engine gives nothing
    but zeros.
    """
    zeros = [i for i, step in enumerate(steps) if step.log_prob == 0.0 and not (step.listed or step.complete)]
    if not zeros:
        return []
    sure = certain()
    zeros = [i for i in zeros if not sure[i]]
    bare = [i for i in zeros if steps[i].bare]
    whole = len(zeros) == len(steps) - int(sure.sum())
    if zeros and whole and (len(bare) == len(zeros) or len(zeros) >= ZEROS_IN_A_ROW):
        raise BackendError(
            "Every token has the log-probability 0 and no alternatives: the engine does not report log-probabilities "
            "(some do so under speculative decoding). Ask the engine without it, and for alternatives."
        )
    # An engine that gives no lists at all may have been sure: a zero without a list means something only beside steps
    # that have one.
    return bare if any(not step.bare for step in steps) else []


def listed_flags(
    agreed: Agreeing, vocabulary: Vocabulary, silent: Sequence[int] = (), copied: Sequence[int] = ()
) -> tuple[Flag, ...]:
    """Flags about the lists of a complete answer: what they lack, and what makes its bounds wide.

    `vocabulary` has the texts of the tokens, as the answer is decoded by it. `silent` are the steps whose zero is no
    log-probability (`silent_zeros`), `copied` those whose list was dropped (`without_copied_lists`): flags say so.
    `BackendError` if the engine leaves out the blanks that tokens begin with.
    """
    steps = agreed.listed
    # Those of which there is anything that a flag may speak of.
    odd = [
        (i, step)
        for i, step in enumerate(steps)
        if not step.listed
        or step.without_blank
        or step.log_prob < LEAST_TELLING
        or step.total > SLIGHTLY_OVERFULL
        or step.doubts
    ]
    pieces = vocabulary.pieces
    unnamed = [i for i, step in enumerate(steps) if _UNNAMED in pieces[step.token]] if agreed.scorer.open_ended else []
    if not (odd or silent or copied or unnamed):  # as of most answers
        return ()
    without_blank = [i for i, step in odd if step.without_blank]
    # An engine that has written a blank once does not leave blanks out.
    if any(step.with_blank for step in steps):
        without_blank = []
    if without_blank and sum(step.without_blank for step in steps) >= NAMES_WITHOUT_BLANK:
        raise BackendError(
            "No token of the reply begins with a space, although many of the vocabulary do: the engine names tokens "
            f"as they read alone, and so one may be taken for another (the first at step {without_blank[0]}). "
            f"{ASK_FOR_IDS}"
        )
    bare = [i for i, step in odd if not step.listed and not step.complete]
    zero = [i for i in bare if steps[i].log_prob == 0.0]
    wide = [i for i in bare if not agreed.bounds.certain[i] and steps[i].log_prob != 0.0]
    doubts = [(i, step.doubts) for i, step in odd if step.doubts is not None]
    twice = [i for i, doubt in doubts if doubt.alike or doubt.doubtful]
    # Rounded, since the number went through exp and log, and stand-ins such as -100 are found by equality.
    unknown = [i for i, step in odd if not is_own(round(step.log_prob, 6)) and i not in silent]
    overfull = [i for i, step in odd if step.total > SLIGHTLY_OVERFULL]
    unclear = [
        i
        for i, doubt in doubts
        if (doubt.ambiguous or doubt.perhaps)  # unless all that the names may mean are spelled like no other token
        and (agreed.bounds.ambiguous[i] > 0 or not _all_alone(agreed, vocabulary, doubt))
        and not agreed.bounds.certain[i]
    ]
    any_special = [i for i, doubt in doubts if len(doubt.stands_for) > 1 and not agreed.bounds.certain[i]]
    unmapped = [i for i, doubt in doubts if doubt.unmapped]
    findings = (
        ("no_alternatives", wide, "list no token besides the chosen one, so the interval is wide"),
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
        ("names_without_blanks", without_blank, "list names that are other tokens' if the engine omits spaces"),
        (
            UNNAMED_PIECES,
            unnamed,
            "chose pieces of characters without a name, so the interval is wide: ask for token ids, and name the model",
        ),
        ("unmapped_names", unmapped, "name tokens only by ids" if agreed.scorer.open_ended else UNMAPPED),
    )
    return tuple(
        Flag(code, f"{len(where)} of {len(steps)} steps (the first is step {where[0]}) {what}.")
        for code, where, what in findings
        if where
    )


def _all_alone(agreed: Agreeing, vocabulary: Vocabulary, doubt: Doubts) -> bool:
    """True if all tokens that unclear names of a list may mean are spelled like no other, as pieces of characters are.

    A list that is keyed by names then hides none that is spelled as the chosen token is.
    """
    # The tokens that lists have named are those of this answer's vocabulary, which no scorer is kept for.
    alike = SURFACE_RULES.alike(vocabulary) if agreed.scorer.open_ended else agreed.scorer.surface.alike
    alone = alike.asks < 0
    return all(alone[list(may_be)].all() for may_be, _ in doubt.ambiguous)


def proxy_flag(proxy_for: str) -> Flag:
    """The flag of an answer that was scored with the vocabulary of another model than the one of this name."""
    message = f"The vocabulary is another model's than {proxy_for}, with the same tokenizer: a proxy for its own."
    return Flag("shared_vocabulary", message)


def text_flags(spelled: str, said: str) -> tuple[Flag, ...]:
    """The flag `other_text` if the steps do not spell what the engine said, blanks and pieces of characters aside."""
    ours, theirs = ("".join(text.replace(REPLACEMENT, "").split()) for text in (spelled, said))
    if ours == theirs:
        return ()
    same = len(commonprefix([ours, theirs]))  # noqa: RUF071, texts and no paths
    message = f"The steps spell {ours[same:][:30]!r} where the answer says {theirs[same:][:30]!r}: some are missing."
    return (Flag("other_text", message),)


DECIDES = 0.5
"""An answer is flagged if at least this share of its confidence comes from one source other than its own tokens."""
CONFIDENT = 0.1
"""An answer of less confidence gets no flag: it is doubtful either way."""


def borrowed_flags(response: ScoredAnswer, *, rivals: bool = True) -> tuple[Flag, ...]:
    """Flags of an answer whose score rests on tokens other than its own; none for most answers.

    `rivals`: whether a token may have one, so that the records of all tokens have to be looked at.

    `carried_by_cluster`, `carried_by_function_words`
        The confidence is at least 0.1, and at least half of it is the probability of tokens in the clusters of the
        chosen ones, or of function words, white space and special tokens.
    `rivals_counted`
        At some step another word of at least 0.1 counted as agreeing only because it shares the chosen token's
        cluster: "Sydney" beside "Canberra". Tokens that share their first three characters are no rivals.
    """
    flags = []
    confidence = 1.0 - response.sequence_uncertainty
    if not rivals and confidence < CONFIDENT:
        return ()
    if confidence >= CONFIDENT:
        borrowed = response.borrowed
        carried = (
            ("carried_by_cluster", borrowed.cluster, "other tokens of the same clusters"),
            ("carried_by_function_words", borrowed.function_words, "function words, white space and special tokens"),
        )
        for code, mass, source in carried:
            if mass >= DECIDES * confidence:
                share = f"{number(mass)} of the confidence of {number(confidence)}"
                flags.append(Flag(code, f"{share} came from {source}, not from the answer's own tokens."))
    pairs = [(token, rival) for token in response.tokens if not token.neutral for rival in _rivals(token)]
    if pairs:
        token, rival = max(pairs, key=lambda pair: pair[1].probability)
        flags.append(
            Flag(
                "rivals_counted",
                f"{rival.text!r} ({number(rival.probability)}) counted as agreeing with {token.text!r} "
                f"({number(token.probability)}), since they share a cluster.",
            )
        )
    return tuple(flags)


def _rivals(token: ScoredToken) -> Iterator[Alternative]:
    """Likely other words that counted because of their cluster alone."""
    for other in token.alternatives:
        counted = other.source == "cluster" and other.counted and other.probability >= RIVAL
        if counted and normalize(other.text)[:SAME_LETTERS] != normalize(token.text)[:SAME_LETTERS]:
            yield other
