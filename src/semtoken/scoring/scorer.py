"""A vocabulary, rules, and the clusters that some rules read, prepared for scoring: which tokens agree, and why.

`StepTables` are the same for the compiled kernel: lists of different lengths stand one after the other in one array,
and a second array says where each begins (CSR form).

What a user gives to say which tokens there are: a vocabulary, a tokenizer, clusters, or the name of any of them.

Rules that count clusters get clusters, and all others no more than a vocabulary: under these nothing is clustered or
looked up in the cache of clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from semtoken.errors import ArtifactError, InvalidInput, SemtokenError
from semtoken.files import artifacts
from semtoken.results import Alternative, Source
from semtoken.scoring.endings import KINDS, Endings, endings_of
from semtoken.scoring.prefixes import NO_IDS, Candidates, PrefixIndex
from semtoken.support.arrays import BoolArray, IdArray
from semtoken.support.inputs import instance, shown
from semtoken.tokens.rules import PAPER_RULES, SURFACE_RULES, Companions, CompanionTable, ScoringRules
from semtoken.tokens.vocabulary import Vocabulary

if TYPE_CHECKING:
    from semtoken.clusters import TokenClusters


class StepTables(NamedTuple):
    """The tables of V tokens, their clusters and the rules that `semtoken.scoring.kernel` reads."""

    cluster: CompanionTable
    """The tokens of each token's cluster that count."""
    alike: CompanionTable
    """The tokens of the same spelling, if they count."""
    paper: CompanionTable
    """The tokens of the same cluster under the paper's rules; none where there are no clusters."""
    surface: CompanionTable
    """The tokens of the same spelling under the equality `surface`, whatever the rules."""
    neutral: BoolArray
    """[2, V] which tokens are neutral under the rules where they open an answer, and elsewhere."""
    paper_neutral: BoolArray
    """[V] which tokens are neutral under the paper's rules."""
    neutral_ids: IdArray
    """The neutral tokens, if the rules or clusters ask for them; else none."""
    neutral_weights: npt.NDArray[np.float32]
    """[2, n] 1 for those of the n `neutral_ids` that are neutral under the rules where they open an answer, and
    elsewhere; 0 for the others."""
    candidates: IdArray
    """The tokens that may be in the prefix set of a step, ascending, list by list."""
    candidates_of: IdArray
    """[V, 2] where the list of each token begins and ends in `candidates`; empty for a token that does not decide by
    itself what the text from there on begins with."""
    tells: BoolArray
    """[V] which tokens decide by themselves what the text from there on begins with (`PrefixIndex.tells`); all of them
    where that is not asked."""
    decided: BoolArray
    """[V] which of these have a prefix set that no later token can change."""
    end_ids: IdArray
    """Tokens that end a value or go on with it, list by list."""
    end_places: IdArray
    """[9] where each of the eight lists begins and the one before it ends, by what may end at a step
    (`Endings.what_may_end`)."""
    leaves: IdArray
    """[V + 1] what each token, or none, leaves behind, as in `Endings.leaves`."""
    asks: IdArray
    """[V, 4] which values may end at each token, by what is left behind before it, as in `Endings.asks`."""
    end_kinds: IdArray
    """[V] the classes of `Endings` that a token is in, as bits."""


SOURCES: tuple[Source, ...] = ("other", "cluster", "prefix", "neutral")
"""Why a token counts, by the number that `Scorer.kinds` gives it; the first does not count."""
TOKENS_KEPT = 4096
"""For how many chosen tokens it is kept which others are related to them, a few kilobytes each: an answer chooses few
tokens often."""


@lru_cache(maxsize=16)
def scorer_for(tokens: Vocabulary | TokenClusters | None, rules: ScoringRules) -> Scorer:
    """The (cached) scorer of a vocabulary, or of clusters and their vocabulary, under some rules.

    None stands for the unknown vocabulary of lists that name their tokens; see `semtoken.scoring.topk`. `InvalidInput`
    if the rules count what the vocabulary alone, or the lists alone, do not tell.
    """
    if tokens is None:
        return Scorer(NO_VOCABULARY, rules, prefix_index(NO_VOCABULARY), open_ended=True)
    if isinstance(tokens, Vocabulary):
        return Scorer(tokens, rules, prefix_index(tokens))
    return Scorer(tokens.vocabulary, rules, prefix_index(tokens.vocabulary), tokens)


@lru_cache(maxsize=4)
def prefix_index(vocabulary: Vocabulary) -> PrefixIndex:
    """The (cached) prefix index of a vocabulary."""
    return PrefixIndex(vocabulary)


NO_VOCABULARY = Vocabulary((), (), np.zeros(0, dtype=bool), np.zeros(0, dtype=bool))


class Scorer:
    """A vocabulary and rules in the tables that scoring reads, shared by all answers.

    Clusters that are given although the rules do not read them ask for the masses of `meaning` beside the score.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        rules: ScoringRules,
        index: PrefixIndex,
        clusters: TokenClusters | None = None,
        *,
        open_ended: bool = False,
    ) -> None:
        if open_ended and (rules.clustering or rules.prefix_matching or rules.effective_function_words != "off"):
            raise InvalidInput(
                f"These rules ({rules.signature}) count tokens that the lists need not show. Say whose tokens they "
                "are: name the model, or its tokenizer. The preset 'default' needs neither."
            )
        if rules.clustering and clusters is None:
            raise InvalidInput(
                f"These rules ({rules.signature}) count clusters: give TokenClusters, which TokenClusters.from_model "
                "makes. The preset 'default' needs none."
            )
        self.vocabulary = vocabulary
        self.clusters = clusters
        self.rules = rules
        self.index = index
        self.signature = (
            rules.signature if clusters is None or not rules.clustering else (f"{clusters.signature}|{rules.signature}")
        )
        """What decides the numbers, in one line: the rules, and the clusters that they read."""
        self.open_ended = open_ended
        """Whether there are other tokens than those of `vocabulary`: it holds those that lists have named."""
        self.looks_ahead = rules.prefix_matching or clusters is not None
        """Whether what a step counts depends on the tokens that follow it."""
        self.neutral_masks: BoolArray = np.stack(rules.neutral_masks(vocabulary))
        """Which tokens are neutral at a step that opens the answer, and at a later one (bool [2, V])."""
        self.knows_neutral = rules.effective_function_words != "off"
        """Whether some token may be neutral."""

    @cached_property
    def identity(self) -> str:
        """Signature and vocabulary together: what two processes must agree on."""
        return f"vocab:{self.vocabulary.fingerprint[:8]}|{self.signature}"

    @cached_property
    def paper(self) -> Scorer | None:
        """The scorer of the same clusters under the paper's rules; None where there are no clusters."""
        if self.clusters is None or self.rules == PAPER_RULES:
            return None if self.clusters is None else self
        return Scorer(self.vocabulary, PAPER_RULES, self.index, self.clusters)

    @property
    def surface(self) -> Scorer:
        """The scorer of the same vocabulary under the equality `surface`."""
        return self if self.rules == SURFACE_RULES else self._surface  # kept in itself it would wait for the collector

    @cached_property
    def _surface(self) -> Scorer:
        return Scorer(self.vocabulary, SURFACE_RULES, self.index)

    @cached_property
    def tables(self) -> StepTables:
        """The tables that the compiled kernel reads."""
        return _step_tables(self)

    @cached_property
    def cluster(self) -> Companions:
        """The tokens of each token's cluster that count."""
        labels = None if self.clusters is None else self.clusters.labels
        return self.rules.in_cluster(self.vocabulary, labels)

    @cached_property
    def alike(self) -> Companions:
        """The tokens that are spelled as each token is, if they count."""
        return self.rules.alike(self.vocabulary)

    def neutral_mask(self, opening: bool) -> BoolArray:
        """Which tokens are neutral at a step that opens the answer, or at a later one (bool [V])."""
        return np.asarray(self.neutral_masks[0 if opening else 1])

    def are_neutral(self, ids: IdArray, opening: BoolArray) -> BoolArray:
        """Which of `ids` are neutral at steps that open the answer or not."""
        return np.asarray(self.neutral_masks[np.where(opening, 0, 1), ids])

    @cached_property
    def endings(self) -> Endings:
        """The classes of the vocabulary's tokens from which it is seen whether a number, a string or an array that
        comes before them ends.
        """
        return endings_of(self.vocabulary)

    def in_prefix_set(self, prefixes: IdArray) -> BoolArray:
        """Which of some tokens that begin what was written count under the rules (bool [n])."""
        if not self.rules.prefix_matching:
            return np.zeros(len(prefixes), dtype=bool)
        return np.asarray(self.index.lengths[prefixes] >= self.rules.shortest_prefix)

    @cached_property
    def related_count(self) -> Callable[[int, bool, bool], int]:
        """A function (cached) that counts the tokens that agree with a chosen one, its prefix set left out.

        It takes the token, whether only blanks come before it, and whether neutral tokens count. Counted are the
        members of its cluster, the tokens of the same spelling, and all neutral tokens if these count.
        """
        return lru_cache(maxsize=TOKENS_KEPT)(self._related_count)

    def _related_count(self, token: int, opening: bool, neutrality: bool) -> int:
        related = list(self.related_kinds(token))
        if not neutrality:
            return len(related)
        return int(np.count_nonzero(~self.neutral_mask(opening)[related])) + self._neutral_counts[0 if opening else 1]

    @cached_property
    def _neutral_counts(self) -> list[int]:
        """How many tokens are neutral, as in `neutral_masks`."""
        return self.neutral_masks.sum(axis=1).tolist()  # type: ignore[no-any-return]

    @cached_property
    def related_kinds(self) -> Callable[[int], Mapping[int, int]]:
        """A function (cached) from a chosen token to the tokens of its cluster and of its spelling that count.

        It gives their ids, each with an index into `SOURCES` that says why it counts.
        """
        return lru_cache(maxsize=TOKENS_KEPT)(self._related_kinds)

    def _related_kinds(self, token: int) -> Mapping[int, int]:
        clustered = [*self.cluster.listed(token), token]
        return dict.fromkeys(self.alike.listed(token), 2) | dict.fromkeys(clustered, 1)

    @cached_property
    def neutral_bytes(self) -> tuple[bytes, bytes]:
        """The masks of `neutral_masks` as bytes, for fast look-ups of single tokens."""
        return self.neutral_masks[0].tobytes(), self.neutral_masks[1].tobytes()

    def kinds(
        self,
        token: IdArray,
        ids: IdArray,
        begins: BoolArray,
        *,
        opening: BoolArray,
        neutrality: bool | BoolArray,
    ) -> npt.NDArray[np.intp]:
        """Why each of `ids` counts as agreeing with the chosen `token`: indices into `SOURCES`, 0 for not at all.

        `token` was chosen in place of each; it counts as one of its cluster, even if it is neutral. `begins`: which
        spell the beginning of what follows (`PrefixIndex.beginnings`). `opening`: before which only blanks come.
        `neutrality`: whether neutral tokens count.
        """
        sources = np.zeros(len(ids), dtype=np.intp)
        sources[self.alike.agree(token, ids)] = 2
        if self.rules.prefix_matching:
            sources[begins & self.in_prefix_set(ids)] = 2
        sources[self.cluster.agree(token, ids)] = 1
        sources[self.are_neutral(ids, opening) & (ids != token) & neutrality] = 3
        return sources

    def engine_ids(self, tokens: Sequence[int]) -> Sequence[int]:
        """The ids under which records show some tokens: their own, where the vocabulary is known."""
        return tokens

    def alternatives(
        self,
        token: IdArray,
        probabilities: Sequence[tuple[int, float]],
        begins: BoolArray,
        *,
        opening: BoolArray,
        neutrality: bool | BoolArray,
    ) -> tuple[Alternative, ...]:
        """Other tokens with their probabilities, in the given order, and how each relates to the chosen `token`.

        One that counts has the reason why it counts; one that does not is described as the paper's rules see it, as far
        as clusters are at hand. The parameters are those of `kinds`.
        """
        tokens = [token for token, _ in probabilities]
        ids = np.array(tokens, dtype=np.int64)
        counted = self.kinds(token, ids, begins, opening=opening, neutrality=neutrality)
        described = 3 * self.vocabulary.neutral[ids]
        if self.paper is not None:
            described = self.paper.kinds(token, ids, begins, opening=opening, neutrality=True)
        sources = np.where(counted > 0, counted, described).tolist()
        texts = self.vocabulary.texts
        columns = (
            self.engine_ids(tokens),
            [texts[i] for i in tokens],
            [probability for _, probability in probabilities],
            [SOURCES[source] for source in sources],
            (counted > 0).tolist(),
        )
        return tuple(map(Alternative, *columns))

    def candidates(self, heads: Sequence[str]) -> IdArray:
        """Ascending ids, some of them twice, of the tokens that may be in a prefix set that begins with a head."""
        id_lists = [ids for head in heads for ids in (self.index.beginnings(head), self.index.continuations(head))]
        return np.sort(np.concatenate(id_lists))


def among(ids: IdArray, ascending: IdArray) -> BoolArray:
    """Whether each of a few `ids` occurs in a sorted array of ids."""
    if not len(ascending):
        return np.zeros(len(ids), dtype=bool)
    places = np.searchsorted(ascending, ids).clip(max=len(ascending) - 1)
    return np.asarray(ascending[places] == ids)


def _step_tables(scorer: Scorer) -> StepTables:
    """The tables of a scorer. Without a look ahead no token has candidates."""
    size = scorer.vocabulary.size
    candidates, tells = (scorer.index.candidates, scorer.index.tells) if scorer.looks_ahead else _nothing_to_come(size)
    lists = np.where(tells, scorer.index.string_of if scorer.looks_ahead else 0, len(candidates.longer) - 1)
    end_ids = [scorer.endings.ids_asked(asked) for asked in range(8)]
    end_masks = [getattr(scorer.endings, kind) for kind in KINDS]
    asks_for_neutral = scorer.knows_neutral or scorer.clusters is not None
    neutral_ids = np.flatnonzero(scorer.vocabulary.neutral) if asks_for_neutral else NO_IDS
    return StepTables(
        cluster=scorer.cluster.table,
        alike=scorer.alike.table,
        paper=(Companions.none(size) if scorer.paper is None else scorer.paper.cluster).table,
        surface=scorer.surface.alike.table,
        neutral=scorer.neutral_masks,
        paper_neutral=scorer.vocabulary.neutral,
        neutral_ids=neutral_ids,
        neutral_weights=scorer.neutral_masks[:, neutral_ids].astype(np.float32, order="C"),
        candidates=candidates.ids,
        candidates_of=np.stack([candidates.places[lists], candidates.places[lists + 1]], axis=1),
        tells=tells,
        decided=tells & ~candidates.longer[lists],
        end_ids=np.concatenate(end_ids),
        end_places=np.cumsum([0, *map(len, end_ids)], dtype=np.int64),
        leaves=scorer.endings.leaves,
        asks=scorer.endings.asks,
        end_kinds=np.sum([mask.astype(np.int64) << bit for bit, mask in enumerate(end_masks)], axis=0),
    )


def _nothing_to_come(size: int) -> tuple[Candidates, BoolArray]:
    """No candidates, and tokens that tell all that is asked of what follows: nothing."""
    return Candidates(np.zeros(2, dtype=np.int64), NO_IDS, np.zeros(1, dtype=bool)), np.ones(size, dtype=bool)


Tokens: TypeAlias = "Vocabulary | TokenClusters"
"""What scoring takes: a vocabulary, or clusters, which hold theirs."""


def as_tokens(given: Any, *, clustering: bool = False, revision: str | None = None) -> Tokens:
    """The vocabulary, and the clusters if there are any, of what a user gave for `tokens`.

    That is a `Vocabulary`, `TokenClusters`, a tokenizer, a `tokenizer.json`, a directory of clusters, or whatever names
    a model: `smollm2`, a directory, a GGUF file, a hub id and perhaps its `revision`. If clusters are needed
    (`ScoringRules.clustering`), a model's are those that ship with it, or are in the cache, or are made.
    `InvalidInput` if the value is none of these, another `SemtokenError` if it cannot be read.
    """
    if isinstance(given, Vocabulary):
        return given
    from semtoken.clusters import TokenClusters, vocabulary_of

    if isinstance(given, TokenClusters):
        return given
    if isinstance(given, str | Path):
        return as_clusters(given, revision=revision) if clustering else _named_vocabulary(given, revision)
    if not hasattr(given, "decode") or isinstance(given, bytes | bytearray):
        raise InvalidInput(
            f"A vocabulary is a Vocabulary, TokenClusters, a tokenizer, or the name of a model, got {shown(given)}."
        )
    return vocabulary_of(None, given)


def as_clusters(given: TokenClusters | str | Path, *, revision: str | None = None) -> TokenClusters:
    """Clusters as they are, or those that a directory, a hub id or a model's name means.

    `InvalidInput` if the value is none of these, another `SemtokenError` if they cannot be read or made.
    """
    from semtoken.clusters import TokenClusters
    from semtoken.clusters.cache import clusters_for_model

    if not isinstance(given, str | Path):
        return instance(given, TokenClusters, "clusters")
    folder = _shipped(given)
    if folder is not None:
        return TokenClusters.from_pretrained(folder)
    if _is_model(given):
        return clusters_for_model(given, revision=revision)
    try:
        return TokenClusters.from_pretrained(given, revision=revision)
    except ArtifactError as error:
        if isinstance(given, Path) or Path(given).expanduser().exists():
            raise
        try:
            return clusters_for_model(given, revision=revision)  # the hub id of a model
        except SemtokenError:
            raise error from None


def _named_vocabulary(name: str | Path, revision: str | None) -> Vocabulary:
    """The vocabulary that a folder of clusters holds, or that of a model's tokenizer."""
    from semtoken.clusters import vocabulary_of
    from semtoken.clusters.token_clusters import saved_vocabulary

    folder, path = _shipped(name), Path(name).expanduser()
    if folder is not None or artifacts.is_saved(path):
        return saved_vocabulary(folder or path)
    alone = path if path.is_file() else path / "tokenizer.json"
    if alone.suffix == ".json" and alone.is_file() and not (path / "config.json").is_file():
        return Vocabulary.from_tokenizer(_tokenizer_in(alone))
    return vocabulary_of(name, None, revision=revision)


def _tokenizer_in(file: Path) -> Any:
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise InvalidInput(f"{file} cannot be read as a tokenizer: {error}") from error


def _shipped(name: str | Path) -> Path | None:
    """The folder of clusters that semtoken brings for a model of this name, which need not be on this machine."""
    from semtoken.almanac import ALMANAC, almanac_clusters_path
    from semtoken.models.sources import CATALOGUE

    if isinstance(name, Path) or Path(name).is_dir():
        return None
    if name == ALMANAC:
        return almanac_clusters_path()
    return CATALOGUE[name].clusters if name in CATALOGUE else None


def _is_model(name: str | Path) -> bool:
    """Whether a name is that of a model on this machine or of the catalogue, and not of a folder of clusters."""
    from semtoken.models.sources import CATALOGUE, GGUF_SUFFIX

    path = Path(name).expanduser()
    if path.is_dir():
        return not artifacts.is_saved(path) and any(path.glob("*.safetensors")) and (path / "config.json").is_file()
    return path.suffix.lower() == GGUF_SUFFIX or str(name) in CATALOGUE
