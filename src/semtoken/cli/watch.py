"""`semtoken watch`: is the promise of a calibrator still kept, and are recent scores like those it was fitted on?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from semtoken.cli.console import out, untrusted
from semtoken.cli.journal import open_journal
from semtoken.cli.options import JsonOption
from semtoken.cli.statuses import Status, verdict
from semtoken.errors import InvalidInput

SQLITE = b"SQLite format 3\0"
STYLES = {"kept": "bold green", "unknown": "bold", "broken": "bold red", "no_promise": "bold"}


def watch(
    source: Annotated[
        str,
        typer.Argument(
            metavar="JOURNAL|RECENT",
            help="A journal, such as journal.db or postgresql://user@host/name; with --calibrator a file of scored "
            "answers, JSON lines or CSV.",
        ),
    ],
    calibrator: Annotated[
        Path | None,
        typer.Option("--calibrator", help="Compare a file of scores with those that this calibrator was fitted on."),
    ] = None,
    level: Annotated[
        float, typer.Option(help="How likely a promise that is kept may ever be called broken, in (0, 1).")
    ] = 0.05,
    as_json: JsonOption = False,
    distance: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Exit with 1 if the scores have moved further than this [limits of semtoken.yaml]."
        ),
    ] = None,
    otel: Annotated[bool, typer.Option("--otel", help="Send the state as an OpenTelemetry event, too.")] = False,
) -> None:
    """Is the promise of the calibrator in use still kept? Look as often as you like.

    Of a journal it reads the labels of the random sample, by a test that may be looked at every day, and compares the
    newest scores with those of the labelled answers. Without a journal, give a file of recent scored answers and the
    calibrator: no labels are needed, and the Kolmogorov-Smirnov distance is printed, from 0 (alike) to 1. It says that
    something changed, not how wrong the chances have become: label some of the recent answers to see that.

    Exit status: 1 if the promise is broken or the lower end of the distance exceeds the limit, 2 for errors, 3 if
    nothing was measured (no promise, no label, fewer than 30 recent scores), else 0.

    For example:

    - `semtoken watch journal.db`
    - `semtoken watch postgresql://me@db.example/semtoken --json`
    - `semtoken watch last-week.jsonl --calibrator my-calibrator`
    """
    from semtoken.decisions.auditing import DecisionSettings

    most = DecisionSettings.beside(calibrator).limits.distance if distance is None else distance
    if calibrator is not None:
        if is_journal(source):
            raise InvalidInput(
                f"{source} is a journal, which knows its calibrator: leave out --calibrator. With it give a file of "
                "scored answers."
            )
        _compare_scores(calibrator, Path(source), as_json=as_json, most=most)
        return
    journal = open_journal(source)
    from semtoken.guarantees.journal.labels import agreement
    from semtoken.guarantees.journal.watch import watch as look

    report = look(journal, level=level)
    if otel:
        from semtoken.integrations.opentelemetry import send_state

        send_state(report)
    holds = report.state != "broken" and not (report.moved is not None and report.moved.is_beyond(most))
    status = verdict(holds=holds, measured=report.n > 0 or (report.moved is not None and most is not None))
    if as_json:
        typer.echo(
            json.dumps(
                {**report.to_dict(), "holds": holds, "measured": status != Status.NOTHING_MEASURED}, allow_nan=False
            )
        )
        raise typer.Exit(status)
    out.print(untrusted(report.sentence, style=STYLES[report.state]), soft_wrap=True)
    if report.undecided:
        out.print(f"Of {report.undecided} further answers people said that they cannot tell.")
    for sentence in filter(None, (report.models_sentence, report.moved_sentence)):
        out.print(untrusted(sentence), soft_wrap=True)
    out.print(agreement(journal).sentence, soft_wrap=True)
    raise typer.Exit(status)


def is_journal(source: str) -> bool:
    """Whether a text names a database: an address, or a file that begins as those of SQLite do."""
    if "://" in source:
        return True
    try:
        with Path(source).open("rb") as file:
            return file.read(len(SQLITE)) == SQLITE
    except OSError:
        return False


def _compare_scores(directory: Path, recent: Path, *, as_json: bool, most: float | None) -> None:
    """Print how far recent scores are from those that the calibrator was fitted on."""
    from semtoken.guarantees import Calibrator
    from semtoken.guarantees.labels import PRODUCT, read_answers, require_scores
    from semtoken.guarantees.measures import FEWEST_RECENT

    calibrator = Calibrator.load(directory)
    answers = read_answers(recent)
    require_scores(answers)
    drift = calibrator.compare(answers)
    status = verdict(holds=not drift.is_beyond(most), measured=drift.n_recent >= FEWEST_RECENT)
    if as_json:
        typer.echo(json.dumps({**asdict(drift), **_flags(status)}))
        raise typer.Exit(status)
    out.print(
        f"Distance {drift.distance:.3f} [{drift.low:.3f}, {drift.high:.3f}] between {drift.n_recent:,} recent scores "
        f"and the {drift.n_fitted:,} that the calibrator was fitted on, by {calibrator.fingerprint.method or PRODUCT}.",
        soft_wrap=True,
    )
    if status == Status.NOTHING_MEASURED:
        out.print(f"That says nothing: it takes {FEWEST_RECENT} recent scores, of different questions.")
    elif drift.low == 0:
        out.print("The interval holds 0: no difference is shown.")
    if status == Status.DOES_NOT_HOLD:
        out.print(f"That is further than the limit of {most}.")
    raise typer.Exit(status)


def _flags(status: Status) -> dict[str, bool]:
    return {"holds": status != Status.DOES_NOT_HOLD, "measured": status != Status.NOTHING_MEASURED}
