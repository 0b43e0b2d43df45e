"""Settings as files and flags, and which steps depend on which of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from semtoken.bench import models
from semtoken.bench.datasets import Dataset, read_dataset
from semtoken.bench.manifest import git_state, model_identity
from semtoken.bench.plan import CellPlan, Plan, make_plan
from semtoken.bench.settings import ClusteringSettings, RunSettings, check_settings, read_settings, settings_with
from semtoken.bench.statistics.pairs import DEFAULT_NLI
from semtoken.core import ScoringRules
from semtoken.errors import InvalidInputError
from semtoken.methods import METHODS
from semtoken.support.almanac import almanac_clusters_path, almanac_path
from semtoken.support.checkpoints import CATALOG
from tests.rows import each


class Raw:
    """As much of a backend as is asked for before a run."""

    distribution, name, model = "raw", "tiny", None


EXAMPLES = Path(__file__).parents[2] / "examples" / "bench"
BASIC: dict[str, Any] = {"models": ["almanac"], "datasets": ["almanac"]}


def checked(**changes: Any) -> RunSettings:
    return check_settings(BASIC | changes, "the test")


def test_the_defaults_are_the_papers() -> None:
    settings = checked(models=["Qwen/Qwen2.5-3B"])
    decoding = settings.decoding
    assert (decoding.max_new_tokens, decoding.n_samples, decoding.temperature) == (256, 5, 0.5)
    assert (settings.preset, settings.limit) == ("paper", None)
    assert ScoringRules(settings.preset, settings.function_words).function_words == "paper"
    one_pass = {name for name, one in METHODS.items() if one.family in ("entropy", "attention", "words")}
    assert set(METHODS) - set(settings.methods) == one_pass - {"confidence"} and len(one_pass) > 10
    assert settings.models[0].clusters is None and settings.models[0].label == "Qwen2.5-3B"
    assert settings.nli == DEFAULT_NLI
    assert [judge.kind for judge in settings.judges] == ["exact"] and settings.primary_judge == "exact"


@each("backend", ["transformers", "vllm"])
def test_only_vllm_gets_the_settings_of_an_engine(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM is not installed here: what would load the model only records what it is given."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(models, "load_backend", lambda *names, **options: given.update(options) or Raw())
    monkeypatch.setattr("semtoken.models.transformers.loading.spare_threads", lambda model: None)
    one = {"name": "a/b", "backend": backend, "engine": {"tensor_parallel_size": 2}, "revision": "r"}
    models.Models(checked(models=[one])).answering("b")
    common = {"device": None, "dtype": "auto", "revision": "r", "trust_remote_code": False}
    assert given == common | ({"tensor_parallel_size": 2} if backend == "vllm" else {})


def test_the_almanac_has_its_own_clusters_and_encoders() -> None:
    settings = checked()
    assert settings.models[0].clusters is None
    [main] = cell().clusterings
    assert main.source == str(almanac_clusters_path())
    assert (settings.nli, settings.similarity) == ("almanac", "almanac")
    mixed = checked(models=["almanac", {"name": "a/b", "label": "B"}], similarity="x")
    assert (mixed.nli, mixed.similarity) == (DEFAULT_NLI, "x")


def test_yaml_and_toml_say_the_same(tmp_path: Path) -> None:
    content = {
        "models": [{"name": "almanac", "batch_size": 8}],
        "datasets": [{"name": "almanac"}, {"name": "nq", "path": "nq.jsonl.gz"}],
        "decoding": {"temperature": 0.7},
        "judges": [{"kind": "rouge", "threshold": 0.4}, {"kind": "exact"}],
        "sensitivity": {"n_clusters": [100, 200]},
    }
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "a.toml").write_text(
        '[[models]]\nname = "almanac"\nbatch_size = 8\n[[datasets]]\nname = "almanac"\n[[datasets]]\nname = "nq"\n'
        'path = "nq.jsonl.gz"\n[decoding]\ntemperature = 0.7\n[[judges]]\nkind = "rouge"\nthreshold = 0.4\n'
        '[[judges]]\nkind = "exact"\n[sensitivity]\nn_clusters = [100, 200]\n'
    )
    one, two = (check_settings(read_settings(tmp_path / name), name) for name in ("a.yaml", "a.toml"))
    assert one == two
    assert one.primary_judge == "rouge" and one.sensitivity.n_clusters == (100, 200)


@each(
    ("changes", "words"),
    [
        ({"model": ["x"]}, "model: there is no such setting"),
        ({"decoding": {"temprature": 1}}, "decoding.temprature: there is no such setting"),
        ({"decoding": {"temperature": 0}}, "decoding.temperature: input should be greater than 0"),
        ({"models": [{"name": "a", "dtype": "int3"}]}, "models.1.dtype: input should be 'auto', 'float32'"),
        ({"models": [{"name": "a", "clusters": {"seed": -1}}]}, "seed"),
        ({"models": [{"name": "a", "clusters": {"n_clusters": 0}}]}, "n_clusters"),
        ({"models": [{"name": "a", "clusters": {"linkage": "ward"}}]}, "linkage"),
        ({"models": []}, "models: tuple should have at least 1 item"),
        ({"models": ["a/x", "b/x"]}, "two models have the label 'x'"),
        ({"methods": ["stc", "guess"]}, "there is no method guess; there are stc"),
        ({"judges": ["exact", "exact"]}, "two judges have the name 'exact'"),
        ({"judges": [{"kind": "rouge", "treshold": 1}]}, "treshold: there is no such setting"),
        ({"primary_judge": "llm"}, "primary_judge is 'llm', the judges are exact"),
        ({"sensitivity": {"linkage": ["ward"]}}, "sensitivity.linkage.1"),
        ({"limit": 0}, "limit: input should be greater than 0"),
        ({"seed": -1}, "seed: input should be greater than or equal to 0"),
    ],
)
def test_errors_say_where_and_what(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        checked(**changes)
    assert words in str(caught.value) and str(caught.value).startswith("the test cannot be used.")


def test_seeds_begin_at_zero() -> None:
    zero = {"seed": 0}
    one = checked(**zero, decoding=zero, controls=zero, models=[{"name": "a", "clusters": zero}])
    assert one.controls is not None and isinstance(one.models[0].clusters, ClusteringSettings)
    assert {one.seed, one.decoding.seed, one.controls.seed, one.models[0].clusters.seed} == {0}


def test_files_that_are_no_settings(tmp_path: Path) -> None:
    cases = {"a.yaml": ("models: [", "not YAML"), "b.toml": ("models = ", "not TOML"), "c.yaml": ("- a", "must hold")}
    for name, (content, words) in cases.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(InvalidInputError, match=words):
            read_settings(tmp_path / name)
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_settings(tmp_path / "none.yaml")
    with pytest.raises(InvalidInputError, match=r"\.yaml or \.toml"):
        read_settings(tmp_path / "a.json")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_settings(path: Path) -> None:
    assert check_settings(read_settings(path), path.name).sensitivity.variants()


def test_the_papers_example_says_what_the_defaults_say() -> None:
    paper = check_settings(read_settings(EXAMPLES / "paper.yaml"), "it")
    defaults = check_settings({"models": ["a/b"], "datasets": ["nq"]}, "it")
    for name in ("decoding", "preset", "nli", "similarity", "methods", "function_words"):
        assert getattr(paper, name) == getattr(defaults, name)


def test_flags_override_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("models: [almanac]\ndatasets: [nq]\nlimit: 9\nseed: 3\ndecoding: {temperature: 0.7}\n")
    found = settings_with(path, {"datasets": [{"name": "almanac"}], "limit": 4}, {"batch_size": 5})
    assert [one.name for one in found.datasets] == ["almanac"]
    assert (found.limit, found.seed, found.decoding.seed, found.decoding.temperature) == (4, 3, 0, 0.7)
    assert found.models[0].batch_size == 5
    assert settings_with(path, {"limit": None, "seed": 4}, {"batch_size": None}) == settings_with(path, {"seed": 4})
    two = settings_with(
        None, {"models": ["a/b", {"name": "c/d", "batch_size": 7}], "datasets": ["nq"]}, {"batch_size": 5}
    )
    assert [(one.name, one.batch_size) for one in two.models] == [("a/b", 5), ("c/d", 5)]
    with pytest.raises(InvalidInputError, match=rf"^{re.escape(str(path))} cannot be used"):
        settings_with(path, {"limit": 0})
    with pytest.raises(InvalidInputError, match=r"^The options cannot be used"):
        settings_with(None, {"models": ["a/b"]}, {"batch_size": 5})


# ---- what depends on what ---------------------------------------------------------------------------------------


@cache
def dataset(limit: int = 12) -> Dataset:
    return read_dataset("almanac", limit=limit)


def cell(questions: Dataset | None = None, **changes: Any) -> CellPlan:
    (found,) = make_plan(checked(**changes), [questions or dataset()]).cells
    return found


@cache
def usual() -> CellPlan:
    """The plan that changes are made to."""
    return cell()


def test_files_of_a_run_lie_where_they_did_before() -> None:
    """So that a run from before goes on: if numbers change in earnest, the names that are printed go into the file."""
    study: dict[str, Any] = {"sensitivity": {"linkage": ["single", "complete"]}, "controls": {"repeats": 1}}
    made = cell(methods=sorted(METHODS), judges=["exact", "contains"], **study)
    parts: list[Any] = [*made.clusterings, *made.steps.values()]
    placed = [made.questions_folder, *(one.folder for one in parts)]
    found = "".join(f"{folder(Path('run')).as_posix()}\n" for folder in placed)
    print(found)
    assert found == Path(__file__).with_name("recorded_folders.txt").read_text("utf-8")


def changed_steps(one: CellPlan, two: CellPlan) -> set[str]:
    """Names of steps of the second that the first does not have with the same key."""
    return {name for name, step in two.steps.items() if name not in one.steps or one.steps[name].key != step.key}


def readers_of(plan: CellPlan, *names: str) -> set[str]:
    """The steps themselves and everything that reads them, found by following the inputs."""
    found = set(names)
    for step in plan.steps.values():
        if found.intersection(step.inputs):
            found.add(step.name)
    return found


CASES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"decoding": {"temperature": 0.6}}, ("samples",)),
    ({"decoding": {"seed": 1}}, ("samples",)),
    ({"decoding": {"n_samples": 4}}, ("samples",)),
    ({"decoding": {"top_k": 4}}, ("greedy",)),
    ({"decoding": {"share_prefix": True}}, ("greedy",)),
    ({"decoding": {"max_new_tokens": 9}}, ("greedy", "samples")),
    ({"nli": str(almanac_clusters_path())}, ("entailment", "alternative_entailment")),
    ({"similarity": str(almanac_clusters_path())}, ("similarity", "token_relevance", "sample_token_relevance")),
    ({"p_true_spelling": "both"}, ("p_true",)),
    ({"preset": "default"}, ("stc", "stc_no_clustering", "stc_no_prefix")),
    ({"models": [{"name": "almanac", "clusters": {"n_clusters": 64}}]}, ("stc", "stc_no_prefix")),
    ({"models": [{"name": "almanac", "dtype": "bfloat16"}]}, ("greedy", "samples")),
    ({"judges": [{"kind": "exact"}, {"kind": "rouge"}]}, ("judge:rouge",)),
    ({"sensitivity": {"metric": ["euclidean"]}}, ("stc:metric=euclidean",)),
    ({"models": [{"name": "almanac", "batch_size": 3, "device": "cpu", "label": "A"}]}, ()),
    ({"models": [{"name": "almanac", "revision": "main"}]}, ()),
    ({"pair_batch_size": 7}, ()),
    ({"methods": ["stc", "deg"]}, ()),
]


@each(("changes", "touched"), CASES, ids=[str(changes) for changes, _ in CASES])
def test_a_setting_changes_what_depends_on_it_and_nothing_else(
    changes: dict[str, Any], touched: tuple[str, ...]
) -> None:
    after = cell(**changes)
    assert changed_steps(usual(), after) == readers_of(after, *touched)


def test_questions_change_everything_and_accepted_answers_the_judgments() -> None:
    before = dataset()
    first = before.questions[0]
    reworded = replace(before, questions=(replace(first, question="Which?"), *before.questions[1:]))
    assert changed_steps(cell(before), cell(reworded)) == set(cell().steps)
    accepted = replace(before, questions=(replace(first, answers=("x",)), *before.questions[1:]))
    assert changed_steps(cell(before), cell(accepted)) == {"judge:exact"}
    assert changed_steps(cell(before), cell(replace(before, label="other"))) == set()


def test_only_what_methods_need_is_planned() -> None:
    assert set(cell(methods=["perplexity"]).steps) == {"greedy", "score:perplexity", "judge:exact"}
    assert {"samples", "similarity"} < set(cell(methods=["conu"]).steps)
    assert not {"entailment", "stc", "p_true"} & set(cell(methods=["conu"]).steps)


def test_a_variant_that_changes_nothing_is_the_main_clustering() -> None:
    found = cell(sensitivity={"embedding": ["output", "input"], "n_clusters": [2048]})
    keys = {name: step.key for name, step in found.steps.items()}
    assert keys["stc:embedding=output"] == keys["stc:n_clusters=2048"] == keys["stc"] != keys["stc:embedding=input"]


def test_a_fetched_model_is_that_of_its_folder_with_the_clusters_that_ship(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMTOKEN_CACHE", str(tmp_path))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "named").symlink_to(almanac_path())
    entry = replace(CATALOG["smollm2"], name="named", clusters=almanac_clusters_path())
    monkeypatch.setitem(CATALOG, "named", entry)
    helpers: dict[str, Any] = {"nli": "almanac", "similarity": "almanac"}
    assert changed_steps(cell(), cell(models=["named"], **helpers)) == set()
    other = {"name": "named", "clusters": {"n_clusters": 64}}
    assert "stc" in changed_steps(cell(), cell(models=[other], **helpers))
    monkeypatch.delitem(CATALOG, "named")
    assert not make_plan(checked(models=[str(tmp_path / "models" / "named")]), [dataset()]).problems


def test_a_gguf_file_is_told_apart_by_its_bytes(tmp_path: Path) -> None:
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / f"{name}.gguf").write_bytes(content)
    one, two, three = (model_identity(tmp_path / f"{name}.gguf") for name in "abc")
    assert one == two != three


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_state_of_a_repository_is_its_commit_and_whether_files_have_changed(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=me", "-c", "user.email=me@example.org")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert git_state(tmp_path) is None
    git("init")
    git("commit", "--allow-empty", "-m", "nothing")
    commit = git("rev-parse", "HEAD").strip()
    assert git_state(tmp_path) == {"commit": commit, "changed": False}
    (tmp_path / "new.txt").touch()
    assert git_state(tmp_path) == {"commit": commit, "changed": True}


def test_a_plan_comes_back_from_its_file() -> None:
    plan = make_plan(checked(sensitivity={"linkage": ["average"]}), [dataset()])
    assert Plan.from_dict(plan.to_dict()) == plan


def test_a_model_that_is_not_there_leaves_the_others(tmp_path: Path) -> None:
    plan = make_plan(checked(models=["almanac", str(tmp_path / "gone" / "b")]), [dataset()])
    assert [one.model for one in plan.cells] == ["almanac"]
    assert list(plan.problems) == ["b"] and "There is no directory" in plan.problems["b"]


def test_weights_of_another_content_are_another_model(tmp_path: Path) -> None:
    keys: list[str] = []
    for content in ("one", "one", "two"):
        folder = tmp_path / f"{len(keys)}" / "model"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_text(content)
        (folder / "README.md").write_text(str(len(keys)))
        keys.append(cell(models=[str(folder)]).steps["greedy"].key)
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("methods", "asked"),
    [
        (["stc", "p_true"], set()),
        (["semantic_entropy"], {"a/nli"}),
        (["sar"], {"a/similarity"}),
        (list(METHODS), {"a/nli", "a/similarity"}),
    ],
)
def test_only_models_that_the_methods_need_are_looked_for(
    methods: list[str], asked: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def record(model: str | Path, revision: str | None = None) -> dict[str, str]:
        found.append(str(model))
        return {"name": str(model)}

    monkeypatch.setattr("semtoken.bench.plan.model_identity", record)
    make_plan(checked(nli="a/nli", similarity="a/similarity", methods=methods), [dataset()])
    assert {name for name in found if name.startswith("a/")} == asked
