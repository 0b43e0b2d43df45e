"""Tables of a report as LaTeX: one to include in a document, and a document that shows all."""

from __future__ import annotations

import re
from collections.abc import Sequence

from semtoken.bench.report.table import Table, TableEntry
from semtoken.support.extras import require
from semtoken.support.text import one_line

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
LETTER_WIDTH = 1.9  # millimeters, at ten points


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
    """Millimeters in which a table finds room."""
    widest = [max(map(len, [name, *table.frame.iloc[:, i]])) for i, name in enumerate(table.header)]
    return 2 * 20 + int(LETTER_WIDTH * (sum(widest) + 3 * len(widest) + max(map(len, table.frame.index), default=0)))
