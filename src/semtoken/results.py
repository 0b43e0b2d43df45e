"""What scoring returns: frozen records of a scored answer and its tokens, and their forms for files and frames."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from semtoken._extras import require

if TYPE_CHECKING:
    import pandas as pd

Distribution = Literal["raw", "processed", "unknown"]
"""What was scored: the model's own distribution at temperature 1, one after penalties, masks or temperature, or
one of an engine that does not say."""
Source = Literal["cluster", "prefix", "neutral"]


@dataclass(frozen=True)
class Alternative:
    """A token whose probability was counted as consistent with the chosen one."""

    id: int
    """Token id."""
    text: str
    """Text of the token decoded alone."""
    probability: float
    """Its next-token probability, in [0, 1]."""
    source: Source
    """Why it counts: same cluster, spells the beginning of what follows, or says nothing (neutral)."""


@dataclass(frozen=True)
class ScoredToken:
    """One token of an answer."""

    id: int
    """Token id."""
    text: str
    """Text of the token decoded alone."""
    start: int
    """First character of the token in the answer's text."""
    end: int
    """One past its last character; tokens that share a character share its range."""
    log_probability: float
    """Natural log of its next-token probability, <= 0."""
    log_clustered_probability: float
    """Natural log of the probability mass consistent with it, <= 0; 0 for a neutral token."""
    neutral: bool
    """Counted as certain since it is a function word, white space or a special token."""
    cluster_probability: float
    """Mass of the token and its cluster, in [0, 1]."""
    prefix_probability: float
    """Further mass of tokens that spell the beginning of what follows."""
    neutral_probability: float
    """Further mass of neutral tokens."""
    alternatives: tuple[Alternative, ...]
    """The strongest other tokens that count as consistent, most probable first."""

    @property
    def probability(self) -> float:
        """Next-token probability of the token, in [0, 1]."""
        return math.exp(self.log_probability)

    @property
    def clustered_probability(self) -> float:
        """Probability mass consistent with the token, in [0, 1]."""
        return math.exp(self.log_clustered_probability)


@dataclass(frozen=True)
class ScoredResponse:
    """An answer with its uncertainty by Semantic Token Clustering (Cao et al., EACL 2026)."""

    text: str
    """The answer, special tokens left out."""
    tokens: tuple[ScoredToken, ...]
    """Its tokens in order, the terminator included."""
    log_score: float
    """Sum of the tokens' log clustered probabilities, <= 0; -inf for an empty answer."""
    preset: str
    """`paper` or `default`; settings that were changed are in `signature`."""
    distribution: Distribution
    """Which distribution the probabilities come from. Published figures need `raw`."""
    neutral_only: bool
    """The answer holds no content token. Under `default`, neutrality was then not applied to it."""
    signature: str
    """Clusters and settings in one line; equal signatures mean comparable numbers."""

    @property
    def uncertainty(self) -> float:
        """S = 1 - product of the clustered probabilities, in [0, 1]; higher is riskier."""
        return -math.expm1(self.log_score) + 0.0

    @property
    def confidence(self) -> float:
        """1 - uncertainty."""
        return math.exp(self.log_score)

    @property
    def empty(self) -> bool:
        """The text is blank: uncertainty 1 by definition."""
        return not self.text.strip()

    @property
    def token_ids(self) -> list[int]:
        """Ids of the tokens."""
        return [token.id for token in self.tokens]

    @property
    def log_probability(self) -> float:
        """Log of the plain sequence probability, <= 0."""
        return math.fsum(token.log_probability for token in self.tokens)

    @property
    def length_normalized_uncertainty(self) -> float:
        """1 - geometric mean of the clustered probabilities, in [0, 1]. Not the paper's score."""
        return -math.expm1(self.log_score / max(len(self.tokens), 1)) + 0.0

    def span_uncertainty(self, start: int, end: int) -> float:
        """1 - product of the clustered probabilities of the tokens that touch characters start..end of `text`.

        0 for a span that no token touches. Not the paper's score, which takes the whole answer.
        """
        touched = (t.log_clustered_probability for t in self.tokens if t.start < end and t.end > start)
        return -math.expm1(math.fsum(touched)) + 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values only. Logs that are minus infinity become None, as JSON has no infinity."""
        tokens = [
            asdict(token) | {"probability": token.probability, "clustered_probability": token.clustered_probability}
            for token in self.tokens
        ]
        summary = {
            "text": self.text,
            "uncertainty": self.uncertainty,
            "confidence": self.confidence,
            "log_score": self.log_score,
            "log_probability": self.log_probability,
            "length_normalized_uncertainty": self.length_normalized_uncertainty,
            "neutral_only": self.neutral_only,
            "empty": self.empty,
            "preset": self.preset,
            "distribution": self.distribution,
            "signature": self.signature,
        }
        finite: dict[str, Any] = _without_infinity(summary | {"tokens": tokens})
        return finite

    def to_json(self, **kwargs: Any) -> str:
        """`to_dict` as JSON; keyword arguments go to `json.dumps`."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, **kwargs)

    def to_pandas(self) -> pd.DataFrame:
        """One row per token.

        Raises
        ------
        MissingExtra
            pandas is not installed.
        """
        pandas = require("pandas", extra="frames")
        return pandas.DataFrame(self.to_dict()["tokens"])


def to_frame(responses: list[ScoredResponse]) -> pd.DataFrame:
    """One row per answer: everything but the tokens.

    Raises
    ------
    MissingExtra
        pandas is not installed.
    """
    pandas = require("pandas", extra="frames")
    rows = [response.to_dict() for response in responses]
    return pandas.DataFrame([{k: v for k, v in row.items() if k != "tokens"} for row in rows])


def _without_infinity(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isinf(value) else value
    if isinstance(value, dict):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(item) for item in value]
    return value
