"""The recipe for a statistic that needs pairs of samples: one field, one function, one entry; a method reads it.

A copy of the package is edited as a stranger would do it, and `semtoken compare` and `semtoken bench run` are run on
the copy. Nothing else in the package has to know of the statistic. What a forgotten piece does is shown in
tests/test_development.py.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

import semtoken

FIELD = '''
    dissimilarity: FloatArray | None = field(default=None, metadata=_layout("float64", 2, "sample", "array"))
    """[M, M] one minus the similarity of two samples."""

    def __post_init__(self)'''
FUNCTION = """
def _dissimilarity(ask: AskPairs, part: Sequence[Generation], tokens: Tokens) -> list[Fields]:
    found = similarity_matrices(ask, [(one.question, one.sample_texts or ()) for one in part])
    return [{"dissimilarity": 1.0 - matrix} for matrix in found]


STEPS: """
ENTRY = """
    RecordingStep(
        "dissimilarity",
        fills=("dissimilarity",),
        asks="similarity",
        needs=("sample_texts",),
        pairs=_dissimilarity,
    ),
)
\"\"\"In an order"""
METHOD = """
_ALL = (
    Method(
        name="spread",
        title="Spread",
        family="semantic",
        function=lambda dissimilarity: float(np.mean(dissimilarity)),
        needs=("dissimilarity",),
        arguments=lambda g: {"dissimilarity": g.dissimilarity},
        range=(0.0, 1.0),
        reference="of this test, 2026",
        semantic_aware=True,
        single_sample=False,
        external_model_free=False,
        overhead="high",
    ),"""


def insert(path: Path, before: str, after: str) -> None:
    text = path.read_text("utf-8")
    assert text.count(before) == 1, (path, before)
    path.write_text(text.replace(before, after), "utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the new field and the method that reads it; the step itself is still to be added."""
    source = tmp_path_factory.mktemp("copy")
    shutil.copytree(Path(semtoken.__file__).parent, source / "semtoken")  # with what is compiled, which saves seconds
    insert(source / "semtoken/results/generation.py", "\n    def __post_init__(self)", FIELD)
    insert(source / "semtoken/methods/table.py", "\n_ALL = (", METHOD)
    return source


def run(source: Path, *commands: list[str]) -> subprocess.CompletedProcess[str]:
    """Commands one after the other in one process, which loads torch once."""
    program = (
        f"from semtoken.cli.app import app\nfor command in {list(commands)!r}:\n    app(command, standalone_mode=False)"
    )
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=source)


def test_one_entry_and_one_function_later_it_works_everywhere(copy: Path) -> None:
    steps = copy / "semtoken/statistics/steps.py"
    insert(steps, '\n)\n"""In an order', ENTRY)
    insert(steps, "\nSTEPS: ", FUNCTION)
    common = ("--model", "almanac", "--methods", "spread,conu", "--limit", "12")
    bench = ["bench", "run", *common, "--dataset", "almanac", "--out", str(copy / "run")]
    done = run(copy, bench, ["compare", *common, "--csv", str(copy / "compared.csv")])
    assert done.returncode == 0, done.stderr
    (scores,) = copy.glob("run/stages/score-spread-*/00000.parquet")
    assert len(pyarrow.parquet.read_table(scores)) == 12
    with (copy / "compared.csv").open() as file:
        assert {"Spread", "ConU"} <= {row["setting"] for row in csv.DictReader(file)}
