"""Ranked fields of extracted JSON on the terminal and in files: what `check --schema` and `score --schema` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from semtoken.cli.console import out, tell, untrusted


def show_fields(rows: Sequence[Mapping[str, Any]], top: int, *, calibrated: bool) -> None:
    """Print the most doubtful fields, and what the decisions rest on."""
    from semtoken.checking.doubts import percent
    from semtoken.checking.fields import CHECK, sentence_of_field
    from semtoken.checking.tables import NOTE
    from semtoken.parts.part import SOME_DOUBT
    from semtoken.support.text import shortened

    for row in rows[:top]:
        where = f"{row['rank']:>3}. {row['document']}{row['path']}"
        value = shortened(" ".join(row["value"].split()), 80)
        out.print(untrusted(f"{where}: {value}", style="bold"), soft_wrap=True)
        out.print(untrusted(f"     {sentence_of_field(row)}", style="yellow"), soft_wrap=True)
    documents = {row["document"] for row in rows}
    doubtful = [row for row in rows if row["decision"] == CHECK]
    told = f"{min(top, len(rows)):,} of {len(rows):,} fields in {len(documents):,} documents, the most doubtful first; "
    tell(f"{told}{len(doubtful):,} are to be checked. {NOTE}")
    if not calibrated:
        tell(
            f"To be checked are fields under {percent(SOME_DOUBT)} and those that do not fit the schema. That promises "
            "nothing: for a promise label fields, run `semtoken calibrate`, and give --calibrator."
        )


def write_fields(
    rows: Sequence[Mapping[str, Any]], documents: Sequence[Mapping[str, Any]], top: int, output: Path, name: str
) -> None:
    """Write the fields as a table, as Markdown, or as a page with their documents, of that `name`."""
    from semtoken.checking.tables import markdown_of_fields
    from semtoken.files.record_files import write_records
    from semtoken.files.safe_files import replace_text

    match output.suffix.lower():
        case ".html":
            from semtoken.web.page import static_page

            replace_text(output, static_page({name: documents}))
        case ".md":
            replace_text(output, markdown_of_fields(rows, min(top, len(rows))))
        case _:
            write_records(output, rows)
    tell(f"{output} holds {len(rows):,} fields, ranked.")
