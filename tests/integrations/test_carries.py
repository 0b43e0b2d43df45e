"""The table "what carries what" is what the recordings say, and a final score that arrives is the right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from semtoken.core.results.blocks import final_block
from tests.integrations.carries import blocks, row, table
from tests.integrations.recordings import GATEWAYS, gateway
from tests.rows import each

PAGE = Path(__file__).parents[2] / "docs" / "integrations" / "carries.md"


def test_the_page_has_the_table_of_the_recordings() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), f"Put this table into {PAGE.name}:\n{table()}"


@each("name", GATEWAYS)
def test_what_arrives_is_the_score_of_the_server(name: str) -> None:
    """No gateway changes a number, and none makes a running value final."""
    got = gateway(name)
    [right] = blocks(gateway("serve")["whole"])
    final = [block for block in blocks(got["stream"]) if block.get("final") is True]
    for block in [*blocks(got["whole"]), *final]:
        assert block["sequence_uncertainty"] == pytest.approx(right["sequence_uncertainty"], abs=1e-9)
    assert bool(final) == (row(got)[1] == "yes")


def test_litellm_keeps_the_final_score_only_because_the_last_content_carries_it() -> None:
    """Without that block there would be none but the running values, which say too little."""
    got = gateway("litellm")
    found = final_block(got["stream"])
    assert found is not None
    ends = [one for chunk in got["stream"] for one in chunk["choices"] if one["finish_reason"] is not None]
    assert ends and not any(blocks(one) for one in ends)
