"""Fields of `Generation` as columns of a shard and back; a step's file holds the fields that the step records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken._extras import require
from semtoken.errors import InvalidInput
from semtoken.generation import Generation

FloatArray = npt.NDArray[np.float64]
HIDDEN_STATES = "hidden_states"
COORDINATES, FEATURES = "state_coordinates", "state_features"
"""Columns that stand for `hidden_states`; see `pack_states`."""


@dataclass(frozen=True)
class Column:
    """How one field lies in a file."""

    kind: str
    """Value of an entry: a type of pyarrow."""
    depth: int
    """Lists around it: 0 one value a question, 1 one a token (or sample), ..."""
    read: Callable[[Any], Any] = lambda value: value
    """From plain lists to what `Generation` holds."""


def _arrays(rows: Sequence[Any]) -> list[npt.NDArray[Any]]:
    return [np.asarray(row) for row in rows]


def _numbers(values: Any) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


COLUMNS: Mapping[str, Column] = MappingProxyType(
    {
        "text": Column("string", 0),
        "token_ids": Column("int32", 1),
        "token_texts": Column("string", 1),
        "log_probs": Column("float64", 1, _numbers),
        "top_ids": Column("int32", 2, _arrays),
        "top_texts": Column("string", 2),
        "top_log_probs": Column("float64", 2, _arrays),
        "sample_texts": Column("string", 1),
        "sample_token_ids": Column("int32", 2),
        "sample_log_probs": Column("float64", 2, _arrays),
        COORDINATES: Column("float64", 2, _numbers),
        FEATURES: Column("int32", 0),
        "p_true_log_probs": Column("float64", 1, _numbers),
        "nli_logits": Column("float64", 3, _numbers),
        "similarity": Column("float64", 2, _numbers),
        "token_similarity": Column("float64", 1, _numbers),
        "sample_token_similarity": Column("float64", 2, _arrays),
        "nli_chosen_to_alternative": Column("int8", 2, _arrays),
        "nli_alternative_to_chosen": Column("int8", 2, _arrays),
        "stc_log_score": Column("float64", 0),
        "stc_no_clustering_log_score": Column("float64", 0),
        "stc_no_prefix_log_score": Column("float64", 0),
    }
)
"""Every field that a run keeps, by name."""
GREEDY_COLUMNS = ("text", "token_ids", "token_texts", "log_probs", "top_ids", "top_texts", "top_log_probs")
SAMPLE_COLUMNS = ("sample_texts", "sample_token_ids", "sample_log_probs", HIDDEN_STATES)
"""Fields that the answers and the samples are recorded with."""


def table_of(ids: Sequence[str], fields: Sequence[Mapping[str, Any]]) -> Any:
    """A `pyarrow.Table` of the questions' ids and the fields that were recorded of each, the same for all."""
    pyarrow = require("pyarrow", extra="bench")
    rows = [_packed(one) for one in fields]
    arrays = {"id": pyarrow.array(list(ids), type=pyarrow.string())}
    for name in rows[0]:
        column = COLUMNS[name]
        kind = getattr(pyarrow, column.kind)()
        for _ in range(column.depth):
            kind = pyarrow.list_(kind)
        arrays[name] = pyarrow.array([_plain(row[name]) for row in rows], type=kind)
    return pyarrow.table(arrays)


def generations_of(questions: Sequence[str], shards: Sequence[Mapping[str, Sequence[Any]]]) -> list[Generation]:
    """The records of some questions, put together from the columns of several steps."""
    columns = {
        name: values for shard in shards for name, values in shard.items() if name in COLUMNS and values[0] is not None
    }
    found = []
    for i, question in enumerate(questions):
        fields = {name: COLUMNS[name].read(values[i]) for name, values in columns.items()}
        if FEATURES in fields:
            fields[HIDDEN_STATES] = unpack_states(fields.pop(COORDINATES), fields.pop(FEATURES))
        fields = {"text": "", "token_ids": (), **fields}  # a method of samples alone reads no greedy answer
        found.append(Generation(question=question, distribution="raw", **fields))
    return found


def _packed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same with hidden states in their small form."""
    found = dict(fields)
    if HIDDEN_STATES in found:
        states = found.pop(HIDDEN_STATES)
        found[COORDINATES] = None if states is None else pack_states(states)
        found[FEATURES] = None if states is None else np.shape(states)[1]
    return found


def _plain(value: Any) -> Any:
    """Arrays as lists, at any depth."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def pack_states(states: npt.ArrayLike) -> FloatArray:
    """Hidden states as M coordinates each, from which EigenScore follows as from the states themselves.

    EigenScore reads C C^T only, where C are the states with each row centred over its features. With C = U S V^T
    that is (U S)(U S)^T, so U S is kept.

    Parameters
    ----------
    states : array of shape (M, H)
        One hidden state a sample.

    Returns
    -------
    array of shape (M, min(M, H))
    """
    rows = _numbers(states)
    u, s, _ = np.linalg.svd(rows - rows.mean(axis=1, keepdims=True), full_matrices=False)
    return np.asarray(u * s)


def unpack_states(coordinates: FloatArray, features: int) -> FloatArray:
    """Rows of H features that centring leaves as they are and whose C C^T is that of the states packed.

    Parameters
    ----------
    coordinates : array of shape (M, k)
        From `pack_states`.
    features
        H.

    Raises
    ------
    InvalidInput
        More coordinates than the H - 1 dimensions in which centred states lie.
    """
    used = coordinates[:, : features - 1]  # centred rows span H - 1 dimensions at most
    rank = used.shape[1]
    if not np.allclose(coordinates[:, rank:], 0.0, atol=1e-6 * max(1.0, float(np.abs(coordinates).max(initial=0.0)))):
        raise InvalidInput(f"{coordinates.shape[1]} coordinates cannot be those of states with {features} features.")
    states = np.zeros((len(used), features))
    states[:, : rank + 1] = used @ _zero_sum_basis(rank)
    return states


def _zero_sum_basis(rank: int) -> FloatArray:
    """Orthonormal rows [rank, rank + 1], each of which sums to zero (a Helmert matrix)."""
    basis = np.zeros((rank, rank + 1))
    for k in range(1, rank + 1):
        basis[k - 1, :k] = 1.0
        basis[k - 1, k] = -k
        basis[k - 1] /= np.sqrt(k * (k + 1))
    return basis
