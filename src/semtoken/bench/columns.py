"""Fields of `Generation` as columns of a shard and back; an artifact holds the fields that its steps record."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.errors import InvalidInput
from semtoken.results.generation import LAYOUTS, Generation, Layout
from semtoken.statistics.steps import STEPS
from semtoken.support.extras import require

FloatArray = npt.NDArray[np.float64]
HIDDEN_STATES = "hidden_states"
COORDINATES, FEATURES = "state_coordinates", "state_features"
"""Columns that stand for `hidden_states`; see `pack_states`."""


_FORMS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "plain": lambda value: value,
        "array": lambda value: np.asarray(value, dtype=np.float64),
        "arrays": lambda rows: [np.asarray(row) for row in rows],
    }
)
"""Form of a `Layout` -> from plain lists to what `Generation` holds."""
COLUMNS: Mapping[str, Layout] = ChainMap(
    {COORDINATES: Layout("float64", 2, form="array"), FEATURES: Layout("int32")},
    LAYOUTS,  # type: ignore[arg-type]
)
"""Every column that a run keeps, by name."""


def columns_of(artifact: str) -> tuple[str, ...]:
    """Fields of `Generation` that an artifact of a run holds."""
    return tuple(name for step in STEPS if step.artifact == artifact for name in step.fills)


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
        fields = {name: _FORMS[COLUMNS[name].form](values[i]) for name, values in columns.items()}
        if FEATURES in fields:
            fields[HIDDEN_STATES] = unpack_states(fields.pop(COORDINATES), fields.pop(FEATURES))
        answer = {name: fields.pop(name, empty) for name, empty in (("text", ""), ("token_ids", ()))}  # none of samples
        found.append(Generation(**answer, question=question, distribution="raw").with_fields(fields))
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
    rows = np.asarray(states, dtype=np.float64)
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
