"""`semtoken bench judge`: verdicts on answers in a file, and how far the judges agree."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from semtoken.cli.console import counting, err, out, plain_table, tell
from semtoken.cli.outputs import beside
from semtoken.cli.parameters import JudgeNamed, Output, Overwrite
from semtoken.cli.settings import Read, SettingsInUse
from semtoken.errors import InvalidInputError
from semtoken.support.text import with_noun

if TYPE_CHECKING:
    from rich.table import Table

    from semtoken.bench.judges import Agreement, Verdict


def judge(
    file: Path,
    /,
    *,
    judges: JudgeNamed[tuple[str, ...]] = ("exact",),
    output: Output = None,
    llm_model: str | None = None,
    base_url: Annotated[str | None, Parameter(metavar="URL")] = None,
    imported: Path | None = None,
    overwrite: Overwrite = False,
    in_use: Read[SettingsInUse],
) -> None:
    """Judge answers, and see how far the judges agree.

    Without --output the verdicts go to FILE.judged.jsonl. An LLM judge gets the paper's prompt; its replies are kept on
    disk, so that a second run asks nothing.

    Example: `semtoken bench judge answers.jsonl --judge exact --judge rouge`

    Parameters
    ----------
    file
        Answers with question, answers (the accepted ones) and response, as score writes them, or - for standard
        input.
    judges
        exact, contains, rouge, similarity, llm or imported, or all settings of one as JSON; may be repeated.
        Default: exact.
    llm_model
        The judging model. Default: gpt-4.1-2025-04-14.
    base_url
        Address of the judging server's API. Default: OpenAI's.
    imported
        Verdicts from elsewhere: .csv or .jsonl with id and correct.
    """
    from semtoken.bench.judges import agreement, correctness
    from semtoken.bench.judges.kinds import judges_from, read_answers, require_free_names, write_verdicts
    from semtoken.bench.judges.llm import LLMJudge
    from semtoken.support.files.record_files import STANDARD, as_file

    options: dict[str, dict[str, Any]] = {
        "llm": {
            "model": llm_model,
            "base_url": base_url,
            "key_env": in_use.settings.endpoint.key_env if "endpoint.key_env" in in_use.sources else None,
        },
        "imported": {"path": imported and str(imported)},
    }
    target = output or beside(file, ".judged.jsonl")
    _check_target(target, file, overwrite=overwrite)
    with as_file(file) as readable:
        items = read_answers(readable)
    wanted = [_parsed(judge) if judge.startswith("{") else judge for judge in dict.fromkeys(judges)]
    chosen = judges_from(wanted, options, [item.question.id for item in items])
    require_free_names([one.name for one in chosen], items)
    verdicts: dict[str, list[Verdict]] = {}
    for chosen_judge in chosen:
        if isinstance(chosen_judge, LLMJudge):
            tell(f"{chosen_judge.name}: sending questions and answers to {chosen_judge.url}.")
        with counting(f"judging: {chosen_judge.name}", len(items)) as progress:
            verdicts[chosen_judge.name] = chosen_judge.judge(items, progress)
    write_verdicts(target, items, verdicts)
    console = err() if str(target) == STANDARD else out()
    console.print(_counts_table(verdicts))
    if len(chosen) > 1:
        console.print()
        console.print(_agreement_table(agreement({name: correctness(said) for name, said in verdicts.items()})))
    for chosen_judge in chosen:
        if isinstance(chosen_judge, LLMJudge):
            tell(chosen_judge.spent_sentence)
    if str(target) != STANDARD:
        tell(f"{with_noun(len(items), 'answer')} in {target}.")


def _parsed(text: str) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"--judge {text!r} is no JSON: {error}.") from error
    return settings


def _check_target(target: Path, source: Path, *, overwrite: bool) -> None:
    """Refuse before the work begins what would fail after it."""
    from semtoken.support.files.outputs import check_not_read, refuse_existing
    from semtoken.support.files.record_files import STANDARD, format_of

    if str(target) == STANDARD:
        return
    format_of(target)
    check_not_read([target], [source])
    refuse_existing(target, overwrite=overwrite)


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
