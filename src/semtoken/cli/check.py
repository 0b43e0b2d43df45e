"""`semtoken check`: saved replies in, the most doubtful answers out, or with --schema their most doubtful fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from semtoken.cli.console import counting, out, print_json, print_scores, say, tell, untrusted
from semtoken.cli.journals import kept_answers
from semtoken.cli.loading import by_kind, check_executor, load_executor, names_in, rules_of
from semtoken.cli.parameters import (
    Calibrator,
    Force,
    JournalUrl,
    Json,
    Labels,
    Limit,
    Methods,
    Questions,
    Schema,
    ShowTokens,
    Strict,
    ToFile,
    Tokenizer,
)
from semtoken.cli.settings import Read, SettingsInUse
from semtoken.cli.statuses import UsageError, refuse_useless, typed_options
from semtoken.errors import InvalidInputError
from semtoken.support.files.safe_files import ending_of
from semtoken.support.text import with_noun

if TYPE_CHECKING:
    from semtoken.replies.checking import RankedAnswer, RankedReplies
    from semtoken.replies.checking.answers import CheckSettings
    from semtoken.replies.checking.finding import OpenedReplies


@Parameter(name="*")
@dataclass(frozen=True)
class ReplyOptions:
    """The options that only replies in text have."""

    tokenizer: Tokenizer = None
    methods: Methods = None
    tokens: ShowTokens = False
    journal: JournalUrl = None
    format: str | None = None
    """Format of the replies, if it is not recognized."""
    strict: Strict = False


def check(
    *paths: Annotated[str, Parameter(metavar="PATH", required=True)],
    output: ToFile[Path | None] = None,
    limit: Limit[int] = 20,
    questions: Questions = None,
    schema: Schema = None,
    labels: Labels = None,
    calibrator: Calibrator = None,
    of_replies: ReplyOptions = ReplyOptions(),
    force: Force = False,
    as_json: Json = False,
    in_use: Read[SettingsInUse],
) -> None:
    """Rank saved replies, the most doubtful first.

    The replies must hold log-probabilities, or the scores added by semtoken serve or proxy. No model is needed. A file
    ending in .html is a page on which you can label answers. Replies to typed questions are ranked by the probability
    of the chosen option.

    Example: `semtoken check replies/ -o page.html`

    Parameters
    ----------
    paths
        Replies, or answers written by score: files, folders, patterns, or - for standard input.
    output
        Write all answers here; the ending sets the format (.html, .md, .csv, .jsonl, .parquet; .json with
        --schema).
    limit
        Number of answers to print.
    """
    from semtoken.decisions.saved import is_decision
    from semtoken.guarantees.answer_records import are_scored
    from semtoken.replies.checking.finding import OpenedReplies
    from semtoken.replies.checking.shards import check_by
    from semtoken.replies.checking.tables import field_table
    from semtoken.replies.formats.registry import format_named

    options = {**typed_options(of_replies), "--schema": schema, "--json": as_json}
    if are_scored(Path(paths[0])):
        typed = {**options, "--questions": questions, "--labels": labels}
        _write_scored([Path(path) for path in paths], output, calibrator, typed)
        return
    if of_replies.format is not None:  # a name that there is not is no fault of the replies
        format_named(of_replies.format)
    replies = OpenedReplies(paths)
    if replies.first is not None and is_decision(replies.first):
        refuse_useless(options, "on replies to typed questions")
        check_decisions(replies, questions, labels, calibrator, limit, output)
        return
    refuse_useless({"--labels": labels}, "on answers in text, which `semtoken label` marks")
    tokens, journal = of_replies.tokens, of_replies.journal
    if as_json and schema is not None and tokens:
        raise UsageError("--tokens has no effect with --schema: leave it out.")
    if output is not None:
        from semtoken.web.page.ranked import require_ending

        require_ending(output, fields=schema is not None)
    settings = _settings(in_use, of_replies, calibrator, schema, keep_tokens=bool(journal) or tokens or as_json)
    executor = in_use.settings.executor
    files = output is not None and "-" not in replies.sources and not (tokens or as_json)
    check_executor(executor, journal, files=files)
    with kept_answers(journal, in_use.settings.journal, "check") as keeper:
        with counting("checking replies", None) as progress:
            checked = check_by(load_executor(executor), replies, settings, questions, output, progress)
        # Before anything is kept or written: --strict is for jobs that must not go on with half of the replies.
        if of_replies.strict and checked.refused:
            raise InvalidInputError(f"{checked.not_scored}\nNothing was written.")
        if keeper is not None:
            checked.keep(keeper, settings.calibrator)
            tell(f"{with_noun(len(checked.answers), 'answer')} written to the journal {journal}.")
    calibrated = settings.calibrator is not None
    fields = None if schema is None else [row for row in field_table(checked) if row["error"] is None]
    try:
        if as_json:
            _print_records(checked, fields, limit)
        elif fields is None:
            _show_answers(checked, limit, calibrated=calibrated, tokens=tokens)
        else:
            _show_fields(fields, limit, calibrated=calibrated)
        for remark in checked.remarks:
            tell(remark)
        if checked.refused:
            tell(f"Warning: {checked.not_scored}", style="yellow")
        if not as_json and not calibrated and fields is None:
            _tell_next(replies.sources, questions, of_replies.format, output)
    finally:  # a file is wanted whole, also by those who look at the first lines only (`| head`)
        if output is not None:
            _write(checked, output, replies.sources, questions, limit, fields)


def _write_scored(
    paths: Sequence[Path], output: Path | None, calibrator: Path | None, options: Mapping[str, object]
) -> None:
    """Write the page of answers that are scored already; `UsageError` for options of saved replies."""
    from semtoken.support.files.safe_files import replace_text
    from semtoken.web.page.scored import page_of_scored

    if options["--journal"] is not None:  # the general message below says only that it has no effect, and not why
        raise UsageError(
            "--journal keeps the tokens that a model was unsure of, and a file of scored answers has none: give "
            "the saved replies themselves, or leave it out."
        )
    refuse_useless(options, "on answers that are scored already")
    if output is None or ending_of(output) != ".html":
        raise UsageError("Answers that are scored already can be shown as a page: name it, -o page.html.")
    page = page_of_scored(paths, calibrator)
    replace_text(output, page.html)
    _tell_lost(page.lost_images)
    size = f"{with_noun(page.n_answers, 'answer')}, {len(page.html) / 1e3:.0f} kB"
    tell(f"The page is {output} ({size}). Open it in a browser.")


def _tell_lost(images: int) -> None:
    if images:
        tell(f"Warning: the page lacks {with_noun(images, 'image')}, which cannot be read.", style="yellow")


def _settings(
    in_use: SettingsInUse,
    options: ReplyOptions,
    calibrator: Path | None,
    schema: Path | None,
    *,
    keep_tokens: bool,
) -> CheckSettings:
    """The way to read and score replies, as options and settings say."""
    from semtoken.core.given_tokens import as_tokens
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.methods.observers.method_scores import FROM_BEST, chosen_methods
    from semtoken.replies.checking.answers import CheckSettings
    from semtoken.replies.checking.fields import are_of_fields, read_schema

    if calibrator is not None and by_kind([calibrator])[0] is None:
        raise UsageError(f"{calibrator} is a calibrator of typed questions, and these are answers in text.")
    applied = None if calibrator is None else CalibratorInUse.load(calibrator)
    if applied is not None and schema is None and are_of_fields(applied.calibrator.fingerprint.signature):
        raise UsageError(f"{calibrator} is a calibrator of JSON fields: give the --schema that names them.")
    endpoint, scoring = in_use.settings.endpoint, in_use.settings.scoring
    methods = scoring.methods if options.methods is None else (options.methods,)
    return CheckSettings(
        format=options.format,
        calibrator=applied,
        schema=None if schema is None else read_schema(schema),
        keep_tokens=keep_tokens,
        distribution=endpoint.distribution or None,
        vocabulary=None if options.tokenizer is None else as_tokens(options.tokenizer),
        rules=rules_of(scoring),
        methods=chosen_methods(names_in(*methods), FROM_BEST),
        temperature=None if endpoint.temperature == 1 else endpoint.temperature,
        answering_model=endpoint.answering_model or None,
    )


def _write(
    checked: RankedReplies,
    output: Path,
    sources: Sequence[str],
    questions: Path | None,
    limit: int,
    fields: Sequence[Mapping[str, Any]] | None,
) -> None:
    """Write all answers, or all fields of them, and say how many there are."""
    from semtoken.web.page.ranked import title_of, write_ranked

    how: dict[str, Any] = {"questions": questions, "limit": limit, "fields": fields is not None}
    _tell_lost(write_ranked(checked, output, title=title_of(sources), **how))
    if fields is not None:
        tell(f"{output} holds {with_noun(len(fields), 'field')}, ranked.")
        return
    unscored = f", and {with_noun(len(checked.refused), 'reply')} without a score" if checked.refused else ""
    tell(f"{output} holds {with_noun(len(checked.answers), 'answer')}, ranked{unscored}.")


def _tell_next(sources: Sequence[str], questions: Path | None, format: str | None, output: Path | None) -> None:
    from semtoken.guarantees.exact import labels_needed

    tell(
        "For a threshold, label a random sample, 200 answers to begin with: a guarantee of at most 10% wrong among the "
        f"accepted takes {labels_needed(0, 0.1, 0.1)} at the very least. "
        f"{_how_to_label(sources, questions, format, output)}"
    )


def _how_to_label(
    sources: Sequence[str],
    questions: Path | None,
    format: str | None,
    output: Path | None,
) -> str:
    """The commands that come next: they run where this one did."""
    if output is not None and ending_of(output) == ".jsonl":
        return f"Next: `semtoken label {quote(str(output))}`."
    if "-" in sources:  # what came over standard input is gone
        return "Next: give the same replies again with `-o answers.jsonl`, then `semtoken label answers.jsonl`."
    given = {"--questions": questions, "--format": format}
    options = (str(word) for name, value in given.items() if value is not None for word in (name, value))
    again = join(["check", *sources, *options])
    return f"Next: `semtoken {again} -o answers.jsonl`, then `semtoken label answers.jsonl`."


def _print_records(checked: RankedReplies, fields: Sequence[Mapping[str, Any]] | None, limit: int) -> None:
    """Print the most doubtful answers, or fields, as JSON lines."""
    answers = (answer.to_dict() for answer in checked.answers[:limit])
    for record in answers if fields is None else fields[:limit]:
        print_json(record)


def _show_answers(checked: RankedReplies, limit: int, *, calibrated: bool, tokens: bool) -> None:
    """Print the most doubtful answers."""
    from semtoken.core.results.confidence import RANKS
    from semtoken.replies.checking.tables import NOTE

    shown = checked.answers[:limit]
    for answer in shown:
        _print(answer)
        if tokens:
            _print_tokens(answer)
    if shown and not calibrated:
        say(RANKS, "dim")
    tell(f"{len(shown):,} of {with_noun(len(checked.answers), 'answer')}, the most doubtful first. {NOTE}")


def _print(answer: RankedAnswer) -> None:
    from semtoken.guarantees.apply import decided
    from semtoken.support.text import shortened, with_bounds

    head = f"{answer.rank:>3}. {shortened(' '.join((answer.question or answer.id).split()), 100)}"
    say(head, "bold")
    say(f"     {shortened(' '.join(answer.text.split()), 300)}")
    say(f"     {answer.explanation}", "yellow")
    for message in answer.messages:
        say(f"     ! {message}", "magenta")
    if answer.doubt is None:  # a doubt names its part itself
        say(f"     {answer.response.explanation}")
    shown = with_bounds(answer.confidence, answer.response.confidence_interval, digits=2)
    facts = [f"confidence {shown}", *decided(answer.calibration or {}), answer.where]
    say(f"     {' · '.join(facts)}", "dim")
    print_scores(answer.response)


def _print_tokens(answer: RankedAnswer) -> None:
    """Each token with its probability and what else was likely; of an answer whose reply lists none, that it does."""
    from rich.padding import Padding

    from semtoken.display import token_table

    if answer.from_block:
        out().print("     The reply holds no log-probabilities, so its tokens cannot be shown.", style="dim")
        return
    out().print(Padding(token_table(answer.response), (0, 0, 0, 5)))


def _show_fields(rows: Sequence[Mapping[str, Any]], top: int, *, calibrated: bool) -> None:
    """Print the most doubtful fields, and what the decisions rest on."""
    from semtoken.core.parts.part import SOME_DOUBT
    from semtoken.core.results.confidence import RANKS
    from semtoken.replies.checking.fields import CHECK, often_missing, sentence_of_field
    from semtoken.replies.checking.tables import NOTE
    from semtoken.support.text import shortened

    missing = often_missing(rows)
    for path, count in missing.items():
        say(f"{path} is missing in {with_noun(count, 'document')}", "bold")
    listed = [row for row in rows if row["present"] or row["path"] not in missing]
    for row in listed[:top]:
        where = f"{row['rank']:>3}. {row['document']}{row['path']}"
        value = shortened(" ".join(row["value"].split()), 80)
        say(f"{where}: {value}", "bold")
        say(f"     {sentence_of_field(row)}", "yellow")
    documents = {row["document"] for row in rows}
    doubtful = [row for row in rows if row["decision"] == CHECK]
    tell(
        f"{min(top, len(listed)):,} of {with_noun(len(rows), 'field')} in {with_noun(len(documents), 'document')}, "
        f"the most doubtful first; {len(doubtful):,} are to be checked. {NOTE}"
    )
    if not calibrated:
        tell(
            f"{RANKS} To be checked are fields under {SOME_DOUBT} and those that do not fit the schema. That "
            "guarantees "
            "nothing: for a guarantee label fields, run `semtoken calibrate`, and give --calibrator."
        )


def check_decisions(
    replies: OpenedReplies,
    questions: Path | None,
    labels: Path | None,
    calibrator: Path | None,
    top: int,
    output: Path | None,
) -> None:
    """Show the most doubtful answers to typed questions."""
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.decisions.saved import decision_rows, saved_decisions
    from semtoken.guarantees.apply import decided
    from semtoken.support.files.record_files import write_records

    if output is not None and ending_of(output) not in (".csv", ".jsonl", ".parquet"):
        raise InvalidInputError(f"{output}: answers to typed questions are written as .csv, .jsonl or .parquet.")
    if calibrator is not None and by_kind([calibrator])[1] is None:
        raise UsageError(f"{calibrator} is a calibrator of answers in text, and these are answers to typed questions.")
    decisions = saved_decisions(replies, labels=labels, questions=questions)
    fitted = None if calibrator is None else DecisionCalibrator.load(calibrator)
    rows = decision_rows(decisions, fitted)
    for row in rows[:top]:
        right = {True: ["right"], False: ["wrong"], None: []}[row["correct"]]
        out().print(untrusted(f"{row['rank']:>3}. {row['id']} · {row['question']}: {row['value']}", style="bold"))
        facts = [f"{row['probability']:.3f}", *decided(row), *right, row["where"]]
        say(f"     {' · '.join(facts)}", "dim")
        for flag in row["flags"]:
            say(f"     {flag}", "yellow")
    tell(f"{min(top, len(rows)):,} of {with_noun(len(rows), 'answer')} to typed questions, the most doubtful first.")
    if output is not None:
        write_records(output, rows)
        tell(f"{output} holds {with_noun(len(rows), 'answer')}, ranked.")
