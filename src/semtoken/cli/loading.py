"""What the commands load: a model, a calibrator, what runs shards; methods and rules by their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semtoken.choices import BackendName, DType, Equality, FunctionWords, Preset
from semtoken.cli.console import phases, tell
from semtoken.cli.settings import ExecutorSection, ScoringSection
from semtoken.cli.statuses import UsageError
from semtoken.errors import InvalidInputError, ModelError, SemtokenError, one_line_of
from semtoken.support.almanac import ALMANAC
from semtoken.support.extras import quiet_libraries, require

if TYPE_CHECKING:
    from semtoken import ScoredModel
    from semtoken.clustering.token_clusters import TokenClusters
    from semtoken.core.rules import ScoringRules
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.guarantees import Calibrator
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.guarantees.fingerprint import Fingerprint
    from semtoken.support.executors import Executor
    from semtoken.web.calibrators import CalibratorSlot


def as_methods(given: str | None, *, of_replies: bool = False) -> tuple[str, ...]:
    """The methods of one pass that `--methods` names; "all" of replies are those that read the best tokens alone."""
    from semtoken.methods.observers.method_scores import FROM_BEST, methods_reading, one_pass_methods, require_one_pass

    if given is None:
        return ()
    if given.strip() == "all":
        return tuple(methods_reading(FROM_BEST) if of_replies else one_pass_methods())
    return require_one_pass([name.strip() for name in given.split(",") if name.strip()])


def methods_of(scoring: ScoringSection, *, of_replies: bool = False) -> tuple[str, ...]:
    """The methods that `[scoring]` names."""
    return as_methods(",".join(scoring.methods) or None, of_replies=of_replies)


def rules_of(scoring: ScoringSection) -> ScoringRules:
    """The rules that `[scoring]` makes, without clusters."""
    from semtoken.core.rules import ScoringRules

    return ScoringRules("default", equality=scoring.equality or None)


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


def decision_slot(directory: Path | None) -> CalibratorSlot[DecisionCalibrator]:
    """A slot with the calibrator of typed decisions that the option names, empty without the option."""
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.web.calibrators import CalibratorSlot, SharedPlace
    from semtoken.web.running import shared_folder

    option = "--calibrator"
    if directory is None:
        return CalibratorSlot[DecisionCalibrator](None, option=option)
    load, folder = partial(DecisionCalibrator.load, directory), shared_folder("decision-calibrators")
    shared = None if folder is None else SharedPlace(folder, DecisionCalibrator.load, DecisionCalibrator.save)
    return CalibratorSlot(load(), load, option=option, shared=shared)


def calibrator_of_rules(directory: Path, rules: ScoringRules) -> Calibrator:
    """Load a calibrator; one that was fitted under other rules is rejected."""
    from semtoken.guarantees import Calibrator

    calibrator = Calibrator.load(directory)
    calibrator.fingerprint.require_rules(rules.signature)
    return calibrator


def calibrator_settings(directory: Path | None) -> dict[str, str | None]:
    """The settings of a scored file that depend on the calibrator: the hash of its file, or None."""
    if directory is None:
        return {"calibrator": None}
    from semtoken.guarantees.apply import CalibratorInUse

    return {"calibrator": CalibratorInUse.load(directory).checksum}


@dataclass(frozen=True)
class ModelChoice:
    """Which model to use, and how to score with it."""

    model: str = ALMANAC
    backend: BackendName = "transformers"
    clusters: str | None = None
    """With the preset paper; without them those made before for this model, or new ones."""
    preset: Preset = "default"
    equality: Equality | None = None
    function_words: FunctionWords | None = None
    methods: str | None = None
    """Further methods of every answer, separated by commas."""
    device: str | None = None
    dtype: DType = "auto"
    revision: str | None = None
    trust_remote_code: bool = False
    verbose: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that decide the numbers, as far as they are known before the model is loaded."""
        engine = {} if self.backend == "transformers" else {"backend": self.backend}
        return engine | {
            "model": self.model,
            "revision": self.revision,
            "clusters": self.clusters,
            "preset": self.preset,
            "function_words": self.function_words,
            **({"equality": self.equality} if self.equality else {}),
            **({"methods": self.methods} if self.methods else {}),
            "device": self.device,
            "dtype": self.dtype,
        }

    @property
    def rules(self) -> ScoringRules:
        """The rules that preset, equality and function words make."""
        from semtoken.core.rules import ScoringRules

        return ScoringRules(self.preset, self.function_words, equality=self.equality)

    def load(self, *, states: bool = False, calibrator: Path | None = None) -> ScoredModel:
        """The model with its tokenizer and clusters; with `states` it keeps the hidden state of every answer's end.

        A `calibrator` that cannot be read, or was fitted under other rules or on lists of the best tokens where this
        model has all of them, is rejected before the model is loaded.
        """
        as_methods(self.methods)  # before anything is loaded
        if calibrator is not None:
            from semtoken.guarantees import Fingerprint

            fitted = calibrator_of_rules(calibrator, self.rules)
            if self.backend == "transformers":  # all logits are known, not a list of the best
                fitted.fingerprint.require_same(Fingerprint(scores="exact"))
        from semtoken import ScoredModel
        from semtoken.cli.models import check_there

        check_there(self.model, self.revision)

        if self.backend == "transformers" and not self.verbose:
            quiet_libraries()
        with phases("clustering the vocabulary", before=f"loading {self.model}") as progress:
            try:
                stc = ScoredModel.from_pretrained(
                    self.model,
                    backend=self.backend,
                    device=self.device,
                    dtype=self.dtype,
                    clusters=self.clusters,
                    revision=self.revision,
                    trust_remote_code=self.trust_remote_code,
                    preset=self.rules,
                    methods=as_methods(self.methods),
                    states=states,
                    progress=progress,
                )
                if self.backend == "transformers":
                    from semtoken.models.transformers.loading import spare_threads

                    spare_threads(stc.backend.model)
                _ = stc.scorer  # clusters are made here, where their progress is shown, if there have to be any
                return stc
            except SemtokenError:
                raise
            except (OSError, ValueError, RuntimeError) as error:  # of transformers and torch, about the model
                raise ModelError(f"The model '{self.model}' cannot be loaded: {one_line_of(error)}") from error
