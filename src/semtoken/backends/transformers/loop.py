"""What transformers' own decoding loop knows while it calls a logits processor.

A processor is shown the scores that other processors have changed, and tokens behind the end of an answer as if they
had been chosen. The loop has the model's own logits, and knows which answers have ended: they are read from its
variables. Where they are not found (a loop of your own, a release of transformers that names them otherwise), nothing
is known.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

from semtoken.backends.transformers.model import NOT_BEAMS
from semtoken.errors import BackendError

LOOP, ASSISTED = "_sample", "_assisted_decoding"
FRAMES = 8
"""Calls between the loop and a processor at most: its list, and what wraps the processor."""
WANTED = ("outputs", "unfinished_sequences", "generation_config", "logits_processor")


@dataclass(frozen=True, eq=False)
class LoopStep:
    """One step of the loop."""

    logits: Any
    """[B, columns] the model's own, before any processor."""
    unfinished: list[bool]
    """[B] the answers that have not ended; the others are being padded."""
    stop_ids: frozenset[int]
    """Tokens that end an answer. Others may be ended by texts and by criteria of the caller."""
    first: Any
    """The first processor, which sees the model's own logits."""


def loop_step(rows: int) -> LoopStep | None:
    """The step that a processor is called in, for a batch of so many rows; None where that cannot be known.

    Raises
    ------
    BackendError
        Beam search or assisted decoding.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(FRAMES):
        if frame is None:
            break
        if frame.f_code.co_name == ASSISTED:
            raise BackendError("Assisted decoding is refused: it proposes several tokens at a time. Decode one by one.")
        found = _variables(frame) if frame.f_code.co_name in (LOOP, "_beam_search") else {}
        if (getattr(found.get("generation_config"), "num_beams", 1) or 1) > 1:
            raise BackendError(f"Beam search is refused. {NOT_BEAMS}")
        if len(found) == len(WANTED):
            return _step(found, rows)
        frame = frame.f_back
    return None


def _variables(frame: FrameType) -> dict[str, Any]:
    """Those variables of a call that are wanted, as far as it has them."""
    seen = frame.f_locals
    found = {name: seen[name] for name in WANTED if name in seen}
    if type(seen) is dict:  # a copy, before Python 3.13, which would keep the tensors of this step until the next one
        seen.clear()
    return found


def _step(found: dict[str, Any], rows: int) -> LoopStep | None:
    logits, config = getattr(found["outputs"], "logits", None), found["generation_config"]
    if getattr(config, "is_assistant", False):
        raise BackendError("Assisted decoding is refused: it proposes several tokens at a time. Decode one by one.")
    if logits is None or len(logits) != rows or len(found["unfinished_sequences"]) != rows:
        return None
    ends, processors = getattr(config, "_eos_token_tensor", None), found["logits_processor"]
    return LoopStep(
        logits=logits[:, -1].detach(),
        unfinished=[True] if rows == 1 else found["unfinished_sequences"].bool().tolist(),
        stop_ids=frozenset(() if ends is None else ends.tolist()),
        first=processors[0] if len(processors) else None,
    )
