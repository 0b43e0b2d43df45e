"""Answers that `semtoken score` wrote, as a page: `semtoken check` with a file that ends in .html."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semtoken.cli.console import tell
from semtoken.errors import HOW_TO_SCORE, InvalidInputError, SemtokenError
from semtoken.support.text import with_noun

Rows = list[dict[str, Any]]


def are_scored(paths: Sequence[str]) -> bool:
    """Whether the first of some files holds answers with their scores, as `semtoken score` writes them."""
    from semtoken.support.files.record_files import read_rows

    first = Path(paths[0])
    if not first.is_file() or first.suffix not in (".jsonl", ".csv", ".parquet"):
        return False
    try:
        _, _, fields = next(iter(read_rows(first)))
    except (SemtokenError, StopIteration, UnicodeError):
        return False
    return "sequence_uncertainty" in fields and ("response" in fields or "answer" in fields)


def write_scored_page(paths: Sequence[Path], output: Path, calibrator: Path | None) -> None:
    """Write one page of scored answers, riskiest first: one file, or two with answers to the same questions.

    Answers are ranked by their confidence, or by the method that the calibrator was fitted with.
    """
    from semtoken.support.files.record_files import STANDARD, as_file, read_rows
    from semtoken.support.files.safe_files import replace_text
    from semtoken.web.page import static_page
    from semtoken.web.page.images import rows_with_images

    files: dict[str, Rows] = {}
    info: dict[str, Any] = {}
    by = None
    for path in paths:
        with as_file(path) as file:
            rows = [_checked(where, fields) for _, where, fields in read_rows(file)]
            if calibrator is not None and path == paths[0]:
                info = _calibrate(rows, file, calibrator)
                by = info["calibrator"]["by"]
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
    score = fields.get("sequence_uncertainty")
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise InvalidInputError(f"{where} has no sequence_uncertainty between 0 and 1. {HOW_TO_SCORE}")
    return fields


def _scored(rows: Rows) -> Rows:
    return [row for row in rows if not row.get("error")]


def _rank(rows: Rows, file: Path, by: str) -> None:
    """Give each row its `risk` by a method."""
    from semtoken.guarantees.answer_records import read_answers
    from semtoken.guarantees.labels import chosen_method, log_confidences

    answers = read_answers(file)
    scores = -log_confidences(answers, chosen_method(answers, by))
    for row, risk in zip(_scored(rows), scores.tolist(), strict=True):
        row["risk"] = min(risk, sys.float_info.max)  # JSON has no infinity


def _calibrate(rows: Rows, file: Path, directory: Path) -> dict[str, Any]:
    """Add probabilities and decisions to the rows of a file; returns what the page says of the calibrator."""
    from semtoken.guarantees.answer_records import read_answers
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.web.page.facts import calibrator_card, reliability_card

    applied = CalibratorInUse.load(directory)
    answers = read_answers(file)
    for row, answer in zip(_scored(rows), answers, strict=True):
        row["calibration"] = applied.block_or_refusal(answer)  # type: ignore[arg-type]
    return {"calibrator": calibrator_card(applied.calibrator) | reliability_card(applied.calibrator, answers)}
