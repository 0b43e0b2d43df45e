r"""Tables as LaTeX with booktabs, to be put into a paper with `\input` or compiled as they are.

Intervals, marks and signs are macros, so that a paper can leave them out or print them otherwise. Characters that
LaTeX may have no glyph for are written as their code points.
"""

from __future__ import annotations

from collections.abc import Sequence

from semtoken.bench.formatting import one_line
from semtoken.bench.report.table import Entry, Table

PREAMBLE = r"""% needs \usepackage{booktabs}
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
    "-": "-{}",  # no dashes from two in a row
    "␣": r"\textvisiblespace{}",
    "–": "--",
    "≈": r"$\approx$",
    "−": "$-$",
} | {sign: f"\\{sign}" for sign in "&%$#_{}"}
_LAST_LETTER = "\u00ff"
"""Up to here every LaTeX has glyphs."""
_SIGNS = {"": "", "≈": r"\levelsign{}", "*": r"\mainsign{}"}


def escaped(text: str) -> str:
    """Text of others as LaTeX that shows it as it is."""
    return "".join(map(_character, one_line(text)))


def _character(c: str) -> str:
    if c in _REPLACED:
        return _REPLACED[c]
    return c if c <= _LAST_LETTER else f"\\texttt{{U+{ord(c):04X}}}"


def latex_table(table: Table) -> str:
    """A floating table that a document can include."""
    columns = "".join(alignment[0] for alignment in table.alignments)
    lines = [
        PREAMBLE + r"\begin{table}[htbp]",
        r"\centering\small",
        rf"\caption{{{escaped(table.title)}. {escaped(table.note)}}}",
        rf"\label{{tab:{table.name.replace('_', '-')}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _row([escaped(name) for name in table.header]),
    ]
    for group in table.groups:
        lines.append(r"\midrule")
        if group.title:
            lines.append(rf"\multicolumn{{{len(table.header)}}}{{l}}{{\emph{{{escaped(group.title)}}}}} \\")
        lines += [_row([_cell(entry) for entry in row]) for row in group.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def latex_document(tables: Sequence[Table], title: str) -> str:
    """A document that shows all tables, each from its own file."""
    return "\n".join(
        [
            r"\documentclass{article}",
            r"\usepackage[T1]{fontenc}",
            r"\usepackage{textcomp}",
            r"\usepackage{booktabs}",
            r"\usepackage[landscape,paperwidth=120cm,paperheight=80cm,margin=2cm]{geometry}",
            rf"\title{{{escaped(title)}}}",
            r"\date{}",
            r"\begin{document}",
            r"\maketitle",
            *(rf"\input{{{table.name}}}\clearpage" for table in tables),
            r"\end{document}",
            "",
        ]
    )


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(entry: Entry) -> str:
    text = escaped(entry.text)
    if entry.mark:
        text = rf"\{entry.mark}{{{text}}}"
    detail = rf" \detail{{{escaped(entry.detail)}}}" if entry.detail else ""
    return f"{text}{_SIGNS[entry.sign]}{detail}"
