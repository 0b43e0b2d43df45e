"""Records of what an examination of an endpoint found; verdicts.py says what they mean for semtoken."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from semtoken.web.doctor.engines import ANY, KnownEngine
from semtoken.web.doctor.numbers import Numbers

ALL = -1
"""The number with which vLLM and others are asked for the whole vocabulary."""
Level = Literal["good", "note", "bad"]
Ids = Literal["always", "on request"]


@dataclass(frozen=True)
class TriedCount:
    """The number of log-probabilities for each token that was asked for, and the number that came."""

    asked: int
    given: int | None
    """The most that a token came with; None if the request was rejected."""
    reason: str | None = None
    """The reason of the rejection in the server's words, or the reason why the reply could not be read."""


@dataclass(frozen=True)
class Page:
    """The abilities of one endpoint of the server, such as chat completions."""

    name: str
    """The endpoint's name: "chat", "completions", "responses", "generate" or "completion"."""
    path: str
    answers: bool
    reason: str | None = None
    """The reason why it does not answer; None if it does."""
    format: str | None = None
    """The shape of its replies, as `semtoken.replies` names it."""
    tried: tuple[TriedCount, ...] = ()

    @property
    def most(self) -> int:
        """The largest number of log-probabilities for each token that came besides the chosen token's."""
        return max((trial.given or 0 for trial in self.tried), default=0)

    @property
    def gives_all(self) -> bool:
        """True if more came when `ALL` were asked for than otherwise; some servers give the same whatever they read."""
        of_all = max((trial.given or 0 for trial in self.tried if trial.asked == ALL), default=0)
        return of_all > max((trial.given or 0 for trial in self.tried if trial.asked != ALL), default=0)

    @property
    def silent(self) -> bool:
        """True if the endpoint accepted a request for log-probabilities and then left them out."""
        return any(trial.asked and trial.given == 0 for trial in self.tried) and not self.most

    @property
    def counts(self) -> str:
        """The number of log-probabilities for each token in words, with the smallest number that was rejected."""
        if not self.answers:
            return ""
        if self.silent:
            return "asked for and left out"
        if not self.most:
            return "refused"
        if self.gives_all:
            return f"{self.most:,} (asked for {ALL})"
        rejected = [trial.asked for trial in self.tried if trial.given is None and trial.asked > self.most]
        return f"{self.most:,}" + (f" ({min(rejected):,} rejected)" if rejected else "")


@dataclass(frozen=True)
class TokenNaming:
    """The ways in which the server names tokens: by text, bytes or ids."""

    bytes: bool
    ids: Ids | None
    """The way in which tokens' ids are given, without asking or on request; None: not at all."""
    id_fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Streaming:
    """Findings on streams: whether the server streams, and whether its streams hold log-probabilities."""

    streams: bool
    log_probs: bool = False
    complete: bool = False
    """True if the stream has as many steps as the same reply without a stream."""
    reason: str | None = None


@dataclass(frozen=True)
class Tokenizer:
    """The comparison of the tokens in the replies with a vocabulary."""

    fits: bool
    enough: bool
    """True if enough tokens were seen to call it the same tokenizer."""
    n_tokens: int
    """The number of distinct tokens that were seen."""
    misfits: tuple[str, ...]
    """Some of the tokens that the vocabulary lacks."""


@dataclass(frozen=True)
class Trial:
    """A prompt whose answer was scored as a test."""

    prompt: str
    text: str | None = None
    confidence: float | None = None
    """The confidence of the answer, in [0, 1]."""
    bounds: tuple[float, float] | None = None
    n_tokens: int | None = None
    reason: str | None = None
    """The reason why the answer has no score; None if it has one."""

    @property
    def width(self) -> float | None:
        """Width of the interval, in [0, 1]."""
        return None if self.bounds is None else self.bounds[1] - self.bounds[0]


@dataclass(frozen=True)
class Finding:
    """A sentence on what the server's behavior means for semtoken."""

    level: Level
    """The bearing on semtoken: `bad` means that answers cannot be scored."""
    text: str
    """The sentence, with the setting to change if there is one."""


@dataclass(frozen=True)
class Diagnosis:
    """The results of examining an endpoint."""

    base_url: str
    """The address that was examined."""
    model: str
    """The model that was asked."""
    models: tuple[str, ...]
    """The models that the server lists."""
    pages: tuple[Page, ...]
    """The results for each of the server's pages, such as `/v1/completions`."""
    best: str | None = None
    """Name of the page that serves semtoken best, None if none does."""
    tokens: TokenNaming | None = None
    """The ways in which the replies name tokens; None if that was not examined, or no tokens came."""
    engine: KnownEngine = ANY
    """The engine that the server runs."""
    recognized_by: str = "nothing that it says of itself"
    """The sign by which the engine was recognized."""
    numbers: Numbers = field(default_factory=Numbers)
    """The nature of the log-probabilities: raw, or after temperature and samplers."""
    streaming: Streaming | None = None
    """The findings on streams; None if they were not examined."""
    prompt_log_probs: tuple[str, ...] = ()
    """Fields that bring the log-probabilities of a prompt."""
    tokenizer: Tokenizer | None = None
    """The comparison with the tokenizer; None without clusters or tokenizer, or if nothing could be compared."""
    trials: tuple[Trial, ...] = ()
    """A few answers that were scored, to show what to expect."""
    requests: int = 0
    """The number of requests that were sent."""
    verdicts: tuple[Finding, ...] = ()
    """The consequences of all this for semtoken, a sentence each."""

    @property
    def usable(self) -> bool:
        """True if semtoken can score answers of this endpoint."""
        return not any(verdict.level == "bad" for verdict in self.verdicts)

    def page(self, name: str | None) -> Page | None:
        """The results for the page with this name; None if it was not examined."""
        return next((page for page in self.pages if page.name == name), None)

    @property
    def facts(self) -> dict[str, str]:
        """The findings about the server as a whole in words, by what they are about."""
        facts = {}
        if self.best is not None:
            facts["engine"] = f"{self.engine.name} (by {self.recognized_by})"
            facts["numbers"] = f"{self.numbers.distribution} ({self.numbers.reason})"
        if self.tokens is not None:
            ids = {"always": "yes", "on request": f"on request ({', '.join(self.tokens.id_fields)})", None: "no"}
            facts["token ids"] = ids[self.tokens.ids]
            facts["token bytes"] = "yes" if self.tokens.bytes else "no"
        if self.streaming is not None:
            carried = "with log-probabilities" if self.streaming.log_probs else "without log-probabilities"
            facts["streams"] = carried if self.streaming.streams else "no"
            facts["log-probabilities of prompts"] = ", ".join(self.prompt_log_probs) or "no"
        if self.tokenizer is not None:
            fits = "fits" if self.tokenizer.fits else "another one"
            facts["tokenizer"] = f"{fits} ({self.tokenizer.n_tokens} tokens compared)"
        return facts | {"requests sent": str(self.requests)}

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain values."""
        return asdict(self) | {"usable": self.usable}
