"""`semtoken bench report`, `judge` and `lm-eval`, and the group of the benchmark's commands."""

from __future__ import annotations

import json as jsons
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.cli.bench_run import run
from semtoken.cli.console import counting, err, out, plain_table, print_findings, tell, untrusted
from semtoken.cli.options import (
    BatchSizeOption,
    CalibratorOption,
    ForceOption,
    ModelChoice,
    OverwriteOption,
    ScoresOption,
    load_calibrator_for,
    model_options,
    output_file,
)
from semtoken.cli.typer_commands import CommandGroup, ShortHelp
from semtoken.errors import InvalidInput
from semtoken.support.extras import only_errors, quiet_libraries

if TYPE_CHECKING:
    from rich.table import Table

    from semtoken.bench.judges import Agreement, Judge, Verdict
    from semtoken.bench.report.content import BenchReport
    from semtoken.integrations.lm_eval import TaskFigures


NARROW = ("Right", "No verdict", "Greedy, s", "Place")
"""Columns of the overview that a terminal leaves out."""


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder, or the answers.parquet of a report.")],
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where the report goes. Default: RUN/report.", file_okay=False, writable=True),
    ] = None,
    judge: Annotated[
        str | None, typer.Option("--judge", "-j", help="Whose verdicts count. Default: the run's primary judge.")
    ] = None,
    n_resamples: Annotated[
        int, typer.Option(min=1, help="Resamples of the bootstrap, and exchanges of the tests.")
    ] = 1000,
    texts: Annotated[
        bool,
        typer.Option(help="Show questions and answers, and keep them in answers.parquet beside every answer's scores."),
    ] = True,
    scores: ScoresOption = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="The method to report on, or a column of --scores. Default: headline; without it stc, or else "
            "the first method.",
        ),
    ] = None,
    calibrator: CalibratorOption = None,
) -> None:
    """Make tables and figures of a run: how well each method tells wrong answers from right ones, and what it costs.

    Writes a page (index.html) that needs nothing else, and the same as Markdown, LaTeX, CSV, PNG and SVG: AUROC and
    PRR with 95% intervals and paired tests, risk and coverage, calibration, the surest wrong answers, overheads,
    ablations, the sensitivity study, clusters, judges. With --calibrator it says how its chances and its promise hold
    on these answers. A run that is not finished gives a report of what is complete. A former report is replaced when
    the new one is whole.
    The scores of every answer are kept in answers.parquet, from which the same report can be made again.

    For example:

    - `semtoken bench report runs/almanac`
    - `semtoken bench report runs/qwen --judge llm`
    - `semtoken bench report runs/qwen --calibrator my-calibrator`
    - `semtoken bench report runs/qwen/report/answers.parquet --out again`
    """
    from semtoken.bench.further_scores import with_scores
    from semtoken.bench.read_results import collect
    from semtoken.bench.report.content import build_report, check_replaceable, write_report
    from semtoken.guarantees import Calibrator
    from semtoken.methods.outside import is_outside
    from semtoken.support.files.outputs import check_not_inside

    if reference is not None and is_outside(reference):
        reference = reference.rpartition(":")[2]  # as `bench run --methods` was given it
    if run.is_file() and out_folder is None:
        raise InvalidInput("Name the folder of the new report with --out.")
    target = out_folder or run / "report"
    check_replaceable(target)
    check_not_inside(target, [run, *filter(None, (scores, calibrator))])
    loaded = None if calibrator is None else Calibrator.load(calibrator)
    results = collect(run)
    if scores is not None:
        results = with_scores(results, scores)
    with only_errors("semtoken.metrics"), ExitStack() as stack:  # the tables count what is undefined
        shown: list[Callable[[int], None]] = []

        def progress(done: int, total: int) -> None:
            if not shown:
                shown.append(stack.enter_context(counting("measuring", total)))
            shown[0](done)

        made = build_report(
            results,
            judge=judge,
            n_resamples=n_resamples,
            reference=reference,
            texts=texts,
            calibrator=loaded,
            progress=progress,
        )
    page = write_report(made, target)
    _show(made)
    tell(f"The report is in {page.parent}: open {page.name}.")


def _show(made: BenchReport) -> None:
    """Headline and overview."""
    from rich.text import Text

    print_findings(made)
    overview = next(table for table in made.tables if table.name == "overview")
    wanted = [i for i, name in enumerate(overview.header) if name not in NARROW]
    numbers = overview.header[overview.left :]
    shown = plain_table(*(overview.header[i] for i in wanted), numbers=numbers, gap=1)
    for _, rows in overview.groups:
        for row in rows:
            shown.add_row(*(Text(row[i].text) for i in wanted))
    out.print(shown)


def judge(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="ANSWERS",
            dir_okay=False,
            allow_dash=True,
            help="Answers with `question`, `answers` (the accepted ones) and `response`, as `semtoken score` writes "
            "them: a .jsonl, .csv or .parquet file, or '-' for JSON lines on standard input.",
        ),
    ],
    judges: Annotated[
        list[str],
        typer.Option(
            "--judge",
            "-j",
            help="'exact', 'contains', 'rouge', 'similarity', 'llm' or 'imported'; may be given several times. Or all "
            'settings of one as JSON: \'{"kind": "rouge", "threshold": 0.5, "name": "rouge at 0.5"}\'.',
        ),
    ] = ["exact"],  # noqa: B006  (typer reads the default, nothing changes it)
    output: Annotated[
        Path | None,
        output_file(
            "A .jsonl, .csv or .parquet file, or '-' for standard output. Default: ANSWERS.judged.jsonl beside "
            "the input."
        ),
    ] = None,
    llm_model: Annotated[str | None, typer.Option(help="The judging model [gpt-4.1-2025-04-14].")] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Any OpenAI-compatible endpoint, such as http://localhost:8000/v1.")
    ] = None,
    key_env: Annotated[str | None, typer.Option(help="Environment variable with the key [OPENAI_API_KEY].")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests at one time [8].")] = None,
    requests_per_minute: Annotated[float | None, typer.Option(help="Limit of requests [none].")] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder where earlier replies are kept [the user's cache].", file_okay=False, writable=True),
    ] = None,
    verdicts_file: Annotated[
        Path | None, typer.Option("--imported", help="Verdicts from elsewhere: .csv or .jsonl with 'id' and 'correct'.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="The column of verdicts in that file [correct].")] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Judge answers: is each correct, by which judge, and how far do the judges agree?

    An LLM judge gets the paper's prompt. Its replies are kept on disk by content: a second run asks nothing, one that
    was interrupted asks for the rest. Replies other than True or False are counted and are no verdict.

    For example:

    - `semtoken bench judge answers.jsonl --judge exact --judge rouge`
    - `OPENAI_API_KEY=... semtoken bench judge answers.jsonl -j exact -j llm --requests-per-minute 400`
    - `semtoken bench judge answers.jsonl -j llm --base-url http://localhost:8000/v1 --llm-model my-judge`
    - `semtoken bench judge answers.jsonl -j exact --imported people.csv`
    """
    from semtoken.bench.judges import agreement, correctness
    from semtoken.bench.judges.kinds import SimilarityJudge, read_answers, write_verdicts
    from semtoken.bench.judges.llm import LLMJudge
    from semtoken.support.files.record_files import STANDARD, as_file

    options: dict[str, dict[str, Any]] = {
        "llm": {
            "model": llm_model,
            "base_url": base_url,
            "key_env": key_env,
            "concurrency": concurrency,
            "requests_per_minute": requests_per_minute,
            "cache": cache,
        },
        "imported": {"path": verdicts_file and str(verdicts_file), "column": column},
    }
    target = output or (source if str(source) == STANDARD else source.with_suffix(".judged.jsonl"))
    _check_target(target, source, overwrite=overwrite)
    with as_file(source) as readable:
        items = read_answers(readable)
    chosen = _judges(judges, options, [item.question.id for item in items])
    if any(isinstance(chosen_judge, SimilarityJudge) for chosen_judge in chosen):
        quiet_libraries()
    verdicts: dict[str, list[Verdict]] = {}
    for chosen_judge in chosen:
        if isinstance(chosen_judge, LLMJudge):
            tell(f"{chosen_judge.name}: sending questions and answers to {chosen_judge.endpoint.url}.")
        with counting(f"judging: {chosen_judge.name}", len(items)) as progress:
            verdicts[chosen_judge.name] = chosen_judge.judge(items, progress)
    write_verdicts(target, items, verdicts)
    console = err if str(target) == STANDARD else out
    console.print(_counts_table(verdicts))
    if len(chosen) > 1:
        console.print()
        console.print(_agreement_table(agreement({name: correctness(said) for name, said in verdicts.items()})))
    _tell_spent(chosen)
    if str(target) != STANDARD:
        tell(f"{len(items):,} answers in {target}.")


def _judges(wanted: Sequence[str], options: Mapping[str, Mapping[str, Any]], ids: Sequence[str]) -> list[Judge]:
    """The judges that were asked for; an option for a judge that was not asked for adds it."""
    from semtoken.bench.judges.kinds import judge_from
    from semtoken.bench.settings import first_repeated

    given = {kind: {k: v for k, v in values.items() if v is not None} for kind, values in options.items()}
    kinds = list(dict.fromkeys([*wanted, *(kind for kind in options if given[kind] and kind not in wanted)]))
    settings = [_parsed(kind) if kind.startswith("{") else {"kind": kind, **given.get(kind, {})} for kind in kinds]
    chosen = [judge_from(own, ids=ids) for own in settings]
    if twice := first_repeated(chosen_judge.name for chosen_judge in chosen):
        raise InvalidInput(f"Two judges have the name {twice!r}; give one another 'name'.")
    return chosen


def _parsed(text: str) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = jsons.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--judge {text!r} is no JSON: {error}.") from error
    return settings


def _check_target(target: Path, source: Path, *, overwrite: bool) -> None:
    """Refuse before the work begins what would fail after it."""
    from semtoken.support.files.outputs import check_not_read
    from semtoken.support.files.record_files import STANDARD, format_of

    if str(target) == STANDARD:
        return
    format_of(target)
    check_not_read([target], [source])
    if target.exists() and not overwrite:
        raise InvalidInput(f"{target} exists. Choose another output, or replace it with --force.")


def _counts_table(verdicts: Mapping[str, Sequence[Verdict]]) -> Table:
    from semtoken.bench.judges import correctness, tally

    figures = ("correct", "incorrect", "no verdict", "accuracy")
    table = plain_table("judge", *figures, numbers=figures, gap=1)
    for name, said in verdicts.items():
        count = tally(correctness(said))
        table.add_row(name, f"{count.correct:,}", f"{count.incorrect:,}", f"{count.missing:,}", f"{count.accuracy:.1%}")
    return table


def _agreement_table(pairs: Sequence[Agreement]) -> Table:
    figures = ("both", "only 1st", "only 2nd", "neither", "agree", "kappa")
    table = plain_table("first", "second", *figures, numbers=figures, gap=1)
    for pair in pairs:
        counts = (pair.both_correct, pair.only_first, pair.only_second, pair.both_incorrect)
        shares = (f"{pair.agreement:.1%}", f"{pair.kappa:.3f}")
        table.add_row(pair.first, pair.second, *(f"{n:,}" for n in counts), *shares)
    return table


def _tell_spent(judges: Sequence[Judge]) -> None:
    """What a language model took, new replies only."""
    from semtoken.bench.judges.llm import LLMJudge

    for used_judge in judges:
        if isinstance(used_judge, LLMJudge):
            spent = used_judge.spent
            tell(
                f"{used_judge.name}: {spent.replies:,} new replies, {spent.prompt_tokens:,} prompt tokens "
                f"({spent.cached_prompt_tokens:,} of them cached by the endpoint), {spent.completion_tokens:,} "
                f"completion tokens; {used_judge.relied_on.replies - spent.replies:,} replies from disk."
            )


@model_options()
def lm_eval(
    *,
    tasks: Annotated[str, typer.Option(help="Tasks of the harness, separated by commas: 'triviaqa,nq_open'.")],
    choice: ModelChoice,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Ask at most this many questions of each task. Default: all.")
    ] = None,
    num_fewshot: Annotated[
        int | None, typer.Option(min=0, help="Examples before each question. Default: as the task has it.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Ask in the model's chat template.")] = False,
    include_path: Annotated[
        Path | None, typer.Option(help="A folder with tasks of your own (YAML).", exists=True, file_okay=False)
    ] = None,
    batch_size: BatchSizeOption = 8,
    calibrator: CalibratorOption = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the harness's results and ours here.", dir_okay=False, writable=True)
    ] = None,
    force: ForceOption = False,
) -> None:
    """Run tasks of lm-evaluation-harness, with AUROC, PRR and calibration of the uncertainty beside their accuracy.

    It wraps the task as it is: its prompts, its stop strings, its metrics. The uncertainty comes from the one
    generation that the task asks for. Install the harness yourself: pip install lm-eval.

    For example:

    - `semtoken bench lm-eval --tasks triviaqa --limit 200`
    - `semtoken bench lm-eval --tasks nq_open --num-fewshot 5 --model Qwen/Qwen2.5-3B --json nq.json`
    """
    from semtoken.integrations.lm_eval import SemtokenLM, evaluate
    from semtoken.support.files.safe_files import finite, replace_text

    if not choice.verbose:
        quiet_libraries()
    stc = choice.load(calibrator=calibrator)
    results, figures = evaluate(
        SemtokenLM(stc, batch_size=batch_size),
        [name.strip() for name in tasks.split(",") if name.strip()],
        limit=limit,
        num_fewshot=num_fewshot,
        chat=chat,
        include_path=include_path,
        calibrator=load_calibrator_for(stc, calibrator, choice.model),
    )
    if json is not None:
        content = {"uncertainty": [asdict(task) for task in figures], "results": results["results"]}
        replace_text(json, jsons.dumps(finite(content), indent=1, ensure_ascii=False, default=str) + "\n")
    _show_tasks(results, figures)


def _show_tasks(results: dict[str, Any], figures: list[TaskFigures]) -> None:
    if not figures:
        names = ", ".join(results["results"])
        tell(f"No task gave answers with a metric from 0 to 1, so there is nothing to say of the uncertainty: {names}.")
        return
    for task in figures:
        f = task.figures
        metric = task.metric if task.filter == "none" else f"{task.metric} ({task.filter})"
        out.print(untrusted(f"{task.task}: {f['n']:,.0f} answers, {metric} {task.accuracy:.3f}", style="bold"))
        told = f", {f['chance_ece']:.3f} of the chance" if "chance_ece" in f else ""
        out.print(f"  AUROC (95%)            {_interval(f, 'auroc')}", soft_wrap=True)
        out.print(f"  PRR (95%)              {_interval(f, 'prr')}", soft_wrap=True)
        out.print(f"  wrong, the surer half   {f['risk_at_50']:.3f}, all {f['risk_at_100']:.3f}", soft_wrap=True)
        out.print(f"  calibration error       {f['ece']:.3f} of 1 - uncertainty{told}", soft_wrap=True)


def _interval(figures: Mapping[str, float], name: str) -> str:
    value, low, high = (figures[f"{name}{end}"] for end in ("", "_low", "_high"))
    return "undefined: all right, or all wrong" if math.isnan(value) else f"{value:.3f} [{low:.3f}, {high:.3f}]"


app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="The paper's experiment on any model: answers, uncertainties, judgements, tables.",
)
app.command(cls=ShortHelp)(run)
app.command(cls=ShortHelp)(report)
app.command(cls=ShortHelp)(judge)
app.command("lm-eval", cls=ShortHelp)(lm_eval)
