"""`calibrator.json`: the whole of a calibrator as plain values. No code, nothing pickled, read with numpy alone.

The file must be, byte for byte, what `save` writes: it holds the SHA-256 of its other contents, and its layout is
fixed, so that any byte that was changed is found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from semtoken import __version__
from semtoken.calibration.curves import VennAbers, from_parameters, to_parameters
from semtoken.calibration.fingerprint import fingerprint_from, known_values
from semtoken.calibration.threshold import threshold_from, threshold_values
from semtoken.choices import CurveName
from semtoken.errors import ArtifactError, InvalidInput
from semtoken.files.safe_files import dump_json, parse_json, reading_errors, replacing_file

if TYPE_CHECKING:
    from semtoken.calibration.calibrator import Calibrator

NAME = "calibrator.json"
FORMAT, FORMAT_VERSION = "semtoken.calibrator", 1


def save(calibrator: Calibrator, directory: Path) -> Path:
    """Write a calibrator into a directory, which is made if it is missing."""
    path, data = directory / NAME, to_bytes(calibrator)
    with replacing_file(path) as file:
        file.write(data)
    return path


def load(path: Path, make: type[Calibrator]) -> Calibrator:
    """Read a calibrator from its directory or its file.

    Raises
    ------
    ArtifactError
        It is missing, changed, of another version, or holds what no calibrator can hold.
    """
    path = path / NAME if path.is_dir() else path
    try:
        with reading_errors(path):
            return from_bytes(path.read_bytes(), make)
    except InvalidInput as error:
        raise ArtifactError(f"There is no calibrator: {error} Make one with `semtoken calibrate`.") from error
    except ArtifactError as error:
        raise ArtifactError(f"{path} cannot be used. {error}") from error


def to_bytes(calibrator: Calibrator) -> bytes:
    """The file of a calibrator."""
    values = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "semtoken": __version__,
        "created": calibrator.created,
        "method": calibrator.method,
        "n": calibrator.n,
        "n_correct": calibrator.n_correct,
        "curve": None if calibrator.curve is None else to_parameters(calibrator.curve),
        "venn_abers": to_parameters(calibrator.venn_abers),
        "fingerprint": known_values(calibrator.fingerprint),
        "threshold": None if calibrator.threshold is None else threshold_values(calibrator.threshold),
        "scores": list(calibrator.scores),
    }
    return _dumped({"sha256": _digest(values), **values})


def from_bytes(data: bytes, make: type[Calibrator]) -> Calibrator:
    """A calibrator, of the class `make`, from the bytes of its file.

    Raises
    ------
    ArtifactError
        See `load`.
    """
    try:
        values = parse_json(data)
    except ValueError as error:
        raise ArtifactError(f"It is {error}. Copy the file again.") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ArtifactError("It holds no calibrator. Make one with `semtoken calibrate`.")
    if values.get("format_version") != FORMAT_VERSION:
        raise ArtifactError(
            f"Its format version is {values.get('format_version')!r}; this release reads version {FORMAT_VERSION}. Use "
            "the release that wrote it, or calibrate again."
        )
    if not _unchanged(values, data):
        raise ArtifactError("It was changed after it was written: its checksum does not match. Copy the file again.")
    return _calibrator(values, make)


def _unchanged(values: Mapping[str, Any], data: bytes) -> bool:
    rest = {name: value for name, value in values.items() if name != "sha256"}
    return values.get("sha256") == _digest(rest) and _dumped(values) == data


def _calibrator(values: Mapping[str, Any], make: type[Calibrator]) -> Calibrator:
    try:
        curve = None if values["curve"] is None else from_parameters(values["curve"])
        venn_abers = from_parameters(values["venn_abers"])
        n, right, method, scores = values["n"], values["n_correct"], values["method"], values["scores"]
        fingerprint = fingerprint_from(values["fingerprint"])
        threshold = None if values["threshold"] is None else threshold_from(values["threshold"])
        created = str(values["created"])
        ascending = np.asarray(scores, dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, ArtifactError):
            raise
        raise ArtifactError("It lacks a field that a calibrator has.") from error
    counts = type(n) is int and type(right) is int and 0 < right < n == ascending.size
    ordered = ascending.ndim == 1 and bool((np.diff(ascending) >= 0).all()) and bool((ascending <= 0).all())
    known = method in get_args(CurveName) and (curve is None) == (method == "venn-abers")
    if not (counts and ordered and known and isinstance(venn_abers, VennAbers)):
        raise ArtifactError("It holds numbers outside their ranges.")
    return make(method, curve, venn_abers, n, right, tuple(scores), fingerprint, threshold, created)


def _dumped(values: Mapping[str, Any]) -> bytes:
    return dump_json(values, indent=1) + b"\n"


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(_dumped(values)).hexdigest()
