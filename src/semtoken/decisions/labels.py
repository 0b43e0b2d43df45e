"""Labels as people write them: which option of a question a label means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semtoken.decisions.questions import same_value

_TRUE = frozenset({"true", "yes", "y", "1"})
_FALSE = frozenset({"false", "no", "n", "0"})


def place_of(label: Any, values: Sequence[Any], names: Sequence[str] = ()) -> int:
    """The place of the option that a label means: its value, or another spelling of the value or the name.

    Other spellings are those of tables and people: yes or 1 for true, 4.0 for 4, names of levels, capitals and blanks
    around. `ValueError` if the label means no option, or several.

    >>> place_of("YES", [True, False]), place_of("4.0", [0, 1, 2, 3, 4]), place_of("calm", [0, 1], ["Calm", "Angry"])
    (0, 4, 0)
    """
    exact = [place for place, value in enumerate(values) if type(value) is type(label) and same_value(value, label)]
    if exact:
        return exact[0]
    # true is another spelling of yes, but not of the level 1.
    wanted = _spelled(label) - (frozenset("01") if isinstance(label, bool) else frozenset())
    meant = [
        place
        for place, value in enumerate(values)
        if wanted & (_spelled(value) | ({names[place].strip().casefold()} if names else set()))
    ]
    if len(meant) == 1:
        return meant[0]
    options = [f"{value!r} ({names[place]})" if names else repr(value) for place, value in enumerate(values)]
    if meant:
        fits = " and ".join(options[place] for place in meant[:2])
        raise ValueError(
            f"The label {label!r:.60} fits the options {fits}. In JSON lines a number is the value of an option, and "
            "levels count from 0."
        )
    shown = ", ".join(options[:8]) + (", ..." if len(options) > 8 else "")
    raise ValueError(f"The label {label!r:.60} is none of the options: {shown}.")


def _spelled(value: Any) -> frozenset[str]:
    """How a value may be written."""
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    text = str(value).strip().casefold()
    try:
        number = float(text)
    except ValueError:
        return frozenset({text})
    return frozenset({text, str(int(number))}) if number.is_integer() else frozenset({text})
