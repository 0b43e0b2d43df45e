"""The blocks of docs/integrations/recipes.md, and a reply to run them on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.integrations.recordings import gateway

PAGE = (Path(__file__).parents[2] / "docs" / "integrations" / "recipes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def recipe(word: str) -> str:
    """The one block of the page with a word in it."""
    [found] = [block for block in BLOCKS if word in block]
    return str(found)


def run(word: str, **names: Any) -> dict[str, Any]:
    """Run the block with a word in it as it stands on the page, behind the first one; the names that it leaves."""
    found: dict[str, Any] = {"reply": gateway("serve")["whole"]} | names
    exec(BLOCKS[0], found)
    exec(recipe(word), found)
    return found


def confidence() -> float:
    """The confidence of the recorded reply."""
    return float(gateway("serve")["whole"]["choices"][0]["semtoken"]["confidence"])
