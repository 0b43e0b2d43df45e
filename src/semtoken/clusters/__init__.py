"""Clusters of a model's tokens: what they are, what they are made from, and where they are kept.

token_clusters.py   `TokenClusters`: a partition of a vocabulary, made, saved with its card, loaded
tables.py           the token tables of models, which are clustered
cache.py            clusters made on this machine, by model and settings

The algorithms are in `semtoken.clustering`.
"""

from __future__ import annotations

from semtoken.clusters.token_clusters import (
    ClusterSettings,
    LabelArray,
    TokenClusters,
    cluster_vocabulary,
    neutral_hash,
    vocabulary_of,
)

__all__ = [
    "ClusterSettings",
    "LabelArray",
    "TokenClusters",
    "cluster_vocabulary",
    "neutral_hash",
    "vocabulary_of",
]
