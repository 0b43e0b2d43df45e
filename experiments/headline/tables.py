"""AUROC of every candidate on every set by every judge, with paired intervals, and what PROTOCOL.md's rules make of them.

    python experiments/headline/tables.py [--csv tables.csv]

reads `scores/MODEL-SET.parquet`, which `score.py` wrote. 95 % percentile intervals of a bootstrap over questions, 2,000 resamples.
"""  # noqa: E501

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
REPORTED = ("mean_new_word_else_last", "length")
"""Shown and used by no rule."""
DEVELOPMENT = ("tqa",)
CHAT = ("-chat", "-chat-new")
TOGETHER = "-chat-all"
"""Both chat sets of a model as one; PROTOCOL-2.md has it reported and lets it decide nothing."""
ENOUGH = 150
RESAMPLES = 2000
MARGIN, TIE = 0.005, 0.002
Floats = npt.NDArray[np.float64]


def counts_of_resamples(n: int) -> Floats:
    """[1 + resamples, n] how often each answer is drawn; the first row is the sample itself."""
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
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
        references += ["mean_new_word", "weakest_phrase"]
        for judge in CHAT_JUDGES if chat else SHORT_JUDGES:
            tables.append(cell(scores, judge, references).assign(set=name, chat=chat))
    found = pd.concat(tables, ignore_index=True)
    enough = (found["right"] >= ENOUGH) & (found["answers"] - found["right"] >= ENOUGH)
    return found.assign(decides=enough & ~found["set"].str.endswith((*DEVELOPMENT, TOGETHER)))


def every_set(folder: Path) -> dict[str, pd.DataFrame]:
    """The answers of each set by the set's name; then both chat sets of a model as one, where there are two."""
    found = {path.stem: pd.read_parquet(path) for path in sorted(folder.glob("*.parquet"))}
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


def chat_headline(table: pd.DataFrame) -> tuple[str, list[str]]:
    """What the rule for chat answers says, and which candidates met the condition for replacing the two in place.

    By PROTOCOL.md, on the sets that were there then: what CHAT[1] says is the business of PROTOCOL-2.md.
    """
    deciding = table[table.decides & table.chat & ~table["set"].str.endswith(CHAT[1])]
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


def confirmation(table: pd.DataFrame, headline: str) -> dict[str, str]:
    """PROTOCOL-2.md: what the further chat answers say of the headline beside each reference."""
    lines = table[table["set"].str.endswith(CHAT[1]) & table.decides & (table.candidate == headline)]
    if lines.empty:
        return {}
    line, verdicts = lines.iloc[0], {}
    for name in ("probability", "mean_new_word", "weakest_phrase"):
        low, high = line[f"minus_{name}_low"], line[f"minus_{name}_high"]
        verdict = "confirmed" if low > 0 else "contradicted" if high < 0 else "not shown"
        verdicts[name] = f"{shown(line, f'minus_{name}')}: {verdict}"
    return verdicts


def on_both_chat_sets(table: pd.DataFrame) -> list[str]:
    """PROTOCOL-2.md: the candidates that meet the first protocol's rule for chat answers on both sets."""
    deciding = table[table.decides & table.chat]
    met = []
    for name in SIMPLEST_FIRST:
        lines = deciding[deciding.candidate == name]
        if (
            name not in ("mean_new_word", "weakest_phrase")
            and len(lines)
            and replaces(lines, ["mean_new_word", "weakest_phrase"], 2)
            and (lines["minus_probability_low"] > 0).all()
        ):
            met.append(name)
    return met


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
        print("\nshort answers: {}; met the rule: {}".format(*short_headline(table)))
    if (table.decides & table.chat).any():
        print("chat answers: {}; met the rule: {}".format(*chat_headline(table)))
        print("further chat answers:", confirmation(table, chat_headline(table)[0]))
        print("met the rule on both chat sets:", on_both_chat_sets(table))
        print("answers without a new word:", without_new_words(options.scores, table))
    if options.csv:
        table.round(5).to_csv(options.csv, index=False)


if __name__ == "__main__":
    main()
