"""`semtoken check` of replies to typed questions: the most doubtful answers first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from semtoken.cli.console import out, tell, untrusted
from semtoken.errors import InvalidInput


def check_decisions(
    sources: Sequence[str],
    questions: Path | None,
    labels: Path | None,
    calibrator: Path | None,
    top: int,
    output: Path | None,
) -> None:
    """Show the most doubtful answers to typed questions."""
    from semtoken.checking.saved_decisions import decision_rows, saved_decisions
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.decisions.running import read_questions
    from semtoken.files.record_files import write_records

    if output is not None and output.suffix.lower() not in (".csv", ".jsonl", ".parquet"):
        raise InvalidInput(f"{output}: answers to typed questions are written as .csv, .jsonl or .parquet.")
    asked = None if questions is None else read_questions(questions)
    found = saved_decisions(sources, labels=labels, questions=asked)
    fitted = None if calibrator is None else DecisionCalibrator.load(calibrator)
    rows = decision_rows(found, fitted)
    for row in rows[:top]:
        right = {True: " · right", False: " · wrong", None: ""}[row["correct"]]
        chance = "" if row.get("chance") is None else f" · chance {100 * row['chance']:.0f} %"
        decided = f" · {row['decision']}" if "decision" in row else ""
        out.print(untrusted(f"{row['rank']:>3}. {row['id']} · {row['question']}: {row['value']}", style="bold"))
        line = f"     {row['probability']:.3f}{chance}{decided}{right} · {row['where']}"
        out.print(untrusted(line, style="dim"), soft_wrap=True)
        for flag in row["flags"]:
            out.print(untrusted(f"     {flag}", style="yellow"), soft_wrap=True)
    tell(f"{min(top, len(rows)):,} of {len(rows):,} answers to typed questions, the most doubtful first.")
    if output is not None:
        write_records(output, rows)
        tell(f"{output} holds {len(rows):,} answers, ranked.")
