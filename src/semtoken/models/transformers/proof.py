"""The ways of reading a model that are equal to one plain pass over the text (`Proof`), as it was found and kept.

A model proves itself when it is first used (`proving`). What was found is kept in the cache folder, by a hash of the
weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import msgspec
import torch
import transformers

from semtoken.models.transformers.identity import code_key, sampled_numbers, state_key, weights_hash
from semtoken.models.transformers.passes import ARGUMENTS
from semtoken.support.files.safe_files import replace_text
from semtoken.support.installation import cache_root

Generates: TypeAlias = Literal["padded", "equal", "alone", "never"]
"""In which batches `generate` gives the numbers of a plain pass: of any lengths, of one length, of one row, in none."""
VERSION = 6
"""The version of the passes in `proving`. Proofs that another version kept are made again."""


@dataclass(frozen=True)
class Proof:
    """The ways of reading a model that give the numbers of one plain pass over the text alone. By default, no other way
    is known to.
    """

    takes: tuple[str, ...] = ()
    """Arguments that its passes are given."""
    padded: bool = False
    """Rows of different lengths, padded at the left, in one pass."""
    continued: bool = False
    """Further tokens behind a cache of those before, some at a time and one by one."""
    joined: bool = False
    """Rows of several caches, put together while they are being written."""
    trees: bool = False
    """Several texts as one tree of tokens."""
    generates: Generates = "never"
    """In which batches transformers' `generate` gives them."""
    tokens: int = 0
    """The number of tokens that were read to find out."""

    def lines(self) -> list[str]:
        """Lines for people, which say what holds and what does not."""
        ways = {
            "prompts of different lengths in one batch": self.padded,
            "replies that continue a cache": self.continued,
            "requests that join and leave a batch": self.joined,
            "prompts as a tree": self.trees,
        }
        how = {
            "padded": "in batches of any lengths",
            "equal": "in batches of one length",
            "alone": "one answer at a time",
            "never": "not used: each token is chosen after a pass over the whole text",
        }
        said = [f"{way}: {'as read alone' if holds else 'not equal, so not used'}" for way, holds in ways.items()]
        return [*said, f"transformers' generate: {how[self.generates]}"]


_KNOWN: WeakKeyDictionary[Any, tuple[str, Proof]] = WeakKeyDictionary()
"""The proof of each model in this process, with the state that it is of; see `state_key`."""
_PROVING = RLock()


def kept_proof(model: Any, make: Callable[[], Proof]) -> Proof:
    """The proof of a model as this process or the cache folder has it; else that which `make` gives, which is kept."""
    with _PROVING:  # one thread finds out
        state, (known, proof) = state_key(model), _KNOWN.get(model, ("", Proof()))
        if known == state:
            return proof
        file = _file_of(model)
        kept = None if file is None else _read(file)
        if kept is None:
            kept = make()
            if file is not None:
                _write(file, kept)
        _KNOWN[model] = (state, kept)
        return kept


def _file_of(model: Any) -> Path | None:
    """The file that keeps the proof of a model; None where its weights are not all in memory."""
    if (weights := weights_hash(model)) is None:
        return None
    config = getattr(model, "config", None)
    about = [
        *(VERSION, transformers.__version__, torch.__version__, weights, type(model).__qualname__),
        *(code_key(model), sampled_numbers(model)),
        *(str(getattr(config, "_attn_implementation", "")), str(next(model.parameters()).device)),
        str(config),
        str(getattr(model, "peft_config", "")),
    ]
    return cache_root() / "proofs" / f"{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]}.json"


def _read(file: Path) -> Proof | None:
    """The proof in a file; None where it has none."""
    try:
        proof = msgspec.json.decode(file.read_bytes(), type=Proof)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return proof if set(proof.takes) <= ARGUMENTS else None


def _write(file: Path, proof: Proof) -> None:
    with suppress(OSError):  # a folder that cannot be written: the model is asked again next time
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, msgspec.json.encode(proof).decode())
