"""The figures of the experiments: their AUROC agrees with scikit-learn's, and the page shows what the tables hold."""

from __future__ import annotations

import csv
import importlib
import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semtoken.core.parts.newness import new_phrases

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "research" / "experiments"
pandas = pytest.importorskip("pandas")
auroc = pytest.importorskip("sklearn.metrics").roc_auc_score


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def sentences_of(page: str) -> str:
    """A page without the ends of its lines."""
    return " ".join(text_of(page).split())


def readme(experiment: str) -> str:
    """The page of an experiment."""
    return f"research/experiments/{experiment}/README.md"


def rows_in(text: str) -> list[list[str]]:
    """The cells of all rows of tables."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in lines]


def tables_of(experiment: str) -> types.ModuleType:
    """The program that makes an experiment's tables."""
    return importlib.import_module(f"research.experiments.{experiment}.tables")


def test_auroc_of_resamples_is_scikit_learns_weighted_one() -> None:
    tables = tables_of("default_rule")
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 12, 60).astype(float)  # many ties
    right = rng.random(60) < 0.3
    counts = rng.multinomial(60, np.full(60, 1 / 60), size=8).astype(float)
    found = tables.aurocs(scores, right, counts)
    for row, value in zip(counts, found, strict=True):
        assert value == pytest.approx(auroc(~right, scores, sample_weight=row))


# ---- the page says what the tables say --------------------------------------------------------------------------

SETS = ("smollm2-nq", "smollm2-wq", "gemma3-nq", "gemma3-wq")
RULES = {
    "sequence probability": "probability",
    "`default`": "default",
    "equality `surface` as it was then": "surface",
    "`surface`": "surface",
    "beginnings from 1 character": "beginnings",
    "clusters and beginnings": "clusters, beginnings",
    "preset `paper`": "paper",
    "`paper`": "paper",
    "`paper` without clusters": "paper without clusters",
    "perplexity": "perplexity",
    "weakest token": "weakest token",
}
REFERENCES = {
    "to sequence probability": "minus_probability",
    "to its own shuffle": "minus_shuffled",
    "to `paper`": "minus_paper",
    "to `paper` without clusters": "minus_paper_without_clusters",
}


def page_table(heading: str, first: str, page: str = "docs/results.md") -> list[list[str]]:
    """Cells of the first table below a heading of a page that has a row beginning so, its header left out."""
    _, found, below = text_of(page).partition(f"# {heading}\n")
    assert found, heading
    for block in below.split("\n\n"):
        rows = rows_in(block)
        if any(row and row[0].startswith(first) for row in rows):
            return rows[2:]
    raise AssertionError(f"no table with {first!r} below {heading!r}")


def shown(cell: str, line: dict[str, str] | None, columns: tuple[str, ...], *, signed: bool) -> None:
    """Fails unless a cell of the page shows these columns of a line of the CSV file."""
    if line is None or not line[columns[0]]:
        assert cell in ("", "not measured"), f"{cell} has no figure behind it"
        return
    assert cell != "not measured", f"{line} was measured"
    for text, column in zip(re.findall(r"[-+]?\d+\.\d+", cell), columns, strict=False):
        assert float(text) == pytest.approx(float(line[column]), abs=0.00051), (cell, line)
        assert text[0] in "+-" or not signed or float(text) == 0


def lines_of(path: str) -> list[dict[str, str]]:
    with (FOLDER / path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_confirmation_is_that_of_the_scores() -> None:
    lines = {(line["set"], line["judge"], line["rule"]): line for line in lines_of("default_rule/tables.csv")}
    for name, *cells in page_table("Confirmation", "sequence probability"):
        if name.startswith("answers"):
            for cell, chosen in zip(cells, SETS, strict=True):
                line = lines[chosen, "exact", "probability"]
                assert cell == f"{int(line['answers']):,}, {line['right_answers']}"
            continue
        rule = RULES[name.partition(", no function")[0].partition(":")[0].strip("* ")]
        for cell, chosen in zip(cells, SETS, strict=True):
            shown(cell, lines.get((chosen, "exact", rule)), ("auroc",), signed=False)
    for name, *cells in page_table("Confirmation", "to sequence probability"):
        reference, _, judge = name.partition(", ")
        column = REFERENCES[reference]
        for cell, chosen in zip(cells, SETS, strict=True):
            line = lines[chosen, "second" if judge else "exact", "default"]
            shown(cell, line, (column, f"{column}_low", f"{column}_high"), signed=True)


def test_clusters_beside_shuffled_ones_are_those_of_the_scores() -> None:
    """The experiment's table, and the page's count of sets on which clusters are worse."""
    lines = {(x["set"], x["judge"], x["rule"]): x for x in lines_of("default_rule/tables.csv")}
    sets = {"SmolLM2, NQ": "smollm2-nq", "SmolLM2, WQ": "smollm2-wq", "SmolLM2, TriviaQA": "smollm2-tqa",
            "Gemma, NQ": "gemma3-nq", "Gemma, WQ": "gemma3-wq"}  # fmt: skip
    columns = [(column, judge) for column in ("minus_shuffled", "minus_probability") for judge in ("exact", "second")]
    table = page_table("Clusters beside shuffled ones", "SmolLM2, NQ", readme("default_rule"))
    for name, *cells in table:
        for cell, (column, judge) in zip(cells, columns, strict=True):
            line = lines[sets[name], judge, "clusters, beginnings"]
            shown(cell, line, (column, f"{column}_low", f"{column}_high"), signed=True)
    highs = [float(lines[name, "exact", "clusters, beginnings"]["minus_shuffled_high"]) for name in sets.values()]
    page = text_of("docs/results.md")
    assert len(table) == 5 and sum(high < 0 for high in highs) == 3
    assert "Clusters are worse than shuffled ones on three of five sets" in page


def test_triviaqa_is_that_of_the_scores() -> None:
    every = lines_of("default_rule/tables.csv")
    lines = {line["rule"]: line for line in every if line["set"] == "smollm2-tqa" and line["judge"] == "exact"}
    for name, own, probability, shuffle in page_table("TriviaQA", "sequence probability", readme("default_rule")):
        line = lines[RULES[name]]
        shown(own, line, ("auroc",), signed=False)
        for cell, column in ((probability, "minus_probability"), (shuffle, "minus_shuffled")):
            if cell:
                shown(cell, line, (column, f"{column}_low", f"{column}_high"), signed=True)


def test_the_contrast_table_is_that_of_the_runs() -> None:
    found = [
        {line["score"].split()[0]: line for line in lines_of(f"contrast/{name}.csv")} for name in ("smollm2", "gemma3")
    ]
    names = {"probability": "probability", "`default`": "default", "equality `surface`, as it was then": "surface"}
    for name, *cells in page_table("Results", "probability", readme("contrast")):
        score = names.get(name, "paper")
        for model, (accuracy, difference) in zip(found, (cells[:2], cells[2:]), strict=True):
            shown(accuracy, model[score], ("accuracy", "low", "high"), signed=False)
            if difference:
                shown(difference, model[score], ("minus_probability", "minus_low", "minus_high"), signed=True)


def test_the_table_of_long_answers_is_that_of_the_views() -> None:
    lines = {line["view"]: line for line in lines_of("long_answers/tables.csv")}
    for name, own, difference in page_table("Long answers", "product, probability"):
        line = lines[name.replace("`", "").replace(" of the tokens", "")]
        shown(own, line, ("auroc", "low", "high"), signed=False)
        if difference:
            shown(difference, line, ("minus_product", "minus_low", "minus_high"), signed=True)


# ---- nine methods and their controls ----------------------------------------------------------------------------

METHODS = {
    "sequence probability": "Sequence probability",
    "perplexity": "Perplexity",
    "predictive entropy": "Predictive entropy",
    "predictive entropy, five samples": "Predictive entropy",
    "its length-normalized form": "LN entropy",
    "EigenScore": "EigenScore",
    "EigenScore, five samples": "EigenScore",
    "P(True)": "P(True)",
    "P(True), asked of the model itself": "P(True)",
    "`paper`": "STC",
    "STC, preset `paper`": "STC",
    "`default`": "STC, preset default",
    "STC, preset `default`": "STC, preset default",
    "`paper` without clusters": "STC without clusters",
    "`paper` without function words": "STC without function words",
    "prefixes only": "Prefixes only",
    "clusters only": "Clusters only",
    "function words only": "Function words only",
    "`paper`, clusters shuffled within frequency": "Shuffled within frequency bins",
    "its shuffle": "Shuffled within frequency bins",
    "row means": "Cluster sizes only (row means)",
}
MODELS = {"SmolLM2": "SmolLM2", "Gemma": "Gemma 3 270M"}
DATASETS = {"NQ": "NQ", "TriviaQA": "TQA", "WQ": "WQ"}


def cells_of_the_page() -> list[tuple[str, str]]:
    """Model and data set of each column."""
    page = text_of("docs/results.md")
    _, _, below = page.partition("# Methods that sample\n")
    header = next(line for line in below.splitlines() if line.startswith("| | "))
    pairs = [cell.strip().split(", ") for cell in header.split("|")[2:-1]]
    return [(MODELS[model], DATASETS[dataset]) for model, dataset in pairs]


def test_the_methods_are_those_of_the_report() -> None:
    figures = {
        (line["model"], line["dataset"], line["setting"]): line
        for line in lines_of("methods/figures.csv")
        if line["metric"] == "AUROC" and line["table"] in ("comparison", "control")
    }
    tests = {
        (line["model"], line["dataset"], line["setting"], line["against"].removeprefix("best: ")): line
        for line in lines_of("methods/tests.csv")
        if line["metric"] == "AUROC" and line["table"] in ("comparison", "control")
    }
    columns = cells_of_the_page()
    answers = pandas.read_parquet(FOLDER / "methods" / "answers.parquet").set_index(["model", "dataset"]).sort_index()
    experiment = readme("methods")
    table = page_table("Methods that sample", "sequence probability")
    for name, *cells in table + page_table("Controls", "prefixes only", experiment):
        for cell, column in zip(cells, columns, strict=True):
            if name.startswith("answers"):
                right = answers.loc[column]["judge:exact"]
                assert cell == f"{len(right):,}, {int(right.sum())}"
            else:
                shown(cell, figures[(*column, METHODS[name])], ("value",), signed=False)
    for name, *cells in page_table("Differences", "perplexity to", experiment):
        setting, _, against = name.partition(" to ")
        for cell, column in zip(cells, columns, strict=True):
            line = tests.get((*column, METHODS[setting], METHODS[against]))
            shown(cell, line, ("difference", "low", "high"), signed=True)


def test_the_report_of_the_methods_is_that_of_their_answers() -> None:
    answers = pandas.read_parquet(FOLDER / "methods" / "answers.parquet")
    for (model, dataset), part in answers.groupby(["model", "dataset"]):
        for line in lines_of("methods/figures.csv"):
            if (line["model"], line["dataset"], line["metric"]) != (model, dataset, "AUROC"):
                continue
            column = {"STC": "stc", "Sequence probability": "sequence_probability", "P(True)": "p_true"}.get(
                line["setting"], line["setting"].lower().replace(" ", "_")
            )
            if line["table"] == "comparison":
                found = auroc(part["judge:exact"] == 0, part[f"method:{column}"])
                assert found == pytest.approx(float(line["value"]), abs=1e-12), (model, dataset, column)


def test_the_gains_on_the_embedded_model_are_those_of_its_answers() -> None:
    """The page's differences of AUROC, computed by scikit-learn from the scores of every answer."""
    answers = pandas.read_parquet(FOLDER / "almanac" / "answers.parquet")
    page = sentences_of(readme("almanac"))

    def gains(models: str, against: str) -> list[str]:
        found = []
        for name in ("seed0", "shipped", "seed2"):
            part = answers[answers.model == name + models]
            wrong = part["judge:exact"] < 1
            others = [column for column in part if column.partition(".")[0] == against]
            of_others = np.mean([auroc(wrong, part[column]) for column in others])
            found.append(f"{auroc(wrong, part['method:stc']) - of_others:+.3f}")
        return found

    for models, against, before in (
        ("", "method:sequence_probability", "STC (preset `paper`) gains "),
        ("", "control:shuffled", "over the whole vocabulary STC gains "),
        ("", "control:shuffled_by_frequency", "over shuffles within bins of frequency "),
        ("", "control:shuffled_largest_kept", "over shuffles that leave the largest cluster alone "),
        ("", "control:no_clusters", "over STC without clusters "),
        ("-concatenated", "method:sequence_probability", "level with sequence probability: "),
        ("-concatenated", "control:shuffled_by_frequency", "either: within bins of frequency "),
    ):
        said = re.sub(r"\[.*?\]", "", page.partition(before)[2])
        assert re.findall(r"[+-]\d\.\d{3}", said)[:3] == gains(models, against), before


def test_the_table_of_thresholds_is_that_of_the_scores() -> None:
    """docs/choosing.md, computed from the scores by counting and by SciPy."""
    spearmanr = pytest.importorskip("scipy.stats").spearmanr
    page = text_of("docs/choosing.md")
    names = {"SmolLM2": "smollm2", "Gemma": "gemma3", "NQ": "nq", "WQ": "wq", "TriviaQA": "tqa"}
    seen, correlations = 0, []
    for title, *cells in rows_in(page):
        parts = [names.get(part) for part in title.split(", ")]
        if title.startswith("embedded model"):
            path = FOLDER / "calibration" / "scores" / "almanac-test.parquet"
        elif None in parts or len(parts) != 2:
            continue
        else:
            folder = "calibration" if parts == ["gemma3", "tqa"] else "default_rule"
            path = FOLDER / folder / "scores" / f"{parts[0]}-{parts[1]}.parquet"
        scores = pandas.read_parquet(path)
        surest = np.sort(scores["default"])
        if "probability" in scores:
            correlations.append(spearmanr(scores["default"], scores["probability"]).statistic)
        expected = [100 * scores["right"].mean()]
        for limit, counted in ((0.5, cells[2]), (0.9, cells[4])):
            accepted = int(np.searchsorted(surest, -np.log1p(-limit), side="right"))
            expected.append(100 * accepted / len(scores))
            n_right = int(scores["right"][scores["default"] <= -np.log1p(-limit)].sum())
            assert counted.replace(",", "") == f"{n_right} of {accepted}", title
        shares = [float(cells[k].removesuffix("%")) for k in (0, 1, 3)]
        assert shares == pytest.approx(expected, abs=0.051), title
        seen += 1
    assert "rank correlation is 0.996 or more on six sets" in " ".join(page.split())
    assert seen == 7 and len(correlations) == 6 and min(correlations) >= 0.9955


# ---- the number on top ------------------------------------------------------------------------------------------


def test_the_tables_of_the_headline_are_those_of_its_scores() -> None:
    """Every AUROC by scikit-learn, and one cell whole by the program."""
    lines = lines_of("headline/tables.csv")
    scores = tables_of("headline").every_set(FOLDER / "headline" / "scores")
    assert {line["set"] for line in lines} == set(scores)
    for line in lines:
        answers = scores[line["set"]]
        right = answers[line["judge"]]
        assert (len(answers), right.sum()) == (int(line["answers"]), int(line["right"]))
        assert auroc(~right, answers[line["candidate"]]) == pytest.approx(float(line["auroc"]), abs=1e-5)
    chat = scores["qwen1.5b-chat"][["contains", "probability", "weakest_phrase"]]
    again = tables_of("headline").cell(chat, "contains", ["probability"]).set_index("candidate").loc["weakest_phrase"]
    kept = next(x for x in lines if (x["set"], x["candidate"]) == ("qwen1.5b-chat", "weakest_phrase"))
    for column in ("low", "high", "minus_probability", "minus_probability_low", "minus_probability_high"):
        assert again[column] == pytest.approx(float(kept[column]), abs=1e-5)


def test_the_headline_is_what_the_rules_make_of_the_tables() -> None:
    tables = tables_of("headline")
    kept = pandas.read_csv(FOLDER / "headline" / "tables.csv")
    page = text_of("docs/results.md")
    short, chat = tables.short_headline(kept), tables.chat_headline(kept, [tables.CHOOSING])
    assert short == ("default", []) and f"**Short answers: `{short[0]}`" in page
    assert f"**Chat answers: `{chat[0]}`" in page
    verdicts = tables.confirmation(kept, chat[0])
    assert verdicts["probability"].endswith(": confirmed") and "further chat answers confirm it" in page
    assert verdicts["mean_new_word"].endswith(": not shown") and verdicts["weakest_phrase"].endswith(": not shown")


def test_the_headline_of_sentences_stays_by_the_third_protocol() -> None:
    """All three chat sets name another number, which is worse than the one in use on one of them."""
    tables = tables_of("headline")
    kept = pandas.read_csv(FOLDER / "headline" / "tables.csv")
    page = text_of("docs/results.md")
    assert set(kept[kept.decides & kept.chat]["set"]) == {"qwen1.5b-chat", "qwen1.5b-chat-new", "smollm2-chat"}
    named, met = tables.chat_headline(kept)
    assert (named, met) == ("weakest_phrase", []) and "On all three sets together no number meets the rule" in page
    cells = tables.against_the_one_in_use(kept, named, "phrase_and_mean").set_index("set")
    assert cells["may_replace"].to_dict() == {
        "qwen1.5b-chat": False,
        "qwen1.5b-chat-new": True,
        "smollm2-chat": False,
    }
    smollm2 = kept[kept["set"] == "smollm2-chat"].set_index("candidate")
    assert tables.confirmation(kept, "phrase_and_mean", "smollm2-chat")["probability"].endswith(": confirmed")
    for name, reference in (
        ("phrase_and_mean", "mean_new_word"),
        ("phrase_and_mean", "weakest_phrase"),
        ("window_entropy", "phrase_and_mean"),
        ("mean_phrase", "phrase_and_mean"),
    ):
        assert tables.shown(smollm2.loc[name], f"minus_{reference}") in page, (name, reference)


def test_the_short_answers_of_the_small_models_are_as_the_page_says() -> None:
    tables = tables_of("headline")
    kept = pandas.read_csv(FOLDER / "headline" / "tables.csv")
    small = kept[kept["set"].isin(["smollm2-nq", "smollm2-wq", "gemma3-nq", "gemma3-wq"])]
    assert set(small[small.decides]["set"] + ", " + small[small.decides]["judge"]) == {"gemma3-wq, close_no_echo"}
    exact = small[small.judge == "exact"]
    assert (exact["right"].min(), exact["right"].max()) == (27, 104)
    for _, cell in exact[exact.candidate.isin(tables.SIMPLEST_FIRST)].groupby("set"):
        best = cell.nlargest(3, "auroc")
        assert set(best.candidate) == {"default", "surface", "probability"}
        assert best.auroc.max() - best.auroc.min() <= 0.0105
    decides = small[small.decides & small.candidate.isin(tables.SIMPLEST_FIRST)]
    assert not (decides["minus_default_low"] > 0).any(), "no number is shown better than default"


def test_a_candidate_replaces_only_if_it_is_worse_nowhere_and_better_on_enough_sets() -> None:
    tables = tables_of("headline")

    def lines(*lows: float) -> object:
        return pandas.DataFrame({"set": [f"set {k}" for k in range(len(lows))], "minus_default_low": lows})

    assert tables.replaces(lines(0.001, 0.002, -0.004), ["default"], 2)
    assert not tables.replaces(lines(0.001, 0.002, -0.006), ["default"], 2), "worse on one"
    assert not tables.replaces(lines(0.001, -0.004, -0.004), ["default"], 2), "better on one only"
    assert tables.simplest_of_the_best({"rauq": 0.021, "probability": 0.0195, "default": 0.018}) == "probability"


def test_the_page_shows_the_headline_as_the_tables_have_it() -> None:
    lines = {(line["set"], line["judge"], line["candidate"]): line for line in lines_of("headline/tables.csv")}
    columns = [("qwen1.5b-nq", "exact"), ("qwen1.5b-nq", "close_no_echo"), ("qwen1.5b-wq", "exact"),
               ("qwen1.5b-wq", "close_no_echo")]  # fmt: skip
    for name, *cells in page_table("A model of 1.5 billion parameters", "answers, of these right"):
        for cell, column in zip(cells, columns, strict=True):
            if name.startswith("answers"):
                line = lines[(*column, "default")]
                assert cell == f"{int(line['answers']):,}, {line['right']}"
                continue
            line = lines[(*column, name.strip("`"))]
            shown(cell, line, ("minus_default", "minus_default_low", "minus_default_high"), signed=True)
    for name, *cells in page_table("A model of 1.5 billion parameters", "chat answers, of these right"):
        for cell, chosen in zip(cells, ("qwen1.5b-chat", "qwen1.5b-chat-new", "smollm2-chat"), strict=True):
            if name.startswith("chat"):
                line = lines[chosen, "contains", "probability"]
                assert cell == f"{int(line['answers']):,}, {line['right']}"
            else:
                line = lines[chosen, "contains", name.strip("`")]
                keys = ("auroc", "minus_probability", "minus_probability_low", "minus_probability_high")
                shown(cell, line, keys, signed=False)


FIFTH_SETS = ("smollm2-chat-sentence", "smollm2-chat-plain", "smollm2-bare", "qwen1.5b-chat-sentence",
              "qwen1.5b-chat-plain", "qwen1.5b-bare")  # fmt: skip
FIFTH_ROWS = {
    "the headline before": ("phrase_and_mean", "a"),
    "the product": ("default", ""),
    "chosen: mean new phrase": ("mean_new_phrase", "c"),
    "taken along: mean new word": ("mean_new_word", "c"),
    "weakest and mean new phrase": ("mean_new_phrase_and_weakest_new_phrase", "c"),
}


def fifth_set(name: str) -> tuple[Any, Any]:
    """The scores of a set of new answers, and which of these are right."""
    scores = pandas.read_parquet(FOLDER / "headline" / "first" / f"{name}-new.parquet")
    return scores, scores["exact" if name.endswith("bare") else "contains"].astype(bool)


def test_the_answers_of_the_fifth_protocol_say_what_the_pages_say() -> None:
    """Every AUROC of the experiment's table by scikit-learn; the page's gains and losses from the same."""
    found: dict[str, list[float]] = {}
    sizes = []
    for name in FIFTH_SETS:
        scores, right = fifth_set(name)
        sizes.append(f"{len(scores):,}, {right.sum()}")
        for row, (number, rule) in FIFTH_ROWS.items():
            risks = np.where(scores[f"rule {rule}"], scores[number], scores["default"]) if rule else scores[number]
            found.setdefault(row, []).append(auroc(~right, risks))
        used = np.where(scores["rule c"], scores["mean_new_phrase_and_weakest_new_phrase"] / 2, scores["default"])
        pairs = zip(scores["text"], scores["question"], strict=True)
        echoes = np.array([bool(text.strip()) and not new_phrases(text, question) for text, question in pairs])
        last = np.where(echoes & scores["rule c"], used.max() + 1, used)
        found.setdefault("in use", []).append(auroc(~right, used))
        found.setdefault("echoes last", []).append(auroc(~right, last))
        assert not right[echoes & scores["rule c"]].any()
    table = page_table("The first number that somebody sees", "answers, right", readme("headline"))
    assert table[0][1:] == sizes
    for name, *cells in table[1:]:
        aurocs = next(values for row, values in found.items() if name.startswith(row))
        assert [float(cell.split(",")[0]) for cell in cells] == pytest.approx(aurocs, abs=0.00051), name
    before, chosen, now, last, product = (
        np.array(found[row])
        for row in ("the headline before", "chosen: mean new phrase", "in use", "echoes last", "the product")
    )
    page = sentences_of("docs/results.md")
    gained = (chosen - before)[chosen > before]
    assert len(gained) == 3
    assert f"gained {gained.min():.3f} to {gained.max():.3f} over `phrase_and_mean` on three of six sets" in page
    chat, bare = [0, 1, 3, 4], [2, 5]
    for values in (now, last):
        over = (values - before)[chat]
        ends = [re.escape(f"{end:+.3f}") + r" \[[^]]*\]" for end in (over.min(), over.max())]
        assert re.search(f"{ends[0]} to {ends[1]} above `phrase_and_mean`", page)
    assert all(re.search(rf"{loss:.3f} \[[^]]*\] (below )?on", page) for loss in (before - now)[bare])
    over, over_last = (now - product)[chat], (last - product)[chat]
    assert f"{over.min():.3f} to {over.max():.3f} above the product on four new chat sets" in page
    assert f"{over_last.min():.3f} to {over_last.max():.3f} if sentences that only repeat the question" in page


def test_the_readme_says_of_the_default_rule_what_its_scores_say() -> None:
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for file, name in (("headline", "candidate"), ("default_rule", "rule")):  # the small models' sets have both
        lines |= {
            (x["set"], x[name].replace(" ", "_")): x for x in lines_of(f"{file}/tables.csv") if x["judge"] == "exact"
        }
    sets = ("smollm2-wq", "gemma3-nq", "gemma3-wq", "qwen1.5b-nq", "qwen1.5b-wq")
    better = [one for one in sets if float(lines[one, "default"]["minus_probability_low"]) > 0.0005]
    largest = max(float(lines[one, "default"]["minus_probability"]) for one in sets)
    page = sentences_of("README.md")
    assert len(better) == 2 and f"on two of five data sets it is better, by at most {largest:.3f} AUROC" in page
    for one in sets:
        for rule in ("paper", "paper_without_clusters"):
            if (one, rule) in lines:
                assert float(lines[one, rule]["auroc"]) < float(lines[one, "probability"]["auroc"]), (one, rule)


def test_the_page_of_results_says_of_the_rule_before_what_its_scores_say() -> None:
    """AUROC of `phrase_and_mean` and of the product on the answers that chose it, and on those that confirmed it."""
    lines = {(line["set"], line["candidate"]): line for line in lines_of("headline/tables.csv")}
    text = text_of("docs/results.md")
    for chosen in ("qwen1.5b-chat", "qwen1.5b-chat-new"):
        for candidate in ("phrase_and_mean", "probability"):
            assert f"{float(lines[chosen, candidate]['auroc']):.3f}" in text, (chosen, candidate)


def test_pages_say_of_the_headline_of_sentences_what_its_scores_say() -> None:
    """docs/choosing.md: AUROC by scikit-learn of the headline in use and of the product, on new answers."""
    page = sentences_of("docs/choosing.md")
    for name in FIFTH_SETS:
        scores, right = fifth_set(name)
        between = (scores["weakest_new_phrase"] + scores["mean_new_phrase"]) / 2
        risks = (np.where(scores["rule c"], between, scores["default"]), scores["default"])
        found = [auroc(~right, risk) for risk in risks]
        assert f"{found[0] - found[1]:+.3f} [" in page, name
        if not name.endswith("bare"):
            assert re.search("{:.3f} where (the product.*? has|it has) {:.3f} ".format(*found), page), (name, found)
            assert f"{len(scores)} " in page, name


# ---- what labels add ----------------------------------------------------------------------------------------------


def test_what_labels_add_is_that_of_the_kept_runs() -> None:
    module = tables_of("learned")
    kept = pandas.read_csv(FOLDER / "learned" / "tables.csv")
    pandas.testing.assert_frame_equal(module.tables(module.read_runs()), kept, atol=1e-9)


def test_the_page_on_learning_shows_the_kept_tables() -> None:
    """Every row of its table: set and judge, labels, splits that opened, mean and worst gain of what a user gets."""
    kept = pandas.read_csv(FOLDER / "learned" / "tables.csv")
    page = text_of(readme("learned"))
    rows = [
        line.strip("| \n").split(" | ")
        for line in page.splitlines()
        if re.match(r"\| \w+, \w+ \| (states|cheap) ", line)
    ]
    assert len(rows) >= 4
    for name, kind, labels, opened, gated, worst, ungated in rows:
        one, judge = name.split(", ")
        [row] = kept[
            (kept["set"] == one)
            & (kept["judge"] == judge)
            & (kept["kind"] == kind)
            & (kept["labels"] == int(labels))
            & (kept["shuffled"] == 0)
        ].to_dict("records")
        assert opened == f"{row['opened']} of {row['splits']}"
        shown = [f"{row[key]:+.3f}" for key in ("gated_mean", "gated_worst", "ungated_mean")]
        assert [gated, worst, ungated] == shown


def test_gains_of_the_kept_scores_are_positive_where_the_page_says_so() -> None:
    """The cross-fitted numbers of every answer are kept: their AUROC is recomputed with scikit-learn."""
    for path in sorted((FOLDER / "learned" / "scores").glob("*.parquet")):
        table = pandas.read_parquet(path)
        judges = [name for name in ("exact", "close_no_echo", "contains") if name in table]
        assert judges and {"id", "headline"} <= set(table)
        for judge in judges:
            wrong = 1 - table[judge]
            for column in (f"{kind}_{judge}" for kind in ("states", "cheap")):
                if column in table:
                    assert auroc(wrong, table[column]) > 0.5


# ---- typed decisions ----------------------------------------------------------------------------------------------


def test_the_page_of_decisions_shows_what_the_figures_say() -> None:
    figures = {
        (x["model"], x["kind"], x["reading"], x["figure"]): x
        for x in lines_of("decisions/figures.csv")
        if x["orders"] == "1" and not x["alpha"]
    }
    text = text_of(readme("decisions"))
    seen = 0
    for name, *cells in rows_in(text):
        if not name.startswith(("SmolLM2, ", "Qwen, ")):
            continue
        model, kind, reading = (part.strip("`") for part in name.lower().split(", "))
        for cell, figure, scale in zip(
            cells,
            ("accuracy", "log loss", "log loss, scaled", "ECE", "ECE, probability", "allowed mass"),
            (100, 1, 1, 1, 1, 1),
            strict=True,
        ):
            line = figures[model, kind.removesuffix("s"), reading, figure]
            numbers = [float(number) for number in re.findall(r"[0-9.]+", cell)]
            expected = [scale * float(line[end]) for end in ("value", "low", "high")][: len(numbers)]
            assert numbers == pytest.approx(expected, abs=0.0052 if figure == "allowed mass" else 0.052 if scale == 100 else 0.00056)  # fmt: skip  # noqa: E501
        seen += 1
    assert seen == 8


def test_the_widths_of_bounds_are_those_of_the_kept_prompts() -> None:
    kept = pandas.read_csv(FOLDER / "decisions" / "widths.csv")
    text = text_of(readme("decisions"))
    section = text.partition("## How wide bounds are")[2].partition("\n## ")[0]
    _, _, *rows = rows_in(section)
    groups = dict(list(kept.groupby(["model", "kind", "reading"])))
    assert {tuple(row[:3]) for row in rows} == set(groups)
    for row in rows:
        mine = groups[tuple(row[:3])]
        outside = (mine.is_inside == 0).sum()
        assert [int(row[i]) for i in (3, 4, 9)] == [len(mine), mine.listed.count(), outside]
        ends = [column.quantile(q) for column in (mine.listed, mine.by_ids) for q in (0.5, 0.95)]
        shown = [np.nan if cell == "-" else float(cell) for cell in row[5:9]]
        assert shown == pytest.approx(ends, rel=0.05, nan_ok=True)


def test_the_gate_that_opens_is_that_of_the_kept_answers() -> None:
    """AUROC by scikit-learn and the counts that the page gives, on the half that no calibrator was fitted on."""
    page = text_of("docs/gate-a-tool-call.md")
    apart = pandas.read_csv(FOLDER / "decisions" / "gate.csv").iloc[200:]
    called_true = apart[apart.probability >= 0.5]
    assert f"yes to {len(called_true)} of the {len(apart)} calls" in page
    assert f"{(~called_true.may_run).sum()} of which should not have run" in page
    assert f"AUROC {auroc(apart.may_run, apart.probability):.3f}" in page
    surest = apart.nlargest(78, "probability")
    assert f"Of the {len(surest)} that the calibrator accepts {(~surest.may_run).sum()} are wrong" in page
