"""The clusterings of a run: the main one of each model, and those of the sensitivity study around it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from semtoken.bench.manifest import digest
from semtoken.bench.settings import ClusteringSettings, ModelSettings, RunSettings
from semtoken.clustering.progress import Progress
from semtoken.clusters import ClusterSettings, TokenClusters, neutral_hash, vocabulary_of
from semtoken.clusters.cache import clusters_for_model, default_settings
from semtoken.errors import ArtifactError
from semtoken.files.artifacts import is_saved
from semtoken.models.sources import resolve
from semtoken.tokens.rules import ScoringRules

MAIN = "main"


@dataclass(frozen=True)
class PlannedClustering:
    """A clustering of a model's vocabulary that a run uses, whether it exists already or has to be made."""

    name: str
    """What the clustering is called: `MAIN`, or the setting that differs, such as "metric=euclidean"."""
    identity: Mapping[str, Any]
    """What its labels depend on."""
    source: str | None
    """A directory or hub id of given clusters; None: made by `settings`."""
    settings: Mapping[str, Any]
    """The arguments of `ClusterSettings` that are known; `n_clusters` None stands for the usual number."""

    @property
    def key(self) -> str:
        """A hash of everything that the labels depend on: equal keys mean equal clusterings."""
        return digest(self.identity)

    def folder(self, run: Path) -> Path:
        """The folder of a run in which this clustering lies; variants with the same clustering share it."""
        return run / "clusterings" / self.key[:16]


def planned_clusterings(
    model: ModelSettings, identity: Mapping[str, Any], settings: RunSettings
) -> tuple[PlannedClustering, ...]:
    """The main clustering of a model, and those of the study, which differ from it in one setting each.

    A variant that changes nothing has the identity of the main one, and so its numbers. Under rules that count no
    clusters there are none, unless the settings name a folder of clusters: then scores have its vocabulary.

    Raises
    ------
    ArtifactError
        The clusters that the model's settings name cannot be read.
    """
    if isinstance(model.clusters, str):
        main = _plan_from_source(model.clusters)
    elif not ScoringRules(settings.preset, settings.function_words).clustering:
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


def prepare_clustering(
    run: Path, model: ModelSettings, clustering: PlannedClustering, progress: Progress | None = None
) -> None:
    """Put a clustering into a run's folder: fetched if it is given, else from the cache or newly made.

    Parameters
    ----------
    run, model, clustering
        The run's folder, and what is wanted for which model.
    progress
        Called with the progress of clustering; see `semtoken.clustering`.

    Raises
    ------
    SemtokenError
        The clusters cannot be fetched or made.
    """
    if clustering.source is not None:
        clusters = TokenClusters.from_pretrained(clustering.source)
    else:
        vocabulary = vocabulary_of(model.source, None, revision=model.revision)
        wanted = {name: value for name, value in clustering.settings.items() if value is not None}
        settings = ClusterSettings(**(asdict(default_settings(vocabulary)) | wanted))
        clusters = clusters_for_model(
            model.source, vocabulary, settings=settings, revision=model.revision, progress=progress
        )
    place = clustering.folder(run)
    if place.is_dir() and not is_saved(place):  # the run's own, with a damaged config
        shutil.rmtree(place)
    clusters.save_pretrained(place)


def is_prepared(run: Path, clustering: PlannedClustering) -> bool:
    """Whether a run's folder holds this clustering, complete and undamaged."""
    try:
        load_clustering(run, clustering)
    except ArtifactError:
        return False
    return True


def load_clustering(run: Path, clustering: PlannedClustering) -> TokenClusters:
    """Load a clustering from a run's folder.

    Raises
    ------
    ArtifactError
        The run's folder lacks the clustering, or holds a damaged one.
    """
    return TokenClusters.from_pretrained(clustering.folder(run))
