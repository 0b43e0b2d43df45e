"""Commands that are killed at random moments and given again: they end with what they would have made."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semtoken import Calibrator, TokenClusters, Vocabulary
from semtoken.decisions import Answer, Predicate, ReadingOptions
from semtoken.decisions.calibrating import DecisionCalibrator
from semtoken.decisions.records import answer_values
from semtoken.errors import SemtokenError
from semtoken.guarantees.calibrator import NAME
from tests import tiny
from tests.bench.runs import same, shards
from tests.decisions.models import tiny as tiny_backend
from tests.guarantees.worlds import WORLDS
from tests.hostile.commands import bench_settings, run_command
from tests.hostile.damage import numbers_of
from tests.hostile.damaged_models import packaged
from tests.hostile.fetching import ModelStays, cache_at, fetch_command, same_models
from tests.hostile.outcomes import Outcome, case_random
from tests.hostile.targets import REPLY
from tests.json_lines import write_lines

IN_A_ROW = 4  # kills before a command may end
LINES = 30


@dataclass(frozen=True)
class Killed:
    """A command, and how its output is judged."""

    name: str
    arguments: Callable[[Path], list[str]]
    """The words of the command that writes to a place."""
    same: Callable[[Path, Path], bool]
    """Whether two places hold the same results."""
    halfway: Callable[[Path], str | None] = lambda _: None
    """The fault of a place after a kill."""
    suffix: str = ""
    """The ending of the places' names."""
    around: Callable[[Path], AbstractContextManager[None]] = lambda _: nullcontext()
    """The context in which the command that writes to a place runs."""

    def run(self, place: Path, kill_after: float | None = None, *, log: Path) -> bool:
        """Run it; whether it came to its end before it was killed."""
        with self.around(place):
            return run_command(self.arguments(place), kill_after, log=log)


def attack(seed: int, kills: int, folder: Path) -> list[Outcome]:
    """Kill each command so many times."""
    folder.mkdir(parents=True, exist_ok=True)
    with packaged(folder):
        return [_kill(command, seed, kills, folder / command.name) for command in commands(folder)]


def commands(folder: Path) -> list[Killed]:
    """Commands that read a tiny model, labeled answers, saved replies or packages of a model."""
    settings = bench_settings(folder / "settings")
    model = str(folder / "settings" / "tiny")
    vocabulary = Vocabulary.from_tokenizer(tiny.byte_level_bpe())
    labels = np.random.default_rng(0).integers(0, 100, vocabulary.size, dtype=np.int32)
    some = folder / "some-clusters"
    TokenClusters(labels, vocabulary).save_pretrained(some)
    source = folder / "in.jsonl"
    write_lines(source, ({"prompt": f"The capital {i} of", "id": i} for i in range(LINES)))
    scoring = ["score", str(source), "--model", model, "--preset", "paper", "--clusters", str(some)]
    scoring += ["--max-tokens", "8"]
    return [
        Killed("bench run", lambda place: ["bench", "run", str(settings), "--output", str(place)], same_run),
        Killed(
            "score",
            lambda place: [*scoring, "--model.batch-size", "4", "-o", str(place)],
            same_bytes,
            suffix=".jsonl",
        ),
        Killed(
            "cluster",
            lambda place: ["cluster", "make", model, "-k", "60", "-o", str(place)],
            same_clusters,
            loads_or_none(TokenClusters.from_pretrained),
        ),
        *of_labels(folder),
        of_decisions(folder),
        Killed("fetch", fetch_command, same_models, ModelStays(), around=cache_at),
    ]


def of_labels(folder: Path) -> list[Killed]:
    """Commands on labeled answers and on saved replies."""
    labeled = folder / "labeled.jsonl"
    scores, correct = WORLDS["good model"].draw(np.random.default_rng(0), 300)
    kind = {"signature": "preset:default", "distribution": "raw"}
    lines = [
        {"id": i, "response": f"It is {i}.", "log_confidence": float(score), "correct": bool(right), **kind}
        for i, (score, right) in enumerate(zip(scores, correct, strict=True))
    ]
    write_lines(labeled, lines)
    decided, replies = labeled_decisions(folder / "decided.jsonl"), folder / "replies.jsonl"
    write_lines(replies, ({"id": str(i), "reply": REPLY} for i in range(200)))
    return [
        Killed(
            "calibrate",
            lambda place: ["calibrate", str(labeled), "-o", str(place), "--force"],
            same_calibrators(Calibrator.load),
            loads_or_none(Calibrator.load, NAME),
        ),
        Killed("check", lambda place: ["check", str(replies), "-o", str(place)], same_bytes, suffix=".csv"),
        Killed(
            "decide fit",
            lambda place: ["calibrate", str(decided), "-o", str(place), "--alpha", "0.3", "--force"],
            same_calibrators(DecisionCalibrator.load),
            loads_or_none(DecisionCalibrator.load),
        ),
    ]


def of_decisions(folder: Path) -> Killed:
    """Typed questions about the lines of a file."""
    backend = tiny_backend()
    model = tiny.saved(backend.model, folder / "deciding", backend.tokenizer)
    questions, items = folder / "questions.yaml", folder / "items.jsonl"
    questions.write_text('late: {type: predicate, instructions: "Is it late?"}\n')
    write_lines(items, ({"state": f"Parcel {i}"} for i in range(LINES)))
    told = ["decide", str(questions), str(items), "--model", str(model)]
    return Killed("decide run", lambda place: [*told, "-o", str(place)], same_bytes, suffix=".jsonl")


def same_bytes(one: Path, two: Path) -> bool:
    """The same file."""
    return one.read_bytes() == two.read_bytes()


def same_calibrators(load: Callable[[Path], Any]) -> Callable[[Path, Path], bool]:
    """Whether both places hold a calibrator that can be used, the same one but for its date."""

    def same_but_for_dates(one: Path, two: Path) -> bool:
        return all(load(place) is not None for place in (one, two)) and undated(one) == undated(two)

    return same_but_for_dates


def undated(place: Path) -> dict[str, Any]:
    """The values of all JSON files of a folder without dates, and without checksums, which cover dates, too."""

    def kept(members: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in members.items() if name not in ("created", "checksum", "sha256")}

    files = sorted(place.rglob("*.json"))
    return {str(path.relative_to(place)): json.loads(path.read_bytes(), object_hook=kept) for path in files}


def labeled_decisions(path: Path) -> Path:
    """The lines that `decide` writes of a predicate about many states, with labels."""
    random, question = np.random.default_rng(0), Predicate("Is it late?")
    lines = []
    for number, probability_correct in enumerate(random.random(300).tolist()):
        answer = Answer(question, (probability_correct, 1 - probability_correct))
        right = bool(random.random() < probability_correct)
        answers = {"late": answer_values(answer, ReadingOptions())}
        lines.append({"state": number, "answers": answers, "labels": {"late": right}})
    return write_lines(path, lines)


def same_run(one: Path, two: Path) -> bool:
    """Shards and numbers are the same."""
    return same(shards(one), shards(two)) and numbers_of(one) == numbers_of(two)


def same_clusters(one: Path, two: Path) -> bool:
    """Labels and provenance are the same."""
    first, second = TokenClusters.from_pretrained(one), TokenClusters.from_pretrained(two)
    return first.signature == second.signature and np.array_equal(first.labels, second.labels)


def loads_or_none(load: Callable[[Path], Any], name: str = "") -> Callable[[Path], str | None]:
    """Judges a place after a kill: it, or its file of this name, is there whole or not at all."""

    def fault(place: Path) -> str | None:
        if not (place / name).exists():
            return None
        try:
            load(place)
        except SemtokenError as error:
            return f"it does not load: {error}"
        return None

    return fault


def _kill(command: Killed, seed: int, kills: int, folder: Path) -> Outcome:
    outcome = Outcome("kills", f"kills of `{command.name}`, then given again: the results are those of one left alone")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    undisturbed, log = folder / f"undisturbed{command.suffix}", folder / "log"
    command.run(undisturbed, log=log)  # the first run also makes what is kept in caches
    shutil.rmtree(undisturbed) if undisturbed.is_dir() else undisturbed.unlink()
    start = time.monotonic()
    command.run(undisturbed, log=log)
    seconds = time.monotonic() - start
    number = too_late = 0
    while number < kills:
        place = folder / f"killed-{number}{command.suffix}"
        fault: str | None = None
        first = number
        for _ in range(IN_A_ROW):
            wait = case_random(seed, f"kill {command.name}", number + too_late).random() * seconds
            if command.run(place, wait, log=log):
                too_late += 1
                break
            number += 1
            fault = fault or command.halfway(place)
        if fault is None:
            try:
                command.run(place, log=log)
                fault = None if command.same(place, undisturbed) else "other results than undisturbed"
            except (AssertionError, SemtokenError) as error:
                fault = str(error)
        for each in range(first, number):
            outcome.count(fault and fault[:300], f"{command.name}, kill {each}")
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    outcome.notes.append(f"{command.name}: {seconds:.1f} s undisturbed; {too_late} times it had ended before its kill")
    return outcome
