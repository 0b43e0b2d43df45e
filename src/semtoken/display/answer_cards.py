"""Cards and tables of scored answers and of their parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from semtoken.display.elements import Html, card, counted, element, folded, joined, note, table
from semtoken.display.shading import CUT_OFF, END, NEWLINE, describe_alternatives, number, with_bounds
from semtoken.errors import MissingExtra

if TYPE_CHECKING:
    from semtoken.parts import Part
    from semtoken.results import ScoredResponse, ScoredToken

WEAK, SOME = 0.5, 0.85
"""Phrases of less confidence are marked as weak, or as of some doubt. The web page has the same levels."""
MARKS = {
    "weak": ("under 50 %", "background:rgba(214,69,45,.22);text-decoration:underline wavy"),
    "some doubt": ("50 to 85 %", "background:rgba(230,170,20,.22);text-decoration:underline dashed"),
}
RANKING = "a ranking, not a chance"
ACCEPTED, CHECK = "Accepted", "Check this"


def answer_card(answer: ScoredResponse) -> Html:
    """An answer with its doubtful phrases marked, its uncertainty, what it could have said, and its tokens."""
    phrases = _phrases(answer)
    doubtful = [part for part in phrases or () if _level(part.confidence)]
    text = _marked(answer, doubtful) if phrases is not None else joined([_plain(answer)])
    uncertainty = with_bounds(answer.uncertainty, answer.uncertainty_bounds)
    notes = [CUT_OFF.capitalize() + "."] if answer.truncated else []
    notes += [flag.message for flag in answer.flags]
    return card(
        element("p", text, dir="auto", style="font-size:1.2em;margin:.2em 0;white-space:pre-wrap"),
        *_calibrated(answer),
        element("p", element("b", f"Uncertainty {uncertainty}"), f": {RANKING}.", style="margin:.3em 0"),
        *_typical(answer),
        *map(note, notes),
        *_rivals(answer, doubtful),
        folded(f"Every token ({len(answer.tokens)})", _tokens(answer.tokens)),
    )


def answers_table(answers: Sequence[ScoredResponse]) -> Html:
    """Answers in their order, each with its uncertainty and its most doubtful phrase."""
    calibrated = any(answer.chance is not None or answer.decision is not None for answer in answers)
    rows = [
        (
            _plain(answer),
            with_bounds(answer.uncertainty, answer.uncertainty_bounds),
            _most_doubtful(answer),
            *(_verdict(answer) if calibrated else ()),
        )
        for answer in answers
    ]
    header = [
        "answer",
        "uncertainty",
        "most doubtful phrase",
        *(["chance of being right", "verdict"] if calibrated else []),
    ]
    title = f"{counted(len(rows), 'answer')}; the uncertainty is {RANKING}"
    return card(table(header, rows, numbers=[1, 3], title=title))


def part_card(part: Part) -> Html:
    """One part of an answer: its text, its confidence, and what is known of it."""
    facts = [part.kind if part.path is None else part.path or "(whole)", f"counted by {part.equality}"]
    if part.closing is not None:
        facts.append(f"ends here with probability {number(part.closing)}")
    return card(
        element("p", _part_text(part), dir="auto", style="font-size:1.2em;margin:.2em 0;white-space:pre-wrap"),
        element("p", element("b", f"Confidence {_confidence(part)}"), style="margin:.3em 0"),
        note(" · ".join(facts)),
        *(note(flag.message) for flag in part.flags),
    )


def parts_table(parts: Sequence[Part]) -> Html:
    """Parts in the order of the text, with the ends of values where there are some."""
    rows = [
        (
            _part_text(part),
            part.kind if part.path is None else part.path or "(whole)",
            element("b", _confidence(part)) if _level(part.confidence) else _confidence(part),
            "" if part.closing is None else number(part.closing),
            ", ".join(flag.code for flag in part.flags),
        )
        for part in parts
    ]
    return card(
        table(
            ["text", "what", "confidence", "ends here", "notes"], rows, numbers=[2, 3], title=counted(len(rows), "part")
        )
    )


def _verdict(answer: ScoredResponse) -> tuple[str, str]:
    """The chance, and what the threshold says, as far as they are known."""
    chance = "" if answer.chance is None else f"{answer.chance:.0%}"
    accepted = answer.decision is not None and answer.decision.action == "answer"
    return chance, "" if answer.decision is None else ACCEPTED if accepted else CHECK


def _calibrated(answer: ScoredResponse) -> Iterator[Html]:
    """The chance in a sentence, and the verdict with its promise."""
    chance, verdict = _verdict(answer)
    if verdict and answer.decision is not None:
        yield element("p", element("b", verdict), f": {answer.decision.statement}", style="margin:.3em 0")
    if answer.chance is not None:
        low, high = answer.chance_bounds or (answer.chance, answer.chance)
        sentence = f"Right in about {chance} of the answers that score like this one ({low:.0%} to {high:.0%})."
        yield element("p", sentence, style="margin:.3em 0")


def _plain(answer: ScoredResponse) -> str:
    return answer.text.rstrip("\n") or (NEWLINE if answer.text else END)


def _part_text(part: Part) -> str:
    return part.text if part.present else "(missing)"


def _confidence(part: Part) -> str:
    if part.confidence is None:
        return "unknown"
    return with_bounds(part.confidence, part.bounds or (part.confidence, part.confidence))


def _level(confidence: float | None) -> str:
    if confidence is None or confidence >= SOME:
        return ""
    return "weak" if confidence < WEAK else "some doubt"


def _phrases(answer: ScoredResponse) -> list[Part] | None:
    """The phrases of an answer in order; None where the library that finds them is missing."""
    try:
        return [part for part in answer.parts(by="phrase") if part.end > part.start]
    except MissingExtra:
        return None


def _marked(answer: ScoredResponse, doubtful: Sequence[Part]) -> Html:
    """The text with its doubtful phrases marked in three ways: a tint, a line and a word."""
    pieces: list[str] = []
    position = 0
    for part in doubtful:
        if part.start < position:
            continue
        level = _level(part.confidence)
        mark = element(
            "mark",
            part.text,
            element("small", number(part.confidence or 0.0, 2), style="display:inline-block;padding-left:.3em"),
            title=f"{level}: confidence {_confidence(part)}",
            style=f"color:inherit;padding:0 .15em;border-radius:3px;{MARKS[level][1]}",
        )
        pieces += [answer.text[position : part.start], mark]
        position = part.end
    rest = answer.text[position:]
    pieces.append(rest.rstrip("\n") if rest.strip("\n") or position else _plain(answer))
    return joined(pieces)


def _typical(answer: ScoredResponse) -> Iterator[Html]:
    """Of a long answer the product says little but the length."""
    from semtoken.parts.new_words import LONG

    typical = answer.new_word_confidence() if len(answer.tokens) >= LONG else None
    if typical is not None:
        yield note(f"Confidence of a typical word: {number(typical)}. Long answers are uncertain by length alone.")


def _rivals(answer: ScoredResponse, doubtful: Sequence[Part]) -> Iterator[Html]:
    """What else was likely at the least certain token of each doubtful phrase."""
    rows = []
    for part in doubtful:
        if part.weakest_token is None:
            continue
        token = answer.tokens[part.weakest_token]
        if others := describe_alternatives(token, least=0.01):
            rows.append((part.text, f"{token.text!r} {number(token.probability)}", others))
    if rows:
        legend = "; ".join(f"{level}: {meaning}" for level, (meaning, _) in MARKS.items())
        yield folded(
            f"What else the model considered ({len(rows)})", table(["phrase", "least certain token", "or"], rows)
        )
        yield note(f"Marked phrases have a confidence below {SOME} ({legend}).")


def _tokens(tokens: Sequence[ScoredToken]) -> Html:
    rows = [
        (
            repr(token.text),
            number(token.probability),
            with_bounds(token.clustered_probability, token.clustered_bounds),
            "counts as certain" if token.neutral else describe_alternatives(token),
        )
        for token in tokens
    ]
    return table(["token", "own probability", "counted", "what else was likely"], rows, numbers=[1, 2])


def _most_doubtful(answer: ScoredResponse) -> str:
    phrases = [part for part in _phrases(answer) or () if part.confidence is not None]
    if not phrases:
        return ""
    worst = min(phrases, key=lambda part: part.confidence or 0.0)
    return f"{worst.text} ({_confidence(worst)})" if _level(worst.confidence) else ""
