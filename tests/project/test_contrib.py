"""Proposals to other projects: patches hold the files beside them and apply; entries have their list's form."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

CONTRIB = Path(__file__).parents[2] / "packaging" / "contrib"


def added(patch: str, name: str) -> str:
    """The text of a new file in a patch."""
    body = patch.partition(f"+++ b/{name}\n")[2].partition("\n--- ")[0]
    return "".join(f"{line[1:]}\n" for line in body.splitlines() if line.startswith("+"))


def test_the_patch_for_lm_polygraph_holds_the_files_beside_it() -> None:
    [path] = CONTRIB.glob("lm-polygraph/*.patch")
    patch = path.read_text("utf-8")
    for name in (
        "src/lm_polygraph/estimators/listed_tokens_bound.py",
        "src/lm_polygraph/estimators/semantic_token_clustering.py",
        "src/lm_polygraph/stat_calculators/stc_log_scores.py",
        "test/test_listed_tokens_bound.py",
        "test/test_semantic_token_clustering.py",
    ):
        here = (path.parent / Path(name).name).read_text("utf-8")
        assert here.startswith('"""Proposed as ') and added(patch, name) == here.partition("\n\n")[2], name
    for line in (
        "import ListedTokensBound",
        "import SemanticTokenClustering",
        "import StcLogScoresCalculator",
        "_register(StcLogScoresCalculator)",
    ):
        assert re.search(rf"^\+.*{re.escape(line)}$", patch, re.MULTILINE), line


@pytest.mark.parametrize("name", ["inspect_ai/extensions.patch", "llm/directory.patch"])
def test_a_change_of_a_list_applies_to_its_place(name: str, tmp_path: Path) -> None:
    patch = (CONTRIB / name).read_text("utf-8")
    before = [line[1:] for line in patch.splitlines()[3:] if line.startswith((" ", "-"))]
    first = int(re.search(r"^@@ -(\d+)", patch, re.MULTILINE)[1])  # type: ignore[index]
    copy = tmp_path / "file"
    copy.write_text("\n".join(["above"] * (first - 1) + before) + "\n", "utf-8")
    subprocess.run(["patch", "--batch", "--fuzz=0", str(copy), str(CONTRIB / name)], check=True)
    assert "semtoken" in copy.read_text("utf-8")


def test_the_entry_for_inspect_has_the_fields_of_its_list() -> None:
    patch = (CONTRIB / "inspect_ai" / "extensions.patch").read_text("utf-8")
    [entry] = yaml.safe_load("".join(f"{line[1:]}\n" for line in patch.splitlines()[2:] if line.startswith("+")))
    assert set(entry) == {"name", "description", "author", "categories"}
    assert entry["categories"] in (["Frameworks"], ["Analysis"], ["Tooling"], ["Sandboxes"])


def test_every_report_of_a_defect_has_its_program() -> None:
    page = (CONTRIB / "upstream" / "README.md").read_text("utf-8")
    programs = sorted(path.name for path in (CONTRIB / "upstream").glob("*.py"))
    assert programs and all(f"]({name})" in page for name in programs)
