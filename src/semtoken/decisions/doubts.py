"""Doubts about a fit: what answers and their labels cannot support, in sentences, before anything is fitted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from semtoken.choices import Guarantee
from semtoken.decisions.answers import LEAST_ALLOWED
from semtoken.decisions.options import labels_for_sets, least_to_a_person
from semtoken.decisions.records import DecisionRecord
from semtoken.guarantees.exact import labels_needed, percent


def doubts_of_answers(records: Sequence[DecisionRecord]) -> list[str]:
    """Doubts about a fit on these answers, before anything is fitted: a sentence for each question and doubt."""
    by_question: dict[str, list[DecisionRecord]] = {}
    for record in records:
        by_question.setdefault(record.fingerprint, []).append(record)
    sentences = []
    for own in by_question.values():
        name, n = own[0].name, len(own)
        masses = [record.answer.option_mass for record in own if record.answer.option_mass is not None]
        low = sum(mass < LEAST_ALLOWED for mass in masses)
        if 2 * low > n:
            sentences.append(
                f"{name}: in {low:,} of {n:,} answers less than half of the probability fell on the options (median "
                f"{float(np.median(masses)):.1%}): the model wanted to say something else. Look at what it says first."
            )
        others = sum(
            record.answer.probabilities[record.answer.best] < max(record.answer.probabilities) for record in own
        )
        if others:
            sentences.append(
                f"{name}: in {others:,} of {n:,} answers the server chose another option than its most probable one. "
                "What is fitted is about the option that it chose."
            )
    return sentences


def doubts_of_labels(records: Sequence[DecisionRecord], guarantee: Guarantee, alpha: float, delta: float) -> list[str]:
    """Guarantees that the labels cannot support, each as a sentence, before anything is fitted to them."""
    labeled: dict[str, list[DecisionRecord]] = {}
    for record in records:
        if record.label is not None:
            labeled.setdefault(f"{record.name} {record.fingerprint}", []).append(record)
    sentences = []
    for own in labeled.values():
        name, wrong, n = own[0].name, sum(not answer.correct for answer in own), len(own)
        least = labels_needed(0, alpha, delta)
        if (usable := wrong if guarantee == "miss_rate" else n) < least:
            what = "wrong answers with a label" if guarantee == "miss_rate" else "labels"
            sentences.append(
                f"{name}: a guarantee at alpha {alpha:g} takes at least {least} {what} on each side; here are {usable} "
                "in all. Label more, or choose a larger alpha."
            )
        if (least_sets := labels_for_sets(alpha)) > n:
            sentences.append(
                f"{name}: sets of options take at least {least_sets} labels at alpha {alpha:g}, and there are {n}: "
                "with fewer every set holds all options, so none are made."
            )
        if guarantee == "selective_risk" and (share := least_to_a_person(wrong, n, alpha)) > 0:
            sentences.append(
                f"{name}: {percent(wrong / n)} of {n:,} labeled answers are wrong. If at most {percent(alpha)} of the "
                f"accepted may be, at least {percent(share)} of all must go to a person, whatever the score."
            )
    return sentences
