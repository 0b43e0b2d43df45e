"""A step of transformers' own decoding loop, read from the variables of the call, where a processor is called in it.

A processor is shown the scores that other processors have changed, and tokens behind the end of an answer as if they
had been chosen. The loop has the model's own logits, and knows which answers have ended. Where its variables are not
found (a loop of your own, a release of transformers that names them otherwise), nothing is known.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

from semtoken.errors import BackendError
from semtoken.models.transformers.generate_settings import NOT_ASSISTED, NOT_BEAMS

LOOP, ASSISTED = "_sample", "_assisted_decoding"
FRAMES = 8
"""The most calls between the loop and a processor: those of the list of processors, and of what wraps this one."""
WANTED = ("outputs", "unfinished_sequences", "generation_config", "logits_processor", "self", "model_kwargs")


@dataclass(frozen=True, eq=False)
class LoopStep:
    """A step as the frame of transformers' generation loop shows it: logits, rows, and which rows have ended."""

    logits: Any
    """[B, columns] the model's own, before any processor."""
    unfinished: list[bool]
    """[B] whether each answer has not ended; those that have are being padded."""
    stop_ids: frozenset[int]
    """Tokens that end an answer. Others may be ended by texts and by criteria of the caller."""
    first: Any
    """The first processor, which sees the model's own logits."""
    model: Any
    mask: Any
    """[B, T] the attention mask of the pass; None if there is none."""
    padding: int
    owner: Any
    """The object whose `generate` was called: the model, or the prompt tuned by peft that is read before every text."""

    @property
    def padded(self) -> bool:
        """True if rows of the batch are padded. A GPU is waited for, so ask once, not at every step."""
        return len(self.unfinished) > 1 and self.mask is not None and bool((self.mask == 0).any())

    @property
    def padded_behind(self) -> bool:
        """True if a row is padded at its end: its answer is written after the padding."""
        return self.mask is not None and self.mask.ndim == 2 and bool((self.mask.diff(dim=1) < 0).any())


def loop_step(rows: int) -> LoopStep | None:
    """The step that a processor is called in, for a batch of so many rows; None where that cannot be known.
    `BackendError` in beam search and assisted decoding.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(FRAMES):
        if frame is None:
            break
        if frame.f_code.co_name == ASSISTED:
            raise BackendError(NOT_ASSISTED)
        variables = _variables(frame) if frame.f_code.co_name in (LOOP, "_beam_search") and _is_theirs(frame) else {}
        if (getattr(variables.get("generation_config"), "num_beams", 1) or 1) > 1:
            raise BackendError(f"Beam search is rejected. {NOT_BEAMS}")
        if len(variables) == len(WANTED):
            return _step(variables, rows)
        frame = frame.f_back
    return None


def _is_theirs(frame: FrameType) -> bool:
    """Return True if a call is one of transformers' own: a loop that somebody copied may change what it had copied."""
    return str(frame.f_globals.get("__name__")).startswith("transformers.")


def _variables(frame: FrameType) -> dict[str, Any]:
    """The variables of a call that are wanted, as far as it has them."""
    seen = frame.f_locals
    variables = {name: seen[name] for name in WANTED if name in seen}
    if type(seen) is dict:  # a copy, before Python 3.13, which would keep the tensors of this step until the next one
        seen.clear()
    return variables


def _step(found: dict[str, Any], rows: int) -> LoopStep | None:
    logits, config = getattr(found["outputs"], "logits", None), found["generation_config"]
    if getattr(config, "is_assistant", False):
        raise BackendError(NOT_ASSISTED)
    if logits is None or len(logits) != rows or len(found["unfinished_sequences"]) != rows:
        return None
    ends, processors = getattr(config, "_eos_token_tensor", None), found["logits_processor"]
    return LoopStep(
        # In the first step some models give logits of the whole prompt.
        logits=logits[:, -1].detach(),
        # Reading a tensor waits for a GPU, and a single answer goes on as long as there are steps.
        unfinished=[True] if rows == 1 else found["unfinished_sequences"].bool().tolist(),
        stop_ids=frozenset(() if ends is None else ends.tolist()),
        first=processors[0] if len(processors) else None,
        model=found["self"],
        mask=found["model_kwargs"].get("attention_mask"),
        padding=getattr(config, "pad_token_id", None) or 0,
        owner=getattr(getattr(found["self"], "prepare_inputs_for_generation", None), "__self__", found["self"]),
    )
