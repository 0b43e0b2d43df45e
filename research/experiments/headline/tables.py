"""AUROC of every candidate on every set by every judge, with paired intervals, and what PROTOCOL.md's rules make of them.

    python research/experiments/headline/tables.py [--csv tables.csv]

reads `scores/MODEL-SET.parquet`, which `score.py` wrote. 95 % percentile intervals of a bootstrap over questions, 2,000 resamples.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

HERE = Path(__file__).parent
SHORT_JUDGES, CHAT_JUDGES = ("exact", "close_no_echo"), ("contains",)
SIMPLEST_FIRST = (
    *("probability", "mean_log_prob", "weakest_token", "root_length"),
    *("mean_token_entropy", "max_token_entropy", "first_entropy", "window_entropy", "epr"),
    *("surprise_and_peak", "mean_and_weakest", "mean_surprise_and_peak"),
    *("default", "surface", "paper_without_clusters", "function_words", "paper"),
    *("trace", "self_certainty", "lowest_group_confidence", "first_content_entropy"),
    *("weakest_phrase", "mean_phrase", "mean_new_word", "weakest_new_word"),
    *("mean_and_weakest_word", "word_and_phrase", "word_and_token", "word_and_mean", "phrase_and_mean"),
    "rauq",
)
REPORTED = ("mean_new_word_else_last", "phrase_and_mean_else_last", "length")
"""Shown and used by no rule. `else_last`: answers without a new word have the largest number."""
DEVELOPMENT = ("tqa",)
CHAT = ("-chat", "-chat-new")
CHOOSING, FURTHER = "qwen1.5b-chat", "qwen1.5b-chat-new"
"""The chat answers that chose the headline by PROTOCOL.md, and those that PROTOCOL-2.md asks about it."""
TOGETHER = "-chat-all"
"""Both chat sets of a model as one; PROTOCOL-2.md has it reported and lets it decide nothing."""
ENOUGH = 150
RESAMPLES = 2000
MARGIN, TIE = 0.005, 0.002
Floats = npt.NDArray[np.float64]


def counts_of_resamples(n: int, random: np.random.Generator | None = None) -> Floats:
    """[1 + resamples, n] how often each answer is drawn; the first row is the sample itself.

    Without `random` the draws are those of seed 0. Several sets that are compared together share a generator.
    """
    drawn = (random or np.random.default_rng(0)).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    return np.concatenate([np.ones((1, n)), drawn])


def aurocs(scores: Floats, right: npt.NDArray[np.bool_], counts: Floats) -> Floats:
    """AUROC for wrong answers in every resample, by sorting: half a win for a tie."""
    values, place = np.unique(scores, return_inverse=True)
    rows = len(counts)
    good, bad = np.zeros((rows, len(values))), np.zeros((rows, len(values)))
    for cells, chosen in ((good, right), (bad, ~right)):
        order = np.argsort(place[chosen], kind="stable")
        held = place[chosen][order]
        starts = np.flatnonzero(np.diff(held, prepend=-1))
        cells[:, held[starts]] = np.add.reduceat(counts[:, chosen][:, order], starts, axis=1)
    below = np.cumsum(good, axis=1) - good / 2
    return np.asarray((below * bad).sum(1) / (good.sum(1) * bad.sum(1)))


def interval(values: Floats) -> tuple[float, float, float]:
    """The value of the sample and the ends of its interval."""
    low, high = np.nanpercentile(values[1:], [2.5, 97.5])
    return float(values[0]), float(low), float(high)


def cell(scores: pd.DataFrame, judge: str, references: Sequence[str]) -> pd.DataFrame:
    """A line for each candidate on one set by one judge, with its differences to the references."""
    right = scores[judge].to_numpy(bool)
    counts = counts_of_resamples(len(scores))
    names = [name for name in (*SIMPLEST_FIRST, *REPORTED) if name in scores]
    names += [name for name in scores if " ~ shuffle " in name]
    found = {name: aurocs(scores[name].to_numpy(float), right, counts) for name in names}
    shuffled = [values for name, values in found.items() if " ~ shuffle " in name]
    if shuffled:
        found["paper, shuffled"] = np.mean(shuffled, axis=0)
    lines = []
    for name in (name for name in found if " ~ shuffle " not in name):
        line: dict[str, object] = {"candidate": name}
        line |= dict(zip(("auroc", "low", "high"), interval(found[name]), strict=True))
        for reference in (reference for reference in references if reference in found):
            key = "minus_" + reference.replace(", ", "_")
            ends = interval(found[name] - found[reference])
            line |= dict(zip((key, f"{key}_low", f"{key}_high"), ends, strict=True))
        lines.append(line)
    return pd.DataFrame(lines).assign(judge=judge, answers=len(scores), right=int(right.sum()))


def every_table(folder: Path) -> pd.DataFrame:
    """All cells of all sets."""
    tables = []
    for name, scores in every_set(folder).items():
        chat = name.endswith((*CHAT, TOGETHER))
        references = ["probability", "default", "paper_without_clusters", "paper, shuffled"]
        references += ["mean_new_word", "weakest_phrase", *(["phrase_and_mean"] if chat else [])]
        for judge in CHAT_JUDGES if chat else SHORT_JUDGES:
            tables.append(cell(scores, judge, references).assign(set=name, chat=chat))
    found = pd.concat(tables, ignore_index=True)
    enough = (found["right"] >= ENOUGH) & (found["answers"] - found["right"] >= ENOUGH)
    return found.assign(decides=enough & ~found["set"].str.endswith((*DEVELOPMENT, TOGETHER)))


def every_set(folder: Path) -> dict[str, pd.DataFrame]:
    """The answers of each set by the set's name; then both chat sets of a model as one, where there are two."""
    found = {path.stem: pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))}
    for name in [name for name in found if name.endswith(CHAT)]:
        scores = found[name]
        last = scores.phrase_and_mean.where(~scores.no_new_word, 1e6)
        found[name] = scores.assign(phrase_and_mean_else_last=last)
    for name in [name for name in found if name.endswith(CHAT[1])]:
        model = name.removesuffix(CHAT[1])
        if (first := model + CHAT[0]) in found:
            found[model + TOGETHER] = pd.concat([found[first], found[name]], ignore_index=True)
    return found


# ---- the rules of decision --------------------------------------------------------------------------------------


def replaces(lines: pd.DataFrame, beaten: Sequence[str], needed: int) -> bool:
    """Not worse than any of `beaten` in any deciding cell, and better than one of them on `needed` sets.

    `lines` are those of one candidate in the deciding cells.
    """
    lows = pd.DataFrame({name: lines[f"minus_{name}_low"] for name in beaten})
    better = lines["set"][(lows > 0).any(axis=1)].nunique()
    return bool((lows > -MARGIN).all(axis=None) and better >= needed)


def simplest_of_the_best(gains: dict[str, float]) -> str:
    """The one with the highest gain; of those within .002 of it the simplest."""
    best = max(gains.values())
    return next(name for name in SIMPLEST_FIRST if gains.get(name, -np.inf) >= best - TIE)


def short_headline(table: pd.DataFrame) -> tuple[str, list[str]]:
    """What the rule for short answers says, and which candidates met it."""
    deciding = table[table.decides & ~table.chat]
    met = {}
    for name in SIMPLEST_FIRST:
        lines = deciding[deciding.candidate == name]
        if name != "default" and len(lines) and replaces(lines, ["default"], 2):
            met[name] = float(lines["minus_default"].mean())
    return (simplest_of_the_best(met) if met else "default"), list(met)


def chat_headline(table: pd.DataFrame, sets: Sequence[str] | None = None) -> tuple[str, list[str]]:
    """What PROTOCOL.md's rule for chat answers says, and which candidates met the condition for replacing the two.

    On these sets, or on all that decide: PROTOCOL-3.md applies the rule to those that came later, too.
    """
    deciding = table[table.decides & table.chat & (table["set"].isin(sets) if sets else True)]
    needed = min(2, deciding["set"].nunique())
    lines = {name: deciding[deciding.candidate == name] for name in SIMPLEST_FIRST}
    lines = {name: rows for name, rows in lines.items() if len(rows)}
    met = {
        name: float(rows["auroc"].mean())
        for name, rows in lines.items()
        if name not in ("mean_new_word", "weakest_phrase")
        and replaces(rows, ["mean_new_word", "weakest_phrase"], needed)
        and (rows["minus_probability_low"] > 0).all()
    }
    return (simplest_of_the_best(met) if met else _of_the_two(lines)), list(met)


def confirmation(table: pd.DataFrame, headline: str, name: str = FURTHER) -> dict[str, str]:
    """PROTOCOL-2.md: what further chat answers say of the headline beside each reference."""
    line = table[(table["set"] == name) & (table.candidate == headline)].iloc[0]
    verdicts = {}
    for reference in ("probability", "mean_new_word", "weakest_phrase"):
        low, high = line[f"minus_{reference}_low"], line[f"minus_{reference}_high"]
        verdict = "confirmed" if low > 0 else "contradicted" if high < 0 else "not shown"
        verdicts[reference] = f"{shown(line, f'minus_{reference}')}: {verdict}"
    return verdicts


def against_the_one_in_use(table: pd.DataFrame, named: str, in_use: str) -> pd.DataFrame:
    """The cells in which a number that a rule names stands beside the one in use, with whether it may replace it there.

    PROTOCOL-3.md for chat answers, where the cells that decide count, and PROTOCOL-4.md for short ones, where those
    with 30 right answers count.
    """
    lines = table[
        (table.candidate == named)
        & (table.chat == (in_use == "phrase_and_mean"))
        & ~table["set"].str.endswith((*DEVELOPMENT, TOGETHER))
    ]
    lines = lines[lines.decides | (~lines.chat & (lines.right >= 30))]
    return lines.assign(may_replace=lines[f"minus_{in_use}_low"] > -MARGIN)


def _of_the_two(lines: dict[str, pd.DataFrame]) -> str:
    """The better one of mean new word and weakest phrase that is not worse than probability anywhere, if one is."""
    word, phrase = (float(lines[name]["auroc"].mean()) for name in ("mean_new_word", "weakest_phrase"))
    order = ["mean_new_word", "weakest_phrase"] if word >= phrase + TIE else ["weakest_phrase", "mean_new_word"]
    for name in order:
        rows = lines[name]
        if (rows["minus_probability_high"] >= 0).all() and (rows["minus_probability_low"] > 0).any():
            return name
    return "mean_log_prob"


def without_new_words(folder: Path, table: pd.DataFrame) -> dict[str, float]:
    """Share of right ones among answers without a new word, and among the riskiest fifth of the others."""
    names = table[table.decides & table.chat]["set"].unique()
    answers = pd.concat([pd.read_parquet(folder / f"{name}.parquet") for name in names])
    nothing, others = answers[answers.no_new_word], answers[~answers.no_new_word]
    riskiest = others[others.mean_new_word >= others.mean_new_word.quantile(0.8)]
    return {
        "answers": len(nothing),
        "right": int(nothing.contains.sum()),
        "share": float(nothing.contains.mean()),
        "share_of_riskiest_fifth": float(riskiest.contains.mean()),
    }


def shown(line: pd.Series, column: str) -> str:
    """A difference with its interval, as it stands in the docs."""
    if column not in line or pd.isna(line[column]):
        return ""
    return f"{line[column]:+.3f} [{line[column + '_low']:+.3f}, {line[column + '_high']:+.3f}]"


def report(title: str, named: str, met: list[str], table: pd.DataFrame, in_use: str) -> None:
    """What a rule says on all deciding sets, and whether the number that it names may replace the one in use."""
    print(f"\n{title}, all deciding sets: {named}; met the rule: {met}; in use: {in_use}")
    if named != in_use:
        for _, line in against_the_one_in_use(table, named, in_use).iterrows():
            verdict = "may replace it" if line.may_replace else "may not replace it"
            print(f"  {line['set']}, {line.judge}: {shown(line, f'minus_{in_use}')}, {verdict}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, default=HERE / "scores")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    table = every_table(options.scores)
    for (name, judge), lines in table.groupby(["set", "judge"], sort=False):
        first = lines.iloc[0]
        decides = "decides" if first.decides else "decides nothing"
        print(f"\n{name}, {judge}: {first.answers:,} answers, {first.right} right; {decides}\n")
        columns = ["minus_probability", "minus_default"]
        columns += ["minus_mean_new_word", "minus_weakest_phrase"] if first.chat else []
        print(f"| candidate | AUROC | {' | '.join(column.replace('_', ' ') for column in columns)} |")
        print("| --- | --- |" + " --- |" * len(columns))
        for _, line in lines.iterrows():
            differences = " | ".join(shown(line, column) for column in columns)
            print(f"| {line.candidate} | {line.auroc:.3f} | {differences} |")
    if (table.decides & ~table.chat).any():
        report("short answers", *short_headline(table), table, "default")
    if (table.decides & table.chat).any():
        chosen, met = chat_headline(table, [CHOOSING])
        print(f"chat answers, {CHOOSING} alone: {chosen}; met the rule: {met}")
        if (table["set"] == FURTHER).any():
            print(f"{chosen} on {FURTHER}: {confirmation(table, chosen)}")
        report("chat answers", *chat_headline(table), table, chosen)
        print("answers without a new word:", without_new_words(options.scores, table))
    if options.csv:
        table.round(5).to_csv(options.csv, index=False)


if __name__ == "__main__":
    main()
