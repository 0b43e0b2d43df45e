"""A run's folder read back into `RunResults`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from semtoken.bench.controls import PREFIX, control_of
from semtoken.bench.plan import MAIN, CellPlan, Plan, PlannedClustering, PlannedStep, make_plan
from semtoken.bench.recorders import CORRECT, UNCERTAINTY
from semtoken.bench.results import LOG_SCORE, Cell, ClusteringRecord, RunResults, read_answers
from semtoken.bench.run import MANIFEST, PLAN, SETTINGS, read_datasets
from semtoken.bench.settings import RunSettings
from semtoken.bench.statistics import SHARED_PREFIX
from semtoken.bench.statistics.steps import IN_MODEL, seconds_for
from semtoken.bench.storage import Shard, load_clustering, read_json, read_shard
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.core.rules import ScoringRules
from semtoken.errors import ArtifactError, InvalidInputError
from semtoken.methods import METHODS
from semtoken.methods.likelihood import stc
from semtoken.methods.outside import known_methods
from semtoken.support.arrays import FloatArray

EXAMPLE_WORDS = ("TV", "Beautiful", "Plane", "Possible", "Cold", "Buy", "city", "river", "country", "king", "music")
"""Words whose clusters are shown: those of the paper first, then some that small vocabularies hold too."""
LARGEST_EXAMPLE = 16
"""Most tokens of a cluster that is shown: training leaves rare tokens of small models in a few huge clusters."""


def collect(path: str | Path) -> RunResults:
    """Read all complete results of a run; the notes say what is missing.

    `path` is the run's folder, or the table of all answers that its report kept; it is only read, also while a run is
    at work in it. `InvalidInputError` if it holds no run, or one of another release.
    """
    run = Path(path)
    if run.is_file():
        return read_answers(run)
    plan = _plan(run)
    settings = read_json(run / SETTINGS)
    if not isinstance(settings.get("primary_judge"), str):
        raise InvalidInputError(f"{run / SETTINGS} is damaged: it holds no settings of a run.")
    missing = _load_outside(settings)
    manifest, lost = _manifest(run)
    readers = [_Reader(run, cell) for cell in plan.cells]
    cells = tuple(cell for reader in readers if (cell := reader.cell()) is not None)
    notes = [f"{model} was left out: {reason}" for model, reason in plan.problems.items()]
    notes += [*lost, *missing]
    notes += [note for reader in readers for note in (*reader.plan.notes, *reader.notes)]
    return RunResults(
        path=run,
        settings=settings,
        manifest=manifest,
        primary_judge=settings["primary_judge"],
        cells=cells,
        clusterings=tuple(_clusterings(run, plan)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _plan(run: Path) -> Plan:
    """The plan of a run; one that is lost or damaged is made again from the settings and the questions."""
    if (run / PLAN).exists() or not (run / SETTINGS).exists():
        try:
            return Plan.from_dict(read_json(run / PLAN))
        except ValueError:
            if not (run / SETTINGS).exists():
                raise
    try:
        settings = RunSettings.model_validate(read_json(run / SETTINGS))
        return make_plan(settings, read_datasets(settings))
    except ValueError as error:
        raise InvalidInputError(
            f"{run / PLAN} is missing, damaged or of another release, and cannot be made again here: {error} Start the "
            "run again with `semtoken bench run`; what it has computed is kept."
        ) from error


def _manifest(run: Path) -> tuple[dict[str, Any], list[str]]:
    """Facts about a run, and a note where they are lost; no number depends on them."""
    try:
        return read_json(run / MANIFEST), []
    except InvalidInputError as error:
        return {}, [f"Versions, hardware and times of this run are unknown: {error}"]


def model_shares(run: Path) -> dict[str, float]:
    """The share of the answers' time that the model itself took, in [0, 1], for "greedy" and "samples".

    Only where the engine tells how long its passes took.
    """
    shares = {}
    plan = _plan(run)
    for name in ("greedy", "samples"):
        total: Counter[str] = Counter()
        for cell in plan.cells:
            for number in range(cell.n_shards if name in cell.steps else 0):
                shard = read_shard(cell.steps[name].folder(run), number, cell.steps[name].key, cell.rows(number), ())
                total.update({} if shard is None or IN_MODEL not in shard.seconds else shard.seconds)
        if inside := total.pop(IN_MODEL, 0.0):
            shares[name] = inside / total.total()
    return shares


def _load_outside(settings: Mapping[str, Any]) -> list[str]:
    """Load the methods of a run that come from files, for their titles; what there is to say of those that are gone."""
    notes = []
    for name in settings.get("outside", ()):
        try:
            known_methods([name])
        except InvalidInputError as error:
            notes.append(f"{error} Its scores are those of the run.")
    return notes


@dataclass
class _Reader:
    """Reads the files of one cell."""

    run: Path
    plan: CellPlan
    notes: list[str] = field(default_factory=list)

    def cell(self) -> Cell | None:
        """The cell, as far as it is complete; None without greedy answers."""
        ids = self._shards(self.plan.steps["greedy"], "id")
        if ids is None:
            return None
        scores = self._columns("scores", UNCERTAINTY)
        seconds = self._seconds()
        if SHARED_PREFIX in seconds:
            self.notes.append(
                f"{self.plan.title}: what the prompts begin with, where it is long enough, was read once "
                f"({seconds[SHARED_PREFIX]:.1f} s), so there is no overhead in percent of the generation."
            )
        steps = {name: value for name, value in seconds.items() if not name.startswith("score:")}
        # of a method from a file that is gone only the formula's own seconds are known
        needs = {name: METHODS[name].needs if name in METHODS else () for name in scores}
        return Cell(
            model=self.plan.model,
            dataset=self.plan.dataset,
            question_ids=tuple(name for shard in ids for name in shard.columns["id"]),
            uncertainty=scores,
            judgements=self._judgements(),
            variants=self._variants(),
            greedy_seconds=seconds["greedy"],
            seconds={name: seconds[f"score:{name}"] + seconds_for(needs[name], seconds) for name in scores},
            steps=steps,
            controls=self._controls(),
            texts=self._texts(),
            log_confidence=self._log_score(),
            signature=self._signature(),
        )

    def _columns(self, work: str, column: str) -> dict[str, FloatArray]:
        """The columns of every complete step of a work, by the step's subject."""
        columns = {}
        for step in self.plan.steps_of(work):
            if (shards := self._shards(step, column)) is not None:
                columns[step.subject] = _whole_column(shards, column)
        return columns

    def _judgements(self) -> dict[str, FloatArray]:
        works = dict.fromkeys(step.work for step in self.plan.steps.values() if step.work.startswith("judge:"))
        judgements = {name: values for work in works for name, values in self._columns(work, CORRECT).items()}
        for name, values in judgements.items():
            if unusable := int(np.isnan(values).sum()):
                self.notes.append(f"{self.plan.title}: judge {name} gave no usable verdict on {unusable:,} answers.")
            self._note_usage(self.plan.steps[f"judge:{name}"])
        return judgements

    def _note_usage(self, step: PlannedStep) -> None:
        """What the replies behind a judge's verdicts took, where it is a language model."""
        usage: Counter[str] = Counter()
        for shard in self._shards(step, CORRECT) or ():
            usage.update(shard.usage)
        if usage:
            self.notes.append(
                f"{self.plan.title}: judge {step.subject} read {usage['prompt_tokens']:,} prompt tokens and wrote "
                f"{usage['completion_tokens']:,} in {usage['replies']:,} replies, by the endpoint's count."
            )

    def _variants(self) -> dict[str, FloatArray]:
        variants = {}
        for step in self.plan.steps_of("stc"):
            values = self._stc(step) if step.subject and not step.name.startswith(PREFIX) else None
            if values is not None:
                variants[step.subject] = values
        return variants

    def _controls(self) -> dict[str, FloatArray]:
        """Controls of which every repetition is complete."""
        repeats: dict[str, list[FloatArray | None]] = {}
        for step in self.plan.steps_of("stc"):
            if step.name.startswith(PREFIX):
                repeats.setdefault(control_of(step.name)[0].name, []).append(self._stc(step))
        return {
            name: np.stack([values for values in columns if values is not None])
            for name, columns in repeats.items()
            if all(values is not None for values in columns)
        }

    def _stc(self, step: PlannedStep) -> FloatArray | None:
        """The uncertainties of STC by the clusters and rules of a step."""
        shards = self._shards(step, LOG_SCORE)
        if shards is None:
            return None
        return np.array([stc(value) for value in _whole_column(shards, LOG_SCORE).tolist()])

    def _log_score(self) -> FloatArray | None:
        """The log score of STC itself, without changes to its rules."""
        shards = self._shards(self.plan.steps.get("stc"), LOG_SCORE)
        return None if shards is None else _whole_column(shards, LOG_SCORE)

    def _signature(self) -> str | None:
        """The line that names the clusters and rules of STC itself."""
        step = self.plan.steps.get("stc")
        if step is None:
            return None
        rules = ScoringRules(step.facts["preset"], step.facts["function_words"], equality=step.facts.get("equality"))
        if not rules.clustering:
            return rules.signature
        try:
            clusters = load_clustering(self.run, self.plan.clusterings[0])
        except ArtifactError:
            return None
        return f"{clusters.signature}|{rules.signature}"

    def _texts(self) -> tuple[tuple[str, str], ...]:
        """Questions and greedy answers."""
        folder, plan = self.plan.questions_folder(self.run), self.plan
        asked = [read_shard(folder, i, plan.questions, plan.rows(i), ("question",)) for i in range(plan.n_shards)]
        answers = self._shards(plan.steps["greedy"], "text")
        if answers is None or any(shard is None for shard in asked):
            return ()
        questions = [str(text) for shard in asked if shard is not None for text in shard.columns["question"]]
        return tuple(zip(questions, [str(text) for shard in answers for text in shard.columns["text"]], strict=True))

    def _seconds(self) -> Counter[str]:
        """Seconds of every recording step and every method's arithmetic ("score:NAME"), over all shards."""
        total: Counter[str] = Counter()
        for step in self.plan.steps.values():
            variant = step.work == "stc" and step.subject
            for shard in () if variant else self._shards(step) or ():
                total.update(shard.seconds)
        del total[IN_MODEL]  # other steps contain it
        return total

    def _shards(self, step: PlannedStep | None, *columns: str) -> list[Shard] | None:
        """All shards of a step, some columns of them; None without a step and, with a note, where one is missing."""
        if step is None:
            return None
        folder, plan = step.folder(self.run), self.plan
        shards = [read_shard(folder, i, step.key, plan.rows(i), columns) for i in range(plan.n_shards)]
        whole = [shard for shard in shards if shard is not None]
        if len(whole) == len(shards):
            return whole
        done = sum(plan.rows(i) for i, shard in enumerate(shards) if shard is not None)
        self.notes.append(f"{plan.title}: {step.name} is there for {done:,} of {plan.n_questions:,} questions.")
        return None


def _whole_column(shards: Sequence[Shard], column: str) -> FloatArray:
    return np.array([value for shard in shards for value in shard.columns[column]], dtype=np.float64)


def _clusterings(run: Path, plan: Plan) -> Iterator[ClusteringRecord]:
    """Every clustering of every model that the run holds, once for each name."""
    by_model = {cell.model: cell.clusterings for cell in plan.cells}
    for model, planned in by_model.items():
        for clustering in planned:
            try:
                clusters = load_clustering(run, clustering)
            except ArtifactError:
                continue
            yield _record(model, clustering, clusters)


def _record(model: str, clustering: PlannedClustering, clusters: TokenClusters) -> ClusteringRecord:
    names = ("algorithm", "linkage", "metric", "embedding")
    settings = {name: clusters.provenance[name] for name in names if name in clusters.provenance}
    seconds = clusters.provenance.get("clustering", {}).get("seconds", {}).get("total")
    return ClusteringRecord(
        model=model,
        variant=clustering.name,
        settings=settings | {"n_clusters": clusters.n_clusters},
        seconds=seconds,
        n_tokens=clusters.vocabulary.size,
        examples=tuple(_examples(clusters)) if clustering.name == MAIN else (),
    )


def _examples(clusters: TokenClusters) -> Iterator[tuple[str, ...]]:
    """Clusters of `EXAMPLE_WORDS` that hold other tokens too, each once."""
    seen = set()
    for word in EXAMPLE_WORDS:
        for token in (i for i, text in enumerate(clusters.vocabulary.texts) if text.strip() == word):
            label = int(clusters.labels[token])
            members = clusters.cluster_ids(token)
            if label not in seen and 1 < len(members) <= LARGEST_EXAMPLE:
                yield tuple(clusters.vocabulary.texts[i] for i in members)
            seen.add(label)
