"""Tables of a report: numbers as they are printed, and frames of texts written as HTML, LaTeX and Markdown."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from semtoken.support.extras import require
from semtoken.support.html_elements import Html, concatenate, element
from semtoken.support.html_elements import table as html_table
from semtoken.support.text import one_line

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MISSING = "–"
"""The text of an entry without a number."""
NOT_RUN = f"{MISSING} not in this run"


def metric(value: float) -> str:
    """An AUROC, PRR or similar metric as text, with three decimals: `0.768`."""
    return MISSING if math.isnan(value) else f"{value:.3f}"


def estimate(value: float, low: float, high: float) -> str:
    """A metric with its interval, such as `0.768 [0.741, 0.793]`; "undefined" for NaN."""
    if math.isnan(value):
        return "undefined"
    if low == high:  # every resample gave the same: a handful of answers, or a perfect order
        return f"{value:.3f} no interval"
    return f"{value:.3f}" if math.isnan(low) or math.isnan(high) else f"{value:.3f} [{low:.3f}, {high:.3f}]"


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


def difference(value: float, low: float, high: float) -> str:
    """A difference with its interval, such as `+0.012 [-0.003, +0.027]`, or `0.000 no interval`."""
    if math.isnan(value):
        return MISSING
    return f"{signed(value)} {signed_interval(low, high) or 'no interval'}"


def amount(value: float) -> str:
    """Seconds or percentages of any size as text with about three digits: `0.023`, `3.03`, `50.9`, `1,374`."""
    if math.isnan(value):
        return MISSING
    size = abs(value)
    if 0 < size < 0.0005:
        return f"{'-' if value < 0 else ''}<0.001"
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return "0" if size == 0 else f"{value:,.{digits}f}"


def share(value: float) -> str:
    """A share in [0, 1] as a percentage: `81.4%`."""
    return MISSING if math.isnan(value) else f"{100 * value:.1f}%"


Mark = Literal["", "best", "second"]


class TableEntry(NamedTuple):
    """One cell of a table as it is written."""

    text: str
    detail: str
    """The interval beside it."""
    mark: Mark


@dataclass(frozen=True, eq=False)
class Table:
    """A table of the report."""

    name: str
    """The name of its file, without the ending, and of its anchor on the page."""
    title: str
    frame: DataFrame
    """Texts. The index holds the heading of each row's group, empty without one; the first column names the row."""
    note: str = ""
    left: int = 1
    """Number of columns of text on the left; the others hold numbers."""
    marks: DataFrame | None = None
    """The mark of each text: "best", "second" or empty."""

    @property
    def header(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.frame.columns)

    @property
    def alignments(self) -> tuple[Literal["left", "right"], ...]:
        """The side to which each column is aligned."""
        return tuple("left" if i < self.left else "right" for i in range(len(self.header)))

    @property
    def groups(self) -> list[tuple[str, list[list[TableEntry]]]]:
        """The heading and the rows of each group."""
        groups: dict[str, list[list[TableEntry]]] = {}
        marks = [[""] * len(self.header)] * len(self.frame) if self.marks is None else self.marks.to_numpy().tolist()
        for title, texts, own in zip(self.frame.index, self.frame.to_numpy().tolist(), marks, strict=True):
            groups.setdefault(title, []).append(list(map(_entry, texts, own)))
        return list(groups.items())


def _entry(text: str, mark: Mark) -> TableEntry:
    """The interval apart from the number before it."""
    value, bracket, interval = text.partition(" [") if text[:1].isdigit() or text[:1] in "+-" else (text, "", "")
    return TableEntry(value, f"[{interval}" if bracket else "", mark)


def frame(rows: Sequence[Sequence[str | float]], header: Sequence[str], groups: Sequence[str] | str = "") -> DataFrame:
    """The frame of a table: rows of texts (or numbers), with the heading of each row's group."""
    pandas = require("pandas", extra="bench")
    index = [groups] * len(rows) if isinstance(groups, str) else list(groups)
    return pandas.DataFrame(list(map(list, rows)), columns=list(header), index=index, dtype=object)


def best_marks(values: DataFrame, texts: DataFrame, *, smallest: bool = False) -> DataFrame:
    """Mark the best and the second best text of each column in every group; `values` has NaN where none may be marked.

    Texts that read the same share their mark, and two that are best leave no second place. The largest value is the
    best unless `smallest`.
    """
    marks = texts.copy()
    for name in texts.columns:
        places: list[Mark] = []
        for group in dict.fromkeys(texts.index):
            inside = texts.index == group
            places += _places(values[name][inside], texts[name][inside], smallest)
        marks[name] = places
    return marks


def _places(values: Series, texts: Series, smallest: bool) -> list[Mark]:
    entries = list(zip(values, texts, strict=True))
    defined = sorted((e for e in entries if not math.isnan(e[0])), key=lambda e: e[0], reverse=not smallest)
    read = [text.partition(" ")[0].rstrip("≈*") for _, text in defined]
    ranked = list(dict.fromkeys(read))
    names: tuple[Mark, ...] = ("best",) if ranked and read.count(ranked[0]) > 1 else ("best", "second")
    places = dict(zip(ranked, names, strict=False))
    return ["" if math.isnan(v) else places.get(text.partition(" ")[0].rstrip("≈*"), "") for v, text in entries]


def as_html(made: Table) -> Html:
    """A table as a notebook shows it: the best entries in bold, all groups in one, without their headings."""
    rows = [[_html_cell(entry) for entry in row] for _, group in made.groups for row in group]
    return html_table(made.header, rows, numbers=range(made.left, len(made.header)), title=made.title)


def _html_cell(entry: TableEntry) -> Html:
    text = element("b", entry.text) if entry.mark == "best" else entry.text
    return concatenate([text, f" {entry.detail}" if entry.detail else ""])


LONG = 45
"""Lines that still make a floating table."""
PREAMBLE = r"""% needs \usepackage{booktabs,longtable} and \usepackage[T1]{fontenc}
\providecommand{\best}[1]{\textbf{#1}}
\providecommand{\second}[1]{\underline{#1}}
\providecommand{\detail}[1]{{\scriptsize #1}}
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


def latex_escaped(text: str) -> str:
    """Arbitrary text with LaTeX's special characters escaped."""
    return _LIGATURE.sub("-{}", "".join(map(_character, one_line(text))))


def _character(c: str) -> str:
    return _REPLACED.get(c) or (c if c <= _LAST_LETTER else f"\\texttt{{U+{ord(c):04X}}}")


def latex_table(table: Table) -> str:
    """A table as LaTeX to include in a document, floating or over several pages; the first column is the group."""
    pandas = require("pandas", extra="bench")
    groups = [(latex_escaped(title), [list(map(_latex_cell, row)) for row in rows]) for title, rows in table.groups]
    places = [(title, f"{{}}{row[0]}") for title, rows in groups for row in rows]  # \\ would take "[" as its own
    header = list(map(latex_escaped, table.header))
    index = (
        pandas.MultiIndex.from_tuples(places, names=["", header[0]])
        if places
        else pandas.MultiIndex([[], []], [[], []])
    )
    styler = pandas.DataFrame([row[1:] for _, rows in groups for row in rows], columns=header[1:], index=index).style
    grouped, long = any(title for title, _ in groups), len(places) > LONG
    text = (styler if grouped else styler.hide(axis="index", level=0)).to_latex(
        column_format="l" * grouped + "".join(side[0] for side in table.alignments),
        hrules=True,
        clines="skip-last;data" if grouped else None,
        multirow_align="naive",
        caption=f"{latex_escaped(table.title)}. {latex_escaped(table.note)}",
        label=f"tab:{table.name.replace('_', '-')}",
        environment="longtable" if long else "table",
        position=None if long else "htbp",
        position_float=None if long else "centering",
    )
    small = f"{{\\small\n{text}}}\n" if long else text.replace("\\centering", "\\centering\\small", 1)
    return PREAMBLE + small  # a float begins in the normal size


def _latex_cell(entry: TableEntry) -> str:
    text, detail = (latex_escaped(_MINUS.sub("−", part)) for part in (entry.text, entry.detail))
    text = rf"\{entry.mark}{{{text}}}" if entry.mark else text
    return f"{text} \\detail{{{detail}}}" if detail else text


A4_WIDTH = 210
LETTER_WIDTH = 1.9  # millimetres, at ten points


def latex_document(tables: Sequence[Table], title: str) -> str:
    """A document that shows all tables, each from its own file."""
    width = max([A4_WIDTH, *map(_paper_width, tables)])
    inputs = "\n".join(rf"\input{{{table.name}}}\clearpage" for table in tables)
    return rf"""\documentclass{{article}}
\usepackage[T1]{{fontenc}}
\usepackage{{textcomp}}
\usepackage{{booktabs,longtable}}
\usepackage[paperwidth={width}mm,paperheight=297mm,margin=20mm]{{geometry}}
\title{{{latex_escaped(title)}}}
\date{{}}
\begin{{document}}
\maketitle
{inputs}
\end{{document}}
"""


def _paper_width(table: Table) -> int:
    """Millimetres in which a table finds room."""
    widest = [max(map(len, [name, *table.frame.iloc[:, i]])) for i, name in enumerate(table.header)]
    return 2 * 20 + int(LETTER_WIDTH * (sum(widest) + 3 * len(widest) + max(map(len, table.frame.index), default=0)))


_SPECIAL = re.compile(r"([\\`*_\[\]|$~#!])")


def markdown_escaped(text: str) -> str:
    """Arbitrary text on one line with Markdown's special characters escaped."""
    return _SPECIAL.sub(r"\\\1", html.escape(one_line(text), quote=False))


def markdown_table(table: Table) -> str:
    """A table as Markdown: a heading, a table for each group, and the note."""
    return "\n\n".join(_markdown_parts(table)) + "\n"


def _markdown_parts(table: Table) -> Iterator[str]:
    tabulate: Any = require("tabulate", extra="bench").tabulate
    header = list(map(markdown_escaped, table.header))
    yield f"### {markdown_escaped(table.title)}"
    for title, rows in table.groups:
        if title:
            yield f"**{markdown_escaped(title)}**"
        cells = [list(map(_markdown_cell, row)) for row in rows]
        yield tabulate(cells, header, tablefmt="pipe", colalign=table.alignments, disable_numparse=True)
    if not table.groups:
        yield "Nothing of this is complete."
    if table.note:
        yield markdown_escaped(table.note)


def _markdown_cell(entry: TableEntry) -> str:
    text = markdown_escaped(entry.text)
    text = {"best": f"**{text}**", "second": f"<u>{text}</u>"}.get(entry.mark, text)
    return f"{text} {markdown_escaped(entry.detail)}" if entry.detail else text
