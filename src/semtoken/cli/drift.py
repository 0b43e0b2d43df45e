"""`semtoken drift`: how far recent scores are from those that a calibrator was fitted on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from semtoken.cli.console import out
from semtoken.cli.options import JsonOption
from semtoken.errors import InvalidInput


def drift(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A calibrator, made by `semtoken calibrate`.")],
    recent: Annotated[
        Path, typer.Argument(metavar="RECENT.jsonl", dir_okay=False, help="Scored answers, JSON lines or CSV.")
    ],
    as_json: JsonOption = False,
) -> None:
    """How far are recent scores from those that the calibrator was fitted on?

    The command prints the Kolmogorov-Smirnov distance between the two, from 0 (alike) to 1, with a 95 % interval. It is
    a number, not an alarm: scores that moved show that the questions or the model changed, not how wrong the chances
    have become. Label some of the recent answers to see that.

    For example:

    - `semtoken drift my-calibrator last-week.jsonl`
    """
    from semtoken.calibration import Calibrator
    from semtoken.calibration.labels import read_answers

    calibrator = Calibrator.load(directory)
    answers = read_answers(recent)
    if unscored := [answer for answer in answers if answer.log_score is None]:
        raise InvalidInput(f"{unscored[0].where}: 'log_score' is missing. Score the answers with `semtoken score`.")
    found = calibrator.compare(answers)
    if as_json:
        typer.echo(json.dumps(asdict(found)))
        return
    out.print(
        f"Distance {found.distance:.3f} [{found.low:.3f}, {found.high:.3f}] between {found.n_recent:,} recent scores "
        f"and the {found.n_fitted:,} that the calibrator was fitted on.",
        soft_wrap=True,
    )
    if found.low == 0:
        out.print("The interval holds 0: no difference is shown.")
