"""`semtoken bench compare`: the benchmark on one model and one set of questions, with nothing kept but its tables."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semtoken.cli.console import out, say, tell
from semtoken.cli.loading import benchmarked
from semtoken.cli.model import PaperModelOptions
from semtoken.cli.parameters import BenchMethods, Force, Limit, OwnScores, TestedCalibrator, ToFile
from semtoken.cli.run_progress import run_progress
from semtoken.cli.settings import NotNegative, Read, SettingsInUse
from semtoken.errors import InvalidInputError
from semtoken.support.almanac import ALMANAC
from semtoken.support.extras import only_errors
from semtoken.support.files.safe_files import ending_of, replace_text
from semtoken.support.installation import cache_root

if TYPE_CHECKING:
    from semtoken.bench.report.content import BenchReport
    from semtoken.bench.report.table import Table
    from semtoken.bench.settings import RunSettings
    from semtoken.guarantees import Calibrator

DEFAULT_LIMIT = 500
TOO_FEW = 5
"""With fewer right or wrong answers the terminal shows no figures."""
BATCH_SIZE = 32


def compare(
    questions: str = ALMANAC,
    /,
    *,
    choice: PaperModelOptions = PaperModelOptions(),  # noqa: B008
    limit: NotNegative[Limit[int]] = DEFAULT_LIMIT,
    methods: BenchMethods = None,
    calibrator: TestedCalibrator = None,
    scores: OwnScores = None,
    output: ToFile[tuple[Path, ...]] = (),
    force: Force = False,
    in_use: Read[SettingsInUse],
) -> None:
    """Compare methods on questions whose answers are known.

    This is bench run and bench report on one model and one set of questions, of which nothing else is kept. The table
    shows how well each uncertainty tells wrong answers from right ones (AUROC, with 95% intervals), the difference to
    the confidence on the same answers, and the seconds that the method needs on top. The preset is the paper's unless
    you name another.

    Example: `semtoken bench compare almanac --limit 100`

    Parameters
    ----------
    questions
        almanac, almanac-dev, nq, tqa, wq, or a file of JSON lines with question and answers. Default: almanac.
    limit
        Random sample of N questions; 0: all.
    output
        Write all figures here (.csv, .json) or the report (.md); may be repeated.
    """
    if wrong := [path for path in output if ending_of(path) not in (".csv", ".md", ".json")]:
        raise InvalidInputError(f"{wrong[0]}: the ending says what to write: .csv, .md or .json.")
    if scores is not None and not scores.is_file():
        raise InvalidInputError(f"There is no file of scores {scores}.")
    model = choice.with_settings(in_use.settings)
    from semtoken.bench.settings import settings_with
    from semtoken.bench.statistics.steps import require_similarity
    from semtoken.guarantees import Calibrator
    from semtoken.guarantees.labels import CONFIDENCE

    named = benchmarked(methods)
    content: dict[str, Any] = {
        "models": [model.name],
        "datasets": [questions],
        "methods": None if named is None else [CONFIDENCE, "stc", *named],
        "preset": model.preset,
        "equality": model.scoring.equality or None,
        "limit": limit or None,
    }
    settings = settings_with(None, content, {"batch_size": BATCH_SIZE, **model.loading})
    require_similarity(settings.methods)
    # refused before the work begins if it is of other rules; whatever else does not fit, after it
    fitted = None if calibrator is None else Calibrator.load(calibrator, rules=model.rules.signature)
    with kept_run(settings, fitted, scores) as made:
        from semtoken.bench.report.one_cell import as_json, markdown

        _show(made)
        texts = {".csv": made.csv["figures"], ".md": markdown(made), ".json": as_json(made)}
        for path in output:
            replace_text(path, texts[ending_of(path)])
            tell(f"Wrote {path}")


@contextmanager
def kept_run(
    settings: RunSettings, calibrator: Calibrator | None = None, scores: Path | None = None
) -> Iterator[BenchReport]:
    """The report of a run in the cache, where one of the same settings that was stopped goes on.

    What was done is deleted once the report has been shown and written, and kept if that fails.
    """
    from semtoken.bench.further_scores import with_scores
    from semtoken.bench.read_results import collect
    from semtoken.bench.report.content import build_report
    from semtoken.bench.run import require_all_done, run_benchmark

    run = cache_root() / "compare" / sha256(settings.model_dump_json().encode()).hexdigest()[:16]
    tell("The time left is shown while it runs. Ctrl-C keeps what is done, and the same command goes on from there.")
    try:
        with run_progress() as watcher:
            require_all_done(run_benchmark(settings, run, watcher=watcher))
        with only_errors("semtoken.metrics"):  # the table counts what is undefined
            results = collect(run)
            made = build_report(results if scores is None else with_scores(results, scores), calibrator=calibrator)
        yield made
    except BaseException:
        if run.exists():
            tell(f"What is done is kept in {run}: the same command goes on from there.", style="yellow")
        raise
    shutil.rmtree(run)


def _show(made: BenchReport) -> None:
    """Print the result in sentences, and the table of the methods where there are answers enough for one."""
    from semtoken.bench.report.one_cell import summary, with_seconds

    (cell,) = made.measured.cells
    say(summary(cell))
    for finding in made.findings:
        say(f"- {finding}")
    if cell.fewest < TOO_FEW:
        tell("No table is shown for so few answers: ask more questions.", style="yellow")
        return
    out().print(rich_table(with_seconds(made), out().width))


def rich_table(table: Table, width: int) -> Any:
    """A table of a report for a terminal of `width` columns: intervals under their values where that is narrow."""
    from rich.console import Console

    beside = _with_intervals(table, " ")
    needed = Console(width=10_000).measure(beside).maximum  # in a terminal where any table fits
    return beside if needed <= width else _with_intervals(table, "\n")


def _with_intervals(table: Table, between: str) -> Any:
    """The table with a text between each value and its interval."""
    from rich import box
    from rich.table import Column
    from rich.table import Table as RichTable
    from rich.text import Text

    columns = (Column(name, justify=side) for name, side in zip(table.header, table.alignments, strict=True))
    shown = RichTable(*columns, box=box.SIMPLE, pad_edge=False)
    for _, group in table.groups:
        for row in group:
            shown.add_row(*(Text(f"{entry.text}{between}{entry.detail}".rstrip()) for entry in row))
    return shown
