"""`semtoken label`: a person says which answers are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from semtoken.cli.console import err, out, tell
from semtoken.errors import InvalidInputError
from semtoken.support.text import visible

if TYPE_CHECKING:
    from semtoken.guarantees.answer_records import AnswerRecord

KEYS = {"y": True, "n": False}
NO_DOCUMENT = "The file does not hold what the fields were extracted from: give `semtoken check` the --questions."


def label(
    file: Annotated[Path, Parameter(metavar="FILE", help="Answers written by score or check.")],
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(
            name=("--output", "-o"),
            metavar="FILE",
            help="Write the labels here. Default: ANSWERS.labeled.jsonl.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        Parameter(name=("--limit", "-n"), metavar="N", help="Stop after N labels.", validator=Number(gte=1)),
    ] = None,
) -> None:
    """Mark answers as right or wrong in the terminal.

    Keys: y right, n wrong, s skip, u undo, q quit. You can stop at any time and continue later. Answers come in an
    order drawn at random that spreads over their scores, so that a few labels tell much and are a fair sample; the
    score is not shown. Fields of extracted JSON are shown with their document, one of each document before a second.

    Example: `semtoken label answers.jsonl`
    """
    from semtoken.guarantees.answer_records import read_answers, require_scores
    from semtoken.guarantees.exact import label_order
    from semtoken.guarantees.labels import chosen_method, log_confidences

    target = output or file.with_suffix(".labeled.jsonl")
    answers = read_answers(file)
    require_scores(answers)
    labels = _labels_so_far(answers, target)
    scores = log_confidences(answers, chosen_method(answers, None)).tolist()
    order = _documents_first([i for i in label_order(scores, 0) if answers[i].text.strip()], answers)
    _save(answers, labels, target)  # it is there whatever you do, and a place that takes no file is refused now
    if any(answer.document and not answer.extracted_from for answer in answers):
        tell(NO_DOCUMENT)
    tell(_progress(labels, len(order)))
    _ask_all(answers, order, labels, target, limit)
    tell(f"{_progress(labels, len(order))} Saved in {target}.")


def _documents_first(order: Sequence[int], answers: Sequence[AnswerRecord]) -> list[int]:
    """The order with one field of each document before the second of any, since a document's fields are not
    independent; as it is for answers that are no fields.
    """
    seen: Counter[str] = Counter()
    rounds: dict[int, int] = {}
    for i in order:
        document = answers[i].document
        rounds[i] = 0 if document is None else seen[document]
        if document is not None:
            seen[document] += 1
    return sorted(order, key=rounds.__getitem__)


def _labels_so_far(answers: Sequence[AnswerRecord], target: Path) -> dict[int, bool]:
    """Labels of the input, and those of an earlier run."""
    from semtoken.guarantees.answer_records import read_answers

    labels = {i: answer.correct for i, answer in enumerate(answers) if answer.correct is not None}
    if not target.exists():
        return labels
    earlier = read_answers(target)
    same = [(a.question, a.text, a.log_confidence) for a in answers] == [
        (a.question, a.text, a.log_confidence) for a in earlier
    ]
    if not same:
        raise InvalidInputError(f"{target} holds other answers than the input. Choose another --output.")
    return labels | {i: answer.correct for i, answer in enumerate(earlier) if answer.correct is not None}


def _ask_all(
    answers: Sequence[AnswerRecord], order: Sequence[int], labels: dict[int, bool], target: Path, limit: int | None
) -> None:
    from rich.prompt import Prompt

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
            _save(answers, labels, target)


def _show(answer: AnswerRecord) -> None:
    from rich.text import Text

    out().print()
    if answer.extracted_from:
        out().print(Text(visible(answer.extracted_from), style="dim"), soft_wrap=True)
    out().print(Text(visible(answer.question), style="bold"), soft_wrap=True)
    out().print(Text(f"  {visible(answer.text)}"), soft_wrap=True)
    if answer.references:
        out().print(Text(f"  accepted: {visible('; '.join(map(str, answer.references)))}", style="dim"), soft_wrap=True)


def _save(answers: Sequence[AnswerRecord], labels: Mapping[int, bool], target: Path) -> None:
    from semtoken.support.files.safe_files import replacing_file
    from semtoken.support.files.strict_json import dump_json

    with replacing_file(target) as file:
        for i, answer in enumerate(answers):
            score = answer.log_confidence
            plain = {"log_confidence": None if score is None or score == float("-inf") else score}
            file.write(dump_json({**answer.record, **plain, "correct": labels.get(i)}) + b"\n")


def _progress(labels: Mapping[int, bool], total: int) -> str:
    right = sum(labels.values())
    return f"{len(labels):,} of {total:,} answers have a label ({right:,} right, {len(labels) - right:,} wrong)."
