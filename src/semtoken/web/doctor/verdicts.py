"""Sentences on what a diagnosis means for semtoken, and what to change on the server."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from semtoken.support.text import number
from semtoken.web.doctor.diagnosis import ALL, Diagnosis, Finding, Level, Page, Streaming
from semtoken.web.doctor.engines import ANY

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
    return (
        *_counts(best, diagnosis),
        *_tokenizer(diagnosis),
        *_trials(diagnosis),
        *_names(diagnosis),
        *_numbers(diagnosis),
    )


def _without_log_probs(diagnosis: Diagnosis) -> Iterator[Finding]:
    if not any(page.answers for page in diagnosis.pages):
        reasons = "; ".join(f"{page.path}: {page.reason}" for page in diagnosis.pages)
        yield Finding("bad", f"No endpoint of this address answers for the model {diagnosis.model!r} ({reasons}).")
        return
    yield from _silence(diagnosis, "bad")
    for page in diagnosis.pages:
        if page.answers and not page.silent:
            reason = next((f" ({trial.reason})" for trial in page.tried if trial.reason), "")
            yield Finding("bad", f"{page.path} answers, but rejects requests for log-probabilities{reason}.")
    yield Finding("bad", NOTHING)


def _counts(best: Page, diagnosis: Diagnosis) -> Iterator[Finding]:
    said = f"{best.path} gives {best.most:,} log-probabilities per token" + (
        f", the whole vocabulary if asked for {ALL}" if best.gives_all else ""
    )
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
