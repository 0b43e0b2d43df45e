"""What a model held inside at the end of an answer, and its fields in a file."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semtoken.errors import InvalidInput

if TYPE_CHECKING:
    from semtoken.support.arrays import FloatArray

DEPTH = 0.65
"""Depth of the layer whose states are read: two thirds up. It is one choice for all models, and was made on one."""
STATE_FIELDS = ("state", "state_depth", "state_prompt", "state_weights", "state_vocabulary", "state_given")
"""Fields of a line that holds a hidden state."""


@dataclass(frozen=True, eq=False)
class HiddenState:
    """What a model held inside where it chose the last token of an answer, and what makes it comparable."""

    values: FloatArray
    """[H] output of one layer."""
    depth: float
    """Of the layer, in (0, 1]."""
    prompt: str = ""
    """What the model read before the answer, its template and special tokens included."""
    weights: str | None = None
    """Hash of samples of the model's weights; None where it is not known."""
    vocabulary: str | None = None
    """Fingerprint of the tokenizer's tokens."""
    given: bool = False
    """The answer was read from a text, which has no terminator, and not generated."""

    def to_fields(self) -> dict[str, Any]:
        """The fields of a line; the values as float32 in base64."""
        values = base64.b64encode(self.values.astype("<f4").tobytes()).decode("ascii")
        others = {f"state_{name}": value for name, value in vars(self).items() if name != "values"}
        return {"state": values, **others}


def state_from(record: Mapping[str, Any], where: str) -> HiddenState | None:
    """The hidden state that stands in the fields of a line; None where there is none.

    Raises
    ------
    InvalidInput
        The fields cannot be read.
    """
    import numpy as np

    if not record.get("state"):
        return None
    try:
        values = np.frombuffer(base64.b64decode(record["state"], validate=True), dtype="<f4").astype(np.float64)
        found = HiddenState(
            values=values,
            depth=float(record["state_depth"]),
            prompt=str(record["state_prompt"]),
            weights=record.get("state_weights") or None,
            vocabulary=record.get("state_vocabulary") or None,
            given=str(record.get("state_given")).lower() == "true",
        )
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise InvalidInput(
            f"{where}: the hidden state cannot be read. Score the answers again with --states."
        ) from error
    if not values.size or not np.isfinite(values).all():
        raise InvalidInput(f"{where}: the hidden state holds no finite numbers.")
    return found
