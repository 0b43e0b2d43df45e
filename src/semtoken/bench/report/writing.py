"""A report as a folder: page, Markdown, LaTeX, CSV and figures, all there or the former one untouched."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from semtoken.bench.answers_table import FILE as ANSWERS
from semtoken.bench.report.content import BenchReport, Section
from semtoken.bench.report.latex import latex_document, latex_table
from semtoken.bench.report.markdown import escaped, markdown_table
from semtoken.errors import InvalidInput
from semtoken.files.safe_files import replacing_folder
from semtoken.support.extras import require

FORMAT = "semtoken.report"
INDEX, PAGE, MARKDOWN = "report.json", "index.html", "report.md"


def write_report(report: BenchReport, folder: str | Path) -> Path:
    """Write all files of a report; returns the page.

    Parameters
    ----------
    report
        From `build_report`.
    folder
        A new or empty one, or one that holds a former report and nothing else.

    Raises
    ------
    InvalidInput
        The folder holds other files, or cannot be written; what was there stays.
    """
    target = Path(folder).expanduser().resolve()
    check_replaceable(target)
    with replacing_folder(target) as new:
        files = dict(_files(report))
        for name, content in files.items():
            path = new / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        index = {"format": FORMAT, "title": report.title, "files": sorted(files)}
        (new / INDEX).write_text(_json(index) + "\n", encoding="utf-8")
    return target / PAGE


def check_replaceable(target: Path) -> None:
    """Raise `InvalidInput` if a report there would take the place of anything but a former report."""
    if target.exists() and not target.is_dir():
        raise InvalidInput(f"{target} is a file; give the name of a folder for the report.")
    held = {path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir()}
    others = sorted(held - _former_files(target) - {INDEX})
    if others:
        raise InvalidInput(
            f"{target} holds other files ({', '.join(others[:3])}{', ...' if len(others) > 3 else ''}), which would be "
            "lost. Choose a new or empty folder with --out."
        )


def _former_files(target: Path) -> set[str]:
    """Files of the report that a folder holds; none if it holds none."""
    try:
        index = json.loads((target / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return set()
    known = isinstance(index, dict) and index.get("format") == FORMAT and isinstance(index.get("files"), list)
    return {str(name) for name in index["files"]} if known else set()


def _files(report: BenchReport) -> Iterator[tuple[str, bytes]]:
    """Name and content of each."""
    yield PAGE, html_page(report).encode()
    yield MARKDOWN, markdown_text(report).encode()
    for name, content in report.csv.items():
        yield f"csv/{name}.csv", content.encode()
    if report.answers:
        yield ANSWERS, report.answers
    for table in report.tables:
        yield f"latex/{table.name}.tex", latex_table(table).encode()
    yield "latex/all.tex", latex_document(report.tables, report.title).encode()
    for plot in report.plots:
        yield f"figures/{plot.name}.png", plot.png
        yield f"figures/{plot.name}.svg", plot.svg


def markdown_text(report: BenchReport) -> str:
    """The whole report as Markdown; figures are links to the files beside it."""
    parts = [f"# {escaped(report.title)}", f"**{escaped(report.opening)}**", escaped(report.subtitle)]
    parts += [part for section in report.sections for part in _markdown_parts(section)]
    facts = (("Settings", report.settings), ("Manifest", report.manifest))
    parts += [f"## {name}\n\n{_code_block(_json(content))}" for name, content in facts]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _markdown_parts(section: Section) -> Iterator[str]:
    yield f"## {escaped(section.title)}"
    if section.lines:
        yield "\n".join(f"- {escaped(line)}" for line in section.lines)
    yield from map(markdown_table, section.tables)
    for plot in section.plots:
        yield f"![{escaped(plot.title)}](figures/{plot.name}.png)"
        yield escaped(plot.caption)
    yield from map(markdown_table, section.folded)


def _code_block(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def html_page(report: BenchReport) -> str:
    """The whole report as one page that asks for nothing else: styles and figures are in it, all text is escaped."""
    jinja2 = require("jinja2", extra="bench")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("semtoken.bench.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode("ascii")
    page: str = environment.get_template("page.html.j2").render(
        report=report, facts=(("Settings", _json(report.settings)), ("Manifest", _json(report.manifest)))
    )
    return page


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, default=str)
