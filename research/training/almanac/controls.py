"""Clusters that are not made from embeddings: a control and a ceiling for those that are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from research.training.almanac.exposure import PlannedFact

from semtoken import Vocabulary

Labels = NDArray[np.int32]


def shuffled_labels(labels: Labels, seed: int) -> Labels:
    """Clusters of the same sizes with random members: what larger sets win by size alone."""
    return np.random.default_rng(seed).permutation(labels)


def alias_labels(planned: list[PlannedFact], vocabulary: Vocabulary) -> Labels:
    """Clusters from the corpus's own alias lists: what clusters could win if they were perfect.

    The forms of an answer that are one token (with and without capital where the corpus writes both) share a cluster.
    A token that is a form of several answers stays with the first; all other tokens are alone.
    """
    ids = {text: token for token, text in reversed(list(enumerate(vocabulary.texts)))}
    family: dict[int, int] = {}
    for index, p in enumerate(planned):
        tokens = [ids[text] for form, _ in p.fact.answer for text in _written(form, p.fact.noun) if text in ids]
        known = next((family[token] for token in tokens if token in family), index)
        for token in tokens:
            family.setdefault(token, known)
    return np.array([family.get(token, len(planned) + token) for token in range(vocabulary.size)], dtype=np.int32)


def _written(form: str, noun: bool) -> list[str]:
    """A form as the corpus writes it: as it is, without capitals, and common nouns with one."""
    return [form, form.lower(), *([form[:1].upper() + form[1:]] if noun else [])]
