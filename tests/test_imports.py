"""What importing semtoken loads, and which module may import which."""

from __future__ import annotations

import ast
import graphlib
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import semtoken

SOURCE = Path(semtoken.__file__).parent

LAYERS = (
    "errors choices version support",
    "files executors",
    "almanac",
    "tokens models clustering metrics",
    "parts",
    "results",
    "clusters engine_tokens display",
    "calibration",
    "scoring methods",
    "observers",
    "payloads backends stc stream probing decisions",
    "statistics",
    "journal",
    "bench score_file checking",
    "web integrations",
    "cli",
    "__main__",
)
"""Modules and packages of semtoken, innermost first. Each may import from its own line and the lines above it."""

HEAVY = (
    *("torch", "transformers", "pandas", "scipy", "numba", "sklearn", "vllm", "matplotlib", "pyarrow"),
    *("fastapi", "httpx", "openai", "pydantic", "ray"),
)

CORE = """
import tokenizers
import numpy as np
import semtoken as st

words = ["<eos>", "TV", "television", "the", "t", "17"]
model = tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<eos>")
tokenizer = tokenizers.Tokenizer(model)
tokenizer.add_special_tokens(["<eos>"])
vocabulary = st.Vocabulary.from_tokenizer(tokenizer)
clusters = st.TokenClusters(np.array([0, 1, 1, 2, 3, 4], dtype=np.int32), vocabulary)
scored = st.score_logits(np.zeros((2, 6), dtype=np.float32), [1, 0], clusters, preset="paper")
assert round(scored.tokens[0].agreeing_probability, 6) == round(5 / 6, 6), scored  # TV television; t; <eos> the
"""


def loaded_by(code: str) -> set[str]:
    """Top-level modules of a fresh interpreter after some code."""
    code += "\nimport sys, json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("code", ["import semtoken", CORE], ids=["import", "scoring"])
def test_the_core_loads_nothing_heavy(code: str) -> None:
    assert loaded_by(code).isdisjoint(HEAVY)


def test_import_alone_loads_not_even_numpy() -> None:
    assert "numpy" not in loaded_by("import semtoken")


def test_every_public_name_is_there() -> None:
    for name in semtoken.__all__:
        assert getattr(semtoken, name) is not None
    assert set(dir(semtoken)) >= set(semtoken.__all__)
    with pytest.raises(AttributeError, match="no attribute 'score_logit'"):
        _ = semtoken.score_logit


# --- direction of imports ----------------------------------------------------------------------------------------


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def layer_of(module: str) -> int:
    """The line of `LAYERS` that names the first part of a module below semtoken."""
    head = module.partition(".")[0]
    found = [k for k, line in enumerate(LAYERS) if head in line.split()]
    assert len(found) == 1, f"semtoken.{head} stands in {len(found)} lines of LAYERS; put it where it belongs"
    return found[0]


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def home_of(name: str) -> str:
    """Full name of the module behind `from semtoken import name`."""
    value = getattr(semtoken, name, None)
    return f"semtoken.{name}" if value is None else str(getattr(value, "__module__", value.__name__))


def imported_by(path: Path) -> set[str]:
    """Modules of semtoken that a file imports: at its top, inside a function, or for its types only."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            package = path.relative_to(SOURCE.parent).parts[: -node.level] if node.level else ()
            base = ".".join([*package, *([node.module] if node.module else [])])
            found.update([base] if base != "semtoken" else [home_of(alias.name) for alias in node.names])
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(parsed(path))
    return {name.removeprefix("semtoken.") for name in found if name.startswith("semtoken.")}


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_go_one_way(path: Path) -> None:
    name = module_name(path)
    wrong = [other for other in imported_by(path) if layer_of(other) > layer_of(name)]
    assert not wrong, f"semtoken.{name} imports {wrong} from a layer above it"


def modules_imported_by(path: Path) -> set[str]:
    """As `imported_by`, in modules: `from semtoken.calibration import files` names that one, not its package."""
    known = {module_name(file) for file in FILES}
    found = imported_by(path)
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and (package := (node.module or "").removeprefix("semtoken.")) in found:
            inside = {f"{package}.{alias.name}" for alias in node.names}
            found = (found - {package} if inside <= known else found) | (inside & known)
    return (found & known) - {module_name(path)}


def test_no_module_needs_itself() -> None:
    """Imports make no circle, those inside functions and those for types only among them."""
    graph = {module_name(path): modules_imported_by(path) for path in FILES}
    assert "calibration.calibrator" in graph["cli.calibrate"]
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_the_package_is_seen_whole() -> None:
    """The check above reads what it is meant to read."""
    assert {"tokens.vocabulary", "scoring.scorer", "scoring.steps", "results"} <= imported_by(
        SOURCE / "scoring" / "logits.py"
    )
    assert "clusters" in imported_by(SOURCE / "scoring" / "scorer.py")
    assert "clusters.tables" in imported_by(SOURCE / "clusters" / "token_clusters.py")


def names_of_types(tree: ast.Module) -> Iterator[str]:
    """Names that a module gives to types: its classes, and to arrays as in `FloatArray = npt.NDArray[np.float64]`."""
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Subscript):
            continue
        if ast.unparse(node.value.value) in ("NDArray", "npt.NDArray"):
            yield ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def test_a_name_stands_for_one_type() -> None:
    """Two ideas under one name are hard to tell apart in a search, a traceback or a conversation."""
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for name in names_of_types(parsed(path)):
            homes.setdefault(name, []).append(module_name(path))
    shared = {name: found for name, found in homes.items() if len(found) > 1}
    assert not shared, f"name one of them otherwise: {shared}"


def test_no_module_hides_a_public_function() -> None:
    """`semtoken.scoring` once imported would hide a function of that name."""
    modules = {path.stem if path.is_file() else path.name for path in SOURCE.iterdir()}
    functions = {name for name in semtoken.__all__ if not isinstance(getattr(semtoken, name), type(semtoken))}
    assert modules.isdisjoint(functions - {"__version__"})
