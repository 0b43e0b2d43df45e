"""The plain records of this package: a part as a finder finds it, and as a user gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from semtoken.core.scored_token import Flag
from semtoken.support.html_elements import card, element, note, table
from semtoken.support.text import number, shortened, with_bounds, with_noun

PartEquality = Literal["exact", "surface", "meaning", "mixed"]
"""The tokens that count as the same: itself only; any token of the same spelling up to case and spaces; any token that
means the same by the paper's rules. `mixed`: digits exactly, the other tokens of the part by their spelling."""
Aggregate = Literal["product", "weakest"]
Ending = Literal["number", "digits", "quote", "array", "literal"]
"""The kind of a value that ends: a JSON number, a number in prose, a JSON string or a JSON array (these are the fields
of `ValueEnds`), or a `literal`, which is true, false or null and has no recorded probability of its end."""

WEAK, SOME_DOUBT = 0.5, 0.85
"""Parts of less confidence than the first are marked as weak, others of less than the second as of some doubt."""


@dataclass(frozen=True)
class FoundPart:
    """A stretch of an answer that a finder found, before it has a confidence."""

    start: int
    end: int
    kind: str
    """`word`, `sentence`, `number`, `string` and so on."""
    equality: PartEquality
    aggregate: Aggregate = "product"
    path: str | None = None
    value: Any = None
    ending: Ending | None = None
    """The kind of value that ends here, if the probability that it does is to be looked up; else None."""
    closing_in_confidence: bool = False
    """True if the probability that it ends here is a factor of its confidence."""
    members: tuple[tuple[int, int], ...] | None = None
    """The ranges whose tokens make up an object or an array, where syntax is left out."""
    call: int | None = None
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, repr=False)
class Part:
    """A part of an answer with its confidence."""

    start: int
    """First character in the answer's text."""
    end: int
    """One past its last character."""
    text: str
    """The part as written."""
    kind: str
    """`word`, `phrase`, `sentence`, `number`, `date`, `string`, `boolean`, `identifier` and so on."""
    path: str | None
    """JSON Pointer (RFC 6901) of a field, such as `/items/0/price`; None for parts that are no fields."""
    confidence: float | None
    """The aggregate that is the default for this kind, in [0, 1]; for figures `closing` counts, too. None where nothing
    can be said: `flags` say why, or `present` is false."""
    aggregate: Aggregate = "product"
    """The aggregate that is the confidence, `product` or `weakest`."""
    product: float | None = None
    """Product over its tokens, without `closing`: the probability of the whole part."""
    weakest: float | None = None
    """Probability of its least certain token, in [0, 1]; it does not fall with the length of the part."""
    weakest_token: int | None = None
    """Index of that token in the answer's tokens; None where there is none."""
    mean: float | None = None
    """Geometric mean over its tokens, in [0, 1]."""
    closing: float | None = None
    """Probability that the value ends where it ends. None where that is not known: the text was cut off, or the
    token that ends the value also spells its end."""
    closing_token: int | None = None
    """Index of the token after the value, at which it is seen whether the value ends; None where there is none."""
    equality: PartEquality = "exact"
    """The equality under which tokens counted as the same."""
    tokens: tuple[int, ...] = ()
    """Indexes of its tokens in the answer's tokens, forced ones included."""
    neutral_share: float = 0.0
    """Share of its tokens that counted as certain since they are function words, in [0, 1]."""
    bounds: tuple[float, float] | None = None
    """An interval (low, high) around `confidence`, with equal ends where that is exact; None without a confidence."""
    flags: tuple[Flag, ...] = ()
    """Notes for a reader of the confidence."""
    value: Any = field(default=None, hash=False)
    """The decoded value of a JSON field."""
    present: bool = True
    """False for a field that the schema asks for and the object lacks; its confidence is None."""
    complete: bool = True
    """False for the fields of an object that was cut off."""
    forced: int = 0
    """The number of its tokens for which a grammar left no choice; they are left out of the aggregates."""
    call: int | None = None
    """The number of the tool call that it belongs to, from 0."""
    negation: tuple[tuple[str, float], ...] = ()
    """Words of a sentence that turn it round ("not"), each with its own probability. As function words they may count
    as certain in the confidence."""
    choices: Mapping[str, float] | None = field(default=None, hash=False)
    """Probability of each allowed value of an enum or a boolean, normalized over them (`semtoken.models.probing`)."""
    option_mass: float | None = None
    """The total of `choices` before normalizing, in [0, 1]: small where the model wanted to write something else."""

    def __repr__(self) -> str:
        where = "" if self.path is None else f"path={self.path!r}, "
        confidence = "unknown" if self.confidence is None else f"{self.confidence:.4g}"
        flags = f", flags: {', '.join(flag.code for flag in self.flags)}" if self.flags else ""
        what = f"kind={self.kind!r}, equality={self.equality!r}"
        return f"Part({where}{shortened(self.text)!r}, confidence={confidence}, {what}{flags})"

    def _repr_html_(self) -> str:
        facts = [_what(self), f"counted by {self.equality}"]
        if self.closing is not None:
            facts.append(f"ends here with probability {number(self.closing)}")
        return card(
            element("p", _text(self), dir="auto", style="font-size:1.2em;margin:.2em 0;white-space:pre-wrap"),
            element("p", element("b", f"Confidence {confidence_text(self)}"), style="margin:.3em 0"),
            note(" · ".join(facts)),
            *(note(flag.message) for flag in self.flags),
        )

    @property
    def uncertainty(self) -> float | None:
        """The uncertainty, 1 - confidence; None where that is unknown."""
        return None if self.confidence is None else 1.0 - self.confidence

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, such as JSON can hold: a half character becomes a question mark."""
        return vars(self) | {
            "path": _whole_characters(self.path),
            "value": _whole_characters(self.value),
            "flags": tuple(asdict(flag) for flag in self.flags),
            "choices": None if self.choices is None else dict(self.choices),
        }

    def has(self, code: str) -> bool:
        """Return True if the part has a flag with this code."""
        return any(flag.code == code for flag in self.flags)


class Parts(list[Part]):
    """A list of parts, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [
            (
                _text(part),
                _what(part),
                element("b", confidence_text(part)) if level_of(part.confidence) else confidence_text(part),
                "" if part.closing is None else number(part.closing),
                ", ".join(flag.code for flag in part.flags),
            )
            for part in self
        ]
        header = ["text", "what", "confidence", "ends here", "notes"]
        return card(table(header, rows, numbers=[2, 3], title=with_noun(len(rows), "part")))


def _whole_characters(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def confidence_text(part: Part) -> str:
    """The confidence of a part as text, with bounds where it is not known exactly."""
    if part.confidence is None:
        return "unknown"
    return with_bounds(part.confidence, part.bounds or (part.confidence, part.confidence))


def level_of(confidence: float | None) -> Literal["", "weak", "some doubt"]:
    """The level of doubt of a confidence: `weak`, `some doubt`, or empty. The web page uses the same levels."""
    if confidence is None or confidence >= SOME_DOUBT:
        return ""
    return "weak" if confidence < WEAK else "some doubt"


def _text(part: Part) -> str:
    return part.text if part.present else "(missing)"


def _what(part: Part) -> str:
    """The kind of a part; of a field, where it stands."""
    return part.kind if part.path is None else part.path or "(whole)"
