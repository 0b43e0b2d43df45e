"""A report as files: the folder that it is written to, its page, Markdown, LaTeX and figures."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

from semtoken.bench.report.content import BenchReport, Section
from semtoken.bench.report.latex import latex_document, latex_table
from semtoken.bench.report.markdown import markdown_escaped, markdown_table
from semtoken.bench.results import FILE
from semtoken.errors import InvalidInputError
from semtoken.support.extras import require
from semtoken.support.files.safe_files import replacing_folder

FORMAT = "semtoken.report"
INDEX, PAGE, MARKDOWN = "report.json", "index.html", "report.md"


def write_report(report: BenchReport, folder: str | Path) -> Path:
    """Write all files of a report into a folder, as far as `check_replaceable` allows; returns the page."""
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
    """Raise `InvalidInputError` if a report there would take the place of anything but a former report."""
    if target.exists() and not target.is_dir():
        raise InvalidInputError(f"{target} is a file; give the name of a folder for the report.")
    # The index of a former report lists its files: whatever else is there, somebody put there.
    held = {path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir()}
    others = sorted(held - _former_files(target) - {INDEX})
    if others:
        raise InvalidInputError(
            f"{target} holds other files ({', '.join(others[:3])}{', ...' if len(others) > 3 else ''}), which would be "
            "lost. Choose a new or empty folder with --output."
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
        yield FILE, report.answers
    for table in report.tables:
        yield f"latex/{table.name}.tex", latex_table(table).encode()
    yield "latex/all.tex", latex_document(report.tables, report.title).encode()
    for plot in report.plots:
        yield f"figures/{plot.name}.png", plot.png
        yield f"figures/{plot.name}.svg", plot.svg


def markdown_text(report: BenchReport) -> str:
    """The whole report as Markdown; figures are links to the files beside it."""
    parts = [
        f"# {markdown_escaped(report.title)}",
        f"**{markdown_escaped(report.opening)}**",
        markdown_escaped(report.subtitle),
    ]
    parts += [part for section in report.sections for part in _markdown_parts(section)]
    facts = (("Settings", report.settings), ("Manifest", report.manifest))
    parts += [f"## {name}\n\n{indent(_json(content), ' ' * 4)}" for name, content in facts]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _markdown_parts(section: Section) -> Iterator[str]:
    yield f"## {markdown_escaped(section.title)}"
    if section.lines:
        yield "\n".join(f"- {markdown_escaped(line)}" for line in section.lines)
    yield from map(markdown_table, section.tables)
    for plot in section.plots:
        yield f"![{markdown_escaped(plot.title)}](figures/{plot.name}.png)"
        yield markdown_escaped(plot.caption)
    yield from map(markdown_table, section.folded)


def html_page(report: BenchReport) -> str:
    """The whole report as one page that asks for nothing else: styles and figures are in it, all text is escaped."""
    jinja2 = require("jinja2", extra="bench")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("semtoken.bench.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        # A misspelled name in the template raises, in place of an empty spot on the page.
        undefined=jinja2.StrictUndefined,
    )
    # Pictures are inside the page, so that it can be sent as one file.
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode("ascii")
    page: str = environment.get_template("page.html.j2").render(
        report=report, facts=(("Settings", _json(report.settings)), ("Manifest", _json(report.manifest)))
    )
    return page


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, default=str)
