"""Check the bibliography and build the paper and the report as PDF.

    python research/paper/build.py            # or: make paper; writes build/paper/paper.pdf and build/paper/report.pdf
    python research/paper/build.py --check    # the bibliography, the length and the tables only

The tables of the report are made from the kept tables of the experiments, so its figures follow them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OUT = ROOT / "build" / "paper"
CITED = re.compile(r"@([a-z][a-z0-9]+)")
WORDS = (750, 1750)
"""What the journal asks for."""
NEEDED = {
    "article": {"title", "journal", "year"},
    "inproceedings": {"title", "booktitle", "year"},
    "misc": {"title", "year"},
}
JUDGES = ("exact", "second")
SETS = {
    "smollm2-nq": "SmolLM2, NQ",
    "smollm2-wq": "SmolLM2, WQ",
    "smollm2-tqa": "SmolLM2, TriviaQA",
    "gemma3-nq": "Gemma, NQ",
    "gemma3-wq": "Gemma, WQ",
}

RULES = {"probability": "probability", "default": "default", "paper_without_clusters": "paper, no clusters"}
CLUSTERED = RULES | {"paper": "paper", "paper, shuffled": "paper, shuffled"}
"""Rules by their columns."""
LARGER = {
    "qwen1.5b-nq": "NQ",
    "qwen1.5b-wq": "WQ",
    "qwen1.5b-chat": "chat, first half",
    "qwen1.5b-chat-new": "chat, second half",
}
TABLES_DO_NOT_STRETCH = "#show table: set par(justify: false)"
SAID = {"exact": "exact match", "close_no_echo": "lenient judge", "contains": "contains"}


def body(text: str) -> str:
    """A page without its head."""
    return text.split("---\n", 2)[2]


def problems_of_bibliography(entries: dict[str, tuple[str, set[str]]], texts: Iterable[str]) -> list[str]:
    """What is wrong with a bibliography: entries as key -> (type, fields), and the texts that cite it."""
    cited = {key for text in texts for key in CITED.findall(body(text))}
    found = [f"{key} is cited and not in paper.bib" for key in sorted(cited - entries.keys())]
    found += [f"{key} is in paper.bib and nowhere cited" for key in sorted(entries.keys() - cited)]
    for key, (kind, fields) in sorted(entries.items()):
        missing = NEEDED.get(kind, {"title", "year"}) | {"author"}
        found += [f"{key} has no {name}" for name in sorted(missing - fields)]
        if not fields & {"doi", "url"}:
            found.append(f"{key} has neither a DOI nor an address")
    return found


def bibliography() -> dict[str, tuple[str, set[str]]]:
    """The entries of paper.bib, read by pybtex."""
    from pybtex.database import parse_file

    entries = parse_file(str(HERE / "paper.bib")).entries
    return {key: (one.type, {*one.fields} | {*one.persons}) for key, one in entries.items()}


def interval(row: pd.Series, name: str) -> str:
    """A difference with its interval."""
    if pd.isna(row[name]):
        sys.exit(f"The tables hold no {name} for {row.name}.")
    said = f"{row[name]:+.3f} [{row[f'{name}_low']:+.3f}, {row[f'{name}_high']:+.3f}]"
    return said.replace(" ", "\N{NO-BREAK SPACE}")


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    widths = [max(11, *(len(row[column]) + 3 for row in rows)) for column in range(len(head))]
    dashes = [":" + "-" * width for width in [widths[0] + 4, *widths[1:]]]  # pandoc makes columns as wide as these
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, dashes, *rows])


def table(rule: str, difference: str) -> str:
    """One rule on every set, by the two judges that were fixed in advance."""
    frame = pd.read_csv(ROOT / "research" / "experiments" / "default_rule" / "tables.csv").set_index(
        ["set", "judge", "rule"]
    )
    rows = []
    for name, said in SETS.items():
        exact = frame.loc[name, "exact", rule]
        counts = f"{int(exact['answers']):,}, {int(exact['right_answers'])}"
        rows.append([said, counts, *(interval(frame.loc[name, judge, rule], difference) for judge in JUDGES)])
    return markdown(["", "answers, right", "exact match", "lenient judge"], rows)


def larger(file: str, rules: dict[str, str]) -> str:
    """The model of 1.5 billion parameters: the AUROC of some rules on every set of a kept table, by every judge."""
    frame = pd.read_csv(ROOT / "research" / "experiments" / "headline" / file)
    rows = []
    for name, said in LARGER.items():
        of_set = frame[frame["set"] == name]
        for judge in (one for one in SAID if one in of_set["judge"].to_numpy()):
            part = of_set[of_set["judge"] == judge]
            found = part.set_index("candidate")["auroc"]
            counts = f"{int(part['answers'].iloc[0]):,}, {int(part['right'].iloc[0])}"
            rows.append([f"{said}, {SAID[judge]}", counts, *(f"{found[rule]:.3f}" for rule in rules)])
    return markdown(["", "answers, right", *rules.values()], rows)


def larger_shuffled() -> str:
    """The clusters of the larger model against their shuffles."""
    frame = pd.read_csv(ROOT / "research" / "experiments" / "headline" / "clusters.csv").set_index(["set", "judge"])
    frame = frame[frame["candidate"] == "paper"].rename(
        columns=lambda name: name.replace("minus_paper_shuffled", "shuffled")
    )
    rows = [
        [
            f"{LARGER[name]}, {SAID[judge]}",
            interval(row, "shuffled"),
            interval(row, "minus_probability"),
        ]
        for (name, judge), row in frame.iterrows()
    ]
    return markdown(["", "the paper's rules minus their shuffle", "minus probability"], rows)


def report() -> str:
    """The report with its tables."""
    text = (HERE / "report.md").read_text("utf-8")
    filled = {
        "shuffled": table("clusters, beginnings", "minus_shuffled"),
        "paper-shuffled": table("paper", "minus_shuffled"),
        "paper": table("paper", "minus_probability"),
        "larger": larger("tables.csv", RULES),
        "larger-clustered": larger("clusters.csv", CLUSTERED),
        "larger-shuffled": larger_shuffled(),
    }
    for name, value in filled.items():
        if text.count(f"{{{{{name}}}}}") != 1:
            sys.exit(f"report.md has to name {{{{{name}}}}} once.")
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def write_pdf(name: str, text: str) -> None:
    """A PDF by pandoc and typst."""
    import pypandoc
    import typst

    made = pypandoc.convert_text(
        text,
        "typst",
        format="markdown-implicit_figures",
        extra_args=[
            "--standalone",
            "--citeproc",
            "-Mauthor=The semtoken developers",
            f"-Vheader-includes={TABLES_DO_NOT_STRETCH}",
            f"--resource-path={HERE}",
            f"--bibliography={HERE / 'paper.bib'}",
        ],
    )
    source = OUT / f"{name}.typ"
    source.write_text(made, "utf-8")
    typst.compile(str(source), output=str(OUT / f"{name}.pdf"))
    print(f"build/paper/{name}.pdf")


def main() -> None:
    """The command."""
    paper, filled = (HERE / "paper.md").read_text("utf-8"), report()
    found = problems_of_bibliography(bibliography(), [paper, filled])
    words = len(body(paper).split())
    if not WORDS[0] <= words <= WORDS[1]:
        found.append(f"paper.md has {words:,} words; the journal asks for {WORDS[0]} to {WORDS[1]:,}")
    if found:
        sys.exit("\n".join(found))
    print(f"The bibliography is in order; paper.md has {words:,} words.")
    if "--check" not in sys.argv:
        OUT.mkdir(parents=True, exist_ok=True)
        write_pdf("paper", paper)
        write_pdf("report", filled)


if __name__ == "__main__":
    main()
