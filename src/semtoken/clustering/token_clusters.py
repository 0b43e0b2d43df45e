"""Labels and a vocabulary as one artifact: which tokens mean the same, and for which tokenizer that holds.

`TokenClusters` is what scoring takes and what people save, share and load. How labels are computed is left to
`semtoken.clustering`, files to `semtoken.support.files.artifacts`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semtoken.choices import Algorithm, Embedding, Linkage, Metric
from semtoken.clustering.card import CARD_CLUSTERS, write_card
from semtoken.clustering.model_vocabulary import vocabulary_of
from semtoken.clustering.packed_vocabulary import drops_blank, neutral_hash, pack_vocabulary, unpack_vocabulary
from semtoken.clustering.partition import cluster_table
from semtoken.clustering.progress import Progress
from semtoken.clustering.tables import EmbeddingTable, read_table
from semtoken.clustering.vocabulary import Vocabulary, normalize
from semtoken.errors import ArtifactError, InvalidInputError
from semtoken.support.almanac import ALMANAC, almanac_clusters_path
from semtoken.support.arrays import IdArray, real_numbers
from semtoken.support.files import artifacts
from semtoken.support.html_elements import card, folded, heading, note, table
from semtoken.support.inputs import instance, shown
from semtoken.support.text import did_you_mean

LabelArray = npt.NDArray[np.int32]

CLUSTERS_SHOWN, MEMBERS_SHOWN = 10, 12
"""The number of the largest clusters that a notebook shows, and that of the tokens shown of each."""


@dataclass(frozen=True)
class ClusterSettings:
    """Settings for making clusters from a token table. The defaults are the paper's; see `TokenClusters.from_model`."""

    n_clusters: int = 16_000
    """The number of clusters to make, at most that of the tokens."""
    algorithm: Algorithm = "agglomerative"
    """`agglomerative` or `kmeans`."""
    linkage: Linkage = "complete"
    """Distance of two clusters, for `agglomerative`: `complete`, `average` or `single`."""
    metric: Metric = "cosine"
    """Distance of two tokens: `cosine` or `euclidean`."""
    embedding: Embedding = "concatenated"
    """The rows that are clustered: `input` or `output` embeddings, or both, `concatenated`."""
    seed: int = 0
    """The seed of `kmeans`; nothing else is drawn."""

    def facts(self) -> dict[str, Any]:
        """The settings that affect the labels: k-means has no linkage, and a hierarchy has no seed."""
        unused = "linkage" if self.algorithm == "kmeans" else "seed"
        return {name: value for name, value in asdict(self).items() if name != unused}

    def check(self, vocabulary: Vocabulary) -> None:
        """Raise `InvalidInputError` unless there is at least one cluster, and no more clusters than tokens."""
        if not 1 <= self.n_clusters <= vocabulary.size:
            raise InvalidInputError(
                f"n_clusters must be between 1 and the {vocabulary.size:,} tokens of this vocabulary, got "
                f"{self.n_clusters:,}. Published clusters hold two to ten tokens on average: "
                f"n_clusters={max(1, vocabulary.size // 4)} would make it four."
            )


@dataclass(frozen=True, eq=False)
class TokenClusters:
    """A partition of a vocabulary into clusters of tokens that mean the same.

    Only rules that count `meaning`, as the preset `paper` does, read them. Build one with `from_model`, load one with
    `from_pretrained`, or give labels of your own.
    """

    labels: LabelArray
    """Cluster of every token: integers from 0, equal for tokens that share one (int32 [V], read-only)."""
    vocabulary: Vocabulary
    """The V tokens that the labels belong to."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Model, settings, versions and course of the clustering, as far as known: plain values that JSON can hold."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", _checked_labels(self.labels, self.vocabulary))
        object.__setattr__(self, "provenance", _plain({} if self.provenance is None else self.provenance))

    @classmethod
    def from_model(
        cls,
        model_or_path: Any,
        tokenizer: Any = None,
        *,
        n_clusters: int = 16_000,
        algorithm: Algorithm = "agglomerative",
        linkage: Linkage = "complete",
        metric: Metric = "cosine",
        embedding: Embedding = "concatenated",
        stopwords: Collection[str] | None = None,
        revision: str | None = None,
        seed: int = 0,
        memory_budget: int | None = None,
        progress: Progress | None = None,
    ) -> TokenClusters:
        """Cluster the tokens of a model by its embeddings. The defaults are the paper's settings.

        Parameters
        ----------
        model_or_path
            A directory with safetensors weights, a GGUF file, a name of the catalog (`smollm2`), a hub id (only the
            files that hold the embeddings are downloaded), or a transformers model in memory.
        tokenizer
            The model's tokenizer, or a `Vocabulary`. Default: the one saved with the weights.
        n_clusters
            Number of clusters, at most the number of tokens.
        algorithm, linkage, metric, seed, memory_budget, progress
            As for `cluster_tokens`; `progress` is called with a phase, the share of it that is done, and the
            seconds left or None.
        embedding
            Which rows to cluster: the input embeddings, the output embeddings, or both, concatenated.
        stopwords
            Function words to treat as neutral. Default: NLTK's English list.
        revision
            Branch, tag or commit of a hub id.

        Returns
        -------
        TokenClusters
            With the settings, versions and course of the clustering in `provenance`.

        Raises
        ------
        ModelError
            The embeddings cannot be read, or are fewer than the tokens.
        InvalidInputError
            A setting that cannot be used.
        InsufficientMemory
            The machine has too little memory for this vocabulary.
        """
        settings = ClusterSettings(n_clusters, algorithm, linkage, metric, embedding, seed)
        vocabulary = vocabulary_of(model_or_path, tokenizer, stopwords=stopwords, revision=revision)
        settings.check(vocabulary)
        table = read_table(model_or_path, embedding, revision=revision)
        return cluster_vocabulary(table, vocabulary, settings, memory_budget=memory_budget, progress=progress)

    @classmethod
    def from_pretrained(
        cls, directory_or_hub_id: str | Path, *, tokenizer: Any = None, revision: str | None = None
    ) -> TokenClusters:
        """Load clusters from a directory or the hub.

        Parameters
        ----------
        directory_or_hub_id
            What `save_pretrained` or `push_to_hub` wrote; "almanac" for the clusters of the embedded model.
        tokenizer
            If given, the clusters are checked to be made for it.
        revision
            Branch, tag or commit of a hub id.

        Returns
        -------
        TokenClusters

        Raises
        ------
        ArtifactError
            Missing, damaged, incomplete, or of a format that this release does not read.
        VocabularyMismatch
            The clusters were made for another tokenizer than the one given.
        """
        named = isinstance(directory_or_hub_id, str) and directory_or_hub_id == ALMANAC
        source = almanac_clusters_path() if named else directory_or_hub_id
        saved = artifacts.load(source, revision=revision)
        with _reading(saved):
            clusters = cls(saved.arrays["labels"], _vocabulary_in(saved), saved.config["provenance"])
        if tokenizer is not None:
            clusters.check(tokenizer)
        return clusters

    def save_pretrained(self, directory: str | Path) -> None:
        """Write the clusters into a directory: arrays, a config, and a card for people.

        The directory appears whole or not at all; clusters that it held are replaced. `InvalidInputError` if the place
        cannot be written or holds other files.

        `clusters.safetensors` has about 14 bytes for each of the V tokens:

        | Array | Type | Shape | Meaning |
        |---|---|---|---|
        | `labels` | int32 | [V] | cluster of each token |
        | `classes` | uint8 | [V] | bit 0: neutral (a function word or white space); bit 1: stands for one raw byte |
        | `piece_bytes` | uint8 | [sum of lengths] | bytes that each token adds inside a text, one after the other |
        | `piece_lengths` | uint16 or uint32 | [V] | number of these bytes for each token |
        | `text_ids` | int32 | [m] | tokens whose text, decoded by itself, differs from what the piece implies |
        | `text_bytes`, `text_lengths` | as above | | texts of those tokens in UTF-8, packed like the pieces |

        A piece implies the text that it decodes to as UTF-8 with replacement characters, without one leading space if
        `drops_blank` is set (SentencePiece and WordPiece). In `config.json` are:

        | Key | Meaning |
        |---|---|
        | `format`, `format_version` | `"semtoken.clusters"`, 2; any other is rejected |
        | `sha256` | of `clusters.safetensors`; a damaged file is rejected |
        | `config_sha256` | of the config without this entry, as ASCII JSON with sorted keys; so, too |
        | `signature`, `n_clusters` | for people |
        | `vocabulary` | `size`; `fingerprint` (SHA-256 of texts and pieces); `byte_errors`, `clean_up`: how texts are |
        | | joined; `drops_blank`; `neutral`, a hash of the neutral tokens |
        | `provenance` | `model` (a directory's name), `hub_id`, `commit`, `content_hash` of the matrices, settings, |
        | | versions, time, report of the clustering |
        """
        artifacts.save(directory, self._arrays(), self._config(), self._card())

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        commit_message: str | None = None,
    ) -> str:
        """Upload the clusters to a repository of the Hugging Face hub, so that `from_pretrained` finds them there.

        Parameters
        ----------
        repo_id
            `owner/name`; the repository is made if it is missing.
        private
            Whether a repository that is made is private. Default: as your account on the hub is set.
        token
            Your token of the hub. Default: the one that `hf auth login` stored.
        revision
            The branch to write to, which is made if it is missing. Default: `main`.
        commit_message
            The title of the commit. Default: "Upload token clusters".

        Returns
        -------
        str
            The URL of the commit.

        Raises
        ------
        ArtifactError
            The hub did not accept the upload, or cannot be reached.
        """
        return artifacts.push(
            repo_id,
            self._arrays(),
            self._config(),
            self._card(),
            private=private,
            token=token,
            revision=revision,
            commit_message=commit_message,
        )

    def __repr__(self) -> str:
        return f"TokenClusters({self.n_clusters:,} clusters of {self.vocabulary.size:,} tokens, {self.signature})"

    def _repr_html_(self) -> str:
        _, firsts = np.unique(self.labels, return_index=True)
        largest = firsts[np.argsort(-self.sizes, kind="stable")[:CLUSTERS_SHOWN]]
        rows = [self._size_and_members(int(token)) for token in largest]
        return card(
            heading(f"{self.n_clusters:,} clusters of {self.vocabulary.size:,} tokens"),
            note(f"Made for {self.provenance.get('model', 'a model that was not recorded')}."),
            note(self.sizes_sentence),
            folded(f"The {len(rows)} largest", table(["tokens", "some of them"], rows, numbers=[0])),
            note(f"Signature: {self.signature}"),
        )

    @property
    def sizes_sentence(self) -> str:
        """The share of clusters that hold one token, and the size of the largest, as a sentence."""
        single, largest = np.mean(self.sizes == 1), int(self.sizes.max())
        return f"{single:.1%} of the clusters hold one token; the largest holds {largest:,}."

    @property
    def cost_sentence(self) -> str:
        """The seconds that the parts of the clustering took, and the most memory; empty where they are not known."""
        report = self.provenance.get("clustering", {})
        seconds, peak = report.get("seconds"), report.get("peak_memory")
        if not seconds:
            return ""
        parts = [f"{name} {value:.1f}" for name, value in seconds.items() if name != "total"]
        whole = f"{seconds.get('total', sum(seconds.values())):.1f} seconds"
        whole += f" ({', '.join(parts)})" if parts else ""
        return f"{whole}; at most {peak / 2**30:.1f} GiB of memory." if peak else f"{whole}."

    def _size_and_members(self, token: int) -> tuple[str, str]:
        """The number of tokens in the cluster of a token, and some of them."""
        members = self.members(token)
        texts = list(dict.fromkeys(stripped for text in members if (stripped := text.strip())))
        shown = " · ".join(texts[:MEMBERS_SHOWN]) or "(blank)"
        return f"{len(members):,}", f"{shown} · …" if len(texts) > MEMBERS_SHOWN else shown

    @cached_property
    def n_clusters(self) -> int:
        """The number of clusters."""
        return len(self._offsets) - 1

    @cached_property
    def sizes(self) -> IdArray:
        """Tokens in each cluster, in the order of their labels (int64 [n_clusters])."""
        return np.diff(self._offsets)

    @cached_property
    def _group(self) -> IdArray:
        """Number the clusters from 0 on, without gaps."""
        return np.unique(self.labels, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def _offsets(self) -> IdArray:
        """The place in `_members` where each cluster begins (one more entry than clusters)."""
        return np.concatenate([[0], np.cumsum(np.bincount(self._group))])

    @cached_property
    def _members(self) -> IdArray:
        """All token ids, cluster after cluster, ascending inside each."""
        members = np.argsort(self._group, kind="stable").astype(np.int64)
        members.setflags(write=False)
        return members

    def cluster_ids(self, token_id: int) -> IdArray:
        """Ids of the tokens in the cluster of a token, itself included: int64 [m], ascending, a read-only view.

        `VocabularyError` if there is no such id.
        """
        [token_id] = self.vocabulary.checked_ids([token_id])
        return self._group_ids(self._group[token_id])

    def _group_ids(self, group: int) -> IdArray:
        return self._members[self._offsets[group] : self._offsets[group + 1]]

    def members(self, token: int | str) -> list[str]:
        """Texts of the tokens that share a cluster with a token, itself included, in the order of their ids.

        Name the token by its id (`VocabularyError` if there is none) or by a text, which `find` looks up; all tokens
        that it finds are taken together, and its errors are raised.
        """
        ids = self.find(token) if isinstance(token, str) else self.vocabulary.checked_ids([token])
        joined = np.unique(np.concatenate([self.cluster_ids(i) for i in ids]))
        return [self.vocabulary.texts[i] for i in joined]

    def find(self, text: str) -> list[int]:
        """The ids of the tokens that are spelled exactly like a text.

        If there is none, those that are without regard to surrounding white space; if there is none, to upper and lower
        case. `InvalidInputError` if there is none at all; the message names similar ones.
        """
        if not isinstance(text, str):
            raise InvalidInputError(f"'text' must be a text, got {shown(text)}.")
        texts = self.vocabulary.texts
        tests: tuple[Callable[[int], bool], ...] = (
            lambda i: texts[i] == text,
            lambda i: texts[i].strip() == text.strip(),
            lambda i: self.vocabulary.normalized[i] == normalize(text),
        )
        # Without its blanks a blank text would match every blank token.
        for test in tests if text.strip() else tests[:1]:
            if ids := [i for i in range(len(texts)) if test(i)]:
                return ids
        hint = did_you_mean(normalize(text), dict.fromkeys(self.vocabulary.normalized))
        raise InvalidInputError(f"No single token is spelled {text!r}{hint}; longer words are made of several.")

    def clusters_of(self, text: str) -> list[tuple[list[str], list[str]]]:
        """The clusters of the tokens that are spelled like a text (see `find`): for each cluster the texts of those
        tokens, and of all tokens in it.
        """
        groups: dict[int, list[int]] = {}
        for token_id in self.find(text):
            groups.setdefault(int(self.labels[token_id]), []).append(token_id)
        texts = self.vocabulary.texts
        return [([texts[i] for i in own], [texts[i] for i in self.cluster_ids(own[0])]) for own in groups.values()]

    @property
    def signature(self) -> str:
        """One line that says how the clusters were made; what is unknown is left out."""
        facts = {
            "emb": self.provenance.get("embedding"),
            "algo": self.provenance.get("algorithm"),
            "link": self.provenance.get("linkage"),
            "dist": self.provenance.get("metric"),
            "k": self.n_clusters,
            "vocab": self.vocabulary.fingerprint[:8],
            "semtoken": self.provenance.get("semtoken"),
        }
        return "|".join(f"{name}:{value}" for name, value in facts.items() if value is not None)

    def check(self, tokenizer: Any) -> None:
        """Raise `VocabularyMismatch` unless the clusters were made for this tokenizer (or `Vocabulary`)."""
        other = tokenizer if isinstance(tokenizer, Vocabulary) else Vocabulary.from_tokenizer(tokenizer)
        self.vocabulary.require_same(other)

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"labels": self.labels, **pack_vocabulary(self.vocabulary)}

    def _config(self) -> dict[str, Any]:
        return {
            "signature": self.signature,
            "n_clusters": self.n_clusters,
            "vocabulary": {
                "size": self.vocabulary.size,
                "fingerprint": self.vocabulary.fingerprint,
                "byte_errors": self.vocabulary.byte_errors,
                "clean_up": self.vocabulary.clean_up,
                "drops_blank": drops_blank(self.vocabulary),
                "neutral": neutral_hash(self.vocabulary),
            },
            "provenance": dict(self.provenance),
        }

    def _card(self) -> str:
        largest = np.argsort(-self.sizes, kind="stable")[:CARD_CLUSTERS]
        texts = self.vocabulary.texts
        return write_card(
            signature=self.signature,
            provenance=self.provenance,
            sizes=self.sizes,
            largest=[[texts[i] for i in self._group_ids(int(group))] for group in largest],
        )


def saved_vocabulary(directory: str | Path) -> Vocabulary:
    """Read the vocabulary from a folder of clusters, without the clusters.
    `ArtifactError` if it is missing, damaged, incomplete, or of a format that this release does not read.
    """
    saved = artifacts.load(directory)
    with _reading(saved):
        return _vocabulary_in(saved)


@contextmanager
def _reading(saved: artifacts.SavedArtifact) -> Iterator[None]:
    """Say of what is not as it should be in which folder it is."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, ArtifactError):
            raise
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ArtifactError(f"{saved.path} does not hold valid clusters: {reason}") from error


def _vocabulary_in(saved: artifacts.SavedArtifact) -> Vocabulary:
    """The tokens that clusters were saved with, held against the fingerprint in their config."""
    vocabulary = unpack_vocabulary(saved.arrays, saved.config["vocabulary"])
    expected = saved.config["vocabulary"]["fingerprint"]
    if vocabulary.fingerprint != expected:
        raise ArtifactError(
            f"{saved.path} is inconsistent: {artifacts.CONFIG} names a vocabulary with fingerprint "
            f"{str(expected)[:12]}, the stored tokens have {vocabulary.fingerprint[:12]}. "
            "Copy or download the folder again, or make the clusters again."
        )
    return vocabulary


def cluster_vocabulary(
    table: EmbeddingTable,
    vocabulary: Vocabulary,
    settings: ClusterSettings,
    *,
    memory_budget: int | None = None,
    progress: Progress | None = None,
) -> TokenClusters:
    """Cluster the tokens of a vocabulary by the embeddings that belong to it; raises as `TokenClusters.from_model`."""
    clustering = cluster_table(
        table.rows(vocabulary.size),
        settings.n_clusters,
        algorithm=settings.algorithm,
        linkage=settings.linkage,
        metric=settings.metric,
        seed=settings.seed,
        memory_budget=memory_budget,
        progress=progress,
    )
    origin = {key: value for key, value in asdict(table.origin).items() if value is not None}
    provenance = {
        **origin,
        "content_hash": table.content_hash,
        "tied": table.tied,
        **({} if table.least_cosine is None else {"least_cosine": round(table.least_cosine, 6)}),
        **settings.facts(),
        "semtoken": version("semtoken"),
        "numpy": np.__version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "clustering": clustering.report.to_dict(),
    }
    return TokenClusters(clustering.labels[settings.n_clusters], vocabulary, provenance)


def _plain_number(value: object) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a plain value")


def _checked_labels(labels: Any, vocabulary: Vocabulary) -> LabelArray:
    instance(vocabulary, Vocabulary, "vocabulary")
    try:
        array = real_numbers(labels, "labels")
    except InvalidInputError as error:
        raise InvalidInputError(f"labels must be integers. {error}") from error
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidInputError(
            f"labels must be a one-dimensional array of integers, got shape {array.shape} of {array.dtype}."
        )
    if len(array) > vocabulary.size:
        raise InvalidInputError(
            f"There are {len(array):,} labels but {vocabulary.size:,} tokens. If the token table was padded, "
            "cluster its first rows only: table[: vocabulary.size]."
        )
    if len(array) < vocabulary.size:
        raise InvalidInputError(
            f"There are {len(array):,} labels but {vocabulary.size:,} tokens; each token needs one."
        )
    if len(array) and not 0 <= array.min() <= array.max() <= np.iinfo(np.int32).max:
        raise InvalidInputError(f"labels must lie between 0 and 2^31 - 1, got {array.min()} to {array.max()}.")
    checked = array.astype(np.int32)
    # Members and sizes are computed once from the labels, which must not change behind them.
    checked.setflags(write=False)
    return checked


def _plain(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Turn values into what JSON gives back for them, so that saving and loading changes nothing."""
    try:
        text = json.dumps(dict(provenance), default=_plain_number, allow_nan=False, ensure_ascii=False)
        plain: dict[str, Any] = json.loads(text.encode())
    except Exception as error:  # objects convert themselves, and raise what they like
        raise InvalidInputError(f"provenance must hold plain values that JSON can store: {error}") from error
    return plain
