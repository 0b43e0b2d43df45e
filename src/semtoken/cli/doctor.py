"""`semtoken doctor`: what an endpoint gives, and what semtoken can do with it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING

from semtoken.cli.console import err, out, plain_table, print_json, tell, untrusted
from semtoken.cli.model import name_and_revision
from semtoken.cli.parameters import BaseUrl, Json, ModelNamed, Tokenizer
from semtoken.cli.server import named_server
from semtoken.cli.settings import Read, SettingsInUse
from semtoken.cli.statuses import Status, UsageError, refuse_useless
from semtoken.support.http_client import checked_base_url
from semtoken.support.text import number, visible

if TYPE_CHECKING:
    from rich.table import Table

    from semtoken.web.doctor import Diagnosis

SIGNS = {"good": ("✓", "green"), "note": ("!", "yellow"), "bad": ("✗", "red")}


def doctor(
    *,
    base_url: BaseUrl = None,
    model: ModelNamed[str | None] = None,
    tokenizer: Tokenizer = None,
    quick: bool = False,
    report: bool = False,
    as_json: Json = False,
    in_use: Read[SettingsInUse],
) -> int | None:
    """Find out which log-probabilities a server returns.

    Sends 30 to 40 short requests and reports which engine it is, how many log-probabilities each endpoint lists,
    whether they are raw, whether streams carry them, and how wide the intervals are. Exit status 3: answers cannot be
    scored.

    Example: `semtoken doctor --base-url http://127.0.0.1:8000/v1`

    Parameters
    ----------
    model
        The model's name on the server. Without --base-url: a model to load here, as in ask.
    quick
        Send only two requests.
    report
        Print versions and hardware for a bug report; send nothing.
    """
    server = named_server(base_url, model, in_use, variable=True)
    asks_here = model is not None and not base_url and "endpoint.base_url" not in in_use.sources
    if report:
        asked = {"--base-url": base_url, "--model": model, "--tokenizer": tokenizer, "--quick": quick}
        refuse_useless(asked, "on --report")
        refuse_useless({"--json": as_json}, "on --report")
        from semtoken.support.installation import installation_report

        print(installation_report())
        return None
    if asks_here:  # a variable with an address turns no model into a server's
        refuse_useless({"--tokenizer": tokenizer, "--quick": quick}, "on a model that is loaded here")
        _examine_model(str(model), as_json=as_json)
        return None
    if server is None:
        raise UsageError(
            "Name the server, --base-url http://127.0.0.1:8000/v1, or a model with --model. --report prints facts on "
            "this installation."
        )
    from semtoken.core.given_tokens import as_tokens
    from semtoken.web.doctor import examine

    endpoint = in_use.settings.endpoint
    if not server.takes_key:
        tell(f"No key is sent to an address of a file that was found; to send it: --config {in_use.file}")
    tell(f"Sending short questions of its own to {checked_base_url(server.url)}.")
    status = nullcontext() if as_json or not err().is_terminal else err().status("looking at models")
    with status as shown:

        def progress(what: str) -> None:
            if shown is not None:
                shown.update(f"looking at {what}")

        diagnosis = examine(
            server.url,
            server.model,
            vocabulary=None if tokenizer is None else as_tokens(tokenizer),
            key_env=endpoint.key_env if server.takes_key else "",
            timeout=endpoint.timeout_seconds,
            quick=quick,
            progress=progress,
        )
    if as_json:
        print_json(diagnosis.to_dict())
    else:
        _print(diagnosis)
    return None if diagnosis.usable else Status.NOTHING_MEASURED


def _examine_model(model: str, *, as_json: bool) -> None:
    """Load a model of transformers, and show which ways of reading it are equal to a plain pass."""
    from semtoken.models import load_backend
    from semtoken.models.transformers import TransformersBackend

    name, revision = name_and_revision(model)
    backend = load_backend("transformers", name, revision=revision)
    assert isinstance(backend, TransformersBackend)
    if as_json:
        print_json(asdict(backend.proof))
        return
    out().print(untrusted(f"{model}  {type(backend.model).__name__}", style="bold"))
    for line in backend.proof.lines():
        out().print(untrusted(f"  {line}"))
    images = "read, each prompt alone" if backend.processor is not None else "not read"
    out().print(untrusted(f"  images in messages: {images}"))


def _print(diagnosis: Diagnosis) -> None:
    from rich.table import Table

    out().print(untrusted(f"{diagnosis.base_url}  {diagnosis.model}", style="bold"))
    out().print(_pages(diagnosis))
    out().print(_facts(diagnosis))
    if diagnosis.trials:
        out().print(_trials(diagnosis))
    conclusions = Table.grid(padding=(0, 1))
    for verdict in diagnosis.verdicts:
        sign, style = SIGNS[verdict.level]
        conclusions.add_row(untrusted(sign, style), untrusted(verdict.text))
    out().print(conclusions)


def _pages(diagnosis: Diagnosis) -> Table:
    table = plain_table("endpoint", "answers", "log-probabilities per token", "shape")
    for page in diagnosis.pages:
        answers = "yes" if page.answers else page.reason or "no"
        table.add_row(page.path, untrusted(answers), untrusted(page.counts), page.format or "")
    return table


def _facts(diagnosis: Diagnosis) -> Table:
    table = plain_table("", "")
    table.show_header = False
    for name, fact in diagnosis.facts.items():
        table.add_row(name, untrusted(fact))
    return table


def _trials(diagnosis: Diagnosis) -> Table:
    table = plain_table("trial prompt", "answer", "confidence", "between")
    for trial in diagnosis.trials:
        if trial.bounds is None or trial.confidence is None:
            table.add_row(trial.prompt, untrusted(trial.reason or "", style="yellow"), "", "")
        else:
            low, high = trial.bounds
            text = visible((trial.text or "").strip().replace("\n", "↵"))
            table.add_row(
                trial.prompt, untrusted(text[:40]), number(trial.confidence), f"{number(low)} and {number(high)}"
            )
    return table
