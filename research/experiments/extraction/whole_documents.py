"""Whether the least sure field ranks whole documents: AUROC for more than k wrong fields of eight, from `results/fields.csv`.

    python research/experiments/extraction/whole_documents.py

The confidence of JSON is that of its least sure field. It stands beside the mean of the logs of all fields, with paired 95 %
intervals over documents.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from semtoken.methods.metrics import paired_difference

FIELDS = Path(__file__).parent / "results" / "fields.csv"
IN_CONFIDENCE = ("total",)
"""Fields that are numbers: the probability that they end there is part of their confidence."""


def main() -> None:
    """The command."""
    rows = pd.read_csv(FIELDS)
    known = np.where(rows["field"].isin(IN_CONFIDENCE), rows["with_end"], rows["confidence"])
    rows["log"] = np.log(np.maximum(known, 1e-12))
    documents = rows.groupby("document").agg(least=("log", "min"), mean=("log", "mean"), right=("right", "mean"))
    wrong = rows.groupby("document")["right"].agg(lambda right: int((1 - right).sum()))
    for most in range(4):
        fine = (wrong <= most).to_numpy(int)
        found = paired_difference("auroc", -documents["least"], -documents["mean"], fine)
        print(f"more than {most} wrong ({len(fine) - fine.sum()} of {len(fine)} documents): {found}")


if __name__ == "__main__":
    main()
