"""Options that several commands share: single ones, and groups of them that are declared as the fields of a class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, fields
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import typer

from semtoken.choices import BackendName, Distribution, DType, Equality, FunctionWords, PartKind, Preset
from semtoken.cli.console import phases, tell
from semtoken.cli.models import check_there
from semtoken.cli.settings import Scoring
from semtoken.errors import InvalidInput, ModelError, SemtokenError, one_line_of
from semtoken.support.almanac import ALMANAC
from semtoken.support.extras import quiet_libraries, require

if TYPE_CHECKING:
    from semtoken import STC
    from semtoken.clustering.token_clusters import TokenClusters
    from semtoken.core.rules import ScoringRules
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.guarantees import Calibrator
    from semtoken.guarantees.apply import CalibratorInUse
    from semtoken.guarantees.fingerprint import Fingerprint
    from semtoken.support.executors import Executor
    from semtoken.web.calibrators import CalibratorSlot

PresetOption = Annotated[
    Preset,
    typer.Option(help="'paper': the published code's numbers. 'default': counts tokens of the same spelling only."),
]
EqualityOption = Annotated[
    Equality | None,
    typer.Option(
        help="What counts as the same token, in place of what the preset says: 'exact' itself only (JSON, numbers, "
        "code), 'surface' other spellings of it, 'meaning' what clusters and prefixes say."
    ),
]
FunctionWordsOption = Annotated[
    FunctionWords | None,
    typer.Option(
        help="Where function words and white space count as certain. 'paper': everywhere; 'whole-word': only as "
        "whole words that do not open the answer; 'off': nowhere. Default: as in the preset."
    ),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        "-t",
        help="Whose tokens they are, for narrower intervals: 'smollm2' or another name of `semtoken fetch`, a "
        "directory, a GGUF file, a tokenizer.json, or a hub id. Needed where tokens come as ids without texts.",
    ),
]
ClustersOption = Annotated[
    str | None,
    typer.Option(
        "--clusters",
        "-c",
        help="Only for the preset paper: clusters of these tokens. A directory, a hub id, or a model.",
    ),
]
DistributionOption = Annotated[
    Distribution | None,
    typer.Option(
        help="What the log-probabilities are, where the replies do not tell: 'processed' for vLLM with --logprobs-mode "
        "processed_logprobs."
    ),
]
MaxNewTokensOption = Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")]
BatchSizeOption = Annotated[int, typer.Option(min=1, help="Number of prompts answered together.")]
DeviceOption = Annotated[
    str | None, typer.Option(help="Where to compute: 'cpu', 'cuda', 'cuda:1', ... Default: a GPU if there is one.")
]
RevisionOption = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Show the warnings and progress bars of transformers and the hub, too.")
]
OverwriteOption = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace an output that exists and that this command did not write.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable: one JSON object per line, nothing else.")]
KeyOption = Annotated[str, typer.Option(help="Environment variable with the endpoint's key, if it needs one.")]
PartsOption = Annotated[
    PartKind | None,
    typer.Option("--parts", help="The confidence of parts of the answer: JSON fields, sentences, numbers and so on."),
]
SchemaOption = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        dir_okay=False,
        help="A JSON Schema of the answers: a table gets a row for each document and field.",
    ),
]
MethodsOption = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help="Further numbers of every answer, separated by commas, from the same generation: 'mean_new_word,trace', "
        "or a function of your own: 'path/to/file.py:function'. 'all' gives all that can be known here "
        "(docs/methods.md).",
    ),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        help="Order the answers by this method, whose scores the file has (`semtoken score --methods`). Default: by "
        "the headline of each answer.",
    ),
]

JudgesOption = Annotated[
    list[str] | None,
    typer.Option(help="'exact', 'rouge', 'llm', ...; may be repeated, the first is the primary one."),
]
ControlsOption = Annotated[
    bool,
    typer.Option(
        "--controls",
        help="Also score controls: STC without its parts, with shuffled clusters, and with clusters by spelling.",
    ),
]
NliOption = Annotated[
    str | None,
    typer.Option(
        help="NLI model: 'almanac', a directory or a hub id. Default: microsoft/deberta-large-mnli, and 'almanac' for "
        "the built-in model."
    ),
]
SimilarityOption = Annotated[
    str | None,
    typer.Option(help="Similarity cross-encoder, named in the same way. Default: cross-encoder/stsb-roberta-large."),
]
ScoresOption = Annotated[
    Path | None,
    typer.Option(
        "--scores",
        dir_okay=False,
        help="Scores of your own to compare with the methods: CSV, JSON lines or Parquet with the questions' `id` and "
        "a column for each score; higher is riskier.",
    ),
]


def output_file(help: str, *, allow_dash: bool = False) -> Any:
    """The option `--output` of a command that writes a file."""
    return typer.Option("--output", "-o", dir_okay=False, allow_dash=allow_dash, writable=True, help=help)


def output_folder(help: str) -> Any:
    """The option `--output` of a command that writes a folder."""
    return typer.Option("--output", "-o", file_okay=False, writable=True, help=help)


def is_typed(ctx: typer.Context, option: str) -> bool:
    """Whether the value of an option was typed, and is neither a default nor a variable's."""
    source = ctx.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def as_methods(given: str | None, *, of_replies: bool = False) -> tuple[str, ...]:
    """The methods of one pass that `--methods` names; "all" of replies are those that read the best tokens alone."""
    from semtoken.methods.observers.method_scores import FROM_BEST, methods_reading, one_pass_methods, require_one_pass

    if given is None:
        return ()
    if given.strip() == "all":
        return tuple(methods_reading(FROM_BEST) if of_replies else one_pass_methods())
    return require_one_pass([name.strip() for name in given.split(",") if name.strip()])


def methods_of(scoring: Scoring, *, of_replies: bool = False) -> tuple[str, ...]:
    """The methods that `[scoring]` names."""
    return as_methods(",".join(scoring.methods) or None, of_replies=of_replies)


def rules_of(scoring: Scoring) -> ScoringRules:
    """The rules that `[scoring]` makes, without clusters."""
    from semtoken.core.rules import ScoringRules

    return ScoringRules("default", equality=scoring.equality or None)


def option_group(
    group: type, name: str, panel: str | None = None, **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the fields of a dataclass as options, in place of its parameter `name`.

    Without `panel` each option keeps its own heading; `defaults` are those of this command that differ.
    """
    kinds = get_type_hints(group, include_extras=True)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        options = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(field.name, field.default),
                annotation=_in_panel(kinds[field.name], panel),
            )
            for field in fields(group)
            if field.name not in own  # an option of the command's own, such as the methods of `compare`
        ]
        parameters: list[inspect.Parameter] = []
        for parameter in own.values():
            parameters += options if parameter.name == name else [parameter]

        @wraps(command)
        def expanded(**given: Any) -> None:
            chosen = group(**{option.name: given.pop(option.name) for option in options})
            command(**given, **{name: chosen})

        expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return expanded

    return decorate


def _in_panel(annotation: Any, panel: str | None) -> Any:
    """The option in a panel of its own, below what is special to the command."""
    if panel is None:
        return annotation
    kind, option = get_args(annotation)
    option = copy(option)
    option.rich_help_panel = panel
    return Annotated[kind, option]


@dataclass(frozen=True)
class ExecutorChoice:
    """What runs the shards, and with Ray how many workers where."""

    executor: Annotated[
        Literal["local", "ray"],
        typer.Option("--executor", help="What runs the shards: this process, or Ray's workers."),
    ] = "local"
    ray_workers: Annotated[int, typer.Option(min=1, help="With --executor ray: shards made at the same time.")] = 1
    ray_gpus: Annotated[float, typer.Option(min=0, help="With --executor ray: GPUs per worker; 0.5 shares one.")] = 0
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="With --executor ray: a running cluster, 'auto' for this machine's. Default: a cluster is started "
            "here, and Ray then listens on every network interface."
        ),
    ] = None

    @property
    def by_ray(self) -> bool:
        """Whether Ray runs the shards."""
        return self.executor == "ray"

    def check(self, journal: str | None, *, files: bool = True) -> None:
        """Refuse what Ray's workers cannot do: keep a journal, or read and write anything but `files`."""
        if self.by_ray and journal is not None:
            raise typer.BadParameter("Ray's processes keep no journal: leave out --journal.", param_hint="--executor")
        if self.by_ray and not files:
            raise typer.BadParameter("Ray reads and writes files: name both.", param_hint="--executor")

    def load(self) -> Executor | None:
        """Ray's executor, with a warning that Ray opens sockets; None for this process."""
        if not self.by_ray:
            return None
        from semtoken.support.executors.ray import RayExecutor

        require("ray", extra="ray")
        if self.ray_address is None:
            tell("Ray starts a cluster on this machine and listens on every network interface.", style="yellow")
        return RayExecutor(workers=self.ray_workers, gpus_per_worker=self.ray_gpus, address=self.ray_address)


executor_options = partial(option_group, ExecutorChoice, "spread", "Many workers")
"""Gives a command the options of `ExecutorChoice`, in place of its parameter `spread`."""


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


def load_calibrator_for(
    stc: STC, directory: Path | None, model: str, abstain_text: str | None = None
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
        raise InvalidInput("abstain_text under [calibration] needs --calibrator DIR, which says when to abstain.")
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
    """Load a calibrator; one that was fitted under other rules is refused."""
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
    equality: EqualityOption = None
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

    def load(self, *, states: bool = False, calibrator: Path | None = None) -> STC:
        """The model with its tokenizer and clusters; with `states` it keeps the hidden state of every answer's end.

        A `calibrator` that cannot be read, or was fitted under other rules or on lists of the best tokens where this
        model has all of them, is refused before the model is loaded.
        """
        as_methods(self.methods)  # before anything is loaded
        if calibrator is not None:
            from semtoken.guarantees import Fingerprint

            fitted = calibrator_of_rules(calibrator, self.rules)
            if self.backend == "transformers":  # all logits are known, not a list of the best
                fitted.fingerprint.require_same(Fingerprint(scores="exact"))
        check_there(self.model, self.revision)
        from semtoken import STC

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


model_options = partial(option_group, ModelChoice, "choice", "Model")
"""Gives a command the options of `ModelChoice`, in place of its parameter `choice`; see `option_group`."""
