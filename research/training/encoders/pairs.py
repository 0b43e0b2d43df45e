"""Two texts and how they are related: what both encoders learn from.

One builder serves both. Each kind of pair has a label for `nli` and a similarity for `sts`; pairs with a piece
removed have a similarity that depends on how much was removed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from research.training.almanac.facts import Fact, texts
from research.training.almanac.templates import WORDINGS
from research.training.encoders.surface import is_filler, remove_piece, rewrite
from research.training.encoders.things import SAME_FAMILY, Thing, World, answer_kind

LABELS = ("contradiction", "neutral", "entailment")
TARGETS = {  # kind of pair -> label, similarity
    "surface": ("entailment", 1.0),  # the same words, written differently
    "alias": ("entailment", 0.95),  # another name, abbreviation or synonym
    "restated": ("entailment", 0.95),  # the same answer with another wording of the question, or as a sentence
    "sibling": ("contradiction", 0.3),  # another thing of the same type
    "opposite": ("contradiction", 0.3),
    "off_type": ("contradiction", 0.15),  # an answer that is not even of the type asked for
    "related": ("neutral", 0.5),  # a thing and what a fact says of it
    "general": ("neutral", 0.65),  # more or less specific
    "shorter": ("neutral", 0.0),  # a piece is missing; similarity computed
    "other_question": ("neutral", 0.25),
    "unrelated": ("neutral", 0.0),
}
LOSS_OF_ALL = 0.7  # how far the similarity falls when the whole answer is removed
UNTYPED = ("word", "past")  # two such words without a question are unrelated, not in contradiction


@dataclass(frozen=True)
class Pair:
    """Two texts in no particular order, with both targets."""

    first: str
    second: str
    kind: str
    label: str
    similarity: float


def make_pairs(world: World, count: int, seed: int, wordings: str = "train") -> list[Pair]:
    """Draw pairs; the same arguments give the same pairs. `wordings` names the questions' phrasings to use."""
    maker = _Maker(world, wordings, random.Random(f"{seed}-{world.split}-{wordings}"))
    pairs: list[Pair] = []
    while len(pairs) < count:
        pair = maker.draw()
        if pair is not None:
            pairs.append(pair)
    return pairs


class _Maker:
    """Draws pairs from one world. A recipe that the drawn fact or thing does not allow gives None."""

    def __init__(self, world: World, wordings: str, rng: random.Random) -> None:
        self.world, self.wordings, self.rng = world, wordings, rng
        self.things = [thing for things in world.things.values() for thing in things]
        self.named_twice = [thing for thing in self.things if len(thing.names) > 1]
        self.typed = [kind for kind in world.things if kind not in UNTYPED]
        self.main_kinds = [kind for kind in self.typed if not kind.startswith("noun")]
        self.relations = list(world.facts)
        self.weights = [len(facts) ** 0.5 for facts in world.facts.values()]
        self.asked: dict[Callable[[Fact, Thing], Pair | None], float] = {
            self._asked_same: 0.16,
            self._asked_alias: 0.25,
            self._asked_sibling: 0.30,
            self._asked_off_type: 0.05,
            self._asked_general: 0.06,
            self._asked_shorter: 0.10,
            self._asked_other_question: 0.08,
        }
        self.bare: dict[Callable[[], Pair | None], float] = {
            self._bare_same: 0.14,
            self._bare_alias: 0.20,
            self._bare_synonym: 0.08,
            self._bare_sibling: 0.22,
            self._bare_opposite: 0.05,
            self._bare_general: 0.08,
            self._bare_shorter: 0.05,
            self._bare_filler: 0.03,
            self._bare_unrelated: 0.15,
        }

    def draw(self) -> Pair | None:
        """One pair, or None if the draw does not fit."""
        if self.rng.random() < 0.5:
            return self.rng.choices(list(self.bare), list(self.bare.values()))[0]()
        fact = self._fact()
        answer = self.world.answers.get(fact.key)
        if answer is None or self.rng.random() < 0.3:  # wrong answers are asked about as well as right ones
            pool = self.world.things.get(answer_kind(fact))
            if not pool:
                return None
            answer = self.rng.choice(pool)
        return self.rng.choices(list(self.asked), list(self.asked.values()))[0](fact, answer)

    def _fact(self, relation: str | None = None) -> Fact:
        relation = relation or self.rng.choices(self.relations, self.weights)[0]
        return self.rng.choice(self.world.facts[relation])

    def _pair(self, first: str, second: str, kind: str, similarity: float | None = None) -> Pair:
        label, usual = TARGETS[kind]
        if self.rng.random() < 0.5:
            first, second = second, first
        return Pair(first, second, kind, label, usual if similarity is None else round(similarity, 4))

    def _strangers(self, first: str, second: str) -> bool:
        families = self.world.families
        return families.of(first) != families.of(second) and not self._nested(first, second)

    def _nested(self, first: str, second: str) -> bool:
        broader = self.world.broader
        return second in broader.get(first, ()) or first in broader.get(second, ())

    def _light(self, text: str) -> str:
        """Sometimes another capital or a full stop, as generated answers have them."""
        return rewrite(text, self.rng) if self.rng.random() < 0.15 else text

    # -- with a question ------------------------------------------------------------------------------------------

    def _names(self, fact: Fact, answer: Thing) -> tuple[str, ...]:
        """All names of the answer in the light of the question."""
        return texts(fact.answer) if self.world.answers.get(fact.key) == answer else answer.names

    def _question(self, fact: Fact) -> str:
        wordings: Sequence[str] = getattr(WORDINGS[fact.relation], self.wordings)
        wording = self.rng.choice(wordings)
        return wording.format(s=self.rng.choice(texts(fact.subject)))

    def _ask(self, fact: Fact, one: str, two: str, kind: str) -> Pair:
        """Both answers with the same question; some with two wordings of it, some as sentences."""
        style = self.rng.random()
        if style < 0.76:
            question = self._question(fact)
            return self._pair(f"{question} {self._light(one)}", f"{question} {self._light(two)}", kind)
        kind = "restated" if kind == "surface" else kind
        subject = self.rng.choice(texts(fact.subject))
        sides = []
        for answer in (one, two):
            if style < 0.88 or self.rng.random() < 0.4:
                wording = self.rng.choice(getattr(WORDINGS[fact.relation], self.wordings))
                sides.append(f"{wording.format(s=subject)} {answer}")
            else:
                sides.append(self.rng.choice(WORDINGS[fact.relation].sentences).format(s=subject, a=answer))
        return self._pair(sides[0], sides[1], kind)

    def _asked_same(self, fact: Fact, answer: Thing) -> Pair:
        name = self.rng.choice(self._names(fact, answer))
        return self._ask(fact, name, rewrite(name, self.rng), "surface")

    def _asked_alias(self, fact: Fact, answer: Thing) -> Pair | None:
        names = self._names(fact, answer)
        if len(names) < 2:
            return None
        one, two = self.rng.sample(names, 2)
        return self._ask(fact, one, two, "alias")

    def _asked_sibling(self, fact: Fact, answer: Thing) -> Pair | None:
        other = self.rng.choice(self.world.things[answer.kind])
        if not self._strangers(answer.names[0], other.names[0]):
            return None
        return self._ask(fact, self.rng.choice(self._names(fact, answer)), self.rng.choice(other.names), "sibling")

    def _asked_off_type(self, fact: Fact, answer: Thing) -> Pair | None:
        other = self.rng.choice(self.things)
        if other.kind == answer.kind or not self._strangers(answer.names[0], other.names[0]):
            return None
        return self._ask(fact, self.rng.choice(answer.names), self.rng.choice(other.names), "off_type")

    def _asked_general(self, fact: Fact, answer: Thing) -> Pair | None:
        name = self.rng.choice(answer.names)
        wider = [word for word in fact.accepted if self._nested(name, word)]
        if wider:
            return self._ask(fact, name, self.rng.choice(wider), "general")
        if " " not in name or name.split()[0] in answer.names:
            return None
        return self._ask(fact, name, name.split()[0], "general")

    def _asked_shorter(self, fact: Fact, answer: Thing) -> Pair | None:
        text = self.rng.choice(self._names(fact, answer)) + self.rng.choice(("", "", ".", "\n"))
        if self.rng.random() < 0.3:
            text = rewrite(text, self.rng)
        left, share = remove_piece(text, self.rng)
        question = self._question(fact)
        kind = "shorter" if share else "surface"
        return self._pair(f"{question} {text}", f"{question} {left}", kind, 1 - LOSS_OF_ALL * share)

    def _asked_other_question(self, fact: Fact, answer: Thing) -> Pair | None:
        other = self._fact()
        if not self._strangers(fact.subject[0][0], other.subject[0][0]):
            return None
        name = self.rng.choice(answer.names)
        pool = self.world.things.get(answer_kind(other))
        same = self.rng.random() < 0.4 or not pool
        second = name if same else self.rng.choice(self.rng.choice(pool or [answer]).names)
        near = same or other.relation == fact.relation
        first = f"{self._question(fact)} {name}"
        kind = "other_question" if near else "unrelated"
        return self._pair(first, f"{self._question(other)} {second}", kind)

    # -- alone ----------------------------------------------------------------------------------------------------

    def _bare_same(self) -> Pair:
        name = self.rng.choice(self.rng.choice(self.things).names)
        return self._pair(name, rewrite(name, self.rng), "surface")

    def _bare_alias(self) -> Pair:
        one, two = self.rng.sample(self.rng.choice(self.named_twice).names, 2)
        return self._pair(self._light(one), self._light(two), "alias")

    def _bare_synonym(self) -> Pair | None:
        if "synonym" not in self.world.facts:
            return None
        fact = self._fact("synonym")
        one, two = self.rng.sample((*texts(fact.subject), *texts(fact.answer)), 2)
        return self._pair(self._light(one), self._light(two), "alias")

    def _bare_sibling(self) -> Pair | None:
        kind = self.rng.choice(self.typed if self.rng.random() < 0.3 else self.main_kinds)
        one, two = self.rng.choice(self.world.things[kind]), self.rng.choice(self.world.things[kind])
        if not self._strangers(one.names[0], two.names[0]):
            return None
        return self._pair(self._light(self.rng.choice(one.names)), self._light(self.rng.choice(two.names)), "sibling")

    def _bare_opposite(self) -> Pair | None:
        if "antonym" not in self.world.facts:
            return None
        fact = self._fact("antonym")
        return self._pair(fact.subject[0][0], self._light(self.rng.choice(texts(fact.answer))), "opposite")

    def _bare_general(self) -> Pair | None:
        fact = self._fact()
        if fact.key not in self.world.answers or fact.relation in SAME_FAMILY:
            return None
        kind = "general" if fact.relation in ("category", "past") else "related"
        return self._pair(self.rng.choice(texts(fact.subject)), self.rng.choice(texts(fact.answer)), kind)

    def _bare_shorter(self) -> Pair | None:
        text = self.rng.choice(self.rng.choice(self.things).names)
        left, share = remove_piece(text, self.rng)
        if is_filler(left):
            return None
        return self._pair(text, left, "shorter" if share else "surface", 1 - LOSS_OF_ALL * share)

    def _bare_filler(self) -> Pair:
        name = self.rng.choice(self.rng.choice(self.things).names)
        filler = self.rng.choice(("", "the", "a", "of", "is", "s", ".", "and", "it", "in", "endoftext", "\n"))
        return self._pair(name, filler, "unrelated")

    def _bare_unrelated(self) -> Pair | None:
        one, two = self.rng.choice(self.things), self.rng.choice(self.things)
        if one.kind == two.kind and one.kind not in UNTYPED:
            return None
        if not self._strangers(one.names[0], two.names[0]):
            return None
        return self._pair(self.rng.choice(one.names), self.rng.choice(two.names), "unrelated")
