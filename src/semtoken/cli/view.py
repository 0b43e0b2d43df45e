"""`semtoken view`: scored answers as a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from semtoken.cli.console import tell
from semtoken.cli.options import ByOption, CalibratorOption, ForceOption, output_file
from semtoken.errors import HOW_TO_SCORE, InvalidInput
from semtoken.support.files.record_files import STANDARD, as_file, read_rows
from semtoken.support.files.safe_files import replace_text
from semtoken.support.text import with_noun

Rows = list[dict[str, Any]]


def view(
    scored: Annotated[Path, typer.Argument(help="What `semtoken score` wrote, or '-' for standard input.")],
    other: Annotated[
        Path | None, typer.Argument(help="Another file of answers to the same questions, to compare.")
    ] = None,
    output: Annotated[Path, output_file("The page to write.")] = Path("page.html"),
    calibrator: CalibratorOption = None,
    by: ByOption = None,
    force: ForceOption = False,
) -> None:
    """Make one HTML page of scored answers: riskiest first, with a slider and keys for labels.

    Answers are ranked by their headlines, by the method of --by, or by the method that the calibrator was fitted with.

    The page holds the answers and asks for nothing else, so you can send it to someone. Answers that were scored with
    --tokens show what else the model considered. A second file is shown beside the first.

    For example:

    - `semtoken score prompts.jsonl -o scored.jsonl`, then `semtoken view scored.jsonl -o page.html`
    - `semtoken view smollm2.jsonl gemma3.jsonl -o compared.html`
    """
    from semtoken.web.page import static_page
    from semtoken.web.page.images import rows_with_images

    files: dict[str, Rows] = {}
    info: dict[str, Any] = {}
    for path in (scored, other):
        if path is None:
            continue
        with as_file(path) as file:
            rows = [_checked(where, fields) for _, where, fields in read_rows(file)]
            if calibrator is not None and path == scored:
                info = _calibrate(rows, file, calibrator)
                by = by or info["calibrator"]["by"]
            if by is not None:
                _rank(rows, file, by)
        rows, lost = rows_with_images(rows, path.parent)
        tell_lost(lost)
        name = "standard input" if str(path) == STANDARD else path.name
        files[str(path) if name in files else name] = rows
    if by is not None:
        info["by"] = by
    html = static_page(files, info)
    replace_text(output, html)
    answers = sum(len(_scored(rows)) for rows in files.values())
    tell(f"The page is {output} ({answers:,} answers, {len(html) / 1e3:.0f} kB). Open it in a browser.")


def tell_lost(images: int) -> None:
    """Say how many images the page lacks."""
    if images:
        tell(f"Warning: the page lacks {with_noun(images, 'image')}, which cannot be read.", style="yellow")


def _checked(where: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A record of a file, refused unless it is a scored answer or says why it is not."""
    if fields.get("error"):
        return fields
    score = fields.get("uncertainty")
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise InvalidInput(f"{where} has no uncertainty between 0 and 1. {HOW_TO_SCORE}")
    return fields


def _scored(rows: Rows) -> Rows:
    return [row for row in rows if not row.get("error")]


def _rank(rows: Rows, file: Path, by: str) -> None:
    """Give each row its `risk` by a method."""
    from semtoken.guarantees.labels import chosen_method, log_scores, read_answers

    answers = read_answers(file)
    scores = -log_scores(answers, chosen_method(answers, by))
    for row, risk in zip(_scored(rows), scores.tolist(), strict=True):
        row["risk"] = min(risk, sys.float_info.max)  # JSON has no infinity


def _calibrate(rows: Rows, file: Path, directory: Path) -> dict[str, Any]:
    """Add chances and decisions to the rows of a file; returns what the page says of the calibrator."""
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.guarantees.labels import read_answers
    from semtoken.web.page.facts import calibrator_card, reliability_card

    applied = CalibratorInUse.load(directory)
    answers = read_answers(file)
    for row, answer in zip(_scored(rows), answers, strict=True):
        row["calibration"] = applied.block_or_refusal(answer)  # type: ignore[arg-type]
    return {"calibrator": calibrator_card(applied.calibrator) | reliability_card(applied.calibrator, answers)}
