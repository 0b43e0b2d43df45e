"""Files with changed bytes: refused, repaired, or what was saved; never something else."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from semtoken import TokenClusters
from semtoken.bench.read_results import collect
from semtoken.errors import SemtokenError
from semtoken.score_file import ScoringJob
from tests import worked
from tests.hostile.outcomes import Outcome, case_random

BITS = (0x01, 0x20, 0x80)


def changed_bytes(data: bytes, seed: int, name: str, every: int) -> Iterator[tuple[int, bytes]]:
    """A file with one byte changed: one place in each `every` bytes, with the place."""
    for start in range(0, len(data), every):
        random = case_random(seed, name, start)
        place = min(start + random.randrange(every), len(data) - 1)
        flip = random.choice(BITS)
        yield place, data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]


def files_of(folder: Path) -> list[Path]:
    """The files below a folder, without locks."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name)


def attack(seed: int, every: int, folder: Path) -> list[Outcome]:
    """Change bytes of clusters, of a run and of scored lines; `folder` is for the work."""
    return [clusters(seed, every, folder / "clusters"), lines(seed, every, folder), run(seed, every, folder)]


def each_damage(
    outcome: Outcome, folder: Path, files: list[Path], seed: int, every: int, judge: Callable[[], str | None]
) -> None:
    """Change bytes of files, one at a time, and count what a judge says; the files are as before afterwards."""
    for path in files:
        whole = path.read_bytes()
        name = str(path.relative_to(folder))
        for place, damaged in changed_bytes(whole, seed, name, every):
            path.write_bytes(damaged)
            try:
                fault = judge()
            except SemtokenError:
                fault = None
            except Exception as error:
                fault = f"{type(error).__name__}: {error!s:.100}"
            outcome.count(None if fault is None else f"{name}, byte {place}: {fault}")
        path.write_bytes(whole)


def clusters(seed: int, every: int, folder: Path) -> Outcome:
    """The folder of some clusters."""
    outcome = Outcome("damage", "clusters with a changed byte: refused, or what was saved")
    saved = worked.clusters()
    saved.save_pretrained(folder)

    def judge() -> str | None:
        found = TokenClusters.from_pretrained(folder)
        same = (
            found.signature == saved.signature
            and found.provenance == saved.provenance
            and found.vocabulary.fingerprint == saved.vocabulary.fingerprint
            and np.array_equal(found.labels, saved.labels)
        )
        return None if same else "loaded as something else"

    files = [path for path in files_of(folder) if path.name != "README.md"]
    each_damage(outcome, folder, files, seed, every, judge)
    return outcome


def lines(seed: int, every: int, folder: Path) -> Outcome:
    """A half-finished output of `score`, which is continued."""
    from tests.test_score_file import RECORDS, Drawn, write
    from tests.test_score_file import run as finish

    outcome = Outcome("damage", "half-scored lines with a changed byte: refused, or finished as without it")
    place = folder / "lines"
    place.mkdir(parents=True)
    source, engine = write(place / "in.jsonl", RECORDS), Drawn()
    whole = ScoringJob(source, place / "whole.jsonl", {"model": "drawn"}, batch_size=4)
    finish(whole, engine)
    expected = whole.target.read_bytes()
    job = ScoringJob(source, place / "out" / "half.jsonl", {"model": "drawn"}, batch_size=4)
    job.target.parent.mkdir()
    job.target.write_bytes(b"".join(expected.splitlines(keepends=True)[:-2]))
    shutil.copy(whole.lines.settings_path, job.lines.settings_path)
    before = {path: path.read_bytes() for path in files_of(job.target.parent)}

    def judge() -> str | None:
        damaged = {path: path.read_bytes() for path in before}
        try:
            finish(job, engine)
            return None if job.target.read_bytes() == expected else "finished with other lines"
        finally:
            for path, content in damaged.items():
                path.write_bytes(before[path] if content != before[path] else content)

    for path in before:
        each_damage(outcome, job.target.parent, [path], seed, every, judge)
        for other, content in before.items():
            other.write_bytes(content)
    return outcome


def run(seed: int, every: int, folder: Path) -> Outcome:
    """The files of a finished run of the benchmark, read back."""
    from tests.hostile.commands import bench_settings, run_command

    outcome = Outcome("damage", "files of a run with a changed byte: the same numbers, or none")
    place = folder / "run"
    command = ["bench", "run", str(bench_settings(folder / "settings")), "--out", str(place)]
    run_command(command)
    expected = numbers_of(place)
    sizes = sum(path.stat().st_size for path in files_of(place))
    step = every if every == 1 else max(every, sizes // 150)
    if every == 1:
        step = max(1, sizes // 5000)
        outcome.notes.append(f"every {step} bytes of {sizes:,}")

    def judge() -> str | None:
        return next((f"{key} is {value}" for key, value in numbers_of(place).items() if expected[key] != value), None)

    each_damage(outcome, place, files_of(place), seed, step, judge)
    for path in filter(lambda one: one.stat().st_size, files_of(place)):
        path.write_bytes(next(changed_bytes(path.read_bytes(), seed, path.name, 10**9))[1])
    run_command(command)
    outcome.count(None if numbers_of(place) == expected else "not repaired after a byte of every file had changed")
    return outcome


def numbers_of(place: Path) -> dict[tuple[str, ...], str]:
    """The numbers of a run by model, data set, question and name; those that are missing are left out."""
    found = {}
    for cell in collect(place).cells:
        for kind, columns in (("uncertainty", cell.uncertainty), ("judgement", cell.judgements)):
            for name, values in columns.items():
                for question, value in zip(cell.question_ids, values.tolist(), strict=True):
                    if value == value:
                        found[cell.model, cell.dataset, str(question), kind, name] = repr(value)
    return found
