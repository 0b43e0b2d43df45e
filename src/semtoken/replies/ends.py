"""Why an answer ended, by the reason that its engine gives: whole, cut off, or broken off."""

from __future__ import annotations

import re

CUT_ENDS = ("length", "limit", "max_tokens", "max_output_tokens", "model_length")
"""What engines say of an answer that the token limit ended, in small letters."""


def is_cut(finish_reason: str | None) -> bool:
    """Whether the token limit ended an answer, by the reason that its engine gives for its end."""
    return (finish_reason or "").casefold().removeprefix("finish_reason_") in CUT_ENDS


NORMAL_END = re.compile(
    r"stop|length|(finish_reason_)?(stop|max_tokens)|tool_(calls?|use)|function_call|eos(_token|_found)?|end(_turn)?|word|"
    r"stop_(sequence|token|str)|max_output_tokens|model_length|limit|completed?|finished|pause_turn"
)
BROKEN_END = re.compile(
    r"error|abort(ed)?|cancell?ed|failed|in_progress|queued|incomplete|network_error|interrupted|timeout|unknown|"
    r"insufficient_system_resource|finish_reason_unspecified"
)


def is_whole(reason: str | None) -> bool:
    """Whether an answer with this reason of its end is all that the model meant to write; not where there is none."""
    said = (reason or "").casefold()
    return NORMAL_END.fullmatch(said) is not None and not is_cut(said) and said != "pause_turn"


def end_notes(reason: str | None) -> list[str]:
    """What a reader should know of an end that is none of the model's own."""
    said = (reason or "stop").casefold()
    if NORMAL_END.fullmatch(said) or BROKEN_END.fullmatch(said):
        return []
    return [f"The server ended the answer with {reason!r}: it is cut off there, and the model had not ended it."]


def broken_end(reason: str | None) -> str | None:
    """Why an answer with this reason of its end is not whole; None if it is."""
    if reason is None or not BROKEN_END.fullmatch(reason.casefold()):
        return None
    return f"The server broke the answer off (its reason: {reason!r}), so steps may be missing. Ask again."
