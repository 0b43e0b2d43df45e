"""A scored answer, the result of scoring: a frozen record, and its forms for files and frames."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from semtoken.choices import Distribution, Equality, PartKind
from semtoken.core.parts import Finder, Part, parts_of
from semtoken.core.parts.answers import marked_tokens
from semtoken.core.parts.finding import least_sure_field
from semtoken.core.parts.nested import nested
from semtoken.core.parts.newness import new_word_confidence
from semtoken.core.parts.part import confidence_text, level_of
from semtoken.core.results import cards
from semtoken.core.results.confidence import (
    RANKS,
    UNNAMED_PIECES,
    Confidence,
    confidence_of,
    confidence_of_field,
)
from semtoken.core.results.generation import HiddenState
from semtoken.core.results.on_demand import SignatureField, TokensField, TokensLater, without_question
from semtoken.core.scored_token import Alternative, Flag, MassShares, ScoredToken, TokenMark, share_confidence
from semtoken.errors import BudgetExceededError, InvalidInputError, MissingExtra
from semtoken.support.extras import require
from semtoken.support.files.strict_json import finite
from semtoken.support.html_elements import card, concatenate, element, note, table
from semtoken.support.inputs import listed, one_of, whole
from semtoken.support.questions import question_of
from semtoken.support.text import CUT_OFF, probability, shortened, with_bounds, with_noun

if TYPE_CHECKING:
    import pandas as pd


OF_PROSE = ("word", "phrase", "sentence", "reference", "identifier")
"""Kinds of parts whose confidence is that of their tokens only: how likely a value was to end there is not asked."""


@dataclass(frozen=True)
class Decision:
    """The decision whether to give an answer or to withhold it, with its reason and guarantee."""

    action: Literal["answer", "abstain"]
    """`answer` to give the answer, `abstain` to withhold it."""
    reason: str
    """The reason: `accepted`, `uncertain`, `empty`, or `no_threshold` where nothing can be guaranteed."""
    probability_correct: float | None
    """Calibrated probability of being right, in [0, 1]; None without a calibrator or for an empty answer."""
    guarantee: str
    """A sentence that holds of all answers accepted in this way, or the reason why nothing is guaranteed."""

    @property
    def accepted(self) -> bool:
        """True if the answer is given."""
        return self.action == "answer"


@dataclass(frozen=True, repr=False)
class ScoredAnswer:
    """An answer with its confidence, by Semantic Token Clustering (Cao et al., EACL 2026).

    `confidence` ranks answers. `sequence_uncertainty` is the published score S = 1 - prod_i p(the tokens that agree
    with token i), in [0, 1]: 0 is sure, higher is riskier; it is not a probability of being wrong. Probabilities are
    next-token probabilities at temperature 1 unless `distribution` says otherwise; logs are natural logs. The preset
    decides which tokens agree (docs/method.md).
    """

    text: str
    """The answer, special tokens left out."""
    tokens: tuple[ScoredToken, ...]
    """Its tokens in order, the terminator included."""
    log_confidence: float
    """Sum of the tokens' log agreeing probabilities, <= 0; -inf for an empty answer."""
    preset: str
    """`paper` or `default`; settings that were changed are in `signature`."""
    distribution: Distribution
    """The distribution that the probabilities come from. Published figures need `raw`."""
    neutral_only: bool
    """True if the answer is not blank and all its tokens are neutral under the rules, as function words may be. Under
    the preset `default` they do not count as certain then."""
    signature: str
    """The rules in one line, with the clusters if the rules read them, and whether the question was not known. Numbers
    of one model are comparable if their signatures are equal; those of two models are not, even then."""
    log_confidence_interval: tuple[float, float] | None = None
    """An interval around the exact `log_confidence`, where only the k best tokens of each step are known; else None."""
    flags: tuple[Flag, ...] = ()
    """Notes for a reader of the score: on doubts about its log-probabilities, and on tokens other than the chosen ones
    that it rests on."""
    proxy_for: str | None = None
    """Name of the model that answered, where the vocabulary or the clusters are those of another model with the same
    tokenizer; else None."""
    model: str | None = None
    """The model that answered, as its reply names it; None where no reply does."""
    truncated: bool | None = None
    """True if the answer was cut off by the token limit; None where that is not known."""
    probability_correct: float | None = None
    """Calibrated probability of being right, in [0, 1]; None without a calibrator and for an empty answer."""
    probability_correct_interval: tuple[float, float] | None = None
    """The probability with this answer counted as one more label, as wrong and as right; see
    `Calibrator.predict_proba_interval`."""
    decision: Decision | None = None
    """The decision whether to give the answer, with the guarantee; None without a threshold."""
    scores: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Name of each method that was asked for -> the answer's uncertainty by it; higher is riskier, in the method's own
    units."""
    score_bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    """Name of a method -> an interval around its exact score. Only scores that are not exact are here, since only the k
    best tokens of each step are known."""
    question: str | None = field(default=None, compare=False)
    """The question, None where it is not known. Words of it do not count as new in the answer."""
    state: HiddenState | None = field(default=None, compare=False)
    """The model's hidden state at the end of the answer, if it was asked for (`ScoredModel(..., states=True)`); else
    None."""

    def __repr__(self) -> str:
        score = f"confidence {with_bounds(self.confidence, self.confidence_interval, digits=2)}"
        facts = f"{len(self.tokens)} tokens, preset={self.preset!r}, distribution={self.distribution!r}"
        flags = f", flags: {', '.join(flag.code for flag in self.flags)}" if self.flags else ""
        probability_correct = (
            "" if self.probability_correct is None else f", probability_correct={self.probability_correct:.2f}"
        )
        decision = "" if self.decision is None else f", decision={self.decision.action!r}"
        return f"ScoredAnswer({shortened(self.text)!r}, {score}{probability_correct}{decision}, {facts}{flags})"

    def _repr_html_(self) -> str:
        phrases = self._phrases()
        doubtful = [part for part in phrases or () if level_of(part.confidence)]
        text = concatenate([cards.plain(self.text)]) if phrases is None else cards.mark_phrases(self.text, doubtful)
        notes = [f"{CUT_OFF.capitalize()}."] if self.truncated else []
        notes += [flag.message for flag in self.flags]
        guarantee = "" if self.decision is None else self.decision.guarantee
        lead, said = self.summary.split(": ", 1)
        return card(
            element("p", text, dir="auto", style="font-size:1.2em;margin:.2em 0;white-space:pre-wrap"),
            *cards.calibration_lines(
                self.probability_correct, self.probability_correct_interval, self._verdict, guarantee
            ),
            element("p", element("b", lead.capitalize()), f": {said}.", style="margin:.3em 0"),
            *([note(RANKS)] if self.probability_correct is None else []),
            *map(note, notes),
            *cards.rivals(self.tokens, doubtful),
            cards.token_rows(self.tokens),
        )

    def _phrases(self) -> list[Part] | None:
        """The phrases of the answer in order; None where the library that finds them is missing, or gives up."""
        try:
            return [part for part in self.parts(by="phrase") if part.end > part.start]
        except (MissingExtra, BudgetExceededError):
            return None

    @property
    def _verdict(self) -> str:
        """The verdict of the threshold in words; empty without one."""
        if self.decision is None:
            return ""
        return cards.ACCEPTED if self.decision.action == "answer" else cards.CHECK

    @property
    def _most_doubtful(self) -> str:
        """The phrase of least confidence, where that is doubtful."""
        phrases = [part for part in self._phrases() or () if level_of(part.confidence)]
        worst = min(phrases, key=lambda part: part.confidence or 0.0, default=None)
        return "" if worst is None else f"{worst.text} ({confidence_text(worst)})"

    def __getstate__(self) -> dict[str, Any]:
        # Tokens that are made later are held by closures, which cannot be pickled.
        return vars(self) | {"tokens": self.tokens}

    def with_fields(self, **changed: Any) -> ScoredAnswer:
        """A copy with some fields changed. Unlike `dataclasses.replace`, it does not make the records of tokens."""
        return replace(self, **{"tokens": vars(self)["tokens"], **changed})

    @property
    def rules(self) -> str:
        """The signature as far as it does not depend on whether the question is known."""
        return without_question(self.signature)

    @property
    def n_tokens(self) -> int:
        """The number of tokens of the answer."""
        tokens = vars(self)["tokens"]
        return tokens.n_tokens if isinstance(tokens, TokensLater) else len(tokens)

    @cached_property
    def marks(self) -> Sequence[TokenMark | ScoredToken]:
        """Place, log-probability and log agreeing probability of each token, at less cost than `tokens`."""
        tokens = vars(self)["tokens"]
        return tokens.marks() if isinstance(tokens, TokensLater) and tokens.marks is not None else self.tokens

    @cached_property
    def _confidence(self) -> Confidence:
        """The confidence with how it was found; the properties below show its fields one by one."""
        tokens = vars(self)["tokens"]
        if isinstance(tokens, TokensLater) and tokens.confidence is not None:
            return tokens.confidence
        # all JSON with fields ends so, and next to no other text: of that nothing is parsed
        if self.text.rstrip().endswith(("}", "]")) and (field := least_sure_field(self)) is not None:
            return confidence_of_field(field)
        interval = self.log_confidence_interval
        found = confidence_of(
            self.text, lambda: self.marks, self.n_tokens, self.log_confidence, interval, self.question
        )
        # A piece without a name can be any letter, so where words begin is not known, and only the product is.
        if interval is not None and any(flag.code == UNNAMED_PIECES for flag in self.flags):
            return found.of_unknown_text(interval[0])
        return found

    @property
    def confidence(self) -> float:
        """The confidence of the model in its answer, in [0, 1]: rank answers by it, short and long ones together.

        Higher is surer; an empty answer has 0. It is not a probability of being right, which a calibrator gives, and
        not the complement of `sequence_uncertainty`, which is of the product over all tokens.
        """
        return self._confidence.value

    @property
    def confidence_interval(self) -> tuple[float, float]:
        """An interval (low, high) around the exact confidence; both ends are the confidence where it is exact."""
        return self._confidence.interval

    @property
    def explanation(self) -> str:
        """The meaning of the confidence, in one sentence for people."""
        return self._confidence.explanation

    @property
    def summary(self) -> str:
        """The confidence with its interval and what it is, as one line of text."""
        return self._confidence.summary

    @property
    def confidence_method(self) -> str:
        """The method of the confidence, a key of `semtoken.methods.METHODS`: `stc` or `new_phrases`."""
        return self._confidence.method

    def without_quotes(self) -> ScoredAnswer:
        """A copy whose explanation quotes nothing of the answer, for one that is held back."""
        copy = self.with_fields()
        # In the place where `cached_property` looks, so that the confidence is not computed from the text again.
        vars(copy)["_confidence"] = self._confidence.unquoted
        return copy

    @property
    def sequence_uncertainty(self) -> float:
        """S = 1 - product of the agreeing probabilities of all tokens, in [0, 1]; higher is riskier.

        It is next to 1 for nearly every long answer, however sure the model was: rank answers by `confidence`.
        """
        # `expm1` keeps the digits of a sure answer; adding 0.0 turns -0.0 into 0.0.
        return -math.expm1(self.log_confidence) + 0.0

    @property
    def sequence_uncertainty_interval(self) -> tuple[float, float]:
        """An interval (low, high) around the exact sequence uncertainty; (S, S) where S itself is exact."""
        low, high = self.log_confidence_interval or (self.log_confidence, self.log_confidence)
        # The ends change places, since the uncertainty falls where the product rises.
        return -math.expm1(high) + 0.0, -math.expm1(low) + 0.0

    @property
    def widest_steps(self) -> tuple[int, ...]:
        """Positions of the steps whose bounds differ, the widest on the log scale first; empty for an exact score."""
        bounds = [token.log_agreeing_bounds or (0.0, 0.0) for token in self.tokens]
        # Two ends of -inf are equal, and their difference would be NaN.
        ratios = [0.0 if high == low else high - low for low, high in bounds]
        return tuple(sorted((i for i, ratio in enumerate(ratios) if ratio), key=lambda i: (-ratios[i], i)))

    @property
    def empty(self) -> bool:
        """True if the text is blank; its sequence uncertainty is then 1 by definition."""
        return not self.text.strip()

    @property
    def token_ids(self) -> list[int]:
        """Ids of the tokens in the vocabulary, in order."""
        return [token.id for token in self.tokens]

    @property
    def log_probability(self) -> float:
        """Natural log of the probability of exactly these tokens, <= 0."""
        return math.fsum(token.log_probability for token in self.tokens)

    def uncertainty_under(self, equality: Equality) -> float:
        """1 - product of the tokens' probabilities under an equality, in [0, 1]; 1 for an empty answer.

        Under `meaning` this is the score of the preset `paper`, under `exact` 1 - the sequence probability.

        Raises
        ------
        InvalidInputError
            There is no such equality, or it is `meaning` and the answer was scored without clusters.
        """
        one_of("equality", equality, get_args(Equality))
        if self.empty:
            return 1.0
        return -math.expm1(math.fsum(token.log_probability_under(equality) for token in self.tokens)) + 0.0

    @property
    def equalities(self) -> tuple[Equality, ...]:
        """The equalities that `uncertainty_under` takes for this answer: `meaning` only if scored with clusters."""
        known = not any(token.log_meaning_probability is None for token in self.tokens)
        return ("meaning", "surface", "exact") if known else ("surface", "exact")

    @property
    def borrowed(self) -> MassShares:
        """The sources of 1 - `sequence_uncertainty`, the product over all tokens.

        They are the tokens' own probability, and three from which the rest came.
        """
        return share_confidence(self.tokens, math.exp(self.log_confidence))

    def span_uncertainty(self, start: int, end: int) -> float:
        """1 - product of the agreeing probabilities of the tokens that touch `text[start:end]`, in [0, 1].

        0 for a span that no token touches. It is not the paper's score, which takes the whole answer.
        `InvalidInputError` unless the ends are whole numbers with 0 <= start <= end.
        """
        start = whole(start, "start", low=0)
        end = whole(end, "end", low=start)
        touched = (t.log_agreeing_probability for t in self.tokens if t.start < end and t.end > start)
        return -math.expm1(math.fsum(touched)) + 0.0

    def parts(self, by: PartKind | Finder = "phrase", **options: Any) -> list[Part]:
        """Words, phrases, sentences, numbers, JSON fields and so on, each with its own confidence.

        Parameters
        ----------
        by : {"word", "phrase", "sentence", "number", "reference", "field", "identifier", "tool_call"} or a function
            What to look for. A function takes the text and gives `(start, end)` or `(start, end, label)` of each part.
        **options
            `equality`, `schema`, `keys`, `containers`, `language`, `calls`, `text`, `constrained`, `max_characters`,
            `max_seconds`, `max_parts`; see `semtoken.core.parts.parts_of`.

        Returns
        -------
        list of Part
            In the order of the text, missing fields last; with confidences in [0, 1], higher is surer, or None where
            nothing can be said.

        Raises
        ------
        InvalidInputError, MissingExtra, BudgetExceededError
            See `semtoken.core.parts.parts_of`.
        """
        tokens = vars(self)["tokens"]
        marked = isinstance(tokens, TokensLater) and tokens.by_spelling and tokens.marks is not None
        # Making all records takes far longer than finding words, and parts of prose read nothing but the marks.
        by_spelling = options.get("constrained") is None and options.get("equality") in (None, "surface")
        if marked and by in OF_PROSE and by_spelling:
            return parts_of(marked_tokens(self, self.marks), by, **options)
        return parts_of(self, by, **options)

    def field_confidences(self, schema: Mapping[str, Any] | None = None) -> Any:
        """The confidence of each JSON field in the shape of the JSON: `{"date": 0.06, "items": [{"total": 0.99}]}`.

        Values are confidences in [0, 1], as those of `parts("field")`, and None where nothing can be said. Code fences
        and text around the JSON are left out, and JSON that was cut off is read as far as it goes. With a JSON Schema,
        fields that it asks for and the answer lacks are None, too. None for an answer without JSON.

        Raises
        ------
        InvalidInputError, BudgetExceededError
            See `semtoken.core.parts.parts_of`.
        """
        known = {part.path: part.confidence for part in self.parts("field", schema=schema) if part.path is not None}
        return nested(self.text, known)

    def alternatives_at(self, places: Sequence[int]) -> Sequence[tuple[Alternative, ...]]:
        """The `alternatives` of the tokens at some places, counted from 0; it costs less than `tokens` for a few.

        `InvalidInputError` unless `places` is a list of places in the answer.
        """
        last = self.n_tokens - 1
        places = [whole(place, "places", low=0, high=last) for place in listed(places, "places")]
        tokens = vars(self)["tokens"]
        if isinstance(tokens, TokensLater) and tokens.alternatives is not None:
            return tokens.alternatives(places)
        return [self.tokens[place].alternatives for place in places]

    def new_word_confidence(self, question: str | Sequence[Mapping[str, Any]] | None = None) -> float | None:
        """The confidence of a typical word that this answer adds to the question, in [0, 1].

        Look at this number in answers of a sentence or more: there the product says little more than the length
        (docs/results.md). Higher is surer.

        Parameters
        ----------
        question
            What was asked, as a text or as messages, of which the last of a user is read: its words do not count. By
            default it is the answer's own `question`. Where none is known, all words but function words count.

        Returns
        -------
        float or None
            Geometric mean of the words' confidences, each the product over its tokens. None if the answer has no
            such word.
        """
        if question is None:
            question = self.question
        elif not isinstance(question, str):
            question = question_of(listed(question, "question"))
        return new_word_confidence(self.text, lambda: self.marks, question or "")

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain values. Logs of minus infinity become None, since JSON has no infinity.

        `probability_correct`, `probability_correct_interval` and `decision` are there if a calibrator or a threshold
        was used.
        """
        tokens = [
            asdict(token)
            | {
                "probability": token.probability,
                "agreeing_probability": token.agreeing_probability,
                "surface_probability": token.surface_probability,
                "meaning_probability": token.meaning_probability,
                "borrowed": asdict(token.borrowed),
            }
            for token in self.tokens
        ]
        summary = {
            "text": self.text,
            "confidence": self.confidence,
            "confidence_interval": list(self.confidence_interval),
            "explanation": self.explanation,
            "confidence_method": self.confidence_method,
            "scores": dict(self.scores),
            "score_bounds": {name: list(pair) for name, pair in self.score_bounds.items()},
            "sequence_uncertainty": self.sequence_uncertainty,
            "sequence_uncertainty_interval": list(self.sequence_uncertainty_interval),
            "uncertainty_under": {equality: self.uncertainty_under(equality) for equality in self.equalities},
            "borrowed": asdict(self.borrowed),
            "log_confidence": self.log_confidence,
            "log_confidence_interval": self.log_confidence_interval,
            "log_probability": self.log_probability,
            "neutral_only": self.neutral_only,
            "empty": self.empty,
            "truncated": self.truncated,
            "preset": self.preset,
            "distribution": self.distribution,
            "signature": self.signature,
            "question_known": self.question is not None,
            "proxy_for": self.proxy_for,
            "model": self.model,
            "flags": [asdict(flag) for flag in self.flags],
        }
        if self.probability_correct is not None or self.decision is not None:
            decision = None if self.decision is None else asdict(self.decision)
            summary |= {
                "probability_correct": self.probability_correct,
                "probability_correct_interval": self.probability_correct_interval,
                "decision": decision,
            }
        plain: dict[str, Any] = finite(summary | {"tokens": tokens})
        return plain

    def facts(self) -> dict[str, Any]:
        """The numbers of the answer and how they were found, one plain value each; logs may be infinite. What blocks,
        tables and journals say of an answer is taken from here.
        """
        (low, high), (least, most) = self.confidence_interval, self.sequence_uncertainty_interval
        log_low, log_high = self.log_confidence_interval or (self.log_confidence, self.log_confidence)
        return {
            "confidence": self.confidence,
            "confidence_lower": low,
            "confidence_upper": high,
            "explanation": self.explanation,
            "confidence_method": self.confidence_method,
            "sequence_uncertainty": self.sequence_uncertainty,
            "sequence_uncertainty_lower": least,
            "sequence_uncertainty_upper": most,
            "log_confidence": self.log_confidence,
            "log_confidence_lower": log_low,
            "log_confidence_upper": log_high,
            "method": "exact" if self.log_confidence_interval is None else "top-k",
            "preset": self.preset,
            "distribution": self.distribution,
            "signature": self.signature,
            "question_known": self.question is not None,
            "n_tokens": self.n_tokens,
            "truncated": self.truncated,
        }

    def to_summary(self) -> dict[str, Any]:
        """All but the tokens and the state as plain values, which may be infinite; `from_summary` reads them back."""
        # `asdict` would make and copy every token's record.
        bare = asdict(self.with_fields(tokens=(), state=None))
        return bare | {"tokens": self.n_tokens, "confidence": asdict(self._confidence)}

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any], why: str) -> ScoredAnswer:
        """Make the answer of a summary. Reading its tokens raises `InvalidInputError`, which says why there are
        none.
        """
        values = {name: _with_tuples(value) for name, value in summary.items()}
        return cls(
            **values
            | {
                "tokens": TokensLater.missing(values["tokens"], Confidence(**values.pop("confidence")), why),
                "flags": tuple(Flag(**flag) for flag in values["flags"]),
                "decision": None if values["decision"] is None else Decision(**values["decision"]),
            }
        )

    def without_tokens(self, why: str) -> ScoredAnswer:
        """A copy with the same numbers that takes little memory. Reading its tokens raises `InvalidInputError`:
        `why`.
        """
        return self.with_fields(tokens=TokensLater.missing(self.n_tokens, self._confidence, why), state=None)

    def to_json(self, **kwargs: Any) -> str:
        """`to_dict` as JSON. Keyword arguments go to `json.dumps`; `InvalidInputError` if it does not take them."""
        try:
            return json.dumps(self.to_dict(), **{"ensure_ascii": False, "allow_nan": False, **kwargs})
        except Exception as error:  # whatever it raises of an option that is none
            raise InvalidInputError(f"These options of `json.dumps` cannot be used: {error}.") from error

    def to_pandas(self) -> pd.DataFrame:
        """A table with a row for each token, whose columns are those of a token in `to_dict`.

        Raises
        ------
        MissingExtra
            pandas is not installed.
        """
        pandas = require("pandas", extra="frames")
        return pandas.DataFrame(self.to_dict()["tokens"])


# Set behind the class: in its body `dataclass` would take the descriptors for defaults of the fields.
ScoredAnswer.tokens = TokensField()  # type: ignore[assignment]
ScoredAnswer.signature = SignatureField()  # type: ignore[assignment]


class Answers(list[ScoredAnswer]):
    """A list of scored answers, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        calibrated = any(answer.probability_correct is not None or answer.decision is not None for answer in self)
        header = ["answer", "confidence", "most doubtful phrase", "probability of being right", "verdict"]
        rows = [
            (
                cards.plain(answer.text),
                with_bounds(answer.confidence, answer.confidence_interval, digits=2),
                answer._most_doubtful,
                "" if answer.probability_correct is None else probability(answer.probability_correct),
                answer._verdict,
            )
            for answer in self
        ]
        shown = len(header) if calibrated else 3
        title = with_noun(len(rows), "answer")
        listed = table(header[:shown], [row[:shown] for row in rows], numbers=[1, 3], title=title)
        return card(listed, *([] if calibrated else [note(RANKS)]))


def _with_tuples(value: Any) -> Any:
    """Nested values with tuples in place of lists, which JSON makes of them."""
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(_with_tuples(item) for item in value) if isinstance(value, list | tuple) else value
