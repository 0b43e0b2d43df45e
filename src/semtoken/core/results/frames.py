"""Scored answers as a data frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semtoken.core.results.responses import ScoredAnswer
from semtoken.support.extras import require
from semtoken.support.inputs import instance, listed

if TYPE_CHECKING:
    import pandas as pd


def to_frame(responses: list[ScoredAnswer]) -> pd.DataFrame:
    """A pandas table with a row for each answer and without tokens; bounds in two columns, flags by their codes.

    Parameters
    ----------
    responses
        Scored answers.

    Returns
    -------
    pandas.DataFrame
        Its columns are the fields of `ScoredAnswer.to_dict`; nested ones have a column for each entry, such as
        `score_perplexity`, `borrowed_cluster` and `confidence_lower`.

    Raises
    ------
    MissingExtra
        pandas is not installed.
    InvalidInputError
        Something else than a scored answer is among them.
    """
    pandas = require("pandas", extra="frames")
    answers = [instance(response, ScoredAnswer, "responses") for response in listed(responses, "responses")]
    return pandas.DataFrame([_flat(answer) for answer in answers])


def _flat(response: ScoredAnswer) -> dict[str, Any]:
    nested = ("tokens", "_interval", "_bounds")
    row = {name: value for name, value in response.to_dict().items() if not name.endswith(nested)}
    facts = response.facts()
    flags = ",".join(flag.code for flag in response.flags)
    under, borrowed = row.pop("uncertainty_under"), row.pop("borrowed")
    row |= {f"uncertainty_{equality}": value for equality, value in under.items()}
    if row.get("decision") is not None:
        row["decision"] = row["decision"]["action"]
    row |= {f"score_{name}": value for name, value in row.pop("scores", {}).items()}
    row |= {f"borrowed_{source}": value for source, value in borrowed.items()}
    ends = (f"{name}_{end}" for name in ("confidence", "sequence_uncertainty") for end in ("lower", "upper"))
    return row | {name: facts[name] for name in ends} | {"flags": flags}
