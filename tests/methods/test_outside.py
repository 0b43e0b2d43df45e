"""Methods from outside: functions of files and of installed packages, tried before any model runs."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semtoken.bench.further_scores import with_scores
from semtoken.bench.results import Cell, RunResults
from semtoken.errors import InvalidInputError
from semtoken.methods import METHODS, score
from semtoken.methods.outside import found_method, is_outside, load_method, trial_record

OWN = """
import numpy as np
from semtoken.methods import method

def spread(log_probs, token_entropies):
    return float(np.std(log_probs) + np.max(token_entropies))

@method(title="Halved", family="own", needs=("log_probs",), reference="a test, 2026")
def halved(log_probs):
    return -float(np.sum(log_probs)) / 2

def forgot(log_probs):
    import nothing_of_the_kind

def undefined(log_probs):
    return float("nan")

def listed(log_probs):
    return log_probs

def misnamed(logprobs):
    return 0.0
"""


@pytest.fixture
def own(tmp_path: Path) -> Any:
    before = dict(METHODS)
    file = tmp_path / "mine.py"
    file.write_text(OWN, "utf-8")
    yield file
    from semtoken.methods.table import withdraw

    for name in set(METHODS) - set(before):
        withdraw(name)


def test_a_plain_function_reads_what_its_arguments_name(own: Path) -> None:
    assert load_method(f"{own}:spread") == found_method(f"{own}:spread") == "spread"
    assert [is_outside(name) for name in (f"{own}:spread", "a.py", "stc", "a:b.py", ":a.py", "a.py:b:c")] == [
        True,
        *[False] * 5,
    ]
    assert METHODS["spread"].needs == ("log_probs", "token_entropies")
    record = replace(trial_record(), log_probs=np.log([0.5, 0.5, 0.5]), token_entropies=np.array([0.1, 0.9, 0.4]))
    assert score("spread", record) == pytest.approx(0.9)


def test_a_described_function_is_entered_as_it_says(own: Path) -> None:
    assert load_method(f"{own}:halved") == load_method(f"{own}:halved") == "halved"
    assert METHODS["halved"].title == "Halved"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "forgot",
            "fails on a record that it was tried on before any model runs: ModuleNotFoundError: No module named",
        ),
        ("undefined", "gives NaN for a record"),
        ("listed", r"TypeError: it returns an array of shape \(3,\), not one number"),
        ("misnamed", r"recorded of an answer, and logprobs \(did you mean 'log_probs'\?\) is not. There are text"),
        ("absent", "has no function 'absent'"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(own: Path, name: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        load_method(f"{own}:{name}")
    assert name not in METHODS


def test_a_missing_file_and_one_that_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="there is no file"):
        load_method(f"{tmp_path / 'gone.py'}:f")
    (tmp_path / "bad.py").write_text("import", "utf-8")
    with pytest.raises(InvalidInputError, match="cannot be run: SyntaxError"):
        load_method(f"{tmp_path / 'bad.py'}:f")


PLUGIN = """
import numpy as np
from semtoken.methods.observers.steps import ENTROPY
from semtoken.methods import method
from semtoken.methods.observers import TokenNumbers, statistic

@statistic("halved_entropies")
class HalvedEntropies(TokenNumbers):
    reads = frozenset({ENTROPY})

    def numbers(self, step):
        low, high = step.entropies
        return low / 2, high / 2

@method(title="From a plug-in", family="plug-in", needs=("halved_entropies",), reference="a test, 2026")
def from_a_plugin(halved_entropies):
    return float(np.mean(halved_entropies))
"""
ENTRY_POINTS = """
[semtoken.statistics]
halved_entropies = semtoken_plugin:HalvedEntropies

[semtoken.methods]
from_a_plugin = semtoken_plugin:from_a_plugin
broken = semtoken_plugin:no_such_thing
"""
ASK = """
import json, warnings
import semtoken
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    stc = semtoken.ScoredModel.from_pretrained("almanac", device="cpu", methods=["from_a_plugin", "mean_token_entropy"])
[answer] = stc.generate("Question:\\nWhat is it?\\nAnswer:\\n", 4)
print(json.dumps([answer.scores, [str(one.message) for one in told]]))
"""


@pytest.mark.slow
def test_an_installed_package_brings_a_statistic_and_its_method(tmp_path: Path) -> None:
    """In a process of its own: entry points are those of the metadata on its path."""
    (tmp_path / "semtoken_plugin.py").write_text(PLUGIN, "utf-8")
    metadata = tmp_path / "semtoken_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: semtoken-plugin\nVersion: 1.0\n", "utf-8")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS, "utf-8")
    path = [str(tmp_path), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}\n{ASK}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    scores, told = json.loads(done.stdout.splitlines()[-1])
    assert scores["from_a_plugin"] == pytest.approx(scores["mean_token_entropy"] / 2)
    assert any("'broken' of semtoken-plugin (semtoken.methods) cannot be loaded" in one for one in told)


ONE_MODULE = """
import numpy as np
from semtoken.bench.datasets import KnownSet, Question
from semtoken.methods.table import method
from semtoken.methods.observers.steps import best
from semtoken.methods.observers.table import TokenNumbers, statistic
from semtoken.replies.formats.openai_choices import OpenAIChat

@statistic("gaps")
class Gaps(TokenNumbers):
    reads = frozenset({best(2)})

    def numbers(self, step):
        return np.array([values[0] - values[1] for _, values in step.best_of(2)])

@method(title="First", family="likelihood", needs=("log_probs", "gaps"), reference="a test, 2026")
def first_of_all(log_probs, gaps):
    return -float(log_probs[0]) - float(gaps[0])

class ElsewhereChat(OpenAIChat):
    path = "/elsewhere"
    formats = {"elsewhere": "elsewhere-chat"}

RIVERS = KnownSet("Rivers", "tqa", "me/rivers", None, "test", 1, lambda n, row: Question(str(n), row["q"], (row["a"],)))
"""
POINTS_OF_ONE_MODULE = """
[semtoken.methods]
first_of_all = one_module:first_of_all
[semtoken.statistics]
gaps = one_module:Gaps
[semtoken.reply_shapes]
elsewhere = one_module:ElsewhereChat
[semtoken.datasets]
rivers = one_module:RIVERS
"""
ASK_ONE_MODULE = """
import warnings
warnings.simplefilter("error")
{first}
from semtoken.bench.datasets import known_sets
from semtoken.methods.outside import known_methods
from semtoken.replies import known_formats
from semtoken.replies.formats import shape_at
from semtoken.bench.statistics.steps import STEP_OF_FIELD, steps_for  # before the package is loaded
assert {first!r} or "gaps" not in STEP_OF_FIELD
known_methods(["first_of_all"])
assert steps_for(["gaps"]) == {{"gaps"}}
print("rivers" in known_sets(), "elsewhere-chat" in known_formats(), shape_at("/v1/elsewhere").__name__)
"""


@pytest.mark.parametrize("first", [pytest.param("import one_module", marks=pytest.mark.slow), ""])
def test_one_module_may_bring_a_method_a_shape_and_a_data_set(tmp_path: Path, first: str) -> None:
    """It imports semtoken's tables while it is loaded itself, and is loaded by whatever asks first, or by its user."""
    (tmp_path / "one_module.py").write_text(ONE_MODULE, "utf-8")
    metadata = tmp_path / "one_module-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: one-module\nVersion: 1.0\n", "utf-8")
    (metadata / "entry_points.txt").write_text(POINTS_OF_ONE_MODULE, "utf-8")
    code = f"import sys; sys.path[:] = {[str(tmp_path), *sys.path]!r}\n{ASK_ONE_MODULE.format(first=first)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "ElsewhereChat"]


def results() -> RunResults:
    cell = Cell(
        model="m",
        dataset="d",
        question_ids=("a", "b", "c"),
        uncertainty={"perplexity": np.array([0.1, 0.2, 0.3])},
        judgments={},
        variants={},
        greedy_seconds=1.0,
        seconds={"perplexity": 0.0},
        steps={},
    )
    return RunResults(Path("run"), {}, {}, "exact", (cell,), ())


def brought(path: Path, rows: list[dict[str, Any]]) -> RunResults:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return with_scores(results(), path)


def test_brought_scores_stand_beside_the_methods_by_question(tmp_path: Path) -> None:
    index_of_pandas = 7
    rows = [{"": index_of_pandas, "id": one, "mine": value} for one, value in (("c", 3), ("a", 1), ("b", ""))]
    [cell] = brought(tmp_path / "s.csv", rows).cells
    np.testing.assert_array_equal(cell.uncertainty["mine"], [1, np.nan, 3])
    assert np.isnan(cell.seconds["mine"]) and list(cell.uncertainty) == ["perplexity", "mine"]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([{"id": "a", "mine": 1}], "has no row for 2 of 3 questions of m on d; the first is 'b'"),
        ([{"id": one, "perplexity": 1} for one in "abc"], "a column 'perplexity', which is a method of this run"),
        ([{"id": one, "mine": "high"} for one in "abc"], "'mine' must be a number, got 'high'"),
        ([{"mine": 1}], "must have a column 'id'"),
        ([{"id": one, "mine": 1} for one in "abca"], r"line 5: the id 'a' has a row already, .*line 2"),
    ],
)
def test_brought_scores_that_do_not_fit_are_refused(tmp_path: Path, rows: list[dict[str, Any]], reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        brought(tmp_path / "s.csv", rows)
