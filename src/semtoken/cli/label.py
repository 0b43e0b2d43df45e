"""`semtoken label`: a person says which answers are right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semtoken.cli.console import err, out, tell
from semtoken.cli.options import ByOption, output_file
from semtoken.errors import InvalidInput
from semtoken.support.text import visible

if TYPE_CHECKING:
    from semtoken.calibration.labels import AnswerRecord

KEYS = {"y": True, "n": False}
NO_DOCUMENT = "The file does not hold what the fields were extracted from: give `semtoken check` the --questions."


def label(
    source: Annotated[
        Path, typer.Argument(metavar="ANSWERS.jsonl", dir_okay=False, help="Scored answers, JSON lines or CSV.")
    ],
    output: Annotated[Path | None, output_file("Default: ANSWERS.labelled.jsonl beside the input.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop when this many answers have a label.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the order.")] = 0,
    by: ByOption = None,
) -> None:
    """Say which answers are right: y, n, s to skip, u to undo, q to stop.

    Every label is saved at once; the same command continues where you stopped. Answers come in an order drawn at random
    that spreads over their scores (their headlines, or those of --by), so that a few labels say much and are a fair
    sample of all. Fields of extracted JSON are shown with their document, one of each document before a second. The
    score is not shown, because it would guide your judgement. The output holds all answers, with and without label;
    `semtoken calibrate` reads it.

    For example:

    - `semtoken score questions.jsonl --questions -o answers.jsonl`
    - `semtoken label answers.jsonl`
    - `semtoken calibrate answers.labelled.jsonl -o my-calibrator`
    - `semtoken label fields.csv`
    """
    from semtoken.calibration.labels import chosen_method, log_scores, read_answers, require_scores
    from semtoken.calibration.promises import label_order

    target = output or source.with_suffix(".labelled.jsonl")
    answers = read_answers(source)
    require_scores(answers)
    labels = _labels_so_far(answers, target)
    scores = log_scores(answers, chosen_method(answers, by)).tolist()
    order = _documents_first([i for i in label_order(scores, seed) if answers[i].text.strip()], answers)
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
    from semtoken.calibration.labels import read_answers

    labels = {i: answer.correct for i, answer in enumerate(answers) if answer.correct is not None}
    if not target.exists():
        return labels
    earlier = read_answers(target)
    same = [(a.question, a.text, a.log_score) for a in answers] == [(a.question, a.text, a.log_score) for a in earlier]
    if not same:
        raise InvalidInput(f"{target} holds other answers than the input. Choose another --output.")
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
            key = Prompt.ask("right?", choices=[*KEYS, "s", "u", "q"], console=err)
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

    out.print()
    if answer.extracted_from:
        out.print(Text(visible(answer.extracted_from), style="dim"), soft_wrap=True)
    out.print(Text(visible(answer.question), style="bold"), soft_wrap=True)
    out.print(Text(f"  {visible(answer.text)}"), soft_wrap=True)
    if answer.references:
        out.print(Text(f"  accepted: {visible('; '.join(map(str, answer.references)))}", style="dim"), soft_wrap=True)


def _save(answers: Sequence[AnswerRecord], labels: Mapping[int, bool], target: Path) -> None:
    from semtoken.files.safe_files import dump_json, replacing_file

    with replacing_file(target) as file:
        for i, answer in enumerate(answers):
            score = answer.log_score
            plain = {"log_score": None if score is None or score == float("-inf") else score}
            file.write(dump_json({**answer.record, **plain, "correct": labels.get(i)}) + b"\n")


def _progress(labels: Mapping[int, bool], total: int) -> str:
    right = sum(labels.values())
    return f"{len(labels):,} of {total:,} answers have a label ({right:,} right, {len(labels) - right:,} wrong)."
