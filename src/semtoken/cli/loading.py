"""Things that several commands load: a calibrator, an executor of shards; methods and rules by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from semtoken.choices import Preset
from semtoken.cli.console import tell
from semtoken.cli.settings import ExecutorSection, ScoringSection, SettingsInUse, path_of
from semtoken.cli.statuses import UsageError
from semtoken.errors import InvalidInputError
from semtoken.support.extras import require

if TYPE_CHECKING:
    from semtoken import ScoredModel
    from semtoken.clustering.token_clusters import TokenClusters
    from semtoken.core.rules import ScoringRules
    from semtoken.decisions.records import DecisionRecord
    from semtoken.guarantees import Calibrator
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.guarantees.fingerprint import Fingerprint
    from semtoken.support.executors import Executor


def names_in(text: str | None) -> tuple[str, ...]:
    """The names that an option holds, with commas between them."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def one_pass(names: Sequence[str], *, of_replies: bool = False) -> tuple[str, ...]:
    """The methods of these names, which need one pass; "all" of replies are those that read the best tokens alone.

    A name may be several with commas between them, as `--methods` takes them.
    """
    if not names:
        return ()
    from semtoken.methods.observers.method_scores import FROM_BEST, methods_reading, one_pass_methods, require_one_pass

    asked = names_in(",".join(names))
    if asked == ("all",):
        return tuple(methods_reading(FROM_BEST) if of_replies else one_pass_methods())
    return require_one_pass(asked)


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


def load_calibrator_for(
    stc: ScoredModel, directory: Path | None, model: str, abstain_text: str | None = None
) -> CalibratorInUse | None:
    """Load the calibrator that the option names, for the model that answers; None without the option."""
    return load_calibrator(directory, abstain_text, lambda: (stc.scorer.clusters, stc.fingerprint(model)))


def load_calibrator(
    directory: Path | None,
    abstain_text: str | None,
    answering: Callable[[], tuple[TokenClusters | None, Fingerprint]],
) -> CalibratorInUse | None:
    """Load the calibrator that the option names, for the clusters and the origin of what answers; None without it."""
    if directory is not None:
        from semtoken.guarantees.apply import CalibratorInUse

        return CalibratorInUse.load(directory, *answering(), abstain_text or None)
    if abstain_text:
        raise InvalidInputError("abstain_text under [calibration] needs --calibrator DIR, which says when to abstain.")
    return None


def calibrator_of_rules(directory: Path, rules: ScoringRules) -> Calibrator:
    """Load a calibrator; one that was fitted under other rules is rejected."""
    from semtoken.guarantees import Calibrator

    calibrator = Calibrator.load(directory)
    calibrator.fingerprint.require_rules(rules.signature)
    return calibrator


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


def decision_answers(
    source: Path, labels: Path | None, questions: Path | None, in_use: SettingsInUse
) -> list[DecisionRecord]:
    """The answers to typed questions in a file, with the correct values and the questions that are in other files.

    The questions of `[decisions]` are for answers whose correct values are elsewhere.
    """
    from semtoken.decisions.running import read_questions
    from semtoken.decisions.saved import decision_records

    path = questions or (path_of(in_use.settings.decisions.questions) if labels else None)
    return decision_records(source, labels=labels, questions=None if path is None else read_questions(path))
