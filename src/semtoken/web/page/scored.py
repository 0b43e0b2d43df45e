"""Answers that `semtoken score` wrote, as a page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semtoken.errors import HOW_TO_SCORE, InvalidInputError
from semtoken.guarantees.answer_records import read_answers
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.labels import chosen_method, log_confidences
from semtoken.support.files.record_files import STANDARD, as_file, read_rows
from semtoken.web.page.facts import calibrator_card, reliability_card
from semtoken.web.page.images import rows_with_images
from semtoken.web.page.static import static_page

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class ScoredPage:
    """A page of scored answers."""

    html: str
    n_answers: int
    lost_images: int
    """The number of images of the questions that cannot be read, so that the page lacks them."""


def page_of_scored(paths: Sequence[Path], calibrator: Path | None) -> ScoredPage:
    """One page of scored answers, riskiest first: one file, or two with answers to the same questions.

    Answers are ranked by their confidence, or by the method that the calibrator was fitted with. `InvalidInputError` if
    a line holds no scored answer, `ArtifactError` if the calibrator cannot be used.
    """
    files: dict[str, Rows] = {}
    info: dict[str, Any] = {}
    by, all_lost = None, 0
    for path in paths:
        with as_file(path) as file:
            rows = [_checked(where, fields) for _, where, fields in read_rows(file)]
            if calibrator is not None and path == paths[0]:
                info = _calibrate(rows, file, calibrator)
                by = info["calibrator"]["by"]
            if by is not None:
                _rank(rows, file, by)
        rows, lost = rows_with_images(rows, path.parent)
        all_lost += lost
        name = "standard input" if str(path) == STANDARD else path.name
        files[str(path) if name in files else name] = rows
    if by is not None:
        info["by"] = by
    return ScoredPage(static_page(files, info), sum(len(_scored(rows)) for rows in files.values()), all_lost)


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
    answers = read_answers(file)
    scores = -log_confidences(answers, chosen_method(answers, by))
    for row, risk in zip(_scored(rows), scores.tolist(), strict=True):
        row["risk"] = min(risk, sys.float_info.max)  # JSON has no infinity


def _calibrate(rows: Rows, file: Path, directory: Path) -> dict[str, Any]:
    """Add probabilities and decisions to the rows of a file; returns what the page says of the calibrator."""
    applied = CalibratorInUse.load(directory)
    answers = read_answers(file)
    for row, answer in zip(_scored(rows), answers, strict=True):
        row["calibration"] = applied.block_or_refusal(answer, row)  # type: ignore[arg-type]
    return {"calibrator": calibrator_card(applied.calibrator) | reliability_card(applied.calibrator, answers)}
