"""`semtoken watch`: is the promise still kept?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from semtoken.cli.console import out, untrusted
from semtoken.cli.journal import UrlArgument, opened
from semtoken.cli.options import JsonOption

STYLES = {"kept": "bold green", "unknown": "bold", "broken": "bold red", "no_promise": "bold"}


def watch(
    url: UrlArgument,
    level: Annotated[
        float, typer.Option(help="How likely a promise that is kept may ever be called broken, in (0, 1).")
    ] = 0.05,
    as_json: JsonOption = False,
    otel: Annotated[bool, typer.Option("--otel", help="Send the state as an OpenTelemetry event, too.")] = False,
) -> None:
    """Is the promise of the calibrator in use still kept? Look as often as you like.

    It reads the labels of the random sample, by a test that may be looked at every day, and compares the newest scores
    with those of the labelled answers; where a number was learned from hidden states, their distances, too.

    For example:

    - `semtoken watch journal.db`
    - `semtoken watch postgresql://me@db.example/semtoken --json`
    """
    journal = opened(url)
    from semtoken.journal.labels import agreement
    from semtoken.journal.watch import watch as look

    report = look(journal, level=level)
    if otel:
        from semtoken.integrations.opentelemetry import send_state

        send_state(report)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), allow_nan=False))
        return
    out.print(untrusted(report.sentence, style=STYLES[report.state]), soft_wrap=True)
    if report.undecided:
        out.print(f"Of {report.undecided} further answers people said that they cannot tell.")
    for sentence in filter(None, (report.moved_sentence, report.states_sentence)):
        out.print(untrusted(sentence), soft_wrap=True)
    out.print(agreement(journal).sentence, soft_wrap=True)
