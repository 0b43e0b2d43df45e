"""Things that several commands load: a calibrator, an executor of shards, rules; and lists of names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from semtoken.choices import Preset
from semtoken.cli.console import tell
from semtoken.cli.settings import ExecutorSection, ScoringSection, path_of
from semtoken.cli.statuses import UsageError
from semtoken.errors import InvalidInputError
from semtoken.support.extras import require

if TYPE_CHECKING:
    from semtoken.clustering.token_clusters import TokenClusters
    from semtoken.core.rules import ScoringRules
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.guarantees.fingerprint import Fingerprint
    from semtoken.support.executors import Executor


def names_in(*texts: str | None) -> tuple[str, ...]:
    """The names that an option or a setting holds, with commas between them."""
    return tuple(name.strip() for text in texts for name in (text or "").split(",") if name.strip())


def benchmarked(methods: str | None) -> list[str] | None:
    """The methods that `--methods` of a benchmark names; None if it was not given.

    `InvalidInputError` if it names none.
    """
    if methods is None:
        return None
    if not (names := list(names_in(methods))):
        raise InvalidInputError(f"--methods {methods!r} names no method. Leave the option out to have the usual ones.")
    return names


def rules_of(scoring: ScoringSection, preset: Preset = "default") -> ScoringRules:
    """The rules that a preset and the equality of `[scoring]` make; those of `default` need no clusters."""
    from semtoken.core.rules import ScoringRules

    return ScoringRules(preset, equality=scoring.equality or None)


def check_executor(named: ExecutorSection, journal: str | None, *, files: bool = True) -> None:
    """Refuse what Ray's workers cannot do: keep a journal, or read and write anything but `files`."""
    if named.kind == "ray" and journal is not None:
        raise UsageError("Ray's processes keep no journal: leave out --journal, or --executor.kind local.")
    if named.kind == "ray" and not files:
        raise UsageError("Ray reads and writes files: name both, or give --executor.kind local.")


def load_executor(named: ExecutorSection) -> Executor | None:
    """Ray's executor, with a warning that Ray opens sockets; None for this process."""
    if named.kind != "ray":
        return None
    from semtoken.support.executors.ray import RayExecutor

    require("ray", extra="ray")
    if not named.address:
        tell("Ray starts a cluster on this machine and listens on every network interface.", style="yellow")
    return RayExecutor(workers=named.workers, gpus_per_worker=named.gpus, address=named.address or None)


def load_calibrator(
    directory: Path | None, clusters: TokenClusters | None, known: Fingerprint, abstain_text: str | None = None
) -> CalibratorInUse | None:
    """Load the calibrator that the option names, for the clusters and the origin of what answers; None without it."""
    if directory is not None:
        from semtoken.guarantees.apply import CalibratorInUse

        return CalibratorInUse.load(directory, clusters, known, abstain_text or None)
    if abstain_text:
        raise InvalidInputError("abstain_text under [calibration] needs --calibrator DIR, which says when to abstain.")
    return None


def by_kind(folders: Iterable[Path], decisions: str = "") -> tuple[Path | None, Path | None]:
    """The calibrator of answers and that of typed questions among folders; `decisions` is the second without one.

    Raises
    ------
    UsageError
        Two of them are of one kind.
    """
    from semtoken.decisions.calibrating import NAME

    kinds: dict[bool, Path] = {}
    for folder in folders:
        kind = (folder / NAME).exists()
        if kind in kinds:
            what = "typed questions" if kind else "answers"
            raise UsageError(f"--calibrator: {kinds[kind]} and {folder} are both of {what}: name one of them.")
        kinds[kind] = folder
    return kinds.get(False), kinds.get(True, path_of(decisions))
