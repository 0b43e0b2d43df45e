"""`semtoken label`: a person says which answers are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from semtoken.cli.console import err, out, say, tell
from semtoken.cli.journals import is_journal
from semtoken.cli.outputs import beside
from semtoken.cli.parameters import Limit, ToLines
from semtoken.errors import LABEL_ON_PAGE, InvalidInputError

if TYPE_CHECKING:
    from semtoken.guarantees.answer_records import AnswerRecord

KEYS = {"y": True, "n": False}
NO_DOCUMENT = "The file does not hold what the fields were extracted from: give `semtoken check` the --questions."


def label(
    file: Path,
    /,
    *,
    output: ToLines[Path | None] = None,
    limit: Limit[int | None] = None,
) -> None:
    """Mark answers as right or wrong in the terminal.

    Keys: y right, n wrong, s skip, u undo, q quit. You can stop at any time and continue later. Answers come in an
    order drawn at random that spreads over their scores, so that a few labels tell much and are a fair sample; the
    score is not shown. Fields of extracted JSON are shown with their document, one of each document before a second.

    Example: `semtoken label answers.jsonl`

    Parameters
    ----------
    file
        Answers written by score or check.
    output
        Write the labels here. Default: ANSWERS.labeled.jsonl.
    limit
        Stop after N labels.
    """
    from semtoken.guarantees.answer_records import read_answers, require_scores
    from semtoken.guarantees.labeling import labeling_order, labels_of, with_earlier, write_labeled
    from semtoken.support.files.safe_files import locked

    if is_journal(str(file)):
        raise InvalidInputError(f"{file} is a journal. {LABEL_ON_PAGE}")
    target = output or beside(file, ".labeled.jsonl")
    given = read_answers(file)
    require_scores(given)
    busy = f"Somebody else is labeling into {target}. Wait for them, or choose another output."
    # Each person's run writes the whole file: the labels that were there when it began, and its own.
    with locked(target.with_name(f".{target.name}.lock"), busy, remove=True):
        answers = with_earlier(given, target)
        labels = labels_of(answers)
        order = labeling_order(answers)
        # It is there whatever you do, and a place that takes no file is refused now.
        write_labeled(target, answers, labels)
        if any(answer.document and not answer.extracted_from for answer in answers):
            tell(NO_DOCUMENT)
        tell(_progress(labels, len(order)))
        _ask_all(answers, order, labels, target, limit)
        tell(f"{_progress(labels, len(order))} Saved in {target}.")


def _ask_all(
    answers: Sequence[AnswerRecord], order: Sequence[int], labels: dict[int, bool], target: Path, limit: int | None
) -> None:
    from rich.prompt import Prompt

    from semtoken.guarantees.labeling import write_labeled

    waiting = [i for i in order if i not in labels]
    given: list[int] = []
    while waiting and (limit is None or len(labels) < limit):
        _show(answers[waiting[0]])
        try:
            key = Prompt.ask("right?", choices=[*KEYS, "s", "u", "q"], console=err())
        except EOFError:
            return
        if key == "q":
            return
        if key == "s":
            waiting.append(waiting.pop(0))
            if len(waiting) == 1:
                return
        elif key == "u":
            if given:
                labels.pop(given[-1])
                waiting.insert(0, given.pop())
        else:
            given.append(waiting.pop(0))
            labels[given[-1]] = KEYS[key]
        if key != "s":
            write_labeled(target, answers, labels)


def _show(answer: AnswerRecord) -> None:
    out().print()
    if answer.extracted_from:
        say(answer.extracted_from, "dim")
    say(answer.question, "bold")
    say(f"  {answer.text}")
    if answer.references:
        say(f"  accepted: {'; '.join(map(str, answer.references))}", "dim")


def _progress(labels: Mapping[int, bool], total: int) -> str:
    right = sum(labels.values())
    return f"{len(labels):,} of {total:,} answers have a label ({right:,} right, {len(labels) - right:,} wrong)."
