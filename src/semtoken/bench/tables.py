"""A `Comparison` for people and for files: terminal, CSV, Markdown, JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from semtoken.bench.compare import Comparison, MethodResult
from semtoken.bench.formatting import difference, with_interval
from semtoken.metrics import Difference, Estimate

if TYPE_CHECKING:
    from rich.table import Table

HEADER = (
    "Method",
    "AUROC",
    "minus STC",
    "PRR",
    "minus STC",
    "undefined",
    "seconds",
    "meaning",
    "one answer",
    "one model",
    "overhead",
)
ESSENTIAL = (0, 1, 2, 3, 6)
"""Columns of `HEADER` that fit a terminal of eighty columns."""


def text_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """One row of cells a method, as `HEADER` names them; intervals are 95 %."""
    return [
        (
            result.method.title,
            with_interval(result.auroc),
            difference(result.auroc_difference),
            with_interval(result.prr),
            difference(result.prr_difference),
            str(result.undefined),
            f"{result.seconds:.2f}",
            _yes(result.method.semantic_aware),
            _yes(result.method.single_sample),
            _yes(result.method.external_model_free),
            result.method.overhead,
        )
        for result in comparison.results
    ]


def summary_line(comparison: Comparison) -> str:
    """What the table is of, in one sentence."""
    return (
        f"{comparison.n} questions, {comparison.n_correct} answered right ({comparison.accuracy:.1%}); the greedy "
        f"generation took {comparison.greedy_seconds:.1f} s, seconds are beyond it."
    )


def rich_table(comparison: Comparison, width: int) -> Table:
    """For a terminal of `width` columns: all of `HEADER`, or where that does not fit `ESSENTIAL`, on two lines."""
    from rich import box
    from rich.table import Table

    rows = text_rows(comparison)
    needed = sum(2 + max(map(len, column)) for column in zip(HEADER, *rows, strict=True))
    shown = range(len(HEADER)) if needed <= width else ESSENTIAL
    note = "" if needed <= width else " All columns: --markdown, --csv, or a wider terminal."
    table = Table(box=box.SIMPLE, pad_edge=False, caption=summary_line(comparison) + note)
    for number in shown:
        table.add_column(HEADER[number], justify="left" if number == 0 else "right", no_wrap=number > 0)
    for row in rows:
        cells = [row[number] for number in shown]
        table.add_row(*cells if needed <= width else [cell.replace(" [", "\n[") for cell in cells])
    return table


def markdown_table(comparison: Comparison) -> str:
    """The same as a Markdown table, with the summary under it."""
    rows: list[Sequence[str]] = [HEADER, ["---"] + ["---:"] * (len(HEADER) - 1), *text_rows(comparison)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", summary_line(comparison), ""])


def csv_table(comparison: Comparison) -> str:
    """Plain numbers, one line a method."""
    rows = [_flat(result) for result in comparison.results]
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def json_text(comparison: Comparison) -> str:
    """Everything. What a second run repeats is under "figures", what it does not under "seconds"."""
    figures = {
        result.method.name: {
            "auroc": asdict(result.auroc),
            "prr": asdict(result.prr),
            "auroc_difference": None if result.auroc_difference is None else asdict(result.auroc_difference),
            "prr_difference": None if result.prr_difference is None else asdict(result.prr_difference),
            "undefined": result.undefined,
        }
        for result in comparison.results
    }
    content = {
        "settings": dict(comparison.settings),
        "n": comparison.n,
        "n_correct": comparison.n_correct,
        "figures": figures,
        "seconds": {
            "greedy": comparison.greedy_seconds,
            "steps": dict(comparison.steps),
            "methods": {result.method.name: result.seconds for result in comparison.results},
        },
    }
    return json.dumps(_finite(content), indent=2, allow_nan=False) + "\n"


def _flat(result: MethodResult) -> dict[str, Any]:
    row: dict[str, Any] = {"method": result.method.name}
    parts: tuple[tuple[str, Estimate | Difference | None], ...] = (
        ("auroc", result.auroc),
        ("auroc_minus_stc", result.auroc_difference),
        ("prr", result.prr),
        ("prr_minus_stc", result.prr_difference),
    )
    for name, value in parts:
        row[name] = None if value is None else value.value
        row[f"{name}_low"] = None if value is None else value.low
        row[f"{name}_high"] = None if value is None else value.high
    return row | {
        "undefined": result.undefined,
        "seconds": round(result.seconds, 4),
        "semantic_aware": result.method.semantic_aware,
        "single_sample": result.method.single_sample,
        "external_model_free": result.method.external_model_free,
        "overhead": result.method.overhead,
    }


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value
