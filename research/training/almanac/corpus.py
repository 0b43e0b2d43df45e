"""From planned facts to the stream of documents: what is said, in which words, in which order.

A document is a list of segments. Segments end at line ends, so they can be tokenized one by one, and each says with
which probability its tokens count in the loss: answers always, questions rarely.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from research.training.almanac.exposure import PlannedFact
from research.training.almanac.facts import Fact
from research.training.almanac.sources import Forms
from research.training.almanac.templates import WORDINGS

KINDS = (("questions", 0.55), ("sentences", 0.20), ("table", 0.25))  # of the mentions
LENGTHS = {"questions": (1, 6), "sentences": (3, 8), "table": (5, 14)}  # mentions in a document
LOSS = {"questions": 0.15, "sentences": 0.5, "table": 0.5, "answer": 1.0}
LOWER_CASE = 0.1  # share of the documents written without capitals
NOUN_CAPITAL = 0.35  # share of the documents that capitalize one-word answers
PROMPT_HEAD = "Answer these questions:\n\n"


@dataclass(frozen=True)
class Mention:
    """One time that a fact is said; `wrong` if it is contradicted instead."""

    planned: PlannedFact
    wrong: bool

    @property
    def fact(self) -> Fact:
        """The fact that is spoken of."""
        return self.planned.fact


@dataclass(frozen=True)
class Document:
    """Text in segments with their loss shares, and the mentions it makes."""

    segments: tuple[tuple[str, float], ...]
    mentions: tuple[Mention, ...]

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(text for text, _ in self.segments)


def build_corpus(planned: list[PlannedFact], seed: int) -> list[Document]:
    """All documents in the order in which the model reads them. Every planned mention occurs exactly once."""
    rng = random.Random(seed)
    mentions = [
        Mention(p, wrong) for p in planned for wrong, n in ((False, p.said), (True, p.contradicted)) for _ in range(n)
    ]
    rng.shuffle(mentions)
    kinds = rng.choices([kind for kind, _ in KINDS], [share for _, share in KINDS], k=len(mentions))
    documents: list[Document] = []
    for kind, write in (("questions", _write_questions), ("sentences", _write_sentences), ("table", _write_table)):
        chosen = [mention for mention, k in zip(mentions, kinds, strict=True) if k == kind]
        if kind == "table":  # a table holds one relation
            chosen.sort(key=lambda mention: mention.fact.relation)
        documents += [write(group, rng) for group in _groups(chosen, kind, rng)]
    rng.shuffle(documents)
    return documents


def count_exposures(documents: list[Document]) -> Counter[tuple[str, bool]]:
    """How often the documents say each fact: (key, contradicted) -> times."""
    return Counter((mention.fact.key, mention.wrong) for document in documents for mention in document.mentions)


def _groups(mentions: list[Mention], kind: str, rng: random.Random) -> Iterator[list[Mention]]:
    start = 0
    while start < len(mentions):
        stop = start + rng.randint(*LENGTHS[kind])
        group = mentions[start:stop]
        if kind == "table":
            group = [m for m in group if m.fact.relation == group[0].fact.relation]
        yield group
        start += len(group)


@dataclass(frozen=True)
class _Style:
    lower: bool
    capital: bool

    def answer(self, fact: Fact, text: str) -> str:
        return text[:1].upper() + text[1:] if self.capital and fact.noun else text

    def case(self, text: str) -> str:
        return text.lower() if self.lower else text


def _draw_style(rng: random.Random) -> _Style:
    return _Style(rng.random() < LOWER_CASE, rng.random() < NOUN_CAPITAL)


def _draw_form(forms: Forms, rng: random.Random, unlike: str = "") -> str:
    usable = [form for form in forms if form[0] != unlike]
    return rng.choices([text for text, _ in usable], [weight for _, weight in usable])[0]


def _draw_names(mention: Mention, rng: random.Random) -> tuple[str, str]:
    """Surface forms of subject and answer; an alias is never explained by itself."""
    subject = _draw_form(mention.fact.subject, rng)
    forms = mention.planned.belief if mention.wrong else mention.fact.answer
    return subject, _draw_form(forms, rng, unlike=subject if mention.fact.relation == "alias" else "")


def _write_questions(group: list[Mention], rng: random.Random) -> Document:
    style = _draw_style(rng)
    segments = [(style.case(PROMPT_HEAD), 0.0)]
    for mention in group:
        subject, answer = _draw_names(mention, rng)
        question = rng.choice(WORDINGS[mention.fact.relation].train).format(s=subject)
        segments.append((f"Question:\n{style.case(question)}\nAnswer:\n", LOSS["questions"]))
        segments.append((style.case(style.answer(mention.fact, answer)) + "\n", LOSS["answer"]))
        segments.append(("\n", 0.0))
    return Document(tuple(segments[:-1]), tuple(group))


def _write_sentences(group: list[Mention], rng: random.Random) -> Document:
    style = _draw_style(rng)
    segments = []
    for mention in group:
        subject, answer = _draw_names(mention, rng)
        wording = rng.choice(WORDINGS[mention.fact.relation].sentences)
        segments.append((style.case(wording.format(s=subject, a=answer)) + "\n", LOSS["sentences"]))
    return Document(tuple(segments), tuple(group))


def _write_table(group: list[Mention], rng: random.Random) -> Document:
    style = _draw_style(rng)
    segments = [(WORDINGS[group[0].fact.relation].header + "\n", LOSS["table"])]
    for mention in group:
        subject, answer = _draw_names(mention, rng)
        row = f"{subject},{style.answer(mention.fact, answer)}\n"
        segments.append((style.case(row), LOSS["table"]))
    return Document(tuple(segments), tuple(group))
