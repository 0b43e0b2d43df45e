"""`semtoken doctor`: what an endpoint gives, and what semtoken can do with it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from semtoken.cli.console import err, json_line, out, plain_table, tell, untrusted
from semtoken.cli.options import JsonOption, KeyOption, RevisionOption, TokenizerOption, is_typed
from semtoken.cli.statuses import Status
from semtoken.errors import InvalidInput
from semtoken.support.http_client import checked_base_url
from semtoken.support.text import number, visible

if TYPE_CHECKING:
    from semtoken.web.doctor import Diagnosis
    from semtoken.web.doctor.diagnosis import Page

SIGNS = {"good": ("✓", "green"), "note": ("!", "yellow"), "bad": ("✗", "red")}


def doctor(
    ctx: typer.Context,
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="[URL]", envvar="OPENAI_BASE_URL", help="Address of the API, such as http://127.0.0.1:8000/v1."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="Name of the model there; default: the only one it lists. Without URL: a model to load here.",
        ),
    ] = None,
    tokenizer: TokenizerOption = None,
    key_env: KeyOption = "OPENAI_API_KEY",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that the server may be silent.")] = 60.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Send two requests alone: which engine it is and what its numbers are.")
    ] = False,
    as_json: JsonOption = False,
    revision: RevisionOption = None,
    report: Annotated[
        bool, typer.Option("--report", help="Print versions, processor and extras for an issue. Nothing is asked.")
    ] = False,
) -> None:
    """Examine an OpenAI-compatible endpoint: can semtoken score its answers, and how well?

    About thirty short requests find out which engine it is and which endpoints answer, how many log-probabilities per
    token they give, whether tokens come with ids and bytes, whether the numbers follow the temperature and how exact
    they are, whether streams carry them, whether the tokenizer is the one that is named, and how wide the intervals
    are; where a setting of the engine gives better numbers, the report names it. Exit status: 0 if answers can be
    scored, 3 if not, 1 if the server could not be examined.

    For example:

    - `semtoken doctor http://127.0.0.1:8000/v1`
    - `semtoken doctor https://api.openai.com/v1 -m gpt-4o --tokenizer openai/gpt-oss-20b --json`
    - `semtoken doctor http://127.0.0.1:8000/v1 --quick`: two requests alone
    - `semtoken doctor --model smollm2`: in which ways a model of transformers can be read
    - `semtoken doctor --report`, for the report of a problem: no texts, keys or paths
    """
    if report:
        from semtoken.support.installation import installation_report

        typer.echo(installation_report())
        return
    if model is not None and not is_typed(ctx, "url"):  # a variable with an address turns no model into a server's
        _examine_model(model, revision, as_json)
        return
    if url is None:
        raise InvalidInput(
            "Give the address of an API, such as http://127.0.0.1:8000/v1, or a model with --model. --report prints "
            "facts on this installation."
        )
    from semtoken.core.scorer import as_tokens
    from semtoken.web.doctor import examine

    tell(f"Sending short questions of its own to {checked_base_url(url)}.")
    status = nullcontext() if as_json or not err.is_terminal else err.status("looking at models")
    with status as shown:

        def progress(what: str) -> None:
            if shown is not None:
                shown.update(f"looking at {what}")

        diagnosis = examine(
            url,
            model,
            vocabulary=None if tokenizer is None else as_tokens(tokenizer, revision=revision),
            key_env=key_env,
            timeout=timeout,
            quick=quick,
            progress=progress,
        )
    if as_json:
        typer.echo(json_line(diagnosis.to_dict()))
    else:
        _print(diagnosis)
    if not diagnosis.usable:
        raise typer.Exit(Status.NOTHING_MEASURED)


def _examine_model(model: str, revision: str | None, as_json: bool) -> None:
    """Load a model of transformers, and show which ways of reading it are equal to a plain pass."""
    from semtoken.backends import load_backend
    from semtoken.backends.transformers import TransformersBackend

    backend = load_backend("transformers", model, revision=revision)
    assert isinstance(backend, TransformersBackend)
    if as_json:
        typer.echo(json_line(backend.proof.all()))
        return
    out.print(untrusted(f"{model}  {type(backend.model).__name__}", style="bold"))
    for line in backend.proof.lines():
        out.print(untrusted(f"  {line}"))
    images = "read, each prompt alone" if backend.processor is not None else "not read"
    out.print(untrusted(f"  images in messages: {images}"))


def _print(diagnosis: Diagnosis) -> None:
    out.print(untrusted(f"{diagnosis.base_url}  {diagnosis.model}", style="bold"))
    out.print(_pages(diagnosis))
    out.print(_facts(diagnosis))
    if diagnosis.trials:
        out.print(_trials(diagnosis))
    conclusions = Table.grid(padding=(0, 1))
    for verdict in diagnosis.verdicts:
        sign, style = SIGNS[verdict.level]
        conclusions.add_row(Text(sign, style=style), untrusted(verdict.text))
    out.print(conclusions)


def _pages(diagnosis: Diagnosis) -> Table:
    table = plain_table("endpoint", "answers", "log-probabilities a token", "shape")
    for page in diagnosis.pages:
        answers = "yes" if page.answers else page.reason or "no"
        table.add_row(page.path, untrusted(answers), Text(_counts(page)), page.format or "")
    return table


def _counts(page: Page) -> str:
    if not page.answers:
        return ""
    if page.silent:
        return "asked for and left out"
    refused = [attempt.asked for attempt in page.tried if attempt.given is None and attempt.asked > page.most]
    if not page.most:
        return "refused"
    whole = any(attempt.asked == -1 and attempt.given for attempt in page.tried)
    return f"{page.most:,}" + (" (asked for -1)" if whole else f" ({min(refused):,} refused)" if refused else "")


def _facts(diagnosis: Diagnosis) -> Table:
    table = plain_table("", "")
    table.show_header = False
    if diagnosis.best is not None:
        table.add_row("engine", untrusted(f"{diagnosis.engine.name} (by {diagnosis.recognised_by})"))
        table.add_row("numbers", untrusted(f"{diagnosis.numbers.distribution} ({diagnosis.numbers.reason})"))
    if diagnosis.tokens is not None:
        ids = {"always": "yes", "on request": f"on request ({', '.join(diagnosis.tokens.id_fields)})", None: "no"}
        table.add_row("token ids", ids[diagnosis.tokens.ids])
        table.add_row("token bytes", "yes" if diagnosis.tokens.bytes else "no")
    if diagnosis.streaming is not None:
        carried = "with log-probabilities" if diagnosis.streaming.log_probs else "without log-probabilities"
        table.add_row("streams", carried if diagnosis.streaming.streams else "no")
        table.add_row("log-probabilities of prompts", ", ".join(diagnosis.prompt_log_probs) or "no")
    if diagnosis.tokenizer is not None:
        fits = "fits" if diagnosis.tokenizer.fits else "another one"
        table.add_row("tokenizer", f"{fits} ({diagnosis.tokenizer.n_tokens} tokens compared)")
    table.add_row("requests sent", str(diagnosis.requests))
    return table


def _trials(diagnosis: Diagnosis) -> Table:
    table = plain_table("trial prompt", "answer", "confidence", "between")
    for trial in diagnosis.trials:
        if trial.bounds is None or trial.confidence is None:
            table.add_row(trial.prompt, untrusted(trial.reason or "", style="yellow"), "", "")
        else:
            low, high = trial.bounds
            text = visible((trial.text or "").strip().replace("\n", "↵"))
            table.add_row(trial.prompt, Text(text[:40]), number(trial.confidence), f"{number(low)} and {number(high)}")
    return table
