"""The parts of docs/integrations/recipes.md that need no host, run as they stand there on recorded replies."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "integrations" / "recipes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
GATEWAYS = Path(__file__).parent / "data" / "gateways"


def recorded(name: str) -> Any:
    return json.loads((GATEWAYS / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["serve", "openai", "litellm", "litellm_proxy", "llama_index"])
def test_the_first_block_reads_replies_of_every_client_that_keeps_the_score(name: str) -> None:
    found: dict[str, Any] = {"reply": recorded(name)["whole"]}
    exec(BLOCKS[0], found)
    right = recorded("serve")["whole"]["choices"][0]["semtoken"]["uncertainty"]
    assert found["block"]["uncertainty"] == pytest.approx(right, abs=1e-9)
    assert found["event"]["gen_ai.evaluation.score.value"] == found["block"]["uncertainty"]


def test_the_filter_appends_the_final_score_once() -> None:
    found: dict[str, Any] = {}
    exec(next(block for block in BLOCKS if block.startswith("class Filter")), found)
    stream, filter_ = recorded("serve")["stream"], found["Filter"]()
    assert [filter_.stream(event) for event in stream] == stream
    body = {"messages": [{"role": "assistant", "content": "Mexico City"}]}
    last = filter_.outlet(body)["messages"][-1]["content"]
    right = recorded("serve")["whole"]["choices"][0]["semtoken"]["uncertainty"]
    assert last == f"Mexico City\n\n(uncertainty {right:.2f})"
    assert filter_.outlet(body)["messages"][-1]["content"] == last


def test_the_highlighted_tokens_are_text_and_share() -> None:
    """What Gradio's component takes: pieces with a number from 0 to 1."""
    import semtoken as st

    clusters = st.TokenClusters.from_pretrained("almanac")
    [answer] = st.score_payload(recorded("serve")["whole"], clusters)
    line = next(block for block in BLOCKS if "HighlightedText" in block).splitlines()[0]
    found: dict[str, Any] = {"answer": answer}
    exec(line, found)
    assert "".join(text for text, _ in found["shown"]).strip() == "Mexico City"
    assert all(0 <= share <= 1 for _, share in found["shown"])
