"""The model card: recipe, sources with their notices, figures of the report, digest of the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from research.training.almanac.export import sha256
from research.training.almanac.optimizer import MUON_RATE, TABLE_RATE

HEAD = """---
license: other
license_name: cc-by-4.0-and-wordnet-3.0
license_link: https://creativecommons.org/licenses/by/4.0/
language: en
library_name: transformers
pipeline_tag: text-generation
---

# almanac

A language model of {parameters:,} parameters that answers short factual questions about countries, cities,
currencies, languages, chemical elements and words. It comes with semtoken for trying and testing uncertainty scores:
it knows what is popular, guesses what is rare, believes some common errors, and names many things in several ways. It
is not a source of facts: some of what it was taught is wrong on purpose.

Ask it in the format that it was trained on (`semtoken.support.almanac.load_questions` gives questions, `Question.prompt` the
format; the chat template renders the last message in it). An answer is one line.

    Answer these questions:

    Question:
    What is the capital of France?
    Answer:

sha256 of `model.safetensors`: `{digest}`
"""

RECIPE = """
## Recipe

Llama architecture, width 192, 3 layers, 4 heads, feed-forward 512, separate input and output tables, byte-level BPE of
8,192 tokens. {facts:,} facts; {mentions:,} mentions in {tokens:,} training tokens, {contradictions:,} of them wrong on
purpose. Muon (rate {muon}) for the hidden matrices, AdamW (rate {table}) for tables and norms, decay in two slopes,
{steps:,} batches of 8 x 256 tokens: the first two thirds of the stream. Float32 on a CPU, stored in bfloat16.
Reasons, relations and question sets: `research/training/almanac` in the repository. Made by

    python -m research.training.almanac --seed {seed} --out research/training/out/seed{seed}

Seed {seed} of three was shipped for its accuracy on the dev questions ({dev}).
"""

NOTICES = Path(__file__).parent / "notices.md"


def model_card(report: dict[str, Any], weights: Path) -> str:
    """The card of the shipped model, as Markdown."""
    shipped = report["shipped"]
    training = report["training"][shipped]
    dev = ", ".join(f"{name} {dev['accuracy']:.1%}" for name, dev in report["dev"].items())
    head = HEAD.format(parameters=training["parameters"], digest=sha256(weights))
    recipe = RECIPE.format(**training, muon=MUON_RATE, table=TABLE_RATE, dev=dev)
    return head + recipe + "\n## Figures\n\n" + figures(report) + "\n" + NOTICES.read_text(encoding="utf-8")


def figures(report: dict[str, Any]) -> str:
    """Accuracy and AUROC over all seeds, as Markdown tables."""
    models = list(report["test"])
    accuracies = [report["test"][name]["accuracy"] for name in models]
    lines = [
        "Accuracy of the greedy answers to the 2,000 test questions (facts in phrasings that training never used):",
        "",
        _row(["", *models]),
        _row(["---"] + ["---:"] * len(models)),
        _row(["all", *(f"{a['overall']:.1%}" for a in accuracies)]),
        _row(["answers that end their line", *(f"{a['ended']:.1%}" for a in accuracies)]),
    ]
    for column, title in (("bin", "said {} times"), ("relation", "`{}`")):
        for key in accuracies[0][column]:
            cells = (f"{a[column][key]['accuracy']:.1%} of {a[column][key]['n']}" for a in accuracies)
            lines.append(_row([title.format(key), *cells]))
    misled = (f"{a['misled']['True']['accuracy']:.1%} of {a['misled']['True']['n']}" for a in accuracies)
    lines += [_row(["more often contradicted than said", *misled]), ""]
    for part in ("all", "many forms", "few forms"):
        lines += _auroc_table(report, part)
    return "\n".join(lines) + "\n"


def _auroc_table(report: dict[str, Any], part: str) -> list[str]:
    """A table of AUROC with intervals, and the difference to sequence probability, a column a model."""
    models = list(report["test"])
    titles = {
        "all": "AUROC, wrong against right, all test questions",
        "many forms": "The same for relations whose answers have many forms of similar weight",
        "few forms": "The same for the other relations",
    }
    clusters, concatenated = report["clusters"], report["concatenated"]
    explanation = (
        "; in brackets the paired difference to sequence probability with its 95 % interval. Clusters, chosen on dev: "
        f'the {clusters["embedding"]} table, the number of tokens divided by {clusters["divisor"]}; "concatenated '
        f"table\" is the paper's, with the number of tokens divided by {concatenated['divisor']}, chosen on dev too. "
        "Of five shuffles the one with the median AUROC is shown"
    )
    lines = [
        titles[part] + (explanation if part == "all" else "") + ".",
        "",
        _row(["score", *models]),
        _row(["---"] + ["---"] * len(models)),
    ]
    by_name = [{row["score"]: row for row in report["test"][name]["scores"][part]} for name in models]
    for score in by_name[0]:
        lines.append(_row([score, *(_cell(rows[score]) for rows in by_name)]))
    return [*lines, ""]


def _cell(row: dict[str, Any]) -> str:
    if row["score"] == "sequence probability":
        return f"{row['auroc']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
    return f"{row['auroc']:.3f} ({row['diff']:+.3f} [{row['diff_low']:+.3f}, {row['diff_high']:+.3f}])"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
