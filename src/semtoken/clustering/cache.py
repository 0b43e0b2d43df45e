"""Clusters made on this machine, kept for the next call.

Each entry is a folder as `TokenClusters.save_pretrained` writes it, in the user's cache directory
(`SEMTOKEN_CACHE` names another one). An entry fits if the weights, the vocabulary, the function words and all
settings are the same.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from semtoken.choices import Embedding
from semtoken.clustering.matrices import Origin
from semtoken.clustering.model_vocabulary import vocabulary_of
from semtoken.clustering.packed_vocabulary import neutral_hash
from semtoken.clustering.progress import Progress
from semtoken.clustering.tables import origin_of, read_table
from semtoken.clustering.token_clusters import ClusterSettings, TokenClusters, cluster_vocabulary
from semtoken.clustering.vocabulary import Vocabulary
from semtoken.errors import ArtifactError, InvalidInputError
from semtoken.support.files import artifacts
from semtoken.support.installation import cache_root

log = logging.getLogger(__name__)


def directory() -> Path:
    """The folder in which clusters made on this machine are kept. It need not exist yet."""
    return cache_root() / "clusters"


def clusters_for_model(
    model_or_path: Any,
    tokenizer: Any = None,
    *,
    settings: ClusterSettings | None = None,
    stopwords: Collection[str] | None = None,
    revision: str | None = None,
    memory_budget: int | None = None,
    progress: Progress | None = None,
) -> TokenClusters:
    """Load the clusters of a model from the cache, or make them as `TokenClusters.from_model` and put them there.

    The arguments and errors are those of `TokenClusters.from_model`, with its clustering options in `settings`; without
    these they are those of `default_settings`. A cache that cannot be read or written only causes a warning.
    """
    vocabulary = vocabulary_of(model_or_path, tokenizer, stopwords=stopwords, revision=revision)
    settings = settings or default_settings(vocabulary)
    settings.check(vocabulary)
    origin = origin_of(model_or_path, revision=revision)
    # By the commit first: the hash of the bytes takes reading (or downloading) the matrices.
    if origin.commit is not None and (cached := find(settings, vocabulary, origin=origin)):
        return cached
    table = read_table(model_or_path, settings.embedding, revision=revision)
    if cached := find(settings, vocabulary, content_hash=table.content_hash):
        return cached
    clusters = cluster_vocabulary(table, vocabulary, settings, memory_budget=memory_budget, progress=progress)
    try:
        store(clusters)
    except InvalidInputError as error:
        log.warning("The new clusters are not kept: %s", error)
    return clusters


def default_settings(vocabulary: Vocabulary) -> ClusterSettings:
    """The paper's settings, with at most half as many clusters as tokens."""
    paper = ClusterSettings()
    # The paper's 16,000 are for vocabularies of 32,000 and more; smaller ones would be left without clusters.
    return replace(paper, n_clusters=max(1, min(paper.n_clusters, vocabulary.size // 2)))


def find(
    settings: ClusterSettings,
    vocabulary: Vocabulary,
    *,
    content_hash: str | None = None,
    origin: Origin | None = None,
) -> TokenClusters | None:
    """The entry made with these settings for this vocabulary and these weights, if there is one; damaged ones are
    passed over. The weights are named by the hash of their bytes, or by hub id and commit.
    """
    for path, config in _entries():
        if not is_made_from(config, settings, vocabulary, content_hash=content_hash, origin=origin):
            continue
        if clusters := _loaded(path):
            return clusters
    return None


def is_made_from(
    config: Mapping[str, Any],
    settings: ClusterSettings,
    vocabulary: Vocabulary,
    *,
    content_hash: str | None = None,
    origin: Origin | None = None,
) -> bool:
    """Return True if a folder with this config holds the clusters that these settings make of these weights for this
    vocabulary, with the same function words. The weights are named as for `find`.
    """
    provenance, saved = config["provenance"], config["vocabulary"]
    same_weights = (content_hash is not None and provenance.get("content_hash") == content_hash) or (
        origin is not None
        and origin.commit is not None
        and (provenance.get("hub_id"), provenance.get("commit")) == (origin.hub_id, origin.commit)
    )
    wanted = (settings.facts(), vocabulary.fingerprint, neutral_hash(vocabulary))
    return same_weights and wanted == (_settings_of(provenance), saved.get("fingerprint"), saved.get("neutral"))


def kept_for(model: str, revision: str | None = None) -> TokenClusters:
    """The newest clusters in the cache that were made from the weights of a model; `InvalidInputError` if there are
    none. Damaged ones are passed over.
    """

    @functools.cache
    def content_hash(embedding: Embedding) -> str:
        return read_table(model, embedding, revision=revision).content_hash

    for path, config in _entries():
        provenance = config["provenance"]
        made_from = content_hash(provenance.get("embedding", ClusterSettings.embedding))
        if provenance.get("content_hash") == made_from and (clusters := _loaded(path)):
            return clusters
    raise InvalidInputError(f"No clusters are kept for '{model}'. Make some with: semtoken cluster make {quote(model)}")


def store(clusters: TokenClusters) -> Path:
    """Put clusters into the cache and return their folder; writers at the same time do not disturb each other.
    `InvalidInputError` if the cache cannot be written.
    """
    path = directory() / entry_name(clusters)
    if path.is_dir() and not artifacts.is_saved(path):
        shutil.rmtree(path, ignore_errors=True)  # a damaged entry; everything in the cache is ours
    clusters.save_pretrained(path)
    return path


def entry_name(clusters: TokenClusters) -> str:
    """A readable name for an entry, different for different models, vocabularies and settings."""
    provenance = clusters.provenance
    model = re.sub(r"[^A-Za-z0-9._]+", "-", str(provenance.get("model") or "model")).strip("-.")[-60:] or "model"
    identity = {
        "content": provenance.get("content_hash"),
        "vocabulary": clusters.vocabulary.fingerprint,
        "neutral": neutral_hash(clusters.vocabulary),
        "settings": _settings_of(provenance),
        "labels": None if "content_hash" in provenance else hashlib.sha256(clusters.labels.tobytes()).hexdigest(),
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return f"{model}-k{clusters.n_clusters}-{digest[:12]}"


def _entries() -> list[tuple[Path, dict[str, Any]]]:
    """Folders of the cache with their configs, the newest first. Hidden ones are still being written, and those without
    a readable config are damaged: both are left out.
    """
    entries: list[tuple[Path, dict[str, Any]]] = []
    for path in directory().glob("[!.]*"):
        try:
            config = artifacts.read_config(path)
            config["provenance"]["created"], config["vocabulary"]["size"]
        except (ArtifactError, KeyError, TypeError):
            continue
        entries.append((path, config))
    return sorted(entries, key=lambda entry: str(entry[1]["provenance"]["created"]), reverse=True)


def _loaded(path: Path) -> TokenClusters | None:
    """The clusters in an entry; None, with a warning, if they are damaged."""
    try:
        return TokenClusters.from_pretrained(path)
    except ArtifactError as error:
        log.warning("Cached clusters are passed over: %s", error)
        return None


def _settings_of(provenance: Mapping[str, Any]) -> dict[str, Any]:
    names = ClusterSettings.__dataclass_fields__
    return {name: provenance[name] for name in names if name in provenance}
