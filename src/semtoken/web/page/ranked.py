"""Replies that were ranked, as a file: a page, Markdown, or a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from semtoken.errors import InvalidInputError
from semtoken.replies.checking import RankedReplies
from semtoken.replies.checking.tables import (
    field_table,
    markdown,
    markdown_of_fields,
    nested_fields,
    page_rows,
    rows_of,
)
from semtoken.support.extras import require
from semtoken.support.files.record_files import write_records
from semtoken.support.files.safe_files import ending_of, replace_text
from semtoken.support.files.strict_json import dump_json
from semtoken.web.page.images import rows_with_images_of
from semtoken.web.page.static import static_page

ENDINGS = (".html", ".md", ".csv", ".json", ".jsonl", ".parquet")
"""Endings of the files that can be written."""


def require_ending(target: Path, *, fields: bool = False) -> None:
    """Raise `InvalidInputError`, before anything is read, for a file of no known kind, and `MissingExtra` for one that
    cannot be written here; `fields` as for `write_ranked`.
    """
    ending = ending_of(target)
    if ending not in ENDINGS:
        raise InvalidInputError(f"{target}: the ending says what to write: {', '.join(ENDINGS)}.")
    if ending == ".json" and not fields:
        raise InvalidInputError(
            f"{target}: .json holds the fields of each document, which --schema names; give .jsonl."
        )
    if ending == ".parquet":
        require("pyarrow", extra="frames")


def write_ranked(
    checked: RankedReplies,
    target: Path,
    *,
    title: str = "replies",
    questions: Path | None = None,
    limit: int = 20,
    fields: bool = False,
) -> int:
    """Write ranked replies to a file, the most doubtful first; the ending says what it will be.

    Parameters
    ----------
    checked
        What `rank_replies` found.
    target
        A page (.html) on which answers can be labeled, Markdown (.md), a table (.csv, .jsonl, .parquet), or, with
        `fields`, the confidences in the shape of each JSON document (.json).
    title
        The name that the page gives the replies.
    questions
        The file of questions, with whose images a page is illustrated.
    limit
        How many answers, or fields, Markdown lists. All other files have all of them.
    fields
        Whether Markdown and tables have a row for each field of the answers, which were ranked with a schema.

    Returns
    -------
    int
        How many images the page lacks, since they cannot be read.

    Raises
    ------
    InvalidInputError
        The ending is unknown, nothing could be scored, or a page would be too large; nothing is written then.
    MissingExtra
        .parquet without pyarrow.
    """
    require_ending(target, fields=fields)
    lost = 0
    match ending_of(target):
        case ".html":
            rows = page_rows(checked)
            if questions is not None:
                rows, lost = rows_with_images_of(rows, questions)
            replace_text(target, static_page({title: rows}))
        case ".md" if fields:
            replace_text(target, markdown_of_fields(field_table(checked), limit))
        case ".md":
            replace_text(target, markdown(checked, checked.answers[:limit]))
        case ".json":
            replace_text(target, dump_json(nested_fields(checked), indent=1).decode() + "\n")
        case _:
            write_records(target, field_table(checked) if fields else rows_of(checked))
    return lost


def title_of(sources: Sequence[str]) -> str:
    """A name for the replies of some sources: "replies", "may.jsonl and 2 more"."""
    first = "standard input" if sources[0] == "-" else Path(sources[0]).resolve().name or sources[0]
    return first if len(sources) == 1 else f"{first} and {len(sources) - 1} more"
