"""The parts of docs/integrations/recipes.md that need no host, run as they stand there on recorded replies."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.recipes import BLOCKS, confidence, recipe
from tests.integrations.recordings import gateway


@pytest.mark.parametrize("name", ["serve", "openai", "litellm", "litellm_proxy", "llama_index"])
def test_the_first_block_reads_replies_of_every_client_that_keeps_the_score(name: str) -> None:
    found: dict[str, Any] = {"reply": gateway(name)["whole"]}
    exec(BLOCKS[0], found)
    assert found["block"]["confidence"] == pytest.approx(confidence(), abs=1e-9)
    assert found["event"]["gen_ai.evaluation.score.value"] == found["block"]["confidence"]


def test_the_filter_appends_the_final_score_once() -> None:
    found: dict[str, Any] = {}
    exec(recipe("class Filter"), found)
    stream, filter_ = gateway("serve")["stream"], found["Filter"]()
    assert [filter_.stream(event) for event in stream] == stream
    body = {"messages": [{"role": "assistant", "content": "Mexico City"}]}
    last = filter_.outlet(body)["messages"][-1]["content"]
    assert last == f"Mexico City\n\n(confidence {confidence():.2f})"
    assert filter_.outlet(body)["messages"][-1]["content"] == last


def test_the_highlighted_tokens_are_text_and_share() -> None:
    """Gradio's component takes pieces with a number from 0 to 1."""
    import semtoken as st

    clusters = st.TokenClusters.from_pretrained("almanac")
    [answer] = st.score_reply(gateway("serve")["whole"], clusters)
    [line] = [line for line in recipe("HighlightedText").splitlines() if line.startswith("shown")]
    found: dict[str, Any] = {"answer": answer}
    exec(line, found)
    assert "".join(text for text, _ in found["shown"]).strip() == "Mexico City"
    assert all(0 <= share <= 1 for _, share in found["shown"])


def test_every_live_test_says_what_it_installs() -> None:
    live = Path(__file__).parent / "live"
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "integrations.py"))
    assert set(script["LIVE"]) == {path.stem.removeprefix("test_") for path in live.glob("test_*.py")}
