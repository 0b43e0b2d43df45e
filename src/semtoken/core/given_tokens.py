"""Reading the tokens that a user gives: a vocabulary, a tokenizer, clusters, or the name of any of them.

Rules that count clusters get clusters, and all others no more than a vocabulary: under these nothing is clustered or
looked up in the cache of clusters.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from semtoken.clustering.vocabulary import Vocabulary
from semtoken.errors import ArtifactError, InvalidInputError, SemtokenError
from semtoken.support.files import artifacts
from semtoken.support.inputs import instance, shown

if TYPE_CHECKING:
    from semtoken.clustering.token_clusters import TokenClusters

Tokens: TypeAlias = "Vocabulary | TokenClusters"
"""The forms that scoring takes: a vocabulary, or clusters, which hold theirs."""


def as_tokens(given: Any, *, clustering: bool = False) -> Tokens:
    """The vocabulary, and the clusters if there are any, of what a user gave for `tokens`.

    That is a `Vocabulary`, `TokenClusters`, a tokenizer, a `tokenizer.json`, a directory of clusters, or whatever names
    a model: `smollm2`, a directory, a GGUF file, a hub id. If clusters are needed (`ScoringRules.clustering`), a
    model's are those that ship with it, or are in the cache, or are made.
    `InvalidInputError` if the value is none of these, another `SemtokenError` if it cannot be read.
    """
    if isinstance(given, Vocabulary):
        return given
    from semtoken.clustering.model_vocabulary import vocabulary_of
    from semtoken.clustering.token_clusters import TokenClusters

    if isinstance(given, TokenClusters):
        return given
    if isinstance(given, str | Path):
        return as_clusters(given) if clustering else _named_vocabulary(given)
    if not hasattr(given, "decode") or isinstance(given, bytes | bytearray):
        raise InvalidInputError(
            f"A vocabulary is a Vocabulary, TokenClusters, a tokenizer, or the name of a model, got {shown(given)}."
        )
    return vocabulary_of(None, given)


def as_clusters(given: TokenClusters | str | Path) -> TokenClusters:
    """Clusters as they are, or those that a directory, a hub id or a model's name means.

    `InvalidInputError` if the value is none of these, another `SemtokenError` if they cannot be read or made.
    """
    from semtoken.clustering.cache import clusters_for_model
    from semtoken.clustering.token_clusters import TokenClusters

    if not isinstance(given, str | Path):
        return instance(given, TokenClusters, "clusters")
    folder = _shipped(given)
    if folder is not None:
        return TokenClusters.from_pretrained(folder)
    if _is_model(given):
        return clusters_for_model(given)
    try:
        return TokenClusters.from_pretrained(given)
    except ArtifactError as error:
        if isinstance(given, Path) or Path(given).expanduser().exists():
            raise
        try:
            return clusters_for_model(given)  # the hub id of a model
        except SemtokenError:
            # What was asked for first is clusters, so that is the error to report.
            raise error from None


def _named_vocabulary(name: str | Path) -> Vocabulary:
    """The vocabulary that a folder of clusters holds, or that of a model's tokenizer."""
    from semtoken.clustering.model_vocabulary import vocabulary_of
    from semtoken.clustering.token_clusters import saved_vocabulary

    folder, path = _shipped(name), Path(name).expanduser()
    if folder is not None or artifacts.is_saved(path):
        return saved_vocabulary(folder or path)
    alone = path if path.is_file() else path / "tokenizer.json"
    if alone.suffix == ".json" and alone.is_file() and not (path / "config.json").is_file():
        return Vocabulary.from_tokenizer(_tokenizer_in(alone))
    return vocabulary_of(name, None)


def _tokenizer_in(file: Path) -> Any:
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise InvalidInputError(f"{file} cannot be read as a tokenizer: {error}") from error


def _shipped(name: str | Path) -> Path | None:
    """The folder of clusters that semtoken brings for a model of this name, which need not be on this machine."""
    from semtoken.support.almanac import ALMANAC, almanac_clusters_path
    from semtoken.support.checkpoints.sources import CATALOG

    # A folder of the user's goes before a name of the catalog.
    if isinstance(name, Path) or Path(name).is_dir():
        return None
    if name == ALMANAC:
        return almanac_clusters_path()
    return CATALOG[name].clusters if name in CATALOG else None


def _is_model(name: str | Path) -> bool:
    """Return True if a name is that of a model on this machine or of the catalog, and not of a folder of clusters."""
    from semtoken.support.checkpoints.sources import CATALOG, GGUF_SUFFIX

    path = Path(name).expanduser()
    if path.is_dir():
        return not artifacts.is_saved(path) and any(path.glob("*.safetensors")) and (path / "config.json").is_file()
    return path.suffix.lower() == GGUF_SUFFIX or str(name) in CATALOG
