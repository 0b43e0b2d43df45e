"""Labels as people write them: which option of a question a label means."""

from __future__ import annotations

from typing import Any

from semtoken.decisions.questions import Question

_TRUE = frozenset({"true", "yes", "y", "1"})
_FALSE = frozenset({"false", "no", "n", "0"})


def place_of(label: Any, question: Question) -> int:
    """The place of the option that a label means: its value, or another spelling of the value or the name.

    Other spellings are those of tables and people: yes or 1 for true, 4.0 for 4, names of levels, capitals and blanks
    around. `ValueError` if the label means no option, or several.

    >>> from semtoken.decisions import Predicate, Score
    >>> place_of("YES", Predicate("So?")), place_of("1.0", Score("How?", ["Calm", "Angry"]))
    (0, 1)
    """
    options = question.options
    for place, option in enumerate(options):
        if type(option.value) is type(label) and option.value == label:
            return place
    # true is another spelling of yes, but not of the level 1.
    wanted = _spelled(label) - (frozenset("01") if isinstance(label, bool) else frozenset())
    meant = [
        place
        for place, option in enumerate(options)
        if wanted & (_spelled(option.value) | {option.name.strip().casefold()})
    ]
    if len(meant) == 1:
        return meant[0]
    listed = [f"{option.value!r} ({option.name})" for option in options]
    if meant:
        fits = " and ".join(listed[place] for place in meant[:2])
        raise ValueError(
            f"The label {label!r:.60} fits the options {fits}. In JSON lines a number is the value of an option, and "
            "levels count from 0."
        )
    shown = ", ".join(listed[:8]) + (", ..." if len(listed) > 8 else "")
    raise ValueError(f"The label {label!r:.60} is none of the options: {shown}.")


def _spelled(value: Any) -> frozenset[str]:
    """The spellings of a value."""
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    text = str(value).strip().casefold()
    try:
        number = float(text)
    except ValueError:
        return frozenset({text})
    return frozenset({text, str(int(number))}) if number.is_integer() else frozenset({text})
