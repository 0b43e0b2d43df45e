"""Tables of a report: numbers as they are printed, entries in groups of rows, all of it as HTML, LaTeX and Markdown."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from semtoken.support.extras import require
from semtoken.support.text import Html, concatenate, element, one_line, table

MISSING = "–"
"""What stands in a table where there is no number."""


def metric(value: float) -> str:
    """An AUROC, PRR or similar metric as text, with three decimals: `0.768`."""
    return MISSING if math.isnan(value) else f"{value:.3f}"


def interval(low: float, high: float) -> str:
    """An interval as text, such as `[0.741, 0.793]`; empty if its ends are undefined."""
    return "" if math.isnan(low) or math.isnan(high) else f"[{low:.3f}, {high:.3f}]"


def signed(value: float, digits: int = 3) -> str:
    """A difference of two metrics with its sign, such as `+0.012`; what rounds to zero is `0.000`, without one."""
    if math.isnan(value):
        return MISSING
    nothing = f"{0:.{digits}f}"
    return nothing if f"{abs(value):.{digits}f}" == nothing else f"{value:+.{digits}f}"


def signed_interval(low: float, high: float) -> str:
    """An interval with signs, such as `[-0.003, +0.027]`, with as many decimals (six at most) as tell its ends apart.

    Empty if they are undefined or read the same.
    """
    if math.isnan(low) or math.isnan(high) or low == high:
        return ""
    for digits in range(3, 7):
        ends = signed(low, digits), signed(high, digits)
        if ends[0] != ends[1]:
            return f"[{ends[0]}, {ends[1]}]"
    return ""


def amount(value: float) -> str:
    """Seconds or percentages of any size as text with about three digits: `0.023`, `3.03`, `50.9`, `1,374`."""
    if math.isnan(value):
        return MISSING
    size = abs(value)
    if 0 < size < 0.0005:
        return f"{'-' if value < 0 else ''}<0.001"
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return "0" if size == 0 else f"{value:,.{digits}f}"


def signed_amount(value: float) -> str:
    """A difference as text with its sign, such as `+1.03` or `-374`, with the digits of `amount`."""
    return f"+{amount(value)}" if value > 0 else amount(value)


def share(value: float) -> str:
    """A share in [0, 1] as a percentage: `81.4 %`."""
    return MISSING if math.isnan(value) else f"{100 * value:.1f} %"


Mark = Literal["", "best", "second"]
Sign = Literal["", "≈", "*"]
Alignment = Literal["left", "right"]


@dataclass(frozen=True)
class Entry:
    """One cell of a table: its text and detail, and how it is marked."""

    text: str
    detail: str = ""
    """What stands smaller beside it: an interval, or why there is no number."""
    value: float = math.nan
    """What marks go by; NaN: never marked."""
    mark: Mark = ""
    sign: Sign = ""
    """≈: not shown to be lower than the best. *: the clustering that the methods use."""


@dataclass(frozen=True)
class Group:
    """Rows of a table under a common heading."""

    title: str
    """The heading; none where it is empty."""
    rows: tuple[tuple[Entry, ...], ...]


@dataclass(frozen=True)
class Table:
    """A table of the report. Its columns mean the same in all groups; the first one names the row."""

    name: str
    """The name of its file, without the ending, and of its anchor on the page."""
    title: str
    header: tuple[str, ...]
    groups: tuple[Group, ...]
    note: str = ""
    left: int = 1
    """Number of columns of text on the left; the others hold numbers."""

    @property
    def alignments(self) -> tuple[Alignment, ...]:
        """The side to which each column is aligned."""
        return tuple("left" if i < self.left else "right" for i in range(len(self.header)))


def texts(*values: str) -> tuple[Entry, ...]:
    """A row of unmarked entries with these texts."""
    return tuple(map(Entry, values))


def marked_rows(
    rows: Sequence[tuple[Entry, ...]], *, smallest: bool = False, columns: Sequence[int] | None = None
) -> tuple[tuple[Entry, ...], ...]:
    """Mark the best and the second best entry of each column in the rows of one group of a table.

    Entries that read the same share their mark, and two that are best leave no second place. The largest is the best
    unless `smallest`. By default all columns are marked but the first, which names the row.
    """
    marked = [list(row) for row in rows]
    for column in range(1, len(rows[0]) if rows else 0) if columns is None else columns:
        entries = [row[column] for row in rows if not math.isnan(row[column].value)]
        ranked = list(dict.fromkeys(e.text for e in sorted(entries, key=lambda e: e.value if smallest else -e.value)))
        best = [e.text for e in entries].count(ranked[0]) if ranked else 0
        places: dict[str, Mark] = dict(zip(ranked, ("best",) if best > 1 else ("best", "second"), strict=False))
        for row in marked:
            if not math.isnan(row[column].value):
                row[column] = replace(row[column], mark=places.get(row[column].text, ""))
    return tuple(tuple(row) for row in marked)


def as_html(made: Table) -> Html:
    """A table as a notebook shows it: the best entries in bold, all groups in one, without their headings."""
    rows = [[_html_cell(entry) for entry in row] for group in made.groups for row in group.rows]
    return table(made.header, rows, numbers=range(made.left, len(made.header)), title=made.title)


def _html_cell(entry: Entry) -> Html:
    text = element("b", entry.text) if entry.mark == "best" else entry.text
    return concatenate([text, entry.sign, f" {entry.detail}" if entry.detail else ""])


LONG = 45
"""Lines that still make a floating table."""
PREAMBLE = r"""% needs \usepackage{booktabs,longtable} and \usepackage[T1]{fontenc}
\providecommand{\best}[1]{\textbf{#1}}
\providecommand{\second}[1]{\underline{#1}}
\providecommand{\detail}[1]{{\scriptsize #1}}
\providecommand{\levelsign}{$^{\approx}$}
\providecommand{\mainsign}{$^{*}$}
"""
_REPLACED = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "|": r"\textbar{}",
    "␣": r"\textvisiblespace{}",
    "–": r"\textendash{}",
    "≈": r"$\approx$",
    "−": "$-$",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}
_LIGATURE = re.compile("-(?=-)")
_MINUS = re.compile(r"(?<![\w-])-(?=\d)")
_LAST_LETTER = "\u00ff"
"""The last letter for which every LaTeX has a glyph."""
_LATEX_SIGNS = {"": "", "≈": r"\levelsign{}", "*": r"\mainsign{}"}


def latex_escaped(text: str) -> str:
    """Arbitrary text with LaTeX's special characters escaped."""
    return _LIGATURE.sub("-{}", "".join(map(_character, one_line(text))))


def _character(c: str) -> str:
    if c in _REPLACED:
        return _REPLACED[c]
    return c if c <= _LAST_LETTER else f"\\texttt{{U+{ord(c):04X}}}"


def latex_table(table: Table) -> str:
    """A table as LaTeX to include in a document, floating or over several pages."""
    caption = rf"\caption{{{latex_escaped(table.title)}. {latex_escaped(table.note)}}}"
    label = rf"\label{{tab:{table.name.replace('_', '-')}}}"
    columns = "".join(alignment[0] for alignment in table.alignments)
    head = [r"\toprule", _latex_row([latex_escaped(name) for name in table.header]), r"\midrule"]
    body = _body(table)
    if len(body) > LONG:
        begin = [rf"\begin{{longtable}}{{{columns}}}", rf"{caption}{label} \\", *head, r"\endhead"]
        lines = [r"{\small", *begin, *body, r"\bottomrule", r"\end{longtable}", "}"]
    else:
        begin = [r"\begin{table}[htbp]", r"\centering\small", caption, label, rf"\begin{{tabular}}{{{columns}}}", *head]
        lines = [*begin, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return PREAMBLE + "\n".join(lines) + "\n"


def _body(table: Table) -> list[str]:
    lines = []
    for number, group in enumerate(table.groups):
        if number:
            lines.append(r"\midrule")
        if group.title:
            lines.append(rf"\multicolumn{{{len(table.header)}}}{{l}}{{\emph{{{latex_escaped(group.title)}}}}} \\")
        lines += [_latex_row([_latex_cell(entry) for entry in row]) for row in group.rows]
    return lines


A4_WIDTH = 210
LETTER_WIDTH = 1.9  # millimetres, at ten points


def latex_document(tables: Sequence[Table], title: str) -> str:
    """A document that shows all tables, each from its own file."""
    width = max([A4_WIDTH, *map(_paper_width, tables)])
    return "\n".join(
        [
            r"\documentclass{article}",
            r"\usepackage[T1]{fontenc}",
            r"\usepackage{textcomp}",
            r"\usepackage{booktabs,longtable}",
            rf"\usepackage[paperwidth={width}mm,paperheight=297mm,margin=20mm]{{geometry}}",
            rf"\title{{{latex_escaped(title)}}}",
            r"\date{}",
            r"\begin{document}",
            r"\maketitle",
            *(rf"\input{{{table.name}}}\clearpage" for table in tables),
            r"\end{document}",
            "",
        ]
    )


def _paper_width(table: Table) -> int:
    """Millimetres in which a table finds room."""
    rows = [[f"{entry.text} {entry.detail}" for entry in row] for group in table.groups for row in group.rows]
    letters = sum(3 + max(map(len, column)) for column in zip(table.header, *rows, strict=True))
    return 2 * 20 + int(LETTER_WIDTH * letters)


def _latex_row(cells: Sequence[str]) -> str:
    guard = "{}" if cells[0].startswith(("[", "*")) else ""  # the line before would take them as its own
    return guard + " & ".join(cells) + r" \\"


def _latex_cell(entry: Entry) -> str:
    text, detail = (latex_escaped(_MINUS.sub("−", part)) for part in (entry.text, entry.detail))
    if entry.mark:
        text = rf"\{entry.mark}{{{text}}}"
    return f"{text}{_LATEX_SIGNS[entry.sign]}" + (rf" \detail{{{detail}}}" if detail else "")


_SPECIAL = re.compile(r"([\\`*_\[\]|$~#!])")


def markdown_escaped(text: str) -> str:
    """Arbitrary text on one line with Markdown's special characters escaped."""
    return _SPECIAL.sub(r"\\\1", html.escape(one_line(text), quote=False))


def markdown_table(table: Table) -> str:
    """A table as Markdown: a heading, a table for each group, and the note."""
    tabulate = require("tabulate", extra="bench").tabulate
    parts = [f"### {markdown_escaped(table.title)}"]
    for group in table.groups:
        if group.title:
            parts.append(f"**{markdown_escaped(group.title)}**")
        rows = [[_markdown_cell(entry) for entry in row] for row in group.rows]
        header = [markdown_escaped(name) for name in table.header]
        parts.append(
            tabulate(rows, header, tablefmt="pipe", colalign=table.alignments, disable_numparse=True)
            if rows
            else "Nothing of this is complete."
        )
    if table.note:
        parts.append(markdown_escaped(table.note))
    return "\n\n".join(parts) + "\n"


def _markdown_cell(entry: Entry) -> str:
    text = markdown_escaped(entry.text)
    if entry.mark:
        text = f"**{text}**" if entry.mark == "best" else f"<u>{text}</u>"
    detail = f" {markdown_escaped(entry.detail)}" if entry.detail else ""
    return f"{text}{markdown_escaped(entry.sign)}{detail}"
