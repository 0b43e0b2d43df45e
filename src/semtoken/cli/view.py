"""`semtoken view`: scored answers as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from semtoken._files import replace_text
from semtoken.cli.console import tell
from semtoken.errors import InvalidInput
from semtoken.record_files import STANDARD, read_rows, stored


def view(
    scored: Annotated[Path, typer.Argument(help="What `semtoken score` wrote, or '-' for standard input.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("page.html"),
) -> None:
    """Make one HTML page of scored answers: riskiest first, with a slider and keys for labels.

    The page holds the answers and asks for nothing else, so you can send it to someone. Answers that were scored with
    --tokens show what else the model considered.

    For example:

    - `semtoken score answers.jsonl -o scored.jsonl`, then `semtoken view scored.jsonl -o page.html`
    """
    from semtoken.web.page import static_page

    name = "standard input" if str(scored) == STANDARD else scored.name
    with stored(scored) as path:
        answers = [_checked(where, fields) for _, where, fields in read_rows(path)]
    html = static_page(answers, name)
    replace_text(output, html)
    tell(f"The page is {output} ({len(answers):,} answers, {len(html) / 1e3:.0f} kB). Open it in a browser.")


def _checked(where: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A scored answer."""
    score = fields.get("uncertainty")
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise InvalidInput(
            f"{where} has no uncertainty between 0 and 1. Score the file first: semtoken score FILE -o scored.jsonl"
        )
    return fields
