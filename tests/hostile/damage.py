"""Damaged files: refused, repaired, or what was saved; never something else."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from semtoken import TokenClusters
from semtoken.bench.read_results import collect
from semtoken.bench.score_file import ScoringJob
from tests import worked
from tests.hostile.endings import fault_of
from tests.hostile.outcomes import Outcome, case_random

BITS = (0x01, 0x20, 0x80)
CUTS = 6  # places at which a file is cut off, besides its ends
FOREIGN: Mapping[str, bytes] = {
    "nothing": b"",
    "null": b"null",
    "an object": b"{}\n",
    "a list": b"[]\n",
    "a number": b"1e400",
    "a page": b"<!DOCTYPE html><html><body>502 Bad Gateway</body></html>",
    "a pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 98362432\n",
    "a picture": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)),
    "a pickle": b"\x80\x04cbuiltins\nexit\n(tR.",
    "no text": b"\xff\xfe\0\x80" * 64,
    "zeros": bytes(4096),
    "brackets": b"[" * 100_000,
}
"""Contents that a wrong download, a failed copy or a mistake puts in the place of a file."""


def changed_bytes(data: bytes, seed: int, name: str, every: int) -> Iterator[tuple[int, bytes]]:
    """A file with one byte changed: one place in each `every` bytes, with the place."""
    for start in range(0, len(data), every):
        random = case_random(seed, name, start)
        place = min(start + random.randrange(every), len(data) - 1)
        flip = random.choice(BITS)
        yield place, data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]


def damages(data: bytes, seed: int, name: str, every: int) -> Iterator[tuple[str, bytes]]:
    """Everything that is done to a file, with words for it: changed bytes, cuts, more at its end, foreign content."""
    for place, changed in changed_bytes(data, seed, name, every):
        yield f"byte {place}", changed
    random = case_random(seed, f"cut {name}", 0)
    for length in sorted({random.randrange(len(data)) for _ in range(CUTS)} | {len(data) - 1} if data else ()):
        yield f"cut to {length}", data[:length]
    yield "twice", data * 2
    yield "with a zero at its end", data + b"\0"
    for kind, content in FOREIGN.items():
        if content != data:
            yield f"{kind} in its place", content


def files_of(folder: Path) -> list[Path]:
    """The files below a folder, without locks."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name)


def attack(seed: int, every: int, folder: Path) -> list[Outcome]:
    """Damage clusters, scored lines, a run, calibrators, records of engines and models; `folder` is for the work."""
    from tests.hostile import damaged_models, damaged_records

    return [
        *(clusters(seed, every, folder / "clusters"), lines(seed, every, folder), run(seed, every, folder)),
        *damaged_records.attack(seed, every, folder / "records"),
        *damaged_models.attack(seed, every, folder / "models"),
    ]


def each_damage(
    outcome: Outcome, folder: Path, files: list[Path], seed: int, every: int, judge: Callable[[], str | None]
) -> None:
    """Damage files, one at a time, and count what a judge says; the files are as before afterwards."""
    for path in files:
        whole = path.read_bytes()
        name = str(path.relative_to(folder))
        for what, damaged in damages(whole, seed, name, every):
            path.write_bytes(damaged)
            outcome.count(fault_of(judge), f"{name}, {what}")
        path.write_bytes(whole)


def clusters(seed: int, every: int, folder: Path) -> Outcome:
    """The folder of some clusters."""
    outcome = Outcome("damage", "damaged clusters: refused, or what was saved")
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
    from tests.bench.test_score_file import RECORDS, Drawn
    from tests.bench.test_score_file import run as finish
    from tests.json_lines import write_lines

    outcome = Outcome("damage", "damaged half-scored lines: refused, or finished as without it")
    place = folder / "lines"
    place.mkdir(parents=True)
    source, engine = write_lines(place / "in.jsonl", RECORDS), Drawn()
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

    outcome = Outcome("damage", "damaged files of a run: the same numbers, or none")
    place = folder / "run"
    command = ["bench", "run", str(bench_settings(folder / "settings")), "--output", str(place)]
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
    found: dict[tuple[str, ...], str] = {}
    for cell in collect(place).cells:
        for kind, columns in (("uncertainty", cell.uncertainty), ("judgment", cell.judgments)):
            for name, values in columns.items():
                for question, value in zip(cell.question_ids, values.tolist(), strict=True):
                    if value == value:
                        found[cell.model, cell.dataset, str(question), kind, name] = repr(value)
    return found
