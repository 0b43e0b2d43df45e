"""`semtoken bench ...`: the commands of the benchmark."""

from __future__ import annotations

import typer

from semtoken.cli.bench_judge import judge
from semtoken.cli.bench_report import report
from semtoken.cli.bench_run import run
from semtoken.cli.help import ShortHelp

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="The paper's experiment on any model: answers, uncertainties, judgements, tables.",
)
app.command(cls=ShortHelp)(run)
app.command(cls=ShortHelp)(report)
app.command(cls=ShortHelp)(judge)
