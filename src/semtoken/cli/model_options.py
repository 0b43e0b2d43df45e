"""The options that say which model to use: declared once, as the fields of `ModelChoice`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.almanac import ALMANAC
from semtoken.choices import BackendName, DType
from semtoken.cli.console import phases
from semtoken.cli.models import check_there
from semtoken.cli.options import (
    DeviceOption,
    FunctionWordsOption,
    MethodsOption,
    PresetOption,
    RevisionOption,
    VerboseOption,
    as_methods,
    option_group,
)
from semtoken.errors import ModelError, SemtokenError, one_line_of
from semtoken.support.extras import quiet_libraries

if TYPE_CHECKING:
    from semtoken import STC


ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="'almanac' (the small model that is built in), a name of `semtoken fetch`, a directory, a GGUF file, or "
        "a hub id.",
    ),
]


@dataclass(frozen=True)
class ModelChoice:
    """Which model to use, and how to score with it: each field is an option of the commands with `model_options`."""

    model: ModelOption = ALMANAC
    backend: Annotated[BackendName, typer.Option(help="What runs the model; llama-cpp takes a GGUF file.")] = (
        "transformers"
    )
    clusters: Annotated[
        str | None,
        typer.Option(
            "--clusters",
            "-c",
            help="Only for the preset paper: a directory, a hub id, or a model's name. Without it: those made before "
            "for this model, or new ones, which takes a minute to an hour by the number of tokens.",
        ),
    ] = None
    preset: PresetOption = "default"
    function_words: FunctionWordsOption = None
    methods: MethodsOption = None
    device: DeviceOption = None
    dtype: Annotated[DType, typer.Option(help="Precision of the weights; 'auto' is that of the checkpoint.")] = "auto"
    revision: RevisionOption = None
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Run Python code that comes with the model. Off by default."),
    ] = False
    verbose: VerboseOption = False

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
            **({"methods": self.methods} if self.methods else {}),
            "device": self.device,
            "dtype": self.dtype,
        }

    def load(self, *, states: bool = False, calibrator: Path | None = None) -> STC:
        """The model with its tokenizer and clusters; with `states` it keeps the hidden state of every answer's end.

        A `calibrator` that cannot be read, or was fitted under other rules, is refused before the model is loaded.
        """
        as_methods(self.methods)  # before anything is loaded
        if calibrator is not None:
            from semtoken.calibration import Calibrator
            from semtoken.tokens.rules import ScoringRules

            Calibrator.load(calibrator).fingerprint.require_rules(
                ScoringRules(self.preset, self.function_words).signature
            )
        check_there(self.model, self.revision)
        from semtoken import STC, ScoringRules

        if self.backend == "transformers" and not self.verbose:
            quiet_libraries()
        with phases("clustering the vocabulary", before=f"loading {self.model}") as progress:
            try:
                stc = STC.from_pretrained(
                    self.model,
                    backend=self.backend,
                    device=self.device,
                    dtype=self.dtype,
                    clusters=self.clusters,
                    revision=self.revision,
                    trust_remote_code=self.trust_remote_code,
                    preset=ScoringRules(self.preset, self.function_words),
                    methods=as_methods(self.methods),
                    states=states,
                    progress=progress,
                )
                if self.backend == "transformers":
                    from semtoken.backends.transformers.loading import spare_threads

                    spare_threads(stc.backend.model)
                _ = stc.scorer  # clusters are made here, where their progress is shown, if there have to be any
                return stc
            except SemtokenError:
                raise
            except (OSError, ValueError, RuntimeError) as error:  # of transformers and torch, about the model
                raise ModelError(f"The model '{self.model}' cannot be loaded: {one_line_of(error)}") from error


model_options = partial(option_group, ModelChoice, "choice", "Model")
"""Gives a command the options of `ModelChoice`, in place of its parameter `choice`; see `option_group`."""
