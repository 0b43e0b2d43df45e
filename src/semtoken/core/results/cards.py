"""Pieces of the card that a scored answer shows in a notebook: doubtful phrases, what else was likely, every token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from semtoken.core.parts.part import SOME_DOUBT, Part, confidence_text, level_of
from semtoken.core.scored_token import ScoredToken, describe_alternatives
from semtoken.support.html_elements import Html, concatenate, element, folded, note, table
from semtoken.support.text import END, NEWLINE, number, probability, with_bounds

MARKS = {
    "weak": ("under 0.5", "background:rgba(214,69,45,.22);text-decoration:underline wavy"),
    "some doubt": (
        "0.5 to 0.85",
        "background:rgba(230,170,20,.22);text-decoration:underline dashed",
    ),
}
ACCEPTED, CHECK = "Accepted", "Check this"


def plain(text: str) -> str:
    """The text of an answer without newlines at its end, or a sign for a newline or for the end if nothing is left."""
    return text.rstrip("\n") or (NEWLINE if text else END)


def mark_phrases(text: str, doubtful: Sequence[Part]) -> Html:
    """The text with its doubtful phrases marked by a tint, an underline and their confidence."""
    pieces: list[str] = []
    position = 0
    for part in doubtful:
        if part.start < position:
            continue
        level = level_of(part.confidence)
        mark = element(
            "mark",
            part.text,
            element("small", number(part.confidence or 0.0, 2), style="display:inline-block;padding-left:.3em"),
            title=f"{level}: confidence {confidence_text(part)}",
            style=f"color:inherit;padding:0 .15em;border-radius:3px;{MARKS[level][1]}",
        )
        pieces += [text[position : part.start], mark]
        position = part.end
    rest = text[position:]
    pieces.append(rest.rstrip("\n") if rest.strip("\n") or position else plain(text))
    return concatenate(pieces)


def calibration_lines(
    probability_correct: float | None, bounds: tuple[float, float] | None, verdict: str, guarantee: str
) -> Iterator[Html]:
    """A paragraph with the verdict and its guarantee, and one with the probability; none for what is not known."""
    if verdict:
        yield element("p", element("b", verdict), f": {guarantee}", style="margin:.3em 0")
    if probability_correct is not None:
        low, high = bounds or (probability_correct, probability_correct)
        right, interval = probability(probability_correct), f"{probability(low)} to {probability(high)}"
        about = right if " " in right else f"about {right}"
        sentence = f"Right in {about} of the answers that score like this one ({interval})."
        yield element("p", sentence, style="margin:.3em 0")


def rivals(tokens: Sequence[ScoredToken], doubtful: Sequence[Part]) -> Iterator[Html]:
    """A note on each doubtful phrase: which other tokens were likely where it is least certain."""
    rows = []
    for part in doubtful:
        if part.weakest_token is None:
            continue
        token = tokens[part.weakest_token]
        if others := describe_alternatives(token, least=0.01):
            rows.append((part.text, f"{token.text!r} {number(token.probability)}", others))
    if rows:
        legend = "; ".join(f"{level}: {meaning}" for level, (meaning, _) in MARKS.items())
        yield folded(
            f"What else the model considered ({len(rows)})", table(["phrase", "least certain token", "or"], rows)
        )
        yield note(f"Marked phrases have a confidence below {SOME_DOUBT} ({legend}).")


def token_rows(tokens: Sequence[ScoredToken]) -> Html:
    """A table of all tokens with probability, counted mass and alternatives, which opens on a click."""
    rows = [
        (
            repr(token.text),
            number(token.probability),
            with_bounds(token.agreeing_probability, token.agreeing_bounds),
            "counts as certain" if token.neutral else describe_alternatives(token),
        )
        for token in tokens
    ]
    made = table(["token", "own probability", "counted", "what else was likely"], rows, numbers=[1, 2])
    return folded(f"Every token ({len(rows)})", made)
