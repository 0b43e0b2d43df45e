"""The lowest version that pyproject.toml declares of each dependency of the core, as lines for pip.

    python scripts/lowest.py > lowest.txt && pip install -r lowest.txt -e .

`make test-lowest` installs them into an environment of its own and runs the commands and tests of the core there.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
BOUND = re.compile(r"([A-Za-z0-9._-]+)(\[[^\]]*\])?>=([^,;\s]+)")


def lowest(requirements: list[str]) -> list[str]:
    """`name==version` for each requirement that has a lower bound."""
    found = [BOUND.match(requirement) for requirement in requirements if not requirement.startswith("semtoken")]
    return [f"{match[1]}=={match[3]}" for match in found if match]


if __name__ == "__main__":
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in sys.argv[1:]:
        wanted += project["optional-dependencies"][extra]
    print("\n".join(lowest(wanted)))
