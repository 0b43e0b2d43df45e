"""From settings to steps and clusterings: what each depends on, and where its files lie.

The key of a step is a hash of exactly what its numbers depend on: its own settings, the keys of the steps that it
reads, the questions, the content of the models and a version of the code. A changed setting changes the keys of what
depends on it, and so only that is computed again. Labels are not part of any key.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from semtoken.bench.controls import artifact_names, control_of
from semtoken.bench.datasets import Dataset
from semtoken.bench.judges.kinds import judge_from
from semtoken.bench.manifest import digest, model_identity
from semtoken.bench.settings import (
    ALMANAC,
    ClusteringSettings,
    ControlsSettings,
    ModelSettings,
    RunSettings,
)
from semtoken.bench.statistics.steps import PAIR_STEPS, STC_STEPS, STEP, STEP_OF_FIELD, steps_for, watch_steps
from semtoken.clustering.packed_vocabulary import neutral_hash
from semtoken.clustering.token_clusters import ClusterSettings, TokenClusters
from semtoken.core.results.generation import LAYOUTS
from semtoken.core.rules import ScoringRules
from semtoken.errors import InvalidInputError, SemtokenError
from semtoken.methods import METHODS
from semtoken.methods.outside import source_of
from semtoken.models.prompts import PromptFormat
from semtoken.support.almanac import almanac_nli_path, almanac_sts_path
from semtoken.support.checkpoints.sources import resolve

MAIN = "main"
"""The clustering that methods use; the others of a run differ from it in one setting each."""


@dataclass(frozen=True)
class PlannedClustering:
    """A clustering of a model's vocabulary that a run uses, whether it exists already or has to be made."""

    name: str
    """The name of the clustering: `MAIN`, or the setting that differs, such as "metric=euclidean"."""
    identity: Mapping[str, Any]
    """Everything that its labels depend on."""
    source: str | None
    """A directory or hub id of given clusters; None: made by `settings`."""
    settings: Mapping[str, Any]
    """The arguments of `ClusterSettings` that are known; `n_clusters` None stands for the usual number."""

    @property
    def key(self) -> str:
        """A hash of everything that the labels depend on: equal keys mean equal clusterings."""
        return digest(self.identity)

    def folder(self, run: Path) -> Path:
        """The folder of a run that holds this clustering; variants with the same clustering share it."""
        return run / "clusterings" / self.key[:16]


@dataclass(frozen=True)
class PlannedStep:
    """A step of a run on one model and data set, which fills one set of files."""

    name: str
    """The step's name, such as "greedy", "samples", "p_true", "stc:metric=euclidean" or "judge:exact"."""
    work: str
    """The work that makes it. Steps of one work share a pass over the questions."""
    key: str
    """A hash of all that its numbers depend on."""
    inputs: tuple[str, ...]
    """Names of the steps whose files it reads."""
    facts: Mapping[str, Any]
    """The content of which the key is a hash, besides the keys of the inputs."""

    @property
    def subject(self) -> str:
        """The part of the step's name after the colon, such as the name of a method."""
        return self.name.partition(":")[2]

    def folder(self, run: Path) -> Path:
        """The folder of a run that holds the files of this step."""
        kind = f"score-{self.subject}" if self.work == "scores" else self.name.partition(":")[0]
        return run / "stages" / f"{kind}-{self.key[:16]}"


@dataclass(frozen=True, eq=False)
class OfCell:
    """The base of what is known about one model on one data set."""

    model: str
    """The name of the model in reports, such as "Qwen2.5-7B"."""
    dataset: str
    """The name of the data set in reports: "NQ", "TQA", "WQ", "almanac" or the name of a file."""

    @property
    def title(self) -> str:
        """The model and the data set, as tables, sentences and messages name them."""
        return f"{self.model} on {self.dataset}"


@dataclass(frozen=True)
class CellPlan(OfCell):
    """The part of a run with one model and one data set: its steps, and the shards into which questions are divided."""

    questions: str
    """Hash of the questions and their accepted answers."""
    n_questions: int
    shard_size: int
    format: PromptFormat
    """The form in which prompts are written."""
    steps: Mapping[str, PlannedStep]
    """The steps by name, inputs first."""
    clusterings: tuple[PlannedClustering, ...]
    """The main one first, then those of the sensitivity study."""
    notes: tuple[str, ...] = ()
    """Notes for readers of its figures."""

    @property
    def n_shards(self) -> int:
        """The number of files of each step."""
        return math.ceil(self.n_questions / self.shard_size)

    def rows(self, shard: int) -> int:
        """The number of questions in a shard."""
        return min(self.shard_size, self.n_questions - shard * self.shard_size)

    def questions_folder(self, run: Path) -> Path:
        """The folder that holds the questions of this data set."""
        return run / "questions" / f"{self.questions[:16]}-{self.shard_size}"

    def steps_of(self, work: str) -> tuple[PlannedStep, ...]:
        """The steps that one pass over the questions computes together."""
        return tuple(step for step in self.steps.values() if step.work == work)


@dataclass(frozen=True)
class Plan:
    """All steps of a run, with everything resolved that decides what its files hold."""

    cells: tuple[CellPlan, ...]
    problems: Mapping[str, str]
    """Label of a model that cannot be used -> why."""

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values, for its file."""
        plain: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return plain

    @staticmethod
    def from_dict(content: Any) -> Plan:
        """The plan that `to_dict` wrote."""
        return _ADAPTER.validate_python(content)


_ADAPTER = TypeAdapter(Plan)


def make_plan(settings: RunSettings, datasets: Sequence[Dataset]) -> Plan:
    """Work out which steps a run consists of. Models are identified by their content, but not loaded."""
    wanted = {file for name in settings.methods for file in method_inputs(name)}
    sources = {"nli": (settings.nli, almanac_nli_path), "similarity": (settings.similarity, almanac_sts_path)}
    asked = {step.asks for step in PAIR_STEPS if step.artifact in wanted}  # a hub that is not needed is not waited for
    helpers: dict[str, Mapping[str, str]] = {name: _helper(*sources[name]) for name in sorted(asked)}
    cells: list[CellPlan] = []
    problems: dict[str, str] = {}
    for model in settings.models:
        try:
            identity = {**model_identity(model.source, model.revision), "dtype": model.dtype}
            clusterings = planned_clusterings(model, identity, settings)
            # Left out for the default, so that keys of runs from before there was a choice stay the same.
            backend = {} if model.backend == "transformers" else {"backend": model.backend}
        except SemtokenError as error:
            problems[model.label] = str(error)
            continue
        for dataset in datasets:
            steps = _Steps(settings, dataset, {"model": identity | backend} | helpers)
            cells.append(
                CellPlan(
                    model=model.label,
                    dataset=dataset.label,
                    questions=dataset.content_hash,
                    n_questions=len(dataset.questions),
                    shard_size=settings.shard_size,
                    format=dataset.format,
                    steps={step.name: step for step in steps.all(model, clusterings)},
                    clusterings=clusterings,
                    notes=dataset.notes,
                )
            )
    return Plan(tuple(cells), problems)


def _helper(model: str, embedded: Callable[[], Path]) -> Mapping[str, str]:
    """Identity of an NLI or similarity model; its name where it has none: the error of loading it will say why."""
    try:
        return model_identity(embedded() if model == ALMANAC else model)
    except SemtokenError:
        return {"name": model}


@dataclass(frozen=True)
class _Steps:
    """Makes the steps of one model on one data set."""

    settings: RunSettings
    dataset: Dataset
    identities: Mapping[str, Mapping[str, Any]]
    """The identity of the model that answers ("model"), and of those that methods need of "nli" and "similarity"."""

    def all(self, model: ModelSettings, clusterings: Sequence[PlannedClustering]) -> list[PlannedStep]:
        """The steps that methods and judges need, inputs first."""
        wanted = {"greedy"}.union(*(method_inputs(name) for name in self.settings.methods))
        steps = {name: step for name, step in self._answers().items() if name in wanted}
        greedy = steps["greedy"]
        watched = [
            self._step(statistic.name, "watched", {"statistic": statistic.name}, [greedy])
            for statistic in watch_steps()
        ]
        # each statistic has a key of its own, so that an old run gains one by running on
        for step in (*self._clustered(greedy, model, clusterings), *watched, *self._others(steps)):
            if step.name in wanted or step.subject:
                steps[step.name] = step
        for name in self.settings.methods:
            inputs = [steps[file] for file in method_inputs(name)]
            steps[f"score:{name}"] = self._step(f"score:{name}", "scores", {"method": name} | _source(name), inputs)
        for choice in self.settings.judges:
            ids = [question.id for question in self.dataset.questions]
            judge = judge_from(choice, model=model.label, dataset=self.dataset.label, ids=ids)
            facts = {"judge": dict(judge.settings), "questions": self.dataset.content_hash}
            name = f"judge:{choice.name}"
            steps[name] = self._step(name, name, facts, [steps["greedy"]])
        return list(steps.values())

    def _step(self, name: str, work: str, facts: Mapping[str, Any], inputs: Sequence[PlannedStep] = ()) -> PlannedStep:
        whole = {
            **facts,
            "work": work.partition(":")[0],
            "version": 1,
            # Batches are made inside of a shard, and other batches give other last digits.
            "shard_size": self.settings.shard_size,
        }
        keys = [step.key for step in inputs]
        return PlannedStep(name, work, digest([whole, keys]), tuple(step.name for step in inputs), whole)

    def _answers(self) -> dict[str, PlannedStep]:
        decoding = self.settings.decoding
        shared = {
            "asked": self.dataset.asked_hash,
            "model": self.identities["model"],
            "max_new_tokens": decoding.max_new_tokens,
        }
        greedy = {"top_k": decoding.top_k} | ({"share_prefix": True} if decoding.share_prefix else {})
        drawn = {"n_samples": decoding.n_samples, "temperature": decoding.temperature, "seed": decoding.seed}
        return {
            "greedy": self._step("greedy", "greedy", shared | greedy),
            "samples": self._step("samples", "samples", shared | drawn),
        }

    @property
    def _rules(self) -> dict[str, Any]:
        rules = self.settings.rules
        facts: dict[str, Any] = {"preset": rules.preset, "function_words": rules.function_words}
        return facts if self.settings.equality is None else facts | {"equality": rules.equality}

    def _clustered(
        self, greedy: PlannedStep, model: ModelSettings, clusterings: Sequence[PlannedClustering]
    ) -> list[PlannedStep]:
        """Scores by clusters and rules. Where no clusters count, only those that were named for a model matter: their
        vocabulary is then that of the scores.
        """
        rules = self._rules
        main = clusterings[0] if clusterings else None
        words = main.identity.get("neutral") if main is not None and isinstance(model.clusters, str) else None
        counts = ScoringRules(**rules).clustering
        steps = []
        for step in STC_STEPS:
            changed = step.rules or {}
            counted = changed.get("clustering", counts)
            facts = {**rules, **changed, "clusters": main.key if main is not None and counted else words}
            if not step.fills[0].endswith("_log_score"):  # the rules alone tell the scores apart
                facts["fills"] = list(step.fills)
            steps.append(self._step(step.name, "stc", facts, [greedy]))
        for variant in clusterings[1:]:
            steps.append(self._step(f"stc:{variant.name}", "stc", {**rules, "clusters": variant.key}, [greedy]))
        if (controls := self.settings.controls) and main is not None:
            for name in artifact_names(controls.repeats):
                steps.append(self._step(name, "stc", self._control_facts(name, main, controls), [greedy]))
        return steps

    def _control_facts(self, name: str, main: PlannedClustering, controls: ControlsSettings) -> dict[str, Any]:
        control, _ = control_of(name)
        facts = {**self._rules, **control.rules}
        facts |= {"control": name, "clusters": main.key}
        if control.random:
            facts |= {"seed": controls.seed, "n_bins": controls.n_bins, "counts": _counts_hash(controls.token_counts)}
        return facts

    def _others(self, answers: Mapping[str, PlannedStep]) -> list[PlannedStep]:
        spelling = {"spelling": self.settings.p_true_spelling}
        steps = [self._step("p_true", "p_true", spelling, [answers["greedy"]])]
        for step in PAIR_STEPS:
            inputs = dict.fromkeys(STEP_OF_FIELD[name].artifact for name in step.needs)
            if step.asks in self.identities and all(name in answers for name in inputs):
                facts = {"model": self.identities[step.asks]}
                steps.append(self._step(step.artifact, step.artifact, facts, [answers[name] for name in inputs]))
        return steps


def _source(name: str) -> dict[str, str]:
    """The hash of the file of a method that comes from one, so that a changed function scores again."""
    path = source_of(name)
    return {} if path is None else {"source": hashlib.sha256(path.read_bytes()).hexdigest()}


def _counts_hash(path: str | None) -> str | None:
    """A hash of a file of token counts."""
    if path is None:
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise InvalidInputError(f"The token counts cannot be read from {path}: {error.strerror or error}.") from error


def method_inputs(name: str) -> list[str]:
    """The names of the steps whose files a method reads."""
    fields = METHODS[name].needs
    files = {STEP[name].artifact for name in steps_for(fields)}
    if {"text", "token_ids"} & set(fields) or any(LAYOUTS[name].per == "token" for name in fields):
        files.add("greedy")  # what has a value for each token is held against the tokens
    return sorted(files)


def clustering_of(cell: CellPlan, step: str) -> PlannedClustering:
    """The clustering of a step of STC scores, given by its name, in a cell that has clusterings."""
    kind, _, subject = step.partition(":")
    wanted = subject if kind == "stc" and subject else MAIN
    return next(clustering for clustering in cell.clusterings if clustering.name == wanted)


def planned_clusterings(
    model: ModelSettings, identity: Mapping[str, Any], settings: RunSettings
) -> tuple[PlannedClustering, ...]:
    """The main clustering of a model, and those of the study, which differ from it in one setting each.

    A variant that changes nothing has the identity of the main one, and so its numbers. Under rules that count no
    clusters there are none, unless the settings name a folder of clusters: then scores have its vocabulary.
    `ArtifactError` if the clusters that the model's settings name cannot be read.
    """
    if isinstance(model.clusters, str):
        main = _plan_from_source(model.clusters)
    elif not settings.rules.clustering:
        return ()
    elif model.clusters is None and (shipped := resolve(model.name).clusters):
        main = _plan_from_source(str(shipped))
    else:
        main = _plan_to_make(MAIN, identity, (model.clusters or ClusteringSettings()).model_dump())
    variants = []
    for setting, value in settings.sensitivity.variants():
        name = f"{setting}={value}"
        if main.settings.get(setting) == value:
            variants.append(replace(main, name=name))
        else:
            variants.append(_plan_to_make(name, identity, {**main.settings, setting: value}))
    return (main, *variants)


def _plan_from_source(source: str) -> PlannedClustering:
    clusters = TokenClusters.from_pretrained(source)
    identity = {
        "labels": hashlib.sha256(clusters.labels.tobytes()).hexdigest(),
        "vocabulary": clusters.vocabulary.fingerprint,
        "neutral": neutral_hash(clusters.vocabulary),
    }
    names = ClusterSettings.__dataclass_fields__
    known = {name: clusters.provenance[name] for name in names if name in clusters.provenance}
    return PlannedClustering(MAIN, identity, source, known | {"n_clusters": clusters.n_clusters})


def _plan_to_make(name: str, model: Mapping[str, Any], settings: Mapping[str, Any]) -> PlannedClustering:
    wanted = {key: value for key, value in settings.items() if value is not None}
    facts = ClusterSettings(**wanted).facts() | {"n_clusters": settings.get("n_clusters")}
    return PlannedClustering(name, {"model": dict(model), "settings": facts}, None, dict(settings))
