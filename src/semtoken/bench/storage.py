"""Files of a run: shards and JSON that appear whole or not at all, a lock on the folder, clusterings, what shards hold.

A shard is written under a temporary name in its folder, forced to the disk and renamed. Its metadata name the key of
the settings that made it and its number of rows, and every page carries a checksum: a file that is cut off, damaged or
of other settings is no shard, and is made again. Its columns are the fields of `Generation` that its steps record.
"""

from __future__ import annotations

import json
import shutil
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from semtoken.bench.statistics.steps import STEPS
from semtoken.clustering.cache import clusters_for_model, default_settings
from semtoken.clustering.model_vocabulary import vocabulary_of
from semtoken.clustering.progress import Progress
from semtoken.clustering.token_clusters import ClusterSettings, TokenClusters
from semtoken.core.results.generation import LAYOUTS, Generation, Layout
from semtoken.errors import ArtifactError, InvalidInputError
from semtoken.support.arrays import FloatArray
from semtoken.support.extras import require
from semtoken.support.files import safe_files, strict_json, temporary
from semtoken.support.files.artifacts import is_saved

if TYPE_CHECKING:
    from semtoken.bench.plan import PlannedClustering
    from semtoken.bench.settings import ModelSettings

METADATA_KEY = b"semtoken"
LOCK = "lock"
PROBLEM = ".problem.json"


@dataclass(frozen=True)
class Shard:
    """The columns of one file of a step, read and checked."""

    columns: Mapping[str, Sequence[Any]]
    """Name of a column -> a plain value for each question."""
    seconds: Mapping[str, float]
    """Seconds of the recording steps that made it."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """The replies and tokens that an endpoint counted for it: the fields of `Usage`. Empty where none was asked."""


def shard_path(folder: Path, number: int) -> Path:
    """The path of a shard in the folder of its step."""
    return folder / f"{number:05d}.parquet"


def write_shard(
    folder: Path,
    number: int,
    key: str,
    columns: Any,
    seconds: Mapping[str, float],
    usage: Mapping[str, int] | None = None,
) -> None:
    """Write one shard whole or not at all; its folder is made where it is missing.

    `key` is a hash of all that the content depends on; `columns`, a `pyarrow.Table`, has a row for each question;
    `usage` is what an endpoint counted (see `Shard.usage`). `InvalidInputError` if the folder cannot be written, or the
    disk is full.
    """
    parquet = require("pyarrow.parquet", extra="bench")
    facts = {"key": key, "shard": number, "columns": columns.column_names, "seconds": dict(seconds)}
    facts["types"] = _types(columns.schema)
    if usage:
        facts["usage"] = dict(usage)
    table = columns.replace_schema_metadata({METADATA_KEY: strict_json.dump_json(strict_json.seal(facts))})
    with safe_files.replacing_file(shard_path(folder, number)) as file:
        parquet.write_table(table, file, compression="zstd", write_page_checksum=True)


def read_shard(folder: Path, number: int, key: str, rows: int, names: Sequence[str] | None = None) -> Shard | None:
    """Read a shard, by default all its columns; None if it is missing, damaged, or was made with other settings."""
    opened = _read(folder, number, key, rows, names)
    return None if opened is None else Shard(opened[0].to_pydict(), opened[1]["seconds"], opened[1].get("usage", {}))


def is_shard(folder: Path, number: int, key: str, rows: int) -> bool:
    """Return True if a shard is there, whole, and made with these settings."""
    return _read(folder, number, key, rows) is not None


def _read(
    folder: Path, number: int, key: str, rows: int, names: Sequence[str] | None = None
) -> tuple[Any, dict[str, Any]] | None:
    """Table and facts of a shard."""
    pyarrow = require("pyarrow", extra="bench")
    parquet = require("pyarrow.parquet", extra="bench")
    path = shard_path(folder, number)
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, parquet.ParquetFile(file, page_checksum_verification=True) as opened:
            facts = strict_json.parse_json((opened.schema_arrow.metadata or {})[METADATA_KEY])
            schema = opened.schema_arrow
            if not strict_json.is_sealed(facts) or facts["columns"] != schema.names:
                return None  # what is written of a file and the names in it lie outside the pages
            if facts["types"] != _types(schema):
                return None
            table = opened.read(None if names is None else list(names))
            table.validate(full=True)  # texts that are no UTF-8, lists that run over
    except (OSError, KeyError, TypeError, ValueError, AttributeError, pyarrow.ArrowException):
        return None  # cut off, overwritten, or of another program: as good as missing
    described = isinstance(facts, dict) and (facts.get("key"), facts.get("shard")) == (key, number)
    return (table, facts) if described and table.num_rows == rows and "seconds" in facts else None


def _types(schema: Any) -> list[str]:
    """The type of each column, as it reads in a file: Parquet gives the items of a list a name of its own."""
    return [str(column.type).replace("<element:", "<item:") for column in schema]


def problem_path(folder: Path, number: int) -> Path:
    """The path of the file that says why a shard could not be made."""
    return folder / f"{number:05d}{PROBLEM}"


def take_problem(folder: Path) -> str | None:
    """The reason why the first missing shard of a step could not be made; deletes the notes."""
    notes = sorted(folder.glob(f"*{PROBLEM}"))
    reasons = [str(read_json(path)["reason"]) for path in notes]
    for path in notes:
        path.unlink(missing_ok=True)
    return reasons[0] if reasons else None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file of a run whole or not at all, with a checksum."""
    safe_files.replace_text(path, json.dumps(strict_json.seal(content), indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run; `InvalidInputError` if it is missing or damaged. Early releases wrote no checksum."""
    try:
        content = strict_json.parse_json(path.read_bytes())
    except FileNotFoundError as error:
        raise InvalidInputError(f"{path.parent} holds no benchmark run: {path.name} is missing.") from error
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise InvalidInputError(f"{path} is damaged: {error}.") from error
    if not isinstance(content, dict):
        raise InvalidInputError(f"{path} is damaged: it holds no JSON object.")
    if "checksum" in content and not strict_json.is_sealed(content):
        raise InvalidInputError(f"{path} is damaged: its content does not match its checksum.")
    content.pop("checksum", None)
    return content


def locked(run: Path) -> AbstractContextManager[None]:
    """Lock a run's folder for this process until it ends, however it ends; the folder is made if it is missing.

    `InvalidInputError` if another process has it, or it cannot be written.
    """
    return safe_files.locked(run / LOCK, f"Another run is at work in {run}. Wait for it, or choose another folder.")


def remove_leftovers(run: Path) -> None:
    """Delete what a killed run left half-written; only the holder of the lock may."""
    temporary.remove_leftovers(run)
    for path in run.rglob(f"*{PROBLEM}"):
        path.unlink(missing_ok=True)


def prepare_clustering(
    run: Path, model: ModelSettings, clustering: PlannedClustering, progress: Progress | None = None
) -> None:
    """Put a clustering into a run's folder: fetched if it is given, else from the cache or newly made."""
    if clustering.source is not None:
        clusters = TokenClusters.from_pretrained(clustering.source)
    else:
        vocabulary = vocabulary_of(model.source, None, revision=model.revision)
        wanted = {name: value for name, value in clustering.settings.items() if value is not None}
        settings = ClusterSettings(**(asdict(default_settings(vocabulary)) | wanted))
        clusters = clusters_for_model(
            model.source, vocabulary, settings=settings, revision=model.revision, progress=progress
        )
    place = clustering.folder(run)
    if place.is_dir() and not is_saved(place):  # the run's own, with a damaged config
        shutil.rmtree(place)
    clusters.save_pretrained(place)


def is_prepared(run: Path, clustering: PlannedClustering) -> bool:
    """Return True if a run's folder holds this clustering, complete and undamaged."""
    try:
        load_clustering(run, clustering)
    except ArtifactError:
        return False
    return True


def load_clustering(run: Path, clustering: PlannedClustering) -> TokenClusters:
    """Load a clustering from a run's folder; `ArtifactError` if it is missing there or damaged."""
    return TokenClusters.from_pretrained(clustering.folder(run))


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
    """The fields of `Generation` that the files of a step hold."""
    return tuple(name for step in STEPS if step.artifact == artifact for name in step.fills)


def table_of(ids: Sequence[str], fields: Sequence[Mapping[str, Any]]) -> Any:
    """A `pyarrow.Table` of the questions' ids and the recorded fields, which are the same for all questions."""
    pyarrow = require("pyarrow", extra="bench")
    rows = [_pack_states(recorded) for recorded in fields]
    arrays = {"id": pyarrow.array(list(ids), type=pyarrow.string())}
    for name in rows[0]:
        column = COLUMNS[name]
        kind = getattr(pyarrow, column.kind)()
        for _ in range(column.depth):
            kind = pyarrow.list_(kind)
        arrays[name] = pyarrow.array([_plain(row[name]) for row in rows], type=kind)
    return pyarrow.table(arrays)


def generations_of(questions: Sequence[str], shards: Sequence[Mapping[str, Sequence[Any]]]) -> list[Generation]:
    """Assemble the records of some questions from the columns of several steps."""
    columns = {
        name: values for shard in shards for name, values in shard.items() if name in COLUMNS and values[0] is not None
    }
    generations = []
    for i, question in enumerate(questions):
        fields = {name: _FORMS[COLUMNS[name].form](values[i]) for name, values in columns.items()}
        if FEATURES in fields:
            fields[HIDDEN_STATES] = unpack_states(fields.pop(COORDINATES), fields.pop(FEATURES))
        answer = {name: fields.pop(name, empty) for name, empty in (("text", ""), ("token_ids", ()))}  # none of samples
        generations.append(Generation(**answer, question=question, distribution="raw").with_fields(fields))
    return generations


def _pack_states(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Columns whose hidden states are in their small form."""
    packed = dict(fields)
    if HIDDEN_STATES in packed:
        states = packed.pop(HIDDEN_STATES)
        packed[COORDINATES] = None if states is None else pack_states(states)
        packed[FEATURES] = None if states is None else np.shape(states)[1]
    return packed


def _plain(value: Any) -> Any:
    """Arrays as lists, at any depth."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def pack_states(states: npt.ArrayLike) -> FloatArray:
    """Compress hidden states of M samples, [M, H], to [M, min(M, H)] coordinates from which EigenScore is the same.

    EigenScore reads C C^T only, where C are the states with each row centered over its features. With C = U S V^T that
    is (U S)(U S)^T, so U S is kept.
    """
    rows = np.asarray(states, dtype=np.float64)
    u, s, _ = np.linalg.svd(rows - rows.mean(axis=1, keepdims=True), full_matrices=False)
    return np.asarray(u * s)


def unpack_states(coordinates: FloatArray, features: int) -> FloatArray:
    """Rows of H features, already centered, whose products with each other are those of the packed states, [M, k].

    `InvalidInputError` if there are more coordinates than the H - 1 dimensions in which centered states lie.
    """
    used = coordinates[:, : features - 1]  # centered rows span H - 1 dimensions at most
    rank = used.shape[1]
    if not np.allclose(coordinates[:, rank:], 0.0, atol=1e-6 * max(1.0, float(np.abs(coordinates).max(initial=0.0)))):
        raise InvalidInputError(
            f"{coordinates.shape[1]} coordinates cannot be those of states with {features} features."
        )
    states = np.zeros((len(used), features))
    # Orthonormal rows [rank, rank + 1], each of which sums to zero.
    states[:, : rank + 1] = used @ require("scipy.linalg", extra="bench").helmert(rank + 1)
    return states
