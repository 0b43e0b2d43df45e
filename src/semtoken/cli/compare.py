"""`semtoken compare`: the benchmark on one model and one set of questions, with nothing kept but its tables."""

from __future__ import annotations

import json as jsons
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.cli.bench_run import run_bars
from semtoken.cli.console import out, print_findings, tell
from semtoken.cli.options import (
    BatchSizeOption,
    CalibratorOption,
    ControlsOption,
    ForceOption,
    JudgesOption,
    MaxNewTokensOption,
    ModelChoice,
    NliOption,
    ScoresOption,
    SimilarityOption,
    calibrator_of_rules,
    model_options,
)
from semtoken.errors import MissingExtra
from semtoken.support.almanac import ALMANAC
from semtoken.support.extras import only_errors, quiet_libraries, require_installed
from semtoken.support.files.safe_files import finite, replace_text
from semtoken.support.installation import cache_root

if TYPE_CHECKING:
    from semtoken.bench.report.content import BenchReport
    from semtoken.bench.report.measure import MeasuredCell
    from semtoken.bench.report.table import Table
    from semtoken.bench.settings import RunSettings
    from semtoken.guarantees import Calibrator

DEFAULT_LIMIT = 500
TOO_FEW = 5
"""With fewer right or wrong answers the terminal shows no figures."""
SECONDS = ("seconds", "percent of generation time")


@model_options(preset="paper")
def compare(
    questions: Annotated[
        str,
        typer.Argument(
            help="'almanac' (test questions of the built-in model), 'almanac-dev', 'nq', 'tqa', 'wq', or a file of "
            'JSON lines: {"question": "...", "answers": ["...", ...]}.'
        ),
    ] = ALMANAC,
    *,
    choice: ModelChoice,
    limit: Annotated[
        int, typer.Option(min=0, help="Ask a random sample of this many questions, the same for the same seed; 0: all.")
    ] = DEFAULT_LIMIT,
    methods: Annotated[
        str,
        typer.Option(
            help="Compare these methods only, separated by commas: 'perplexity,sar', or a function of your own: "
            "'path/to/file.py:function'. The headline and STC are always included."
        ),
    ] = "",
    judge: JudgesOption = None,
    controls: ControlsOption = False,
    samples: Annotated[int, typer.Option(min=1, help="Number of sampled answers for each question.")] = 5,
    temperature: Annotated[float, typer.Option(min=0.01, help="Temperature of the sampled answers.")] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice of questions and of the sampled answers.")] = 0,
    nli: NliOption = None,
    similarity: SimilarityOption = None,
    max_new_tokens: MaxNewTokensOption = 256,
    batch_size: BatchSizeOption = 32,
    calibrator: CalibratorOption = None,
    scores: ScoresOption = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write all figures here as CSV.", dir_okay=False, writable=True)
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the report here as Markdown.", dir_okay=False, writable=True)
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(help="Write all figures here as JSON, with settings and seconds.", dir_okay=False, writable=True),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Compare the headline with STC and fifteen other methods on questions whose answers are known.

    This is `semtoken bench run` and `bench report` on one model and one set of questions: the same prompts, presets,
    judges, tests and tables. Only these are kept, unless it is stopped: then the same command goes on from there. Use
    `bench run` for more models.
    The table says how well each uncertainty tells wrong answers from right ones (AUROC, with 95% intervals), the
    difference to the headline on the same answers, and the seconds that the method needs on top of the greedy ones.
    With --calibrator it also says how its chances and its promise hold on these answers; give the --preset that it was
    made with.

    For example:

    - `semtoken compare`
    - `semtoken compare --limit 0 --json compare.json --markdown compare.md`
    - `semtoken compare questions.jsonl --model smollm2 --methods sequence_probability,perplexity,p_true --judge rouge`
    """
    from semtoken.bench.settings import check_settings
    from semtoken.guarantees.labels import HEADLINE

    if not choice.verbose:
        quiet_libraries()
    same = ("backend", "clusters", "device", "dtype", "revision", "trust_remote_code")
    of_model = {"name": choice.model, "batch_size": batch_size} | {name: getattr(choice, name) for name in same}
    named = [name.strip() for name in methods.split(",") if name.strip()]
    content: dict[str, Any] = {
        "models": [{name: value for name, value in of_model.items() if value is not None}],
        "datasets": [questions],
        "methods": [HEADLINE, "stc", *named] if named else None,
        "judges": judge,
        "controls": controls or None,
        "preset": choice.preset,
        "equality": choice.equality,
        "function_words": choice.function_words,
        "limit": limit or None,
        "seed": seed,
        "decoding": {
            "max_new_tokens": max_new_tokens,
            "n_samples": samples,
            "temperature": temperature,
            "seed": seed,
        },
        "nli": nli,
        "similarity": similarity,
    }
    settings = check_settings({name: value for name, value in content.items() if value is not None}, "The options")
    _require_similarity(settings)
    # refused before the work begins if it is of other rules; whatever else does not fit, after it
    fitted = None if calibrator is None else calibrator_of_rules(calibrator, choice.rules)
    with kept_run(settings, fitted, scores) as made:
        _show(made)
        for path, text in ((csv, made.csv["figures"]), (markdown, _markdown(made)), (json, _json(made))):
            if path is not None:
                replace_text(path, text)
                tell(f"Wrote {path}")


def _require_similarity(settings: RunSettings) -> None:
    """Refuse at once, and not after the answers are made, methods whose cross-encoder cannot be loaded here."""
    from semtoken.bench.statistics.steps import STEP, steps_for
    from semtoken.methods import METHODS

    needing = [
        name for name in settings.methods if any(STEP[s].asks == "similarity" for s in steps_for(METHODS[name].needs))
    ]
    if needing:
        try:
            require_installed("sentence_transformers", extra="similarity")
        except MissingExtra as error:
            others = ",".join(
                name for name in settings.methods if name not in needing and name not in ("headline", "stc")
            )
            raise MissingExtra(f"{error}\nOr leave out the methods that read it: --methods {others}") from error


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
        with run_bars() as bars:
            require_all_done(run_benchmark(settings, run, watcher=bars))
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
    """What came out in sentences, and the table of the methods where there are answers enough for one."""
    from rich.text import Text

    (cell,) = made.measured.cells
    out.print(Text(_summary(cell)), soft_wrap=True)
    print_findings(made)
    if cell.fewest < TOO_FEW:
        tell("No table is shown for so few answers: ask more questions.", style="yellow")
        return
    out.print(rich_table(_table(made, cell), out.width))


def _summary(cell: MeasuredCell) -> str:
    """What was asked, in one sentence."""
    return (
        f"{cell.n:,} questions, {cell.counts.correct:,} answered right ({cell.counts.accuracy:.1%}); the greedy "
        f"generation took {cell.greedy_seconds:.1f} s, seconds are beyond it."
    )


def _table(made: BenchReport, cell: MeasuredCell) -> Table:
    """The tests of the report by AUROC, with the seconds of each method."""
    from semtoken.bench.report.measure import title_of
    from semtoken.bench.report.table import amount

    tests = next(table for table in made.tables if table.name == "reference_auroc")
    seconds = {title_of(name): amount(value) for name, value in cell.seconds.items()}
    return replace(tests, frame=tests.frame.assign(seconds=tests.frame["Method"].map(seconds)))


def rich_table(table: Table, width: int) -> Any:
    """A table of a report for a terminal of `width` columns: intervals under their values where that is narrow."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    rows = [[(entry.text, entry.detail) for entry in row] for _, group in table.groups for row in group]
    widest = [max(len(f"{text} {detail}") for text, detail in column) for column in zip(*rows, strict=True)]
    between = " " if sum(widest) + 2 * len(widest) <= width else "\n"
    shown = RichTable(box=box.SIMPLE, pad_edge=False)
    for name, side in zip(table.header, table.alignments, strict=True):
        shown.add_column(name, justify=side)
    for row in rows:
        shown.add_row(*(Text(f"{text}{between}{detail}".rstrip()) for text, detail in row))
    return shown


def _markdown(made: BenchReport) -> str:
    """The tables of the report."""
    from semtoken.bench.report.table import markdown_table

    (cell,) = made.measured.cells
    lines = [
        f"- {line}" for section in made.sections if section.name in ("headline", "calibrator") for line in section.lines
    ]
    return "\n\n".join([_summary(cell), "\n".join(lines), *map(markdown_table, made.tables)]).rstrip() + "\n"


def _json(made: BenchReport) -> str:
    """Everything. What a second run repeats is under "figures" and "tests", what it does not under "seconds"."""
    (cell,) = made.measured.cells
    content = {
        "settings": dict(made.settings),
        "n": cell.n,
        "n_correct": cell.counts.correct,
        "n_incorrect": cell.counts.incorrect,
        "figures": made.measured.figures[~made.measured.figures.metric.isin(SECONDS)].to_dict("records"),
        "tests": made.measured.tests.to_dict("records"),
        "seconds": {
            "greedy": cell.greedy_seconds,
            "methods": dict(cell.seconds),
        },
    }
    return jsons.dumps(finite(content), indent=2, allow_nan=False) + "\n"
