"""`semtoken label`: a person says which answers are right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from semtoken.cli.console import err, out, say, tell
from semtoken.cli.journals import is_journal
from semtoken.cli.outputs import beside
from semtoken.cli.parameters import Limit, ToLines
from semtoken.errors import LABEL_ON_PAGE, InvalidInputError

if TYPE_CHECKING:
    from semtoken.guarantees.answer_records import AnswerRecord
    from semtoken.guarantees.labeling import LabelingSession

KEYS = {"y": True, "n": False}
MEANINGS = "Keys: y right, n wrong, s skip, u undo, q quit."
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
    from semtoken.guarantees.labeling import LabelingSession, with_earlier, write_labeled
    from semtoken.support.files.safe_files import locked

    if is_journal(str(file)):
        raise InvalidInputError(f"{file} is a journal. {LABEL_ON_PAGE}")
    target = output or beside(file, ".labeled.jsonl")
    given = read_answers(file)
    require_scores(given)
    busy = f"Somebody else is labeling into {target}. Wait for them, or choose another output."
    # Each person's run writes the whole file: the labels that were there when it began, and its own.
    with locked(target.with_name(f".{target.name}.lock"), busy, remove=True):
        session = LabelingSession(with_earlier(given, target), limit)
        # It is there whatever you do, and a place that takes no file is refused now.
        write_labeled(target, session.answers, session.labels)
        if any(answer.document and not answer.extracted_from for answer in session.answers):
            tell(NO_DOCUMENT)
        tell(session.progress)
        if session.next is not None:
            tell(MEANINGS)
        _ask_all(session, target)
        tell(f"{session.progress} Saved in {target}.")


def _ask_all(session: LabelingSession, target: Path) -> None:
    from rich.prompt import Prompt

    from semtoken.guarantees.labeling import write_labeled

    class Key(Prompt):
        """A question that is answered by one of a few letters, in either case."""

        def process_response(self, value: str) -> str:
            return super().process_response(value.lower())

    while (answer := session.next) is not None:
        _show(answer)
        try:
            key = Key.ask("right?", choices=[*KEYS, "s", "u", "q"], console=err())
        except EOFError:
            return
        if key == "q":
            return
        if key == "s":
            session.skip()
            continue
        if key == "u":
            session.undo()
        else:
            session.give(KEYS[key])
        write_labeled(target, session.answers, session.labels)


def _show(answer: AnswerRecord) -> None:
    out().print()
    if answer.extracted_from:
        say(answer.extracted_from, "dim")
    say(answer.question, "bold")
    say(f"  {answer.text}")
    if answer.references:
        say(f"  accepted: {'; '.join(map(str, answer.references))}", "dim")
