"""What the almanac's facts are about: things with their names, and which of them are held out.

Every name belongs to a family: all names that any fact connects as being of one thing, or as opposites. Families,
not facts, are split, so that no name of a test pair was ever seen in a training pair.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from research.training.almanac.facts import Fact, all_facts, texts
from research.training.almanac.sources import load_cities, load_countries, load_elements, load_states
from research.training.almanac.wordnet import WordNet, read_wordnet

KINDS = {  # relation -> what its subject and its answer are
    "city_country": ("city", "country"),
    "city_state": ("city", "state"),
    "capital": ("country", "city"),
    "capital_of": ("city", "country"),
    "continent": ("country", "continent"),
    "currency": ("country", "currency"),
    "language": ("country", "language"),
    "demonym": ("country", "people"),
    "phone": ("country", "phone"),
    "symbol_element": ("symbol", "element"),
    "number_element": ("number", "element"),
    "element_symbol": ("element", "symbol"),
    "synonym": ("word", "word"),
    "antonym": ("word", "word"),
    "category": ("noun", "category"),
    "past": ("word", "past"),
}
SAME_FAMILY = ("synonym", "antonym", "symbol_element", "element_symbol")  # relations that join subject and answer
SHARES = (("test", 0.15), ("dev", 0.05))  # of the families; the rest is for training
ALWAYS_TRAINED = 20  # the most populous countries: an encoder that does not know them would be of little use


@dataclass(frozen=True)
class Thing:
    """Something with one or more names, the main one first."""

    kind: str
    names: tuple[str, ...]
    family: str


@dataclass(frozen=True)
class World:
    """The things and facts that one split may speak of."""

    split: str
    facts: dict[str, list[Fact]]  # by relation; the subject is in the split, the answer perhaps not
    things: dict[str, list[Thing]]  # by kind
    answers: dict[str, Thing]  # fact key -> its answer, where that is in the split
    families: Families
    broader: dict[str, frozenset[str]]  # a noun -> names of what it is a kind of


class Families:
    """Union of names, compared without regard to case."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def join(self, names: Iterable[str]) -> None:
        """Put these names into one family."""
        first, *others = dict.fromkeys(name.lower() for name in names)
        root = self.of(first)
        for other in others:
            self._parent[self.of(other)] = root

    def of(self, name: str) -> str:
        """The name that stands for the whole family."""
        name = name.lower()
        self._parent.setdefault(name, name)
        while self._parent[name] != name:
            self._parent[name] = self._parent[self._parent[name]]
            name = self._parent[name]
        return name

    def members(self) -> dict[str, list[str]]:
        """All families: what stands for them -> their names."""
        found: dict[str, list[str]] = defaultdict(list)
        for name in self._parent:
            found[self.of(name)].append(name)
        return dict(found)


def load_facts(wordnet: WordNet) -> list[Fact]:
    """The almanac's facts, without those that only repeat names."""
    facts = all_facts(load_countries(), load_states(), load_cities(), load_elements(), wordnet)
    return [fact for fact in facts if fact.relation in KINDS]


def load_worlds(wordnet_folder: Path) -> dict[str, World]:
    """The worlds of the three splits: `train`, `dev`, `test`."""
    wordnet = read_wordnet(wordnet_folder)
    facts = load_facts(wordnet)
    nouns = {name for fact in facts if fact.relation == "category" for name in (*fact.accepted, *texts(fact.subject))}
    broader = {noun: _ancestors(wordnet, noun) for noun in sorted(nouns)}
    return make_worlds(facts, broader)


def make_worlds(facts: list[Fact], broader: dict[str, frozenset[str]]) -> dict[str, World]:
    """Sort facts and things into the splits."""
    families = _families(facts)
    splits = _splits(facts, families)
    things = _things(facts, families)
    worlds = {}
    for split in ("train", "dev", "test"):
        own = [fact for fact in facts if splits[families.of(fact.subject[0][0])] == split]
        by_kind: dict[str, list[Thing]] = defaultdict(list)
        for thing in things.values():
            if splits[thing.family] == split:
                by_kind[thing.kind].append(thing)
        by_relation: dict[str, list[Fact]] = defaultdict(list)
        for fact in own:
            by_relation[fact.relation].append(fact)
        answers = {fact.key: things[answer_kind(fact), fact.answer[0][0]] for fact in own}
        answers = {key: thing for key, thing in answers.items() if splits[thing.family] == split}
        worlds[split] = World(split, dict(by_relation), dict(by_kind), answers, families, broader)
    return worlds


def subject_kind(fact: Fact) -> str:
    """What kind of thing the fact is about: `country`, `city`, `noun bird` ..."""
    kind = KINDS[fact.relation][0]
    if kind == "noun":
        return f"noun {fact.answer[0][0]}"
    return "state" if kind == "country" and ":US-" in fact.group else kind


def answer_kind(fact: Fact) -> str:
    """What kind of thing the answer is."""
    return "state" if fact.relation == "capital_of" and ":US-" in fact.group else KINDS[fact.relation][1]


def _families(facts: list[Fact]) -> Families:
    families = Families()
    for fact in facts:
        families.join(texts(fact.subject))
        families.join(texts(fact.answer))
        if fact.relation in SAME_FAMILY:
            families.join([fact.subject[0][0], fact.answer[0][0]])
    return families


def _splits(facts: list[Fact], families: Families) -> dict[str, str]:
    countries = [fact for fact in facts if fact.relation == "capital" and subject_kind(fact) == "country"]
    countries.sort(key=lambda fact: -fact.popularity)
    pinned = [fact.subject[0][0] for fact in countries[:ALWAYS_TRAINED]]
    pinned += [fact.answer[0][0] for fact in facts if fact.relation == "continent"]
    trained = {families.of(name) for name in pinned}
    splits = {}
    for family, members in families.members().items():
        draw = zlib.crc32(min(members).encode()) / 2**32
        splits[family] = "train"
        for split, share in SHARES:
            if 0 <= draw < share and family not in trained:
                splits[family] = split
            draw -= share
    return splits


def _things(facts: list[Fact], families: Families) -> dict[tuple[str, str], Thing]:
    """Names that always go together. A dollar is sometimes a USD and sometimes an AUD, so these are not its names."""
    seen: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(dict)
    for fact in facts:
        roles = ((subject_kind(fact), fact.subject, "s"), (answer_kind(fact), fact.answer, "a"))
        for kind, forms, role in roles:
            names, role = list(texts(forms)), fact.relation + role
            known = seen[kind, names[0]].setdefault(role, names)
            seen[kind, names[0]][role] = [name for name in known if name in names]
    things = {}
    for (kind, main), by_role in seen.items():
        every = dict.fromkeys(name for role_names in by_role.values() for name in role_names)
        things[kind, main] = Thing(kind, tuple(every), families.of(main))
    return things


def _ancestors(wordnet: WordNet, noun: str) -> frozenset[str]:
    found: set[str] = set()
    current = wordnet.first("n", noun)
    for _ in range(8):
        above = current.targets("@", "@i") if current else []
        if not above:
            break
        current = wordnet.synsets[above[0]]
        found.update(current.words)
    return frozenset(found)
