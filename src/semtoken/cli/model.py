"""Which model of this process answers: the options of the commands that load one, with `[model]` and `[scoring]`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from semtoken.choices import Preset
from semtoken.cli.loading import ModelChoice
from semtoken.cli.settings import Settings
from semtoken.cli.statuses import UsageError
from semtoken.support.almanac import ALMANAC

ModelName = Annotated[
    str,
    Parameter(
        name=("--model", "-m"),
        metavar="NAME",
        help="Model: a fetched name, a directory, a GGUF file, or a hub id (ID@REVISION). Default: almanac, built in.",
    ),
]
Device = Annotated[str | None, Parameter(metavar="NAME", help="cpu, cuda, cuda:1, ... Default: a GPU if there is one.")]

PresetName = Annotated[Preset, Parameter(metavar="NAME", help="paper: the published code's numbers, with clusters.")]


@Parameter(name="*")
@dataclass(frozen=True)
class ModelOptions:
    """The options of the commands that score answers of a model in this process."""

    model: ModelName = ALMANAC
    device: Device = None
    preset: PresetName = "default"
    clusters: Annotated[
        str | None,
        Parameter(
            name=("--clusters", "-c"),
            metavar="NAME",
            help="With --preset paper: clusters of the model's tokens, a directory or a hub id. Default: made once.",
        ),
    ] = None

    def with_settings(self, settings: Settings, *, verbose: bool = False) -> ModelChoice:
        """The model with the settings that it is loaded with."""
        if self.clusters is not None and self.preset != "paper":
            raise UsageError("--clusters has no effect without --preset paper: leave it out, or add that.")
        return model_choice(self.model, self.device, settings, self.preset, self.clusters, verbose=verbose)


@Parameter(name="*")
@dataclass(frozen=True)
class PaperModelOptions(ModelOptions):
    """The same with the published code's numbers unless another preset is named."""

    preset: PresetName = "paper"


def name_and_revision(model: str) -> tuple[str, str | None]:
    """The name of a model, and the branch, tag or commit after an @; a path that exists is a name as it stands."""
    name, at, revision = model.rpartition("@")
    return (name, revision) if at and not Path(model).expanduser().exists() else (model, None)


def model_choice(
    model: str,
    device: str | None,
    settings: Settings,
    preset: Preset = "default",
    clusters: str | None = None,
    *,
    verbose: bool = False,
) -> ModelChoice:
    """A model by its name, with its revision after an @, and the settings that it is loaded with."""
    name, revision = name_and_revision(model)
    return ModelChoice(
        name,
        settings.model.backend,
        clusters,
        preset,
        settings.scoring.equality or None,
        None,
        ",".join(settings.scoring.methods) or None,
        device,
        settings.model.dtype,
        revision,
        settings.model.trust_remote_code,
        verbose,
    )
