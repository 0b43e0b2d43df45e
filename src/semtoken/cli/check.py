"""`semtoken check`: saved replies in, the most doubtful answers out, or with --schema their most doubtful fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.choices import Distribution
from semtoken.cli.console import counting, out, tell, untrusted
from semtoken.cli.journal_options import AnswerKeeper, JournalChoice, journal_options
from semtoken.cli.one_by_one import ReplyView, is_one_reply, show_one_by_one
from semtoken.cli.options import (
    CalibratorOption,
    DistributionOption,
    ExecutorChoice,
    ForceOption,
    SchemaOption,
    executor_options,
    option_group,
    output_file,
)
from semtoken.errors import InvalidInput
from semtoken.support.extras import require
from semtoken.support.garbage import few_collections

if TYPE_CHECKING:
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.replies.checking import CheckedAnswer, CheckedReplies


WRITERS = (".html", ".md", ".csv", ".json", ".jsonl", ".parquet")
"""Endings of what `--output` may name."""
OBJECTS_OF_REPLIES = 100_000  # between two collections of garbage: a reply is thousands, all of which go with it
MOST_REASONS = 8
FEW_MISSING = 3
"""A field that more documents lack is one line, with their number."""
LONGEST_REASON = 300
"""So many reasons why replies were not scored are shown, and so many characters of each; files have all."""


@option_group(ReplyView, "how", "Replies one by one")
@journal_options()
@executor_options()
def check(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="REPLIES...", help="Files, folders or globs of saved replies; '-' for standard input."),
    ],
    questions: Annotated[
        Path | None,
        typer.Option("--questions", "-q", help="The questions or request bodies, joined by id or by order."),
    ] = None,
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="How many answers to show.")] = 20,
    output: Annotated[
        Path | None,
        output_file(
            "A page (.html), a table (.csv, .parquet), .md or .jsonl; .json has confidences in the shape of the fields."
        ),
    ] = None,
    schema: SchemaOption = None,
    calibrator: CalibratorOption = None,
    labels: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="What is right in replies to typed questions: JSON lines, or a .csv file."),
    ] = None,
    format: Annotated[
        str | None, typer.Option("--format", help="Shape of the replies. Default: recognised by their fields.")
    ] = None,
    distribution: DistributionOption = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop if a reply cannot be scored, instead of saying so beside the others.")
    ] = False,
    force: ForceOption = False,
    *,
    how: ReplyView,
    spread: ExecutorChoice,
    keeping: JournalChoice,
) -> None:
    """Show which of your saved answers to check first, and why.

    The replies have to hold log-probabilities (`logprobs`, `top_logprobs`), or the numbers of `semtoken serve` or
    `proxy`; no model is needed. Answers are ranked by one number, and a sentence says of each what is doubtful in it
    and what the model would have said instead. Files hold all answers, ranked, or with --schema the fields of JSON
    answers: value, confidence, what else was likely, and a decision.

    Of a single reply, and with --tokens, --json or another option of that group, each choice is shown by itself: its
    number, the interval that holds the exact one, its flags. --tokenizer makes intervals narrower.

    Replies to typed questions (`/v1/decisions`, `/v1/systemone`) are ranked by the probability of the chosen option.
    With them, `--questions` is the YAML file of the questions, `--calibrator` what `semtoken decide fit` wrote.

    For example:

    - `semtoken check replies/`
    - `semtoken check reply.json --tokens`
    - `semtoken check replies/ --questions questions.jsonl --top 20 -o page.html`
    - `semtoken check replies/ --schema invoice.schema.json -o fields.csv`
    - `cat batch_output.jsonl | semtoken check - -o doubtful.csv`
    - `curl -s localhost:8000/v1/chat/completions -d @request.json | semtoken check - --json`
    - `semtoken check million.jsonl -o doubtful.csv --executor ray --ray-workers 8`
    """
    from semtoken.decisions.saved import are_decisions
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.guarantees.promises import labels_needed
    from semtoken.replies.checking.answers import CheckSettings, check_replies
    from semtoken.replies.checking.fields import read_schema
    from semtoken.replies.checking.shards import check_in_shards
    from semtoken.replies.checking.tables import field_table, markdown, markdown_of_fields, rows_of

    ranking = (questions, output, schema, calibrator, labels, keeping.journal)
    if how.wanted or (all(option is None for option in ranking) and not strict and is_one_reply(sources)):
        if any(option is not None for option in ranking):
            raise InvalidInput(
                "--tokens, --json, --tokenizer and the other options of that group show replies one by one; leave them "
                "out to rank, to write files, or to use a calibrator or a journal."
            )
        show_one_by_one(sources, format, distribution, how)
        return
    if are_decisions(sources):
        check_decisions(sources, questions, labels, calibrator, top, output)
        return
    if labels is not None:
        raise InvalidInput("--labels are for replies to typed questions. For answers in text: `semtoken label`.")
    if output is not None and output.suffix.lower() not in WRITERS:
        raise InvalidInput(f"{output}: the ending says what to write: {', '.join(WRITERS)}.")
    if output is not None and output.suffix.lower() == ".json" and schema is None:
        raise InvalidInput(f"{output}: .json holds the fields of each document, which --schema names; give .jsonl.")
    if output is not None and output.suffix.lower() == ".parquet":
        require("pyarrow", extra="frames")
    spread.check(keeping.journal, files=output is not None and "-" not in sources)
    distributed = spread.load()
    applied = None if calibrator is None else CalibratorInUse.load(calibrator)
    wanted = None if schema is None else read_schema(schema)
    with keeping.keeper("check") as keeper:
        with few_collections(OBJECTS_OF_REPLIES), counting("checking replies", None) as progress:
            settings = CheckSettings(format, applied, wanted, keeper is not None, distribution)
            if distributed is None or output is None:
                checked = check_replies(sources, questions=questions, on_checked=progress, **vars(settings))
            else:
                folder = output.with_name(f"{output.name}.shards")
                checked = check_in_shards(
                    settings, sources, distributed, folder, questions=questions, on_checked=progress
                )
        if strict and checked.refused:
            raise InvalidInput(f"{_not_scored(checked)}\nNothing was written.")
        if keeper is not None:
            _keep(keeper, checked, applied)
    if wanted is not None:
        rows = field_table(checked)
        _show_fields([row for row in rows if row["error"] is None], top, calibrated=applied is not None)
        _conclude(checked)
        if output is not None:
            _write(checked, output, sources, questions, rows, markdown_of_fields(rows, top))
            tell(f"{output} holds {sum(row['error'] is None for row in rows):,} fields, ranked.")
        return
    shown = checked.answers[:top]
    _show_answers(shown, checked, calibrated=applied is not None)
    if applied is None:
        next_step = _how_to_label(sources, questions, format, distribution, output)
        tell(
            "For a threshold, label a random sample, 200 answers to begin with: a promise of at most 10% wrong among "
            f"the accepted takes {labels_needed(0, 0.1, 0.1)} at the very least. {next_step}"
        )
    if output is not None:
        _write(checked, output, sources, questions, rows_of(checked), markdown(checked, shown))
        unscored = f", and {len(checked.refused):,} replies without a score" if checked.refused else ""
        tell(f"{output} holds {len(checked.answers):,} answers, ranked{unscored}.")


def _how_to_label(
    sources: Sequence[str],
    questions: Path | None,
    format: str | None,
    distribution: Distribution | None,
    output: Path | None,
) -> str:
    """The commands that come next: they run where this one did."""
    if output is not None and output.suffix.lower() == ".jsonl":
        return f"Next: `semtoken label {quote(str(output))}`."
    if "-" in sources:  # what came over standard input is gone
        return "Next: give the same replies again with `-o answers.jsonl`, then `semtoken label answers.jsonl`."
    given = {"--questions": questions, "--format": format, "--distribution": distribution}
    options = (str(word) for name, value in given.items() if value is not None for word in (name, value))
    again = join(["check", *sources, *options])
    return f"Next: `semtoken {again} -o answers.jsonl`, then `semtoken label answers.jsonl`."


def _keep(keeper: AnswerKeeper, checked: CheckedReplies, applied: CalibratorInUse | None) -> None:
    """Write all answers to the journal, which wants their tokens, in the order in which they were read: the newest ones
    stand for the questions of today, which the most doubtful or the surest ones would not.
    """
    from semtoken.replies.checking.saved_blocks import NO_TOKENS

    if checked.n_from_block:
        raise InvalidInput(f"{checked.n_from_block:,} answers cannot be kept in the journal: {NO_TOKENS}.")
    keeper.uses(applied)
    for answer in sorted(checked.answers, key=lambda answer: answer.place):
        keeper.keep(answer.response, answer.calibration, applied, place=answer.id, question=answer.question)


def _show_answers(shown: Sequence[CheckedAnswer], checked: CheckedReplies, *, calibrated: bool) -> None:
    """Print the most doubtful answers, and what could not be scored."""
    from semtoken.core.results.headlines import RANKS
    from semtoken.replies.checking.tables import NOTE

    for answer in shown:
        _print(answer)
    if shown and not calibrated:
        out.print(untrusted(RANKS, style="dim"), soft_wrap=True)
    tell(f"{len(shown):,} of {len(checked.answers):,} answers, the most doubtful first. {NOTE}")
    _conclude(checked)


def _print(answer: CheckedAnswer) -> None:
    from semtoken.guarantees.apply import REFUSED
    from semtoken.support.text import shortened

    head = f"{answer.rank:>3}. {shortened(' '.join((answer.question or answer.id).split()), 100)}"
    out.print(untrusted(head, style="bold"), soft_wrap=True)
    out.print(untrusted(f"     {shortened(' '.join(answer.text.split()), 300)}"), soft_wrap=True)
    out.print(untrusted(f"     {answer.sentence}", style="yellow"), soft_wrap=True)
    refused = (answer.calibration or {}).get(REFUSED)
    for message in (*(flag.message for flag in answer.response.flags), *([refused] if refused else [])):
        out.print(untrusted(f"     ! {message}", style="magenta"), soft_wrap=True)
    number = (
        f"confidence {answer.response.headline.shown}{_decided(answer)}"  # the sentence above says which part is unsure
    )
    out.print(untrusted(f"     {number} · {answer.where}", style="dim"), soft_wrap=True)


def _decided(answer: CheckedAnswer) -> str:
    block = answer.calibration or {}
    chance = f" · chance {100 * block['chance']:.0f}%" if block.get("chance") is not None else ""
    return chance + (f" · {block['decision']}" if "decision" in block else "")


def _conclude(checked: CheckedReplies) -> None:
    """How questions were joined, and what could not be scored."""
    if checked.joined:
        tell(checked.joined)
    if checked.n_from_block:
        tell(
            f"{checked.n_from_block:,} of them hold no log-probabilities, but numbers that semtoken serve or proxy had "
            "put into them: these are shown. Save log-probabilities, too, to see which words are in doubt."
        )
    if checked.passed_over:
        names = [Path(name).name for name in checked.passed_over]
        others = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        tell(f"Passed over, since their names are not those of replies: {', '.join(names[:5])}{others}.")
    if checked.refused:
        tell(f"Warning: {_not_scored(checked)}", style="yellow")


def _not_scored(checked: CheckedReplies) -> str:
    """What could not be scored: how many for each reason, with the place of the first."""
    from semtoken.support.text import shortened

    reasons = checked.reasons()
    listed = [
        f"  {count:,}, the first {reply.where}: {shortened(reply.reason, LONGEST_REASON)}"
        for count, reply in reasons[:MOST_REASONS]
    ]
    if len(reasons) > MOST_REASONS:
        listed.append(f"  {sum(count for count, _ in reasons[MOST_REASONS:]):,} for other reasons")
    total = len(checked.refused) + len({answer.where for answer in checked.answers})
    return "\n".join([f"{len(checked.refused):,} of {total:,} replies could not be scored:", *listed])


def _name_of_sources(sources: Sequence[str]) -> str:
    """What a page calls the replies that were handed in: "replies", "may.jsonl and 2 more"."""
    first = "standard input" if sources[0] == "-" else Path(sources[0]).resolve().name or sources[0]
    return first if len(sources) == 1 else f"{first} and {len(sources) - 1} more"


def _write(
    checked: CheckedReplies,
    output: Path,
    sources: Sequence[str],
    questions: Path | None,
    rows: Sequence[Mapping[str, Any]],
    markdown: str,
) -> None:
    """Write the rows as a table, or the Markdown, or a page with the images of a file of questions."""
    from semtoken.cli.view import tell_lost
    from semtoken.replies.checking.tables import nested_fields, page_rows
    from semtoken.support.files.record_files import write_records
    from semtoken.support.files.safe_files import dump_json, replace_text
    from semtoken.web.page import static_page
    from semtoken.web.page.images import rows_with_images_of

    match output.suffix.lower():
        case ".html":
            shown, lost = page_rows(checked), 0
            if questions is not None:
                shown, lost = rows_with_images_of(shown, questions)
            replace_text(output, static_page({_name_of_sources(sources): shown}))
            tell_lost(lost)
        case ".md":
            replace_text(output, markdown)
        case ".json":
            replace_text(output, dump_json(nested_fields(checked), indent=1).decode() + "\n")
        case _:
            write_records(output, rows)


def _show_fields(rows: Sequence[Mapping[str, Any]], top: int, *, calibrated: bool) -> None:
    """Print the most doubtful fields, and what the decisions rest on."""
    from semtoken.core.parts.part import SOME_DOUBT
    from semtoken.core.results.headlines import RANKS
    from semtoken.replies.checking.fields import CHECK, sentence_of_field
    from semtoken.replies.checking.tables import NOTE
    from semtoken.support.text import shortened

    missing = Counter(row["path"] for row in rows if row["path"] and not row["present"])
    many = {path for path, count in missing.items() if count > FEW_MISSING}
    for path in sorted(many, key=lambda path: (-missing[path], path)):
        out.print(untrusted(f"{path} is missing in {missing[path]:,} documents", style="bold"), soft_wrap=True)
    listed = [row for row in rows if row["present"] or row["path"] not in many]
    for row in listed[:top]:
        where = f"{row['rank']:>3}. {row['document']}{row['path']}"
        value = shortened(" ".join(row["value"].split()), 80)
        out.print(untrusted(f"{where}: {value}", style="bold"), soft_wrap=True)
        out.print(untrusted(f"     {sentence_of_field(row)}", style="yellow"), soft_wrap=True)
    documents = {row["document"] for row in rows}
    doubtful = [row for row in rows if row["decision"] == CHECK]
    told = (
        f"{min(top, len(listed)):,} of {len(rows):,} fields in {len(documents):,} documents, the most doubtful first; "
    )
    tell(f"{told}{len(doubtful):,} are to be checked. {NOTE}")
    if not calibrated:
        tell(
            f"{RANKS} To be checked are fields under {SOME_DOUBT} and those that do not fit the schema. That promises "
            "nothing: for a promise label fields, run `semtoken calibrate`, and give --calibrator."
        )


def check_decisions(
    sources: Sequence[str],
    questions: Path | None,
    labels: Path | None,
    calibrator: Path | None,
    top: int,
    output: Path | None,
) -> None:
    """Show the most doubtful answers to typed questions."""
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.decisions.running import read_questions
    from semtoken.decisions.saved import decision_rows, saved_decisions
    from semtoken.support.files.record_files import write_records

    if output is not None and output.suffix.lower() not in (".csv", ".jsonl", ".parquet"):
        raise InvalidInput(f"{output}: answers to typed questions are written as .csv, .jsonl or .parquet.")
    asked = None if questions is None else read_questions(questions)
    decisions = saved_decisions(sources, labels=labels, questions=asked)
    fitted = None if calibrator is None else DecisionCalibrator.load(calibrator)
    rows = decision_rows(decisions, fitted)
    for row in rows[:top]:
        right = {True: " · right", False: " · wrong", None: ""}[row["correct"]]
        chance = "" if row.get("chance") is None else f" · chance {100 * row['chance']:.0f}%"
        decided = f" · {row['decision']}" if "decision" in row else ""
        out.print(untrusted(f"{row['rank']:>3}. {row['id']} · {row['question']}: {row['value']}", style="bold"))
        line = f"     {row['probability']:.3f}{chance}{decided}{right} · {row['where']}"
        out.print(untrusted(line, style="dim"), soft_wrap=True)
        for flag in row["flags"]:
            out.print(untrusted(f"     {flag}", style="yellow"), soft_wrap=True)
    tell(f"{min(top, len(rows)):,} of {len(rows):,} answers to typed questions, the most doubtful first.")
    if output is not None:
        write_records(output, rows)
        tell(f"{output} holds {len(rows):,} answers, ranked.")
