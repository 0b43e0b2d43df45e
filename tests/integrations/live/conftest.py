"""The hosts themselves, in their current releases. `make test-integrations` gives each an environment of its own.

SEMTOKEN_TEST_INTEGRATIONS names the host whose tests are run; no other run collects them, but for those of
OpenTelemetry, which is among the tools for development. With SEMTOKEN_RECORD=1 a test also writes what it saw into
`tests/integrations/data`, which the tests of the default run read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from semtoken.support.almanac import load_questions
from tests.integrations.recordings import DATA

if TYPE_CHECKING:
    from semtoken import ScoredModel, TokenClusters
    from semtoken.support.almanac import Question

WANTED = os.environ.get("SEMTOKEN_TEST_INTEGRATIONS") or "opentelemetry"
collect_ignore_glob = [path.name for path in Path(__file__).parent.glob("test_*.py") if path.stem != f"test_{WANTED}"]


@pytest.fixture(scope="session")
def clusters() -> TokenClusters:
    from semtoken import TokenClusters

    return TokenClusters.from_pretrained("almanac")


@pytest.fixture(scope="session")
def stc(clusters: TokenClusters) -> ScoredModel:
    from semtoken import ScoredModel

    return ScoredModel.from_pretrained("almanac", dtype="float32", clusters=clusters)


@pytest.fixture(scope="session")
def questions() -> list[Question]:
    return load_questions("test")[:40]


@pytest.fixture
def record() -> Callable[[str, Any], None]:
    """Keeps what a host gave, if that was asked for."""

    def write(name: str, value: Any) -> None:
        if os.environ.get("SEMTOKEN_RECORD") == "1":
            path = DATA / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    return write
