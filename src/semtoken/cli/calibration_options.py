"""The option `--calibrator`, one for all commands, and what it loads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semtoken.errors import InvalidInput

if TYPE_CHECKING:
    from semtoken import STC
    from semtoken.calibration.apply import CalibratorInUse
    from semtoken.calibration.fingerprint import Fingerprint
    from semtoken.clusters import TokenClusters
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.web.calibrators import CalibratorSlot

CalibratorOption = Annotated[
    Path | None,
    typer.Option(
        "--calibrator",
        help="A directory made by `semtoken calibrate`: adds the chance of being right, and the decision.",
    ),
]
DecisionCalibratorOption = Annotated[
    Path | None,
    typer.Option(
        file_okay=False,
        help="What `semtoken decide fit` wrote: adds chance, decision and promise to the answers of typed questions.",
    ),
]
AbstainTextOption = Annotated[
    str | None,
    typer.Option(
        "--abstain-text", help="Show this instead of answers that are not accepted. Default: answers are never hidden."
    ),
]


def use_calibrator(
    stc: STC, directory: Path | None, model: str, abstain_text: str | None = None
) -> CalibratorInUse | None:
    """Load the calibrator that the option names, and have the model score answers by its learned number, if it has one;
    None without the option.
    """
    found = load_calibrator_for(stc, directory, model, abstain_text)
    if found is not None:
        stc.use_learned(found.calibrator.learned)
    return found


def load_calibrator_for(
    stc: STC, directory: Path | None, model: str, abstain_text: str | None = None
) -> CalibratorInUse | None:
    """Load the calibrator that the option names, without having the model score by its learned number; None without the
    option.
    """
    return load_calibrator(directory, abstain_text, lambda: (stc.scorer.clusters, stc.fingerprint(model)))


def load_calibrator(
    directory: Path | None,
    abstain_text: str | None,
    answering: Callable[[], tuple[TokenClusters | None, Fingerprint]],
) -> CalibratorInUse | None:
    """Load the calibrator that the option names, for the clusters and the origin of what answers; None without it."""
    if directory is not None:
        from semtoken.calibration.apply import CalibratorInUse

        return CalibratorInUse.load(directory, *answering(), abstain_text)
    if abstain_text is not None:
        raise InvalidInput("--abstain-text needs --calibrator DIR, which says when to abstain.")
    return None


def decision_slot(directory: Path | None) -> CalibratorSlot[DecisionCalibrator]:
    """A slot with the calibrator of typed decisions that the option names, empty without the option."""
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.web.calibrators import CalibratorSlot, SharedPlace
    from semtoken.web.running import shared_folder

    option = "--decision-calibrator"
    if directory is None:
        return CalibratorSlot[DecisionCalibrator](None, option=option)
    load, folder = partial(DecisionCalibrator.load, directory), shared_folder("decision-calibrators")
    shared = None if folder is None else SharedPlace(folder, DecisionCalibrator.load, DecisionCalibrator.save)
    return CalibratorSlot(load(), load, option=option, shared=shared)


def calibrator_settings(directory: Path | None) -> dict[str, str | None]:
    """The settings of a scored file that depend on the calibrator: the hash of its file, or None."""
    if directory is None:
        return {"calibrator": None}
    from semtoken.calibration.apply import CalibratorInUse

    return {"calibrator": CalibratorInUse.load(directory).checksum}
