"""Join the answers of runs that differ in their models, question sets and limits alone, for one report of them all.

    python research/experiments/methods/join.py RUN/report/answers.parquet ... --out build/answers.parquet

Paths are left out: they say where somebody keeps files, and change nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

KEY = b"semtoken.answers"  # in the schema of every file: settings, seconds and versions of its run


def without_paths(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run with names instead of the places of files."""
    models = [model | {"name": Path(model["name"]).name, "clusters": None} for model in settings["models"]]
    datasets = [data | {"path": data["path"] and Path(data["path"]).name} for data in settings["datasets"]]
    return settings | {"models": models, "datasets": datasets}


def once(items: list[Any]) -> list[Any]:
    """The items without repetitions, in their order."""
    return [item for place, item in enumerate(items) if item not in items[:place]]


def joined(facts: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said about all runs together."""
    settings = [without_paths(one["settings"]) for one in facts]
    every = settings[0] | {
        name: once([item for one in settings for item in one[name]]) for name in ("models", "datasets")
    }
    own = {"models": None, "datasets": None, "limit": None}
    if any(one | own != every | own for one in settings):
        raise SystemExit("These runs differ in more than their models, question sets and limits.")
    manifest = {name: facts[0]["manifest"][name] for name in ("status", "seeds", "versions", "hardware")}
    manifest |= {"started": facts[0]["manifest"]["started"], "failures": [], "sessions": [], "git": None}
    lists = {name: once([item for one in facts for item in one[name]]) for name in ("clusterings", "cells")}
    return facts[0] | {"run": "methods", "settings": every, "manifest": manifest, "notes": []} | lists


def main() -> None:
    """Read, join, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    tables = [pq.read_table(file) for file in options.files]
    facts = joined([json.loads(table.schema.metadata[KEY]) for table in tables])
    whole = pa.concat_tables([table.replace_schema_metadata(None) for table in tables])
    pq.write_table(whole.replace_schema_metadata({KEY: json.dumps(facts)}), options.out, compression="zstd")


if __name__ == "__main__":
    main()
