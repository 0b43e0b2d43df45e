"""A scored answer to look at: its text shaded by the uncertainty of each token, for terminals and for web pages.

Shows a `ScoredAnswer`, computes no scores. Certain text is left plain; the riskier a token, the redder it is.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semtoken.core.parts.prose import is_sentence
from semtoken.core.results.confidence import RANKS
from semtoken.core.scored_token import describe_alternatives
from semtoken.support.text import CUT_OFF, END, NEWLINE, number, visible, with_bounds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from semtoken.core.parts import Part
    from semtoken.core.results import ScoredAnswer, ScoredToken

PLAIN_BELOW = 0.02
"""Tokens of less uncertainty are not shaded."""
LEVELS = (0.0, 0.5, 1.0)
COLORS = np.array([(255, 243, 205), (253, 174, 97), (205, 50, 45)])
"""Background colors at these levels of uncertainty: pale yellow, orange, red; linear between them."""
LIGHT_TEXT_FROM = 0.75
SOME_DOUBT, WEAK = 0.15, 0.5
"""Levels from which on a token is underlined, and bold as well; the page has the same levels in color."""


@dataclass(frozen=True)
class ColoredSpan:
    """A stretch of the answer that is shown in one color: one token, or several that share a character."""

    text: str
    """The text to show: blank terminators as `↵` or `∎`, control characters as escapes."""
    tokens: tuple[ScoredToken, ...]
    """The tokens of the stretch; none for text that no token covers."""

    @property
    def uncertainty(self) -> float:
        """1 - product of the agreeing probabilities of its tokens, in [0, 1]."""
        return -math.expm1(math.fsum(token.log_agreeing_probability for token in self.tokens)) + 0.0

    @property
    def shaded(self) -> bool:
        """True if the span is uncertain enough to get a color."""
        return self.uncertainty >= PLAIN_BELOW


def segments(response: ScoredAnswer) -> list[ColoredSpan]:
    """The answer divided at the boundaries of its tokens, each character once, with line ends made visible."""
    cut: list[ColoredSpan] = []
    position = 0
    for start, end, tokens in _groups(response.tokens):
        if start > position:
            cut.append(ColoredSpan(visible(response.text[position:start]), ()))
        text = response.text[max(start, position) : end]
        cut.append(ColoredSpan(visible(text) if text else END, tokens))
        position = max(position, end)
    if position < len(response.text):
        cut.append(ColoredSpan(visible(response.text[position:]), ()))
    return _with_last_newline_marked(cut)


def _groups(tokens: Sequence[ScoredToken]) -> list[tuple[int, int, tuple[ScoredToken, ...]]]:
    """Tokens with their character ranges, those that share a character together."""
    groups: list[tuple[int, int, tuple[ScoredToken, ...]]] = []
    for token in tokens:
        # Tokens that are pieces of one character share its place, and half a character cannot be shown.
        if groups and token.end > token.start and token.start < groups[-1][1]:
            start, end, members = groups.pop()
            groups.append((start, max(end, token.end), (*members, token)))
        else:
            groups.append((token.start, token.end, (token,)))
    return groups


def _with_last_newline_marked(cut: list[ColoredSpan]) -> list[ColoredSpan]:
    """A newline that ends the answer would not be seen: show a sign for it."""
    for i in range(len(cut) - 1, -1, -1):
        text = cut[i].text
        if text.strip(f" \n{END}"):
            break
        if "\n" in text:
            cut[i] = ColoredSpan(text.replace("\n", NEWLINE), cut[i].tokens)
    return cut


def color(uncertainty: float) -> tuple[int, int, int]:
    """Background color (red, green, blue) for an uncertainty in [0, 1]."""
    red, green, blue = (round(float(np.interp(uncertainty, LEVELS, shades))) for shades in COLORS.T)
    return red, green, blue


def _colors(uncertainty: float) -> tuple[str, str]:
    """Text and background color."""
    background = "#{:02x}{:02x}{:02x}".format(*color(uncertainty))
    return "#ffffff" if uncertainty >= LIGHT_TEXT_FROM else "#202020", background


def shaded_text(response: ScoredAnswer) -> Text:
    """A scored answer for a terminal, tokens shaded by their own uncertainty, darker is riskier: use `rich.print`."""
    from rich.text import Text

    text = Text()
    for segment in segments(response):
        foreground, background = _colors(segment.uncertainty)
        marks = _marks(segment.uncertainty)
        text.append(segment.text, style=f"{marks}{foreground} on {background}" if segment.shaded else "")
    return text


def _marks(uncertainty: float) -> str:
    """The marks that are seen without colors."""
    return "bold underline " if uncertainty >= WEAK else "underline " if uncertainty >= SOME_DOUBT else ""


def legend() -> Text:
    """One line that explains the colors and underlines."""
    from rich.text import Text

    text = Text("uncertainty of a token: ", style="dim")
    for value in (0.1, 0.3, 0.5, 0.7, 0.9):
        foreground, background = _colors(value)
        text.append(f" {value} ", style=f"{_marks(value)}{foreground} on {background}")
    text.append(f" underlined from {SOME_DOUBT} on, bold from {WEAK}", style="dim")
    return text


def token_table(response: ScoredAnswer) -> Table:
    """Token by token for a terminal: probability, agreeing probability, and what carried the difference."""
    from rich.table import Column, Table
    from rich.text import Text

    numbers = (Column(name, justify="right") for name in ("probability", "agreeing"))
    table = Table("token", *numbers, "what else was likely", box=None, pad_edge=False)
    for token in response.tokens:
        carried = "neutral: counts as certain" if token.neutral else describe_alternatives(token)
        table.add_row(
            Text(repr(token.text)),
            number(token.probability),
            with_bounds(token.agreeing_probability, token.agreeing_bounds),
            Text(carried),
        )
    return table


def parts_table(parts: Sequence[Part]) -> Table:
    """The parts of an answer for a terminal, the riskiest first; missing fields last."""
    from rich.table import Column, Table
    from rich.text import Text

    numbers = (Column(name, justify="right") for name in ("confidence", "ends here"))
    table = Table(*numbers, "what", "text", "notes", box=None, pad_edge=False)
    for part in sorted(parts, key=lambda one: 2.0 if one.confidence is None else one.confidence):
        known = part.confidence is not None and part.bounds is not None
        table.add_row(
            with_bounds(part.confidence, part.bounds) if known else "-",  # type: ignore[arg-type]
            "-" if part.closing is None else number(part.closing),
            Text(visible(part.kind if part.path is None else part.path or "(whole)")),
            Text(visible(part.text) if part.present else "(missing)"),
            Text(", ".join(flag.code for flag in part.flags)),
        )
    return table


def shaded_html(response: ScoredAnswer) -> str:
    """The answer as a self-contained HTML fragment: inline styles, escaped text, no scripts.

    Pointing at a token shows its probability, its agreeing probability and what carried it. Put the fragment into
    any page, or show it in a notebook with `IPython.display.HTML`.
    """
    spans = "".join(map(_span, segments(response)))
    caption = response.summary + (f"; {CUT_OFF}" if response.truncated else "")
    if response.probability_correct is None:
        caption += f". {RANKS}"
    return (
        '<div class="semtoken" style="font-family:sans-serif;line-height:1.6">'
        f'<span style="white-space:pre-wrap">{spans}</span> '
        f'<small title="{html.escape(response.signature, quote=True)}">{html.escape(caption)}</small></div>'
    )


def _span(segment: ColoredSpan) -> str:
    text = html.escape(segment.text, quote=True)
    if not segment.tokens:
        return text
    foreground, background = _colors(segment.uncertainty)
    line = "underline wavy" if segment.uncertainty >= WEAK else "underline dashed"
    marks = f";text-decoration:{line}" if segment.uncertainty >= SOME_DOUBT else ""
    style = f' style="color:{foreground};background:{background}{marks}"' if segment.shaded else ""
    title = html.escape("\n".join(map(_tooltip, segment.tokens)), quote=True)
    return f'<span{style} title="{title}">{text}</span>'


def _tooltip(token: ScoredToken) -> str:
    agreeing = with_bounds(token.agreeing_probability, token.agreeing_bounds)
    facts = f"{token.text!r}: probability {number(token.probability)}, agreeing {agreeing}"
    carried = "neutral" if token.neutral else describe_alternatives(token)
    return visible(f"{facts}; {carried}" if carried else facts)


def summary_line(answer: ScoredAnswer, *, hidden: bool = False) -> str:
    """The numbers of an answer in one line, the confidence first; nothing quotes one that is hidden."""
    notes = [(answer.without_quotes() if hidden else answer).summary]
    if not is_sentence(answer.text, answer.n_tokens):  # of a sentence these two say how it might have been phrased
        notes.append(f"sequence uncertainty {number(answer.sequence_uncertainty)}")
        notes.append(f"probability of these very words {number(math.exp(answer.log_probability))}")
    if answer.truncated:
        notes.append(CUT_OFF)
    if answer.empty:
        notes.append("empty answer")
    elif answer.neutral_only:
        notes.append("only function words")
    return " · ".join(notes)


def scores_line(answer: ScoredAnswer) -> str:
    """The scores of an answer by further methods in one line, with bounds where one is not exact; empty without any."""
    bounds = {name: f" ({low:.4g} to {high:.4g})" for name, (low, high) in answer.score_bounds.items()}
    return " · ".join(f"{name} {value:.4g}{bounds.get(name, '')}" for name, value in answer.scores.items())
