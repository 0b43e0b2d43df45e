"""What scoring returns: frozen records of a scored answer and its tokens, and their forms for files and frames."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from semtoken.choices import Equality, PartKind
from semtoken.errors import InvalidInput
from semtoken.results.flags import Flag as Flag
from semtoken.support.extras import require
from semtoken.support.inputs import instance, listed, one_of
from semtoken.support.text import shortened

if TYPE_CHECKING:
    import pandas as pd

    from semtoken.parts import Finder, Part
    from semtoken.probing import Dispute
    from semtoken.stc import STC

Distribution = Literal["raw", "processed", "unknown"]
"""What was scored: the model's own distribution at temperature 1, one after penalties, masks or temperature, or
one of an engine that does not say."""
Source = Literal["cluster", "prefix", "neutral", "other"]
SLACK = 1e-6
"""An answer in progress exceeds a limit only this far above it: sums of its steps are rounded."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another token that was likely where one was chosen, counted as agreeing with it or not."""

    id: int
    """Token id."""
    text: str
    """Text of the token decoded alone."""
    probability: float
    """Its next-token probability, in [0, 1]."""
    source: Source
    """What it is to the chosen token: in the same cluster, spells the beginning of what follows, says nothing
    (neutral: function words, white space, special tokens), or none of these (other)."""
    counted: bool = True
    """Whether its probability is part of the chosen token's clustered probability."""


@dataclass(frozen=True)
class Running:
    """An answer in progress: what is known of its score after the tokens so far."""

    uncertainty: float
    """1 - product over the settled steps, in [0, 1]; where only the best tokens are known, of their mass alone."""
    uncertainty_bounds: tuple[float, float]
    """Around the uncertainty that the answer has if it ends here."""
    n_settled: int
    """Steps in a row, from the first, whose clustered probability no later token can change."""
    n_tokens: int
    """Tokens so far."""
    log_score_bounds: tuple[float, float]
    """The same bounds as log scores, for long answers: their uncertainty is 1 to all digits. The upper one never rises
    as the answer goes on."""

    def exceeds(self, limit: float) -> bool:
        """Whether the answer can only end above a limit.

        The lower bound of its uncertainty is never taken back, so no answer that would end at or below the limit is
        said to exceed it.

        Parameters
        ----------
        limit
            In units of -log_score, such as `Threshold.uncertainty`.
        """
        return -self.log_score_bounds[1] > limit + SLACK


@dataclass(frozen=True)
class Borrowed:
    """What a clustered probability or a confidence is made of: four probabilities whose sum it is.

    A token's clustered probability is such a sum as it stands. The confidence of an answer is a product; what it gains
    over the plain sequence probability is shared out by how much each source raises the logs of the steps.
    """

    own: float
    """Of the chosen tokens themselves."""
    cluster: float
    """Lent by other tokens of their clusters."""
    prefix: float
    """Lent by tokens that spell the beginning of what follows."""
    function_words: float
    """Lent by function words, white space and special tokens; all that a token lacks which counts as certain."""


@dataclass(frozen=True)
class ValueEnds:
    """How probable it was that a value which comes before a token ends there, in [0, 1]: lower and upper bound.

    Both are the same where all tokens were known. None where no such value can end.
    """

    number: tuple[float, float] | None = None
    """Of a number in JSON: no digit and none of . e E + - follows."""
    digits: tuple[float, float] | None = None
    """Of a number in prose: no digit follows."""
    quote: tuple[float, float] | None = None
    """Of a string: a quotation mark follows."""
    array: tuple[float, float] | None = None
    """Of an array: a bracket follows, not a comma."""


@dataclass(frozen=True, repr=False, slots=True)
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
    """Natural log of the probability mass that the rules count as agreeing with it, <= 0; 0 for a neutral token."""
    log_surface_probability: float
    """The same under the equality `surface`: tokens of the same spelling up to case and blanks, and those that spell
    the beginning of the word (from two characters on, unless one character is all of this token)."""
    log_meaning_probability: float
    """The same under the paper's rules: its cluster, the beginnings of what follows, and function words."""
    neutral: bool
    """Counted as certain since it is a function word, white space or a special token."""
    cluster_probability: float
    """Mass of the token and of those of its cluster that count, in [0, 1]."""
    prefix_probability: float
    """Further mass of tokens that spell the beginning of what follows."""
    neutral_probability: float
    """Further mass of neutral tokens."""
    alternatives: tuple[Alternative, ...]
    """Up to eight other tokens of at least 1 %, counted or not, most probable first."""
    value_ends: ValueEnds | None = None
    """Where a number, a string or an array comes before: how probable it was that it ends here."""
    log_clustered_bounds: tuple[float, float] | None = None
    """Where only the k best tokens of the step are known: an interval around the exact `log_clustered_probability`."""
    log_surface_bounds: tuple[float, float] | None = None
    """The same around the exact `log_surface_probability`."""
    log_meaning_bounds: tuple[float, float] | None = None
    """The same around the exact `log_meaning_probability`."""
    ambiguous_probability: float = 0.0
    """Mass of listed tokens whose names fit tokens inside and outside the consistent set: in the upper bound only."""
    unmapped_probability: float = 0.0
    """Mass of listed tokens whose names fit no token of the vocabulary: in the upper bound only."""
    function_word: bool = False
    """A function word, white space or a special token, which the paper's rules call certain wherever it stands."""

    def __repr__(self) -> str:
        counted = "neutral" if self.neutral else f"counted={self.clustered_probability:.4g}"
        return f"ScoredToken({self.text!r}, probability={self.probability:.4g}, {counted})"

    @property
    def probability(self) -> float:
        """Next-token probability of the token, in [0, 1]."""
        return math.exp(self.log_probability)

    @property
    def clustered_probability(self) -> float:
        """Probability mass consistent with the token, in [0, 1]."""
        return math.exp(self.log_clustered_probability)

    @property
    def surface_probability(self) -> float:
        """Probability mass of the same spelling, in [0, 1]."""
        return math.exp(self.log_surface_probability)

    @property
    def meaning_probability(self) -> float:
        """Probability mass that agrees under the paper's rules, in [0, 1]."""
        return math.exp(self.log_meaning_probability)

    def log_probability_under(self, equality: Equality) -> float:
        """Natural log of the probability mass that agrees under an equality, <= 0."""
        match equality:
            case "exact":
                return self.log_probability
            case "surface":
                return self.log_surface_probability
            case "meaning":
                return self.log_meaning_probability
        raise InvalidInput(f"equality must be 'meaning', 'surface' or 'exact'. Got {equality!r} instead.")

    @property
    def borrowed(self) -> Borrowed:
        """How much of the clustered probability is the token's own, and what the rest came from."""
        own = self.probability
        if self.neutral:
            return Borrowed(own, 0.0, 0.0, 1.0 - own)
        cluster = max(self.cluster_probability - own, 0.0)
        return Borrowed(own, cluster, self.prefix_probability, self.neutral_probability)

    @property
    def clustered_bounds(self) -> tuple[float, float]:
        """An interval that contains the exact `clustered_probability`; a point where that itself is exact."""
        low, high = self.log_clustered_bounds or (self.log_clustered_probability, self.log_clustered_probability)
        return math.exp(low), math.exp(high)


@dataclass(frozen=True)
class TokensLater:
    """The tokens of an answer whose records are made when somebody asks for them."""

    n_tokens: int
    make: Callable[[], tuple[ScoredToken, ...]]


class _Tokens:
    """The field `tokens` of a scored answer, which may be made with `TokensLater` instead."""

    def __get__(self, response: ScoredResponse, owner: type | None = None) -> tuple[ScoredToken, ...]:
        found: tuple[ScoredToken, ...] | TokensLater = vars(response)["tokens"]
        if isinstance(found, TokensLater):
            found = found.make()
            vars(response)["tokens"] = found
        return found

    def __set__(self, response: ScoredResponse, tokens: tuple[ScoredToken, ...] | TokensLater) -> None:
        vars(response)["tokens"] = tokens


@dataclass(frozen=True)
class Decision:
    """What to do with one answer."""

    action: Literal["answer", "abstain"]
    """Give the answer, or do not."""
    reason: str
    """`accepted`, `uncertain`, `empty`, or `no_threshold` where nothing can be promised."""
    chance: float | None
    """Calibrated probability of being right, in [0, 1]; None without a calibrator or for a blank answer."""
    statement: str
    """The promise in one sentence."""


@dataclass(frozen=True, repr=False)
class ScoredResponse:
    """An answer with its uncertainty, by Semantic Token Clustering (Cao et al., EACL 2026).

    `uncertainty` is S = 1 - prod_i p(the tokens that agree with token i), in [0, 1]: 0 is sure, higher is riskier. It
    ranks answers and is not a chance of being wrong. Probabilities are next-token probabilities at temperature 1 unless
    `distribution` says otherwise; logs are natural logs. The preset decides which tokens agree (docs/method.md).
    """

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
    log_score_bounds: tuple[float, float] | None = None
    """An interval around the exact `log_score`, where only the k best tokens of each step are known; else None."""
    flags: tuple[Flag, ...] = ()
    """What a reader of the score should know: about its log-probabilities, and where borrowed mass decides."""
    proxy_for: str | None = None
    """The model that answered, where the clusters are those of another model with the same tokenizer."""
    truncated: bool | None = None
    """The answer was cut off by the token limit; None where that is not known."""
    chance: float | None = None
    """Calibrated probability of being right, in [0, 1]; None without a calibrator and for a blank answer."""
    chance_bounds: tuple[float, float] | None = None
    """What the chance would be with one more label like this answer, wrong or right; see `Calibrator.chance_bounds`."""
    decision: Decision | None = None
    """Whether to give the answer, with the promise; None without a threshold."""

    def __repr__(self) -> str:
        low, high = self.uncertainty_bounds
        bounds = "" if low == high else f" ({low:.4g} to {high:.4g})"
        score = f"uncertainty={self.uncertainty:.4g}{bounds}"
        facts = f"{len(self.tokens)} tokens, preset={self.preset!r}, distribution={self.distribution!r}"
        flags = f", flags: {', '.join(flag.code for flag in self.flags)}" if self.flags else ""
        chance = "" if self.chance is None else f", chance={self.chance:.2f}"
        decision = "" if self.decision is None else f", decision={self.decision.action!r}"
        return f"ScoredResponse({shortened(self.text)!r}, {score}{chance}{decision}, {facts}{flags})"

    def _repr_html_(self) -> str:
        from semtoken.display.answer_cards import answer_card

        return answer_card(self)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"tokens": self.tokens}

    @property
    def n_tokens(self) -> int:
        """How many tokens it has."""
        found = vars(self)["tokens"]
        return found.n_tokens if isinstance(found, TokensLater) else len(found)

    @property
    def uncertainty(self) -> float:
        """S = 1 - product of the clustered probabilities, in [0, 1]; higher is riskier."""
        return -math.expm1(self.log_score) + 0.0

    @property
    def confidence(self) -> float:
        """1 - uncertainty."""
        return math.exp(self.log_score)

    @property
    def uncertainty_bounds(self) -> tuple[float, float]:
        """An interval that contains the exact uncertainty; (S, S) where S itself is exact."""
        low, high = self.log_score_bounds or (self.log_score, self.log_score)
        return -math.expm1(high) + 0.0, -math.expm1(low) + 0.0

    @property
    def uncertainty_width(self) -> float:
        """Width of `uncertainty_bounds`, in [0, 1]."""
        low, high = self.uncertainty_bounds
        return high - low

    @property
    def widest_steps(self) -> tuple[int, ...]:
        """The steps that cause the width, the one that causes most of it first; none where the score is exact."""
        bounds = [token.log_clustered_bounds or (0.0, 0.0) for token in self.tokens]
        ratios = [0.0 if high == low else high - low for low, high in bounds]
        return tuple(sorted((i for i, ratio in enumerate(ratios) if ratio), key=lambda i: (-ratios[i], i)))

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

    def uncertainty_under(self, equality: Equality) -> float:
        """1 - product of the tokens' probabilities under an equality, in [0, 1]; 1 for an empty answer.

        Under `meaning` this is the score of the preset `paper`, under `exact` 1 - the sequence probability.
        """
        one_of("equality", equality, get_args(Equality))
        if self.empty:
            return 1.0
        return -math.expm1(math.fsum(token.log_probability_under(equality) for token in self.tokens)) + 0.0

    @property
    def borrowed(self) -> Borrowed:
        """How much of the confidence is the tokens' own probability, and what the rest came from."""
        return _shared_out(self.tokens, self.confidence)

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

    def parts(self, by: PartKind | Finder = "phrase", **options: Any) -> list[Part]:
        """Words, phrases, sentences, numbers, JSON fields and so on, each with its own confidence.

        Parameters
        ----------
        by : {"word", "phrase", "sentence", "number", "reference", "field", "identifier", "tool_call"} or a function
            What to look for. A function takes the text and gives `(start, end)` or `(start, end, label)` of each part.
        **options
            `equality`, `schema`, `keys`, `containers`, `language`, `calls`, `text`, `constrained`; see
            `semtoken.parts.parts_of`.
        """
        from semtoken.parts import parts_of

        return parts_of(self, by, **options)

    def new_word_confidence(self, question: str = "") -> float | None:
        """How sure the model was of a typical word that this answer adds to the question, in [0, 1].

        Look at this number in answers of a sentence or more: there the product says little more than the length
        (docs/results.md). Higher is surer.

        Parameters
        ----------
        question
            What was asked: its words do not count. Without it all words but function words count.

        Returns
        -------
        float or None
            Geometric mean of the words' confidences, each the product over its tokens. None if the answer has no
            such word.
        """
        from semtoken.parts.new_words import new_word_confidence

        return new_word_confidence(self, question)

    def disputed(self, stc: STC, prompt: Any, **options: Any) -> list[Dispute]:
        """Where the model could have said something else, the greatest disagreement first; see `semtoken.probing`.

        Parameters
        ----------
        stc
            The `STC` that gave this answer: it is asked to go on in other ways.
        prompt
            What it was asked.
        **options
            `n`, `max_steps`, `doubtful`, `branch_tokens`; see `semtoken.probing.disputed`.
        """
        return stc.disputed(prompt, self, **options)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only. Logs that are minus infinity become None, as JSON has no infinity.

        `chance`, `chance_bounds` and `decision` are there if a calibrator or a threshold was used.
        """
        tokens = [
            asdict(token)
            | {
                "probability": token.probability,
                "clustered_probability": token.clustered_probability,
                "surface_probability": token.surface_probability,
                "meaning_probability": token.meaning_probability,
                "borrowed": asdict(token.borrowed),
            }
            for token in self.tokens
        ]
        summary = {
            "text": self.text,
            "uncertainty": self.uncertainty,
            "uncertainty_bounds": list(self.uncertainty_bounds),
            "confidence": self.confidence,
            "uncertainty_under": {equality: self.uncertainty_under(equality) for equality in get_args(Equality)},
            "borrowed": asdict(self.borrowed),
            "log_score": self.log_score,
            "log_score_bounds": self.log_score_bounds,
            "log_probability": self.log_probability,
            "length_normalized_uncertainty": self.length_normalized_uncertainty,
            "neutral_only": self.neutral_only,
            "empty": self.empty,
            "truncated": self.truncated,
            "preset": self.preset,
            "distribution": self.distribution,
            "signature": self.signature,
            "proxy_for": self.proxy_for,
            "flags": [asdict(flag) for flag in self.flags],
        }
        if self.chance is not None or self.decision is not None:
            decision = None if self.decision is None else asdict(self.decision)
            summary |= {"chance": self.chance, "chance_bounds": self.chance_bounds, "decision": decision}
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


ScoredResponse.tokens = _Tokens()  # type: ignore[assignment]


class Answers(list[ScoredResponse]):
    """A list of scored answers, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        from semtoken.display.answer_cards import answers_table

        return answers_table(self)


def _shared_out(tokens: Sequence[ScoredToken], confidence: float) -> Borrowed:
    """The parts of a confidence: each step's gain in logs, shared among its sources by their mass."""
    own = min(math.exp(math.fsum(token.log_probability for token in tokens)), confidence)
    gains = [0.0, 0.0, 0.0]
    for token in tokens:
        parts = token.borrowed
        lent = (parts.cluster, parts.prefix, parts.function_words)
        total = math.fsum(lent)
        if total <= 0:
            continue
        gain = math.log1p(total / max(parts.own, sys.float_info.min))
        gains = [so_far + gain * part / total for so_far, part in zip(gains, lent, strict=True)]
    total = math.fsum(gains)
    shares = [gain / total * (confidence - own) if total else 0.0 for gain in gains]
    return Borrowed(own, *shares)


def to_frame(responses: list[ScoredResponse]) -> pd.DataFrame:
    """One row per answer: everything but the tokens; bounds in two columns, flags by their codes.

    Raises
    ------
    MissingExtra
        pandas is not installed.
    """
    pandas = require("pandas", extra="frames")
    answers = [instance(one, ScoredResponse, "responses") for one in listed(responses, "responses")]
    return pandas.DataFrame([_flat(answer) for answer in answers])


def _flat(response: ScoredResponse) -> dict[str, Any]:
    row = {name: value for name, value in response.to_dict().items() if not name.endswith(("tokens", "_bounds"))}
    low, high = response.uncertainty_bounds
    flags = ",".join(flag.code for flag in response.flags)
    under, borrowed = row.pop("uncertainty_under"), row.pop("borrowed")
    row |= {f"uncertainty_{equality}": value for equality, value in under.items()}
    if row.get("decision") is not None:
        row["decision"] = row["decision"]["action"]
    row |= {f"borrowed_{source}": value for source, value in borrowed.items()}
    return row | {"uncertainty_low": low, "uncertainty_high": high, "flags": flags}


def _without_infinity(value: Any) -> Any:
    if isinstance(value, float):
        return None if math.isinf(value) else value
    if isinstance(value, dict):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(item) for item in value]
    return value
