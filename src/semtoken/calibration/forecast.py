"""What a number of labels can promise, said before any work starts."""

from __future__ import annotations

import math

from semtoken.calibration.promises import labels_needed
from semtoken.calibration.threshold import percent

USUAL = {0.3: 100, 0.2: 200, 0.1: 500, 0.05: 1_000, 0.02: 2_500, 0.01: 5_000}
"""Labels with which a promise "at most alpha of the accepted are wrong" usually lets most good answers through (by
simulation, at an AUROC of 0.85)."""


def usual_labels(alpha: float) -> int:
    """About so many labelled answers a promise takes; between the simulated levels 50 / alpha."""
    return USUAL.get(alpha, math.ceil(50 / alpha))


def within_reach(n: int) -> float | None:
    """The smallest simulated level that n labels usually carry."""
    return next((alpha for alpha, count in sorted(USUAL.items()) if count <= n), None)


def forecast(n: int, alpha: float, delta: float) -> str:
    """One sentence or two for a person who asks for a promise at alpha and has n labels."""
    least, usual = labels_needed(0, alpha, delta), usual_labels(alpha)
    if n < least:
        return (
            f"A promise of at most {percent(alpha)} wrong answers (with confidence {percent(1 - delta)}) takes at "
            f"least {least} labelled answers, usually about {usual:,}; you have {n}: nothing can be promised."
        )
    if n >= usual:
        return f"A promise of at most {percent(alpha)} wrong answers takes about {usual:,} labels; you have {n:,}."
    reach = within_reach(n)
    instead = "" if reach is None or reach <= alpha else f" At {percent(reach)} it usually holds with {n:,}."
    return (
        f"A promise of at most {percent(alpha)} wrong answers takes about {usual:,} labels; you have {n:,}. With "
        f"fewer, few answers or none may pass.{instead}"
    )


def label_order(log_scores: list[float], seed: int = 0) -> list[int]:
    """In which order to label answers: every beginning of it is spread evenly over the scores.

    Ranks of the scores are visited in van der Corput's order from a random start. So a hundred labels teach the
    calibrator its whole range, and remain a fair sample of all answers, which the promises need; answers near the
    threshold only would teach the threshold more, and break its promise.
    """
    import numpy as np

    n = len(log_scores)
    shift = np.random.default_rng(seed).random()
    by_score = np.argsort(log_scores, kind="stable")
    order: list[int] = []
    seen: set[int] = set()
    i = 0
    while len(order) < n:
        rank = int((_van_der_corput(i) + shift) % 1 * n)
        if rank not in seen:
            seen.add(rank)
            order.append(int(by_score[rank]))
        i += 1
    return order


def _van_der_corput(i: int) -> float:
    """The bits of i behind the point, in reverse: 0, 1/2, 1/4, 3/4, 1/8, ..."""
    return int(f"{i:b}"[::-1], 2) / 2 ** i.bit_length() if i else 0.0
