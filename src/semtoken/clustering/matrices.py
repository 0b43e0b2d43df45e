"""The input and output embedding matrices of a model, as they are stored, read without loading the model.

A model is one in memory, a GGUF file, or a checkpoint in a folder or on the hub. Of a checkpoint only the two matrices
are touched: they are mapped into memory from the safetensors files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from semtoken.choices import Embedding
from semtoken.errors import InvalidInputError, ModelError, first_line_of
from semtoken.support.checkpoints.gguf import INPUT, OUTPUT, GgufFile
from semtoken.support.checkpoints.sources import quantization_of, resolve
from semtoken.support.checkpoints.stored_tensors import stored_tensors
from semtoken.support.files.artifacts import HUB_ID
from semtoken.support.files.safe_files import MEBIBYTE, MOST_SETTINGS, read_bounded

Matrix = npt.NDArray[Any]
"""Rows as they are stored: float32, float16, float64, or bfloat16 as its raw bits in uint16."""
Pair = tuple[Matrix | None, Matrix | None]
"""Input and output embeddings, as far as a kind of table asks for them."""

INPUT_MODULES = frozenset(
    ("embed_tokens", "wte", "embed_in", "word_embeddings", "tok_embeddings", "embeddings", "embedding")
)
OUTPUT_MODULES = frozenset(("lm_head", "embed_out", "output", "output_layer", "head"))
# Blocks, extra prediction heads, encoders and other modalities: their embeddings are not of the answer's tokens.
OTHER_PARTS = frozenset(("layers", "layer", "blocks", "h", "mtp", "encoder"))
OTHER_MODALITIES = re.compile("vision|visual|image|audio|speech|codec")
PACKED = ("qweight", "weight_packed", "qzeros", "scales", "weight_scale", "weight_scale_inv", "absmax", "SCB")
INDEX = "model.safetensors.index.json"
"""The file that says which shard of a checkpoint holds which tensor."""
MOST_OF_INDEX = 64 * MEBIBYTE  # bytes; that of 140,000 tensors has 15 MB

UNQUANTIZED = (
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
    """The form in which the embeddings were stored before they were made float32, such as "Q8_0"."""


def matrices_of(model_or_path: Any, revision: str | None) -> tuple[Origin, Callable[[Embedding], Pair]]:
    """The place of a model's matrices, and the function that reads them."""
    if not isinstance(model_or_path, str | Path):
        return _origin_of_model(model_or_path), partial(_matrices_of_model, model_or_path)
    source = resolve(model_or_path)
    if source.is_gguf:
        file = GgufFile(source.path)
        return Origin(file.path.name, quantization=file.quantization), partial(_matrices_of_gguf, file)
    checkpoint = Checkpoint.open(source.path, revision)
    return checkpoint.origin, checkpoint.matrices


def _matrices_of_gguf(file: GgufFile, kind: Embedding) -> Pair:
    source = file.matrix(INPUT) if kind != "output" else None
    if file.tied and source is not None:
        return source, source
    return source, file.matrix(OUTPUT) if kind != "input" else None


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
        raise ModelError(f"The {what} ({type(module).__name__}) is quantized or holds no plain matrix. {UNQUANTIZED}")
    if getattr(weight, "is_meta", False):
        raise ModelError(f"The {what} is not in memory (device 'meta'). Load the model without offloading it to disk.")
    kind = str(weight.dtype).removeprefix("torch.")
    if kind not in ("float32", "float16", "bfloat16", "float64"):
        raise ModelError(f"The {what} is stored as {kind}: it is quantized. {UNQUANTIZED}")
    tensor = weight.detach().cpu().contiguous()
    if kind == "bfloat16":
        import torch  # already loaded: we hold one of its tensors

        return np.asarray(tensor.view(torch.int16).numpy()).view(np.uint16)
    return np.asarray(tensor.numpy())


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

    def _where(self) -> dict[str, Any]:
        """Tensor name -> file. One file goes before the shards of an index, as in transformers, which leaves the index
        of a former save beside it.
        """
        names = ["model.safetensors"]
        if self.file(names[0]) is None:
            if (index := self.file(INDEX)) is not None:
                return _shards(index)
            if self.folder is not None:
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
            raise ModelError(f"The {side} embeddings of {self.origin.model} are quantized ({packed[0]}). {UNQUANTIZED}")
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

    def _read(self, file: Any, tensor: str) -> Matrix:
        if not isinstance(file, str):
            raise ModelError(f"{INDEX} is damaged: it names no file for {tensor}. Download the checkpoint again.")
        path = self.file(file)
        if path is None:
            raise ModelError(f"{self.origin.model} is incomplete: its index names {file}, which is missing.")
        stored = stored_tensors(path).get(tensor)
        if stored is None:
            raise ModelError(f"{path} does not hold {tensor}, as the index says. Download the checkpoint again.")
        if stored.dtype is None:
            raise ModelError(f"{tensor} is stored as {stored.kind}: it is quantized. {UNQUANTIZED}")
        if len(stored.shape) != 2 or 0 in stored.shape:
            raise ModelError(f"{tensor} has the shape {stored.shape}; an embedding matrix has rows and columns.")
        return stored.mapped()


def _shards(index: Path) -> dict[str, Any]:
    """Tensor name -> file, by the index of a checkpoint in several files; what it says of a tensor is not checked."""
    try:
        content = json.loads(read_bounded(index, MOST_OF_INDEX))
    except InvalidInputError as error:
        raise ModelError(str(error)) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{index} is damaged: {error}. Download the checkpoint again.") from error
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict):
        raise ModelError(f"{index} is damaged: it has no 'weight_map'. Download the checkpoint again.")
    return shards


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
