"""What a model gave each option, with labels: the file that is kept.

python experiments/decisions/pack.py items.jsonl masses.jsonl model.parquet
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from read import lines_of

SCHEMA = pa.schema(
    {
        "item": pa.string(),
        "question_id": pa.string(),
        "split": pa.string(),
        "label": pa.int8(),
        "reading": pa.string(),
        "row": pa.int8(),
        "low": pa.list_(pa.float32()),
        "high": pa.list_(pa.float32()),
    }
)
"""Label: the place of the right option. Row: the number of the order in which the options were shown."""


def label_of(item: Mapping[str, Any]) -> int:
    """The place of the right option; true is the first of a predicate's."""
    return int(not item["label"]) if item["kind"] == "predicate" else item["options"].index(item["label"])


def rows(items: Path, masses: Path) -> Iterator[dict[str, Any]]:
    """A row for each item, reading and order; one of nothing for a question that was refused."""
    known = {item["item"]: item for item in lines_of(items)}
    for line in lines_of(masses):
        item = known[line["item"]]
        about = {name: item[name] for name in ("item", "question_id", "split")} | {"label": label_of(item)}
        pairs = zip(line["low"] or [None], line["high"] or [None], strict=True)
        for number, (low, high) in enumerate(pairs):
            yield {**about, "reading": line["reading"], "row": number, "low": low, "high": high}


if __name__ == "__main__":
    table = pa.Table.from_pylist(list(rows(Path(sys.argv[1]), Path(sys.argv[2]))), SCHEMA)
    pq.write_table(table, sys.argv[3], compression="zstd")
    print(table.num_rows, "rows")
