r"""Tables as LaTeX with booktabs, to be put into a paper with `\input` or compiled as they are.

Intervals, marks and signs are macros, so that a paper can leave them out or print them otherwise. Characters that
LaTeX may have no glyph for are written as their code points.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from semtoken.bench.report.table import Entry, Table
from semtoken.support.text import one_line

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
"""Up to here every LaTeX has glyphs."""
_SIGNS = {"": "", "≈": r"\levelsign{}", "*": r"\mainsign{}"}


def escaped(text: str) -> str:
    """Text of others as LaTeX that shows it as it is."""
    return _LIGATURE.sub("-{}", "".join(map(_character, one_line(text))))


def _character(c: str) -> str:
    if c in _REPLACED:
        return _REPLACED[c]
    return c if c <= _LAST_LETTER else f"\\texttt{{U+{ord(c):04X}}}"


def latex_table(table: Table) -> str:
    """A floating table, or one that goes over several pages, that a document can include."""
    caption = rf"\caption{{{escaped(table.title)}. {escaped(table.note)}}}"
    label = rf"\label{{tab:{table.name.replace('_', '-')}}}"
    columns = "".join(alignment[0] for alignment in table.alignments)
    head = [r"\toprule", _row([escaped(name) for name in table.header]), r"\midrule"]
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
            lines.append(rf"\multicolumn{{{len(table.header)}}}{{l}}{{\emph{{{escaped(group.title)}}}}} \\")
        lines += [_row([_cell(entry) for entry in row]) for row in group.rows]
    return lines


A4_WIDTH = 210
LETTER_WIDTH = 1.9  # millimetres, at ten points


def latex_document(tables: Sequence[Table], title: str) -> str:
    """A document that shows all tables, each from its own file."""
    return "\n".join(
        [
            r"\documentclass{article}",
            r"\usepackage[T1]{fontenc}",
            r"\usepackage{textcomp}",
            r"\usepackage{booktabs,longtable}",
            rf"\usepackage[paperwidth={_paper_width(tables)}mm,paperheight=297mm,margin=20mm]{{geometry}}",
            rf"\title{{{escaped(title)}}}",
            r"\date{}",
            r"\begin{document}",
            r"\maketitle",
            *(rf"\input{{{table.name}}}\clearpage" for table in tables),
            r"\end{document}",
            "",
        ]
    )


def _paper_width(tables: Sequence[Table]) -> int:
    """Millimetres in which the widest table finds room, A4 at least."""
    return max(
        [A4_WIDTH, *(2 * 20 + int(LETTER_WIDTH * sum(map(_longest, zip(*_cells(t), strict=True)))) for t in tables)]
    )


def _cells(table: Table) -> list[list[str]]:
    """Texts of the cells, the header's among them."""
    rows = [row for group in table.groups for row in group.rows]
    return [list(table.header), *([f"{entry.text} {entry.detail}" for entry in row] for row in rows)]


def _longest(column: Sequence[str]) -> int:
    """Letters of its longest cell, and the space beside it."""
    return 3 + max(map(len, column))


def _row(cells: Sequence[str]) -> str:
    guard = "{}" if cells[0].startswith(("[", "*")) else ""  # the line before would take them as its own
    return guard + " & ".join(cells) + r" \\"


def _cell(entry: Entry) -> str:
    text, detail = (escaped(_MINUS.sub("−", part)) for part in (entry.text, entry.detail))
    if entry.mark:
        text = rf"\{entry.mark}{{{text}}}"
    return f"{text}{_SIGNS[entry.sign]}" + (rf" \detail{{{detail}}}" if detail else "")
