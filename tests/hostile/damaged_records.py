"""Damaged calibrators and damaged records that an engine hands over: refused, or what was saved."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from semtoken import Calibrator, ScoredResponse, Threshold, TokenClusters
from semtoken.backends.vllm.channel import ChannelRecord, read_channel, record_path, write_record
from semtoken.core import GrowingAnswer, ScoringRules, scorer_for
from semtoken.decisions.answers import DecisionRecord
from semtoken.decisions.calibrating import DecisionCalibrator
from tests import worked
from tests.calibration.worlds import WORLDS
from tests.hostile.damage import each_damage, files_of
from tests.hostile.outcomes import Outcome


def attack(seed: int, every: int, folder: Path) -> list[Outcome]:
    """Damage each kind of file."""
    return [calibrators(seed, every, folder), channel(seed, every, folder / "channel")]


def calibrators(seed: int, every: int, folder: Path) -> Outcome:
    """Calibrators of answers and of decisions, with all that they can hold."""
    outcome = Outcome("damage", "damaged calibrators: refused, or what was saved")
    for name, saved in {"answers": calibrator_of_answers(), "decisions": calibrator_of_decisions()}.items():
        place = folder / name
        saved.save(place)
        each_damage(outcome, place, files_of(place), seed, every, _loads_as(saved, place))
    return outcome


def _loads_as(saved: Any, place: Path) -> Callable[[], str | None]:
    return lambda: None if type(saved).load(place) == saved else "loaded as something else"


def calibrator_of_answers() -> Calibrator:
    """One with a threshold."""
    scores, correct = WORLDS["good model"].draw(np.random.default_rng(0), 60)
    return replace(Calibrator.fit(scores, correct), threshold=Threshold.fit(scores, correct, alpha=0.2))


def calibrator_of_decisions() -> DecisionCalibrator:
    """One of a question with two sides."""
    random = np.random.default_rng(0)
    records = [
        DecisionRecord("late", "f", "predicate", (True, False), (p, 1 - p), label=int(i % 4 == 0), state=str(i))
        for i, p in enumerate(0.5 + random.random(80) / 2)
    ]
    return DecisionCalibrator.fit(records, promise="selective", alpha=0.3, delta=0.1)


def channel(seed: int, every: int, folder: Path) -> Outcome:
    """A record of an engine, read by the client that knows the answer's tokens."""
    outcome = Outcome("damage", "damaged records of an engine: refused, or the score of what was written")
    clusters = worked.clusters()
    ids, logits = worked.ids(*worked.ANSWER), np.random.default_rng(0).normal(0, 3, (9, len(worked.TOKENS)))
    folder.mkdir(parents=True)
    write_record(folder, record_of(clusters, ids, logits))
    path, kept = record_path(folder, "r"), folder / "kept"
    shutil.copy(path, kept)
    expected = told(read_channel(folder, "r", ids, clusters, timeout=0))

    def judge() -> str | None:
        found = told(read_channel(folder, "r", ids, clusters, timeout=0))
        return None if found == expected else "scored as something else"

    shutil.copy(kept, path)
    each_damage(outcome, folder, [path], seed, max(1, every // 10), judge)
    return outcome


def told(answer: ScoredResponse) -> tuple[Any, ...]:
    """What an answer says."""
    tokens = [(token.agreeing_probability, token.log_probability) for token in answer.tokens]
    return answer.log_score, answer.distribution, answer.signature, str(answer.headline), tokens


def record_of(clusters: TokenClusters, ids: list[int], logits: np.ndarray[Any, Any]) -> ChannelRecord:
    """What an engine knows of an answer whose last token is not chosen yet."""
    scorer = scorer_for(clusters, ScoringRules())
    answer = GrowingAnswer(scorer)
    for row, token in zip(logits, ids[:-1], strict=False):
        answer.add(row[None].astype(np.float32), 0, token)
    held = logits[len(ids) - 1].astype(np.float32)
    return ChannelRecord("r", scorer.identity, ScoringRules(), "raw", answer.state_dict(), held)
