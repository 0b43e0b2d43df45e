"""The score of an answer in progress."""

from __future__ import annotations

from dataclasses import dataclass

SLACK = 1e-6
"""The least by which the uncertainty of an unfinished answer must exceed a limit to count as above it, since sums over
steps are rounded."""


@dataclass(frozen=True)
class Running:
    """The score of an unfinished answer, from its tokens so far."""

    sequence_uncertainty: float
    """1 - product of the agreeing probabilities of the settled steps, in [0, 1]. Where only the best tokens of a step
    are known, its agreeing probability is what the listed ones add up to."""
    sequence_uncertainty_interval: tuple[float, float]
    """An interval (low, high) that contains the uncertainty of the answer if it ends here. The lower end holds whatever
    follows."""
    n_settled: int
    """Steps in a row, from the first, whose agreeing probability no later token can change."""
    n_tokens: int
    """The number of tokens so far."""
    log_confidence_interval: tuple[float, float]
    """The same interval for the log score, which still distinguishes long answers when their uncertainty rounds to 1.
    The upper end never rises as the answer goes on."""

    def exceeds(self, limit: float) -> bool:
        """Return True if the uncertainty in units of -log_confidence is certain to exceed a limit, whatever follows.

        The lower bound of its uncertainty is never taken back, so no answer that would end at or below the limit is
        said to exceed it.

        Parameters
        ----------
        limit
            In units of -log_confidence, such as minus `Threshold.min_log_score` of a threshold on the product.
        """
        return -self.log_confidence_interval[1] > limit + SLACK
