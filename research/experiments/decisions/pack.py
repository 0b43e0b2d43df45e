"""What a model gave each option, with labels: the file that is kept, and its lines again for `read.py` to go on from.

    python research/experiments/decisions/pack.py items.jsonl masses.jsonl model.parquet
    python research/experiments/decisions/pack.py --unpack model.parquet masses.jsonl

The second line undoes the first, so that a kept file can be read further.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
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


def unpacked(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of masses that a kept file was packed from, to float32."""
    kept = pq.read_table(path, columns=["item", "reading", "low", "high"]).to_pylist()
    for (item, reading), orders in groupby(kept, lambda row: (row["item"], row["reading"])):
        rows = list(orders)
        masses = {end: None if rows[0][end] is None else [row[end] for row in rows] for end in ("low", "high")}
        yield {"item": item, "reading": reading, **masses}


if __name__ == "__main__":
    if sys.argv[1] == "--unpack":
        lines = [json.dumps(line) + "\n" for line in unpacked(Path(sys.argv[2]))]
        Path(sys.argv[3]).write_text("".join(lines), encoding="utf-8")
        print(len(lines), "lines")
        raise SystemExit
    table = pa.Table.from_pylist(list(rows(Path(sys.argv[1]), Path(sys.argv[2]))), SCHEMA)
    pq.write_table(table, sys.argv[3], compression="zstd")
    print(table.num_rows, "rows")
