"""How good an encoder is on pairs that it was not trained on, by kind of pair."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from research.training.encoders.pairs import LABELS, Pair
from scipy.stats import spearmanr

SAME, DIFFERENT = 0.9, 0.65  # targets from and up to which two texts count as the same or as different in meaning
THRESHOLD = 0.7  # similarity from which ConU takes two answers for one


@dataclass(frozen=True)
class Share:
    """How many of how many are right, with Wilson's 95% interval."""

    right: int
    of: int

    @property
    def value(self) -> float:
        """The share."""
        return self.right / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval."""
        z, n, p = 1.96, self.of, self.value
        middle, half = p + z * z / (2 * n), z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
        return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))

    def record(self) -> dict[str, object]:
        """The share as plain values."""
        low, high = (round(bound, 4) for bound in self.interval)
        return {"right": self.right, "of": self.of, "accuracy": round(self.value, 4), "low": low, "high": high}


def judge_labels(pairs: list[Pair], probabilities: np.ndarray) -> dict[str, object]:
    """Accuracy of the most probable label, in all and by kind, beside that of always naming the commonest one."""
    truth = np.array([LABELS.index(pair.label) for pair in pairs])
    right = probabilities.argmax(1) == truth
    return {**_accuracies(pairs, right), "commonest_label": round(float(np.bincount(truth).max() / len(truth)), 4)}


def judge_similarities(pairs: list[Pair], similarities: np.ndarray) -> dict[str, object]:
    """Rank correlation and mean error, and how often same and different meaning fall on their sides of 0.7."""
    targets = np.array([pair.similarity for pair in pairs])
    clear = (targets >= SAME) | (targets <= DIFFERENT)
    right = (similarities >= THRESHOLD) == (targets >= SAME)
    clear_pairs = [pair for pair, keep in zip(pairs, clear, strict=True) if keep]
    share_same = float((targets[clear] >= SAME).mean())
    return {
        **_accuracies(clear_pairs, right[clear]),
        "commonest_label": round(max(share_same, 1 - share_same), 4),
        "spearman": round(float(spearmanr(similarities, targets).statistic), 4),
        "mean_error": round(float(np.abs(similarities - targets).mean()), 4),
        "mean_error_of_best_constant": round(float(np.abs(targets - np.median(targets)).mean()), 4),
        "mean_similarity": {
            kind: round(float(similarities[[pair.kind == kind for pair in pairs]].mean()), 3)
            for kind in sorted({pair.kind for pair in pairs})
        },
    }


def _accuracies(pairs: list[Pair], right: np.ndarray) -> dict[str, object]:
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for pair, ok in zip(pairs, right.tolist(), strict=True):
        by_kind[pair.kind].append(ok)
    kinds = {kind: Share(sum(oks), len(oks)).record() for kind, oks in sorted(by_kind.items())}
    return {"all": Share(int(right.sum()), len(right)).record(), "kinds": kinds}


def write_pairs(pairs: dict[str, list[Pair]], path: Path) -> None:
    """Write named lists of pairs as gzipped JSON lines, the same bytes for the same pairs."""
    rows = [{"names": names, **asdict(pair)} for names, chosen in pairs.items() for pair in chosen]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    with path.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
        file.write(text.encode("utf-8"))
