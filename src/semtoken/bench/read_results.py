"""A run's folder read back into `RunResults`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semtoken.bench.controls import PREFIX
from semtoken.bench.plan import MAIN, CellPlan, Plan, PlannedClustering, PlannedStep, make_plan
from semtoken.bench.recorders import CORRECT, UNCERTAINTY
from semtoken.bench.results import LOG_SCORE, Cell, ClusteringRecord, RunResults, cell_of, read_answers
from semtoken.bench.run import MANIFEST, PLAN, SETTINGS, read_datasets
from semtoken.bench.settings import RunSettings
from semtoken.bench.statistics import SHARED_PREFIX
from semtoken.bench.statistics.steps import seconds_for
from semtoken.bench.statistics.timings import IN_MODEL
from semtoken.bench.storage import Shard, load_clustering, read_json, read_shard
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.core.rules import ScoringRules
from semtoken.errors import ArtifactError, InvalidInputError
from semtoken.methods import METHODS
from semtoken.methods.likelihood import stc
from semtoken.methods.outside import known_methods

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

    Only where the engine knows how long its passes took.
    """
    shares = {}
    plan = _plan(run)
    for name in ("greedy", "samples"):
        total: Counter[str] = Counter()
        for cell in plan.cells:
            for shard in _Reader(run, cell).shards(cell.steps.get(name)) or ():
                total.update(shard.seconds if IN_MODEL in shard.seconds else {})
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
        ids = self._column(self.plan.steps["greedy"], "id")
        if ids is None:
            return None
        scores = self._columns("scores", UNCERTAINTY)
        methods = {name.partition(":")[2]: values for name, values in scores.items()}
        seconds = self._seconds()
        if SHARED_PREFIX in seconds:
            self.notes.append(
                f"{self.plan.title}: what the prompts begin with, where it is long enough, was read once "
                f"({seconds[SHARED_PREFIX]:.1f} s), so there is no overhead in percent of the generation."
            )
        judged = self._columns("judge", CORRECT)
        for name, values in judged.items():
            self._note_verdicts(self.plan.steps[name], values)
        # of a method from a file that is gone only the formula's own seconds are known
        needs = {name: METHODS[name].needs if name in METHODS else () for name in methods}
        facts = {
            "model": self.plan.model,
            "dataset": self.plan.dataset,
            "greedy_seconds": seconds["greedy"],
            "seconds": {name: seconds[f"score:{name}"] + seconds_for(needs[name], seconds) for name in methods},
            "steps": {name: value for name, value in seconds.items() if not name.startswith("score:")},
            "signature": self._signature(),
        }
        uncertainty = {f"method:{name}": values for name, values in methods.items()}
        return cell_of(facts, {"id": ids, **uncertainty, **judged, **self._stc(), **self._texts()})

    def _columns(self, work: str, column: str) -> dict[str, list[Any]]:
        """A column of every complete step of a work, or of several of a kind, by the step's name."""
        steps = [step for step in self.plan.steps.values() if step.work.partition(":")[0] == work]
        columns = {step.name: self._column(step, column) for step in steps}
        return {name: values for name, values in columns.items() if values is not None}

    def _note_verdicts(self, step: PlannedStep, verdicts: Sequence[float]) -> None:
        """Note how many verdicts are missing, and what the replies behind them took if a language model judged."""
        if unusable := sum(map(math.isnan, verdicts)):
            self.notes.append(
                f"{self.plan.title}: judge {step.subject} gave no usable verdict on {unusable:,} answers."
            )
        usage: Counter[str] = Counter()
        for shard in self.shards(step, CORRECT) or ():
            usage.update(shard.usage)
        if usage:
            self.notes.append(
                f"{self.plan.title}: judge {step.subject} read {usage['prompt_tokens']:,} prompt tokens and wrote "
                f"{usage['completion_tokens']:,} in {usage['replies']:,} replies, by the endpoint's count."
            )

    def _stc(self) -> dict[str, list[float]]:
        """The log scores of STC itself, and its uncertainties by other clusterings and by controls."""
        steps = [step for step in self.plan.steps_of("stc") if step.subject]
        columns = {step.name: self._column(step, LOG_SCORE) for step in steps}
        # A control counts if all of its repetitions are there.
        lacking = {_whole_name(name) for name, values in columns.items() if values is None}
        found = {
            name.replace("stc:", "variant:"): [stc(value) for value in values]
            for name, values in columns.items()
            if values is not None and _whole_name(name) not in lacking
        }
        own = self._column(self.plan.steps.get("stc"), LOG_SCORE)
        return found if own is None else {**found, LOG_SCORE: own}

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

    def _texts(self) -> dict[str, list[str]]:
        """Questions and greedy answers."""
        folder, plan = self.plan.questions_folder(self.run), self.plan
        asked = [read_shard(folder, i, plan.questions, plan.rows(i), ("question",)) for i in range(plan.n_shards)]
        answers = self._column(plan.steps["greedy"], "text")
        if answers is None or any(shard is None for shard in asked):
            return {}
        return {"question": [text for shard in asked if shard for text in shard.columns["question"]], "answer": answers}

    def _seconds(self) -> Counter[str]:
        """Seconds of every recording step and every method's arithmetic ("score:NAME"), over all shards; NaN where one
        is missing.
        """
        total: Counter[str] = Counter()
        for step in self.plan.steps.values():
            if step.work == "stc" and step.subject:  # a variant
                continue
            shards = self.shards(step)
            if shards is None:
                total[step.name] = math.nan  # type: ignore[assignment]
                continue
            for shard in shards:
                total.update(shard.seconds)
        del total[IN_MODEL]  # other steps contain it
        return total

    def _column(self, step: PlannedStep | None, name: str) -> list[Any] | None:
        """A column of a step over all shards; None where `shards` gives none."""
        shards = self.shards(step, name)
        return None if shards is None else [value for shard in shards for value in shard.columns[name]]

    def shards(self, step: PlannedStep | None, *columns: str) -> list[Shard] | None:
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


def _whole_name(step: str) -> str:
    """The name of a step without the number of a control's repetition."""
    return step.partition(".")[0] if step.startswith(PREFIX) else step


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
