"""`semtoken decide`: typed questions about each line of a file, put to a model here or to a server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from semtoken.choices import Reading
from semtoken.cli.console import tell
from semtoken.cli.loading import by_kind, load_executor
from semtoken.cli.model import Device, ModelChoice, ModelOptions
from semtoken.cli.parameters import BaseUrl, Calibrator, ModelNamed, Overwrite, ToLines
from semtoken.cli.server import NamedServer, named_server
from semtoken.cli.settings import NotNegative, Read, SettingsInUse, path_of
from semtoken.cli.statuses import UsageError
from semtoken.errors import SemtokenError
from semtoken.support.almanac import ALMANAC
from semtoken.support.http_client import AT_ONCE
from semtoken.support.text import with_noun

if TYPE_CHECKING:
    from semtoken.decisions.remote import Asker


def decide(
    questions: Path,
    items: Path,
    /,
    *,
    output: ToLines[Path],
    model: ModelNamed[str | None] = None,
    device: Device = None,
    base_url: BaseUrl = None,
    reading: Reading = "labels",
    orders: NotNegative[int] = 1,
    calibrator: Calibrator = None,
    overwrite: Overwrite = False,
    in_use: Read[SettingsInUse],
) -> None:
    """Answer typed questions, with a probability for each option.

    Asks a local model, or a server if you name one. An interrupted run continues when you repeat the command. An item
    may hold "labels", the right values, which calibrate and audit read.

    Example: `semtoken decide questions.yaml items.jsonl -o answers.jsonl`

    Parameters
    ----------
    questions
        Typed questions by name, as YAML.
    items
        Items as JSON lines with a "state".
    output
        Write here, one JSON line for each item.
    model
        Model: as in ask, or its name on the server if --base-url is given.
    reading
        labels: probability of A, B, ...; words: of the options themselves.
    orders
        Average over N orders of the options; 0: all.
    """
    from semtoken.decisions import ReadingOptions
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.decisions.question_files import read_questions
    from semtoken.decisions.running import DecisionJob

    # a model that is named without an address is one to load here
    of_server = base_url is not None or model is None
    server = named_server(base_url, model, in_use, variable=False) if of_server else None
    if server is not None and device is not None:
        raise UsageError("--device has no effect on a server: leave it out.")
    default = path_of(in_use.settings.calibration.decisions)
    if calibrator is None and default is not None and default.exists():
        calibrator = default
    if calibrator is not None and by_kind([calibrator])[0] is not None:
        raise UsageError(
            f"{calibrator} is no calibrator of typed questions. `semtoken calibrate` makes one of answers."
        )
    fitted = None if calibrator is None else DecisionCalibrator.load(calibrator)
    how = ReadingOptions(reading, orders or None)
    by = server.name if server is not None else model or ALMANAC
    job = DecisionJob(items, output, read_questions(questions), how, fitted, overwrite=overwrite, answered_by=by)
    job.check()
    if not job.lines_left():
        tell(f"{output} is complete.")
        return
    if server is not None:
        server.announce("the items", in_use)
    load = partial(_asker, ModelOptions(model or ALMANAC, device).with_settings(in_use.settings), server)
    try:
        written = job.run_by(load_executor(in_use.settings.executor), load, 1 if server is None else AT_ONCE)
    except (SemtokenError, OSError, KeyboardInterrupt):
        if count := job.kept():
            again = "the same command without --force" if overwrite else "the same command"
            tell(f"{with_noun(count, 'line')} in {output}: {again} goes on from there.", style="yellow")
        raise
    tell(f"{with_noun(written, 'line')} written to {output}.")
    if warning := job.warning:
        tell(f"Warning: {warning}", style="yellow")


def _asker(choice: ModelChoice, server: NamedServer | None) -> Asker:
    """The function that asks the server, or the model once it is loaded; run in other processes, too."""
    from semtoken.decisions.running import asker_of_model

    return asker_of_model(choice.load().backend) if server is None else server.ask()
