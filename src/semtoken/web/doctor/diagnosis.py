"""What an examination of an endpoint found: plain records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from semtoken.results import Distribution

Level = Literal["good", "note", "bad"]
Ids = Literal["always", "on request"]


@dataclass(frozen=True)
class Tried:
    """A number of log-probabilities a token that was asked for."""

    asked: int
    """-1: all of them."""
    given: int | None
    """The most that a token came with; None: refused."""
    reason: str | None = None
    """Why it was refused, as the server gave it, or why its reply could not be read."""


@dataclass(frozen=True)
class Page:
    """One of the ways to ask a server."""

    name: str
    """"chat", "completions", "responses", "generate" or "completion"."""
    path: str
    answers: bool
    reason: str | None = None
    """Why it does not."""
    format: str | None = None
    """Shape of its replies, as `semtoken.payloads` names it."""
    tried: tuple[Tried, ...] = ()

    @property
    def most(self) -> int:
        """The most log-probabilities a token that came; 0 for none but the chosen token's, or none at all."""
        return max((one.given or 0 for one in self.tried), default=0)

    @property
    def silent(self) -> bool:
        """It took a request for log-probabilities and left them out."""
        return any(one.asked and one.given == 0 for one in self.tried) and not self.most


@dataclass(frozen=True)
class TokenNaming:
    """How tokens are named."""

    bytes: bool
    """Their bytes are given."""
    ids: Ids | None
    """Their ids are given, without asking or on request."""
    id_fields: tuple[str, ...] = ()
    """The fields that ask for them."""


@dataclass(frozen=True)
class Streaming:
    """What streams bring, and when."""

    streams: bool
    log_probs: bool = False
    complete: bool = False
    """As many steps as the same reply unstreamed."""
    reason: str | None = None


@dataclass(frozen=True)
class Tokenizer:
    """How the tokens of the replies compare with a vocabulary."""

    fits: bool
    enough: bool
    """Tokens enough were seen to call it the same tokenizer."""
    n_tokens: int
    """How many distinct tokens were seen."""
    misfits: tuple[str, ...]
    """Some that the vocabulary lacks."""


@dataclass(frozen=True)
class Trial:
    """A prompt that was answered and scored."""

    prompt: str
    text: str | None = None
    uncertainty: float | None = None
    bounds: tuple[float, float] | None = None
    n_tokens: int | None = None
    reason: str | None = None
    """Why there is no score."""

    @property
    def width(self) -> float | None:
        """Width of the interval, in [0, 1]."""
        return None if self.bounds is None else self.bounds[1] - self.bounds[0]


@dataclass(frozen=True)
class Finding:
    """What follows for semtoken."""

    level: Level
    text: str


@dataclass(frozen=True)
class Diagnosis:
    """Everything that was found out about an endpoint."""

    base_url: str
    model: str
    models: tuple[str, ...]
    """Those that the server lists."""
    pages: tuple[Page, ...]
    best: str | None
    """Name of the page that serves semtoken best, None if none does."""
    tokens: TokenNaming | None
    only_zeros: bool
    """Every token of an answer is said to be certain."""
    distribution: Distribution
    distribution_reason: str
    streaming: Streaming | None
    prompt_log_probs: tuple[str, ...]
    """Fields that bring the log-probabilities of a prompt."""
    tokenizer: Tokenizer | None
    """None if neither clusters nor a tokenizer were given, or nothing could be compared."""
    trials: tuple[Trial, ...]
    requests: int
    """How many were sent."""
    verdicts: tuple[Finding, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether semtoken can score answers of this endpoint."""
        return not any(verdict.level == "bad" for verdict in self.verdicts)

    def page(self, name: str | None) -> Page | None:
        """The page of a name."""
        return next((page for page in self.pages if page.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain values."""
        return asdict(self) | {"usable": self.usable}
