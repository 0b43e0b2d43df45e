"""The answers of PROTOCOL.md: what a learned number reads of each, and the judges' verdicts."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from learning import CHEAP, WITH_STATES, Readings, readings_of

HERE = Path(__file__).parent
HEADLINE = HERE.parent / "headline"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LabeledSet:
    """n answers of one model to one set of questions."""

    name: str
    readings: dict[str, Readings]
    """By kind: `states` (hidden states and the headline), `cheap` (five numbers)."""
    headline: Floats
    probability: Floats
    correct: dict[str, Floats]
    """By judge."""
    table: pd.DataFrame
    """Per-answer numbers to keep."""


def almanac() -> LabeledSet:
    """The embedded model's answers to its 2,000 test questions, by the library itself."""
    from semtoken import ScoredModel
    from semtoken.support.almanac import PROMPT, is_correct, load_questions

    questions = load_questions("test")
    stc = ScoredModel.from_pretrained("almanac", states=True, methods=["max_token_entropy"])
    prompts = [PROMPT.replace("{question}", one.question) for one in questions]
    answers = stc.generate(prompts, 32, batch_size=64, stop_at_newline=True)
    right = [float(is_correct(answer.text, one)) for answer, one in zip(answers, questions, strict=True)]
    readings = {
        "states": readings_of(answers, WITH_STATES, states=True),
        "cheap": readings_of(answers, CHEAP, states=False),
    }
    return _made("almanac", readings, [one.id for one in questions], {"exact": np.array(right)})


def recorded(name: str, recordings: Path, scores: Path) -> LabeledSet:
    """Answers that `research/experiments/headline/record.py` wrote, with the scores that `score.py` made of them."""
    parts = sorted(recordings.glob(f"{name}-[0-9][0-9][0-9][0-9].npz"))
    loaded = [{key: part[key] for key in ("lengths", "log_prob", "state")} for part in map(np.load, parts)]
    lengths, logs, states = (np.concatenate([one[key] for one in loaded]) for key in ("lengths", "log_prob", "state"))
    table = pd.read_parquet(scores)
    n = len(table)
    first = np.minimum(logs[np.cumsum(lengths[:n]) - lengths[:n]].astype(float), 0.0)
    cheap = np.column_stack(
        [
            table["probability"],
            table["mean_log_prob"],
            table["max_token_entropy"],
            -first,
            np.log(lengths[:n].astype(float)),
        ]
    )
    headline = table["default"].to_numpy(dtype=np.float64)
    readings = {
        "states": Readings(headline[:, None], states[:n].astype(np.float64)),
        "cheap": Readings(cheap),
    }
    verdicts = {judge: table[judge].to_numpy(dtype=np.float64) for judge in ("exact", "close_no_echo")}
    return _made(name, readings, table["id"].tolist(), verdicts)


def chat() -> LabeledSet:
    """The kept scores of the chat answers; the first token's entropy stands for its surprise."""
    table = pd.read_parquet(HEADLINE / "scores" / "qwen1.5b-chat.parquet")
    names = ("probability", "mean_log_prob", "max_token_entropy", "first_entropy")
    cheap = np.column_stack([*(table[name] for name in names), np.log(table["length"])]).astype(np.float64)
    verdicts = {"contains": table["contains"].to_numpy(dtype=np.float64)}
    found = _made("chat", {"cheap": Readings(cheap)}, table["id"].tolist(), verdicts)
    return _with_headline(found, table["mean_new_word"].to_numpy(dtype=np.float64))


def _made(name: str, readings: dict[str, Readings], ids: list[str], correct: dict[str, Floats]) -> LabeledSet:
    cheap = readings["cheap"].numbers
    headline = readings["states"].numbers[:, 0] if "states" in readings else cheap[:, 0]
    table = pd.DataFrame({"id": ids, "headline": headline} | dict(zip(CHEAP, cheap.T, strict=True)) | correct)
    return LabeledSet(name, readings, headline, cheap[:, 0], correct, table)


def _with_headline(found: LabeledSet, headline: Floats) -> LabeledSet:
    return LabeledSet(
        found.name,
        found.readings,
        headline,
        found.probability,
        found.correct,
        found.table.assign(headline=headline),
    )


def the_set(name: str, recordings: Path | None) -> LabeledSet:
    """A set by its name."""
    if name == "almanac":
        return almanac()
    if name == "chat":
        return chat()
    if recordings is None:
        sys.exit(f"{name} needs the folder of its recordings")
    return recorded(name, recordings, recordings / f"{name}.parquet")
