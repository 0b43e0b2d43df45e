"""`semtoken bench run` at the terminal."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from semtoken import TokenClusters
from semtoken.bench.controls import CONTROLS
from semtoken.bench.estimate import estimate
from semtoken.bench.read_results import collect
from semtoken.bench.run import run_benchmark
from semtoken.bench.settings import settings_with
from tests.bench.runs import start, tiny_settings
from tests.cli.run import Result
from tests.cli.run import invoke as launched
from tests.rows import each


def invoke(*arguments: object) -> Result:
    return launched(["bench", "run", *map(str, arguments)])


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("command")
    content: dict[str, Any] = tiny_settings(folder) | {"methods": ["stc", "perplexity"], "sensitivity": {}}
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(autouse=True)
def alone(settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMTOKEN_CACHE", str(settings.parent / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)


def written(settings: Path, name: str, **changes: Any) -> Path:
    """The same settings with some changes, in a file of this folder."""
    path = Path(name)
    path.write_text(yaml.safe_dump(yaml.safe_load(settings.read_text()) | changes))
    return path


def model_of(settings: Path) -> dict[str, Any]:
    [model] = yaml.safe_load(settings.read_text())["models"]
    return dict(model)


def test_a_plan_a_run_and_a_plan_again(settings: Path, tmp_path: Path) -> None:
    before = invoke(settings, "--dry-run")
    assert before.exit_code == 0
    assert "0 of 35 answers x steps are in runs/tiny. Nothing was changed." in before.stdout
    assert not (tmp_path / "runs").exists()
    done = invoke(settings)
    assert done.exit_code == 0, done.output
    assert "The run in runs/tiny is complete" in done.stderr and done.stdout == ""
    (share,) = re.findall(r"^Greedy answers: (\d+)% of the time was spent in the model\.$", done.stderr, re.MULTILINE)
    assert 0 < int(share) < 100
    after = invoke(settings, "--dry-run", "--executor.kind", "local")
    assert "35 of 35 answers x steps" in after.stdout
    more = invoke(settings, "--dry-run", "--methods", "stc,perplexity,p_true")
    assert "28 of 42 answers x steps" in more.stdout  # P(True) and the scores are left


def test_controls_and_clusters_that_are_given(settings: Path, tmp_path: Path) -> None:
    TokenClusters.from_model(model_of(settings)["name"], n_clusters=50).save_pretrained(tmp_path / "given")
    result = invoke(
        *(settings, "--methods", "stc", "--judge", "exact", "-o", "x", "--limit", 2, "--device", "cpu"),
        *("--controls", "--clusters", tmp_path / "given"),
    )
    assert result.exit_code == 0, result.output
    assert {path.name for path in Path("x").iterdir()} >= {"plan.json", "manifest.json", "run.log", "stages"}
    (found,) = collect(Path("x")).cells
    assert found.controls.keys() == CONTROLS.keys() and len(found.question_ids) == 2
    [kept] = (tmp_path / "x" / "clusterings").iterdir()
    given = TokenClusters.from_pretrained(tmp_path / "given")
    assert (TokenClusters.from_pretrained(kept).labels == given.labels).all()


ALMANAC = ["-m", "almanac", "-d", "almanac", "-o", "x"]


@each(
    ("arguments", "words"),
    [
        (ALMANAC[:4], "Name the run's folder with --out"),
        (["-m", "almanac", "-d", "nowhere.jsonl", "-o", "x"], "There is no question set 'nowhere.jsonl'"),
        ([*ALMANAC, "--methods", "luck"], "there is no method luck"),
        ([*ALMANAC, "--methods", ","], "--methods ',' names no method"),
        ([*ALMANAC, "--judge", "luck"], "judges.1: there is no 'luck', there are 'exact'"),
        (["missing.yaml", "-o", "x"], "missing.yaml cannot be read"),
        ([*ALMANAC, "--methods", "perplexty"], "(did you mean 'perplexity'?); there"),
        ([*ALMANAC, "--methods", "own.py"], "Name the function in it, too: own.py:f"),
        (
            [*ALMANAC, "--methods", "own.py:x"],  # `:x:` is no picture
            "Error: The options cannot be used. methods: the method own.py:x: there is no file own.py.\n",  # and once
        ),
        (
            [*ALMANAC, "--methods", "rauq,eigenscore", "--model.backend", "llama-cpp"],
            "the methods rauq, eigenscore: The llama-cpp backend does not give attention weights and hidden states",
        ),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_is_made(arguments: list[str], words: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert words in result.stderr and result.stderr.startswith("Error: ") and "Traceback" not in result.output
    assert not Path("x").exists()


@pytest.mark.parametrize("arguments", [[], ["-m", "almanac"], ["-d", "almanac"]])
def test_a_run_without_a_model_or_a_question_set_names_the_options_that_it_needs(arguments: list[str]) -> None:
    result = invoke(*arguments, "-o", "x")
    assert result.exit_code == 2 and "--model NAME --dataset NAME, or a file of settings" in result.stderr


def test_a_backend_that_there_is_not_is_refused_as_an_option_and_in_a_file(settings: Path) -> None:
    option = invoke(*ALMANAC, "--model.backend", "luck")
    assert option.exit_code == 2
    assert option.stderr.startswith("Error: ") and '"luck"' in option.stderr and "Traceback" not in option.output
    luck = written(settings, "luck.yaml", models=[model_of(settings) | {"backend": "luck"}])
    file = invoke(luck, "-o", "x")
    assert file.exit_code == 1
    assert "should be 'transformers', 'vllm' or 'llama-cpp'.\n" in file.stderr and file.stderr.startswith("Error: ")
    assert not Path("x").exists()


def test_a_model_that_several_steps_need_fails_with_one_message(settings: Path) -> None:
    unknown = written(settings, "tiny.yaml", nli="/nowhere")
    result = invoke(unknown, "--methods", "ccp,semantic_entropy", "-o", "x")
    assert result.exit_code == 1
    *progress, first, second = result.stderr.splitlines()
    assert all("whole run" in line for line in progress)
    assert first == (
        "Failed: tiny on questions, entailment; tiny on questions, alternative_entailment: "
        "The NLI model cannot be loaded: there is no directory /nowhere."
    )
    assert second.startswith("Error: 2 steps failed, everything else in x is done")


def test_failures_are_listed_and_change_the_exit_status(settings: Path, tmp_path: Path) -> None:
    path = written(settings, "two.yaml", models=[model_of(settings), str(tmp_path / "gone")])
    result = invoke(path, "--output", "x")
    assert result.exit_code == 1
    assert "Failed: gone, loading: There is no directory" in result.stderr
    assert "Error: 1 step failed, everything else in x is done" in result.stderr
    assert "There is no directory" in Path("x/run.log").read_text()
    assert "35 of 35" in " ".join(invoke(path, "--output", "x", "--dry-run").stdout.split())


def test_an_estimate_needs_no_folder_and_leaves_nothing(settings: Path, tmp_path: Path) -> None:
    two = (settings.parent / "questions.jsonl").read_text().splitlines(keepends=True)[:2]
    (tmp_path / "two.jsonl").write_text("".join(two))
    result = invoke("-m", model_of(settings)["name"], "-d", "two.jsonl", "--methods", "perplexity", "--estimate")
    assert result.exit_code == 0, result.output
    assert "for 2 questions" in result.stdout and "from up to 8 questions of each data set" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["two.jsonl"]


class _Counts:
    """A `Watcher` that keeps what it hears."""

    def __init__(self) -> None:
        self.total = 0
        self.steps: dict[str, list[int]] = {}

    def begin(self, units: int) -> None:
        self.total = units

    def work(self, title: str, units: int) -> None:
        self.steps[title.partition(": ")[2]] = self._now = [units]

    def advance(self, units: int) -> None:
        self._now.append(units)

    def clustering(self, phase: str, fraction: float, seconds_left: float | None) -> None:
        pass


def test_progress_goes_on_inside_a_shard(settings: Path, tmp_path: Path) -> None:
    heard = _Counts()
    content = yaml.safe_load(settings.read_text()) | {"methods": ["stc", "predictive_entropy"], "shard_size": 7}
    assert start(content, tmp_path / "run", watcher=heard) == []
    assert all(units == sum(parts) for units, *parts in heard.steps.values())
    assert sum(units for units, *_ in heard.steps.values()) == heard.total
    assert [len(heard.steps[name]) - 1 for name in ("greedy", "samples", "judge exact")] == [7, 7, 1]


def test_an_estimate_is_that_of_the_run_where_all_questions_are_tried(settings: Path, tmp_path: Path) -> None:
    resolved = settings_with(settings, {})
    start = time.perf_counter()
    found = estimate(resolved, {"questions": 7})
    elapsed = time.perf_counter() - start
    assert run_benchmark(resolved, Path("x")) == []
    on_disk = sum(path.stat().st_size for path in Path("x").rglob("*") if path.is_file())
    assert found.questions == 7
    assert found.n_bytes == pytest.approx(on_disk, rel=0.1)
    assert found.seconds > 0 and found.seconds + found.setup_seconds <= elapsed


def test_an_estimate_whose_trial_fails_names_the_step(settings: Path) -> None:
    result = invoke(written(settings, "tiny.yaml", nli="/nowhere"), "--methods", "ccp", "--estimate")
    assert result.exit_code == 1
    assert "Alternative entailment failed: The NLI model cannot be loaded" in result.stderr
