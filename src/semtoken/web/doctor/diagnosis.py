"""What an examination of an endpoint found: which engine answers, and what semtoken can do there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

from semtoken.support.http_client import HttpReply
from semtoken.support.text import number
from semtoken.web.doctor.numbers import Numbers


@dataclass(frozen=True)
class Known:
    """An engine that the doctor knows, and what to change there; nothing where nothing can be changed."""

    name: str
    more: str = ""
    """How to get more log-probabilities for each token."""
    raw: str = ""
    """How to get the model's own numbers, before temperature and samplers."""
    names: str = ""
    """How to tell tokens apart that are spelled alike."""


VLLM = Known(
    "vLLM",
    "start vLLM with --max-logprobs 20 or above",
    "start vLLM with --logprobs-mode raw_logprobs",
    'name the tokenizer and ask with "return_tokens_as_token_ids": true',
)
LLAMA_SERVER = Known("llama-server", raw='leave "post_sampling_probs" out of the request')
LLAMA_CPP_PYTHON = Known(
    "llama-cpp-python", names="llama-server gives ids and bytes for the same file: serve the model with it"
)
SGLANG = Known("SGLang", raw="ask at temperature 1: SGLang divides by the temperature before it lists")
OWNERS = {
    "llamacpp": LLAMA_SERVER,
    "vllm": VLLM,
    "sglang": SGLANG,
    "me": LLAMA_CPP_PYTHON,
    "library": Known("Ollama"),
    "semtoken": Known("semtoken serve"),
}
"""Engines by the `owned_by` of the models that they list."""
FORMATS = {"llama-cpp-python": LLAMA_CPP_PYTHON, "llama-cpp": LLAMA_SERVER, "vllm": VLLM, "sglang": SGLANG}
"""Engines by how the formats of their replies begin."""
ANY = Known("the server", raw="ask at temperature 1 without top_p, top_k and penalties for the model's own")


MLX_LM = Known("mlx-lm")
MLX_FINGERPRINT = re.compile(r"\d+\.\d+\.\d+-\d+\.\d+\.\d+-[A-Z]")
"""How its fingerprint reads: its version, that of mlx, and the platform."""


def recognise(reply: HttpReply, owner: object, format: str) -> tuple[Known, str]:
    """The engine, and what it goes by: headers and `system_fingerprint` of a reply, `owned_by` of the models that the
    server lists, the format of the reply as `semtoken.replies` names it.
    """
    headers, values = reply.headers, reply.values
    if any(name.startswith("x-litellm-") for name in headers):
        version = headers.get("x-litellm-version", "")
        return Known(f"LiteLLM {version}".strip()), "its headers; its engine is not known"
    if headers.get("server", "").startswith("llama.cpp"):
        return LLAMA_SERVER, "its header"
    if isinstance(owner, str) and owner in OWNERS:
        return OWNERS[owner], f"its list of models, owned by {owner!r}"
    fingerprint = values.get("system_fingerprint") if isinstance(values, dict) else None
    if isinstance(fingerprint, str) and MLX_FINGERPRINT.match(fingerprint):
        return MLX_LM, "its fingerprint"
    by_format = next((engine for start, engine in FORMATS.items() if format.startswith(start)), None)
    return (by_format, "the fields of its replies") if by_format else (ANY, "nothing that it says of itself")


Level = Literal["good", "note", "bad"]
Ids = Literal["always", "on request"]


@dataclass(frozen=True)
class TriedCount:
    """How many log-probabilities for each token were asked for, and how many came."""

    asked: int
    given: int | None
    """The most that a token came with; None if the request was rejected."""
    reason: str | None = None
    """Why it was rejected, as the server gave it, or why its reply could not be read."""


@dataclass(frozen=True)
class Page:
    """What one endpoint of the server can do, such as chat completions."""

    name: str
    """The endpoint's name: "chat", "completions", "responses", "generate" or "completion"."""
    path: str
    answers: bool
    reason: str | None = None
    """Why it does not answer; None if it does."""
    format: str | None = None
    """The shape of its replies, as `semtoken.replies` names it."""
    tried: tuple[TriedCount, ...] = ()

    @property
    def most(self) -> int:
        """The largest number of log-probabilities for each token that came besides the chosen token's."""
        return max((trial.given or 0 for trial in self.tried), default=0)

    @property
    def silent(self) -> bool:
        """Whether the endpoint accepted a request for log-probabilities and then left them out."""
        return any(trial.asked and trial.given == 0 for trial in self.tried) and not self.most


@dataclass(frozen=True)
class TokenNaming:
    """How the server names tokens: by text, bytes or ids."""

    bytes: bool
    ids: Ids | None
    """Whether the tokens' ids are given without asking or on request; None: not at all."""
    id_fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Streaming:
    """Whether the server streams, and whether its streams hold log-probabilities."""

    streams: bool
    log_probs: bool = False
    complete: bool = False
    """Whether the stream has as many steps as the same reply without a stream."""
    reason: str | None = None


@dataclass(frozen=True)
class Tokenizer:
    """How well the tokens of the replies fit a vocabulary."""

    fits: bool
    enough: bool
    """Whether enough tokens were seen to call it the same tokenizer."""
    n_tokens: int
    """How many distinct tokens were seen."""
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
    """Why the answer has no score; None if it has one."""

    @property
    def width(self) -> float | None:
        """Width of the interval, in [0, 1]."""
        return None if self.bounds is None else self.bounds[1] - self.bounds[0]


@dataclass(frozen=True)
class Finding:
    """A sentence on what the server's behavior means for semtoken."""

    level: Level
    """How it bears on semtoken: `bad` means that answers cannot be scored."""
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
    """What each of the server's pages, such as `/v1/completions`, gave."""
    best: str | None = None
    """Name of the page that serves semtoken best, None if none does."""
    tokens: TokenNaming | None = None
    """How the replies name tokens; None if that was not examined."""
    engine: Known = ANY
    """The engine that the server runs."""
    recognised_by: str = "nothing that it says of itself"
    """The sign by which the engine was recognized."""
    numbers: Numbers = field(default_factory=Numbers)
    """What the log-probabilities are: raw, or after temperature and samplers."""
    streaming: Streaming | None = None
    """Whether a stream brings the same log-probabilities; None if that was not examined."""
    prompt_log_probs: tuple[str, ...] = ()
    """Fields that bring the log-probabilities of a prompt."""
    tokenizer: Tokenizer | None = None
    """What was found out about the tokenizer; None without clusters or tokenizer, or if nothing could be compared."""
    trials: tuple[Trial, ...] = ()
    """A few answers that were scored, to show what to expect."""
    requests: int = 0
    """How many requests were sent."""
    verdicts: tuple[Finding, ...] = ()
    """What all this means for semtoken, a sentence each."""

    @property
    def usable(self) -> bool:
        """Whether semtoken can score answers of this endpoint."""
        return not any(verdict.level == "bad" for verdict in self.verdicts)

    def page(self, name: str | None) -> Page | None:
        """The results for the page with this name; None if it was not examined."""
        return next((page for page in self.pages if page.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain values."""
        return asdict(self) | {"usable": self.usable}


FEW = 20  # log-probabilities a token below which intervals are wide
WIDE = 0.2
SILENT = (
    "Requests for log-probabilities are taken and the log-probabilities left out without a word ({paths}), as "
    "`transformers serve` and some gateways do."
)
NOTHING = (
    "No log-probabilities, no scores: ask the engine itself instead of a gateway, or serve the model with vLLM, "
    "SGLang, llama.cpp or `semtoken serve`."
)
ZEROS = (
    "Every token is said to have probability 1: the engine reports no log-probabilities (some do so under speculative "
    "decoding)."
)
DRAFTED = (
    "{n} tokens come with the log-probability 0 and no list, as those that llama-server takes from a draft: no answer "
    "gets a narrow interval. Start the engine without speculative decoding (llama-server: --spec-type none)."
)
NO_NAMES = (
    "Tokens come without ids and bytes: pieces of characters cannot be told apart, and an answer that holds some (most "
    "answers that are not in English) is not scored."
)


def verdicts(diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """Sentences on what can be done with the endpoint, the most important first."""
    best = diagnosis.page(diagnosis.best)
    if best is None:
        return tuple(_without_log_probs(diagnosis))
    return tuple(
        verdict
        for part in (
            _counts(best, diagnosis),
            _tokenizer(diagnosis),
            _trials(diagnosis),
            _names(diagnosis),
            _numbers(diagnosis),
        )
        for verdict in part
    )


def _without_log_probs(diagnosis: Diagnosis) -> Iterator[Finding]:
    if not any(page.answers for page in diagnosis.pages):
        told = "; ".join(f"{page.path}: {page.reason}" for page in diagnosis.pages)
        yield Finding("bad", f"No endpoint of this address answers for the model {diagnosis.model!r} ({told}).")
        return
    yield from _silence(diagnosis, "bad")
    for page in diagnosis.pages:
        if page.answers and not page.silent:
            reasons = [trial.reason for trial in page.tried if trial.reason]
            told = f" ({reasons[0]})" if reasons else ""
            yield Finding("bad", f"{page.path} answers, but rejects requests for log-probabilities{told}.")
    yield Finding("bad", NOTHING)


def _counts(best: Page, diagnosis: Diagnosis) -> Iterator[Finding]:
    number = f"{best.most:,} log-probabilities per token"
    whole = any(trial.asked == -1 and trial.given for trial in best.tried)
    said = f"{best.path} gives {number}" + (", the whole vocabulary if asked for -1" if whole else "")
    if best.most >= FEW:
        yield Finding("good", f"{said}: semtoken can score its answers, with an interval.")
    else:
        refused = [trial.asked for trial in best.tried if trial.given is None]
        limit = " and no more" if refused or len(best.tried) > 1 else ""
        wide = f"{said}{limit}: answers can be scored, but the intervals are wide"
        yield Finding("note", _with_change(wide, diagnosis.engine.more))
    yield from _silence(diagnosis, "note")
    if diagnosis.numbers.only_zeros:
        yield Finding("bad", ZEROS)


def _silence(diagnosis: Diagnosis, level: Level) -> Iterator[Finding]:
    paths = [page.path for page in diagnosis.pages if page.silent]
    if paths:
        yield Finding(level, SILENT.format(paths=", ".join(paths)))


def _tokenizer(diagnosis: Diagnosis) -> Iterator[Finding]:
    if diagnosis.tokenizer is None and diagnosis.trials:
        yield Finding("note", "Give --tokenizer to see whether it fits; intervals are narrower with it.")
    if diagnosis.tokenizer is None:
        return
    if not diagnosis.tokenizer.fits:
        misfits = ", ".join(diagnosis.tokenizer.misfits[:3])
        yield Finding(
            "bad",
            f"The tokenizer is another one: {misfits} are not in the vocabulary given. Name the model that is "
            "served with --tokenizer.",
        )
    elif diagnosis.tokenizer.enough:
        yield Finding(
            "good", f"The tokenizer fits: all {diagnosis.tokenizer.n_tokens} tokens seen are in the vocabulary."
        )
    else:
        yield Finding(
            "note",
            f"All {diagnosis.tokenizer.n_tokens} tokens seen are in the vocabulary, too few to be sure that it is the "
            "same tokenizer.",
        )


def _trials(diagnosis: Diagnosis) -> Iterator[Finding]:
    widths = [trial.width for trial in diagnosis.trials if trial.width is not None]
    reasons = [trial.reason for trial in diagnosis.trials if trial.reason is not None]
    if reasons and not widths:
        yield Finding("bad", f"None of {len(reasons)} trial answers could be scored: {reasons[0]}")
    elif reasons:
        yield Finding(
            "note", f"{len(reasons)} of {len(diagnosis.trials)} trial answers could not be scored: {reasons[0]}"
        )
    if widths:
        width = median(widths)
        said = f"The intervals of {len(widths)} trial answers are {number(width)} wide (median)"
        if width <= WIDE:
            yield Finding("good", f"{said}.")
        else:
            yield Finding("note", f"{said}: the exact confidence may be far from the one given.")


def _names(diagnosis: Diagnosis) -> Iterator[Finding]:
    tokens = diagnosis.tokens
    if tokens is None:
        return
    if tokens.ids == "always":
        yield Finding("good", "Tokens come with their ids.")
    elif tokens.ids == "on request":
        fields = ", ".join(f'"{name}": true' for name in tokens.id_fields)
        how = f"{fields}; `semtoken proxy --base-url URL --tokenizer MODEL --endpoint.token-ids yes`"
        yield Finding("good", f"Token ids come on request ({how}): ask for them where you name the tokenizer.")
    elif tokens.bytes:
        yield Finding("note", "Tokens come with their bytes but without ids: those spelled alike cannot be told apart.")
    else:
        yield Finding("note", NO_NAMES)


def _with_change(said: str, change: str) -> str:
    """A sentence with the setting to change, if there is one."""
    return f"{said}: {change}." if change else f"{said}."


def _numbers(diagnosis: Diagnosis) -> Iterator[Finding]:
    numbers = diagnosis.numbers
    if numbers.distribution == "raw":
        yield Finding("good", "Log-probabilities are the model's own, before the temperature.")
    elif numbers.distribution == "processed":
        yield Finding("note", _with_change("Log-probabilities follow the temperature", diagnosis.engine.raw or ANY.raw))
    else:
        yield Finding("note", f"Whether log-probabilities follow the temperature is open: {numbers.reason}.")
    if numbers.above_one:
        sums = "The probabilities of a list sum to more than 1, so that they are none (logits, perhaps)"
        yield Finding("bad", _with_change(sums, diagnosis.engine.raw))
    if numbers.problem:
        yield Finding("note", f"A sampled answer gets no score: {numbers.problem}")
    if numbers.unlisted:
        yield Finding("bad", DRAFTED.format(n=numbers.unlisted))
    if numbers.repeated:
        twice = f"{numbers.repeated} listed tokens are named as another one of their list"
        yield Finding("note", _with_change(twice, diagnosis.engine.names))
    if numbers.impossible:
        yield Finding("note", f"{numbers.impossible} listed tokens have no probability: a sampler excluded them.")
    if numbers.off is not None:
        yield Finding("note", f"Numbers are rounded: each may be {number(numbers.off)} nats off.")
    if numbers.apart:
        yield Finding("good", f"Two replies agree within {numbers.apart:.1g} nats at a token.")
    yield from _streams(diagnosis.streaming)


def _streams(streaming: Streaming | None) -> Iterator[Finding]:
    if streaming is None:
        return
    if not streaming.streams:
        yield Finding("note", f"Streams do not work: {streaming.reason}")
    elif not streaming.log_probs:
        yield Finding("note", "Streams come without log-probabilities: ask without streaming to have answers scored.")
    elif not streaming.complete:
        yield Finding("note", "Streams come with fewer log-probabilities than the same replies unstreamed.")
    else:
        yield Finding("good", "Streams come with log-probabilities.")
