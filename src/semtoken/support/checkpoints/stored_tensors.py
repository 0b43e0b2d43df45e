"""The tensors in a safetensors file, mapped into memory: bfloat16 too, which NumPy and so the library cannot give."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from semtoken.errors import ModelError
from semtoken.support.checkpoints.strangers import check_header

DTYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "BF16": "<u2"}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a safetensors file: its type, shape and place."""

    path: Path
    kind: str
    """Its type as the file names it, such as "BF16"."""
    shape: tuple[int, ...]
    start: int
    """The place in the file at which its bytes begin."""

    @property
    def dtype(self) -> str | None:
        """The NumPy type of its numbers, bfloat16 as its raw bits in uint16; None for any type but plain floats."""
        return DTYPES.get(self.kind)

    def mapped(self) -> npt.NDArray[Any]:
        """The numbers as a read-only view of the file; `KeyError` if they are no plain floats."""
        mapped = np.memmap(self.path, dtype=DTYPES[self.kind], mode="r", offset=self.start, shape=self.shape)
        return np.require(np.asarray(mapped), requirements="A")


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors in a safetensors file by name; `ModelError` if it is damaged or incomplete."""
    check_header(path)
    try:
        # The library checks offsets and sizes; the header alone is read here for what it does not give.
        with safe_open(path, framework="numpy"):
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged or incomplete: {error}. Download the checkpoint again.") from error
    return {
        name: StoredTensor(path, entry["dtype"], tuple(entry["shape"]), 8 + length + entry["data_offsets"][0])
        for name, entry in header.items()
        if name != "__metadata__"
    }
