"""The recipe for conda asks for what the package asks for, and is at the package's version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
NAMES = {"huggingface-hub": "huggingface_hub"}
"""Names of packages -> their names at conda-forge."""


def pairs(requirements: list[str]) -> dict[str, str]:
    """Name -> range of versions."""
    found = (re.fullmatch(r"([a-z0-9_-]+) ?(>=\S+)", one) for one in requirements)
    return {NAMES.get(one[1], one[1]): one[2] for one in found if one}


def test_the_recipe_follows_the_package() -> None:
    recipe = yaml.safe_load((ROOT / "packaging" / "recipe" / "recipe.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = pairs(project["dependencies"])
    assert len(needed) == len(project["dependencies"])
    assert pairs([one for one in recipe["requirements"]["run"] if not one.startswith("python ")]) == needed
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["license"] == project["license"]
    assert recipe["about"]["license_file"] == project["license-files"]
    [command] = recipe["build"]["python"]["entry_points"]
    assert command == f"semtoken = {project['scripts']['semtoken']}"
    assert recipe["schema_version"] == 1 and recipe["build"]["noarch"] == "python"
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest is not None and recipe["context"]["version"] == newest[1]
