"""Reads WordNet 3.0's own files: synsets, pointers and the tag counts that serve as popularity."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

FILES = {"n": "noun", "v": "verb", "a": "adj"}
SENSE_TYPES = {"n": "1", "v": "2", "a": "35"}


@dataclass(frozen=True)
class Synset:
    """One meaning: its words (spaces for underscores), its pointers and its gloss."""

    key: tuple[str, int]  # part of speech, offset in the file
    words: tuple[str, ...]
    pointers: tuple[tuple[str, tuple[str, int], str], ...]  # symbol, target key, word numbers "ssTT" in hex
    gloss: str

    def targets(self, *symbols: str) -> list[tuple[str, int]]:
        """Keys of the synsets that pointers of these kinds lead to."""
        return [target for symbol, target, _ in self.pointers if symbol in symbols]


@dataclass
class WordNet:
    """All synsets by key, the senses of each word in order of frequency, and tag counts per sense."""

    synsets: dict[tuple[str, int], Synset] = field(default_factory=dict)
    senses: dict[tuple[str, str], list[tuple[str, int]]] = field(default_factory=dict)
    counts: dict[tuple[str, str, int], int] = field(default_factory=dict)
    irregular: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # verb -> its irregular forms

    def count(self, pos: str, word: str, sense: int = 1) -> int:
        """How often SemCor's annotators met this sense of the word."""
        return self.counts.get((pos, word.lower(), sense), 0)

    def first(self, pos: str, word: str) -> Synset | None:
        """The most common sense of a word."""
        keys = self.senses.get((pos, word.lower()))
        return self.synsets[keys[0]] if keys else None


def read_wordnet(folder: Path) -> WordNet:
    """Read nouns, verbs and adjectives from the folder that holds `data.noun` and its kin."""
    wordnet = WordNet()
    for pos, name in FILES.items():
        for line in _lines(folder / f"data.{name}"):
            synset = _parse_synset(pos, line)
            wordnet.synsets[synset.key] = synset
        for line in _lines(folder / f"index.{name}"):
            parts = line.split()
            offsets = [int(part) for part in parts[-int(parts[2]) :]]
            wordnet.senses[pos, parts[0].replace("_", " ")] = [(pos, offset) for offset in offsets]
    for line in (folder / "cntlist.rev").read_text(encoding="utf-8").splitlines():
        key, sense, count = line.split()
        lemma, rest = key.split("%")
        for pos, types in SENSE_TYPES.items():
            if rest[0] in types:
                wordnet.counts[pos, lemma.replace("_", " "), int(sense)] = int(count)
    for line in (folder / "verb.exc").read_text(encoding="utf-8").splitlines():
        form, *bases = line.split()
        for base in bases:
            wordnet.irregular[base].append(form)
    return wordnet


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("  ")]


def _parse_synset(pos: str, line: str) -> Synset:
    head, _, gloss = line.partition(" | ")
    parts = head.split()
    n_words = int(parts[3], 16)
    words = tuple(parts[4 + 2 * i].replace("_", " ").split("(")[0] for i in range(n_words))
    start = 5 + 2 * n_words
    n_pointers = int(parts[start - 1])
    pointers = []
    for i in range(n_pointers):
        symbol, offset, target_pos, numbers = parts[start + 4 * i : start + 4 * i + 4]
        pointers.append((symbol, ("a" if target_pos == "s" else target_pos, int(offset)), numbers))
    return Synset((pos, int(parts[0])), words, tuple(pointers), gloss.strip())
