"""The model of this process that answers: options and settings, what they say of it, and how it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from semtoken.choices import Preset
from semtoken.cli.console import phases, tell
from semtoken.cli.loading import names_in, rules_of
from semtoken.cli.parameters import ClustersNamed, ModelNamed
from semtoken.cli.settings import ModelSection, ScoringSection, Settings
from semtoken.cli.statuses import UsageError
from semtoken.errors import ModelError, SemtokenError, one_line_of
from semtoken.support.almanac import ALMANAC

if TYPE_CHECKING:
    from semtoken import ScoredModel
    from semtoken.core.rules import ScoringRules

Device = Annotated[str | None, Parameter(help="cpu, cuda, cuda:1, ... Default: a GPU if there is one.")]


@Parameter(name="*")
@dataclass(frozen=True)
class ModelOptions:
    """The options of the commands that score answers of a model in this process."""

    model: ModelNamed[str] = ALMANAC
    """Model: a fetched name, a directory, a GGUF file, or a hub id (ID@REVISION). Default: almanac, built in."""
    device: Device = None
    preset: Preset = "default"
    """paper: the published code's numbers, with clusters."""
    clusters: ClustersNamed[str | None] = None
    """With --preset paper: clusters of the model's tokens, a directory or a hub id. Default: made once."""

    def with_settings(self, settings: Settings) -> ModelChoice:
        """The model with the settings that it is loaded with."""
        if self.clusters is not None and self.preset != "paper":
            raise UsageError("--clusters has no effect without --preset paper: leave it out, or add that.")
        name, revision = name_and_revision(self.model)
        chosen = (name, revision, self.device, self.preset, self.clusters)
        return ModelChoice(*chosen, settings.model, settings.scoring)


@Parameter(name="*")
@dataclass(frozen=True)
class PaperModelOptions(ModelOptions):
    """The same with the published code's numbers unless another preset is named."""

    preset: Preset = "paper"


def name_and_revision(model: str) -> tuple[str, str | None]:
    """The name of a model, and the branch, tag or commit after an @; a path that exists is a name as it stands."""
    name, at, revision = model.rpartition("@")
    return (name, revision) if at and not Path(model).expanduser().exists() else (model, None)


@dataclass(frozen=True)
class ModelChoice:
    """A model of this process, and how it is loaded and scored: plain data, which can be sent to other processes."""

    name: str
    revision: str | None
    device: str | None
    preset: Preset
    clusters: str | None
    """The clusters for the preset paper; None: those made before for this model, or new ones."""
    section: ModelSection
    scoring: ScoringSection

    @property
    def loading(self) -> dict[str, Any]:
        """Arguments of `ScoredModel.from_pretrained`, which are also keys of a model in the settings of a benchmark."""
        return {
            "backend": self.section.backend,
            "device": self.device,
            "dtype": self.section.dtype,
            "clusters": self.clusters,
            "revision": self.revision,
            "trust_remote_code": self.section.trust_remote_code,
        }

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that decide the numbers, as far as they are known before the model is loaded."""
        decisive = {name: self.loading[name] for name in ("revision", "clusters", "device", "dtype")}
        decisive |= {"model": self.name, "preset": self.preset}
        further = {
            "backend": "" if self.section.backend == "transformers" else self.section.backend,
            "equality": self.scoring.equality,
            "methods": ",".join(self.scoring.methods),
        }
        return decisive | {name: value for name, value in further.items() if value}

    @property
    def rules(self) -> ScoringRules:
        """The rules that preset and equality make."""
        return rules_of(self.scoring, self.preset)

    def load(self, *, states: bool = False, calibrator: Path | None = None) -> ScoredModel:
        """The model with its tokenizer and clusters; with `states` it keeps the hidden state of every answer's end.

        A `calibrator` that cannot be read, or was fitted under other rules or on lists of the best tokens where this
        model has all of them, is rejected before the model is loaded.
        """
        from semtoken.methods.observers.method_scores import chosen_methods

        methods = chosen_methods(names_in(*self.scoring.methods))
        in_transformers = self.section.backend == "transformers"
        if calibrator is not None:
            from semtoken.guarantees import Calibrator, Fingerprint

            fitted = Calibrator.load(calibrator, rules=self.rules.signature)
            if in_transformers:  # all logits are known, not a list of the best
                fitted.fingerprint.require_same(Fingerprint(scores="exact"))
        from semtoken import ScoredModel
        from semtoken.support.checkpoints.hub import require_model

        require_model(self.name, self.revision)

        with phases("clustering the vocabulary", before=f"loading {self.name}") as progress:
            try:
                stc = ScoredModel.from_pretrained(
                    self.name, preset=self.rules, methods=methods, states=states, progress=progress, **self.loading
                )
                if in_transformers:
                    from semtoken.models.transformers.loading import spare_threads

                    spare_threads(stc.backend.model)
                _ = stc.scorer  # clusters are made here, where their progress is shown, if there have to be any
                return stc
            except SemtokenError:
                raise
            except (OSError, ValueError, RuntimeError) as error:  # of transformers and torch, about the model
                raise ModelError(f"The model '{self.name}' cannot be loaded: {one_line_of(error)}") from error


def name_built_in(model: ModelChoice) -> None:
    """Say so where the built-in model answers or scores, which somebody who forgot --model would not see."""
    if model.name == ALMANAC:
        tell("The built-in model almanac is used; --model names another.", style="dim")
