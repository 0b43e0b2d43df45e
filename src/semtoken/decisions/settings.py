"""`semtoken.yaml` beside the questions: which server is asked, which calibrator decides, and what has to hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from semtoken.choices import Promise
from semtoken.errors import InvalidInput
from semtoken.files.yaml_files import read_yaml

NAME = "semtoken.yaml"


@dataclass(frozen=True)
class DecisionLimits:
    """What has to hold besides the promise; where it does not, a check ends with exit status 1."""

    distance: float | None = None
    """Largest distance of the probabilities from those of the fit, in [0, 1]; the lower end of its interval counts."""
    accepted: float | None = None
    """Smallest share that is accepted, in [0, 1]; the upper end of its interval counts."""
    undecided: bool = True
    """Whether it is enough that the labels cannot tell."""


@dataclass(frozen=True)
class DecisionSettings:
    """The settings of one folder of questions; paths are as the file names them, from its own folder on."""

    file: Path | None = None
    upstream: str | None = None
    """Address of the server's API, such as http://127.0.0.1:8000/v1."""
    model: str | None = None
    """The model's name there."""
    questions: Path | None = None
    labelled: Path | None = None
    """Items with labels, by which an audit judges."""
    calibrator: Path | None = None
    alpha: float = 0.1
    delta: float = 0.1
    promise: Promise = "selective"
    require: tuple[str, ...] = ()
    """The questions, or their sides such as "refund, called true", that a fit has to promise and that limits are for.
    Empty: all of them."""
    limits: DecisionLimits = DecisionLimits()

    @classmethod
    def beside(cls, *paths: Path | None) -> DecisionSettings:
        """The settings beside the first of some files that has them, else those of this folder, else the defaults."""
        folders = [path if path.is_dir() else path.parent for path in paths if path is not None]
        for folder in (*folders, Path()):
            if (folder / NAME).is_file():
                return cls.read(folder / NAME)
        return cls()

    @classmethod
    def read(cls, path: Path) -> DecisionSettings:
        """Read a file of settings.

        Raises
        ------
        InvalidInput
            The file cannot be read, or holds a setting that does not exist or has another type.
        """
        values = _checked(read_yaml(path) or {}, cls, str(path))
        limits = DecisionLimits(**_checked(values.pop("limits", {}), DecisionLimits, f"{path}, limits"))
        for name in ("questions", "labelled", "calibrator"):
            if name in values:
                values[name] = path.parent / values[name]
        return cls(file=path, limits=limits, **values)


def _share(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= 1


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_RIGHT: Mapping[str, Callable[[Any], bool]] = {
    "alpha": _share,
    "delta": _share,
    "distance": _share,
    "accepted": _share,
    "undecided": lambda value: isinstance(value, bool),
    "promise": lambda value: value in get_args(Promise),
    "require": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    "limits": lambda value: isinstance(value, Mapping),
}
"""What a setting may be; all others are texts."""


def _checked(given: Any, form: type, where: str) -> dict[str, Any]:
    names = [field.name for field in fields(form) if field.name != "file"]
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where} must hold settings by name: {', '.join(names)}.")
    for name, value in given.items():
        if name not in names:
            raise InvalidInput(f"{where}: there is no setting {name!r:.60}. There are {', '.join(names)}.")
        if not _RIGHT.get(str(name), _is_text)(value):
            raise InvalidInput(f"{where}: {name} cannot be {value!r:.60}.")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
