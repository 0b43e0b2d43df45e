"""The settings of a run: a small YAML or TOML file, or flags. Every default is the paper's."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from semtoken.bench.judges import Strict
from semtoken.bench.judges.kinds import KnownJudge
from semtoken.bench.statistics.pairs import DEFAULT_NLI, DEFAULT_SIMILARITY
from semtoken.bench.statistics.steps import readings_for
from semtoken.choices import (
    Algorithm,
    BackendName,
    DType,
    Embedding,
    Equality,
    FunctionWords,
    Linkage,
    Metric,
    Preset,
    PTrueSpelling,
)
from semtoken.core.rules import ScoringRules
from semtoken.errors import InvalidInputError, one_line_of
from semtoken.guarantees.labels import CONFIDENCE
from semtoken.methods import METHODS, ONE_PASS_FAMILIES
from semtoken.methods.observers.steps import NEVER_GIVEN, not_given
from semtoken.methods.outside import is_outside, known_methods
from semtoken.support.almanac import almanac_path
from semtoken.support.extras import require
from semtoken.support.files.safe_files import read_file
from semtoken.support.inputs import first_repeated

require("pydantic", extra="bench")

from pydantic import BeforeValidator, Field, PositiveInt, ValidationError, field_validator, model_validator  # noqa: E402

ALMANAC = "almanac"
Seed: TypeAlias = Annotated[int, Field(ge=0)]
"""A seed of random draws; generators take none below 0."""
_NOT_IN_NAMES = re.compile(r"[^\w.=-]+")


def _by_name(value: Any) -> Any:
    """A bare name stands for the settings with this name and defaults otherwise."""
    return {"name": value} if isinstance(value, str) else value


class ClusteringSettings(Strict):
    """Settings for making clusters where the user gives none."""

    algorithm: Algorithm = "agglomerative"
    linkage: Linkage = "complete"
    metric: Metric = "cosine"
    embedding: Embedding = "concatenated"
    n_clusters: PositiveInt | None = None
    """Number of clusters; by default 16,000, and at most half as many as tokens."""
    seed: Seed = 0


class ModelSettings(Strict):
    """The settings of one model that answers questions."""

    name: str = Field(min_length=1)
    """The model: "almanac", a directory, or a hub id."""
    label: str = ""
    """Its name in tables; by default the last part of `name`."""
    revision: str | None = None
    """Branch, tag or commit of a hub id."""
    dtype: DType = "auto"
    device: str | None = None
    """The torch device, such as "cuda:1". By default a GPU where there is one. vLLM chooses for itself."""
    backend: BackendName = "transformers"
    """The engine that generates. With vLLM samples are other ones, and no hidden states are recorded."""
    engine: dict[str, Any] = Field(default_factory=dict)
    """Further options of `vllm.LLM`, such as `tensor_parallel_size`. Numbers depend on them in the last bits only."""
    batch_size: PositiveInt = 32
    """The number of prompts that are answered and sampled together. Numbers depend on it in the last bits only."""
    clusters: str | ClusteringSettings | None = None
    """A directory or hub id of clusters, or how to make them. By default those that ship for the model, else made the
    paper's way; none under a preset that counts none."""
    trust_remote_code: bool = False

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and isinstance(data.get("name"), str):
            return {"label": Path(data["name"].rstrip("/")).name, **data}
        return data

    @property
    def source(self) -> str:
        """The directory or hub id that the model is loaded from."""
        return str(almanac_path()) if self.name == ALMANAC else self.name


class DatasetSettings(Strict):
    """The settings of one question set; see `semtoken.bench.datasets.read_dataset`."""

    name: str = Field(min_length=1)
    """The data set: "nq", "tqa", "wq", "almanac", "almanac-dev", or a file of JSON lines."""
    path: str | None = None
    """A local copy of the data set, for one of the paper's three."""
    label: str | None = None
    """Its name in tables, instead of the usual one."""
    prompt: str | None = None
    """The form of a prompt: a built-in format, a text with {question}, or a file that holds such a text. By default
    the set's own."""
    chat: bool = False
    """True if a prompt of your own is sent as one message through the model's chat template."""
    stop_at_newline: bool = True
    """True if an answer to a prompt of your own ends at its first newline."""


class DecodingSettings(Strict):
    """The settings by which answers are generated. The prompt of the data set says whether they end at a newline."""

    max_new_tokens: PositiveInt = 256
    n_samples: PositiveInt = 5
    temperature: float = Field(default=0.5, gt=0, allow_inf_nan=False)
    seed: Seed = 0
    """The seed of the sampled answers."""
    top_k: PositiveInt = 10
    """The number of best alternatives that are kept of each greedy step, for CCP to read."""
    share_prefix: bool = False
    """True if what all prompts of a shard begin with is read only once for its greedy answers, with transformers. That
    is faster with few-shot prompts, but the report then has no overhead in percent, since the generation that it is a
    part of is another one."""


class SensitivitySettings(Strict):
    """Clusterings to try besides the main one, which each differ from it in one setting."""

    algorithm: tuple[Algorithm, ...] = ()
    metric: tuple[Metric, ...] = ()
    n_clusters: tuple[PositiveInt, ...] = ()
    embedding: tuple[Embedding, ...] = ()
    linkage: tuple[Linkage, ...] = ()

    def variants(self) -> list[tuple[str, Any]]:
        """Every value to try, as pairs of the setting's name and the value."""
        return [(name, value) for name in type(self).model_fields for value in getattr(self, name)]


class ControlsSettings(Strict):
    """Controls of STC next to the methods; see `semtoken.bench.controls`."""

    repeats: PositiveInt = 3
    """The number of repetitions of the controls with random clusters."""
    seed: Seed = 0
    """The seed of the random clusters."""
    n_bins: PositiveInt = 20
    """The number of bins of token frequency, within which clusters are shuffled."""
    token_counts: str | None = None
    """A .npy file with the count of every token in some text. By default a token's id stands for its rank."""


Model = Annotated[ModelSettings, BeforeValidator(_by_name)]
JudgeChoice = Annotated[KnownJudge, BeforeValidator(lambda v: {"kind": v} if isinstance(v, str) else v)]
DatasetChoice = Annotated[DatasetSettings, BeforeValidator(_by_name)]
Controls = Annotated[ControlsSettings | None, BeforeValidator(lambda v: {} if v is True else None if v is False else v)]


class RunSettings(Strict):
    """All settings of a run."""

    models: tuple[Model, ...] = Field(min_length=1)
    datasets: tuple[DatasetChoice, ...] = Field(min_length=1)
    methods: tuple[str, ...] = tuple(
        name for name, one in METHODS.items() if name == CONFIDENCE or one.family not in ONE_PASS_FAMILIES
    )
    """Names of methods, by default those of the paper and the confidence; others of one pass are asked for by name."""
    outside: tuple[str, ...] = ()
    """Methods from files, `path/to/file.py:function`, which `methods` may name in this way; kept to load them again."""
    decoding: DecodingSettings = DecodingSettings()
    preset: Preset = "paper"
    equality: Equality | None = None
    """The rule for which tokens count as the same, if not that of the preset."""
    function_words: FunctionWords | None = None
    """The function words that are neutral, if not those of the preset."""
    p_true_spelling: PTrueSpelling = "bare"
    nli: str = DEFAULT_NLI
    """The NLI model; by default the embedded one where every model is the almanac."""
    similarity: str = DEFAULT_SIMILARITY
    """The similarity model; by default the embedded one where every model is the almanac."""
    pair_batch_size: PositiveInt = 64
    """The number of pairs of texts that the NLI and similarity models read together."""
    judges: tuple[JudgeChoice, ...] = Field(default=("exact",), min_length=1, validate_default=True)
    """The judges; see `semtoken.bench.judges`. The first is the primary one unless `primary_judge` names another."""
    primary_judge: str = ""
    """Name of the judge whose verdicts the main tables use."""
    limit: PositiveInt | None = None
    """The number of questions from every data set: a random part, the same for the same seed. None: all."""
    seed: Seed = 0
    """The seed by which that part is drawn."""
    sensitivity: SensitivitySettings = SensitivitySettings()
    controls: Controls = None
    """Controls of STC: `true` for the usual settings, or settings; None: no controls are scored. With controls, STC and
    sequence probability are among the methods."""
    shard_size: PositiveInt = 256
    """The number of questions in one file of a stage, which is the most that a killed run loses."""

    @property
    def rules(self) -> ScoringRules:
        """The rules that preset, equality and function words make."""
        return ScoringRules(self.preset, self.function_words, equality=self.equality)

    def choice(self, label: str) -> ModelSettings:
        """The settings of the model with this label."""
        return next(model for model in self.models if model.label == label)

    @model_validator(mode="before")
    @classmethod
    def _with_files(cls, given: Any) -> Any:
        """Functions of files are loaded, tried, and named by their names from here on."""
        if not isinstance(given, dict) or not isinstance(given.get("methods"), list | tuple):
            return given
        files = [str(Path(name).resolve()) for name in given["methods"] if isinstance(name, str) and is_outside(name)]
        return given | {"outside": list(dict.fromkeys([*given.get("outside", ()), *files]))}

    @field_validator("outside")
    @classmethod
    def _loaded(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known_methods(names)  # what it raises is a `ValueError`, as pydantic wants it
        return names

    @field_validator("methods")
    @classmethod
    def _check_methods(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known = known_methods(names)
        return tuple(name for name in METHODS if name in known)

    @model_validator(mode="after")
    def _possible(self) -> RunSettings:
        """Refuse what no model of a backend gives, before one is loaded. What nobody asked for by name is left out."""
        never = {model.backend: NEVER_GIVEN.get(model.backend, frozenset()) for model in self.models}
        for backend, missing in never.items() if "methods" in self.model_fields_set else ():
            lacking = {name: readings_for(METHODS[name].needs) & missing for name in self.methods}
            if named := [name for name, what in lacking.items() if what]:
                methods = f"the method {named[0]}" if len(named) == 1 else f"the methods {', '.join(named)}"
                raise ValueError(f"{methods}: {not_given(backend, frozenset().union(*lacking.values()))}")
        return self

    @field_validator("models")
    @classmethod
    def _different(cls, models: tuple[ModelSettings, ...]) -> tuple[ModelSettings, ...]:
        if twice := first_repeated(folder_name(model.label) for model in models):
            raise ValueError(f"two models have the label {twice!r}; give each a `label` of its own")
        return models

    @model_validator(mode="after")
    def _with_what_others_read(self) -> RunSettings:
        papers = self.preset == "paper" and self.equality is None
        if self.controls is not None and not papers:
            raise ValueError("controls take the paper's score apart: they need the preset 'paper', without an equality")
        if self.sensitivity.variants() and not papers:
            raise ValueError("sensitivity tries other clusterings: it needs the preset 'paper', without an equality")
        wanted = set(self.methods)
        wanted |= set() if self.controls is None else {"stc", "sequence_probability"}
        object.__setattr__(self, "methods", tuple(name for name in METHODS if name in wanted))
        return self

    @model_validator(mode="after")
    def _primary(self) -> RunSettings:
        names = [judge.name for judge in self.judges]
        if twice := first_repeated(names):
            raise ValueError(f"two judges have the name {twice!r}; give each a `name` of its own")
        if self.primary_judge and self.primary_judge not in names:
            raise ValueError(f"primary_judge is {self.primary_judge!r}, the judges are {', '.join(names)}")
        object.__setattr__(self, "primary_judge", self.primary_judge or names[0])
        return self

    @model_validator(mode="before")
    @classmethod
    def _helpers(cls, data: Any) -> Any:
        """The embedded encoders know the almanac's facts only, so they are the default for it alone."""
        if not isinstance(data, Mapping):
            return data
        models = data.get("models")
        names = [m.get("name") if isinstance(m, Mapping) else m for m in models] if isinstance(models, list) else []
        embedded = bool(names) and all(name == ALMANAC for name in names)
        defaults = {"nli": ALMANAC if embedded else DEFAULT_NLI}
        return defaults | {"similarity": ALMANAC if embedded else DEFAULT_SIMILARITY} | dict(data)


def folder_name(label: str) -> str:
    """The name of the folder for what has this label: anything but letters, digits and `_.=-` becomes a hyphen."""
    return _NOT_IN_NAMES.sub("-", label).strip("-.") or "unnamed"


def read_settings(path: Path) -> dict[str, Any]:
    """The content of a settings file, unchecked; `InvalidInputError` if it is no YAML or TOML with a table."""
    if path.suffix not in (".yaml", ".yml", ".toml"):
        raise InvalidInputError(f"Settings are read from .yaml or .toml files, got {path.name!r}.")
    try:
        content = read_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"The settings cannot be read from {path}: {error}.") from error
    settings = _parse_toml(path, content) if path.suffix == ".toml" else _parse_yaml(path, content)
    if not isinstance(settings, dict):
        raise InvalidInputError(f"{path} must hold settings such as `models:` and `datasets:`.")
    return settings


def _parse_yaml(path: Path, content: str) -> Any:
    yaml = require("yaml", extra="bench")
    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise InvalidInputError(f"{path} is not YAML: {one_line_of(error)}") from error


def _parse_toml(path: Path, content: str) -> Any:
    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"{path} is not TOML: {error}.") from error


def check_settings(content: Mapping[str, Any], where: str) -> RunSettings:
    """Check settings from a file or from flags, and fill in the defaults.

    `where` says where they come from, for messages. `InvalidInputError` lists all that cannot be used.
    """
    try:
        return RunSettings.model_validate_json(json.dumps(content, default=str))
    except ValidationError as error:
        errors = error.errors()
        faults = [f"{_place(fault['loc'])}{_reason(fault)}" for fault in errors if not _follows(fault, errors)]
        raise InvalidInputError(f"{where} cannot be used. " + "; ".join(faults) + ".") from error


def settings_with(
    path: Path | None, changes: Mapping[str, Any], of_models: Mapping[str, Any] | None = None
) -> RunSettings:
    """Read a file of settings, put others in their place, check all of them, and fill in the defaults.

    Parameters
    ----------
    path
        The file; None: `changes` are all there is.
    changes
        Settings that go before those of the file, by their names. What is None leaves the file's or the default.
    of_models
        Settings that go before those of every model, such as `batch_size`; None as in `changes`.

    Raises
    ------
    InvalidInputError
        The file cannot be read, or something in it or in the changes cannot be used.
    """
    content = {**({} if path is None else read_settings(path)), **_given(changes)}
    models = content.get("models")
    if (of_all := _given(of_models or {})) and isinstance(models, list):
        named = [{"name": model} if isinstance(model, str) else model for model in models]
        content["models"] = [{**model, **of_all} if isinstance(model, dict) else model for model in named]
    return check_settings(content, "The options" if path is None else str(path))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _place(location: tuple[int | str, ...]) -> str:
    """`models.1.dtype: `, as people count; empty for a fault of several settings, whose message names them."""
    place = ".".join(str(part + 1) if isinstance(part, int) else part for part in location)
    return f"{place}: " if place else ""


def _follows(fault: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> bool:
    """True if a fault only repeats that of the methods, or calls a list too short because what it holds is faulty."""
    place = fault["loc"]
    if place == ("outside",):
        return any(other["loc"] == ("methods",) for other in others)
    within = (other for other in others if len(other["loc"]) > len(place) and other["loc"][: len(place)] == place)
    return fault["type"] == "too_short" and any(within)


def _reason(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return "there is no such setting"
    if fault["type"] == "union_tag_invalid":
        return f"there is no {fault['ctx']['tag']!r}, there are {fault['ctx']['expected_tags']}"
    message = str(fault["msg"]).removeprefix("Value error, ").removesuffix(".")
    return f"{message[0].lower()}{message[1:]}"
