"""What `record.py` wrote, read: a set of answers with the steps of all of them one after another.

A part NAME-0000 is two files. NAME-0000.jsonl has one line an answer: id, question, answers, set, ids (the terminator included), text,
cut (the limit ended it). NAME-0000.npz has, with N the steps of all its answers one after another and M its answers:

    lengths [M]               steps of each answer, the terminator included
    log_prob [N]              ln p of the token written
    entropy [N]               of the whole distribution, nats
    mean_log_prob [N]         mean over the vocabulary of ln p
    top_ids, top_log_probs    [N, 256] the most probable tokens, best first
    attention [N, l, h]       of the token written to the one before it, layers of the middle third, float16
    state [M, d]              hidden state at the last written token before the terminator, .65 of the depth, float16
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semtoken import Vocabulary

sys.path.insert(0, str(Path(__file__).parents[1] / "default_rule"))
from steps import Steps


@dataclass(frozen=True, eq=False)
class Recording:
    """The answers of one model to one set, in the drawn order."""

    steps: Steps
    """What the rules of agreeing read."""
    arrays: dict[str, Any]
    """`log_prob`, `entropy`, `mean_log_prob`, `attention`, `state` as above."""

    @classmethod
    def read(cls, folder: Path, name: str, vocabulary: Vocabulary, first: int | None = None) -> Recording:
        """All parts of a set, or its first answers."""
        parts = sorted(folder.glob(f"{name}-[0-9][0-9][0-9][0-9].npz"))
        records: list[dict[str, Any]] = []
        for path in parts:
            with path.with_suffix(".jsonl").open(encoding="utf-8") as file:
                records += [json.loads(line) for line in file]
        loaded = [dict(np.load(path)) for path in parts]
        arrays = {key: np.concatenate([part[key] for part in loaded]) for key in loaded[0]}
        n = len(records) if first is None else min(first, len(records))
        total = int(arrays["lengths"][:n].sum())
        arrays = {key: rows[: n if key in ("lengths", "state") else total] for key, rows in arrays.items()}
        ids, top, lengths = arrays.pop("top_ids"), arrays.pop("top_log_probs"), arrays.pop("lengths")
        return cls(Steps(vocabulary, records[:n], ids, np.exp(top), lengths), arrays)

    def answers(self) -> Iterator[tuple[dict[str, Any], slice]]:
        """Each answer's line and where its steps are."""
        ends = np.cumsum(self.steps.lengths)
        for record, start, end in zip(self.steps.records, self.steps.starts.tolist(), ends.tolist(), strict=True):
            yield record, slice(start, end)
