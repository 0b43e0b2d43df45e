"""A model's embeddings as a token table, read without loading the model.

From a checkpoint only the two matrices are touched: they are mapped into memory where they lie in the safetensors
files. Nothing here knows what the tokens mean.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from semtoken.choices import Embedding
from semtoken.clustering.rows import TableParts, to_float32
from semtoken.errors import InvalidInputError, ModelError, first_line_of
from semtoken.support.checkpoints.gguf import INPUT, OUTPUT, GgufFile
from semtoken.support.checkpoints.sources import quantization_of, resolve
from semtoken.support.checkpoints.strangers import check_header
from semtoken.support.files.artifacts import HUB_ID
from semtoken.support.files.safe_files import MEBIBYTE, MOST_SETTINGS, read_bounded

Matrix = npt.NDArray[Any]
"""Rows as they are stored: float32, float16, float64, or bfloat16 as its raw bits in uint16."""

INPUT_MODULES = frozenset(
    ("embed_tokens", "wte", "embed_in", "word_embeddings", "tok_embeddings", "embeddings", "embedding")
)
OUTPUT_MODULES = frozenset(("lm_head", "embed_out", "output", "output_layer", "head"))
# Blocks, extra prediction heads, encoders and other modalities: their embeddings are not of the answer's tokens.
OTHER_PARTS = frozenset(("layers", "layer", "blocks", "h", "mtp", "encoder"))
OTHER_MODALITIES = re.compile("vision|visual|image|audio|speech|codec")
STORED_TYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "BF16": "<u2"}
PACKED = ("qweight", "weight_packed", "qzeros", "scales", "weight_scale", "weight_scale_inv", "absmax", "SCB")
MOST_OF_INDEX = 64 * MEBIBYTE  # bytes; that of 140,000 tensors has 15 MB
CHUNK = 4096  # rows made float32 at a time
SAME_ROW = 0.98
"""Cosine from which two rows are one row that was quantized twice: Q4_K against Q6_K leaves .996 in every row of a real
table of 151,936, while the rows of matrices that were trained apart have less than that nearly everywhere."""

UNQUANTISED = (
    "Cluster the model as it was before quantization (its tokens and clusters are the same), or one of its "
    "formats that keeps embeddings and output head in 16 bits."
)


@dataclass(frozen=True)
class Origin:
    """The model that a token table was read from, with its commit on the hub and its quantization."""

    model: str | None
    """Name for people: a hub id, or the name of a directory without its path."""
    hub_id: str | None = None
    commit: str | None = None
    """Commit of the hub id; None for a folder, a file or a model in memory."""
    quantization: str | None = None
    """How the embeddings were stored before they were made float32, such as "Q8_0"."""


@dataclass(frozen=True, eq=False)
class EmbeddingTable:
    """Embedding matrices as they are stored, rows beyond the vocabulary (padding) included."""

    parts: tuple[Matrix, ...]
    """One matrix, or the input and the output embeddings. A tied model has one matrix for both, which stands here
    once: rows concatenated with themselves have the same cosine distances, at twice the arithmetic."""
    origin: Origin
    tied: bool = False
    """Whether input and output embeddings are the same matrix."""
    least_cosine: float | None = None
    """Where the two are one matrix that was quantized twice: the least cosine between its rows; else None. The output's
    copy, which files keep with more bits, stands for both."""

    @property
    def n_rows(self) -> int:
        """The number of rows that every part of the table has."""
        return min(len(part) for part in self.parts)

    def rows(self, size: int) -> TableParts:
        """The first `size` rows, for clustering, not copied; `ModelError` if there are fewer."""
        if self.n_rows < size:
            raise ModelError(
                f"The tokenizer has {size:,} tokens but the embeddings of {self.origin.model or 'this model'} only "
                f"{self.n_rows:,} rows. Use the tokenizer that belongs to this model; if tokens were added to it, "
                "resize the model's embeddings, or choose embedding='input' if only the output head is shorter."
            )
        first = [part[:size] for part in self.parts]
        return TableParts(tuple(part.astype(np.float32) if part.dtype == np.float64 else part for part in first))

    def normalized(self) -> npt.NDArray[np.float32]:
        """All rows in float32, each part of Euclidean norm 1 (zeros stay zeros); `ModelError` for NaN or infinity."""
        out = np.empty((self.n_rows, sum(part.shape[1] for part in self.parts)), np.float32)
        column = 0
        for part in self.parts:
            for start in range(0, self.n_rows, CHUNK):
                block = to_float32(part[start : min(start + CHUNK, self.n_rows)]).astype(np.float64)
                norms = np.sqrt(np.einsum("ij,ij->i", block, block))[:, None]
                if not np.isfinite(norms).all():
                    row = start + int(np.flatnonzero(~np.isfinite(norms[:, 0]))[0])
                    raise ModelError(f"Row {row} of the embeddings holds NaN or infinity; is the checkpoint damaged?")
                # Rows of zeros are padding of the table, and have no direction.
                unit = np.divide(block, norms, out=np.zeros_like(block), where=norms > 0)
                out[start : start + len(block), column : column + part.shape[1]] = unit
            column += part.shape[1]
        return out

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of the matrices' bytes: the same for a model in memory and the files it was loaded from."""
        digest = hashlib.sha256()
        for part in self.parts:
            # With shape and type, since the same bytes can be another matrix.
            digest.update(f"{part.shape}{part.dtype.str};".encode())
            digest.update(np.ascontiguousarray(part).reshape(-1).data)
        return digest.hexdigest()


def token_table(
    model_or_path: Any, kind: Embedding = "concatenated", *, revision: str | None = None
) -> npt.NDArray[np.float32]:
    """The embeddings of a model's tokens, as the paper clusters them.

    Parameters
    ----------
    model_or_path
        A directory with safetensors weights, a GGUF file, a hub id (only the files that hold the matrices are
        downloaded), or a transformers model in memory.
    kind
        The rows of the input embedding matrix, of the output embedding matrix, or both, concatenated. Where both
        are one matrix (tied embeddings) the concatenated table is that matrix once: its clusters are the same. Where
        they are one matrix that was quantized twice it is the output's copy; its clusters may differ a little.
    revision
        Branch, tag or commit of a hub id.

    Returns
    -------
    float32 array of shape (rows, d)
        Each part of a row has Euclidean norm 1 (rows of zeros stay zero). All rows of the matrices, padding too:
        take `[:vocab.size]`. Where the two matrices have unequal numbers of rows, the rows that both have.

    Raises
    ------
    InvalidInputError
        There is no such kind of table.
    ModelError
        The matrices are missing, quantized, ambiguous or damaged.
    """
    return read_table(model_or_path, kind, revision=revision).normalized()


def read_table(model_or_path: Any, kind: Embedding = "concatenated", *, revision: str | None = None) -> EmbeddingTable:
    """Read the matrices behind `token_table` as they are stored: not copied, and not widened from 16 bits to 32.

    Parameters and errors are those of `token_table`.
    """
    if kind not in get_args(Embedding):
        raise InvalidInputError(f"The embedding must be one of {', '.join(get_args(Embedding))}, got {kind!r}.")
    origin, matrices = _source_of(model_or_path, revision)
    return _table(matrices(kind), kind, origin)


def origin_of(model_or_path: Any, *, revision: str | None = None) -> Origin:
    """Where a token table would be read from; for a hub id only its commit is looked up."""
    return _source_of(model_or_path, revision)[0]


Pair = tuple[Matrix | None, Matrix | None]
"""Input and output embeddings, as far as a kind of table asks for them."""


def _source_of(model_or_path: Any, revision: str | None) -> tuple[Origin, Callable[[Embedding], Pair]]:
    """Where a model's matrices are read from, and what reads them."""
    if not isinstance(model_or_path, str | Path):
        return _origin_of_model(model_or_path), partial(_matrices_of_model, model_or_path)
    source = resolve(model_or_path)
    if source.is_gguf:
        file = GgufFile(source.path)
        return Origin(file.path.name, quantization=file.quantization), partial(_matrices_of_gguf, file)
    checkpoint = Checkpoint.open(source.path, revision)
    return checkpoint.origin, checkpoint.matrices


def _table(pair: Pair, kind: Embedding, origin: Origin) -> EmbeddingTable:
    source, head = pair
    tied = source is not None and source is head
    if kind == "concatenated" and not tied and source is not None and head is not None:
        least = _least_cosine(source, head)
        if least is not None:
            return EmbeddingTable((head,), origin, tied=True, least_cosine=least)
    wanted = {"input": [source], "output": [head], "concatenated": [source, None if tied else head]}[kind]
    return EmbeddingTable(tuple(matrix for matrix in wanted if matrix is not None), origin, tied)


def _least_cosine(first: Matrix, second: Matrix) -> float | None:
    """The least cosine between the rows of two matrices; None once a pair of rows is too far apart to be one row."""
    if first.shape != second.shape:
        return None
    least = 1.0
    for start in range(0, len(first), CHUNK):
        a, b = (to_float32(part[start : start + CHUNK]).astype(np.float64) for part in (first, second))
        products = np.einsum("ij,ij->i", a, b)
        lengths = np.sqrt(np.einsum("ij,ij->i", a, a) * np.einsum("ij,ij->i", b, b))
        cosines = np.divide(products, lengths, out=(a == b).all(axis=1).astype(np.float64), where=lengths > 0)
        if not cosines.min(initial=1.0) >= SAME_ROW:  # NaN, too
            return None
        least = min(least, float(cosines.min(initial=1.0)))
    return least


def _matrices_of_gguf(file: GgufFile, kind: Embedding) -> Pair:
    source = file.matrix(INPUT) if kind != "output" else None
    if file.tied and source is not None:
        return source, source
    return source, file.matrix(OUTPUT) if kind != "input" else None


# ---- models in memory -------------------------------------------------------------------------------------------


def _origin_of_model(model: Any) -> Origin:
    name = str(getattr(model, "name_or_path", "") or "") or None
    if name is None:
        return Origin(type(model).__name__)
    if Path(name).exists() or not HUB_ID.fullmatch(name):
        return Origin(Path(name).name)
    # No commit: the weights in memory may have changed since they were loaded.
    return Origin(name, hub_id=name)


def _matrices_of_model(model: Any, kind: Embedding) -> Pair:
    if not hasattr(model, "get_input_embeddings") or not hasattr(model, "get_output_embeddings"):
        raise ModelError(
            f"Expected a directory, a hub id or a transformers model, got {type(model).__name__}, which has no "
            "get_input_embeddings() and get_output_embeddings()."
        )
    source: Matrix | None = None
    if kind != "output":
        source = _module_matrix(model.get_input_embeddings(), "input embedding")
    if kind == "input":
        return source, None
    head = model.get_output_embeddings()
    if head is None:
        raise ModelError(
            f"{type(model).__name__} has no output head, so it cannot generate text. Load it with "
            "AutoModelForCausalLM, or choose embedding='input'."
        )
    # By identity: two matrices with equal numbers today may be trained apart tomorrow.
    if source is not None and _weight(head) is _weight(model.get_input_embeddings()):
        return source, source
    return source, _module_matrix(head, "output head")


def _weight(module: Any) -> Any:
    return getattr(module, "weight", None)


def _module_matrix(module: Any, what: str) -> Matrix:
    weight = _weight(module)
    if weight is None or hasattr(module, "qweight") or getattr(weight, "quant_state", None) is not None:
        raise ModelError(f"The {what} ({type(module).__name__}) is quantized or holds no plain matrix. {UNQUANTISED}")
    if getattr(weight, "is_meta", False):
        raise ModelError(f"The {what} is not in memory (device 'meta'). Load the model without offloading it to disk.")
    kind = str(weight.dtype).removeprefix("torch.")
    if kind not in ("float32", "float16", "bfloat16", "float64"):
        raise ModelError(f"The {what} is stored as {kind}: it is quantized. {UNQUANTISED}")
    tensor = weight.detach().cpu().contiguous()
    if kind == "bfloat16":
        import torch  # already loaded: we hold one of its tensors

        return np.asarray(tensor.view(torch.int16).numpy()).view(np.uint16)
    return np.asarray(tensor.numpy())


# ---- checkpoints ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """The files of a model in a directory or on the hub."""

    origin: Origin
    folder: Path | None
    """The directory, or None: the files are fetched from the hub one by one."""

    @classmethod
    def open(cls, source: str | Path, revision: str | None) -> Checkpoint:
        """Locate a checkpoint: its directory, or the commit on the hub; `ModelError` if there is neither."""
        path = Path(source).expanduser()
        if path.is_dir():
            return cls(Origin(path.resolve().name, quantization=quantization_of(path)), path)
        if path.exists():
            raise ModelError(f"{path} is a file. Give the directory that holds it, with config.json next to it.")
        if isinstance(source, Path) or not HUB_ID.fullmatch(source):
            raise ModelError(f"There is no directory {path}.")
        config = _from_hub(source, "config.json", revision)
        if config is None:
            raise ModelError(f"There is no directory '{source}' here, and the hub's '{source}' has no config.json.")
        commit = config.parent.name  # the hub's cache keeps files in a folder named by the commit
        return cls(Origin(source, hub_id=source, commit=commit), None)

    def file(self, name: str) -> Path | None:
        """The named file, or None if the checkpoint does not have it."""
        if self.folder is not None:
            path = self.folder / name
            return path if path.is_file() else None
        assert self.origin.hub_id is not None
        return _from_hub(self.origin.hub_id, name, self.origin.commit)

    def matrices(self, kind: Embedding) -> Pair:
        """The input and output embedding matrices, as far as `kind` asks for them."""
        where = self._where()
        source = self._find(where, "input") if kind != "output" else None
        head = self._find(where, "output") if kind != "input" else None
        if source is None and kind != "output":
            source = self._tied(where, present=head or self._find(where, "output"), missing="input embedding matrix")
        if head is None and kind != "input":
            head = self._tied(where, present=source or self._find(where, "input"), missing="output head")
        read = {name: self._read(where[name], name) for name in (source, head) if name is not None}
        return (read[source] if source else None, read[head] if head else None)

    def _where(self) -> dict[str, str]:
        """Tensor name -> file."""
        index = self.file("model.safetensors.index.json")
        if index is not None:
            try:
                return dict(json.loads(read_bounded(index, MOST_OF_INDEX))["weight_map"])
            except InvalidInputError as error:
                raise ModelError(str(error)) from error
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                raise ModelError(f"{index} is damaged: {error!r}. Download the checkpoint again.") from error
        names = ["model.safetensors"]
        if self.folder is not None and not (self.folder / names[0]).is_file():
            # Some repositories name their file otherwise, and adapters lie beside it.
            names = sorted(path.name for path in self.folder.glob("*.safetensors") if "adapter" not in path.name)
        files = [(name, path) for name in names if (path := self.file(name)) is not None]
        if not files:
            raise ModelError(self._no_weights())
        return {tensor: name for name, path in files for tensor in stored_tensors(path)}

    def _no_weights(self) -> str:
        files = [] if self.folder is None else sorted(path.name for path in self.folder.iterdir())
        if "adapter_config.json" in files:
            return f"{self.folder} holds an adapter, not a model. Merge it into its model and save that."
        other = [name for name in files if name.endswith((".bin", ".pt", ".pth", ".gguf"))]
        hint = f" It has {other[0]}, which semtoken does not read (it may hold code)." if other else ""
        if self.folder is not None and other and other[0].endswith(".gguf"):
            return f"{self.folder} has no safetensors weights. Give its GGUF file instead: {self.folder / other[0]}"
        return (
            f"{self.folder or self.origin.hub_id} has no safetensors weights.{hint} Load the model with transformers "
            "and save it with save_pretrained(), which writes safetensors, or pass the loaded model itself."
        )

    def _find(self, where: dict[str, str], side: Literal["input", "output"]) -> str | None:
        """Name of the one matrix on this side of the model, None if there is none."""
        modules = INPUT_MODULES if side == "input" else OUTPUT_MODULES
        kept = [
            parts
            for parts in (name.split(".") for name in where)
            if not any(part in OTHER_PARTS or OTHER_MODALITIES.search(part) for part in parts)
        ]
        matrices = sorted(".".join(p) for p in kept if p[-1] == "weight" and p[-2:-1] and p[-2] in modules)
        packed = sorted(".".join(p) for p in kept if modules.intersection(p) and p[-1] in PACKED)
        if packed:
            raise ModelError(f"The {side} embeddings of {self.origin.model} are quantized ({packed[0]}). {UNQUANTISED}")
        if len(matrices) > 1:
            raise ModelError(
                f"{self.origin.model} has several matrices that may be its {side} embeddings: {', '.join(matrices)}. "
                "Pass the model loaded by transformers instead of its path."
            )
        return matrices[0] if matrices else None

    def _tied(self, where: dict[str, str], *, present: str | None, missing: str) -> str:
        """The matrix that stands in for a missing one, if this is a model that shares them."""
        name = self.origin.model
        if present is None:
            raise ModelError(
                f"No embedding matrix was recognized among the {len(where):,} tensors of {name}. Pass the model "
                "loaded by transformers instead of its path."
            )
        config = self._config()
        flags = [part.get("tie_word_embeddings") for part in (config, config.get("text_config")) if part]
        architectures = [str(item) for item in config.get("architectures") or ()]
        # An encoder has no output head either, and its input matrix is none.
        generates = any("LM" in a or "ConditionalGeneration" in a for a in architectures)
        if (False in flags and True not in flags) or (architectures and not generates):
            raise ModelError(
                f"{name} ({', '.join(architectures) or 'unknown architecture'}) has no {missing}. If this is a model "
                "without a language-model head, use the one that generates text, or choose embedding='input'."
            )
        return present

    def _config(self) -> dict[str, Any]:
        path = self.file("config.json")
        try:
            config = json.loads(read_bounded(path, MOST_SETTINGS)) if path else {}
        except (OSError, ValueError, RecursionError) as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
        return config if isinstance(config, dict) else {}

    def _read(self, file: str, tensor: str) -> Matrix:
        path = self.file(file)
        if path is None:
            raise ModelError(f"{self.origin.model} is incomplete: its index names {file}, which is missing.")
        return _map_tensor(path, tensor)


def stored_tensors(path: Path) -> dict[str, Any]:
    """Type, shape and place of each tensor in a safetensors file; `ModelError` if it is damaged or incomplete."""
    check_header(path)
    try:
        # The library checks offsets and sizes; the header alone is read here for what it does not tell.
        with safe_open(path, framework="numpy"):
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path} is damaged or incomplete: {error}. Download the checkpoint again.") from error
    return {name: {**entry, "start": 8 + length} for name, entry in header.items() if name != "__metadata__"}


def _map_tensor(path: Path, tensor: str) -> Matrix:
    # NumPy knows no bfloat16, so the library cannot read it for us: map the bytes where they lie.
    entry = stored_tensors(path).get(tensor)
    if entry is None:
        raise ModelError(f"{path} does not hold {tensor}, as the index says. Download the checkpoint again.")
    dtype = STORED_TYPES.get(entry["dtype"])
    if dtype is None:
        raise ModelError(f"{tensor} is stored as {entry['dtype']}: it is quantized. {UNQUANTISED}")
    shape: Sequence[int] = entry["shape"]
    if len(shape) != 2 or 0 in shape:
        raise ModelError(f"{tensor} has the shape {tuple(shape)}; an embedding matrix has rows and columns.")
    start = entry["start"] + entry["data_offsets"][0]
    mapped = np.memmap(path, dtype=dtype, mode="r", offset=start, shape=tuple(shape))
    return np.require(np.asarray(mapped), requirements="A")


# ---- the hub ----------------------------------------------------------------------------------------------------


def _from_hub(repo: str, name: str, revision: str | None) -> Path | None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repo, name, revision=revision))
    except LocalEntryNotFoundError as error:
        if name != "config.json":
            return None  # offline: not in the cache
        raise _hub_error(repo, error) from error
    except EntryNotFoundError:
        return None
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise _hub_error(repo, error) from error


def _hub_error(repo: str, error: Exception) -> ModelError:
    return ModelError(f"There is no directory '{repo}' here, and the hub does not give it: {first_line_of(error)}")
